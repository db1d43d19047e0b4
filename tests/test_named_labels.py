"""Labels by name: hints where no document tells, and none where some do."""

from __future__ import annotations

import numpy as np
import pytest

import polyseme
from polyseme import WordVectors, ZeroShotTagger
from polyseme._validation import InputError, PolysemeWarning
from polyseme.datasets import toy
from polyseme.word_vectors import name_likeness

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


def test_likeness_is_the_weights_of_kernel_ridge_regression():
    from sklearn.kernel_ridge import KernelRidge

    rng = np.random.default_rng(0)
    vectors = WordVectors({f"w{i}": rng.normal(size=5) for i in range(8)})
    seen, labels = [f"w{i}" for i in range(6)] + ["none"], ["w6", "w7"]
    found = name_likeness(labels, seen, vectors)
    units, _ = vectors.label_vectors([*seen[:6], *labels])
    kernel = np.exp((units @ units.T - 1) / 0.3)
    values = rng.normal(size=(6, 3))
    model = KernelRidge(alpha=0.3, kernel="precomputed").fit(kernel[:6, :6], values)
    np.testing.assert_allclose(found[:, :6] @ values, model.predict(kernel[6:, :6]), atol=1e-10)
    assert not found[:, 6].any(), "a seen label without a vector counts nothing"


def test_a_name_goes_where_names_like_it_go(own_tagger, world):
    before = own_tagger.predict_proba(world.X_test)
    points = own_tagger.points(world.X_test)
    theme = "beach"
    added = own_tagger.add_labels([theme], words_of_themes())
    assert added == (theme,) and own_tagger.classes_[-1] == theme
    assert own_tagger.kinds_[-1] == "oov"
    after = own_tagger.predict_proba(world.X_test)
    np.testing.assert_array_equal(after[:, :-1], before, err_msg="nothing else moves")
    there = np.array([one == theme for one in world.themes_test])
    assert after[there, -1].mean() > 1.5 * after[~there, -1].mean()
    ranked, _ = own_tagger.rank(world.X_test, k=len(own_tagger.classes_))
    assert all(theme in row for row in ranked)
    np.testing.assert_array_equal(own_tagger.points(world.X_test), points)
    tagged = own_tagger.predict(world.X_test[:2], precision=0.3, tags=[[theme], []])
    assert tagged[0][0] == theme
    own_tagger.remove_labels([theme.upper()])
    assert theme not in own_tagger.classes_
    np.testing.assert_array_equal(own_tagger.predict_proba(world.X_test), before)


def test_named_labels_survive_saving_and_the_vectors_are_not_needed(own_tagger, world, tmp_path):
    own_tagger.add_labels(["beach"], words_of_themes())
    own_tagger.add_labels(["street", "beach", " street  "], words_of_themes())
    own_tagger.save(tmp_path / "again")
    loaded = polyseme.load(tmp_path / "again")
    assert tuple(loaded.classes_[-2:]) == ("beach", "street")
    np.testing.assert_array_equal(
        loaded.predict_proba(world.X_test), own_tagger.predict_proba(world.X_test)
    )


def test_documents_take_the_place_of_a_name(own_tagger, world):
    own_tagger.add_labels(["beach"], words_of_themes())
    ids = own_tagger.add_documents([("sea", "sand", "beach"), ("wave", "beach")])
    assert list(own_tagger.classes_).count("beach") == 1 and own_tagger.named_ is None
    own_tagger.remove_documents(ids)
    assert "beach" not in own_tagger.classes_


def test_items_are_expected_to_have_it_as_often_as_labels_usually_are(own_tagger):
    own_tagger.add_labels(["beach", "street"], words_of_themes())
    fresh = toy.toy_world(random_state=9).X  # of the themes that training items have, one by one
    space = own_tagger.space_
    weights = space.reference_.weights
    found = weights @ own_tagger.predict_proba(fresh)[:, -2:] / weights.sum()
    np.testing.assert_allclose(found, space.typical_frequency, rtol=0.1)


def test_what_cannot_be_named_is_said(own_tagger):
    with pytest.raises(InputError, match="no word vectors for xyzzy"):
        own_tagger.add_labels(["xyzzy"], words_of_themes())
    with pytest.raises(InputError, match="None of the seen labels has a word vector"):
        own_tagger.add_labels(["xyzzy"], {"xyzzy": [1.0, 2.0]})
    with pytest.raises(InputError, match="Not known by name: sea"):
        own_tagger.remove_labels(["sea"])
    assert own_tagger.add_labels(["sea"], words_of_themes()) == (), "it is known already"


def test_a_name_is_explained_by_the_tags_it_goes_with_but_completes_nothing(own_tagger, world):
    own_tagger.add_labels("beach", words_of_themes())
    assert own_tagger.classes_[-1] == "beach", "a single name is one label, not five letters"
    there = world.themes_test.index("beach")
    found = own_tagger.explain(world.X_test[there], " BEACH", k=3)
    assert (found.label, found.kind, found.known) == ("beach", "oov", 0)
    assert sum(part for _, part in found.parts()) == pytest.approx(found.logit)
    assert found.features > 0 and not any(one.holds for one in found.neighbours)
    assert {one.tag for one in found.tags if one.part > 0} <= set(THEMES["beach"])
    with pytest.raises(InputError, match="'beach' came after the concept space was learned"):
        own_tagger.complete(["beach"])
    with_sea, _ = own_tagger.complete(["beach", "sea"], k=3)
    assert set(with_sea) <= set(THEMES["beach"])
    with pytest.raises(InputError, match="must be WordVectors or a mapping"):
        own_tagger.add_labels(["street"], "words.npz")


def test_tags_suggest_names_too(own_tagger):
    own_tagger.add_labels(["beach", "street"], words_of_themes())
    scores = own_tagger.predict_proba(None, [["sea", "sand"], ["bus", "lamp"]])[:, -2:]
    assert scores[0, 0] > scores[0, 1] and scores[1, 1] > scores[1, 0]


def test_a_document_without_a_place_does_not_take_a_name_away(own_tagger):
    own_tagger.add_labels(["beach"], words_of_themes())
    with pytest.warns(PolysemeWarning):
        own_tagger.add_documents([["beach", "never met"]])
    assert own_tagger.named_ is not None and "never met" not in own_tagger.classes_


def test_what_is_refused_leaves_the_tagger_as_it_was(own_tagger, world, monkeypatch):
    before = own_tagger.predict_proba(world.X_test)

    def refuse(*_):
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(type(own_tagger.space_), "readout_of_names", refuse)
        own_tagger.add_labels(["beach"], words_of_themes())
    with pytest.raises(InputError, match="no word vectors for xyzzy"):
        own_tagger.add_labels(["beach", "xyzzy"], words_of_themes())
    assert "beach" not in own_tagger.classes_ and own_tagger.named_ is None
    np.testing.assert_array_equal(own_tagger.predict_proba(world.X_test), before)


def test_all_names_may_go_one_by_one(own_tagger, world):
    before = own_tagger.predict_proba(world.X_test)
    own_tagger.add_labels(["beach", "street", "forest"], words_of_themes())
    own_tagger.remove_labels("street")
    assert tuple(own_tagger.classes_[-2:]) == ("beach", "forest")
    left = own_tagger.predict_proba(world.X_test)[:, -2:]
    own_tagger.remove_labels(["beach", "forest"]).add_labels(["forest"], words_of_themes())
    np.testing.assert_allclose(own_tagger.predict_proba(world.X_test)[:, -1], left[:, 1])
    own_tagger.remove_labels(["forest"])
    assert own_tagger.named_ is None
    np.testing.assert_array_equal(own_tagger.predict_proba(world.X_test), before)


def test_names_need_no_item_that_was_held_out(world, tiny_space):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=8), random_state=0)
    tagger.fit(world.X[:1], world.documents[:1], world.label_sets[:20])
    tagger.add_labels(["beach"], words_of_themes())
    assert np.isfinite(tagger.predict_proba(world.X_test)).all()
