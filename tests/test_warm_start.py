"""A fit that starts from a former one: folds stay, labels keep their weights, misfits are told."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import polyseme
from polyseme import ImageFeatures, ZeroShotTagger
from polyseme._folds import filled_folds
from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.corpus import LabelCorpus
from polyseme.members import Members, Shape, StartMembers
from polyseme.training import SpacePlan
from polyseme.verdicts import Verdict
from polyseme.warm_start import (
    ColdStartError,
    DocumentKeys,
    feature_digests,
    placed_groups,
)

NEW = "zeppelin"


@pytest.fixture(scope="session")
def base(tiny_space) -> Any:
    """Fit a tagger to some items."""

    def fit(X: Any, documents: Any, **options: Any) -> ZeroShotTagger:
        tagger = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=0)
        return tagger.fit(X, documents, **options)

    return fit


@pytest.fixture(scope="session")
def former(base, world) -> ZeroShotTagger:
    """A tagger that knows all but the last items; tests must not change it."""
    return base(world.X[:-20], LabelCorpus.from_documents(world.documents[:-20]))


def item_folds(tagger: ZeroShotTagger, X: Any) -> np.ndarray:
    """Return the fold of each item in the tagger's last fit, found by its features."""
    place = {
        digest: row for row, digest in enumerate(tagger.document_keys_.items.tolist()) if digest
    }
    rows = [place[digest] for digest in feature_digests(X).tolist()]
    return tagger.space_.folds_[rows]


def warned(fit: Any, *given: Any, **options: Any) -> tuple[ZeroShotTagger, list[str]]:
    """Fit, and return what was warned of as well."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit(*given, **options)
    return fitted, [str(one.message) for one in caught if one.category is PolysemeWarning]


# ---------------------------------------------------------------------- folds


def test_every_item_stays_in_its_fold_wherever_it_comes(base, former, world):
    order = np.random.default_rng(1).permutation(len(world.X))
    documents = [world.documents[row] for row in order]
    again = base(world.X[order], documents, warm_start_from=former)
    assert again.space_.plan_.n_steps < former.space_.plan_.n_steps
    known = world.X[:-20]
    np.testing.assert_array_equal(item_folds(again, known), item_folds(former, known))


def test_a_new_tag_and_another_form_move_no_item_to_another_fold(base, former, world):
    documents = [(*tags, NEW) if row < 20 else tags for row, tags in enumerate(world.documents)]
    again = base(sp.csr_matrix(world.X), documents, warm_start_from=former)
    known = world.X[:-20]
    np.testing.assert_array_equal(item_folds(again, known), item_folds(former, known))


def test_items_whose_features_changed_are_found_by_their_names(tiny_space, world):
    names = [f"photo {row}" for row in range(len(world.X))]
    corpus = LabelCorpus.from_documents(world.documents, ids=names)
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=0)
    first = tagger.fit(world.X, corpus).space_.folds_
    order = np.random.default_rng(2).permutation(len(names))
    moved = world.X[order] + 0.01
    new = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=1)
    new.fit(moved, corpus.select(order), warm_start_from=tagger)
    np.testing.assert_array_equal(new.space_.folds_, first[order])


def test_items_of_the_pool_stay_in_their_folds_when_they_get_tags(tiny_space, world):
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=0)
    tagger.fit(world.X[:-20], world.documents[:-20], unlabelled=world.X[-20:])
    assert tagger.pooled_
    new = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=0)
    new.fit(world.X, world.documents, warm_start_from=tagger)
    np.testing.assert_array_equal(item_folds(new, world.X), item_folds(tagger, world.X))


def test_new_documents_go_to_the_smallest_folds_and_groups_stay_whole():
    folds = np.array([0, 0, 0, 1, 1, -1, -1, -1, -1])
    groups = np.array([0, 0, 1, 2, 3, 3, 4, 4, 5])
    placed = placed_groups(folds, groups)
    assert placed.tolist() == [0, 0, 0, 1, 1, 1, -1, -1, -1]
    filled = filled_folds(placed, 3, np.random.default_rng(0), groups)
    assert filled[:6].tolist() == placed[:6].tolist() and filled[6] == filled[7]
    assert (filled[6:] == 2).any() and np.bincount(filled).max() <= 4
    with pytest.raises(ColdStartError, match="one group now were in several folds"):
        placed_groups(folds, np.array([0, 0, 0, 0, 1, 2, 3, 4, 5]))


def test_what_is_ambiguous_is_new():
    none = np.zeros(4, dtype=np.uint64)
    items = np.array([7, 7, 8, 9], dtype=np.uint64)
    keys = DocumentKeys(none, items, items)
    found = keys.folds_among(keys, np.array([0, 1, 2, 2]))
    assert found.tolist() == [-1, -1, 2, 2]


def test_pictures_without_names_stay_in_their_folds_and_the_extractor_as_it_was(tiny_space):
    rng = np.random.default_rng(0)
    red, blue = np.array([220, 20, 30]), np.array([20, 30, 220])
    drawn = [(red, blue)[row % 2] + rng.normal(0, 9, (32, 32, 3)) for row in range(24)]
    pictures = np.clip(np.stack(drawn), 0, 255).astype(np.uint8)
    words = [["fire", "warm"], ["sea", "cold"]] * 12
    extractor = ImageFeatures(size=32, depth="pooled", n_jobs=1)
    taggers = [
        ZeroShotTagger(tiny_space(n_steps=60), extractor, n_validations=0, random_state=seed)
        for seed in (0, 1)
    ]
    first = taggers[0].fit(pictures, words)
    again, told = warned(taggers[1].fit, pictures[::-1], words[::-1], warm_start_from=first)
    assert not told and again.features_ is first.features_
    np.testing.assert_array_equal(again.space_.folds_, first.space_.folds_[::-1])


# ---------------------------------------------------------------------- members


def test_labels_keep_their_weights_in_another_order():
    shape = Shape(n_labels=3, n_outputs=4, n_features=2, hidden=3, code=2)
    larger = shape._replace(n_labels=4, n_outputs=5)
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(2, n)).astype(np.float32) for n in shape.n_weights]
    old = Members(shape, *groups)
    torch = pytest.importorskip("torch")
    new = Members(larger, *(torch.zeros(1, n) for n in larger.n_weights))
    places = np.array([2, -1, 0, 1])
    weights, biases = np.full((2, 2, 1), 5, np.float32), np.full((2, 1), 7, np.float32)
    start = StartMembers(old, places, True, weights, biases)
    start.put_into(new, np.array([1]))
    known, outputs = [0, 2, 3], [0, 2, 3, 4]
    first, former = new.document_layers[0][0][0].numpy(), old.document_layers[0][0][1]
    np.testing.assert_array_equal(first[known], former[[2, 0, 1]])
    np.testing.assert_array_equal(new.labels[0].numpy()[:, outputs], old.labels[1][:, [2, 0, 1, 3]])
    np.testing.assert_array_equal(new.bias[0, 0].numpy()[outputs], old.bias[1, 0, [2, 0, 1, 3]])
    assert new.labels[0, :, 1].tolist() == [5, 5] and new.bias[0, 0, 1] == 7
    assert not first[1].any()
    np.testing.assert_array_equal(new.items.numpy(), old.items[1:])


def test_without_steps_that_change_anything_members_are_the_former_ones(base, former, world):
    plan = SpacePlan(**{**vars(former.space_.plan_), "learning_rates": (0.0, 0.0, 0.0)})
    new = ZeroShotTagger(
        space=polyseme.ConceptSpace(plan=plan), n_validations=0, random_state=3
    ).fit(world.X[:-20], world.documents[:-20], warm_start_from=former)
    for mine, theirs in zip(new.space_.members_.groups, former.space_.members_.groups, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)
    probabilities = new.predict_proba(world.X_test)
    np.testing.assert_allclose(probabilities, former.predict_proba(world.X_test), atol=0.05)


# ---------------------------------------------------------------------- what comes out


def test_a_warm_fit_is_as_good_as_a_new_one_and_ranks_a_new_label(base, former, world):
    at_beach = world.X[:, list(world.themes).index("beach")] > 0.5
    documents = [
        (*tags, NEW) if beach else tags
        for tags, beach in zip(world.documents, at_beach, strict=True)
    ]
    warm = base(world.X, documents, warm_start_from=former)
    place = warm.classes_.tolist().index(NEW)
    assert warm.kinds_[place] == "seen"
    scores = warm.predict_proba(world.X_test)[:, place]
    on_beach = np.array([theme == "beach" for theme in world.themes_test])
    assert scores[on_beach].mean() > 3 * scores[~on_beach].mean()
    cold = base(world.X, documents)
    gap = warm.predict_proba(world.X_test) - cold.predict_proba(world.X_test)
    assert np.abs(gap).mean() < 0.05


def test_answers_are_learned_from_and_kept(tiny_space, world, tmp_path):
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=0)
    names = [f"photo {row}" for row in range(len(world.X))]
    corpus = LabelCorpus.from_documents(world.documents, ids=names)
    tagger.fit(world.X, corpus).save(tmp_path / "model")
    former = polyseme.load(tmp_path / "model")
    assert isinstance(former, ZeroShotTagger)
    said = [Verdict(names[row], "sun", row % 2 == 0) for row in range(12)]
    former.learn(said, polyseme.io.Table(features=world.X, ids=names))
    new = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=0)
    new.fit(world.X, corpus, warm_start_from=former)
    assert len(new.verdicts_.standing()) == 12
    assert new._corrections.by_column.keys() == former._corrections.by_column.keys()


def test_what_was_measured_stays_until_items_or_labels_are_a_tenth_more(tiny_space, world):
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=1, random_state=0)
    tagger.fit(world.X[:-20], world.documents[:-20])
    assert tagger.validation_ is not None
    new = ZeroShotTagger(space=tiny_space(), n_validations=1, random_state=1)
    new.fit(world.X, world.documents, warm_start_from=tagger)
    assert new.validation_ is tagger.validation_ and new.measured_on_ == tagger.measured_on_
    more = [*world.documents, *world.documents[:60]]
    X = np.concatenate([world.X, world.X[:60] + 0.5])
    new.fit(X, more, warm_start_from=new)
    assert new.validation_ is not tagger.validation_
    assert new.measured_on_ == (len(X), tagger.measured_on_[1])


# ---------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda X, y: (X[:, :3], y), "takes 5 features, and these are 3"),
        (lambda X, y: (X * 50, y), "features are spread otherwise"),
        (lambda X, y: (X, [[f"my {tag}" for tag in tags] for tags in y]), "labels are new"),
        (lambda X, y: (X + 1e-3, y), "not among these, or have other features"),
    ],
)
def test_what_does_not_fit_is_told_and_starts_from_nothing(base, former, world, change, reason):
    X, documents = change(world.X, world.documents)
    cold, told = warned(base, X, documents, warm_start_from=former)
    (sentence,) = [one for one in told if "starts from nothing" in one]
    assert reason in sentence
    same = base(X, documents)
    np.testing.assert_array_equal(cold.predict_proba(X[:5]), same.predict_proba(X[:5]))


def test_another_plan_or_another_kind_is_told(former, world, tiny_space):
    new = ZeroShotTagger(space=tiny_space(n_folds=4), n_validations=0, random_state=0)
    _, told = warned(new.fit, world.X, world.documents, warm_start_from=former)
    assert any("`n_folds`, and this fit asks for 4" in one for one in told)
    with pytest.raises(InputError, match="must be a ZeroShotTagger"):
        new.fit(world.X, world.documents, warm_start_from="model")  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        new.fit(world.X, world.documents, warm_start_from=ZeroShotTagger())


# ---------------------------------------------------------------------- on disk


def test_folds_and_keys_are_kept_on_disk(former, base, world, tmp_path: Path):
    from copy import copy

    copy(former).save(tmp_path / "model")
    loaded = polyseme.load(tmp_path / "model")
    assert isinstance(loaded, ZeroShotTagger)
    one = base(world.X, world.documents, warm_start_from=former)
    other = base(world.X, world.documents, warm_start_from=loaded)
    np.testing.assert_array_equal(one.space_.folds_, other.space_.folds_)
    np.testing.assert_array_equal(
        one.predict_proba(world.X_test), other.predict_proba(world.X_test)
    )
