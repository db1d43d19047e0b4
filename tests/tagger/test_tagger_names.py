"""Names of labels as evidence: items and names whose vectors come from one encoder."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator

from polyseme import ConceptSpace, LabelCorpus, ZeroShotTagger, load
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents.vocabulary import Vocabulary
from polyseme.metrics import concept_map
from polyseme.model_state import tagger_from_state, tagger_state
from polyseme.scoring.name_evidence import KindWeights, NameWeights
from polyseme.storage.model_file import ModelFileError
from toy_taggers import PLAN

N_FEATURES = 24
SEEN = [f"seen {number}" for number in range(16)]
UNSEEN = [f"unseen {number}" for number in range(4)]
NEW = ["new 0", "new 1"]


class TextWorld(NamedTuple):
    """Items that are the mean of their labels' names, with noise, as sentences nearly are."""

    X: np.ndarray
    documents: list[list[str]]
    label_sets: list[list[str]]
    X_test: np.ndarray
    truth: dict[str, np.ndarray]  # of test items, by label
    names: dict[str, np.ndarray]


def make_items(generator, names, labels, n):
    """Return the features of n items, and their labels, two or three each."""
    documents = []
    rows = []
    for _ in range(n):
        chosen = generator.choice(labels, size=generator.integers(2, 4), replace=False)
        documents.append(sorted(chosen.tolist()))
        mean = np.mean([names[label] for label in chosen], axis=0)
        rows.append(mean + 0.25 * generator.normal(size=N_FEATURES))
    return np.array(rows), documents


@pytest.fixture(scope="module")
def text_world():
    generator = np.random.default_rng(0)
    all_labels = [*SEEN, *UNSEEN, *NEW]
    names = {label: generator.normal(size=N_FEATURES) for label in all_labels}
    X, documents = make_items(generator, names, SEEN, 400)
    _, label_sets = make_items(generator, names, [*SEEN, *UNSEEN], 120)
    X_test, test_documents = make_items(generator, names, all_labels, 150)
    truth = {}
    for label in all_labels:
        truth[label] = np.array([label in document for document in test_documents])
    return TextWorld(X, documents, [*documents, *label_sets], X_test, truth, names)


def fit_tagger(world, n_validations=2, X=None, **options):
    space = ConceptSpace(n_folds=2, n_steps=20, plan=PLAN)
    tagger = ZeroShotTagger(space=space, n_validations=n_validations, random_state=0)
    features = world.X if X is None else X
    return tagger.fit(features, world.documents, world.label_sets, **options)


@pytest.fixture(scope="module")
def tagger(text_world):
    return fit_tagger(text_world, label_names=text_world.names)


def c_map(tagger, world, labels, X=None):
    """Return the C-MAP of some labels on the test items."""
    classes = list(tagger.classes_)
    columns = [classes.index(label) for label in labels]
    truth = np.stack([world.truth[label] for label in labels], axis=1)
    probabilities = tagger.predict_proba(world.X_test if X is None else X)
    return concept_map(truth, probabilities[:, columns])


def test_names_rank_unseen_labels_far_better(tagger, text_world):
    without_names = fit_tagger(text_world, n_validations=0)
    assert tagger.names_.weights.other.slopes[0] > 0.5
    gain = c_map(tagger, text_world, UNSEEN) - c_map(without_names, text_world, UNSEEN)
    assert gain > 0.2


def test_what_names_bring_is_measured_and_said(tagger):
    seen_gain, unseen_gain = tagger.validation_.name_gains
    assert unseen_gain > 0.1
    assert tagger.validation_.name_weights == tagger.names_.weights
    assert f"{100 * seen_gain:+.1f} points on seen" in str(tagger.validation_)
    assert "names alone" in tagger.validation_.baselines


@pytest.mark.parametrize("label", [SEEN[0], UNSEEN[0]])
def test_the_name_is_a_part_of_the_evidence(tagger, text_world, label):
    evidence = tagger.explain(text_world.X_test[3], label)
    contributions = dict(evidence.parts())
    assert contributions["the name"] == evidence.name != 0
    assert sum(contributions.values()) == pytest.approx(evidence.logit, abs=1e-9)


def test_a_saved_tagger_knows_the_names(tagger, text_world, tmp_path):
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    expected = tagger.predict_proba(text_world.X_test)
    assert_array_equal(loaded.predict_proba(text_world.X_test), expected)
    assert loaded.names_.weights == tagger.names_.weights


def test_encoded_items_and_single_rows_have_the_same_scores(tagger, text_world):
    expected = tagger.decision_function(text_world.X_test)
    encoded = tagger.encode(text_world.X_test)
    assert_allclose(tagger.decision_function(encoded), expected, atol=1e-5)
    single = tagger.decision_function(text_world.X_test[:1])
    assert_allclose(single, expected[:1], atol=1e-5)


def test_an_encoder_gives_the_same_as_its_vectors(tagger, text_world):
    def encode(texts):
        return np.array([text_world.names[text] for text in texts])

    encoded = fit_tagger(text_world, label_names=encode)
    expected = tagger.predict_proba(text_world.X_test)
    assert_allclose(encoded.predict_proba(text_world.X_test), expected, atol=1e-6)


def test_rows_of_an_array_are_the_columns_of_an_indicator_matrix(text_world):
    corpus = LabelCorpus.from_documents(text_world.documents)
    indicator = corpus.matrix.toarray().astype(int)
    rows = np.array([text_world.names[label] for label in corpus.labels])
    space = ConceptSpace(n_folds=2, n_steps=20, plan=PLAN)
    tagger = ZeroShotTagger(space=space, n_validations=2, random_state=0)
    tagger.fit(text_world.X, indicator, label_names=rows)
    assert tagger.names_.weights.seen.are_used
    with pytest.raises(InputError, match="labels that have an order"):
        fit_tagger(text_world, label_names=rows)


def test_rows_of_an_array_are_columns_as_given_whatever_the_vocabulary_makes_of_them(text_world):
    corpus = LabelCorpus.from_documents(text_world.documents)
    indicator = pd.DataFrame(corpus.matrix.toarray().astype(int), columns=corpus.labels)
    rows = np.array([text_world.names[label] for label in corpus.labels])
    first, second = corpus.labels[:2]
    vocabulary = Vocabulary(aliases={first: "new 0"}, implies={second: ["implied"]})
    space = ConceptSpace(n_folds=2, n_steps=20, plan=PLAN)
    tagger = ZeroShotTagger(space=space, vocabulary=vocabulary, n_validations=2, random_state=0)
    label_sets = [[label.upper() for label in labels] for labels in text_world.documents]
    tagger.fit(text_world.X, indicator, label_sets, label_names=rows, label_sets_only=True)
    names = tagger.names_
    assert "implied" not in map(str.lower, names.labels)
    compared = names.views[0].space.compare(rows, of_items=False)
    spellings = {label.lower(): row for row, label in enumerate(names.labels)}
    own_rows = [spellings[label] for label in ("new 0", *corpus.labels[1:])]
    assert_allclose(names.views[0].vectors[own_rows], compared, atol=1e-6)


def test_sparse_features_and_names_stay_sparse(text_world):
    X = np.maximum(text_world.X, 0)
    X_test = np.maximum(text_world.X_test, 0)
    names = {label: np.maximum(vector, 0) for label, vector in text_world.names.items()}

    def encode(texts):
        return sp.csr_matrix(np.array([names[text] for text in texts]))

    tagger = fit_tagger(text_world, X=sp.csr_matrix(X), label_names=encode)
    assert tagger.names_.views[0].space.columns.is_sparse
    assert sp.issparse(tagger.names_.views[0].vectors)
    scores = tagger.decision_function(sp.csr_matrix(X_test))
    assert_allclose(tagger.decision_function(X_test), scores, atol=1e-5)
    without_names = fit_tagger(text_world, X=sp.csr_matrix(X), n_validations=0)
    quality = c_map(tagger, text_world, UNSEEN, X_test)
    assert quality > c_map(without_names, text_world, UNSEEN, X_test)


def test_a_label_that_is_only_a_name_is_ranked_by_it(text_world, tmp_path):
    tagger = fit_tagger(text_world, label_names=text_world.names)
    assert tagger.add_labels(NEW, text_world.names) == tuple(NEW)
    kinds = dict(zip(tagger.classes_, tagger.kinds_, strict=True))
    assert {kinds[label] for label in NEW} == {"oov"}
    frequency = np.mean([text_world.truth[label].mean() for label in NEW])
    assert c_map(tagger, text_world, NEW) > 3 * frequency
    tagger.save(tmp_path / "model")
    expected = tagger.predict_proba(text_world.X_test)
    assert_array_equal(load(tmp_path / "model").predict_proba(text_world.X_test), expected)

    # A new name keeps the vector, and removed labels can come back.
    tagger.rename("new 0", "renamed")
    assert_array_equal(tagger.predict_proba(text_world.X_test), expected)
    tagger.remove_labels(["renamed"])
    assert "renamed" not in tagger.classes_
    tagger.add_labels(["renamed"], {"renamed": text_world.names["new 0"]})
    tagger.save(tmp_path / "model")
    column = list(tagger.classes_).index("renamed")
    scores = load(tmp_path / "model").predict_proba(text_world.X_test)[:, column]
    assert concept_map(text_world.truth["new 0"][:, None], scores[:, None]) > 3 * frequency


def test_names_of_another_encoder_are_no_evidence(text_world):
    other_names = {label: vector[:5] for label, vector in text_world.names.items()}
    tagger = fit_tagger(text_world, label_names=other_names)
    assert tagger.names_ is None
    assert tagger.validation_.name_gains is None


def test_sparse_names_of_new_labels_need_names_as_evidence(text_world):
    tagger = fit_tagger(text_world, n_validations=0)
    with pytest.raises(InputError, match="sparse vectors rank new labels only where"):
        tagger.add_labels(NEW, lambda texts: sp.eye(len(texts), N_FEATURES, format="csr"))


def test_encoded_items_are_ranked_anew_where_names_go(tagger, text_world):
    changed = copy(tagger)
    encoded = changed.encode(text_world.X_test)
    with_names = changed.decision_function(encoded)
    changed._update(names_=None)
    scores = changed.decision_function(encoded)
    assert_allclose(scores, changed.decision_function(text_world.X_test), atol=1e-5)
    assert np.abs(scores - with_names).max() > 0.1


def test_labels_without_a_vector_are_ranked_as_without_names(tagger, text_world):
    known_names = {label: text_world.names[label] for label in [*SEEN[1:], *UNSEEN[1:]]}
    partly_named = fit_tagger(text_world, label_names=known_names)
    without_names = fit_tagger(text_world, n_validations=0)
    for label in (SEEN[0], UNSEEN[0]):
        column = list(partly_named.classes_).index(label)
        scores = partly_named.decision_function(text_world.X_test)[:, column]
        expected = without_names.decision_function(text_world.X_test)[:, column]
        assert_allclose(scores, expected, atol=1e-5)


def test_names_without_held_out_items_are_no_evidence(text_world):
    with pytest.warns(PolysemeWarning, match="names of labels are not used"):
        tagger = fit_tagger(text_world, n_validations=0, label_names=text_world.names)
    assert tagger.names_ is None


@pytest.mark.parametrize(
    ("label_names", "message"),
    [
        (3, "an encoder of texts; got int"),
        (lambda texts: np.ones((1, N_FEATURES)), "has 1 rows for 20 labels"),
        (lambda texts: np.full((len(texts), N_FEATURES), np.nan), "NaN"),
    ],
)
def test_names_that_cannot_be_used_are_refused(text_world, label_names, message):
    with pytest.raises(InputError, match=message):
        fit_tagger(text_world, label_names=label_names)


@pytest.mark.parametrize("gives_names", [True, False])
def test_a_warm_start_keeps_names_and_what_they_were_found_to_be_worth(
    tagger, text_world, gives_names
):
    label_names = text_world.names if gives_names else None
    warm = fit_tagger(text_world, label_names=label_names, warm_start_from=tagger)
    assert warm.validation_ is tagger.validation_
    assert warm.names_.weights == tagger.names_.weights
    evidence = warm.explain(text_world.X_test[3], UNSEEN[0])
    former_evidence = tagger.explain(text_world.X_test[3], UNSEEN[0])
    assert evidence.name == pytest.approx(former_evidence.name, abs=1e-5)


def test_a_warm_start_measures_anew_where_names_are_new(text_world):
    without_names = fit_tagger(text_world)
    warm = fit_tagger(text_world, label_names=text_world.names, warm_start_from=without_names)
    assert warm.names_.weights.other.are_used
    assert warm.validation_ is not without_names.validation_


def test_sparse_names_of_dense_items_are_as_good_as_dense_ones(tagger, text_world, tmp_path):
    def encode(texts):
        return sp.csr_matrix(np.array([text_world.names[text] for text in texts]))

    sparse = fit_tagger(text_world, label_names=encode)
    expected = tagger.predict_proba(text_world.X_test)
    assert_allclose(sparse.predict_proba(text_world.X_test), expected, atol=1e-5)
    sparse.save(tmp_path / "model")
    assert load(tmp_path / "model").names_.weights == sparse.names_.weights


class Reader(BaseEstimator):
    """A feature extractor that reads names as well as items."""

    kind = "sentence"

    def __init__(self, names=None):
        self.names = names

    def fit_transform(self, X):
        return self.transform(X)

    def transform(self, X):
        return np.asarray(X)

    def single(self, item):
        return np.asarray(item)[None]

    def get_state(self):
        return {}, {}

    def encode_names(self, texts):
        return np.array([self.names[text] for text in texts])


def test_an_extractor_that_reads_names_needs_no_vectors(text_world):
    space = ConceptSpace(n_folds=2, n_steps=20, plan=PLAN)
    reader = Reader(text_world.names)
    tagger = ZeroShotTagger(space=space, features=reader, random_state=0)
    tagger.fit(text_world.X, text_world.documents, text_world.label_sets)
    assert tagger.names_.weights.other.are_used
    assert tagger.add_labels(NEW) == tuple(NEW)
    frequency = np.mean([text_world.truth[label].mean() for label in NEW])
    assert c_map(tagger, text_world, NEW) > 3 * frequency


def test_a_tagger_that_cannot_read_names_asks_for_their_vectors(text_world):
    tagger = fit_tagger(text_world, n_validations=0)
    with pytest.raises(InputError, match="Give `vectors` of the names"):
        tagger.add_labels(NEW)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("vectors", lambda array: array[:, 1:]),
        ("vectors", lambda array: array[1:]),
        ("vectors", lambda array: array * np.nan),
        ("sample", lambda array: array.astype(np.float64)),
        ("whitening", lambda array: array[1:]),
        ("item_mean", lambda array: array[1:]),
        ("another", lambda array: np.zeros(3)),
    ],
)
def test_crafted_arrays_of_names_are_refused(tagger, name, wrong):
    config, arrays = tagger_state(tagger)
    crafted = dict(arrays)
    crafted[f"names.0.{name}"] = wrong(arrays.get(f"names.0.{name}"))
    with pytest.raises(ModelFileError):
        tagger_from_state(config, crafted)


def view(first, stop, is_sparse, least_deviation, n_sampled):
    """Return the values of a view as a model holds them."""
    sizes = {"first": first, "stop": stop, "n_sampled": n_sampled}
    return sizes | {"sparse": is_sparse, "least_deviation": least_deviation}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weights", [0.5, 0.1]),
        ("weights", [float("inf"), 0.0, 0.0, 0.0]),
        ("weights", [0.5, 0.1, 0.5, 0.1, 0.5, 0.1]),
        ("views", []),
        ("views", [{"first": 0, "stop": N_FEATURES}]),
        ("views", [view(0, N_FEATURES, False, 0.0, 400)]),
        ("views", [view(0, N_FEATURES, True, 0.5, 400)]),
        ("views", [view(0, N_FEATURES, 1, 0.5, 400)]),
        ("views", [view(0, N_FEATURES, False, 0.5, -1)]),
        ("views", [view(0, N_FEATURES, False, 0.5, 10**12)]),
        ("views", [view(0, N_FEATURES + 1, False, 0.5, 400)]),
        ("views", [view(1, N_FEATURES, False, 0.5, 400)]),
        ("views", 2 * [view(0, N_FEATURES, False, 0.5, 400)]),
    ],
)
def test_crafted_values_of_names_are_refused(tagger, field, value):
    config, arrays = tagger_state(tagger)
    crafted = config | {"names": config["names"] | {field: value}}
    with pytest.raises(ModelFileError):
        tagger_from_state(crafted, arrays)


def test_a_label_twice_among_the_names_is_refused(tagger):
    config, arrays = tagger_state(tagger)
    labels = config["names"]["labels"]
    crafted = config | {"names": config["names"] | {"labels": [labels[1], *labels[1:]]}}
    with pytest.raises(ModelFileError, match="labels"):
        tagger_from_state(crafted, arrays)


def test_a_removed_label_leaves_no_name_and_a_merge_keeps_the_targets(text_world):
    tagger = fit_tagger(text_world, label_names=text_world.names)
    tagger.add_labels(NEW, text_world.names)
    tagger.remove_labels([NEW[0]])
    assert NEW[0] not in tagger.names_.labels
    label_row = tagger.names_.labels.index(NEW[1])
    own_vector = tagger.names_.views[0].vectors[label_row]
    tagger.merge(UNSEEN[0], NEW[1])
    label_row = tagger.names_.labels.index(NEW[1])
    assert UNSEEN[0] not in tagger.names_.labels
    assert_array_equal(tagger.names_.views[0].vectors[label_row], own_vector)


def test_names_that_count_for_seen_labels_alone_do_not_rank_new_ones(tagger, text_world):
    of_seen = copy(tagger)
    of_seen._update(
        names_=tagger.names_.with_weights(NameWeights(KindWeights((0.5,)), KindWeights((0.0,))))
    )
    of_seen.add_labels(NEW, text_world.names)
    assert of_seen.named_.likeness.any(axis=1).all()
    assert NEW[0] not in of_seen.names_.labels


def test_a_fit_from_nothing_says_that_names_are_missing(tagger, text_world):
    X = 100 * text_world.X + 1000  # spread otherwise, so that no warm start fits
    with pytest.warns(PolysemeWarning, match="give `label_names` anew"):
        fit_tagger(text_world, X=X, warm_start_from=tagger, n_validations=0)
