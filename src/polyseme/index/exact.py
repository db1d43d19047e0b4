"""Exact search: the smallest distance from a point to each label's concepts.

In: concepts with their label ids, and query points. Out: one distance (or log density) per label.
Memory beyond inputs and result is bounded by a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError, check_number


class ConceptIndex:
    """Concepts of every label, searched exactly.

    Identical concepts of one label are stored once and counted, which changes no result.

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
        The most working memory of a search, in megabytes.

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
    ) -> None:
        check_number("n_labels", n_labels, owner="ConceptIndex", low=0, whole=True)
        check_number("memory_mb", memory_mb, owner="ConceptIndex", low=0, above=True)
        concepts = np.asarray(points, dtype=np.float32)
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
        _refuse_non_finite(concepts, "points")
        self.n_labels = int(n_labels)
        self.memory_mb = memory_mb
        self.n_occurrences = np.bincount(labels, occurrences, minlength=n_labels).astype(np.int64)
        self._points, self._labels, self._counts = _distinct(concepts, labels, occurrences)
        self._squares = np.einsum("ij,ij->i", self._points, self._points, dtype=np.float64)

    @property
    def n_concepts(self) -> int:
        """Count the distinct concepts."""
        return len(self._labels)

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
        result = np.full((len(asked), self.n_labels), np.inf, dtype=np.float32)
        for block in self._blocks(asked):
            nearest = _by_label(np.minimum, block.squared, block.starts)
            self._refine(nearest, block, asked)
            # A label's concepts may lie in two neighbouring blocks.
            before = result[block.rows, block.labels]
            result[block.rows, block.labels] = np.minimum(before, nearest.T)
        return np.sqrt(result, out=result)

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
        result = np.full((len(asked), self.n_labels), -np.inf)
        log_counts = np.log(self._counts)
        # Double precision: a small bandwidth magnifies the rounding of the squared distances.
        for block in self._blocks(asked.astype(np.float64)):
            logs = np.maximum(block.squared, 0.0, out=block.squared)
            logs /= -2.0 * bandwidth**2
            logs += log_counts[block.concepts, None]
            top = _by_label(np.maximum, logs, block.starts)
            logs -= np.repeat(top, block.sizes, axis=0)
            np.exp(logs, out=logs)
            sums = np.log(_by_label(np.add, logs, block.starts)) + top
            before = result[block.rows, block.labels]
            result[block.rows, block.labels] = np.logaddexp(before, sums.T)
        return result

    # ------------------------------------------------------------------ blocks

    def _queries(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Check the query points."""
        asked = np.asarray(queries, dtype=np.float32)
        if asked.ndim != 2 or asked.shape[1] != self._points.shape[1]:
            raise InputError(
                f"`queries` of `ConceptIndex` have shape {asked.shape}; expected "
                f"(q, {self._points.shape[1]})."
            )
        _refuse_non_finite(asked, "queries")
        return asked

    def _blocks(self, asked: NDArray[Any]) -> Iterator[_Block]:
        """Walk over concepts and queries in blocks whose working memory is bounded.

        The squared distances have the type of the queries.
        """
        # A pair takes at most 48 bytes (squared distance, copies, places of near ones), a concept
        # those of all queries and of its own copy in double precision.
        n_bytes = max(2**16, int(self.memory_mb * 1e6))
        n_rows = max(1, min(len(asked), 512, n_bytes // 48))
        n_concepts = max(1, n_bytes // (48 * n_rows + 8 * self._points.shape[1]))
        for row in range(0, len(asked), n_rows):
            rows = slice(row, min(row + n_rows, len(asked)))
            part = asked[rows]
            lengths = np.einsum("ij,ij->i", part, part)
            doubled = -2.0 * part
            for first in range(0, self.n_concepts, n_concepts):
                concepts = slice(first, min(first + n_concepts, self.n_concepts))
                squared = self._points[concepts].astype(part.dtype, copy=False) @ doubled.T
                squared += self._squares[concepts, None].astype(part.dtype)
                squared += lengths
                ids = self._labels[concepts]
                starts = np.append(0, np.flatnonzero(np.diff(ids)) + 1)
                sizes = np.diff(np.append(starts, len(ids)))
                yield _Block(rows, concepts, ids[starts], starts, sizes, squared, lengths)

    def _refine(
        self, nearest: NDArray[np.float32], block: _Block, asked: NDArray[np.float32]
    ) -> None:
        """Recompute small squared distances from the differences, where expansion cancels."""
        np.maximum(nearest, 0.0, out=nearest)
        largest = np.maximum.reduceat(self._squares[block.concepts], block.starts)
        size = block.lengths + largest.astype(np.float32)[:, None]
        close = nearest < 1e-2 * size
        if not close.any():
            return
        limit = np.where(close, nearest + 1e-5 * size, -np.inf).astype(np.float32)
        concept, query = np.nonzero(block.squared <= np.repeat(limit, block.sizes, axis=0))
        segment = np.searchsorted(block.starts, concept, side="right") - 1
        exact = np.full(nearest.shape, np.inf)
        step = max(1, int(self.memory_mb * 1e6 / (24 * self._points.shape[1] + 1)))
        for start in range(0, len(concept), step):
            part = slice(start, start + step)
            difference = self._points[block.concepts.start + concept[part]].astype(np.float64)
            difference -= asked[block.rows.start + query[part]]
            np.minimum.at(
                exact,
                (segment[part], query[part]),
                np.einsum("ij,ij->i", difference, difference),
            )
        nearest[close] = exact[close]


class _Block(NamedTuple):
    """Squared distances of some concepts (axis 0) to some queries (axis 1)."""

    rows: slice
    concepts: slice
    labels: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    squared: NDArray[Any]
    lengths: NDArray[Any]


def _by_label(operation: np.ufunc, values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[Any]:
    """Reduce the rows from each start to the next, (n_concepts, q) to (n_starts, q)."""
    # Along the first axis `reduceat` goes column by column, fifty times slower than slices; but a
    # slice costs a microsecond or two, which only pays when it holds many values.
    if values.size < 256 * len(starts):
        return np.asarray(operation.reduceat(values, starts, axis=0))
    result = np.empty((len(starts), values.shape[1]), dtype=values.dtype)
    for number, rows in enumerate(zip(starts, [*starts[1:], len(values)], strict=True)):
        operation.reduce(values[slice(*rows)], axis=0, out=result[number])
    return result


def _refuse_non_finite(points: NDArray[np.float32], name: str) -> None:
    """Raise unless every coordinate is a number whose square does not overflow."""
    if not (np.abs(points) <= 1e15).all():
        raise InputError(
            f"`{name}` of `ConceptIndex` hold NaN or infinity, or numbers beyond 1e15."
        )


def _distinct(
    points: NDArray[np.float32], labels: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Sort concepts by label and join identical ones, adding up their counts."""
    if len(labels) == 0:
        return points, labels, counts
    # Adding zero makes -0.0 and 0.0 one value before rows are compared as bytes.
    rows = np.ascontiguousarray(points + np.float32(0.0))
    width = rows.dtype.itemsize * rows.shape[1]
    keys = rows.view(np.dtype((np.void, width))).ravel() if width else np.zeros(len(labels), "V1")
    _, key = np.unique(keys, return_inverse=True)
    order = np.lexsort((key, labels))
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (np.diff(labels[order]) != 0) | (np.diff(key[order]) != 0)
    kept = order[fresh]
    totals = np.add.reduceat(counts[order], np.flatnonzero(fresh))
    return rows[kept], labels[kept], totals
