"""Exact search: the smallest distance from a point to each label's concepts.

In: concepts with their label ids, and query points; arrays and integers only, no label strings.
Out: one distance (or log density) per label, computed block by block in NumPy, or on a device of
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._threads import n_threads, one_blas_thread, run_all
from polyseme._validation import InputError, check_number

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
# Numbers that are looked at together when concepts are compared: 4 MB in single precision.
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
        self._concepts = _sorted(concepts, labels, occurrences)
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
        update = partial(_log_densities, bandwidth=bandwidth)
        return self._search(rows, update, np.float64(-np.inf))

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
            concepts = self._moved()
            most_rows = _DEVICE_ROWS
            threads = 1
            n_bytes = int(self.memory_mb * 1e6)
        n_bytes = max(2**16, n_bytes)
        most_rows = max(1, min(most_rows, n_bytes // (32 * (n_components + 2))))
        n_blocks = max(1, -(-n_queries // most_rows))
        step = max(1, -(-n_queries // n_blocks))

        def search_block(rows: slice) -> None:
            block = concepts.here(result[rows])
            update(concepts, concepts.here(queries[rows]), block, n_bytes)
            if concepts.xp is not np:
                result[rows] = block.cpu().numpy()

        blocks = [slice(first, first + step) for first in range(0, n_queries, step)]
        blas_limit = one_blas_thread() if threads > 1 and len(blocks) > 1 else nullcontext()
        with blas_limit:
            run_all([partial(search_block, rows) for rows in blocks], threads)
        return result

    def _moved(self) -> _Concepts:
        """Return the concepts on their device, moved there when first asked for."""
        import torch

        if self._on_device is None:
            try:
                moved: dict[str, Any] = {
                    name: torch.asarray(getattr(self._concepts, name), device=self.device)
                    for name in ("points", "counts", "centre")
                }
            except (RuntimeError, AssertionError) as error:
                raise InputError(
                    f"`device` of `ConceptIndex` must be a device of torch that is there; got "
                    f"{self.device!r} ({str(error).splitlines()[0]})."
                ) from error
            self._on_device = self._concepts._replace(**moved, xp=torch)
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

    def here(self, array: NDArray[Any]) -> Any:
        """Return an array where the concepts are; the same one in numpy."""
        return self.xp.asarray(array, device=self.points.device)


# --------------------------------------------------------------------- sorting and joining


def _refuse_non_finite(points: NDArray[Any], name: str) -> None:
    """Raise unless every coordinate is a number whose square does not overflow."""
    # As Python's floats: in half precision the bound itself would be infinite.
    if points.size and not (float(points.min()) >= -1e15 and float(points.max()) <= 1e15):
        raise InputError(
            f"`{name}` of `ConceptIndex` hold NaN or infinity, or numbers beyond 1e15."
        )


def _sorted(
    points: NDArray[Any], labels: NDArray[np.int64], counts: NDArray[np.int64]
) -> _Concepts:
    """Sort concepts (n, d) by label and join identical ones, adding up their counts."""
    keys = _keys(points, labels)
    order = np.lexsort((keys, labels))
    fresh = np.ones(len(order), dtype=bool)
    alike = np.flatnonzero((np.diff(labels[order]) == 0) & (np.diff(keys[order]) == 0)) + 1
    for rows in _row_blocks(len(alike), points.shape[1]):
        here = points[order[alike[rows]]]
        before = points[order[alike[rows] - 1]]
        fresh[alike[rows]] = (here.astype(np.float32) != before.astype(np.float32)).any(axis=1)
    if not (fresh.all() and (np.diff(labels) >= 0).all()):
        kept = order[fresh]
        counts = np.add.reduceat(counts[order], np.flatnonzero(fresh))
        chosen = np.empty((len(kept), points.shape[1]), dtype=np.float32)
        for rows in _row_blocks(*chosen.shape):
            chosen[rows] = points[kept[rows]]
        points = chosen
        labels = labels[kept]
    points = np.require(points, np.float32, ["C", "ALIGNED"])
    firsts = np.flatnonzero(np.diff(labels, prepend=-1))
    # Any point among the concepts will do, so a few thousand of them are enough to find it.
    some = points[:: max(1, len(points) // 4096)]
    centre = (some.sum(axis=0, dtype=np.float64) / max(1, len(some))).astype(np.float32)
    starts = np.append(firsts, len(labels)).astype(np.int64)
    return _Concepts(points, counts, centre, starts, labels[firsts])


def _keys(points: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash every concept with its label, (n,); equal ones have equal keys."""
    n_words = (points.shape[1] + 1) // 2
    generator = np.random.default_rng(20_140_617)
    factors = 2 * generator.integers(0, 2**63, (2, n_words + 1), dtype=np.uint64) + 1
    keys: NDArray[np.uint64] = labels.astype(np.uint64) * factors[0, -1]
    for rows in _row_blocks(*points.shape):
        words = np.zeros((rows.stop - rows.start, n_words), dtype=np.uint64)
        # Adding zero makes -0.0 and 0.0 one value.
        single = points[rows].astype(np.float32, copy=False)
        words.view(np.float32)[:, : points.shape[1]] = single + np.float32(0.0)
        # High bits go to low ones before and after a product, so that every bit of a word, signs
        # above all, reaches every bit of the key.
        words ^= words >> np.uint64(32)
        words *= factors[0, :-1]
        words ^= words >> np.uint64(32)
        keys[rows] += words @ factors[1, :-1]
    return keys


def _row_blocks(n: int, d: int) -> Iterator[slice]:
    """Cut n rows of d numbers into blocks that take little memory."""
    step = max(1, _BLOCK // max(1, d))
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


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
    """Walk over the concepts; one matrix product gives squared distances, squares included."""
    xp = concepts.xp
    n, d = concepts.points.shape
    # Products, limits and candidates, beside both factors.
    step = max(1, min(n, n_bytes // (16 * len(queries) + 12 * (d + 2))))
    options = {"dtype": dtype, "device": concepts.points.device}
    centre = xp.asarray(concepts.centre, **options)
    left = xp.ones((len(queries), d + 2), **options)
    right = xp.ones((step, d + 2), **options)
    xp.subtract(queries, centre, out=left[:, :d])
    left[:, d] = xp.einsum("ij,ij->i", left[:, :d], left[:, :d])
    left[:, :d] *= -2.0
    products = xp.empty((len(queries), step), **options)
    for first in range(0, n, step):
        last = min(first + step, n)
        begin = int(np.searchsorted(concepts.starts, first, side="right")) - 1
        end = int(np.searchsorted(concepts.starts, last, side="left"))
        starts = np.maximum(concepts.starts[begin:end] - first, 0)
        owner = np.repeat(np.arange(end - begin), np.diff(starts, append=last - first))
        names = concepts.segments[begin:end]
        together = names[-1] - names[0] + 1 == len(names)
        labels = slice(names[0], names[-1] + 1) if together else concepts.here(names)
        part = right[: last - first]
        squared = products[:, : last - first]
        xp.subtract(concepts.points[first:last], centre, out=part[:, :d])
        part[:, d + 1] = xp.einsum("ij,ij->i", part[:, :d], part[:, :d])
        xp.matmul(left, part.T, out=squared)
        yield _Block(
            squared, left[:, d], part[:, d + 1], first, labels, starts, concepts.here(owner)
        )


def _nearest(concepts: _Concepts, queries: Any, result: Any, n_bytes: int) -> None:
    """Lower `result` (q, n_labels) to the smallest distance of each query to each label."""
    xp = concepts.xp
    d = queries.shape[1]
    # What rounding may add: one unit for each term of the sum, on both sides of a comparison. On a
    # device every winner is measured again, since products may be rounded more coarsely there.
    slack = 2.0 * (d + 16) * 2.0**-24
    share = _CLOSE
    if xp is not np:
        coarse = xp.get_float32_matmul_precision() != "highest"
        slack = 2.0 * slack + (2.0**-7 if coarse else 0.0)
        share = xp.inf
    for block in _blocks(concepts, queries, xp.float32, n_bytes):
        nearest = _by_label(xp, "min", block.squared, block.starts)
        xp.clip(nearest, 0.0, None, out=nearest)
        largest = _by_label(xp, "max", block.squares[None, :], block.starts)[0]
        near = xp.amin(nearest, axis=0) <= share * (block.lengths.max() + largest)
        found = xp.sqrt(nearest)
        if near.any():
            scale = block.lengths[:, None] + largest
            close = near & (nearest <= share * scale)
            limit = xp.where(close, nearest + slack * scale, -xp.inf)
            found[close] = xp.inf
            query, place = xp.where(block.squared <= limit[:, block.owner])
            step = max(1, n_bytes // (32 * d + 64))
            for first in range(0, len(query), step):
                rows = query[first : first + step]
                places = place[first : first + step]
                points = xp.asarray(concepts.points[block.first + places], dtype=xp.float64)
                squares = ((points - queries[rows]) ** 2).sum(axis=1)
                exact = xp.asarray(xp.sqrt(squares), dtype=xp.float32)
                if xp is np:
                    np.minimum.at(found, (rows, block.owner[places]), exact)
                else:
                    flat = rows * found.shape[1] + block.owner[places]
                    found.view(-1).scatter_reduce_(0, flat, exact, "amin")
        # The first label may have begun in the block before.
        found[:, 0] = xp.minimum(found[:, 0], result[:, block.labels][:, 0])
        result[:, block.labels] = found


def _log_densities(
    concepts: _Concepts, queries: Any, result: Any, n_bytes: int, *, bandwidth: float
) -> None:
    """Raise `result` (q, n_labels) by the log of each label's summed kernel at each query."""
    xp = concepts.xp
    log_counts = xp.log(xp.asarray(concepts.counts, dtype=xp.float64))
    # Double precision: a small bandwidth magnifies the rounding of the squared distances.
    for block in _blocks(concepts, queries, xp.float64, n_bytes):
        logs = block.squared.clip(0.0)
        logs /= -2.0 * bandwidth**2
        logs += log_counts[block.first : block.first + logs.shape[1]]
        top = _by_label(xp, "max", logs, block.starts)
        sums = _by_label(xp, "sum", xp.exp(logs - top[:, block.owner]), block.starts)
        result[:, block.labels] = xp.logaddexp(result[:, block.labels], xp.log(sums) + top)


def _by_label(xp: Any, operation: str, values: Any, starts: NDArray[np.int64]) -> Any:
    """Reduce the columns (q, n) of labels that start at some of them, (q, n_starts)."""
    if len(starts) == values.shape[1]:
        return values
    names = {"min": ("amin", "minimum"), "max": ("amax", "maximum"), "sum": ("sum", "add")}
    reduce, combine = (getattr(xp, name) for name in names[operation])
    sizes = np.diff(starts, append=values.shape[1])
    if xp is np and sizes.max() > _FEW:
        return combine.reduceat(values, starts, axis=1)
    result = values[:, starts]
    small = sizes <= _FEW
    # Labels with few concepts together: first their second ones, then their third ones, and so on.
    for place in range(1, int(sizes[small].max(initial=0))):
        more = np.flatnonzero(small & (sizes > place))
        result[:, more] = combine(result[:, more], values[:, starts[more] + place])
    for label in np.flatnonzero(~small).tolist():
        part = values[:, starts[label] : starts[label] + sizes[label]]
        result[:, label] = reduce(part, axis=1)
    return result
