"""Search in numpy: blocks of a matrix product that stay in the cache, reduced at once.

In: sorted concepts and query points. Out: the smallest distance or the log density per label.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme import _native
from polyseme._threads import one_blas_thread
from polyseme.index.by_label import SortedConcepts

# Blocks of more than so many bytes leave the cache; more memory would not make a search faster.
_MOST_BYTES = 10_000_000
_MOST_ROWS = 1000
_MOST_CONCEPTS = 1024
# Up to so many queries are measured from differences, which costs less than copying concepts.
_FEW = 3
# What threads have in all, and how many there are at the most.
_MOST_MB, _MOST_THREADS = 20.0, 4
# Pairs of concept and query from which on the concepts are searched in parts, and how many.
_WORTH_PARTS, _PARTS = 2e7, 8
# Squared distances below this share of the squared lengths are computed again.
_CLOSE = 2e-2


class _Block(NamedTuple):
    """Squared distances of some concepts (axis 0) to some queries (axis 1)."""

    rows: slice
    concepts: slice
    continued: bool
    labels: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    squared: NDArray[Any]
    lengths: NDArray[Any]
    squares: NDArray[Any]


def distances(
    concepts: SortedConcepts, asked: NDArray[np.float32], n_labels: int, memory_mb: float
) -> NDArray[np.float32]:
    """Give the distance from each query to the nearest concept of each label.

    Parameters
    ----------
    concepts : SortedConcepts
    asked : float32 array, shape (q, d)
    n_labels : int
    memory_mb : float
        The most working memory, in megabytes.

    Returns
    -------
    float32 array, shape (q, n_labels)
        Right to about 1e-5 of itself, however close; infinity where a label has no concept.
    """
    result = _empty(concepts, len(asked), n_labels, np.float32(np.inf))
    parts = _parts(concepts, len(asked))
    if len(parts) == 1:
        _search(concepts, asked, parts[0], memory_mb, result)
        return result
    # Products, and what is made of them, side by side: only products would share cores by
    # themselves. Every thread has blocks of its own, as large however many threads there are.
    share = min(memory_mb, _MOST_MB) / _MOST_THREADS
    n_threads = min(_native.n_threads(), _MOST_THREADS)
    with one_blas_thread(), ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda part: _search(concepts, asked, part, share, result), parts))
    return result


def _search(
    concepts: SortedConcepts,
    asked: NDArray[np.float32],
    part: slice,
    memory_mb: float,
    result: NDArray[np.float32],
) -> None:
    """Fill the columns of the labels whose concepts lie in a part."""
    few = len(asked) <= _FEW
    blocks = _differences if few else _products
    for block in blocks(concepts, asked, np.dtype(np.float32), memory_mb, part):
        nearest = _by_label(np.minimum, block)
        if not few:
            _refine(nearest, block, concepts, asked, memory_mb)
        before = result[block.rows, block.labels[0]] + np.float32(0) if block.continued else None
        columns = _columns(block)
        if isinstance(columns, slice):
            np.sqrt(nearest.T, out=result[block.rows, columns])
        else:
            result[block.rows, columns] = np.sqrt(nearest.T)
        if before is not None:
            here = result[block.rows, block.labels[0]]
            np.minimum(here, before, out=here)


def _parts(concepts: SortedConcepts, n_queries: int) -> list[slice]:
    """Cut the concepts where labels end; the same cuts however many threads there are."""
    n = len(concepts)
    if n * n_queries < _WORTH_PARTS:
        return [slice(0, n)]
    wanted = np.linspace(0, n, _PARTS + 1)[1:-1]
    inner = concepts.starts[np.searchsorted(concepts.starts, wanted)]
    edges = np.unique(np.concatenate([[0], inner, [n]])).tolist()
    return [slice(first, last) for first, last in pairwise(edges)]


def log_densities(
    concepts: SortedConcepts,
    asked: NDArray[np.float32],
    n_labels: int,
    bandwidth: float,
    memory_mb: float,
) -> NDArray[np.float64]:
    """Give the log of the summed Gaussian kernel over each label's concepts, at each query.

    Parameters
    ----------
    concepts : SortedConcepts
    asked : float32 array, shape (q, d)
    n_labels : int
    bandwidth : float
        Standard deviation of the kernel.
    memory_mb : float
        The most working memory, in megabytes.

    Returns
    -------
    float64 array, shape (q, n_labels)
        Minus infinity where a label has no concept.
    """
    result = _empty(concepts, len(asked), n_labels, np.float64(-np.inf))
    log_counts = np.log(concepts.counts)
    # Double precision: a small bandwidth magnifies the rounding of the squared distances.
    for block in _products(concepts, asked, np.dtype(np.float64), memory_mb):
        logs = np.maximum(block.squared, 0.0, out=block.squared)
        logs /= -2.0 * bandwidth**2
        logs += log_counts[block.concepts, None]
        top = _by_label(np.maximum, block)
        logs -= np.repeat(top, block.sizes, axis=0)
        np.exp(logs, out=logs)
        sums = np.log(_by_label(np.add, block)) + top
        if block.continued:
            before = result[block.rows, block.labels[0]]
            np.logaddexp(sums[0], before, out=sums[0])
        result[block.rows, _columns(block)] = sums.T
    return result


def _empty(
    concepts: SortedConcepts, n_queries: int, n_labels: int, value: np.floating[Any]
) -> NDArray[Any]:
    """Make room for a result; only labels without a concept are filled, nobody else will."""
    result = np.empty((n_queries, n_labels), dtype=value.dtype)
    without = np.ones(n_labels, dtype=bool)
    without[concepts.segments] = False
    if without.any():
        result[:, without] = value
    return result


def _sizes(n_queries: int, d: int, itemsize: int, memory_mb: float) -> tuple[int, int]:
    """Say how many queries and how many concepts a block has."""
    # Half for the products and their operands, half for what is made of them.
    n_bytes = min(_MOST_BYTES, max(2**16, int(memory_mb * 1e6))) // 2
    each = itemsize * (d + 2)
    n_rows = max(1, min(n_queries, _MOST_ROWS, n_bytes // (2 * each), n_bytes // (16 * itemsize)))
    left = max(0, n_bytes - n_rows * each)
    # In double precision two more arrays of the block's size are needed.
    per_concept = each + itemsize * n_rows * (1 if itemsize == 4 else 2)
    most = max(_MOST_CONCEPTS, 2**19 // n_rows) if n_rows > _FEW else 2**12
    return n_rows, max(1, min(most, left // per_concept))


def _products(
    concepts: SortedConcepts,
    asked: NDArray[np.float32],
    dtype: np.dtype[Any],
    memory_mb: float,
    part_of: slice | None = None,
) -> Iterator[_Block]:
    """Walk over blocks; squared distances come from one matrix product, squares included."""
    d = concepts.points.shape[1]
    n_rows, n_concepts = _sizes(len(asked), d, dtype.itemsize, memory_mb)
    centre = concepts.centre.astype(dtype)
    left = np.ones((min(n_concepts, len(concepts)), d + 2), dtype=dtype)
    for row in range(0, len(asked), n_rows):
        rows = slice(row, min(row + n_rows, len(asked)))
        right = np.ones((rows.stop - row, d + 2), dtype=dtype)
        part = right[:, :d]
        np.subtract(asked[rows], centre, out=part)
        lengths = np.einsum("ij,ij->i", part, part)
        right[:, d] = lengths
        part *= -2.0
        buffer = np.empty(len(left) * len(right), dtype=dtype)
        for where, continued, labels, starts, sizes in _pieces(concepts, n_concepts, part_of):
            size = where.stop - where.start
            some = left[:size]
            np.subtract(concepts.points[where], centre, out=some[:, :d])
            squares = np.einsum("ij,ij->i", some[:, :d], some[:, :d])
            some[:, d + 1] = squares
            # Labels of one concept each are wanted query by query, as they stand in the result.
            shape = (len(right), size) if len(starts) == size else (size, len(right))
            squared = buffer[: size * len(right)].reshape(shape)
            if len(starts) == size:
                squared = np.matmul(right, some.T, out=squared).T
            else:
                np.matmul(some, right.T, out=squared)
            yield _Block(rows, where, continued, labels, starts, sizes, squared, lengths, squares)


def _differences(
    concepts: SortedConcepts,
    asked: NDArray[np.float32],
    dtype: np.dtype[Any],
    memory_mb: float,
    part_of: slice | None = None,
) -> Iterator[_Block]:
    """Walk over blocks for one query at a time; nothing cancels, nothing need be refined."""
    _, n_concepts = _sizes(1, concepts.points.shape[1], dtype.itemsize, memory_mb)
    left = np.empty((min(n_concepts, len(concepts)), concepts.points.shape[1]), dtype=dtype)
    for row, query in enumerate(asked):
        for where, continued, labels, starts, sizes in _pieces(concepts, n_concepts, part_of):
            gaps = np.subtract(concepts.points[where], query, out=left[: where.stop - where.start])
            squared = np.einsum("ij,ij->i", gaps, gaps)[:, None]
            rows, none = slice(row, row + 1), squared[:0]
            yield _Block(rows, where, continued, labels, starts, sizes, squared, none, none)


def _pieces(
    concepts: SortedConcepts, n_concepts: int, part_of: slice | None
) -> Iterator[tuple[slice, bool, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Cut the concepts, or a part of them, into blocks.

    Yields which concepts, whether the first label began in the block before, the labels, where
    those start, and how many concepts each has.
    """
    whole = slice(0, len(concepts)) if part_of is None else part_of
    for first in range(whole.start, whole.stop, n_concepts):
        last = min(first + n_concepts, whole.stop)
        begin = int(np.searchsorted(concepts.starts, first, side="right")) - 1
        end = int(np.searchsorted(concepts.starts, last, side="left"))
        starts = np.maximum(concepts.starts[begin:end] - first, 0)
        sizes = np.diff(starts, append=last - first)
        continued = bool(concepts.starts[begin] < first)
        yield slice(first, last), continued, concepts.segments[begin:end], starts, sizes


def _by_label(operation: np.ufunc, block: _Block) -> NDArray[Any]:
    """Reduce each label's rows, (n_concepts, q) to (n_starts, q)."""
    values, starts, sizes = block.squared, block.starts, block.sizes
    if len(starts) == len(values):
        return values if operation is np.minimum else values.copy(order="K")
    if values.shape[1] < 16:
        return np.asarray(operation.reduceat(values, starts, axis=0))
    # `reduceat` goes column by column; rows at once are ten times faster. Labels with few rows
    # are reduced together: their first rows, their second ones, and so on.
    result = values[starts]
    small = sizes <= 8 if len(starts) > 16 else np.zeros(len(starts), dtype=bool)
    for place in range(1, int(sizes[small].max(initial=0))):
        chosen = np.flatnonzero(small & (sizes > place))
        result[chosen] = operation(result[chosen], values[starts[chosen] + place])
    for number in np.flatnonzero(~small).tolist():
        rows = slice(int(starts[number]), int(starts[number] + sizes[number]))
        operation.reduce(values[rows], axis=0, out=result[number])
    return result


def _columns(block: _Block) -> slice | NDArray[np.int64]:
    """Give the result's columns of a block's labels, as a slice if no label lies between."""
    first, last = int(block.labels[0]), int(block.labels[-1]) + 1
    return slice(first, last) if last - first == len(block.labels) else block.labels


def _refine(
    nearest: NDArray[np.float32],
    block: _Block,
    concepts: SortedConcepts,
    asked: NDArray[np.float32],
    memory_mb: float,
) -> None:
    """Recompute small squared distances from the differences, where the expansion cancels."""
    largest = np.maximum.reduceat(block.squares, block.starts)
    near = nearest.min(axis=1) < _CLOSE * (block.lengths.max() + largest)
    # What rounding may add: one unit for each term of the sum, on both sides of a comparison.
    slack = np.float32(2.0 * (concepts.points.shape[1] + 16) * 2.0**-24)
    n_bytes = min(_MOST_BYTES, int(memory_mb * 1e6)) // 2
    most = max(1, n_bytes // (24 * nearest.shape[1]))
    chosen = np.flatnonzero(near)
    if len(chosen):
        np.maximum(nearest, 0.0, out=nearest)
    first = 0
    while first < len(chosen):
        totals = np.cumsum(block.sizes[chosen[first:]])
        last = first + max(1, int(np.searchsorted(totals, most, side="right")))
        some = chosen[first:last]
        size = block.lengths + largest[some, None]
        close = nearest[some] < _CLOSE * size
        limit = np.where(close, nearest[some] + slack * size, np.float32(-np.inf))
        exact = _exact(block, some, limit, concepts, asked, n_bytes)
        nearest[some] = np.where(close, exact, nearest[some])
        first = last


def _exact(
    block: _Block,
    some: NDArray[np.int64],
    limit: NDArray[np.float32],
    concepts: SortedConcepts,
    asked: NDArray[np.float32],
    n_bytes: int,
) -> NDArray[np.float64]:
    """Measure every concept of some labels that is not above the limit; (n_some, q) minima."""
    exact = np.full(limit.shape, np.inf)
    owner = np.repeat(np.arange(len(some)), block.sizes[some])
    firsts = np.cumsum(block.sizes[some]) - block.sizes[some]
    places = np.arange(len(owner)) - firsts[owner] + block.starts[some][owner]
    d = concepts.points.shape[1]
    rows_at_once = max(1, n_bytes // (24 * limit.shape[1]))
    step = max(1, n_bytes // (24 * d + 1))
    for top in range(0, len(owner), rows_at_once):
        part = slice(top, top + rows_at_once)
        found, query = np.nonzero(block.squared[places[part]] <= limit[owner[part]])
        for start in range(0, len(found), step):
            at, to = found[start : start + step], query[start : start + step]
            which = block.concepts.start + places[part][at]
            gaps = concepts.points[which].astype(np.float64)
            gaps -= asked[block.rows.start + to]
            np.minimum.at(exact, (owner[part][at], to), np.einsum("ij,ij->i", gaps, gaps))
    return exact
