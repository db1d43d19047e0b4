"""Search on a GPU in one kernel: half-precision products, reduced before anything is written.

In: sorted concepts on the device, and queries. Out: the smallest distance per label. The
kernel leaves, of each query and tile of concepts, only the two smallest values; what the rounding
to half precision may hide is bounded, and every concept within that bound is measured exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyseme.index.by_label import SortedConcepts

if TYPE_CHECKING:
    import torch

TILE = 128
_RUN = 16
_DEPTH = 32
# Padding every label to whole tiles must not cost more than this.
_MOST_PADDING = 1.5


def fused_concepts(
    concepts: SortedConcepts, points: torch.Tensor, centre: torch.Tensor, memory_mb: float
) -> FusedConcepts | None:
    """Make the fused search ready, if there is triton and labels are large enough for it.

    Parameters
    ----------
    concepts : SortedConcepts
    points, centre : tensors, shapes (n, d) and (d,)
        The concepts and their centre on the device.
    memory_mb : float
        The most working memory of a search, in megabytes.

    Returns
    -------
    FusedConcepts or None
    """
    kernel = _kernel()
    sizes = np.diff(concepts.starts)
    n_tiles = -(-sizes // TILE)
    if kernel is None or not len(concepts) or TILE * n_tiles.sum() > _MOST_PADDING * len(concepts):
        return None
    return FusedConcepts(concepts, points, centre, memory_mb, kernel)


class FusedConcepts:
    """Concepts in half precision, every label padded to whole tiles with its own concepts.

    Parameters
    ----------
    concepts : SortedConcepts
    points, centre : tensors, shapes (n, d) and (d,)
    memory_mb : float
    kernel : object
        The compiled function.
    """

    def __init__(
        self,
        concepts: SortedConcepts,
        points: torch.Tensor,
        centre: torch.Tensor,
        memory_mb: float,
        kernel: Any,
    ) -> None:
        import torch

        device = points.device
        self.points, self.centre, self.kernel = points, centre, kernel
        self.memory_mb = memory_mb
        sizes = np.diff(concepts.starts)
        n_tiles = -(-sizes // TILE)
        # Padding repeats a label's last concept, which changes no minimum.
        ends = np.repeat(concepts.starts[1:] - 1, TILE * n_tiles)
        firsts = np.repeat(np.cumsum(TILE * n_tiles) - TILE * n_tiles, TILE * n_tiles)
        rows = np.arange(len(ends)) - firsts + np.repeat(concepts.starts[:-1], TILE * n_tiles)
        self.rows = torch.from_numpy(np.minimum(rows, ends)).to(device)
        self.segment_of_tile = torch.from_numpy(
            np.repeat(np.arange(len(sizes), dtype=np.int32), n_tiles)
        ).to(device)
        self.segments = torch.from_numpy(concepts.segments).to(device)
        self.n_segments = len(sizes)
        self.segment_of_concept = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(
            device
        )
        d = points.shape[1]
        self.width = -(-d // _DEPTH) * _DEPTH
        # A power of two brings all numbers below 1, where half precision is finest.
        largest = (points.amax(dim=0) - centre).abs().maximum((points.amin(dim=0) - centre).abs())
        extent = float(largest.max()) or float(centre.abs().max()) or 1.0
        self.scale = 2.0 ** -int(np.ceil(np.log2(max(extent, 1e-30))))
        self.half = torch.zeros(len(self.rows), self.width, dtype=torch.float16, device=device)
        self.squares = torch.empty(len(self.rows), device=device)
        rest = torch.zeros(self.n_segments, device=device)
        norm = torch.zeros(self.n_segments, device=device)
        for first in range(0, len(self.rows), 2**18):
            where = slice(first, first + 2**18)
            some = (points[self.rows[where]] - centre) * self.scale
            self.half[where, :d] = some.half()
            self.squares[where] = some.square().sum(dim=1)
            missed = torch.linalg.vector_norm(some - self.half[where, :d].float(), dim=1)
            ids = self.segment_of_tile[where.start // TILE :][: len(some) // TILE].long()
            of_tile = missed.view(-1, TILE).amax(dim=1)
            rest.scatter_reduce_(0, ids, of_tile, "amax")
            of_tile = self.squares[where].sqrt().view(-1, TILE).amax(dim=1)
            norm.scatter_reduce_(0, ids, of_tile, "amax")
        self.rest, self.norm = rest, norm

    def n_rows(self, n_labels: int) -> int:
        """Say how many queries a search takes at once: whole tiles."""
        per_query = 26 * len(self.segment_of_tile) + 16 * n_labels
        # Places in the table of tiles are counted in 31 bits.
        most = min(256 * TILE, 2**30 // len(self.segment_of_tile))
        return max(1, min(most, int(self.memory_mb * 1e6 / per_query)) // TILE) * TILE

    def distances(self, queries: torch.Tensor, n_labels: int) -> torch.Tensor:
        """Give the smallest distance to each label.

        Parameters
        ----------
        queries : tensor, shape (q, d)
        n_labels : int

        Returns
        -------
        tensor, shape (q, n_labels)
        """
        import torch

        from polyseme.index.device import measure

        shifted = (queries - self.centre) * self.scale
        # Queries beyond the range of half precision are far from everything: clamped they make
        # the bound loose, not wrong.
        half = shifted.new_zeros(len(queries), self.width, dtype=torch.float16)
        half[:, : queries.shape[1]] = shifted.clamp(-6e4, 6e4).half()
        kept = half[:, : queries.shape[1]].float()
        lengths = shifted.square().sum(dim=1)
        least, place, second, best = self.launch(half, lengths)
        bound = self._bound(shifted, kept, lengths)
        limit = best + bound
        tile_limit = limit[:, self.segment_of_tile.long()]
        # Written so that a number that overflowed keeps its concepts.
        query, tile = torch.nonzero(~(least > tile_limit), as_tuple=True)
        result = queries.new_full((self.n_segments, len(queries)), torch.inf)
        lone = second[query, tile] > tile_limit[query, tile]
        at = tile[lone] * TILE + place[query[lone], tile[lone]].long()
        owner = self.segment_of_concept
        budget = self.memory_mb
        measure(self.points, queries, self.rows[at], query[lone], owner, result, budget)
        query, tile = query[~lone], tile[~lone]
        lanes = torch.arange(TILE, device=queries.device)
        step = max(1, int(budget * 1e6) // (32 * TILE))
        for first in range(0, len(tile), step):
            some = tile[first : first + step]
            at = (some[:, None] * TILE + lanes).view(-1)
            asked = query[first : first + step].repeat_interleave(TILE)
            measure(self.points, queries, self.rows[at], asked, owner, result, budget)
        full = queries.new_full((len(queries), n_labels), torch.inf)
        full[:, self.segments] = result.T
        return full

    def launch(
        self, half: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the kernel; see `_fused_kernel.tiles` for what it leaves."""
        import torch

        n_queries, n_tiles = len(half), len(self.segment_of_tile)
        least = torch.empty(n_queries, n_tiles, device=half.device)
        second = torch.empty_like(least)
        place = torch.empty(n_queries, n_tiles, dtype=torch.int32, device=half.device)
        best = torch.full((n_queries, self.n_segments), torch.inf, device=half.device)
        grid = (-(-n_queries // TILE), -(-n_tiles // _RUN))
        self.kernel[grid](
            half, self.half, lengths, self.squares, self.segment_of_tile,
            least, second, place, best.view(torch.int32),
            n_queries, n_tiles, self.n_segments,
            WIDTH=self.width, TILE=TILE, RUN=_RUN, DEPTH=_DEPTH, num_warps=8, num_stages=3,
        )  # fmt: skip
        return least, place, second, best

    def _bound(
        self, shifted: torch.Tensor, kept: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        """Give, (q, n_segments), twice what rounding may do to a squared distance."""
        import torch

        missed = torch.linalg.vector_norm(shifted - kept, dim=1)[:, None]
        length = torch.linalg.vector_norm(kept, dim=1)[:, None]
        products = 2.0 * (length * self.rest + missed * self.norm)
        # Sums inside matrix units may be cut off rather than rounded.
        sums = self.width * 2.0**-22 * (lengths[:, None] + length**2 + 2.0 * self.norm.square())
        bound: torch.Tensor = 2.0 * (products + sums) * 1.01 + 1e-30
        return bound


def _kernel() -> Any | None:
    """Give the kernel; None without triton."""
    try:
        from polyseme.index._fused_kernel import tiles
    except ImportError:
        return None
    return tiles
