"""Documents and labels that come and go after a tagger was fitted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge

import polyseme
from polyseme import ConceptSpace, LabelCorpus
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents.toy import toy_world
from polyseme.documents.word_vectors import WordVectors, name_likeness
from polyseme.scoring.known_documents import KnownDocuments
from toy_taggers import (
    column_of,
    items_of,
    points_of,
    raise_memory_error,
    tiny_tagger,
)

# ------------------------------------------------------------------ growing and shrinking


def test_documents_come_and_go_without_training(own_tagger, world, new_items):
    before = own_tagger.predict_proba(new_items)
    points = points_of(own_tagger, new_items)
    ids = own_tagger.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    assert own_tagger.classes_[-1] == "jellyfish"
    assert own_tagger.kinds_[-1] == "oov"
    assert np.array_equal(points_of(own_tagger, new_items), points)
    scores = own_tagger.predict_proba(new_items)[:, -1]
    on_beach = items_of(world, "beach")
    assert scores[on_beach].min() > 1.2 * scores[~on_beach].max()
    ranked, _ = own_tagger.rank(new_items[on_beach], k=8)
    assert (ranked == "jellyfish").any(axis=1).all(), "two documents are enough to be suggested"
    own_tagger.remove_documents(ids)
    assert "jellyfish" not in own_tagger.classes_
    assert np.array_equal(own_tagger.predict_proba(new_items), before)


def test_more_documents_of_a_known_label_make_it_likelier_where_they_lie(
    own_tagger, world, new_items
):
    X = new_items[items_of(world, "beach")]
    column = column_of(own_tagger, "towel")
    before = own_tagger.predict_proba(X)[:, column]
    own_tagger.add_documents([("sea", "sun", "towel")] * 50)
    assert (own_tagger.predict_proba(X)[:, column] > before).all()


def test_a_learned_label_without_documents_ranks_last_with_score_zero(own_tagger, new_items):
    store = own_tagger.store_
    holding = [name for row, name in enumerate(store.ids) if "tram" in store.document(row)]
    own_tagger.remove_documents(holding)
    labels, scores = own_tagger.rank(new_items, k=len(own_tagger.classes_))
    assert (labels[:, -1] == "tram").all()
    assert (scores[:, -1] == 0).all()
    probability = own_tagger.explain(new_items[0], "tram").probability
    assert probability == 0
    own_tagger.remove_documents(own_tagger.store_.ids)
    assert not own_tagger.predict_proba(new_items).any(), "nothing known, nothing suggested"
    assert not any(own_tagger.predict(new_items, threshold=1e-9))


def test_documents_that_were_fitted_and_are_removed_count_no_more(own_tagger):
    before = own_tagger.n_fitted_
    ids = own_tagger.store_.ids[:10]
    own_tagger.add_documents([["sea", "parasol"], ["sand", "parasol"], ["sea", "sand"]])
    own_tagger.remove_documents(ids)
    assert own_tagger.n_fitted_ == before - 10 == len(own_tagger.store_.ids) - 3


def test_what_is_refused_or_fails_leaves_the_tagger_as_it_was(
    own_tagger, world, new_items, theme_words, monkeypatch
):
    before = own_tagger.predict_proba(new_items)
    labels = list(own_tagger.classes_)
    corpus_of_known_id = LabelCorpus.from_documents(
        [("sea", "squid")], ids=[own_tagger.store_.ids[0]]
    )
    lone = {"xyzzy": [1.0, 2.0]}
    for method, arguments, message in [
        ("remove_documents", [["nobody"]], "No known document is named 'nobody'"),
        ("add_documents", [corpus_of_known_id], "is known already; remove it first or rename"),
        ("remove_labels", [["zebra"]], "Unknown label 'zebra'"),
        ("add_labels", [["beach", "xyzzy"], theme_words], "no word vectors for xyzzy"),
        ("add_labels", [["xyzzy"], lone], "None of the seen labels has a word vector"),
        ("add_labels", [["street"], "words.npz"], "must be WordVectors or a mapping"),
        ("fit", [world.X[:2], [["x"], ["y"], ["z"]]], "2 rows but there are 3"),
    ]:
        with pytest.raises(InputError, match=message):
            getattr(own_tagger, method)(*arguments)
    monkeypatch.setattr(ConceptSpace, "readout_of_names", raise_memory_error)
    monkeypatch.setattr(KnownDocuments, "of", raise_memory_error)
    with pytest.raises(MemoryError):
        own_tagger.add_labels(["beach"], theme_words)
    own_tagger.set_params(space=tiny_tagger().space)
    with pytest.raises(MemoryError):
        own_tagger.fit(world.X[:20, :3], world.documents[:20])
    assert list(own_tagger.classes_) == labels
    assert own_tagger.named_ is None
    assert_array_equal(own_tagger.predict_proba(new_items), before)


# ------------------------------------------------------------------ labels by name


def test_likeness_is_the_weights_of_kernel_ridge_regression():
    rng = np.random.default_rng(0)
    vectors = WordVectors({f"w{i}": rng.normal(size=5) for i in range(8)})
    seen = [f"w{i}" for i in range(6)] + ["none"]
    labels = ["w6", "w7"]
    likeness = name_likeness(labels, seen, vectors)
    units, _ = vectors.label_vectors([*seen[:6], *labels])
    kernel = np.exp((units @ units.T - 1) / 0.3)
    values = rng.normal(size=(6, 3))
    model = KernelRidge(alpha=0.3, kernel="precomputed").fit(kernel[:6, :6], values)
    expected_predictions = model.predict(kernel[6:, :6])
    assert_allclose(likeness[:, :6] @ values, expected_predictions, atol=1e-10)
    assert not likeness[:, 6].any(), "a seen label without a vector counts nothing"


def test_a_name_goes_where_names_like_it_go(own_tagger, world, new_items, theme_words):
    before = own_tagger.predict_proba(new_items)
    points = points_of(own_tagger, new_items)
    assert own_tagger.add_labels("beach", theme_words) == ("beach",), "one label, not five letters"
    assert own_tagger.classes_[-1] == "beach"
    assert own_tagger.kinds_[-1] == "oov"
    after = own_tagger.predict_proba(new_items)
    on_beach = items_of(world, "beach")
    assert_array_equal(after[:, :-1], before, err_msg="nothing else moves")
    assert after[on_beach, -1].mean() > 1.5 * after[~on_beach, -1].mean()
    assert own_tagger.add_labels(["sea"], theme_words) == (), "it is known already"
    ranked, _ = own_tagger.rank(new_items, k=len(own_tagger.classes_))
    assert (ranked == "beach").any(axis=1).all()
    assert_array_equal(points_of(own_tagger, new_items), points)
    tagged = own_tagger.predict(new_items[:2], precision=0.3, tags=[["beach"], []])
    assert tagged[0][0] == "beach"
    own_tagger.remove_labels(["BEACH"])
    assert "beach" not in own_tagger.classes_
    assert_array_equal(own_tagger.predict_proba(new_items), before)


def test_named_labels_survive_saving_without_vectors_and_go_one_by_one(
    own_tagger, new_items, theme_words, tmp_path
):
    before = own_tagger.predict_proba(new_items)
    own_tagger.add_labels(["beach"], theme_words)
    own_tagger.add_labels(["street", "beach", " street  ", "forest"], theme_words)
    own_tagger.save(tmp_path / "again")
    loaded = polyseme.load(tmp_path / "again")
    classes = tuple(loaded.classes_[-3:])
    assert classes == ("beach", "forest", "street")
    scores = loaded.predict_proba(new_items)
    expected_scores = own_tagger.predict_proba(new_items)
    assert_array_equal(scores, expected_scores)
    loaded.remove_labels("street")
    classes = tuple(loaded.classes_[-2:])
    assert classes == ("beach", "forest")
    loaded.remove_labels(["beach", "forest"]).add_labels(["forest"], theme_words)
    rescored = loaded.predict_proba(new_items)
    expected_scores = scores[:, -2]
    assert_allclose(rescored[:, -1], expected_scores, atol=1e-6)
    loaded.remove_labels(["forest"])
    assert loaded.named_ is None
    assert_array_equal(loaded.predict_proba(new_items), before)


def test_documents_take_the_place_of_a_name_unless_they_have_no_place(own_tagger, theme_words):
    own_tagger.add_labels(["beach"], theme_words)
    with pytest.warns(PolysemeWarning):
        own_tagger.add_documents([["beach", "never met"]])
    assert own_tagger.named_ is not None
    assert "never met" not in own_tagger.classes_
    ids = own_tagger.add_documents([("sea", "sand", "beach"), ("wave", "beach")])
    assert list(own_tagger.classes_).count("beach") == 1
    assert own_tagger.named_ is None
    own_tagger.remove_documents(ids)
    assert "beach" not in own_tagger.classes_


def test_items_are_expected_to_have_a_name_as_often_as_labels_usually_are(own_tagger, theme_words):
    own_tagger.add_labels(["beach", "street"], theme_words)
    new = toy_world(random_state=9).X  # of the themes that training items have, one by one
    weights = own_tagger.space_.held_out_sample_.weights
    probabilities = own_tagger.predict_proba(new)[:, -2:]
    frequencies = weights @ probabilities / weights.sum()
    assert_allclose(frequencies, own_tagger.space_.typical_frequency, rtol=0.1)
    tags = [["sea", "sand"], ["bus", "lamp"]]
    by_beach_tags, by_street_tags = own_tagger.predict_proba(None, tags)[:, -2:]
    assert by_beach_tags[0] > by_beach_tags[1], "tags suggest names"
    assert by_street_tags[1] > by_street_tags[0], "tags suggest names"


def test_a_name_is_explained_by_the_tags_it_goes_with_but_completes_nothing(
    own_tagger, world, new_items, theme_words
):
    own_tagger.add_labels("beach", theme_words)
    evidence = own_tagger.explain(new_items[world.themes_test.index("beach")], " BEACH", k=3)
    assert (evidence.label, evidence.kind, evidence.known) == ("beach", "oov", 0)
    assert evidence.features > 0
    assert not any(neighbour.holds for neighbour in evidence.neighbours)
    expected_tags = set(world.themes["beach"])
    tags = {evidence_tag.tag for evidence_tag in evidence.tags if evidence_tag.part > 0}
    assert tags <= expected_tags
    with pytest.raises(InputError, match="'beach' came after the concept space was learned"):
        own_tagger.complete(["beach"])
    with_sea, _ = own_tagger.complete(["beach", "sea"], k=3)
    expected_with_sea = set(world.themes["beach"])
    assert set(with_sea) <= expected_with_sea


def test_names_need_no_item_that_was_held_out(world, new_items, theme_words):
    tagger = tiny_tagger().fit(
        world.X[:1], world.documents[:1], world.label_sets[:20], label_sets_only=True
    )
    tagger.add_labels(["beach"], theme_words)
    assert np.isfinite(tagger.predict_proba(new_items)).all()
    with pytest.raises(InputError, match="or there is but one"):
        tagger.predict(new_items, precision=0.5)
