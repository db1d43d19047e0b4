"""Validation on held-out items: what is held out, what is measured, what is promised."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone

from polyseme import ZeroShotTagger, load
from polyseme.base.validation import PolysemeWarning
from polyseme.documents.corpus import LabelCorpus
from polyseme.fitting.holdout_validation import CLICKS, Validation, validate
from polyseme.metrics import concept_map
from polyseme.space.calibration import PRECISIONS, sigmoid, unseen_thresholds
from toy_fits import fit_world, tiny_tagger

N = 200
LABELS = tuple(f"label{number:02}" for number in range(12))


def collection(groups=None):
    """Items whose features are their own labels, and a few documents that are no item's."""
    generator = np.random.default_rng(0)
    n_documents = N + 40
    table = generator.random((n_documents, len(LABELS))) < 0.08
    certain_labels = generator.integers(0, len(LABELS), n_documents)
    table[np.arange(n_documents), certain_labels] = True
    names = [f"document{row}" for row in range(n_documents)]
    known_documents = LabelCorpus.from_indicator(table, LABELS, ids=names)
    corpus = LabelCorpus.from_indicator(table[:N], LABELS, ids=names[:N])
    return table[:N].astype(float), replace(corpus, groups=groups), known_documents


class Reader(BaseEstimator):
    """Ranks by the features themselves, wrongly where it is told to, and remembers its fits."""

    fits: ClassVar[list] = []

    def __init__(self, sign=1.0):
        self.sign = sign

    def fit(self, X, y, label_sets):
        self.classes_ = np.array(label_sets.labels, dtype=object)
        Reader.fits.append((X, y, label_sets))
        return self

    def decision_function(self, X):
        return self.sign * (8.0 * X - 4.0)


@pytest.fixture
def fits():
    Reader.fits.clear()
    return Reader.fits


def test_what_is_held_out_reaches_no_fit(fits):
    X, corpus, known_documents = collection()
    (validation,) = validate(Reader(), X, corpus, known_documents, n_draws=3, random_state=0)
    assert validation.n_draws == 3
    assert len(fits) == 3
    for _, items, sets in fits:
        # What is neither learned from as an item nor known as a document was held out.
        held_out = set(known_documents.ids) - set(sets.ids)
        assert len(held_out) == N // 4
        assert held_out.isdisjoint(items.ids)
        assert held_out <= set(corpus.ids), "documents that are no item's stay"
    draws = {tuple(items.ids) for _, items, _ in fits}
    assert len(draws) == 3, "draws differ"


def test_hidden_labels_are_on_no_item_and_in_some_document(fits):
    X, corpus, known_documents = collection()
    validate(Reader(), X, corpus, known_documents, n_draws=3, random_state=0)
    for features, items, sets in fits:
        assert_array_equal(features, items.matrix.toarray())
        hidden = set(items.labels) - items.used(items.labels)
        assert len(hidden) >= 2
        assert hidden <= sets.used(sets.labels)


def test_groups_stay_together(fits):
    groups = tuple(f"g{row // 4}" for row in range(N))
    X, corpus, known_documents = collection(groups)
    validate(Reader(), X, corpus, known_documents, n_draws=1, random_state=0)
    ((_, _, sets),) = fits
    held_out = set(known_documents.ids) - set(sets.ids)
    rows = [int(name.removeprefix("document")) for name in held_out]
    held_out_groups = {groups[row] for row in rows}
    assert len(held_out) == 48
    assert len(held_out_groups) == 12


def test_measures_of_the_best_ranker():
    X, corpus, known_documents = collection()
    (validation,) = validate(Reader(), X, corpus, known_documents, random_state=0)
    for measures in (validation.seen, validation.unseen):
        assert measures.example_map == 1
        assert measures.concept_map == 1
        assert measures.precision == 1
        assert measures.recall == 1
    assert validation.unseen.n_labels + validation.seen.n_labels == len(LABELS)
    assert validation.highest_precision > 0.7
    for pair in validation.labels.values():
        assert set(pair) <= {1.0, None}


def test_measures_of_the_worst_ranker():
    X, corpus, known_documents = collection()
    (validation,) = validate(
        Reader(sign=-1.0),
        X,
        corpus,
        known_documents,
        random_state=0,
    )
    assert validation.seen.example_map < 0.1
    assert validation.seen.precision < 0.2
    assert validation.threshold(0.3) == np.inf
    assert "0.5 or more" in str(validation)


@pytest.mark.parametrize("n_items", [0, 30])
def test_too_few_items_are_not_validated(n_items):
    X, corpus, known_documents = collection()
    items = corpus.select(np.arange(n_items))
    validations = validate(Reader(), X[:n_items], items, known_documents)
    assert validations == []


def test_a_validation_is_restored_from_its_state():
    X, corpus, known_documents = collection()
    (validation,) = validate(
        Reader(sign=-1.0),
        X,
        corpus,
        known_documents,
        random_state=0,
    )
    restored = Validation.from_state(validation.get_state())
    assert restored == validation


def draws(rng, slope, n=3000, n_labels=10):
    """Logits of labels whose true logits are so many times as large, with labels of their own."""
    logits = 1.5 * rng.normal(size=(n, n_labels)) - 2
    label_offsets = 0.2 * rng.normal(size=n_labels)
    probabilities = sigmoid(slope * logits + label_offsets)
    truth = rng.random((n, n_labels)) < probabilities
    return logits, truth


@pytest.mark.parametrize("slope", [1.0, 0.5, 2.0])
def test_a_promised_precision_is_reached_by_other_labels(slope):
    generator = np.random.default_rng(0)
    samples = [draws(generator, slope) for _ in range(3)]
    thresholds = unseen_thresholds(samples)
    assert thresholds.tolist() == sorted(thresholds)
    logits, truth = draws(generator, slope, n=30_000)
    probabilities = sigmoid(logits)
    for place in (29, 39):
        suggested = probabilities >= thresholds[place]
        precision = truth[suggested].mean()
        goal = PRECISIONS[place]
        assert goal - 0.05 < precision < goal + 0.15


def test_a_threshold_is_the_lowest_whose_lower_bound_reaches_the_precision():
    logits, truth = draws(np.random.default_rng(1), 1.0, n=300)
    thresholds = unseen_thresholds([(logits, truth)])
    probabilities = sigmoid(logits)
    for place in (19, 39):
        suggested = probabilities >= thresholds[place]
        precision = truth[suggested].mean()
        residuals = np.where(suggested, truth - precision, 0.0)
        label_sums = residuals.sum(axis=0)
        deviation = np.linalg.norm(label_sums) / suggested.sum()
        lower_bound = precision - 1.64 * deviation
        assert lower_bound == pytest.approx(PRECISIONS[place], abs=0.05)


def test_a_single_item_and_labels_that_are_never_true_promise_nothing():
    logits, truth = draws(np.random.default_rng(2), 1.0, n=1)
    never_true = np.zeros_like(truth)
    for labels in (truth, never_true):
        thresholds = unseen_thresholds([(logits, labels)])
        assert np.isinf(thresholds).all()


def test_two_labels_promise_nothing():
    logits = np.full((30, 2), 3.0)
    truth = np.ones((30, 2), dtype=bool)
    thresholds = unseen_thresholds([(logits, truth)])
    assert np.isinf(thresholds).all()


def test_60_true_labels_promise_a_precision_of_08_but_not_of_095():
    logits = np.full((20, 3), 3.0)
    truth = np.ones((20, 3), dtype=bool)
    thresholds = unseen_thresholds([(logits, truth)])
    assert np.isfinite(thresholds[:80]).all()
    assert np.isinf(thresholds[-5:]).all()


@pytest.fixture(scope="module")
def validated(world, tiny_space):
    """A tagger with two validations; tests must not change it."""
    tagger = ZeroShotTagger(space=tiny_space(n_steps=60), random_state=0)
    return fit_world(tagger, world)


def test_a_fitted_tagger_has_a_validation(validated):
    validation = validated.validation_
    assert validation.n_draws == 2
    assert validation.seen.concept_map > 0.8
    assert validation.unseen.n_items > 50
    assert set(validation.labels) <= set(validated.classes_)


def test_a_saved_tagger_keeps_its_validation(validated, tmp_path):
    model = tmp_path / "model"
    copy(validated).save(model)
    loaded = load(model)
    assert loaded.validation_ == validated.validation_


def test_unseen_labels_share_the_threshold_of_the_validation(validated, world):
    unseen = np.isin(validated.classes_, world.unseen)
    goal = round(validated.validation_.highest_precision, 2)
    thresholds = validated.thresholds(goal)
    assert set(thresholds[unseen]) == {validated.validation_.threshold(goal)}


def test_unseen_labels_are_not_predicted_for_a_precision_out_of_reach(validated, world):
    with pytest.warns(PolysemeWarning, match="cannot be promised of labels that no training item"):
        predicted = validated.predict(world.X_test, precision=0.99)
    labels = set().union(*predicted)
    assert labels.isdisjoint(world.unseen)


def test_without_validation_nothing_is_promised_of_unseen_labels(world, tiny_space):
    tagger = tiny_tagger(tiny_space, n_steps=20)
    fit_world(tagger, world)
    assert tagger.validation_ is None
    with pytest.warns(PolysemeWarning, match="`n_validations` is 0"):
        assert np.isinf(tagger.thresholds(0.2)).any()


def test_variants_are_measured_side_by_side(fits):
    X, corpus, known_documents = collection()

    def variants(fitted):
        reversed_ranker = clone(fitted).set_params(sign=-1.0)
        return [fitted, reversed_ranker.fit(*fits[0])]

    best, worst = validate(
        Reader(),
        X,
        corpus,
        known_documents,
        n_draws=1,
        random_state=0,
        variants=variants,
    )
    assert best.seen.concept_map > 0.9
    assert worst.seen.concept_map <= 0.9


def name_vectors(world, generator, helpful):
    """Return vectors of labels near the axis of their theme, or of a random one."""
    axes = np.eye(len(world.themes))
    vectors = {}
    for number, labels in enumerate(world.themes.values()):
        for label in labels:
            axis = axes[number if helpful else generator.integers(len(axes))]
            noise = generator.normal(size=len(axes))
            # One number more than items have features: no encoder made both.
            vectors[label] = np.append(axis + 0.05 * noise, 0.0)
    return vectors


@pytest.mark.parametrize("helpful", [True, False])
def test_names_join_in_where_they_help_on_labels_made_unseen(world, tiny_space, tmp_path, helpful):
    # Unseen labels stand alone in the label sets: only their names say where they belong.
    single_labels = [[label] for label in world.unseen for _ in range(5)]
    label_sets = [*world.documents, *single_labels]
    generator = np.random.default_rng(0)
    vectors = name_vectors(world, generator, helpful)
    X = world.X + 0.6 * generator.normal(size=world.X.shape)
    space = tiny_space(n_steps=60, linear=0)
    tagger = ZeroShotTagger(space=space, n_validations=3, random_state=0)
    tagger.fit(X, world.documents, label_sets, label_names=vectors, label_sets_only=True)
    assert (tagger.name_share_ > 0) == helpful
    model = tmp_path / "model"
    tagger.save(model)
    loaded = load(model)
    assert_array_equal(loaded.predict_proba(X), tagger.predict_proba(X))
    if not helpful:
        return

    without_names = ZeroShotTagger(space=space, n_validations=0, random_state=0)
    without_names.fit(X, world.documents, label_sets, label_sets_only=True)
    labels = list(tagger.classes_)
    columns = [labels.index(label) for label in world.unseen]
    truth = world.truth(world.unseen)
    probabilities = tagger.predict_proba(world.X_test)[:, columns]
    probabilities_without = without_names.predict_proba(world.X_test)[:, columns]
    quality = concept_map(truth, probabilities)
    assert quality > concept_map(truth, probabilities_without)
    evidence = tagger.explain(world.X_test[0], "charger")
    total = sum(value for _, value in evidence.parts())
    assert total == pytest.approx(evidence.logit)


# ------------------------------------------------------------------ what a pool and clicks bring


class Pooled(Reader):
    """Ranks well when it has learned from items without tags, and badly before."""

    def __init__(self, sign=1.0, gains=True):
        super().__init__(sign)
        self.gains = gains

    def fit(self, X, y, label_sets, unlabelled=None):
        super().fit(X, y, label_sets)
        self.pool_ = unlabelled
        Reader.fits[-1] += (unlabelled,)
        return self

    def decision_function(self, X):
        better = (self.pool_ is not None) == self.gains
        return (1.0 if better else -1.0) * super().decision_function(X)


@pytest.mark.parametrize("gains", [True, False])
def test_the_gain_of_a_pool_is_the_last_validation_over_the_first(fits, gains):
    X, corpus, known_documents = collection()
    plain, pooled = validate(
        Pooled(gains=gains),
        X,
        corpus,
        known_documents,
        2,
        0,
        pool=X[:50],
    )
    gain = pooled.gain_over(plain)
    example_gain = pooled.unseen.example_map - plain.unseen.example_map
    concept_gain = pooled.unseen.concept_map - plain.unseen.concept_map
    expected = (example_gain + concept_gain) / 2
    assert gain == pytest.approx(expected)
    assert (gain > 0.3) == gains
    assert plain.gain_over(plain) == 0
    assert plain.click_gain is None, "it cannot learn from clicks"


def test_the_pool_of_a_validation_is_neither_learned_from_nor_held_out(fits):
    X, corpus, known_documents = collection()
    X = X + np.arange(N)[:, None] / 1e4  # rows can be told apart
    foreign_rows = X[:3] + 100
    validate(Pooled(), X, corpus, known_documents, 1, 0, pool=foreign_rows)
    first_fit, second_fit = fits
    *_, items, sets, no_pool = first_fit
    assert no_pool is None
    *_, pool = second_fit
    row_by_features = {features.tobytes(): row for row, features in enumerate(X)}
    rows = [row_by_features.get(features.tobytes()) for features in pool]
    assert rows.count(None) == 3
    pool_rows = set(rows) - {None}
    assert len(pool) == 3 + len(pool_rows)

    trained = {corpus.ids.index(name) for name in items.ids}
    known_rows = {row for row, name in enumerate(corpus.ids) if name in sets.ids}
    assert pool_rows == known_rows - trained


def test_unknown_quality_counts_as_no_gain():
    X, corpus, known_documents = collection()
    (validation,) = validate(Reader(), X, corpus, known_documents, 1, 0)
    unseen = replace(validation.unseen, example_map=np.nan, concept_map=np.nan)
    unknown = replace(validation, unseen=unseen)
    assert unknown.gain_over(validation) == 0
    assert validation.gain_over(unknown) == 0


class Clicked(Reader):
    """Ranks labels badly unless it has verdicts on them, and records its verdicts."""

    def fit(self, X, y, label_sets):
        super().fit(X, y, label_sets)
        self.answers_ = {}
        return self

    def learn(self, verdicts, X):
        for item, label, answer in verdicts:
            answers = self.answers_.setdefault(label, [])
            answers.append((int(item), answer))
        Reader.fits.append((self.answers_, X))

    def decision_function(self, X):
        is_answered = np.isin(self.classes_, list(self.answers_))
        signs = np.where(is_answered, 1.0, -1.0)
        scores = super().decision_function(X)
        return signs * scores


def test_the_gain_of_clicks_is_measured_on_items_that_were_not_asked_about(fits):
    X, corpus, known_documents = collection()
    (validation,) = validate(Clicked(), X, corpus, known_documents, 1, 0)
    assert 0.3 < validation.click_gain <= 1
    assert f"{100 * validation.click_gain:+.1f} points" in str(validation)
    restored = Validation.from_state(validation.get_state())
    assert restored.click_gain == validation.click_gain

    answers_by_label, tested = fits[-1]
    for label, answers in answers_by_label.items():
        assert len(answers) == CLICKS
        column = LABELS.index(label)
        for row, answer in answers:
            assert row % 2 == 0
            expected = tested[row, column] == 1
            assert answer == (expected)


@pytest.mark.parametrize(
    ("gain", "pattern"), [(0.023, r"\+2.3 points.*are used"), (-0.01, "left out")]
)
def test_a_validation_reports_what_a_pool_would_bring(gain, pattern):
    X, corpus, known_documents = collection()
    (validation,) = validate(Reader(), X, corpus, known_documents, 1, 0)
    text = str(replace(validation, pool_gain=gain))
    assert re.search(pattern, text)


def test_a_fitted_tagger_has_measured_the_gain_of_clicks_and_of_a_pool(world, tiny_space):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=40), random_state=0)
    tagger.fit(
        world.X,
        world.documents,
        world.label_sets,
        unlabelled=world.X_test,
        label_sets_only=True,
    )
    validation = tagger.validation_
    assert validation.click_gain is not None
    assert (validation.pool_gain > 0) == tagger.pooled_
    assert not tagger.verdicts_.count, "what was tried is nobody's verdict"


def test_simple_rankers_are_measured_on_the_same_items_for_comparison(world, tiny_space, tmp_path):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=20), n_validations=1, random_state=0)
    tagger.fit(world.X, world.documents, world.label_sets)
    validation = tagger.validation_
    baselines = validation.baselines
    assert list(baselines) == ["ridge regression", "most frequent labels"]
    ridge = baselines["ridge regression"]
    frequent = baselines["most frequent labels"]
    assert np.greater(ridge, frequent).all()
    assert ridge[0] > 0.7
    assert 0 < frequent[0] < 0.6
    sentence = f"in comparison, ridge regression: seen labels E-MAP {ridge[0]:.3f}"
    assert sentence in str(validation)
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.validation_.baselines == baselines
