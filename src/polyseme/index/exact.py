"""Exact search: the smallest distance from a point to each label's concepts.

In: concepts with their label ids, and query points. Out: one distance (or log density) per label.
Memory beyond inputs and result is bounded by a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError, check_number
from polyseme.index import compiled, portable
from polyseme.index.by_label import SortedConcepts
from polyseme.index.distinct import distinct, refuse_non_finite

if TYPE_CHECKING:
    from polyseme.index.device import DeviceConcepts


class ConceptIndex:
    """Concepts of every label, searched exactly.

    Identical concepts of one label are stored once and counted, which changes no result. Concepts
    that come sorted by label, all different and in single precision are not copied: leave the
    array as it is while the index is in use.

    Distances are searched by a compiled library where the package was installed with one, else in
    numpy; the two agree to 1e-5 of each distance that is not below 1e-18. The library holds a copy
    of the concepts in bytes, a quarter of their own memory and 16 bytes each, from the first search
    on.

    Parameters
    ----------
    points : array, shape (n_concepts, n_components)
        The concepts.
    label_ids : int array, shape (n_concepts,)
        The label of each concept.
    n_labels : int
        The number of labels; some may have no concept.
    counts : int array, shape (n_concepts,), optional
        How many times each concept occurs; by default once.
    memory_mb : float
        The most working memory of a search, in megabytes; more than 20 is not made use of, except
        on a device of its own, where each of two steps may take so much.
    device : str
        "cpu", or a device of torch such as "cuda", which then holds the concepts too and searches
        them.

    Attributes
    ----------
    n_concepts : int
        Distinct concepts held.
    n_occurrences : int64 array, shape (n_labels,)
        Concepts of each label, repeats counted.

    Examples
    --------
    >>> index = ConceptIndex([[0.0], [4.0], [5.0]], [0, 0, 1], n_labels=3)
    >>> index.distances([[3.0]])
    array([[ 1.,  2., inf]], dtype=float32)
    """

    def __init__(
        self,
        points: ArrayLike,
        label_ids: ArrayLike,
        n_labels: int,
        *,
        counts: ArrayLike | None = None,
        memory_mb: float = 64.0,
        device: str = "cpu",
    ) -> None:
        check_number("n_labels", n_labels, owner="ConceptIndex", low=0, whole=True)
        check_number("memory_mb", memory_mb, owner="ConceptIndex", low=0, above=True)
        # Other types of number are rounded block by block, not all at once.
        concepts = points if isinstance(points, np.ndarray) else np.asarray(points, np.float32)
        labels = np.asarray(label_ids, dtype=np.int64)
        occurrences = (
            np.ones(len(labels), dtype=np.int64)
            if counts is None
            else np.asarray(counts, dtype=np.int64)
        )
        if (
            concepts.ndim != 2
            or labels.shape != concepts.shape[:1]
            or occurrences.shape != labels.shape
        ):
            raise InputError(
                f"`points` {concepts.shape}, `label_ids` {labels.shape} and `counts` "
                f"{occurrences.shape} of `ConceptIndex` do not belong together; expected (m, d), "
                "(m,) and (m,)."
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < n_labels):
            raise InputError(
                f"`label_ids` of `ConceptIndex` must lie in 0..{n_labels - 1}; "
                f"got {labels.min()}..{labels.max()}."
            )
        if (occurrences < 1).any():
            raise InputError(
                f"`counts` of `ConceptIndex` must be at least 1; got {occurrences.min()}."
            )
        refuse_non_finite(concepts, "points")
        self.n_labels = int(n_labels)
        self.memory_mb = memory_mb
        self.device = device
        self.n_occurrences = np.bincount(labels, occurrences, minlength=n_labels).astype(np.int64)
        self._concepts = SortedConcepts(*distinct(concepts, labels, occurrences))
        self._compiled: compiled.PackedConcepts | None = None
        self._on_device: DeviceConcepts | None = None

    @property
    def n_concepts(self) -> int:
        """Count the distinct concepts."""
        return len(self._concepts)

    def distances(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Give the distance from each query to the nearest concept of each label.

        Parameters
        ----------
        queries : array, shape (q, n_components)

        Returns
        -------
        float32 array, shape (q, n_labels)
            Infinity where a label has no concept.
        """
        asked = self._queries(queries)
        if self.device != "cpu":
            return self._device().distances(asked)
        if self._compiled is None:
            self._compiled = compiled.searcher(self._concepts)
        if self._compiled is not None and self._compiled.wants(len(asked)):
            return self._compiled.distances(asked, self.n_labels)
        return portable.distances(self._concepts, asked, self.n_labels, self.memory_mb)

    def log_densities(self, queries: ArrayLike, bandwidth: float) -> NDArray[np.float64]:
        """Give the log of the summed Gaussian kernel over each label's concepts, at each query.

        Parameters
        ----------
        queries : array, shape (q, n_components)
        bandwidth : float
            Standard deviation of the kernel.

        Returns
        -------
        float64 array, shape (q, n_labels)
            log of the sum over occurrences of exp(-distance² / (2 bandwidth²)); minus infinity
            where a label has no concept.
        """
        check_number("bandwidth", bandwidth, owner="ConceptIndex", low=0, above=True)
        asked = self._queries(queries)
        if self.device != "cpu":
            return self._device().log_densities(asked, bandwidth)
        return portable.log_densities(
            self._concepts, asked, self.n_labels, bandwidth, self.memory_mb
        )

    def _queries(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Check the query points."""
        asked = np.asarray(queries, dtype=np.float32)
        d = self._concepts.points.shape[1]
        if asked.ndim != 2 or asked.shape[1] != d:
            raise InputError(
                f"`queries` of `ConceptIndex` have shape {asked.shape}; expected (q, {d})."
            )
        refuse_non_finite(asked, "queries")
        return asked

    def _device(self) -> DeviceConcepts:
        """Give the concepts on their device, moved there when first asked for."""
        from polyseme.index.device import DeviceConcepts

        if self._on_device is None:
            self._on_device = DeviceConcepts(
                self._concepts, self.n_labels, self.device, self.memory_mb
            )
        return self._on_device
