"""Items that are encoded once have the scores that X has, whatever happens to the tagger."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import copy

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import polyseme
from polyseme import ZeroShotTagger
from polyseme.base.validation import InputError
from polyseme.scoring import encoded
from polyseme.scoring.scorer import LabelScorer


@pytest.fixture(scope="module")
def many(world):
    """More items than are coded at a time."""
    rng = np.random.default_rng(1)
    rows = rng.integers(len(world.X), size=1300)
    X = world.X[rows]
    noise = rng.normal(size=X.shape)
    return X + 0.05 * noise


def assert_close(actual, expected):
    assert_allclose(actual, expected, rtol=0, atol=1e-5)


def assert_same_questions(model, X, items, **options):
    questions = model.ask(items, **options)
    expected_questions = model.ask(X, **options)
    assert len(questions) == len(expected_questions)
    for question, expected in zip(questions, expected_questions, strict=True):
        assert question.probability == pytest.approx(expected.probability, abs=1e-5)
        exact = question._replace(probability=expected.probability)
        assert exact == expected


def assert_same_scores(model, X, items):
    assert_close(model.decision_function(items), model.decision_function(X))
    assert_same_questions(model, X, items, label="pie")


def assert_same_answers(model, X, items):
    """Compare everything that can be asked."""
    assert_close(model.decision_function(items), model.decision_function(X))
    assert_close(model.predict_proba(items), model.predict_proba(X))
    for method in ("space", "priming"):
        labels, scores = model.rank(items, 5, method=method)
        expected_labels, expected_scores = model.rank(X, 5, method=method)
        assert_array_equal(labels, expected_labels)
        assert_close(scores, expected_scores)
    expected_predictions = model.predict(X, 0.3, kinds=("unseen",))
    assert model.predict(items, 0.3, kinds=("unseen",)) == expected_predictions
    assert_close(model.transform(items), model.transform(X))
    item_tags = [["apple"], []] * (len(X) // 2)
    assert_close(model.predict_proba(items, item_tags), model.predict_proba(X, item_tags))
    for label in (None, "pie"):
        for strategy in ("active", "likeliest", "random"):
            assert_same_questions(model, X, items, label=label, strategy=strategy, k=12)
    row_tags = [["pie", "owl"] if row % 3 else ["sea"] for row in range(len(X))]
    for label in (None, "pie"):
        for strategy in ("active", "errors"):
            assert_same_questions(model, X, items, label=label, strategy=strategy, tags=row_tags)


def test_they_answer_as_the_items_do(toy_tagger, many):
    assert_same_answers(toy_tagger, many, toy_tagger.encode(many))


def test_they_answer_as_the_items_do_whatever_happens_to_the_tagger(own_tagger, many):
    items = own_tagger.encode(many)
    assert_same_scores(own_tagger, many, items)
    numbers = own_tagger.learn([(1, "pie", True), (2, "pie", False), (7, "sea", True)], items)
    assert_same_scores(own_tagger, many, items)
    own_tagger.undo(numbers[:1])
    own_tagger.learn([(4, "something new", True)], items)
    assert_same_scores(own_tagger, many, items)
    own_tagger.add_documents([["pie", "cherry"], ["oven", "cherry"]])
    assert_same_scores(own_tagger, many, items)
    own_tagger.block(["knife"]).rename("pie", "tart").merge("towel", "sand")
    assert_same_questions(own_tagger, many, items, label="tart")
    own_tagger.rename("tart", "pie").remove_labels(["cherry"])
    assert_same_answers(own_tagger, many, items)


def test_labels_that_raise_others_do_so_where_one_label_is_asked_about(world, tiny_space, many):
    words = polyseme.tagger.Vocabulary(implies={"pie": ("plate",), "sink": ("plate",)})
    model = ZeroShotTagger(tiny_space(n_steps=20), vocabulary=words, n_validations=0)
    model.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    items = model.encode(many)
    model.learn([(1, "sink", True), (2, "plate", False)], items)
    options = {"label": "plate", "strategy": "likeliest", "k": 5}
    column = model.classes_.tolist().index("plate")
    best = np.sort(model.predict_proba(many)[:, column])[::-1]
    assert_same_questions(model, many, items, **options)
    # But for what was answered, which is not asked again.
    probabilities = [question.probability for question in model.ask(items, **options)]
    gaps = np.abs(np.subtract.outer(probabilities, best[:6]))
    assert gaps.min(axis=1).max() < 1e-5
    assert_same_answers(model, many, items)


@pytest.mark.parametrize("table_bytes", ["nothing", "logits", "all", "all but one byte"])
def test_what_does_not_fit_into_memory_is_made_anew(own_tagger, many, table_bytes):
    n = len(many)
    space = own_tagger.space_
    logits = n * (4 * many.shape[1] + 8 * len(own_tagger.classes_))
    whole = logits + n * 4 * space.n_dimensions
    n_bytes = {"nothing": logits - 1, "logits": logits, "all": whole}.get(table_bytes, whole - 1)
    items = own_tagger.encode(many, most_bytes=n_bytes)
    assert (items.codes is None) == (table_bytes != "all")
    assert (items.projections is None) == (table_bytes == "nothing")
    own_tagger.learn([(1, "pie", True)], items)
    assert_same_scores(own_tagger, many, items)
    own_tagger.add_documents([[f"new {number}", "pie"] for number in range(200)])
    assert_same_scores(own_tagger, many, items)


def test_a_table_that_grows_beyond_what_it_may_take_is_not_kept():
    items = encoded.EncodedItems(np.zeros((10, 2)), None, "", 8 * 10 * 3)
    tables = []

    def read(whole):
        tables.append(whole)
        return np.zeros((10, 3))

    assert items.logits([np.ones(1)], 3, read) is items.logits([np.ones(1)], 3, read)
    assert items.logits([np.ones(1)], 4, read) is None
    assert items.logits([np.zeros(1)], 3, read) is not None
    assert tables == [items, items]


def test_what_is_cached_cannot_be_changed(own_tagger, many):
    items = own_tagger.encode(many)
    scorer = own_tagger._scorer
    cached_logits = scorer._cached_logits(items)
    scores = own_tagger.decision_function(items)
    for array in (
        items.codes,
        items.projections,
        cached_logits,
        scorer.preference,
        own_tagger.store_.counts,
    ):
        assert not array.flags.writeable
    assert scores.flags.writeable


def test_logits_are_read_once_and_not_for_every_answer(monkeypatch, own_tagger, many):
    items = own_tagger.encode(many)
    own_tagger.ask(items, "pie")
    read = []
    plain = LabelScorer.plain_logits

    def counting(self, codes, features):
        read.append(len(codes))
        return plain(self, codes, features)

    monkeypatch.setattr(LabelScorer, "plain_logits", counting)
    monkeypatch.setattr(own_tagger.space_, "encode_items", lambda *_: pytest.fail("coded again"))
    own_tagger.ask(items, "pie")
    own_tagger.block(["knife"]).rename("knife", "blade")
    own_tagger.rank(items[3])
    # Whatever the same documents give is the same.
    own_tagger._update()
    own_tagger.decision_function(items)
    assert max(read, default=0) < len(many)


def test_some_of_them_answer_as_they_do_among_all(own_tagger, many):
    items = own_tagger.encode(many)
    own_tagger.learn([(1, "pie", True)], items)
    whole = own_tagger.decision_function(items)
    mask = np.arange(len(many)) % 100 == 7
    for rows in (5, -1, slice(10, 14), slice(0, 1300, 300), [3, 1], mask):
        selected_items = items[rows]
        chosen = np.atleast_1d(np.arange(len(many))[rows])
        assert len(selected_items) == selected_items.shape[0] == len(chosen)
        assert_allclose(
            own_tagger.decision_function(selected_items), whole[chosen], rtol=0, atol=1e-12
        )
        assert_array_equal(selected_items.float64_features(), many[chosen])
    pair = items[100:200][[5, 1]]
    assert_allclose(own_tagger.decision_function(pair), whole[[105, 101]], rtol=0, atol=1e-12)
    shape = own_tagger.rank(items[:0])[0].shape
    assert shape == (0, 10)


def test_evidence_of_one_of_them_is_that_of_its_features(own_tagger, many):
    items = own_tagger.encode(many)
    expected = own_tagger.explain(many[5], "pie")
    assert own_tagger.explain(items[5], "pie") == expected
    expected = own_tagger.explain(many[5], "pie", tags=["sink"])
    assert own_tagger.explain(items[5], "pie", tags=["sink"]) == expected
    with pytest.raises(InputError, match="takes one item; got 2"):
        own_tagger.explain(items[:2], "pie")


def test_verdicts_learned_from_them_are_those_of_the_items(toy_tagger, many, tmp_path):
    names = [f"item {row}" for row in range(len(many))]
    frame = pd.DataFrame({"id": names, "vector": list(many)})
    verdicts = [("item 3", "pie", True), ("item 900", "sea", False)]
    scores = []
    for place, X in enumerate((frame, frame)):
        copy(toy_tagger).save(tmp_path / str(place))
        model = polyseme.load(tmp_path / str(place))
        items = model.encode(X) if place else model.encode(many, names)
        model.learn(verdicts, items if place else X)
        expected_items = [query.item for query in model.ask(X, "pie", k=3)]
        assert [query.item for query in model.ask(items, "pie", k=3)] == expected_items
        with pytest.raises(InputError, match="X has no item 'item x'; verdicts name items by thei"):
            model.learn([("item x", "pie", True)], items)
        scores.append(model.decision_function(X))
    assert_close(*scores)


def test_rows_that_are_other_items_are_refused_as_those_of_x_are(own_tagger, many):
    own_tagger.learn([(3, "pie", True)], own_tagger.encode(many))
    with pytest.raises(InputError, match="Row 3 is not the item '3'"):
        own_tagger.learn([(3, "sea", True)], own_tagger.encode(many[::-1]))


@pytest.mark.parametrize("form", ["single", "sparse", "frame"])
def test_every_form_of_x_can_be_encoded(toy_tagger, many, form):
    X = {
        "single": many.astype(np.float32),
        "sparse": sp.csr_matrix(many),
        "frame": pd.DataFrame(many),
    }[form]
    items = toy_tagger.encode(X)
    assert_close(toy_tagger.decision_function(items), toy_tagger.decision_function(X))
    # What is encoded may be encoded again.
    assert_close(toy_tagger.encode(items).codes, items.codes)
    expected_dtype = np.float32 if form == "single" else np.float64
    assert items.features.dtype == (expected_dtype)


def test_pictures_are_looked_at_once(monkeypatch, tiny_space):
    from polyseme import ImageFeatures

    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (12, 32, 32, 3), dtype=np.uint8)
    words = [["red", "warm"], ["blue", "cold"], ["blue", "sea"]] * 4
    extractor = ImageFeatures(size=32, depth="pooled")
    model = ZeroShotTagger(tiny_space(n_steps=4), extractor, n_validations=0, random_state=0)
    model.fit(pictures, words)
    expected = model.decision_function(pictures)
    items = model.encode(pictures)
    evidence = model.explain(pictures[2], "sea")
    monkeypatch.setattr(ImageFeatures, "extract_batch", lambda *_: pytest.fail("looked again"))
    assert_close(model.decision_function(items), expected)
    assert model.explain(items[2], "sea").logit == pytest.approx(evidence.logit)
    model.learn([(2, "sea", True)], items)


def test_threads_wait_for_the_one_that_reads(own_tagger, many):
    items = own_tagger.encode(many)
    own_tagger.learn([(1, "pie", True)], items)
    expected = own_tagger.ask(items, "pie")
    items = own_tagger.encode(many)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: own_tagger.ask(items, "pie"), range(24)))
    assert all(questions == expected for questions in answers)


def test_items_of_another_space_and_what_cannot_be_learned_from_are_refused(
    toy_tagger, world, tiny_space, many
):
    items = toy_tagger.encode(many)
    other_tagger = ZeroShotTagger(tiny_space(n_steps=4), n_validations=0, random_state=1)
    with pytest.raises(InputError, match="can be asked about, but not learned from"):
        other_tagger.fit(items, [["pie", "oven"]] * len(items))
    other_tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    with pytest.raises(InputError, match="coded in another space; `encode` them again"):
        other_tagger.rank(items)
    with pytest.raises(InputError, match="names 1 items; X has 1300"):
        toy_tagger.encode(many, ["a"])
    with pytest.raises(InputError, match="`most_bytes` of `encode` must be a whole number"):
        toy_tagger.encode(many, most_bytes=-1)
    toy_tagger.encode(many, most_bytes=2**40)
    without = ZeroShotTagger(tiny_space(n_steps=4), random_state=1).fit(None, world.documents)
    with pytest.raises(InputError, match="fitted without features"):
        without.encode(many)
