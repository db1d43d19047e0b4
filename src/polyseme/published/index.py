"""Exact nearest-neighbour search: the distance from a point to the nearest concept of each label.

In: concepts with their label ids, and query points; arrays and integers only, no label strings.
Out: one distance (or log density) per label, computed block by block in NumPy, or on a device of
torch. Equation (9) turns these distances E into scores.

Terms: shapes have q queries, n distinct concepts, d components. A *segment* is the concepts of one
label, which lie side by side. `xp` is numpy or torch, whichever holds the arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme.base.machine import n_threads, one_blas_thread, run_all
from polyseme.base.validation import InputError, check_number

# The most queries of a block in NumPy and on a device.
_BLOCK_QUERIES = 512
_DEVICE_BLOCK_QUERIES = 4096
# Threads of a search in NumPy, and the working memory that they share.
_MOST_THREADS = 4
_MOST_MB = 20.0
# Squared distances below this share of the squared lengths are measured again from differences:
# there, rounding could exceed the 1e-5 that `ConceptIndex` promises.
_CLOSE_SHARE = 2e-2
# Labels of so few concepts are reduced together, others one by one.
_FEW_CONCEPTS = 8
# The largest coordinate: its square does not overflow in single precision.
_LARGEST_COORDINATE = 1e15
# Reductions of a label's columns by name: the functions for all columns at once, and for two.
_REDUCTIONS = {"min": ("amin", "minimum"), "max": ("amax", "maximum"), "sum": ("sum", "add")}
# Numbers that are compared at a time: 4 MB in single precision.
_BLOCK_NUMBERS = 2**20
# Seed of the factors that hash concepts; any will do.
_HASH_SEED = 20_140_617


class ConceptIndex:
    """Concepts of every label, searched exactly.

    Identical concepts of one label are stored once and counted, which changes no result. Concepts
    that come sorted by label, all different and in single precision are not copied: leave the
    array as it is while the index is in use.

    Distances agree with double precision to 1e-5 of each distance that is not below 1e-18.

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
        on a device of its own.
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
        if counts is None:
            counts = np.ones_like(labels)
        occurrences = np.asarray(counts, dtype=np.int64)
        has_shape = concepts.ndim == 2 and labels.shape == concepts.shape[:1]
        if not has_shape or occurrences.shape != labels.shape:
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
        self.device = device
        n_occurrences = np.bincount(labels, occurrences, minlength=n_labels)
        self.n_occurrences = n_occurrences.astype(np.int64)
        self._concepts = _sort_concepts(concepts, labels, occurrences)
        self._device_concepts: _Concepts | None = None  # copied when they are searched first

    @property
    def n_concepts(self) -> int:
        """Count the distinct concepts."""
        return len(self._concepts.points)

    def distances(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Return the distance from each query to the nearest concept of each label.

        Parameters
        ----------
        queries : array, shape (q, n_components)

        Returns
        -------
        float32 array, shape (q, n_labels)
            Infinity where a label has no concept.
        """
        points = self._check_queries(queries)
        missing = np.float32(np.inf)
        return self._search(points, _lower_distances, missing)

    def log_densities(self, queries: ArrayLike, bandwidth: float) -> NDArray[np.float64]:
        """Return the log of the summed Gaussian kernel over each label's concepts, at each query.

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
        points = self._check_queries(queries)
        missing = np.float64(-np.inf)
        update = partial(_raise_log_densities, bandwidth=bandwidth)
        return self._search(points, update, missing)

    def _check_queries(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Return query points as an array (q, d), or raise."""
        points = np.asarray(queries, dtype=np.float32)
        d = self._concepts.points.shape[1]
        if points.ndim != 2 or points.shape[1] != d:
            raise InputError(
                f"`queries` of `ConceptIndex` have shape {points.shape}; expected (q, {d})."
            )
        _refuse_non_finite(points, "queries")
        return points

    def _search(
        self, queries: NDArray[np.float32], update: Callable[..., Any], missing: np.floating[Any]
    ) -> NDArray[Any]:
        """Search blocks of queries (q, d), in threads unless on a device.

        `update` is called with the concepts, a block of queries, the rows of the result for these,
        which it changes, and the bytes that it may use. Labels without a concept keep `missing`.
        The result is (q, n_labels), of the type of `missing`.
        """
        n_queries, n_components = queries.shape
        result = np.full((n_queries, self.n_labels), missing)
        if self.device == "cpu":
            concepts = self._concepts
            most_queries = _BLOCK_QUERIES
            threads = min(n_threads(), _MOST_THREADS)
            # A share that does not depend on the machine makes results that do not either.
            memory_mb = min(self.memory_mb, _MOST_MB)
            n_bytes = int(memory_mb * 1e6) // _MOST_THREADS
        else:
            concepts = self._concepts_on_device()
            most_queries = _DEVICE_BLOCK_QUERIES
            threads = 1
            n_bytes = int(self.memory_mb * 1e6)
        n_bytes = max(2**16, n_bytes)
        query_bytes = 32 * (n_components + 2)
        queries_in_memory = n_bytes // query_bytes
        most_queries = max(1, min(most_queries, queries_in_memory))
        # Blocks of nearly equal size.
        n_blocks = max(1, math.ceil(n_queries / most_queries))
        step = max(1, math.ceil(n_queries / n_blocks))

        def search_block(rows: slice) -> None:
            block_queries = concepts.on_device(queries[rows])
            block_result = concepts.on_device(result[rows])
            update(concepts, block_queries, block_result, n_bytes)
            if concepts.xp is not np:
                result[rows] = block_result.cpu().numpy()

        calls = []
        for first in range(0, n_queries, step):
            rows = slice(first, first + step)
            calls.append(partial(search_block, rows))
        runs_in_threads = threads > 1 and len(calls) > 1
        blas_limit = one_blas_thread() if runs_in_threads else nullcontext()
        with blas_limit:
            run_all(calls, threads)
        return result

    def _concepts_on_device(self) -> _Concepts:
        """Return the concepts on their device; they are copied there at the first call."""
        import torch

        if self._device_concepts is None:
            arrays: dict[str, Any] = {}
            try:
                for name in ("points", "counts", "centre"):
                    array = getattr(self._concepts, name)
                    arrays[name] = torch.asarray(array, device=self.device)
            except (RuntimeError, AssertionError) as error:
                reason = str(error).splitlines()[0]
                raise InputError(
                    f"`device` of `ConceptIndex` must be a device of torch that is there; got "
                    f"{self.device!r} ({reason})."
                ) from error
            self._device_concepts = self._concepts._replace(**arrays, xp=torch)
        return self._device_concepts


class _Concepts(NamedTuple):
    """Distinct concepts sorted by label; the first three are arrays of `xp`."""

    points: Any  # (n, d) float32
    counts: Any  # (n,) int64: how many times each occurs
    centre: Any  # (d,) float32: about the mean of the points, near which rounding costs least
    starts: NDArray[np.int64]  # (n_segments + 1,): the first concept of each segment; last n
    segments: NDArray[np.int64]  # (n_segments,): the labels that have concepts, rising
    xp: Any = np

    def on_device(self, array: NDArray[Any]) -> Any:
        """Return an array on the device of the concepts; the same one in numpy."""
        return self.xp.asarray(array, device=self.points.device)


# --------------------------------------------------------------------- sorting and joining


def _refuse_non_finite(points: NDArray[Any], name: str) -> None:
    """Raise unless every coordinate is a number whose square does not overflow."""
    if not points.size:
        return
    # As Python's floats: in half precision the bound itself would be infinite.
    lowest = float(points.min())
    highest = float(points.max())
    if not (lowest >= -_LARGEST_COORDINATE and highest <= _LARGEST_COORDINATE):
        raise InputError(
            f"`{name}` of `ConceptIndex` hold NaN or infinity, or numbers beyond 1e15."
        )


def _sort_concepts(
    points: NDArray[Any], labels: NDArray[np.int64], counts: NDArray[np.int64]
) -> _Concepts:
    """Sort concepts (n, d) by label and join identical ones, adding up their counts.

    Labels and counts are (n,). Points that are sorted, distinct and in single precision already are
    not copied.
    """
    n_concepts, n_components = points.shape
    keys = _keys(points, labels)
    order = np.lexsort((keys, labels))

    # Neighbours in this order with equal keys are compared number by number.
    sorted_labels = labels[order]
    sorted_keys = keys[order]
    same_label = np.diff(sorted_labels) == 0
    same_key = np.diff(sorted_keys) == 0
    is_candidate = same_label & same_key
    candidates = np.flatnonzero(is_candidate) + 1
    is_distinct = np.ones(n_concepts, dtype=bool)
    for block in _row_blocks(len(candidates), n_components):
        places = candidates[block]
        later_rows = order[places]
        earlier_rows = order[places - 1]
        later = points[later_rows].astype(np.float32)
        earlier = points[earlier_rows].astype(np.float32)
        differs = later != earlier
        is_distinct[places] = differs.any(axis=1)

    label_steps = np.diff(labels)
    is_sorted = (label_steps >= 0).all()
    if not (is_distinct.all() and is_sorted):
        distinct_rows = order[is_distinct]
        n_distinct = len(distinct_rows)
        first_places = np.flatnonzero(is_distinct)
        counts = np.add.reduceat(counts[order], first_places)
        distinct_points = np.empty((n_distinct, n_components), dtype=np.float32)
        for block in _row_blocks(n_distinct, n_components):
            block_rows = distinct_rows[block]
            distinct_points[block] = points[block_rows]
        points = distinct_points
        labels = labels[distinct_rows]
    points = np.require(points, np.float32, ["C", "ALIGNED"])
    label_steps = np.diff(labels, prepend=-1)
    firsts = np.flatnonzero(label_steps)
    starts = np.append(firsts, len(labels))
    # Any centre among the concepts will do: the mean of a few thousand is near enough.
    step = max(1, len(points) // 4096)
    sample = points[::step]
    total = sample.sum(axis=0, dtype=np.float64)
    centre = total / max(1, len(sample))
    return _Concepts(
        points,
        counts,
        centre.astype(np.float32),
        starts.astype(np.int64),
        segments=labels[firsts],
    )


def _keys(points: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash every concept (n, d) with its label (n,): keys (n,); equal ones have equal keys."""
    n_components = points.shape[1]
    n_words = (n_components + 1) // 2  # of 64 bits, for two numbers each
    half = np.uint64(32)
    generator = np.random.default_rng(_HASH_SEED)
    random_words = generator.integers(0, 2**63, (2, n_words + 1), dtype=np.uint64)
    factors = 2 * random_words + 1  # odd: a product with them loses no bits
    label_factor = factors[0, -1]
    word_factors = factors[0, :-1]
    sum_factors = factors[1, :-1]
    keys: NDArray[np.uint64] = labels.astype(np.uint64)
    keys *= label_factor
    for rows in _row_blocks(*points.shape):
        n_rows = rows.stop - rows.start
        words = np.zeros((n_rows, n_words), dtype=np.uint64)
        numbers = words.view(np.float32)
        single = points[rows].astype(np.float32, copy=False)
        # Adding zero makes -0.0 and 0.0 one value.
        numbers[:, :n_components] = single + np.float32(0.0)
        # High bits are mixed into low ones before and after a product, so that every bit of a
        # word, signs above all, reaches every bit of the key.
        words ^= words >> half
        words *= word_factors
        words ^= words >> half
        keys[rows] += words @ sum_factors
    return keys


def _row_blocks(n: int, d: int) -> Iterator[slice]:
    """Yield the blocks of n rows of d numbers in order, each of which takes little memory."""
    row_numbers = max(1, d)
    rows_per_block = _BLOCK_NUMBERS // row_numbers
    step = max(1, rows_per_block)
    for first in range(0, n, step):
        last = min(first + step, n)
        yield slice(first, last)


# --------------------------------------------------------------------- search


class _Block(NamedTuple):
    """Squared distances (q, b) of queries to b concepts, by the expansion of the square.

    Arrays are those of `xp` and belong to the next block too: use them before it is taken. A block
    may begin or end inside a segment.
    """

    squared: Any  # (q, b): may be slightly negative, by rounding
    query_squares: Any  # (q,): squared lengths of the centred queries
    concept_squares: Any  # (b,): squared lengths of the centred concepts
    first: int  # the number of the block's first concept among all
    labels: slice | NDArray[np.int64]  # (n_segments,): the labels of its segments, rising
    starts: NDArray[np.int64]  # (n_segments,): the first column of each segment
    segment_of: Any  # (b,): the segment of each concept, counted from 0


def _blocks(concepts: _Concepts, queries: Any, dtype: Any, n_bytes: int) -> Iterator[_Block]:
    """Yield squared distances of the queries to blocks of concepts, by one matrix product each.

    The squared lengths of both sides are columns of the factors, so that the product adds them:
    ``(-2 x, ‖x‖², 1) · (y, 1, ‖y‖²)`` is the squared distance of centred points x and y.
    """
    xp = concepts.xp
    n, d = concepts.points.shape
    n_queries = len(queries)
    # Products, limits and candidates, beside both factors.
    bytes_per_concept = 16 * n_queries + 12 * (d + 2)
    concepts_in_memory = n_bytes // bytes_per_concept
    step = max(1, min(n, concepts_in_memory))
    options = {"dtype": dtype, "device": concepts.points.device}
    centre = xp.asarray(concepts.centre, **options)
    query_factor = xp.ones((n_queries, d + 2), **options)
    concept_factor = xp.ones((step, d + 2), **options)
    products = xp.empty((n_queries, step), **options)
    centred_queries = query_factor[:, :d]
    query_squares = query_factor[:, d]
    xp.subtract(queries, centre, out=centred_queries)
    query_squares[...] = xp.einsum("ij,ij->i", centred_queries, centred_queries)
    centred_queries *= -2.0
    for first in range(0, n, step):
        last = min(first + step, n)
        n_columns = last - first
        first_segment = int(np.searchsorted(concepts.starts, first, side="right")) - 1
        last_segment = int(np.searchsorted(concepts.starts, last, side="left"))
        segments = slice(first_segment, last_segment)
        segment_starts = concepts.starts[segments] - first
        # The first segment may have begun in the block before.
        starts = np.maximum(segment_starts, 0)
        sizes = np.diff(starts, append=n_columns)
        segment_numbers = np.arange(len(starts))
        segment_of = np.repeat(segment_numbers, sizes)

        labels: Any = concepts.segments[segments]
        first_label = labels[0]
        last_label = labels[-1]
        if last_label - first_label + 1 == len(labels):
            labels = slice(first_label, last_label + 1)  # a view is faster
        else:
            labels = concepts.on_device(labels)

        factor = concept_factor[:n_columns]
        centred = factor[:, :d]
        concept_squares = factor[:, d + 1]
        squared = products[:, :n_columns]
        block_points = concepts.points[first:last]
        xp.subtract(block_points, centre, out=centred)
        concept_squares[...] = xp.einsum("ij,ij->i", centred, centred)
        xp.matmul(query_factor, factor.T, out=squared)
        yield _Block(
            squared,
            query_squares,
            concept_squares,
            first,
            labels,
            starts,
            segment_of=concepts.on_device(segment_of),
        )


def _lower_distances(concepts: _Concepts, queries: Any, result: Any, n_bytes: int) -> None:
    """Lower `result` (q, n_labels) to the smallest distance of each query to each label."""
    xp = concepts.xp
    d = queries.shape[1]
    # What rounding may add: one unit for each term of the sum, on both sides of a comparison. On a
    # device every winner is measured again, since products may be rounded more coarsely there.
    n_terms = d + 16
    slack = 2.0 * n_terms * 2.0**-24
    close_share = _CLOSE_SHARE
    if xp is not np:
        is_coarse = xp.get_float32_matmul_precision() != "highest"
        coarse_slack = 2.0**-7 if is_coarse else 0.0
        slack = 2.0 * slack + coarse_slack
        close_share = xp.inf
    for block in _blocks(concepts, queries, xp.float32, n_bytes):
        squared = block.squared
        query_squares = block.query_squares
        nearest = _reduce_segments(xp, "min", squared, block.starts)
        xp.clip(nearest, 0.0, None, out=nearest)
        concept_squares = block.concept_squares[None, :]
        (largest,) = _reduce_segments(xp, "max", concept_squares, block.starts)
        distances = xp.sqrt(nearest)
        # Most segments are far from every query, which this bound shows without a table.
        largest_scale = query_squares.max() + largest
        may_be_close = xp.amin(nearest, axis=0) <= close_share * largest_scale
        if may_be_close.any():
            scale = query_squares[:, None] + largest
            is_close = nearest <= close_share * scale
            is_close = may_be_close & is_close
            # Concepts within the slack of the nearest may be nearer than it.
            limit = xp.where(is_close, nearest + slack * scale, -xp.inf)
            distances[is_close] = xp.inf
            is_candidate = squared <= limit[:, block.segment_of]
            pairs = xp.where(is_candidate)
            _measure_again(concepts, queries, block, distances, pairs, n_bytes)
        # The first label may have begun in the block before.
        earlier = result[:, block.labels][:, 0]
        distances[:, 0] = xp.minimum(distances[:, 0], earlier)
        result[:, block.labels] = distances


def _measure_again(
    concepts: _Concepts,
    queries: Any,
    block: _Block,
    distances: Any,
    pairs: tuple[Any, Any],
    n_bytes: int,
) -> None:
    """Lower distances (q, n_segments) to those of some pairs, from differences.

    Pairs are given by the numbers of their queries and by the columns of their concepts in the
    block.
    """
    xp = concepts.xp
    d = queries.shape[1]
    n_segments = distances.shape[1]
    all_queries, all_columns = pairs
    pair_bytes = 32 * d + 64
    step = max(1, n_bytes // pair_bytes)
    for first in range(0, len(all_queries), step):
        some_pairs = slice(first, first + step)
        query_rows = all_queries[some_pairs]
        columns = all_columns[some_pairs]
        segments = block.segment_of[columns]
        concept_rows = block.first + columns
        points = xp.asarray(concepts.points[concept_rows], dtype=xp.float64)
        differences = points - queries[query_rows]
        squares = differences**2
        exact_distances = xp.sqrt(squares.sum(axis=1))
        exact_distances = xp.asarray(exact_distances, dtype=xp.float32)
        if xp is np:
            np.minimum.at(distances, (query_rows, segments), exact_distances)
        else:
            flat_distances = distances.view(-1)
            flat_places = query_rows * n_segments + segments
            flat_distances.scatter_reduce_(0, flat_places, exact_distances, "amin")


def _raise_log_densities(
    concepts: _Concepts, queries: Any, result: Any, n_bytes: int, *, bandwidth: float
) -> None:
    """Raise `result` (q, n_labels) by the log of each label's summed kernel at each query."""
    xp = concepts.xp
    counts = xp.asarray(concepts.counts, dtype=xp.float64)
    log_counts = xp.log(counts)
    divisor = -2.0 * bandwidth**2
    # Double precision: a small bandwidth magnifies the rounding of the squared distances.
    for block in _blocks(concepts, queries, xp.float64, n_bytes):
        n_columns = block.squared.shape[1]
        columns = slice(block.first, block.first + n_columns)
        log_kernels = block.squared.clip(0.0)
        log_kernels /= divisor
        log_kernels += log_counts[columns]
        # The log of a sum of exponentials, each divided by the largest of its segment.
        largest = _reduce_segments(xp, "max", log_kernels, block.starts)
        shift = largest[:, block.segment_of]
        kernels = xp.exp(log_kernels - shift)
        sums = _reduce_segments(xp, "sum", kernels, block.starts)
        block_result = xp.log(sums) + largest
        earlier = result[:, block.labels]
        result[:, block.labels] = xp.logaddexp(earlier, block_result)


def _reduce_segments(xp: Any, reduction: str, table: Any, starts: NDArray[np.int64]) -> Any:
    """Reduce each segment's columns of a table (q, b) by "min", "max" or "sum".

    Starts, (n_segments,), are the first columns; the result is (q, n_segments), the table itself
    where each segment has one column.
    """
    n_columns = table.shape[1]
    if len(starts) == n_columns:
        return table
    reduce_name, combine_name = _REDUCTIONS[reduction]
    reduce = getattr(xp, reduce_name)
    combine = getattr(xp, combine_name)
    sizes = np.diff(starts, append=n_columns)
    if xp is np and sizes.max() > _FEW_CONCEPTS:
        return combine.reduceat(table, starts, axis=1)
    result = table[:, starts]
    is_small = sizes <= _FEW_CONCEPTS
    # Labels with few concepts together: first their second ones, then their third ones, and so on.
    small_sizes = sizes[is_small]
    largest_small = int(small_sizes.max(initial=0))
    for place in range(1, largest_small):
        has_place = is_small & (sizes > place)
        segments = np.flatnonzero(has_place)
        columns = starts[segments] + place
        result[:, segments] = combine(result[:, segments], table[:, columns])
    for segment in np.flatnonzero(~is_small).tolist():
        start = starts[segment]
        stop = start + sizes[segment]
        segment_columns = table[:, start:stop]
        result[:, segment] = reduce(segment_columns, axis=1)
    return result
