"""The map of known documents: where each lies on a plane, and what stands where.

In: points of tag sets, on the principal axes of a concept space. Out: places between -1 and 1, the
same ones whenever they are asked for; a dot for each concept; captions for every zoom; what labels
stand beside a label, and what labels some documents share.

Some points are landmarks, which are laid out with regard to who is whose neighbour (t-SNE); all
others lie among the landmarks that are nearest to them. What comes later is placed in the same way,
so that nothing moves that was there before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from polyseme._threads import one_blas_thread
from polyseme._validation import InputError, IntArray
from polyseme.documents import label_column
from polyseme.io import replacing
from polyseme.persistence import State
from polyseme.store import ConceptStore

Floats = NDArray[np.float32]

FILE = "landscape.safetensors"
# Landmarks at the most: their layout takes seconds, and grows faster than they do.
LANDMARKS, _QUICK = 1500, 400
# Fewer are laid out by their principal axes.
_FEW = 30
# Neighbours that t-SNE looks at, and nearest landmarks that a point lies among.
_PERPLEXITY, _NEAREST = 30.0, 3
# Points that are placed at a time.
_BLOCK = 2048
# Landmarks lie within this, which leaves room for dots around them.
_EDGE = 0.95
# How far dots of equal tag sets spread at the most.
_SPREAD = 0.04
_GOLDEN = np.pi * (3 - 5**0.5)
# Cells a side by which dense places are found, and the share of a label's dots that makes one.
_CELLS, _DENSE = 20, 0.2
# Places of a label at the most, and zoom levels.
_PLACES, LEVELS = 4, 8
# Of a caption at level 0: its height, and the width of a letter and of what is around.
_HEIGHT, _LETTER, _MARGIN = 0.05, 0.017, 0.03
_MOST_BYTES = 2**24


@dataclass(frozen=True, eq=False)
class Landscape:
    """Where points of a concept space lie on a plane.

    Attributes
    ----------
    digest : str
        Which space it is of (`ConceptSpace.digest_`).
    layout : {"neighbours", "axes"}
        How landmarks were laid out: by t-SNE, or by their first two principal axes.
    landmarks : float32 array, shape (n_landmarks, n_axes)
        Points, each of length 1.
    places : float32 array, shape (n_landmarks, 2)
        Where they lie, between -1 and 1.
    """

    digest: str
    layout: str
    landmarks: Floats
    places: Floats

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Landscape({len(self.landmarks)} landmarks by {self.layout})"

    @classmethod
    def quick(cls, points: Floats, digest: str) -> Self:
        """Lay out points by their principal axes, at once; for parameters see `learn`."""
        landmarks = _landmarks(points, _QUICK)
        with one_blas_thread():
            places = _on_axes(landmarks)
        return cls(digest, "axes", landmarks, _within_bounds(places))

    @classmethod
    def learn(cls, points: Floats, digest: str) -> Self:
        """Lay out points so that neighbours stay neighbours; takes seconds.

        Parameters
        ----------
        points : float32 array, shape (n, n_axes)
            Of length 1, as `ConceptStore.points`.
        digest : str
            Of their space.
        """
        landmarks = _landmarks(points, LANDMARKS)
        if len(landmarks) < _FEW:
            return cls.quick(points, digest)
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        # In one thread sums have one order, and the same points the same places. OpenMP's limit is
        # this thread's alone, so that it may be set beside others.
        with one_blas_thread(), threadpool_limits(limits=1, user_api="openmp"):
            start = _on_axes(landmarks)
            start *= 1e-4 / max(float(start[:, 0].std()), 1e-12)
            perplexity = min(_PERPLEXITY, (len(landmarks) - 1) / 3)
            model = TSNE(perplexity=perplexity, init=start, random_state=0, n_jobs=1)
            places = model.fit_transform(landmarks)
        return cls(digest, "neighbours", landmarks, _within_bounds(places))

    def place(self, points: Floats) -> Floats:
        """Return where points (n, n_axes) lie, (n, 2): among the landmarks nearest to them.

        A landmark's own point lies where the landmark does. Memory is bounded, whatever n is.
        """
        placed = np.zeros((len(points), 2), dtype=np.float32)
        if not len(self.landmarks):
            return placed
        k = min(_NEAREST, len(self.landmarks))
        across = np.ascontiguousarray(self.landmarks.T)
        with one_blas_thread():
            for start in range(0, len(points), _BLOCK):
                rows = slice(start, start + _BLOCK)
                cosines = np.asarray(points[rows], dtype=np.float32) @ across
                near, closest = _largest(cosines, k)
                # What rounding leaves of a distance of 0 is 0.
                weights = 1 / np.maximum(1 - closest - 1e-6, 1e-9) ** 2
                weights /= weights.sum(axis=1, keepdims=True)
                placed[rows] = np.einsum("ij,ijk->ik", weights, self.places[near])
        return placed

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> State:
        """Return the landscape as JSON values and arrays; see `from_state`."""
        config = {"digest": self.digest, "layout": self.layout}
        return config, {"landmarks": self.landmarks, "places": self.places}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a landscape from `get_state`; what cannot be one is refused."""
        wrong = InputError("This is no landscape of polyseme's; learn it anew.")
        if set(arrays) != {"landmarks", "places"} or config.get("layout") not in _LAYOUTS:
            raise wrong
        landmarks, places = arrays["landmarks"], arrays["places"]
        for array in (landmarks, places):
            if array.dtype != np.float32 or array.ndim != 2 or not np.isfinite(array).all():
                raise wrong
        if places.shape != (len(landmarks), 2) or np.abs(places).max(initial=0) > 1:
            raise wrong
        return cls(str(config.get("digest")), config["layout"], landmarks, places)

    def save(self, folder: Path) -> None:
        """Keep it in a model's folder; where that cannot be written, it is learned again."""
        from safetensors.numpy import save

        config, arrays = self.get_state()
        with suppress(OSError, InputError), replacing(folder / FILE) as stream:
            stream.write(save(arrays, metadata=config))

    @classmethod
    def read(cls, folder: Path, digest: str, n_axes: int) -> Self | None:
        """Read the landscape of a space from a model's folder; None where there is no such one.

        Parameters
        ----------
        folder : Path
        digest : str
            Of the space that it must be of.
        n_axes : int
            Columns of that space's points.
        """
        from safetensors import SafetensorError, safe_open

        file = folder / FILE
        try:
            if not file.is_file() or file.stat().st_size > _MOST_BYTES:
                return None
            with safe_open(file, framework="numpy") as content:
                config = content.metadata() or {}
                arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118  # no mapping
            landscape = cls.from_state(config, arrays)
        except (OSError, ValueError, TypeError, KeyError, SafetensorError):
            return None
        fits = landscape.digest == digest and landscape.landmarks.shape[1] == n_axes
        return landscape if fits else None


_LAYOUTS = ("neighbours", "axes")


def _largest(values: Floats, k: int) -> tuple[IntArray, NDArray[np.float64]]:
    """Return the places of each row's k largest values, and these, (n, k); uses the values up."""
    # For a few of them this takes a sixth of the time that sorting in part does.
    rows = np.arange(len(values))
    places, largest = np.empty((len(values), k), dtype=np.int64), np.empty((len(values), k))
    for rank in range(k):
        places[:, rank] = values.argmax(axis=1)
        largest[:, rank] = values[rows, places[:, rank]]
        values[rows, places[:, rank]] = -np.inf
    return places, largest


def _landmarks(points: Floats, most: int) -> Floats:
    """Choose landmarks among points, (n_landmarks, n_axes), no two of them alike."""
    rows = np.sort(np.random.default_rng(len(points)).permutation(len(points))[:most])
    chosen = np.ascontiguousarray(points[rows], dtype=np.float32)
    first = np.unique(chosen, axis=0, return_index=True)[1]
    return chosen[np.sort(first)]


def _on_axes(landmarks: Floats) -> Floats:
    """Return points on their first two principal axes, (n, 2)."""
    places = np.zeros((len(landmarks), 2), dtype=np.float32)
    if len(landmarks) > 1:
        away = landmarks.astype(np.float64) - landmarks.mean(axis=0, dtype=np.float64)
        axes = np.linalg.svd(away, full_matrices=False)[2][:2]
        # An axis has no direction of its own: let its largest entry be positive.
        axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
        places[:, : len(axes)] = away @ axes.T
    return places


def _within_bounds(places: Floats) -> Floats:
    """Centre places and bring them between the edges, alike in both directions."""
    if not len(places):
        return places
    low, high = places.min(axis=0).astype(np.float64), places.max(axis=0).astype(np.float64)
    half = max(float((high - low).max()) / 2, 1e-12)
    return np.asarray((places - (low + high) / 2) / half * _EDGE, dtype=np.float32)


# ---------------------------------------------------------------------- dots and captions


class Dots(NamedTuple):
    """Every concept as a dot: a label in a document."""

    xy: Floats  # (n, 2)
    labels: NDArray[np.uint32]  # (n,): places in the store's labels
    documents: NDArray[np.uint32]  # (n,): rows of the store


def concept_positions(store: ConceptStore, landscape: Landscape) -> Dots:
    """Return a dot for each label of each document, no two of them in one place.

    The dots of a document lie together, as the seeds of a sunflower do, and so do documents that
    lie in one place.
    """
    sizes = np.diff(store.matrix.indptr)
    if not store.matrix.nnz:
        none = np.zeros(0, dtype=np.uint32)
        return Dots(np.zeros((0, 2), dtype=np.float32), none, none)
    places = landscape.place(store.points) + np.float32(0)  # there is but one zero
    _, spots = np.unique(places.view(np.uint64).ravel(), return_inverse=True)
    spots = spots[store.sets]
    numbers, counts = _numbered(spots)
    largest = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(largest, spots, sizes)
    # Seeds that are numbered from 0 are at least a step apart. A power of 2: few documents more
    # leave all dots where they are.
    step = 2.0 ** np.floor(np.log2(0.4 / store.matrix.nnz**0.5))
    around = step * (2 * np.sqrt(np.maximum(largest - 1, 0)) + 1)
    shrunk = np.minimum(1.0, _SPREAD / (around * np.sqrt(counts)))
    centres = places[store.sets] + _seeds(numbers, (around * shrunk)[spots])
    documents = np.repeat(np.arange(len(sizes)), sizes)
    seeds = np.arange(len(documents)) - np.repeat(store.matrix.indptr[:-1], sizes)
    xy = centres[documents] + _seeds(seeds, (step * shrunk)[spots][documents])
    labels = store.matrix.indices.astype(np.uint32)
    return Dots(_apart(xy.astype(np.float32)), labels, documents.astype(np.uint32))


def _numbered(groups: IntArray) -> tuple[IntArray, IntArray]:
    """Return the members of each group numbers from 0, (n,), and count them, (n_groups,)."""
    counts = np.bincount(groups)
    order = np.argsort(groups, kind="stable")
    numbers = np.empty(len(groups), dtype=np.int64)
    numbers[order] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers, counts.astype(np.int64)


def _seeds(numbers: IntArray, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the places of a sunflower's seeds by their numbers, (n, 2)."""
    away, angle = steps * np.sqrt(numbers), _GOLDEN * numbers
    return np.stack([away * np.cos(angle), away * np.sin(angle)], axis=1)


def _apart(xy: Floats) -> Floats:
    """Move what coincides by a hair until nothing does."""
    while True:
        keys = (xy + np.float32(0)).view(np.uint64).ravel()
        order = np.argsort(keys, kind="stable")
        again = order[1:][keys[order[1:]] == keys[order[:-1]]]
        if not len(again):
            return xy
        xy[again, 0] = np.nextafter(xy[again, 0], np.float32(2))


@dataclass(frozen=True)
class Anchor:
    """A place that a label's caption stands at."""

    label: str
    x: float
    y: float
    count: int  # of the label's dots around here
    level: int  # shown where the map is enlarged 2**level times, or more


def anchors(dots: Dots, labels: Sequence[str], most: int = 4000) -> list[Anchor]:
    """Return where labels stand: each in its dense places, one for each island of its dots.

    Parameters
    ----------
    dots : Dots
    labels : sequence of str
        What the numbers of their labels mean.
    most : int
        Give the captions of the most dots.

    Returns
    -------
    list of Anchor
        Those of many dots first. Captions of one level and those below do not lie over each other
        where the map is enlarged so far; only those of the last level may.
    """
    order = np.argsort(dots.labels, kind="stable")
    cells = np.clip(((dots.xy + 1) * (_CELLS / 2)).astype(np.int64), 0, _CELLS - 1)
    found: list[tuple[int, int, float, float]] = []
    ends = np.cumsum(np.bincount(dots.labels, minlength=len(labels)))
    for label, rows in enumerate(np.split(order, ends[:-1])):
        if len(rows):
            for some in _islands(cells[rows]):
                x, y = np.median(dots.xy[rows[some]], axis=0).tolist()
                found.append((-len(some), label, x, y))
    found.sort()
    return _levelled(found[:most], labels)


def _islands(cells: IntArray) -> list[IntArray]:
    """Return the rows of dots (n, 2), by their cells, that lie around dense places."""
    left = np.arange(len(cells))
    islands: list[IntArray] = []
    while len(left) and len(islands) < _PLACES:
        counts = np.bincount(cells[left] @ (_CELLS, 1), minlength=_CELLS**2)
        table = np.pad(counts.reshape(_CELLS, _CELLS), 1)
        beside = table[:-2] + table[1:-1] + table[2:]
        around = beside[:, :-2] + beside[:, 1:-1] + beside[:, 2:]
        # Of equally dense places the one whose own cell holds most.
        dense = divmod(int((around * (len(cells) + 1) + table[1:-1, 1:-1]).argmax()), _CELLS)
        here = (np.abs(cells[left] - dense) <= 1).all(axis=1)
        if islands and here.sum() < max(_DENSE * len(cells), 3):
            break
        islands.append(left[here])
        left = left[~here]
    return islands


def _levelled(found: list[tuple[int, int, float, float]], labels: Sequence[str]) -> list[Anchor]:
    """Return every caption the first level at which it lies over none that is there already."""
    n = len(found)
    x, y, half, level = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64)
    levels = np.arange(LEVELS - 1)[:, None]
    placed = []
    for row, (count, label, at_x, at_y) in enumerate(found):
        x[row], y[row] = at_x, at_y
        half[row] = (_LETTER * len(labels[label]) + _MARGIN) / 2
        with np.errstate(divide="ignore"):
            beside = (half[:row] + half[row]) / np.abs(x[:row] - at_x)
            above = _HEIGHT / np.abs(y[:row] - at_y)
        # How far the map must be enlarged for it to be free of each that is there already.
        needed, there = np.minimum(beside, above), level[:row]
        free = (there == LEVELS - 1) | (needed <= 2.0 ** np.maximum(there, levels))
        level[row] = int(np.append(free.all(axis=1), True).argmax())
        placed.append(Anchor(labels[label], at_x, at_y, -count, int(level[row])))
    return placed


# ---------------------------------------------------------------------- what stands together


@dataclass(frozen=True)
class Companion:
    """A label that stands beside another."""

    label: str
    count: int  # documents that hold both
    share: float  # of the documents that hold the other


def companions(
    store: ConceptStore, label: str, k: int = 10, *, normalize: bool = True
) -> list[Companion]:
    """Return the labels that stand most often beside a label, the most frequent first.

    Parameters
    ----------
    store : ConceptStore
    label : str
        One that documents hold, by any spelling with `normalize`.
    k : int
        How many at the most.
    normalize : bool
    """
    column = label_column(store.labels, label, normalize=normalize)
    rows = np.flatnonzero(np.diff(store.matrix[:, [column]].indptr))
    counts = _counts(store, rows)
    counts[column] = 0
    best = np.argsort(-counts, kind="stable")[:k]
    return [
        Companion(store.labels[one], int(counts[one]), float(counts[one] / len(rows)))
        for one in best[counts[best] > 0].tolist()
    ]


@dataclass(frozen=True)
class Shared:
    """A label that some documents share."""

    label: str
    count: int  # of these documents
    share: float
    lift: float  # how many times the share among all documents


def shared_labels(store: ConceptStore, documents: Collection[int], k: int = 20) -> list[Shared]:
    """Return the labels that set some documents apart, by how far their share is above the usual.

    Parameters
    ----------
    store : ConceptStore
    documents : collection of int
        Rows of the store; one that is named twice counts once.
    k : int
        How many at the most.
    """
    rows = np.unique(np.asarray(list(documents), dtype=np.int64))
    if len(rows) and not 0 <= rows[0] <= rows[-1] < len(store.ids):
        wrong = rows[0] if rows[0] < 0 else rows[-1]
        last = len(store.ids) - 1
        raise InputError(f"There is no document {wrong}; they are numbered to {last}.")
    counts = _counts(store, rows)
    usual = store.counts / max(len(store.ids), 1)
    shares = counts / max(len(rows), 1)
    best = np.lexsort((-counts, usual - shares))
    best = best[counts[best] > 0][:k]
    return [
        Shared(store.labels[one], int(counts[one]), float(shares[one]), float(lift))
        for one, lift in zip(best.tolist(), shares[best] / usual[best], strict=True)
    ]


def _counts(store: ConceptStore, rows: IntArray) -> IntArray:
    """Count the labels of some documents, (n_labels,)."""
    return np.asarray(store.matrix[rows].sum(axis=0), dtype=np.int64).ravel()
