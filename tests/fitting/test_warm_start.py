"""A fit that starts from a former one: folds stay, labels keep their weights, misfits are told."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import polyseme
from polyseme import ImageFeatures, ZeroShotTagger
from polyseme.base.folds import filled_folds
from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.documents.corpus import LabelCorpus
from polyseme.feedback.verdict_log import Verdict
from polyseme.fitting.warm_start import (
    ColdStartError,
    DocumentKeys,
    feature_digests,
    placed_groups,
)
from polyseme.space.members import Members, Shape, StartMembers
from toy_fits import tiny_tagger

NEW = "zeppelin"


@pytest.fixture(scope="session")
def base(tiny_space) -> Any:
    """Fit a tagger to some items."""

    def fit(X: Any, documents: Any, **options: Any) -> ZeroShotTagger:
        tagger = tiny_tagger(tiny_space)
        return tagger.fit(X, documents, **options)

    return fit


@pytest.fixture(scope="session")
def former(base, world) -> ZeroShotTagger:
    """A tagger that knows all but the last items; tests must not change it."""
    return base(world.X[:-20], LabelCorpus.from_documents(world.documents[:-20]))


def item_folds(tagger: ZeroShotTagger, X: Any) -> np.ndarray:
    """Return the fold of each item in the tagger's last fit, found by its features."""
    row_by_digest = {}
    for row, digest in enumerate(tagger.document_keys_.items.tolist()):
        if digest:
            row_by_digest[digest] = row
    rows = [row_by_digest[digest] for digest in feature_digests(X).tolist()]
    return tagger.space_.folds_[rows]


def fit_and_catch(fit: Any, *arguments: Any, **options: Any) -> tuple[ZeroShotTagger, list[str]]:
    """Fit, and return what was fit_and_catch of as well."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit(*arguments, **options)
    messages = [str(warning.message) for warning in caught if warning.category is PolysemeWarning]
    return fitted, messages


# ---------------------------------------------------------------------- folds


def test_every_item_stays_in_its_fold_wherever_it_comes(base, former, world):
    generator = np.random.default_rng(1)
    order = generator.permutation(len(world.X))
    documents = [world.documents[row] for row in order]
    warm = base(world.X[order], documents, warm_start_from=former)
    assert warm.space_.plan_.n_steps < former.space_.plan_.n_steps
    known_items = world.X[:-20]
    folds = item_folds(warm, known_items)
    assert_array_equal(folds, item_folds(former, known_items))


def test_a_new_tag_and_another_form_move_no_item_to_another_fold(base, former, world):
    documents = list(world.documents)
    for row in range(20):
        documents[row] = (*documents[row], NEW)
    warm = base(sp.csr_matrix(world.X), documents, warm_start_from=former)
    known_items = world.X[:-20]
    folds = item_folds(warm, known_items)
    assert_array_equal(folds, item_folds(former, known_items))


def test_items_whose_features_changed_are_found_by_their_names(tiny_space, world):
    names = [f"photo {row}" for row in range(len(world.X))]
    corpus = LabelCorpus.from_documents(world.documents, ids=names)
    former = tiny_tagger(tiny_space)
    former.fit(world.X, corpus)
    generator = np.random.default_rng(2)
    order = generator.permutation(len(names))
    changed_X = world.X[order] + 0.01
    warm = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=1)
    warm.fit(changed_X, corpus.select(order), warm_start_from=former)
    expected = former.space_.folds_[order]
    assert_array_equal(warm.space_.folds_, expected)


def test_items_of_the_pool_stay_in_their_folds_when_they_get_tags(tiny_space, world):
    former = tiny_tagger(tiny_space)
    former.fit(world.X[:-20], world.documents[:-20], unlabelled=world.X[-20:])
    assert former.pooled_
    warm = tiny_tagger(tiny_space)
    warm.fit(world.X, world.documents, warm_start_from=former)
    folds = item_folds(warm, world.X)
    assert_array_equal(folds, item_folds(former, world.X))


def test_new_documents_go_to_the_smallest_folds_and_groups_stay_whole():
    folds = np.array([0, 0, 0, 1, 1, -1, -1, -1, -1])
    groups = np.array([0, 0, 1, 2, 3, 3, 4, 4, 5])
    placed = placed_groups(folds, groups)
    assert placed.tolist() == [0, 0, 0, 1, 1, 1, -1, -1, -1]
    filled = filled_folds(placed, 3, np.random.default_rng(0), groups)
    assert filled[:6].tolist() == placed[:6].tolist()
    new_folds = filled[6:].tolist()
    assert new_folds[0] == new_folds[1]
    assert 2 in new_folds
    sizes = np.bincount(filled)
    assert sizes.max() <= 4


def test_groups_of_several_folds_cannot_be_joined():
    folds = np.array([0, 0, 0, 1, 1, -1, -1, -1, -1])
    groups = np.array([0, 0, 0, 0, 1, 2, 3, 4, 5])
    with pytest.raises(ColdStartError, match="one group now were in several folds"):
        placed_groups(folds, groups)


def test_items_with_the_same_features_are_new_ones():
    no_names = np.zeros(4, dtype=np.uint64)
    items = np.array([7, 7, 8, 9], dtype=np.uint64)
    keys = DocumentKeys(no_names, items, items)
    folds = keys.folds_among(keys, np.array([0, 1, 2, 2]))
    assert folds.tolist() == [-1, -1, 2, 2]


def test_pictures_without_names_stay_in_their_folds_and_the_extractor_as_it_was(tiny_space):
    generator = np.random.default_rng(0)
    red_and_blue = np.array([[220, 20, 30], [20, 30, 220]])
    colours = np.tile(red_and_blue, (12, 1))[:, None, None]
    noise = generator.normal(0, 9, (24, 32, 32, 3))
    pictures = np.clip(colours + noise, 0, 255).astype(np.uint8)
    documents = [["fire", "warm"], ["sea", "cold"]] * 12
    extractor = ImageFeatures(size=32, depth="pooled", n_jobs=1)
    former = ZeroShotTagger(tiny_space(n_steps=60), extractor, n_validations=0, random_state=0)
    former.fit(pictures, documents)
    warm = ZeroShotTagger(tiny_space(n_steps=60), extractor, n_validations=0, random_state=1)
    _, messages = fit_and_catch(
        warm.fit,
        pictures[::-1],
        documents[::-1],
        warm_start_from=former,
    )
    assert not messages
    assert warm.features_ is former.features_
    expected = former.space_.folds_[::-1]
    assert_array_equal(warm.space_.folds_, expected)


# ---------------------------------------------------------------------- members


def test_labels_keep_their_weights_in_another_order():
    torch = pytest.importorskip("torch")
    shape = Shape(n_labels=3, n_outputs=4, n_features=2, hidden=3, code=2)
    larger = shape._replace(n_labels=4, n_outputs=5)
    generator = np.random.default_rng(0)
    groups = [generator.normal(size=(2, n)).astype(np.float32) for n in shape.n_weights]
    old = Members(shape, *groups)
    empty_groups = [torch.zeros(1, n) for n in larger.n_weights]
    new = Members(larger, *empty_groups)
    places = np.array([2, -1, 0, 1])
    weights = np.full((2, 2, 1), 5, np.float32)
    biases = np.full((2, 1), 7, np.float32)
    start = StartMembers(old, places, True, weights, biases)
    start.put_into(new, np.array([1]))

    first_layer = new.document_layers[0][0][0].numpy()
    old_first_layer = old.document_layers[0][0][1]
    assert_array_equal(first_layer[[0, 2, 3]], old_first_layer[[2, 0, 1]])
    assert not first_layer[1].any()
    old_outputs = [2, 0, 1, 3]
    outputs = [0, 2, 3, 4]
    new_labels = new.labels[0].numpy()
    expected = old.labels[1][:, old_outputs]
    assert_array_equal(new_labels[:, outputs], expected)
    new_bias = new.bias[0, 0].numpy()
    assert_array_equal(new_bias[outputs], old.bias[1, 0, old_outputs])
    assert new_labels[:, 1].tolist() == [5, 5]
    assert new_bias[1] == 7
    assert_array_equal(new.items.numpy(), old.items[1:])


def test_without_steps_that_change_anything_members_are_the_former_ones(base, former, world):
    plan = replace(former.space_.plan_, learning_rates=(0.0, 0.0, 0.0))
    space = polyseme.ConceptSpace(plan=plan)
    warm = ZeroShotTagger(space=space, n_validations=0, random_state=3)
    warm.fit(world.X[:-20], world.documents[:-20], warm_start_from=former)
    groups = warm.space_.members_.groups
    former_groups = former.space_.members_.groups
    for group, former_group in zip(groups, former_groups, strict=True):
        assert_allclose(group, former_group, rtol=0, atol=1e-6)
    probabilities = warm.predict_proba(world.X_test)
    former_probabilities = former.predict_proba(world.X_test)
    assert_allclose(probabilities, former_probabilities, atol=0.05)


# ---------------------------------------------------------------------- what comes out


def test_a_warm_fit_is_as_good_as_a_new_one_and_ranks_a_new_label(base, former, world):
    column = list(world.themes).index("beach")
    at_the_beach = world.X[:, column] > 0.5
    documents = []
    for tags, is_beach in zip(world.documents, at_the_beach, strict=True):
        documents.append((*tags, NEW) if is_beach else tags)
    warm = base(world.X, documents, warm_start_from=former)
    new_column = warm.classes_.tolist().index(NEW)
    assert warm.kinds_[new_column] == "seen"
    probabilities = warm.predict_proba(world.X_test)
    scores = probabilities[:, new_column]
    of_beach = np.array(world.themes_test) == "beach"
    assert scores[of_beach].mean() > 3 * scores[~of_beach].mean()

    cold = base(world.X, documents)
    differences = np.abs(probabilities - cold.predict_proba(world.X_test))
    assert differences.mean() < 0.05


def test_verdicts_are_learned_from_and_kept(tiny_space, world, tmp_path):
    former = tiny_tagger(tiny_space)
    names = [f"photo {row}" for row in range(len(world.X))]
    corpus = LabelCorpus.from_documents(world.documents, ids=names)
    model = tmp_path / "model"
    former.fit(world.X, corpus).save(model)
    loaded = polyseme.load(model)
    assert isinstance(loaded, ZeroShotTagger)
    verdicts = [Verdict(names[row], "sun", row % 2 == 0) for row in range(12)]
    items = polyseme.io.Table(features=world.X, ids=names)
    loaded.learn(verdicts, items)
    warm = tiny_tagger(tiny_space)
    warm.fit(world.X, corpus, warm_start_from=loaded)
    assert len(warm.verdicts_.standing()) == 12
    assert warm._corrections.by_column.keys() == loaded._corrections.by_column.keys()


def test_a_validation_stays_until_items_are_a_tenth_more(tiny_space, world):
    former = ZeroShotTagger(space=tiny_space(), n_validations=1, random_state=0)
    former.fit(world.X[:-20], world.documents[:-20])
    validation = former.validation_
    assert validation is not None
    warm = ZeroShotTagger(space=tiny_space(), n_validations=1, random_state=1)
    warm.fit(world.X, world.documents, warm_start_from=former)
    assert warm.validation_ is validation
    assert warm.measured_on_ == former.measured_on_

    documents = [*world.documents, *world.documents[:60]]
    X = np.concatenate([world.X, world.X[:60] + 0.5])
    warm.fit(X, documents, warm_start_from=warm)
    assert warm.validation_ is not validation
    _, n_labels = former.measured_on_
    assert warm.measured_on_ == (len(X), n_labels)


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
def test_a_tagger_that_does_not_fit_causes_a_warning_and_a_cold_start(
    base, former, world, change, reason
):
    X, documents = change(world.X, world.documents)
    cold, messages = fit_and_catch(base, X, documents, warm_start_from=former)
    (message,) = [message for message in messages if "starts from nothing" in message]
    assert reason in message
    expected = base(X, documents)
    probabilities = cold.predict_proba(X[:5])
    assert_array_equal(probabilities, expected.predict_proba(X[:5]))


def test_another_number_of_folds_causes_a_warning(former, world, tiny_space):
    cold = tiny_tagger(tiny_space, n_folds=4)
    _, messages = fit_and_catch(
        cold.fit,
        world.X,
        world.documents,
        warm_start_from=former,
    )
    assert any("`n_folds`, and this fit asks for 4" in message for message in messages)


def test_warm_starts_need_a_fitted_tagger(world, tiny_space):
    tagger = tiny_tagger(tiny_space)
    with pytest.raises(InputError, match="must be a ZeroShotTagger"):
        tagger.fit(world.X, world.documents, warm_start_from="model")  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        tagger.fit(world.X, world.documents, warm_start_from=ZeroShotTagger())


# ---------------------------------------------------------------------- on disk


def test_folds_and_keys_are_kept_on_disk(former, base, world, tmp_path: Path):
    from copy import copy

    model = tmp_path / "model"
    copy(former).save(model)
    loaded = polyseme.load(model)
    assert isinstance(loaded, ZeroShotTagger)
    expected = base(world.X, world.documents, warm_start_from=former)
    warm = base(world.X, world.documents, warm_start_from=loaded)
    assert_array_equal(warm.space_.folds_, expected.space_.folds_)
    probabilities = warm.predict_proba(world.X_test)
    assert_array_equal(probabilities, expected.predict_proba(world.X_test))
