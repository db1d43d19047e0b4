"""The map of known documents: neighbours stay neighbours, nothing moves, nothing is hidden."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import combinations, pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import save, save_file
from sklearn.manifold import trustworthiness
from threadpoolctl import threadpool_limits

from polyseme.base.validation import InputError
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.studio import landscape as module
from polyseme.studio.host import ModelHost
from polyseme.studio.landscape import (
    LANDSCAPE_FILE,
    LEVELS,
    Anchor,
    Companion,
    Landscape,
    SharedLabel,
    anchors,
    companions,
    concept_positions,
    shared_labels,
)


def islands(n, *, n_islands=12, n_axes=16, noise=0.6, seed=0):
    """Return points of length 1 around some centres."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_islands, n_axes))
    points = centres[np.arange(n) % n_islands]
    points = points + noise * rng.normal(size=(n, n_axes))
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / lengths).astype(np.float32)


def store_of(documents, points=None):
    """Return a store of documents with points of their tag sets, by default islands."""
    labels = tuple(sorted(set().union(*documents)))
    columns = {label: number for number, label in enumerate(labels)}
    matrix = sp.lil_matrix((len(documents), len(labels)), dtype=bool)
    tag_sets = []
    for row, document in enumerate(documents):
        tag_sets.append(tuple(sorted(columns[label] for label in document)))
        matrix[row, list(tag_sets[row])] = True
    unique_sets = list(dict.fromkeys(tag_sets))
    set_numbers = np.array([unique_sets.index(tag_set) for tag_set in tag_sets])
    if points is None:
        points = islands(len(unique_sets))
    ids = tuple(map(str, range(len(documents))))
    return KnownDocuments(labels, len(labels), ids, sp.csr_matrix(matrix), set_numbers, points)


@pytest.fixture(scope="module")
def points():
    return islands(240)


@pytest.fixture(scope="module")
def landscape(points):
    return Landscape.learn(points, "abc")


@pytest.fixture
def dots(toy_tagger):
    """A dot for every label of every known document of the toy world."""
    store = toy_tagger.store_
    return concept_positions(store, Landscape.learn(store.points, "abc"))


def test_the_same_points_get_the_same_places_in_any_thread(points, landscape):
    with ThreadPoolExecutor(1) as pool, threadpool_limits(limits=2):
        repeated = pool.submit(Landscape.learn, points, "abc").result()
    assert_array_equal(repeated.places, landscape.places)
    assert_array_equal(repeated.place(points), landscape.place(points))


def trust(landscape, points):
    """Return how far neighbours among the points are neighbours on the map, too."""
    placed = landscape.place(points)
    return trustworthiness(points, placed)


def test_neighbours_stay_nearer_than_on_principal_axes(points, landscape):
    assert landscape.layout == "neighbours"
    by_axes = trust(Landscape.quick(points, "abc"), points)
    by_neighbours = trust(landscape, points)
    assert by_neighbours > by_axes + 0.05
    assert by_neighbours > 0.9


def test_neighbours_stay_nearer_than_on_principal_axes_in_the_toy_world(toy_tagger):
    points = toy_tagger.store_.points
    by_axes = trust(Landscape.quick(points, "abc"), points)
    by_neighbours = trust(Landscape.learn(points, "abc"), points)
    assert by_neighbours > by_axes


def test_points_beyond_the_landmarks_lie_near_similar_ones(monkeypatch, points):
    monkeypatch.setattr(module, "LANDMARKS", 120)
    landscape = Landscape.learn(points, "abc")
    assert len(landscape.landmarks) == 120
    assert trust(landscape, points) > 0.85


def test_a_landmark_lies_where_its_own_point_is_placed(landscape):
    placed = landscape.place(landscape.landmarks)
    assert_allclose(placed, landscape.places, atol=1e-3)


def test_a_point_between_landmarks_is_the_weighted_mean_of_the_nearest(landscape):
    points = islands(20, seed=5)
    expected = []
    for point in points:
        distances = 1 - landscape.landmarks @ point
        nearest = np.argsort(distances, kind="stable")[: module._N_NEAREST]
        weights = distances[nearest] ** -2.0
        mean = np.average(landscape.places[nearest], axis=0, weights=weights)
        expected.append(mean)
    assert_allclose(landscape.place(points), expected, atol=1e-3)


def test_added_points_move_no_other_point(points, landscape):
    added_points = islands(30, seed=9)
    before = landscape.place(points)
    after = landscape.place(np.concatenate([points, added_points]))
    assert_array_equal(after[: len(points)], before)


@pytest.mark.parametrize(
    "n", [0, 1, 2, 3, module._LEAST_LANDMARKS - 1, module._LEAST_LANDMARKS, 45]
)
@pytest.mark.parametrize("n_axes", [1, 2, 16])
def test_any_number_of_points_lies_within_the_edges(n, n_axes):
    points = islands(n, n_axes=n_axes)
    landscape = Landscape.learn(points, "abc")
    placed = landscape.place(points)
    assert placed.shape == (n, 2)
    assert placed.dtype == np.float32
    assert np.isfinite(placed).all()
    assert np.abs(placed).max(initial=0) <= 1
    is_large = n >= module._LEAST_LANDMARKS and n_axes > 1
    assert landscape.layout == ("neighbours" if is_large else "axes")


def test_equal_points_are_one_landmark():
    points = np.repeat(islands(3), 20, axis=0)
    landscape = Landscape.learn(points, "abc")
    assert len(landscape.landmarks) == 3
    placed = landscape.place(points)
    assert len(np.unique(placed, axis=0)) == 3


def test_many_points_are_placed_in_little_memory(monkeypatch, landscape, most_bytes):
    monkeypatch.setattr(module, "_BLOCK", 64)
    points = islands(20_000)
    placed, peak = most_bytes(landscape.place, points)
    allowed = placed.nbytes + 2_000_000
    n_landmarks = len(landscape.landmarks)
    all_distances = 4 * len(points) * n_landmarks
    assert peak < allowed < all_distances


# ---------------------------------------------------------------------- on disk


def test_a_saved_landscape_loads_as_it_was(tmp_path, landscape):
    landscape.save(tmp_path)
    loaded = Landscape.read(tmp_path, "abc", 16)
    assert loaded.digest == "abc"
    assert loaded.layout == "neighbours"
    assert_array_equal(loaded.landmarks, landscape.landmarks)
    assert_array_equal(loaded.places, landscape.places)
    (file,) = tmp_path.iterdir()
    assert file.name == LANDSCAPE_FILE


def test_a_service_computes_the_landscape_of_a_space_once(model, collection, monkeypatch):
    (model / LANDSCAPE_FILE).unlink()
    host = ModelHost(model, collection)
    assert host.map().landscape.layout == "axes"
    host.lay_out()
    learned = host.map().landscape
    assert learned.layout == "neighbours"
    monkeypatch.setattr(Landscape, "learn", None)
    # It belongs to the space, so that new documents do not change it.
    host.change("add", "", None, lambda tagger: tagger.add_documents([["sand", "canoe"]]))
    restarted = ModelHost(model)
    restarted.lay_out()
    for service in (host, restarted):
        assert_array_equal(service.map().landscape.places, learned.places)
    n_axes = learned.landmarks.shape[1]
    assert Landscape.read(model, learned.digest, n_axes) is not None


def test_a_landscape_stays_beside_a_model_that_is_saved_again(tmp_path, toy_tagger):
    folder = tmp_path / "model"
    copy(toy_tagger).save(folder)
    landscape = Landscape.quick(toy_tagger.store_.points, "abc")
    landscape.save(folder)
    copy(toy_tagger).save(folder)
    n_axes = landscape.landmarks.shape[1]
    loaded = Landscape.read(folder, "abc", n_axes)
    assert loaded is not None


def test_a_landscape_of_another_space_is_not_loaded(tmp_path, landscape):
    assert Landscape.read(tmp_path, "abc", 16) is None
    landscape.save(tmp_path)
    assert Landscape.read(tmp_path, "other", 16) is None
    assert Landscape.read(tmp_path, "abc", 15) is None


@pytest.fixture(scope="module")
def saved_file(tmp_path_factory, landscape):
    """A saved landscape, and its content."""
    folder = tmp_path_factory.mktemp("landscape")
    landscape.save(folder)
    file = folder / LANDSCAPE_FILE
    return file, file.read_bytes()


@settings(deadline=None)
@example(0)
@example(7)
@example(-1)
@given(st.integers())
def test_a_truncated_file_is_not_loaded(saved_file, length):
    file, content = saved_file
    file.write_bytes(content[: length % len(content)])
    assert Landscape.read(file.parent, "abc", 16) is None


def test_a_folder_in_place_of_the_file_is_not_loaded(tmp_path):
    (tmp_path / LANDSCAPE_FILE).mkdir()
    assert Landscape.read(tmp_path, "abc", 16) is None


@pytest.mark.parametrize(
    "wrong_arrays",
    [
        {"places": np.zeros((240, 2))},
        {"places": np.zeros((239, 2), np.float32)},
        {"places": np.zeros((240, 3), np.float32)},
        {"places": np.full((240, 2), 1.5, np.float32)},
        {"places": np.full((240, 2), np.nan, np.float32)},
        {"landmarks": np.zeros(240, np.float32)},
        {"more": np.zeros(1, np.float32)},
    ],
    ids=range(7),
)
def test_a_file_with_wrong_arrays_is_not_loaded(tmp_path, landscape, wrong_arrays):
    config, arrays = landscape.get_state()
    arrays |= wrong_arrays
    save_file(arrays, tmp_path / LANDSCAPE_FILE, config)
    assert Landscape.read(tmp_path, "abc", 16) is None
    with pytest.raises(InputError, match="learn it anew"):
        Landscape.from_state(config, arrays)


def test_a_file_with_a_wrong_header_is_not_loaded(tmp_path, landscape):
    config, arrays = landscape.get_state()
    for header in (None, {"digest": "abc"}, config | {"layout": "other"}):
        (tmp_path / LANDSCAPE_FILE).write_bytes(save(arrays, header))
        assert Landscape.read(tmp_path, "abc", 16) is None


def test_saving_to_a_missing_folder_does_nothing(tmp_path, landscape):
    landscape.save(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


# ---------------------------------------------------------------------- dots


def test_every_label_of_every_document_is_a_dot_of_its_own(toy_tagger, dots):
    store = toy_tagger.store_
    concepts = store.concepts()
    assert_array_equal(dots.labels, concepts.label_ids)
    assert_array_equal(dots.documents, concepts.document_ids)
    assert (dots.xy.dtype, dots.labels.dtype, dots.documents.dtype) == ("f4", "u4", "u4")
    assert len(dots.xy) == store.matrix.nnz
    assert len(np.unique(dots.xy, axis=0)) == len(dots.xy)


def test_a_dot_lies_near_the_place_of_its_document(toy_tagger, dots):
    store = toy_tagger.store_
    landscape = Landscape.learn(store.points, "abc")
    places = landscape.place(store.points)
    tag_sets = store.sets[dots.documents]
    offsets = dots.xy - places[tag_sets]
    distances = np.linalg.norm(offsets, axis=1)
    assert distances.max() < 2 * module._SPREAD


def test_dots_of_equal_documents_and_of_tag_sets_at_one_place_do_not_touch():
    # The last two sets differ in a label that is newer than the space, so that their point is one.
    documents = [["a", "b", "c"]] * 50 + [["a"]] + [["b"]] * 3
    points = np.repeat(islands(2), [1, 2], axis=0)
    store = store_of(documents, points)
    landscape = Landscape.learn(points, "abc")
    dots = concept_positions(store, landscape)
    distances = np.linalg.norm(dots.xy[:, None] - dots.xy[None], axis=2)
    np.fill_diagonal(distances, 1)
    assert distances.min() > 1e-4
    # A document's own dots are nearer to each other than to other documents'.
    within_first_document = distances[:3, :3]
    same_document = dots.documents[:, None] == dots.documents[None]
    equal_documents = dots.documents < 50
    other_distances = distances + same_document
    to_other_documents = other_distances[np.ix_(equal_documents, equal_documents)]
    assert to_other_documents.min() > 0.9 * within_first_document.min()


def test_coinciding_dots_are_moved_by_a_hair():
    coordinates = [[0, 0], [-0.0, 0], [0, 0], [0.5, 0.5], [0.5, 0.5]]
    xy = np.array(coordinates, dtype=np.float32)
    separated = module._move_apart(xy.copy())
    assert len(np.unique(separated, axis=0)) == 5
    assert_allclose(separated, xy, atol=1e-6)


def test_a_store_without_documents_has_no_dots(toy_tagger):
    full_store = toy_tagger.store_
    store = full_store.remove(full_store.ids)
    landscape = Landscape.learn(store.points, "abc")
    dots = concept_positions(store, landscape)
    assert dots.xy.shape == (0, 2)
    assert len(dots.labels) == len(dots.documents) == 0
    assert anchors(dots, store.labels) == []


# ---------------------------------------------------------------------- captions


def test_every_used_label_has_captions_near_its_dots(toy_tagger, dots):
    store = toy_tagger.store_
    captions = anchors(dots, store.labels)
    used_labels = set(np.array(store.labels)[store.counts > 0])
    assert {caption.label for caption in captions} == used_labels
    for caption in captions:
        label_dots = dots.xy[dots.labels == store.labels.index(caption.label)]
        distances = np.abs(label_dots - (caption.x, caption.y)).max(axis=1)
        n_near = (distances < 3 / module._CELLS * 2).sum()
        assert n_near >= caption.count > 0


def test_a_label_of_two_islands_has_two_captions(toy_tagger, dots):
    store = toy_tagger.store_
    captions = anchors(dots, store.labels)
    counts = [caption.count for caption in captions if caption.label == "apple"]
    assert len(counts) >= 2
    apple = store.labels.index("apple")
    assert sum(counts) > 0.9 * store.counts[apple]


@pytest.fixture
def crowded_dots():
    """4,000 dots at random places, most of them of a few out of 300 labels."""
    rng = np.random.default_rng(0)
    n_dots = 4000
    xy = rng.uniform(-1, 1, (n_dots, 2)).astype(np.float32)
    labels = np.minimum(rng.zipf(1.3, n_dots) - 1, 299).astype(np.uint32)
    documents = np.arange(n_dots, dtype=np.uint32)
    return module.Dots(xy, labels, documents)


LABELS = [f"label {number}" for number in range(300)]


def test_captions_of_many_dots_come_first(crowded_dots):
    captions = anchors(crowded_dots, LABELS)
    for former, latter in pairwise(captions):
        assert former.count >= latter.count
    assert captions[0].level == 0
    assert max(caption.level for caption in captions) < LEVELS
    assert anchors(crowded_dots, LABELS, most=5) == captions[:5]


@pytest.mark.parametrize("level", range(LEVELS - 1))
def test_captions_of_a_zoom_level_do_not_overlap(crowded_dots, level):
    captions = anchors(crowded_dots, LABELS)
    visible = [caption for caption in captions if caption.level <= level]
    assert len(visible) > 1
    for first, second in combinations(visible, 2):
        assert not overlap(first, second, zoom=2.0**level)


def overlap(first: Anchor, second: Anchor, zoom: float) -> bool:
    n_letters = len(first.label + second.label)
    width = module._CAPTION_MARGIN + module._LETTER_WIDTH * n_letters / 2
    distance_x = abs(first.x - second.x)
    distance_y = abs(first.y - second.y)
    overlaps_x = distance_x * zoom < 0.999 * width
    overlaps_y = distance_y * zoom < 0.999 * module._CAPTION_HEIGHT
    return overlaps_x and overlaps_y


# ---------------------------------------------------------------------- labels that occur together


@pytest.fixture
def fruit_store():
    return store_of(
        [["apple", "pie"], ["apple", "pie", "oven"], ["apple", "phone"], ["phone"], ["oven"]]
    )


def test_companions_of_a_label_are_counted(fruit_store):
    pie = Companion("pie", 2, 2 / 3)
    oven = Companion("oven", 1, 1 / 3)
    assert companions(fruit_store, "Apple", k=2) == [pie, oven]
    with pytest.raises(InputError, match="Unknown label 'aple'; close to it: apple"):
        companions(fruit_store, "aple")


def test_shared_labels_are_those_more_frequent_than_usual(fruit_store):
    assert shared_labels(fruit_store, []) == []
    assert shared_labels(fruit_store, [0, 1, 1]) == [
        SharedLabel("pie", 2, 1.0, pytest.approx(2.5)),
        SharedLabel("apple", 2, 1.0, pytest.approx(5 / 3)),
        SharedLabel("oven", 1, 0.5, pytest.approx(1.25)),
    ]


@pytest.mark.parametrize("document", [-1, 5])
def test_shared_labels_of_a_missing_document_are_refused(fruit_store, document):
    message = f"no document {document}; they are numbered to 4"
    with pytest.raises(InputError, match=message):
        shared_labels(fruit_store, [0, document])
