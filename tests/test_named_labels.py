"""Labels by name: hints where no document tells, and none where some do."""

from __future__ import annotations

import numpy as np
import pytest

import polyseme
from polyseme import WordVectors, ZeroShotTagger
from polyseme._validation import InputError, PolysemeWarning
from polyseme.datasets import toy
from polyseme.experts.named import NamedLabels, NamedScorer

THEMES = toy.THEMES


def words_of_themes(seed=0, **more):
    """Vectors of the toy world's words: a direction for each theme, and noise."""
    rng = np.random.default_rng(seed)
    found = {}
    for theme, labels in (THEMES | more).items():
        direction = rng.normal(size=12)
        for label in labels:
            found.setdefault(label, np.zeros(12))
            found[label] = found[label] + direction + 0.2 * rng.normal(size=12)
        found[f"new {theme}".split()[1]] = direction
    return found


@pytest.fixture
def own_tagger(toy_tagger, tmp_path):
    """A copy that a test may change."""
    toy_tagger.save(tmp_path / "model")
    return polyseme.load(tmp_path / "model")


def test_weights_are_those_of_kernel_ridge_regression():
    from sklearn.kernel_ridge import KernelRidge

    rng = np.random.default_rng(0)
    vectors = WordVectors({f"w{i}": rng.normal(size=5) for i in range(8)})
    seen, labels = [f"w{i}" for i in range(6)] + ["none"], ["w6", "w7"]
    placed = NamedLabels.place(labels, seen, vectors)
    units, _ = vectors.label_vectors([*seen[:6], *labels])
    kernel = np.exp((units @ units.T - 1) / 0.3)
    values = rng.normal(size=(6, 3))
    model = KernelRidge(alpha=0.3, kernel="precomputed").fit(kernel[:6, :6], values)
    np.testing.assert_allclose(
        placed.weights[:, :6] @ values, model.predict(kernel[6:, :6]), atol=1e-10
    )
    assert not placed.weights[:, 6].any(), "a seen label without a vector counts nothing"


def test_a_name_goes_where_names_like_it_go(own_tagger, world):
    before = own_tagger.score_labels(world.X_test)
    points = own_tagger.points(world.X_test)
    theme = "beach"
    added = own_tagger.add_labels([theme], words_of_themes())
    assert added == (theme,) and own_tagger.labels_[-1] == theme
    assert own_tagger.kinds_[-1] == "oov"
    after = own_tagger.score_labels(world.X_test)
    np.testing.assert_array_equal(after[:, :-1], before, err_msg="nothing else moves")
    there = np.array([one == theme for one in world.themes_test])
    assert after[there, -1].mean() > 1.5 * after[~there, -1].mean()
    ranked, _ = own_tagger.rank(world.X_test, k=len(own_tagger.labels_))
    assert all(theme in row for row in ranked)
    np.testing.assert_array_equal(own_tagger.points(world.X_test), points)
    tagged = own_tagger.predict(world.X_test[:2], precision=0.3, tags=[[theme], []])
    assert tagged[0][0] == theme
    own_tagger.remove_labels([theme.upper()])
    assert theme not in own_tagger.labels_
    np.testing.assert_array_equal(own_tagger.score_labels(world.X_test), before)


def test_named_labels_survive_saving_and_the_vectors_are_not_needed(own_tagger, world, tmp_path):
    own_tagger.add_labels(["beach"], words_of_themes())
    own_tagger.add_labels(["street", "beach", " street  "], words_of_themes())
    own_tagger.save(tmp_path / "again")
    loaded = polyseme.load(tmp_path / "again")
    assert loaded.labels_[-2:] == ("beach", "street")
    np.testing.assert_array_equal(
        loaded.score_labels(world.X_test), own_tagger.score_labels(world.X_test)
    )


def test_documents_take_the_place_of_a_name(own_tagger, world):
    own_tagger.add_labels(["beach"], words_of_themes())
    ids = own_tagger.add_documents([("sea", "sand", "beach"), ("wave", "beach")])
    assert own_tagger.labels_.count("beach") == 1 and own_tagger.named_ is None
    own_tagger.remove_documents(ids)
    assert "beach" not in own_tagger.labels_


def test_instances_are_expected_to_have_it_as_often_as_labels_usually_are(toy_tagger):
    experts = toy_tagger.experts_
    seen = [toy_tagger.expert_labels_[column] for column in experts.seen_]
    placed = NamedLabels.place(["beach"], seen, WordVectors(words_of_themes()))
    scorer = NamedScorer(experts, placed)
    found = 1 / (1 + np.exp(-scorer.logits(experts.reference_)[:, 0]))
    weights = experts.reference_weights_
    assert weights @ found / weights.sum() == pytest.approx(experts.typical_frequency, rel=1e-3)


def test_what_cannot_be_named_is_said(own_tagger, world, tiny_embedding):
    with pytest.raises(InputError, match="no word vectors for xyzzy"):
        own_tagger.add_labels(["xyzzy"], words_of_themes())
    with pytest.raises(InputError, match="None of the seen labels has a word vector"):
        own_tagger.add_labels(["xyzzy"], {"xyzzy": [1.0, 2.0]})
    with pytest.raises(InputError, match="Not known by name: sea"):
        own_tagger.remove_labels(["sea"])
    assert own_tagger.add_labels(["sea"], words_of_themes()) == (), "it is known already"
    other = ZeroShotTagger(embedding=tiny_embedding(), score="nearest", random_state=0)
    other.fit(world.X, world.documents)
    with pytest.raises(InputError, match="Labels by name need the score 'experts'"):
        other.add_labels(["beach"], words_of_themes())


def test_a_name_without_concepts_is_neither_completed_nor_explained(own_tagger, world):
    own_tagger.add_labels("beach", words_of_themes())
    assert own_tagger.labels_[-1] == "beach", "a single name is one label, not five letters"
    with pytest.raises(InputError, match="'beach' is known by name alone"):
        own_tagger.explain(world.X_test[0], "beach")
    with pytest.raises(InputError, match="'beach' is known by name alone"):
        own_tagger.complete(["beach"])
    with pytest.raises(InputError, match="must be WordVectors or a mapping"):
        own_tagger.add_labels(["street"], "words.npz")


def test_a_document_without_a_place_does_not_take_a_name_away(own_tagger):
    own_tagger.add_labels(["beach"], words_of_themes())
    with pytest.warns(PolysemeWarning):
        own_tagger.add_documents([["beach", "never met"]])
    assert own_tagger.named_ is not None and "never met" not in own_tagger.labels_


def test_what_is_refused_leaves_the_tagger_as_it_was(own_tagger, world, monkeypatch):
    before = own_tagger.score_labels(world.X_test)
    monkeypatch.setattr(own_tagger.experts_, "reference_weights_", np.empty(0))
    with pytest.raises(InputError, match="need more training instances"):
        own_tagger.add_labels(["beach"], words_of_themes())
    assert "beach" not in own_tagger.labels_ and own_tagger.named_ is None
    np.testing.assert_array_equal(own_tagger.score_labels(world.X_test), before)
