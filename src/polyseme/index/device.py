"""Search on a device of torch: blocks of matrix products, then exact distances of candidates.

In: sorted concepts, moved to the device once, and query points. Out: the smallest distance or the
log density per label, as numpy arrays. Where triton is there, `fused` does the larger part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.index.by_label import SortedConcepts

if TYPE_CHECKING:
    import torch

    from polyseme.index.fused import FusedConcepts


class DeviceConcepts:
    """Concepts on a device, searched there.

    Parameters
    ----------
    concepts : SortedConcepts
    n_labels : int
    device : str
        A device of torch, such as "cuda".
    memory_mb : float
        The most working memory of a search on the device, in megabytes.
    fused : bool, optional
        Whether to use the fused kernel; by default where it can be had.
    """

    def __init__(
        self,
        concepts: SortedConcepts,
        n_labels: int,
        device: str,
        memory_mb: float,
        fused: bool | None = None,
    ) -> None:
        import torch

        try:
            self.device = torch.device(device)
            self.points = torch.from_numpy(concepts.points).to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"`device` of `ConceptIndex` must be a device of torch that is there; got "
                f"{device!r} ({str(error).splitlines()[0]})."
            ) from error
        self.centre = torch.from_numpy(concepts.centre).to(self.device)
        self.labels = torch.from_numpy(concepts.labels).to(self.device)
        self.counts = torch.from_numpy(concepts.counts).to(self.device)
        self.n_labels = n_labels
        self.memory_mb = memory_mb
        self.fused: FusedConcepts | None = None
        if fused or (fused is None and self.device.type == "cuda"):
            from polyseme.index.fused import fused_concepts

            self.fused = fused_concepts(concepts, self.points, self.centre, memory_mb)

    def distances(self, asked: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give the distance from each query to the nearest concept of each label.

        Parameters
        ----------
        asked : float32 array, shape (q, d)

        Returns
        -------
        float32 array, shape (q, n_labels)
            Right to about 1e-6 of itself; infinity where a label has no concept.
        """
        import torch

        result = np.empty((len(asked), self.n_labels), dtype=np.float32)
        n_rows, n_concepts = self._sizes(len(asked), 24)
        if self.fused is not None:
            n_rows = self.fused.n_rows(self.n_labels)
        for row in range(0, len(asked), n_rows):
            part = torch.from_numpy(np.ascontiguousarray(asked[row : row + n_rows]))
            queries = part.to(self.device)
            if self.fused is not None:
                found = self.fused.distances(queries, self.n_labels)
            else:
                found = self._distances(queries, n_concepts)
            result[row : row + n_rows] = found.cpu().numpy()
        return result

    def log_densities(self, asked: NDArray[np.float32], bandwidth: float) -> NDArray[np.float64]:
        """Give the log of the summed Gaussian kernel over each label's concepts, at each query.

        Parameters
        ----------
        asked : float32 array, shape (q, d)
        bandwidth : float
            Standard deviation of the kernel.

        Returns
        -------
        float64 array, shape (q, n_labels)
        """
        import torch

        result = np.empty((len(asked), self.n_labels))
        n_rows, n_concepts = self._sizes(len(asked), 48)
        log_counts = self.counts.double().log()
        for row in range(0, len(asked), n_rows):
            part = torch.from_numpy(np.ascontiguousarray(asked[row : row + n_rows]))
            queries = part.to(self.device).double() - self.centre.double()
            total = queries.new_full((self.n_labels, len(queries)), -torch.inf)
            for first in range(0, len(self.labels), n_concepts):
                where = slice(first, first + n_concepts)
                points = self.points[where].double() - self.centre.double()
                logs = _expanded(points, queries).clamp_(min=0.0).div_(-2.0 * bandwidth**2)
                logs += log_counts[where, None]
                ids = self.labels[where]
                pairs = ids[:, None].expand_as(logs)
                top = torch.full_like(total, -torch.inf).scatter_reduce_(0, pairs, logs, "amax")
                logs -= top[ids]
                sums = torch.zeros_like(total).index_add_(0, ids, logs.exp_())
                here = torch.where(sums > 0, sums.log() + top, -torch.inf)
                total = torch.logaddexp(total, here)
            result[row : row + n_rows] = total.T.cpu().numpy()
        return result

    def _sizes(self, n_queries: int, per_pair: int) -> tuple[int, int]:
        """Say how many queries and concepts a block has, at so many bytes for each pair."""
        n_bytes = max(2**16, int(self.memory_mb * 1e6))
        d = self.points.shape[1]
        n_rows = max(1, min(n_queries, 4096, n_bytes // (4 * per_pair)))
        # Places in a block are counted in 31 bits.
        return n_rows, max(1, min(2**30 // n_rows, n_bytes // (per_pair * n_rows + 16 * d)))

    def _distances(self, queries: torch.Tensor, n_concepts: int) -> torch.Tensor:
        """Give the smallest distance to each label, (q, n_labels), in plain torch."""
        import torch

        shifted = queries - self.centre
        lengths = torch.linalg.vector_norm(shifted, dim=1).square_()
        best = queries.new_full((self.n_labels, len(queries)), torch.inf)
        slack = _slack(self.points.shape[1], self.device.type)
        for first in range(0, len(self.labels), n_concepts):
            where = slice(first, first + n_concepts)
            points, ids = self.points[where] - self.centre, self.labels[where]
            squared = _expanded(points, shifted)
            squares = torch.linalg.vector_norm(points, dim=1).square_()
            pairs = ids[:, None].expand_as(squared)
            nearest = torch.full_like(best, torch.inf).scatter_reduce_(0, pairs, squared, "amin")
            largest = squares.new_zeros(self.n_labels).scatter_reduce_(0, ids, squares, "amax")
            # Whatever rounding may hide: no concept above the limit can be the nearest.
            limit = torch.minimum(nearest, best.square())
            limit += slack * (lengths + largest[:, None]) + 1e-36
            concept, query = torch.nonzero(squared <= limit[ids], as_tuple=True)
            measure(self.points, queries, first + concept, query, self.labels, best, self.memory_mb)
        return best.T.contiguous()


def measure(
    points: torch.Tensor,
    queries: torch.Tensor,
    concept: torch.Tensor,
    query: torch.Tensor,
    labels: torch.Tensor,
    best: torch.Tensor,
    memory_mb: float,
) -> None:
    """Lower the best distances by those of some pairs, from their differences.

    Parameters
    ----------
    points, queries : tensors, shapes (n, d) and (q, d)
    concept, query : int tensors, shape (m,)
        The pairs.
    labels : int tensor, shape (n,)
        The label of each concept.
    best : tensor, shape (n_labels, q)
        Changed in place.
    memory_mb : float
        The most working memory, in megabytes.
    """
    import torch

    step = max(1, int(memory_mb * 1e6) // (12 * points.shape[1] + 64))
    flat = best.view(-1)
    for start in range(0, len(concept), step):
        some, asked = concept[start : start + step], query[start : start + step]
        gaps = points[some].sub_(queries[asked])
        # Squares of tiny numbers would leave the range of single precision.
        found = torch.linalg.vector_norm(gaps, dim=1, dtype=torch.float64).to(best.dtype)
        flat.scatter_reduce_(0, labels[some] * best.shape[1] + asked, found, "amin")


def _expanded(points: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Give all squared distances, (n, q), by the expansion of the square."""
    import torch

    squared = torch.addmm(
        points.square().sum(dim=1, keepdim=True), points, queries.T, beta=1.0, alpha=-2.0
    )
    squared += queries.square().sum(dim=1)
    return squared


def _slack(d: int, kind: str) -> float:
    """Give what rounding may do to a squared distance, as a share of the squared lengths."""
    import torch

    loose = kind != "cpu" and (
        torch.backends.cuda.matmul.allow_tf32 or torch.get_float32_matmul_precision() != "highest"
    )
    return 4.0 * (d + 16) * 2.0**-24 + (2.0**-8 if loose else 0.0)
