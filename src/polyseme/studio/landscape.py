"""The map of known documents: their positions on a plane, and captions for labels.

In: points of tag sets, on the principal axes of a concept space. Out: positions between -1 and 1,
the same ones at every call; a dot for each concept; captions for every zoom level; the labels that
stand beside a label, and those that some documents share.

Some points are landmarks, which are laid out by t-SNE; all others lie among their nearest
landmarks. Points that are added later are placed in the same way, so that none of the earlier ones
moves.

Terms: a *point* is a direction on the principal axes of a concept space, of length 1 (n_axes). A
*place* is where it lies on the plane, x and y between -1 and 1. A *dot* is a concept on the map: a
label in a document. An *anchor* is where a caption of a label stands. Lengths are in units of the
plane, which is 2 wide.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from polyseme.base.machine import one_blas_thread
from polyseme.base.validation import InputError, IntArray
from polyseme.documents.label_sets import label_column
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.storage.atomic_files import replacing
from polyseme.storage.model_file import State

Floats = NDArray[np.float32]

LANDSCAPE_FILE = "landscape.safetensors"  # beside the model
# Landmarks at the most: their layout takes seconds, and grows faster than they do.
LANDMARKS = 1500
# Landmarks of a layout by principal axes, which is there at once.
_QUICK_LANDMARKS = 400
# Fewer landmarks are laid out by their principal axes: t-SNE needs some neighbours.
_LEAST_LANDMARKS = 30
_PERPLEXITY = 30.0  # neighbours that t-SNE looks at
_N_NEAREST = 3  # landmarks that a point lies among
# Points that are placed at a time.
_BLOCK = 2048
# Landmarks lie within this, which leaves room for dots around them.
_EDGE = 0.95
# How far dots of equal tag sets spread at the most.
_SPREAD = 0.04
# Between one seed of a sunflower and the next, in radians.
_GOLDEN_ANGLE = np.pi * (3 - 5**0.5)
# Cells a side by which dense places are found.
_CELLS = 20
_DENSE_SHARE = 0.2  # of a label's dots, that make a second caption
_MOST_ANCHORS = 4  # of one label
# From 0; a caption of a level is shown where the map is enlarged 2**level times.
LEVELS = 8
# Sizes of a caption at level 0, as the studio draws it.
_CAPTION_HEIGHT = 0.05
_LETTER_WIDTH = 0.017
_CAPTION_MARGIN = 0.03
_MOST_BYTES = 2**24  # of a file that is read


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
        landmarks = _select_landmarks(points, _QUICK_LANDMARKS)
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
        landmarks = _select_landmarks(points, LANDMARKS)
        if len(landmarks) < _LEAST_LANDMARKS:
            return cls.quick(points, digest)
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        # In one thread sums have one order, and the same points the same places. OpenMP's limit is
        # this thread's alone, so that it may be set beside others.
        with one_blas_thread(), threadpool_limits(limits=1, user_api="openmp"):
            start = _project_on_axes(landmarks)
            # t-SNE begins with a tiny picture (1e-4 is scikit-learn's own), or it would not unfold.
            start *= 1e-4 / max(float(start[:, 0].std()), 1e-12)
            perplexity = min(_PERPLEXITY, (len(landmarks) - 1) / 3)
            model = TSNE(perplexity=perplexity, init=start, random_state=0, n_jobs=1)
            places = model.fit_transform(landmarks)
        return cls(digest, "neighbours", landmarks, _scale_to_bounds(places))

    def place(self, points: Floats) -> Floats:
        """Return where points (n, n_axes) lie, (n, 2): among the landmarks nearest to them.

        A landmark's own point lies where the landmark does; others at a mean of the nearest
        landmarks' places, weighted by 1 / (1 - cosine)^2. Memory is bounded, whatever n is.
        """
        placed = np.zeros((len(points), 2), dtype=np.float32)
        if not len(self.landmarks):
            return placed
        n_nearest = min(_N_NEAREST, len(self.landmarks))
        landmark_columns = np.ascontiguousarray(self.landmarks.T)
        with one_blas_thread():
            for start in range(0, len(points), _BLOCK):
                rows = slice(start, start + _BLOCK)
                block = np.asarray(points[rows], dtype=np.float32)
                cosines = block @ landmark_columns
                nearest, nearest_cosines = _take_largest(cosines, n_nearest)
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
        farthest = np.abs(places).max(initial=0)
        if farthest > 1:
            raise wrong
        digest = str(config.get("digest"))
        return cls(digest, layout, landmarks, places)

    def save(self, folder: Path) -> None:
        """Write it to a model's folder, as a safetensors file with the configuration in its header.

        Where the folder cannot be written, it is learned again next time.
        """
        from safetensors.numpy import save

        config, arrays = self.get_state()
        content = save(arrays, metadata=config)
        with suppress(OSError, InputError), replacing(folder / LANDSCAPE_FILE) as stream:
            stream.write(content)

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

        file = folder / LANDSCAPE_FILE
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


_LAYOUTS = ("neighbours", "axes")  # by t-SNE, or by principal axes


def _take_largest(values: Floats, k: int) -> tuple[IntArray, NDArray[np.float64]]:
    """Return the columns of each row's k largest values, and these, (n, k), the largest first.

    The values are changed: those that were taken are -inf afterwards.
    """
    # For a few of them this takes a sixth of the time that sorting in part does.
    n_rows = len(values)
    rows = np.arange(n_rows)
    largest_columns = np.empty((n_rows, k), dtype=np.int64)
    largest_values = np.empty((n_rows, k))
    for rank in range(k):
        columns = values.argmax(axis=1)
        largest_columns[:, rank] = columns
        largest_values[:, rank] = values[rows, columns]
        values[rows, columns] = -np.inf
    return largest_columns, largest_values


def _select_landmarks(points: Floats, most: int) -> Floats:
    """Return a random sample of points, (n_landmarks, n_axes), no two of them alike."""
    n_points = len(points)
    # The same points have the same landmarks, in every process.
    generator = np.random.default_rng(n_points)
    sample = generator.permutation(n_points)[:most]
    rows = np.sort(sample)
    landmarks = np.ascontiguousarray(points[rows], dtype=np.float32)
    _, first_rows = np.unique(landmarks, axis=0, return_index=True)
    return landmarks[np.sort(first_rows)]


def _project_on_axes(landmarks: Floats) -> Floats:
    """Return landmarks on their own first two principal axes, (n_landmarks, 2), not scaled."""
    places = np.zeros((len(landmarks), 2), dtype=np.float32)
    if len(landmarks) < 2:
        return places
    mean = landmarks.mean(axis=0, dtype=np.float64)
    centred = landmarks.astype(np.float64) - mean
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    axes = directions[:2]
    # An axis has no direction of its own: let its largest entry be positive.
    n_axes = len(axes)
    largest_columns = np.abs(axes).argmax(axis=1)
    largest_entries = axes[np.arange(n_axes), largest_columns]
    axes *= np.sign(largest_entries)[:, None]
    places[:, :n_axes] = centred @ axes.T
    return places


def _scale_to_bounds(places: Floats) -> Floats:
    """Return places (n, 2) centred and scaled into the edges, by one factor for x and y."""
    if not len(places):
        return places
    low = places.min(axis=0).astype(np.float64)
    high = places.max(axis=0).astype(np.float64)
    sides = high - low
    half = max(float(sides.max()) / 2, 1e-12)
    centre = (low + high) / 2
    scaled = (places - centre) / half * _EDGE
    return np.asarray(scaled, dtype=np.float32)


# ---------------------------------------------------------------------- dots and captions


class Dots(NamedTuple):
    """Every concept as a dot: a label in a document."""

    xy: Floats  # (n, 2)
    labels: NDArray[np.uint32]  # (n,): columns of the store's matrix, places in its labels
    documents: NDArray[np.uint32]  # (n,): rows of the store's matrix, ascending


def concept_positions(store: KnownDocuments, landscape: Landscape) -> Dots:
    """Return a dot for each label of each document, no two of them in one place.

    The dots of a document lie together, as the seeds of a sunflower do, and so do documents that
    lie in one place (a *spot* below): the documents' sunflowers are the seeds of a larger one.
    """
    matrix = store.matrix
    sizes = np.diff(matrix.indptr)  # labels of each document
    if not matrix.nnz:
        no_numbers = np.zeros(0, dtype=np.uint32)
        return Dots(np.zeros((0, 2), dtype=np.float32), no_numbers, no_numbers)
    places = landscape.place(store.points) + np.float32(0)  # -0 becomes 0, which has other bits
    place_keys = places.view(np.uint64).ravel()  # x and y as one number
    _, spot_by_set = np.unique(place_keys, return_inverse=True)
    spots = spot_by_set[store.sets]  # of each document
    numbers, spot_counts = _number_within_groups(spots)
    largest_sizes = np.zeros(len(spot_counts), dtype=np.int64)
    np.maximum.at(largest_sizes, spots, sizes)

    # Seeds that are numbered from 0 are at least a step apart. A power of 2: few documents more
    # leave all dots where they are. At such steps all dots fill an eighth of the plane at most.
    exact_step = 0.4 / matrix.nnz**0.5
    step = 2.0 ** np.floor(np.log2(exact_step))
    # How far apart a spot's documents must lie, by the largest of them, and how wide the spot is
    # then. All of it is made smaller where it would be wider than `_SPREAD`.
    radii = step * (2 * np.sqrt(np.maximum(largest_sizes - 1, 0)) + 1)
    spot_radii = radii * np.sqrt(spot_counts)
    scales = np.minimum(1.0, _SPREAD / spot_radii)
    document_steps = (radii * scales)[spots]
    document_places = places[store.sets]
    centres = document_places + _sunflower_offsets(numbers, document_steps)

    n_documents = len(sizes)
    documents = np.repeat(np.arange(n_documents), sizes)  # of each dot
    first_dots = np.repeat(matrix.indptr[:-1], sizes)
    seeds = np.arange(matrix.nnz) - first_dots
    spot_steps = step * scales
    dot_steps = spot_steps[spots][documents]
    xy = centres[documents] + _sunflower_offsets(seeds, dot_steps)
    separate_xy = _move_apart(xy.astype(np.float32))
    labels = matrix.indices.astype(np.uint32)
    return Dots(separate_xy, labels, documents.astype(np.uint32))


def _number_within_groups(groups: IntArray) -> tuple[IntArray, IntArray]:
    """Return members' numbers in their groups, from 0, (n,), and groups' sizes, (n_groups,).

    `groups` has the group of each member; members of a group are numbered in their order.
    """
    n_members = len(groups)
    counts = np.bincount(groups)
    ends = np.cumsum(counts)
    starts = ends - counts
    order = np.argsort(groups, kind="stable")
    first_places = np.repeat(starts, counts)
    numbers = np.empty(n_members, dtype=np.int64)
    numbers[order] = np.arange(n_members) - first_places
    return numbers, counts.astype(np.int64)


def _sunflower_offsets(numbers: IntArray, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far seeds of sunflowers lie from their centres, (n, 2).

    Seed k lies at the radius step * sqrt(k) and the angle k * golden angle (Vogel 1979).
    """
    radii = steps * np.sqrt(numbers)
    angles = _GOLDEN_ANGLE * numbers
    x = radii * np.cos(angles)
    y = radii * np.sin(angles)
    return np.stack([x, y], axis=1)


def _move_apart(xy: Floats) -> Floats:
    """Move coinciding dots (n, 2) apart in place, each by as little as possible; return them."""
    while True:
        keys = (xy + np.float32(0)).view(np.uint64).ravel()  # x and y as one number; one zero
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        repeats = sorted_keys[1:] == sorted_keys[:-1]
        coinciding = order[1:][repeats]
        if not len(coinciding):
            return xy
        xy[coinciding, 0] = np.nextafter(xy[coinciding, 0], np.float32(2))


@dataclass(frozen=True)
class Anchor:
    """A place that a label's caption stands at; its fields are those of the REST interface."""

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
        The labels that `dots.labels` has the places of.
    most : int
        How many captions are returned at the most: those of the most dots.

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
    captions: list[_Caption] = []
    for column, rows in enumerate(np.split(order, ends[:-1])):
        if not len(rows):
            continue
        for island in _find_islands(cells[rows]):
            island_dots = dots.xy[rows[island]]
            x, y = np.median(island_dots, axis=0).tolist()
            captions.append(_Caption(-len(island), column, x, y))
    captions.sort()
    return _assign_levels(captions[:most], labels)


class _Caption(NamedTuple):
    """A caption without a level; sorted, those of many dots come first."""

    negative_count: int  # of dots
    column: int  # of its label
    x: float
    y: float


def _find_islands(cells: IntArray) -> list[IntArray]:
    """Return the rows of dots that lie around each dense place, the densest first.

    `cells` (n_dots, 2) has the cell of each dot: its column and row in a grid of `_CELLS` a side.
    An island is a dense cell with the eight around it. Dots of no island are in none of the lists.
    """
    n_dots = len(cells)
    unassigned = np.arange(n_dots)
    islands: list[IntArray] = []
    while len(unassigned) and len(islands) < _MOST_ANCHORS:
        dot_cells = cells[unassigned]
        dense_cell = _densest_cell(dot_cells, n_dots)
        distances = np.abs(dot_cells - dense_cell)
        is_near = (distances <= 1).all(axis=1)
        n_least = max(_DENSE_SHARE * n_dots, 3)
        if islands and is_near.sum() < n_least:
            break
        islands.append(unassigned[is_near])
        unassigned = unassigned[~is_near]
    return islands


def _densest_cell(cells: IntArray, n_dots: int) -> tuple[int, int]:
    """Return the cell with most dots in it and around it; `n_dots` is at least their number."""
    counts = np.zeros((_CELLS + 2, _CELLS + 2), dtype=np.int64)  # with an empty margin
    first_axis = cells[:, 0] + 1
    second_axis = cells[:, 1] + 1
    np.add.at(counts, (first_axis, second_axis), 1)
    windows = np.lib.stride_tricks.sliding_window_view(counts, (3, 3))
    window_sums = windows.sum(axis=(2, 3))
    own_counts = counts[1:-1, 1:-1]
    # Among equally dense places, the one with most dots in its own cell.
    density = window_sums * (n_dots + 1)
    density += own_counts
    densest = int(density.argmax())
    return divmod(densest, _CELLS)


def _assign_levels(captions: Sequence[_Caption], labels: Sequence[str]) -> list[Anchor]:
    """Return each caption at the first level at which it covers none that was placed before.

    Those that find no such level are at the last one, where captions may lie over each other.
    """
    n_captions = len(captions)
    x = np.array([caption.x for caption in captions])
    y = np.array([caption.y for caption in captions])
    half_widths = np.zeros(n_captions)
    caption_levels = np.zeros(n_captions, dtype=np.int64)
    last_level = LEVELS - 1
    levels = np.arange(last_level)[:, None]
    placed: list[Anchor] = []
    for number, caption in enumerate(captions):
        label = labels[caption.column]
        half_widths[number] = (_LETTER_WIDTH * len(label) + _CAPTION_MARGIN) / 2
        with np.errstate(divide="ignore"):
            widths = half_widths[:number] + half_widths[number]
            to_stand_beside = widths / np.abs(x[:number] - caption.x)
            to_stand_above = _CAPTION_HEIGHT / np.abs(y[:number] - caption.y)
        # How far the map must be enlarged for it to be free of each that is there already.
        enlargements = np.minimum(to_stand_beside, to_stand_above)
        former_levels = caption_levels[:number]
        # (n_levels, n_former): both are on the map from the higher of their levels on.
        zooms = 2.0 ** np.maximum(former_levels, levels)
        is_free = (former_levels == last_level) | (enlargements <= zooms)
        free_levels = np.append(is_free.all(axis=1), True)
        level = int(free_levels.argmax())
        caption_levels[number] = level
        placed.append(Anchor(label, caption.x, caption.y, -caption.negative_count, level))
    return placed


# ---------------------------------------------------------------------- co-occurrence of labels


@dataclass(frozen=True)
class Companion:
    """A label that stands beside another in documents."""

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
        Whether spellings that differ in case or white space are one label.
    """
    column = label_column(store.labels, label, normalize=normalize)
    column_entries = store.matrix[:, [column]]
    rows = np.flatnonzero(np.diff(column_entries.indptr))  # documents that hold the label
    counts = _count_labels(store, rows)
    counts[column] = 0
    best_columns = np.argsort(-counts, kind="stable")[:k]
    labels: list[Companion] = []
    for other_column in best_columns.tolist():
        count = int(counts[other_column])
        if count:
            share = float(count / len(rows))
            labels.append(Companion(store.labels[other_column], count, share))
    return labels


@dataclass(frozen=True)
class SharedLabel:
    """A label that some documents share."""

    label: str
    count: int  # of these documents that hold it
    share: float  # of these documents
    lift: float  # how many times the share among all documents


def shared_labels(
    store: KnownDocuments, documents: Collection[int], k: int = 20
) -> list[SharedLabel]:
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
    counts = _count_labels(store, rows)
    base_rates = store.counts / max(n_documents, 1)
    shares = counts / max(len(rows), 1)
    excess = shares - base_rates
    order = np.lexsort((-counts, -excess))  # the larger count first among equals
    occurs = counts[order] > 0
    labels: list[SharedLabel] = []
    for column in order[occurs][:k].tolist():
        count = int(counts[column])
        share = float(shares[column])
        lift = float(shares[column] / base_rates[column])
        labels.append(SharedLabel(store.labels[column], count, share, lift))
    return labels


def _count_labels(store: KnownDocuments, rows: IntArray) -> IntArray:
    """Count how many of some documents hold each label, (n_labels,)."""
    counts = store.matrix[rows].sum(axis=0)
    return np.asarray(counts, dtype=np.int64).ravel()
