"""The map of known documents: neighbours stay neighbours, nothing moves, nothing is hidden."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import save, save_file
from sklearn.manifold import trustworthiness
from threadpoolctl import threadpool_limits

from polyseme._validation import InputError
from polyseme.serve import landscape as module
from polyseme.serve.host import ModelHost
from polyseme.serve.landscape import (
    FILE,
    LEVELS,
    Anchor,
    Companion,
    Landscape,
    Shared,
    anchors,
    companions,
    concept_positions,
    shared_labels,
)
from polyseme.store import KnownDocuments


def islands(n, *, n_islands=12, n_axes=16, noise=0.6, seed=0):
    """Points of length 1 around some centres."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n_islands, n_axes))[np.arange(n) % n_islands]
    points = points + noise * rng.normal(size=(n, n_axes))
    return (points / np.linalg.norm(points, axis=1)[:, None]).astype(np.float32)


def store_of(documents, points=None):
    """A store of documents with points of their tag sets, by default islands."""
    labels = tuple(sorted({label for document in documents for label in document}))
    rows = [tuple(sorted(labels.index(label) for label in document)) for document in documents]
    sets = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    matrix = sp.lil_matrix((len(rows), len(labels)), dtype=bool)
    for place, row in enumerate(rows):
        matrix[place, list(row)] = True
    points = islands(len(sets)) if points is None else points
    ids = tuple(map(str, range(len(rows))))
    numbers = np.array([sets[row] for row in rows])
    return KnownDocuments(labels, len(labels), ids, sp.csr_matrix(matrix), numbers, points)


@pytest.fixture(scope="module")
def points():
    return islands(240)


@pytest.fixture(scope="module")
def landscape(points):
    return Landscape.learn(points, "abc")


def test_the_same_points_get_the_same_places_in_any_thread(points, landscape):
    with ThreadPoolExecutor(1) as pool, threadpool_limits(limits=2):
        again = pool.submit(Landscape.learn, points, "abc").result()
    np.testing.assert_array_equal(again.places, landscape.places)
    np.testing.assert_array_equal(again.place(points), landscape.place(points))


def test_neighbours_stay_nearer_than_on_principal_axes(points, landscape):
    assert landscape.layout == "neighbours"
    by_axes = trustworthiness(points, Landscape.quick(points, "abc").place(points))
    assert trustworthiness(points, landscape.place(points)) > max(by_axes + 0.05, 0.9)


def test_neighbours_stay_near_in_the_toy_world(toy_tagger):
    known = toy_tagger.store_.points
    learned, by_axes = (
        trustworthiness(known, make(known, "abc").place(known))
        for make in (Landscape.learn, Landscape.quick)
    )
    assert learned > by_axes


def test_points_beyond_the_landmarks_lie_near_their_like(monkeypatch, points):
    monkeypatch.setattr(module, "LANDMARKS", 120)
    landscape = Landscape.learn(points, "abc")
    assert len(landscape.landmarks) == 120
    assert trustworthiness(points, landscape.place(points)) > 0.85


def test_a_landmark_lies_where_its_own_point_is_placed(landscape):
    placed = landscape.place(landscape.landmarks)
    np.testing.assert_allclose(placed, landscape.places, atol=1e-3)


def test_a_point_between_landmarks_is_a_mean_of_the_nearest_by_a_plain_loop(landscape):
    others = islands(20, seed=5)
    expected = []
    for point in others:
        away = 1 - landscape.landmarks @ point
        nearest = np.argsort(away, kind="stable")[: module._NEAREST]
        expected.append(
            np.average(landscape.places[nearest], axis=0, weights=away[nearest] ** -2.0)
        )
    np.testing.assert_allclose(landscape.place(others), expected, atol=1e-3)


def test_what_is_added_moves_nothing(points, landscape):
    more = np.concatenate([points, islands(30, seed=9)])
    np.testing.assert_array_equal(landscape.place(more)[: len(points)], landscape.place(points))


@pytest.mark.parametrize("n", [0, 1, 2, 3, module._FEW - 1, module._FEW, 45])
@pytest.mark.parametrize("n_axes", [1, 2, 16])
def test_any_number_of_points_lies_within_the_edges(n, n_axes):
    landscape = Landscape.learn(islands(n, n_axes=n_axes), "abc")
    placed = landscape.place(islands(n, n_axes=n_axes))
    assert placed.shape == (n, 2) and placed.dtype == np.float32
    assert np.isfinite(placed).all() and np.abs(placed).max(initial=0) <= 1
    assert landscape.layout == ("neighbours" if n >= module._FEW and n_axes > 1 else "axes")


def test_equal_points_are_one_landmark():
    points = np.repeat(islands(3), 20, axis=0)
    landscape = Landscape.learn(points, "abc")
    assert len(landscape.landmarks) == 3
    assert len(np.unique(landscape.place(points), axis=0)) == 3


def test_many_points_are_placed_in_little_memory(monkeypatch, landscape, most_bytes):
    monkeypatch.setattr(module, "_BLOCK", 64)
    many = islands(20_000)
    placed, held = most_bytes(landscape.place, many)
    assert held < placed.nbytes + 2_000_000 < many.shape[0] * len(landscape.landmarks) * 4


# ---------------------------------------------------------------------- on disk


def test_a_saved_landscape_comes_back(tmp_path, landscape):
    landscape.save(tmp_path)
    again = Landscape.read(tmp_path, "abc", 16)
    assert (again.digest, again.layout) == ("abc", "neighbours")
    np.testing.assert_array_equal(again.landmarks, landscape.landmarks)
    np.testing.assert_array_equal(again.places, landscape.places)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_what_is_kept_is_not_learned_again(host, model, monkeypatch):
    assert host.map().landscape.layout == "axes"
    host.lay_out()
    made = host.map().landscape
    assert made.layout == "neighbours"
    monkeypatch.setattr(Landscape, "learn", None)
    # It is that of the space, whatever documents there are by now.
    host.change("add", "", None, lambda tagger: tagger.add_documents([["sand", "canoe"]]))
    again = ModelHost(model)
    again.lay_out()
    for landscape in (host.map().landscape, again.map().landscape):
        np.testing.assert_array_equal(landscape.places, made.places)
    # Of another space it is nothing.
    n_axes = made.landmarks.shape[1]
    assert Landscape.read(model, made.digest, n_axes) is not None
    assert Landscape.read(model, "other", n_axes) is None


def test_a_landscape_lies_beside_a_model_that_is_saved_again(tmp_path, toy_tagger):
    copy(toy_tagger).save(tmp_path / "model")
    made = Landscape.quick(toy_tagger.store_.points, "abc")
    made.save(tmp_path / "model")
    copy(toy_tagger).save(tmp_path / "model")
    assert Landscape.read(tmp_path / "model", "abc", made.landmarks.shape[1]) is not None


def test_a_landscape_of_another_space_is_not_taken(tmp_path, landscape):
    assert Landscape.read(tmp_path, "abc", 16) is None
    landscape.save(tmp_path)
    assert Landscape.read(tmp_path, "other", 16) is None
    assert Landscape.read(tmp_path, "abc", 15) is None


def test_a_damaged_file_is_none(tmp_path, landscape):
    landscape.save(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    for cut in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / FILE).write_bytes(whole[:cut])
        assert Landscape.read(tmp_path, "abc", 16) is None
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    assert Landscape.read(tmp_path, "abc", 16) is None


WRONG = [
    {"places": np.zeros((240, 2))},
    {"places": np.zeros((239, 2), np.float32)},
    {"places": np.zeros((240, 3), np.float32)},
    {"places": np.full((240, 2), 1.5, np.float32)},
    {"places": np.full((240, 2), np.nan, np.float32)},
    {"landmarks": np.zeros(240, np.float32)},
    {"more": np.zeros(1, np.float32)},
]


@pytest.mark.parametrize("changed", WRONG)
def test_a_file_with_other_arrays_is_none(tmp_path, landscape, changed):
    config, arrays = landscape.get_state()
    save_file(arrays | changed, tmp_path / FILE, config)
    assert Landscape.read(tmp_path, "abc", 16) is None
    with pytest.raises(InputError, match="learn it anew"):
        Landscape.from_state(config, arrays | changed)


def test_a_file_without_its_values_is_none(tmp_path, landscape):
    config, arrays = landscape.get_state()
    for values in (None, {"digest": "abc"}, config | {"layout": "other"}):
        (tmp_path / FILE).write_bytes(save(arrays, values))
        assert Landscape.read(tmp_path, "abc", 16) is None


def test_a_folder_that_is_not_there_is_no_error(tmp_path, landscape):
    landscape.save(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


# ---------------------------------------------------------------------- dots


def test_every_concept_is_a_dot_and_no_two_coincide(toy_tagger):
    store = toy_tagger.store_
    landscape = Landscape.learn(store.points, "abc")
    dots = concept_positions(store, landscape)
    concepts = store.concepts()
    np.testing.assert_array_equal(dots.labels, concepts.label_ids)
    np.testing.assert_array_equal(dots.documents, concepts.document_ids)
    assert (dots.xy.dtype, dots.labels.dtype, dots.documents.dtype) == ("f4", "u4", "u4")
    assert len(np.unique(dots.xy, axis=0)) == len(dots.xy) == store.matrix.nnz
    # Around where their documents lie.
    away = dots.xy - landscape.place(store.points)[store.sets[dots.documents]]
    assert np.linalg.norm(away, axis=1).max() < 2 * module._SPREAD


def test_dots_of_equal_documents_and_of_sets_in_one_place_are_apart():
    # The last two sets differ in a label that is newer than the space, so that their point is one.
    documents = [["a", "b", "c"]] * 50 + [["a"]] + [["b"]] * 3
    store = store_of(documents, np.repeat(islands(2), [1, 2], axis=0))
    dots = concept_positions(store, Landscape.learn(store.points, "abc"))
    gaps = np.linalg.norm(dots.xy[:, None] - dots.xy[None], axis=2) + np.eye(len(dots.xy))
    assert gaps.min() > 1e-4
    # A document's own dots are nearer to each other than to other documents'.
    same = dots.documents[:, None] == dots.documents[None]
    first = dots.documents < 50
    assert (gaps + same)[first][:, first].min() > 0.9 * np.where(same, gaps, 0)[:3, :3].min()


def test_coinciding_dots_are_moved_by_a_hair():
    xy = np.array([[0, 0], [-0.0, 0], [0, 0], [0.5, 0.5], [0.5, 0.5]], dtype=np.float32)
    apart = module._apart(xy.copy())
    assert len(np.unique(apart, axis=0)) == 5
    np.testing.assert_allclose(apart, xy, atol=1e-6)


def test_a_store_without_documents_has_no_dots(toy_tagger):
    store = toy_tagger.store_.remove(toy_tagger.store_.ids)
    dots = concept_positions(store, Landscape.learn(store.points, "abc"))
    assert dots.xy.shape == (0, 2) and len(dots.labels) == len(dots.documents) == 0
    assert anchors(dots, store.labels) == []


# ---------------------------------------------------------------------- captions


def test_a_label_of_two_islands_has_two_captions(toy_tagger):
    store = toy_tagger.store_
    dots = concept_positions(store, Landscape.learn(store.points, "abc"))
    found = anchors(dots, store.labels)
    assert {one.label for one in found} == {
        label for label, count in zip(store.labels, store.counts, strict=True) if count
    }
    apple = [one for one in found if one.label == "apple"]
    assert len(apple) >= 2
    assert sum(one.count for one in apple) > 0.9 * store.counts[store.labels.index("apple")]
    for one in found:
        own = dots.xy[dots.labels == store.labels.index(one.label)]
        around = np.abs(own - (one.x, one.y)).max(axis=1) < 3 / module._CELLS * 2
        assert around.sum() >= one.count > 0


def test_captions_of_many_dots_come_first_and_do_not_lie_over_each_other():
    rng = np.random.default_rng(0)
    n = 4000
    labels = [f"label {number}" for number in range(300)]
    dots = module.Dots(
        rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        np.minimum(rng.zipf(1.3, n) - 1, 299).astype(np.uint32),
        np.arange(n, dtype=np.uint32),
    )
    found = anchors(dots, labels)
    assert all(first.count >= second.count for first, second in pairwise(found))
    assert found[0].level == 0 and max(one.level for one in found) < LEVELS
    for level in range(LEVELS - 1):
        shown = [one for one in found if one.level <= level]
        assert len(shown) > 1
        for place, one in enumerate(shown):
            for other in shown[:place]:
                assert not over_each_other(one, other, 2.0**level)
    assert anchors(dots, labels, most=5) == found[:5]


def over_each_other(one: Anchor, other: Anchor, zoom: float) -> bool:
    width = module._MARGIN + module._LETTER * (len(one.label) + len(other.label)) / 2
    high = abs(one.y - other.y) * zoom < module._HEIGHT * 0.999
    return high and abs(one.x - other.x) * zoom < width * 0.999


# ---------------------------------------------------------------------- what stands together

DOCUMENTS = [["apple", "pie"], ["apple", "pie", "oven"], ["apple", "phone"], ["phone"], ["oven"]]


def test_companions_are_counted():
    found = companions(store_of(DOCUMENTS), "Apple", k=2)
    assert found == [Companion("pie", 2, 2 / 3), Companion("oven", 1, 1 / 3)]
    with pytest.raises(InputError, match="Unknown label 'aple'; close to it: apple"):
        companions(store_of(DOCUMENTS), "aple")


def test_shared_labels_are_those_above_the_usual():
    found = shared_labels(store_of(DOCUMENTS), [0, 1, 1])
    assert found == [
        Shared("pie", 2, 1.0, pytest.approx(2.5)),
        Shared("apple", 2, 1.0, pytest.approx(5 / 3)),
        Shared("oven", 1, 0.5, pytest.approx(1.25)),
    ]
    assert shared_labels(store_of(DOCUMENTS), []) == []
    for wrong in (-1, 5):
        with pytest.raises(InputError, match=f"no document {wrong}; they are numbered to 4"):
            shared_labels(store_of(DOCUMENTS), [0, wrong])
