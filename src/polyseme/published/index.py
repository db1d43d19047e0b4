"""Exact nearest-neighbour search: the distance from a point to the nearest concept of each label.

In: concepts with their label ids, and query points; arrays and integers only, no label strings.
Out: one distance (or log density) per label, computed block by block in NumPy, or on a device of
torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme.base.threads import n_threads, one_blas_thread, run_all
from polyseme.base.validation import InputError, check_number

# Queries of a block in NumPy and on a device.
_ROWS = 512
_DEVICE_ROWS = 4096
# Threads of a search in NumPy, and the working memory that they share.
_MOST_THREADS = 4
_MOST_MB = 20.0
# Squared distances below this share of the squared lengths are measured again from differences.
_CLOSE = 2e-2
# Labels of so few concepts are reduced together, others one by one.
_FEW = 8
# The largest coordinate: its square does not overflow in single precision.
_LARGEST = 1e15
# Reductions of a label's columns: of all at once, and of two.
_OPERATIONS = {"min": ("amin", "minimum"), "max": ("amax", "maximum"), "sum": ("sum", "add")}
# Numbers that are compared at a time: 4 MB in single precision.
_BLOCK = 2**20


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
        occurrences = np.asarray(np.ones_like(labels) if counts is None else counts, dtype=np.int64)
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
        self.device = device
        self.n_occurrences = np.bincount(labels, occurrences, minlength=n_labels).astype(np.int64)
        self._concepts = _sort_concepts(concepts, labels, occurrences)
        self._on_device: _Concepts | None = None

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
        rows = self._queries(queries)
        return self._search(rows, _nearest, np.float32(np.inf))

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
        rows = self._queries(queries)
        nothing = np.float64(-np.inf)
        update = partial(_log_densities, bandwidth=bandwidth)
        return self._search(rows, update, nothing)

    def _queries(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Check the query points."""
        rows = np.asarray(queries, dtype=np.float32)
        d = self._concepts.points.shape[1]
        if rows.ndim != 2 or rows.shape[1] != d:
            raise InputError(
                f"`queries` of `ConceptIndex` have shape {rows.shape}; expected (q, {d})."
            )
        _refuse_non_finite(rows, "queries")
        return rows

    def _search(
        self, queries: NDArray[np.float32], update: Callable[..., Any], missing: np.floating[Any]
    ) -> NDArray[Any]:
        """Search blocks of queries (q, d), in threads unless on a device; (q, n_labels)."""
        n_queries, n_components = queries.shape
        result = np.full((n_queries, self.n_labels), missing)
        if self.device == "cpu":
            concepts = self._concepts
            most_rows = _ROWS
            threads = min(n_threads(), _MOST_THREADS)
            # A share that does not depend on the machine makes results that do not either.
            n_bytes = int(min(self.memory_mb, _MOST_MB) * 1e6) // _MOST_THREADS
        else:
            concepts = self._concepts_on_device()
            most_rows = _DEVICE_ROWS
            threads = 1
            n_bytes = int(self.memory_mb * 1e6)
        n_bytes = max(2**16, n_bytes)
        rows_in_memory = n_bytes // (32 * (n_components + 2))
        most_rows = max(1, min(most_rows, rows_in_memory))
        n_blocks = max(1, math.ceil(n_queries / most_rows))
        step = max(1, math.ceil(n_queries / n_blocks))

        def search_block(rows: slice) -> None:
            block_queries = concepts.on_device(queries[rows])
            block_result = concepts.on_device(result[rows])
            update(concepts, block_queries, block_result, n_bytes)
            if concepts.xp is not np:
                result[rows] = block_result.cpu().numpy()

        blocks = [slice(first, first + step) for first in range(0, n_queries, step)]
        runs_in_threads = threads > 1 and len(blocks) > 1
        blas_limit = one_blas_thread() if runs_in_threads else nullcontext()
        with blas_limit:
            run_all([partial(search_block, rows) for rows in blocks], threads)
        return result

    def _concepts_on_device(self) -> _Concepts:
        """Return the concepts on their device; they are copied there at the first call."""
        import torch

        if self._on_device is None:
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
            self._on_device = self._concepts._replace(**arrays, xp=torch)
        return self._on_device


class _Concepts(NamedTuple):
    """Distinct concepts sorted by label; the first three are arrays of `xp`, numpy or torch.

    points (n, d) float32; counts (n,) int64; centre (d,) float32, about the mean of the points,
    near which rounding costs least; starts (n_segments + 1,), where the concepts of each label that
    has some start, last n; segments (n_segments,), those labels.
    """

    points: Any
    counts: Any
    centre: Any
    starts: NDArray[np.int64]
    segments: NDArray[np.int64]
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
    if not (lowest >= -_LARGEST and highest <= _LARGEST):
        raise InputError(
            f"`{name}` of `ConceptIndex` hold NaN or infinity, or numbers beyond 1e15."
        )


def _sort_concepts(
    points: NDArray[Any], labels: NDArray[np.int64], counts: NDArray[np.int64]
) -> _Concepts:
    """Sort concepts (n, d) by label and join identical ones, adding up their counts."""
    n_components = points.shape[1]
    keys = _keys(points, labels)
    order = np.lexsort((keys, labels))

    # Neighbours in this order with equal keys are compared number by number
    same_label = np.diff(labels[order]) == 0
    same_key = np.diff(keys[order]) == 0
    candidates = np.flatnonzero(same_label & same_key) + 1
    is_distinct = np.ones(len(order), dtype=bool)
    for rows in _row_blocks(len(candidates), n_components):
        later = points[order[candidates[rows]]].astype(np.float32)
        earlier = points[order[candidates[rows] - 1]].astype(np.float32)
        is_distinct[candidates[rows]] = (later != earlier).any(axis=1)

    is_sorted = (np.diff(labels) >= 0).all()
    if not (is_distinct.all() and is_sorted):
        distinct = order[is_distinct]
        starts = np.flatnonzero(is_distinct)
        counts = np.add.reduceat(counts[order], starts)
        distinct_points = np.empty((len(distinct), n_components), dtype=np.float32)
        for rows in _row_blocks(len(distinct), n_components):
            distinct_points[rows] = points[distinct[rows]]
        points = distinct_points
        labels = labels[distinct]
    points = np.require(points, np.float32, ["C", "ALIGNED"])
    firsts = np.flatnonzero(np.diff(labels, prepend=-1))
    starts = np.append(firsts, len(labels)).astype(np.int64)
    # Any centre among the concepts will do: the mean of a few thousand is near enough.
    step = max(1, len(points) // 4096)
    sample = points[::step]
    total = sample.sum(axis=0, dtype=np.float64)
    centre = (total / max(1, len(sample))).astype(np.float32)
    return _Concepts(points, counts, centre, starts, labels[firsts])


def _keys(points: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash every concept with its label, (n,); equal ones have equal keys."""
    n_components = points.shape[1]
    n_words = (n_components + 1) // 2
    half = np.uint64(32)
    generator = np.random.default_rng(20_140_617)
    random_words = generator.integers(0, 2**63, (2, n_words + 1), dtype=np.uint64)
    factors = 2 * random_words + 1
    label_factor = factors[0, -1]
    word_factors = factors[0, :-1]
    sum_factors = factors[1, :-1]
    keys: NDArray[np.uint64] = labels.astype(np.uint64) * label_factor
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
    """Cut n rows of d numbers into blocks that take little memory."""
    rows_per_block = _BLOCK // max(1, d)
    step = max(1, rows_per_block)
    for first in range(0, n, step):
        last = min(first + step, n)
        yield slice(first, last)


# --------------------------------------------------------------------- search


class _Block(NamedTuple):
    """Squared distances (q, n) of queries to some concepts, by the expansion of the square."""

    squared: Any
    lengths: Any  # (q,) squared lengths of the queries
    squares: Any  # (n,) squared lengths of the concepts
    first: int  # the place of the first concept
    labels: slice | NDArray[np.int64]  # those that the concepts belong to
    starts: NDArray[np.int64]  # where each of these starts in the block
    owner: Any  # (n,) the label of each concept, counted from the block's first


def _blocks(concepts: _Concepts, queries: Any, dtype: Any, n_bytes: int) -> Iterator[_Block]:
    """Yield squared distances of the queries to blocks of concepts, by one matrix product each.

    The squared lengths of both sides are columns of the factors, so that the product adds them.
    """
    xp = concepts.xp
    n, d = concepts.points.shape
    n_queries = len(queries)
    # Products, limits and candidates, beside both factors.
    bytes_per_concept = 16 * n_queries + 12 * (d + 2)
    step = max(1, min(n, n_bytes // bytes_per_concept))
    options = {"dtype": dtype, "device": concepts.points.device}
    centre = xp.asarray(concepts.centre, **options)
    left = xp.ones((n_queries, d + 2), **options)
    right = xp.ones((step, d + 2), **options)
    products = xp.empty((n_queries, step), **options)
    centred_queries = left[:, :d]
    xp.subtract(queries, centre, out=centred_queries)
    left[:, d] = xp.einsum("ij,ij->i", centred_queries, centred_queries)
    centred_queries *= -2.0
    for first in range(0, n, step):
        last = min(first + step, n)
        begin = int(np.searchsorted(concepts.starts, first, side="right")) - 1
        end = int(np.searchsorted(concepts.starts, last, side="left"))
        starts = np.maximum(concepts.starts[begin:end] - first, 0)
        sizes = np.diff(starts, append=last - first)
        owner = np.repeat(np.arange(end - begin), sizes)

        labels: Any = concepts.segments[begin:end]
        first_label = labels[0]
        last_label = labels[-1]
        if last_label - first_label + 1 == len(labels):
            labels = slice(first_label, last_label + 1)
        else:
            labels = concepts.on_device(labels)

        factor = right[: last - first]
        centred = factor[:, :d]
        squared = products[:, : last - first]
        xp.subtract(concepts.points[first:last], centre, out=centred)
        factor[:, d + 1] = xp.einsum("ij,ij->i", centred, centred)
        xp.matmul(left, factor.T, out=squared)
        yield _Block(
            squared,
            lengths=left[:, d],
            squares=factor[:, d + 1],
            first=first,
            labels=labels,
            starts=starts,
            owner=concepts.on_device(owner),
        )


def _nearest(concepts: _Concepts, queries: Any, result: Any, n_bytes: int) -> None:
    """Lower `result` (q, n_labels) to the smallest distance of each query to each label."""
    xp = concepts.xp
    d = queries.shape[1]
    # What rounding may add: one unit for each term of the sum, on both sides of a comparison. On a
    # device every winner is measured again, since products may be rounded more coarsely there.
    slack = 2.0 * (d + 16) * 2.0**-24
    close_share = _CLOSE
    if xp is not np:
        coarse = xp.get_float32_matmul_precision() != "highest"
        coarse_slack = 2.0**-7 if coarse else 0.0
        slack = 2.0 * slack + coarse_slack
        close_share = xp.inf
    for block in _blocks(concepts, queries, xp.float32, n_bytes):
        nearest = _by_label(xp, "min", block.squared, block.starts)
        xp.clip(nearest, 0.0, None, out=nearest)
        largest = _by_label(xp, "max", block.squares[None, :], block.starts)[0]
        most = block.lengths.max() + largest
        may_be_close = xp.amin(nearest, axis=0) <= close_share * most
        distances = xp.sqrt(nearest)
        if may_be_close.any():
            scale = block.lengths[:, None] + largest
            is_close = may_be_close & (nearest <= close_share * scale)
            limit = xp.where(is_close, nearest + slack * scale, -xp.inf)
            distances[is_close] = xp.inf
            query_rows, places = xp.where(block.squared <= limit[:, block.owner])
            _measure_again(concepts, queries, block, distances, query_rows, places, n_bytes)
        # The first label may have begun in the block before.
        earlier = result[:, block.labels][:, 0]
        distances[:, 0] = xp.minimum(distances[:, 0], earlier)
        result[:, block.labels] = distances


def _measure_again(
    concepts: _Concepts,
    queries: Any,
    block: _Block,
    distances: Any,
    query_rows: Any,
    places: Any,
    n_bytes: int,
) -> None:
    """Lower distances (q, n_starts) to those of pairs of queries and concepts, from differences."""
    xp = concepts.xp
    d = queries.shape[1]
    n_columns = distances.shape[1]
    step = max(1, n_bytes // (32 * d + 64))
    for first in range(0, len(query_rows), step):
        pairs = slice(first, first + step)
        pair_rows = query_rows[pairs]
        pair_places = places[pairs]
        owners = block.owner[pair_places]
        rows = block.first + pair_places
        points = xp.asarray(concepts.points[rows], dtype=xp.float64)
        differences = points - queries[pair_rows]
        squares = differences**2
        lengths = xp.sqrt(squares.sum(axis=1))
        exact = xp.asarray(lengths, dtype=xp.float32)
        if xp is np:
            np.minimum.at(distances, (pair_rows, owners), exact)
        else:
            flat_distances = distances.view(-1)
            flat_places = pair_rows * n_columns + owners
            flat_distances.scatter_reduce_(0, flat_places, exact, "amin")


def _log_densities(
    concepts: _Concepts, queries: Any, result: Any, n_bytes: int, *, bandwidth: float
) -> None:
    """Raise `result` (q, n_labels) by the log of each label's summed kernel at each query."""
    xp = concepts.xp
    counts = xp.asarray(concepts.counts, dtype=xp.float64)
    log_counts = xp.log(counts)
    factor = -2.0 * bandwidth**2
    # Double precision: a small bandwidth magnifies the rounding of the squared distances.
    for block in _blocks(concepts, queries, xp.float64, n_bytes):
        n_columns = block.squared.shape[1]
        last = block.first + n_columns
        logs = block.squared.clip(0.0)
        logs /= factor
        logs += log_counts[block.first : last]
        largest = _by_label(xp, "max", logs, block.starts)
        shift = largest[:, block.owner]
        kernels = xp.exp(logs - shift)
        sums = _by_label(xp, "sum", kernels, block.starts)
        block_result = xp.log(sums) + largest
        earlier = result[:, block.labels]
        result[:, block.labels] = xp.logaddexp(earlier, block_result)


def _by_label(xp: Any, operation: str, values: Any, starts: NDArray[np.int64]) -> Any:
    """Reduce the columns (q, n) of labels that start at some of them, (q, n_starts)."""
    n_columns = values.shape[1]
    if len(starts) == n_columns:
        return values
    reduce_name, combine_name = _OPERATIONS[operation]
    reduce = getattr(xp, reduce_name)
    combine = getattr(xp, combine_name)
    sizes = np.diff(starts, append=n_columns)
    if xp is np and sizes.max() > _FEW:
        return combine.reduceat(values, starts, axis=1)
    result = values[:, starts]
    is_small = sizes <= _FEW
    # Labels with few concepts together: first their second ones, then their third ones, and so on.
    largest_small = int(sizes[is_small].max(initial=0))
    for place in range(1, largest_small):
        columns = np.flatnonzero(is_small & (sizes > place))
        following = values[:, starts[columns] + place]
        result[:, columns] = combine(result[:, columns], following)
    for label in np.flatnonzero(~is_small).tolist():
        stop = starts[label] + sizes[label]
        label_values = values[:, starts[label] : stop]
        result[:, label] = reduce(label_values, axis=1)
    return result
