"""What every baseline does: the tagger's contract, scikit-learn's own checks, groups in one fold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyseme import LabelCorpus, WordVectors
from polyseme.base.folds import fold_numbers
from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.documents.toy import THEMES
from polyseme.published import mapping as search
from polyseme_experiments import baselines
from polyseme_experiments.baselines import (
    Costa,
    Fast0Tag,
    SeenClassifiers,
    costa,
    latent,
    simple,
    words,
)
from toy_fits import fit_world


def vectors_of(*themes):
    """Make word vectors: a label is the sum of its themes' directions, and noise."""
    generator = np.random.default_rng(0)
    vectors = {}
    for theme in themes:
        direction = generator.normal(size=8)
        for label in THEMES[theme]:
            vectors[label] = vectors.get(label, generator.normal(0, 0.2, 8)) + direction
    return WordVectors(vectors)


pytestmark = pytest.mark.filterwarnings("ignore:.* have no word vector")

WORDS = vectors_of(*THEMES)
# Every baseline goes through this suite; a new one is a line here.
BASELINES = {
    "chance": baselines.Chance(random_state=0),
    "composition": baselines.Composition(vectors=vectors_of("beach", "street"), random_state=0),
    "ConSE": baselines.ConSE(vectors=WORDS, random_state=0),
    "COSTA": Costa(random_state=0),
    "Fast0Tag": Fast0Tag(vectors=WORDS, random_state=0),
    "joint factors": baselines.JointFactors([(8, 1.0, 1.0, 1.0, 1.0)], 4, random_state=0),
    "latent semantic": baselines.LatentSemantic(random_state=0),
    "nearest instances": baselines.NearestInstances(random_state=0),
    "popularity": baselines.Popularity(),
    "transduction": baselines.Transduction(random_state=0),
    "tuned COSTA": baselines.TunedCosta(random_state=0),
}


@pytest.fixture(scope="module", params=sorted(BASELINES))
def fitted(request, world):
    return fit_world(clone(BASELINES[request.param]), world)


def test_every_baseline_is_in_this_suite():
    public = {getattr(baselines, name) for name in baselines.__all__}
    assert public == {type(baseline) for baseline in BASELINES.values()} | {SeenClassifiers}


def test_labels_and_kinds_are_those_of_the_tagger(fitted, toy_tagger):
    assert fitted.classes_.tolist() == list(toy_tagger.classes_)
    assert fitted.kinds_.tolist() == toy_tagger.kinds_.tolist()


def test_ranks_are_falling_scores(fitted, world):
    n_items = len(world.X_test)
    scores = fitted.decision_function(world.X_test)
    assert scores.shape == (n_items, len(fitted.classes_))
    labels, label_scores = fitted.rank(world.X_test, k=4)
    assert labels.shape == (n_items, 4)
    assert label_scores.shape == (n_items, 4)
    best_scores = scores.max(axis=1)
    assert_allclose(label_scores[:, 0], best_scores)
    steps = np.diff(label_scores, axis=1)
    assert (steps <= 0).all()


def test_a_second_fit_gives_the_same_scores(fitted, world):
    refitted = clone(fitted)
    fit_world(refitted, world)
    scores = refitted.decision_function(world.X_test)
    expected = fitted.decision_function(world.X_test)
    assert np.array_equal(scores, expected)


def test_bad_input_gets_one_sentence(fitted, world):
    unfitted = clone(fitted)
    with pytest.raises(InputError, match="299 rows but there are 300 documents"):
        unfitted.fit(world.X[:-1], world.documents)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        unfitted.rank(world.X_test)
    with pytest.raises(InputError, match="expecting 5 features"):
        fitted.rank(np.zeros((1, 3)))


def test_one_warning_of_documents_without_labels_names_the_line_of_the_fit(fitted, world):
    documents = [(), *world.documents[1:]]
    baseline = clone(fitted)
    with pytest.warns(PolysemeWarning) as warnings:
        baseline.fit(world.X, documents, world.label_sets, label_sets_only=True)
    files = [warning.filename for warning in warnings if "have no label" in str(warning.message)]
    assert files == [__file__]


def test_an_indicator_matrix_scores_as_the_tag_sets(fitted, world):
    labels = sorted(set().union(*world.documents))
    rows = [[label in document for label in labels] for document in world.documents]
    numbered = clone(fitted)
    if "vectors" in fitted.get_params():
        label_vectors, has_vector = fitted.vectors.label_vectors(labels)
        vectors = {str(column): label_vectors[column] for column in np.flatnonzero(has_vector)}
        numbered.set_params(vectors=WordVectors(vectors))
    numbered.fit(world.X, np.array(rows, dtype=int))
    assert numbered.classes_.tolist() == [str(column) for column in range(len(labels))]
    if isinstance(fitted, Costa):
        return  # its classifiers are in the order of labels, which differs

    named = clone(fitted)
    named.fit(world.X, world.documents)
    scores = numbered.decision_function(world.X_test)
    expected = named.decision_function(world.X_test)
    assert_allclose(scores, expected, atol=1e-4)


# --- scikit-learn's own checks ---------------------------------------------------------------


def one_class_an_item(kind):
    """Return a baseline that takes one class an item, which is all that the checks know."""

    def fit(self, X, y, label_sets=None):
        if y is not None:
            classes = np.asarray(y).ravel()
            indicator = classes[:, None] == np.unique(classes)
            y = indicator.astype(int)
        return kind.fit(self, X, y, label_sets)

    name = f"OneClass{kind.__name__}"
    body = {"fit": fit, "__init__": kind.__init__, "__module__": __name__}
    subclass = type(name, (kind,), body)
    globals()[name] = subclass  # where a pickle looks for it
    return subclass


NUMBERS = WordVectors({str(n): np.eye(40)[n] + 0.1 for n in range(40)})
CHECKED = [
    one_class_an_item(type(baseline))(
        **baseline.get_params(deep=False)
        | ({"vectors": NUMBERS} if "vectors" in baseline.get_params() else {})
        | ({"penalty": 0.1} if isinstance(baseline, Fast0Tag) else {})
        | ({"classifiers": SeenClassifiers(1.0, 0.1)} if isinstance(baseline, Costa) else {})
    )
    for baseline in BASELINES.values()
]


def expected_failures(estimator):
    failures = {"check_dtype_object": "a refused X is an InputError, a ValueError, not a TypeError"}
    if isinstance(estimator, Fast0Tag):
        failures["check_fit2d_1sample"] = "the sentence says that there is nothing to rank"
    return failures


@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


# --- groups ------------------------------------------------------------------------------------


def grouped(documents, size):
    corpus = LabelCorpus.from_documents(documents)
    return replace(corpus, groups=tuple(f"g{row // size}" for row in range(len(corpus))))


@pytest.mark.parametrize(
    ("name", "n_drawings"),
    {
        "ConSE": 2,
        "COSTA": 3,
        "Fast0Tag": 6,
        "joint factors": 1,
        "latent semantic": 2,
        "nearest instances": 1,
        "transduction": 2,
        "tuned COSTA": 2,
    }.items(),
)
def test_a_group_is_never_torn_apart(name, n_drawings, world, monkeypatch):
    drawings = []

    def record(n, n_folds, generator, groups=None):
        folds = fold_numbers(n, n_folds, generator, groups)
        drawings.append((groups, folds))
        return folds

    for module in (costa, latent, simple, words, search):
        monkeypatch.setattr(module, "fold_numbers", record)
    baseline = clone(BASELINES[name])
    documents = grouped(world.documents, 7)
    label_sets = grouped(world.label_sets, 11)
    baseline.fit(world.X, documents, label_sets)
    assert len(drawings) == n_drawings
    for groups, folds in drawings:
        assert groups is not None
        assert folds.any()
        for group in np.unique(groups):
            members = np.asarray(groups) == group
            assert len(np.unique(folds[members])) == 1


@pytest.mark.parametrize(
    "name",
    [
        "COSTA",
        "joint factors",
        "latent semantic",
        "nearest instances",
        "transduction",
        "tuned COSTA",
    ],
)
def test_a_single_group_can_be_learned_from(name, world):
    baseline = clone(BASELINES[name])
    documents = grouped(world.documents, 300)
    label_sets = grouped(world.label_sets, 300)
    baseline.fit(world.X, documents, label_sets)
    scores = baseline.decision_function(world.X_test)
    assert not np.isnan(scores).any()
