"""The map of known documents: their positions on a plane, and captions for labels.

In: points of tag sets, on the principal axes of a concept space. Out: positions between -1 and 1,
the same ones at every call; a dot for each concept; captions for every zoom level; the labels that
stand beside a label, and those that some documents share.

Some points are landmarks, which are laid out by t-SNE; all others lie among their nearest
landmarks. Points that are added later are placed in the same way, so that none of the earlier ones
moves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from polyseme.base.threads import one_blas_thread
from polyseme.base.validation import InputError, IntArray
from polyseme.documents.label_sets import label_column
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.storage.atomic_files import replacing
from polyseme.storage.model_file import State

Floats = NDArray[np.float32]

FILE = "landscape.safetensors"
# Landmarks at the most: their layout takes seconds, and grows faster than they do.
LANDMARKS = 1500
_QUICK = 400
# Fewer are laid out by their principal axes.
_FEW = 30
# Neighbours that t-SNE looks at, and nearest landmarks that a point lies among.
_PERPLEXITY = 30.0
_NEAREST = 3
# Points that are placed at a time.
_BLOCK = 2048
# Landmarks lie within this, which leaves room for dots around them.
_EDGE = 0.95
# How far dots of equal tag sets spread at the most.
_SPREAD = 0.04
_GOLDEN = np.pi * (3 - 5**0.5)
# Cells a side by which dense places are found, and the share of a label's dots that makes one.
_CELLS = 20
_DENSE = 0.2
# Places of a label at the most, and zoom levels.
_PLACES = 4
LEVELS = 8
# Sizes of a caption at level 0: its height, the width of a letter, and the margin.
_HEIGHT = 0.05
_LETTER = 0.017
_MARGIN = 0.03
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
            places = _project_on_axes(landmarks)
        return cls(digest, "axes", landmarks, _scale_to_bounds(places))

    @classmethod
    def learn(cls, points: Floats, digest: str) -> Self:
        """Lay out points so that neighbours stay neighbours; takes seconds.

        Parameters
        ----------
        points : float32 array, shape (n, n_axes)
            Of length 1, as `KnownDocuments.points`.
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
            start = _project_on_axes(landmarks)
            start *= 1e-4 / max(float(start[:, 0].std()), 1e-12)
            perplexity = min(_PERPLEXITY, (len(landmarks) - 1) / 3)
            model = TSNE(perplexity=perplexity, init=start, random_state=0, n_jobs=1)
            places = model.fit_transform(landmarks)
        return cls(digest, "neighbours", landmarks, _scale_to_bounds(places))

    def place(self, points: Floats) -> Floats:
        """Return where points (n, n_axes) lie, (n, 2): among the landmarks nearest to them.

        A landmark's own point lies where the landmark does. Memory is bounded, whatever n is.
        """
        placed = np.zeros((len(points), 2), dtype=np.float32)
        if not len(self.landmarks):
            return placed
        k = min(_NEAREST, len(self.landmarks))
        landmark_columns = np.ascontiguousarray(self.landmarks.T)
        with one_blas_thread():
            for start in range(0, len(points), _BLOCK):
                rows = slice(start, start + _BLOCK)
                block = np.asarray(points[rows], dtype=np.float32)
                cosines = block @ landmark_columns
                nearest, nearest_cosines = _largest(cosines, k)
                # What rounding leaves of a distance of 0 is 0.
                distances = np.maximum(1 - nearest_cosines - 1e-6, 1e-9)
                weights = 1 / distances**2
                weights /= weights.sum(axis=1, keepdims=True)
                placed[rows] = np.einsum("ij,ijk->ik", weights, self.places[nearest])
        return placed

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> State:
        """Return the landscape as JSON values and arrays; see `from_state`."""
        config = {"digest": self.digest, "layout": self.layout}
        arrays = {"landmarks": self.landmarks, "places": self.places}
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a landscape from `get_state`, or raise where the state is not one."""
        wrong = InputError("This is not a landscape of polyseme; learn it anew.")
        layout = config.get("layout")
        if set(arrays) != {"landmarks", "places"} or layout not in _LAYOUTS:
            raise wrong
        landmarks = arrays["landmarks"]
        places = arrays["places"]
        for array in (landmarks, places):
            if array.dtype != np.float32 or array.ndim != 2:
                raise wrong
            if not np.isfinite(array).all():
                raise wrong
        if places.shape != (len(landmarks), 2):
            raise wrong
        if np.abs(places).max(initial=0) > 1:
            raise wrong
        return cls(str(config.get("digest")), layout, landmarks, places)

    def save(self, folder: Path) -> None:
        """Write it to a model's folder; where that cannot be written, it is learned again."""
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
    n_rows = len(values)
    rows = np.arange(n_rows)
    places = np.empty((n_rows, k), dtype=np.int64)
    largest = np.empty((n_rows, k))
    for rank in range(k):
        columns = values.argmax(axis=1)
        places[:, rank] = columns
        largest[:, rank] = values[rows, columns]
        values[rows, columns] = -np.inf
    return places, largest


def _landmarks(points: Floats, most: int) -> Floats:
    """Return landmarks among points, (n_landmarks, n_axes), no two of them alike."""
    n_points = len(points)
    generator = np.random.default_rng(n_points)
    sample = generator.permutation(n_points)[:most]
    rows = np.sort(sample)
    landmarks = np.ascontiguousarray(points[rows], dtype=np.float32)
    _, first_rows = np.unique(landmarks, axis=0, return_index=True)
    return landmarks[np.sort(first_rows)]


def _project_on_axes(landmarks: Floats) -> Floats:
    """Return points on their first two principal axes, (n, 2)."""
    places = np.zeros((len(landmarks), 2), dtype=np.float32)
    if len(landmarks) > 1:
        mean = landmarks.mean(axis=0, dtype=np.float64)
        centred = landmarks.astype(np.float64) - mean
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        axes = directions[:2]
        # An axis has no direction of its own: let its largest entry be positive.
        largest_columns = np.abs(axes).argmax(axis=1)
        signs = np.sign(axes[np.arange(len(axes)), largest_columns])
        axes *= signs[:, None]
        places[:, : len(axes)] = centred @ axes.T
    return places


def _scale_to_bounds(places: Floats) -> Floats:
    """Return places centred and scaled into the edges, by one factor for both directions."""
    if not len(places):
        return places
    low = places.min(axis=0).astype(np.float64)
    high = places.max(axis=0).astype(np.float64)
    longest_side = float((high - low).max())
    half = max(longest_side / 2, 1e-12)
    centre = (low + high) / 2
    centred = (places - centre) / half * _EDGE
    return np.asarray(centred, dtype=np.float32)


# ---------------------------------------------------------------------- dots and captions


class Dots(NamedTuple):
    """Every concept as a dot: a label in a document."""

    xy: Floats  # (n, 2)
    labels: NDArray[np.uint32]  # (n,): places in the store's labels
    documents: NDArray[np.uint32]  # (n,): rows of the store


def concept_positions(store: KnownDocuments, landscape: Landscape) -> Dots:
    """Return a dot for each label of each document, no two of them in one place.

    The dots of a document lie together, as the seeds of a sunflower do, and so do documents that
    lie in one place.
    """
    sizes = np.diff(store.matrix.indptr)
    if not store.matrix.nnz:
        none = np.zeros(0, dtype=np.uint32)
        return Dots(np.zeros((0, 2), dtype=np.float32), none, none)
    places = landscape.place(store.points) + np.float32(0)  # there is but one zero
    place_keys = places.view(np.uint64).ravel()
    _, spots = np.unique(place_keys, return_inverse=True)
    spots = spots[store.sets]
    numbers, counts = _number_within_groups(spots)
    largest = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(largest, spots, sizes)

    # Seeds that are numbered from 0 are at least a step apart. A power of 2: few documents more
    # leave all dots where they are.
    exact_step = 0.4 / store.matrix.nnz**0.5
    step = 2.0 ** np.floor(np.log2(exact_step))
    radii = step * (2 * np.sqrt(np.maximum(largest - 1, 0)) + 1)
    scales = np.minimum(1.0, _SPREAD / (radii * np.sqrt(counts)))
    document_steps = (radii * scales)[spots]
    document_places = places[store.sets]
    centres = document_places + _sunflower_offsets(numbers, document_steps)

    documents = np.repeat(np.arange(len(sizes)), sizes)
    first_dots = np.repeat(store.matrix.indptr[:-1], sizes)
    seeds = np.arange(len(documents)) - first_dots
    dot_steps = (step * scales)[spots][documents]
    xy = centres[documents] + _sunflower_offsets(seeds, dot_steps)
    labels = store.matrix.indices.astype(np.uint32)
    separate_xy = _apart(xy.astype(np.float32))
    return Dots(separate_xy, labels, documents.astype(np.uint32))


def _number_within_groups(groups: IntArray) -> tuple[IntArray, IntArray]:
    """Return members' numbers in their groups, from 0, (n,), and groups' sizes, (n_groups,)."""
    counts = np.bincount(groups)
    order = np.argsort(groups, kind="stable")
    starts = np.cumsum(counts) - counts
    numbers = np.empty(len(groups), dtype=np.int64)
    numbers[order] = np.arange(len(groups)) - np.repeat(starts, counts)
    return numbers, counts.astype(np.int64)


def _sunflower_offsets(numbers: IntArray, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the places of a sunflower's seeds by their numbers, (n, 2)."""
    radii = steps * np.sqrt(numbers)
    angles = _GOLDEN * numbers
    x = radii * np.cos(angles)
    y = radii * np.sin(angles)
    return np.stack([x, y], axis=1)


def _apart(xy: Floats) -> Floats:
    """Move coinciding dots apart, each by as little as possible."""
    while True:
        keys = (xy + np.float32(0)).view(np.uint64).ravel()
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        repeats = sorted_keys[1:] == sorted_keys[:-1]
        coinciding = order[1:][repeats]
        if not len(coinciding):
            return xy
        xy[coinciding, 0] = np.nextafter(xy[coinciding, 0], np.float32(2))


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
    scaled = (dots.xy + 1) * (_CELLS / 2)
    cells = np.clip(scaled.astype(np.int64), 0, _CELLS - 1)
    counts = np.bincount(dots.labels, minlength=len(labels))
    ends = np.cumsum(counts)
    captions: list[tuple[int, int, float, float]] = []
    for label, rows in enumerate(np.split(order, ends[:-1])):
        if not len(rows):
            continue
        for island in _find_islands(cells[rows]):
            island_dots = dots.xy[rows[island]]
            x, y = np.median(island_dots, axis=0).tolist()
            captions.append((-len(island), label, x, y))
    captions.sort()
    return _assign_levels(captions[:most], labels)


def _find_islands(cells: IntArray) -> list[IntArray]:
    """Return the rows of dots (n, 2), by their cells, that lie around dense places."""
    n_dots = len(cells)
    unassigned = np.arange(n_dots)
    islands: list[IntArray] = []
    while len(unassigned) and len(islands) < _PLACES:
        dot_cells = cells[unassigned]
        dense_cell = _densest_cell(dot_cells, n_dots)
        distances = np.abs(dot_cells - dense_cell)
        is_near = (distances <= 1).all(axis=1)
        n_least = max(_DENSE * n_dots, 3)
        if islands and is_near.sum() < n_least:
            break
        islands.append(unassigned[is_near])
        unassigned = unassigned[~is_near]
    return islands


def _densest_cell(cells: IntArray, n_dots: int) -> tuple[int, int]:
    """Return the cell with most dots in it and around it; `n_dots` is at least their number."""
    cell_numbers = cells @ (_CELLS, 1)
    counts = np.bincount(cell_numbers, minlength=_CELLS**2)
    table = np.pad(counts.reshape(_CELLS, _CELLS), 1)
    row_sums = table[:-2] + table[1:-1] + table[2:]
    window_sums = row_sums[:, :-2] + row_sums[:, 1:-1] + row_sums[:, 2:]
    # Among equally dense places, the one with most dots in its own cell.
    density = window_sums * (n_dots + 1) + table[1:-1, 1:-1]
    return divmod(int(density.argmax()), _CELLS)


def _assign_levels(
    captions: list[tuple[int, int, float, float]], labels: Sequence[str]
) -> list[Anchor]:
    """Return each caption at the first level at which it covers none that was placed before."""
    n = len(captions)
    x = np.zeros(n)
    y = np.zeros(n)
    half_widths = np.zeros(n)
    level = np.zeros(n, dtype=np.int64)
    levels = np.arange(LEVELS - 1)[:, None]
    placed: list[Anchor] = []
    for row, (negative_count, label, caption_x, caption_y) in enumerate(captions):
        name = labels[label]
        x[row] = caption_x
        y[row] = caption_y
        half_widths[row] = (_LETTER * len(name) + _MARGIN) / 2
        with np.errstate(divide="ignore"):
            beside = (half_widths[:row] + half_widths[row]) / np.abs(x[:row] - caption_x)
            above = _HEIGHT / np.abs(y[:row] - caption_y)
        # How far the map must be enlarged for it to be free of each that is there already.
        enlargements = np.minimum(beside, above)
        former_levels = level[:row]
        zooms = 2.0 ** np.maximum(former_levels, levels)
        free = (former_levels == LEVELS - 1) | (enlargements <= zooms)
        free_levels = np.append(free.all(axis=1), True)
        level[row] = int(free_levels.argmax())
        placed.append(Anchor(name, caption_x, caption_y, -negative_count, int(level[row])))
    return placed


# ---------------------------------------------------------------------- co-occurrence of labels


@dataclass(frozen=True)
class Companion:
    """A label that stands beside another."""

    label: str
    count: int  # documents that hold both
    share: float  # of the documents that hold the other


def companions(
    store: KnownDocuments, label: str, k: int = 10, *, normalize: bool = True
) -> list[Companion]:
    """Return the labels that stand most often beside a label, the most frequent first.

    Parameters
    ----------
    store : KnownDocuments
    label : str
        One that documents hold, by any spelling with `normalize`.
    k : int
        How many at the most.
    normalize : bool
    """
    column = label_column(store.labels, label, normalize=normalize)
    column_entries = store.matrix[:, [column]]
    rows = np.flatnonzero(np.diff(column_entries.indptr))
    counts = _counts(store, rows)
    counts[column] = 0
    best = np.argsort(-counts, kind="stable")[:k]
    labels: list[Companion] = []
    for other_column in best[counts[best] > 0].tolist():
        count = counts[other_column]
        share = float(count / len(rows))
        labels.append(Companion(store.labels[other_column], int(count), share))
    return labels


@dataclass(frozen=True)
class Shared:
    """A label that some documents share."""

    label: str
    count: int  # of these documents
    share: float
    lift: float  # how many times the share among all documents


def shared_labels(store: KnownDocuments, documents: Collection[int], k: int = 20) -> list[Shared]:
    """Return the labels that set some documents apart, by how far their share is above the usual.

    Parameters
    ----------
    store : KnownDocuments
    documents : collection of int
        Rows of the store; one that is named twice counts once.
    k : int
        How many at the most.
    """
    n_documents = len(store.ids)
    rows = np.unique(np.asarray(list(documents), dtype=np.int64))
    out_of_range = rows[(rows < 0) | (rows >= n_documents)]
    if len(out_of_range):
        last = n_documents - 1
        raise InputError(f"There is no document {out_of_range[0]}; they are numbered to {last}.")
    counts = _counts(store, rows)
    base_rates = store.counts / max(n_documents, 1)
    shares = counts / max(len(rows), 1)
    order = np.lexsort((-counts, base_rates - shares))
    occurs = counts[order] > 0
    labels: list[Shared] = []
    for column in order[occurs][:k].tolist():
        count = int(counts[column])
        share = float(shares[column])
        lift = float(shares[column] / base_rates[column])
        labels.append(Shared(store.labels[column], count, share, lift))
    return labels


def _counts(store: KnownDocuments, rows: IntArray) -> IntArray:
    """Count the labels of some documents, (n_labels,)."""
    counts = store.matrix[rows].sum(axis=0)
    return np.asarray(counts, dtype=np.int64).ravel()
