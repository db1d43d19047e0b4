"""Validation on held-out items: what is held out, what is measured, what is promised."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone

from polyseme import ZeroShotTagger, load
from polyseme._validation import PolysemeWarning
from polyseme.calibration import PRECISIONS, sigmoid
from polyseme.corpus import LabelCorpus
from polyseme.holdout import CLICKS, Validation, unseen_thresholds, validate
from polyseme.metrics import concept_map

N = 200
LABELS = tuple(f"label{number:02}" for number in range(12))


def collection(groups=None):
    """Items whose features are their own labels, and a few documents that are no item's."""
    rng = np.random.default_rng(0)
    table = rng.random((N + 40, len(LABELS))) < 0.08
    table[np.arange(N + 40), rng.integers(0, len(LABELS), N + 40)] = True
    names = [f"document{row}" for row in range(N + 40)]
    known = LabelCorpus.from_indicator(table, LABELS, ids=names)
    corpus = LabelCorpus.from_indicator(table[:N], LABELS, ids=names[:N])
    return table[:N].astype(float), replace(corpus, groups=groups), known


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
    X, corpus, known = collection()
    (found,) = validate(Reader(), X, corpus, known, n_draws=3, random_state=0)
    assert found.n_draws == len(fits) == 3
    for trained, items, sets in fits:
        carried = np.asarray(items.matrix.sum(axis=0)).ravel()
        hidden = {label for label, count in zip(items.labels, carried, strict=True) if not count}
        assert len(hidden) >= 2
        assert_array_equal(trained, items.matrix.toarray())
        # What is neither learned from as an item nor known as a document was held out.
        held_out = set(known.ids) - set(sets.ids)
        assert len(held_out) == N // 4
        assert not held_out & set(items.ids)
        assert held_out <= set(corpus.ids), "documents that are no item's stay"
        in_sets = np.asarray(sets.matrix.sum(axis=0)).ravel() > 0
        assert hidden <= {label for label, there in zip(sets.labels, in_sets, strict=True) if there}
    assert len({tuple(items.ids) for _, items, _ in fits}) == 3, "draws differ"


def test_groups_stay_together(fits):
    groups = tuple(f"g{row // 4}" for row in range(N))
    X, corpus, known = collection(groups)
    validate(Reader(), X, corpus, known, n_draws=1, random_state=0)
    held_out = set(known.ids) - set(fits[0][2].ids)
    of_groups = {groups[int(name.removeprefix("document"))] for name in held_out}
    assert len(held_out) == 4 * len(of_groups) == 48


def test_measures_of_the_best_and_of_the_worst():
    X, corpus, known = collection()
    (best,) = validate(Reader(), X, corpus, known, random_state=0)
    for part in (best.seen, best.unseen):
        assert part.example_map == part.concept_map == part.precision == part.recall == 1
    assert best.unseen.n_labels + best.seen.n_labels == len(LABELS)
    assert best.highest_precision > 0.7
    assert all(set(pair) <= {1.0, None} for pair in best.labels.values())
    (worst,) = validate(Reader(sign=-1.0), X, corpus, known, random_state=0)
    assert worst.seen.example_map < 0.1
    assert worst.seen.precision < 0.2
    assert worst.threshold(0.3) == np.inf
    assert "0.5 or more" in str(worst)


@pytest.mark.parametrize("n_items", [0, 30])
def test_too_few_items_say_nothing(n_items):
    X, corpus, known = collection()
    assert validate(Reader(), X[:n_items], corpus.select(np.arange(n_items)), known) == []


def test_state_comes_back():
    X, corpus, known = collection()
    (found,) = validate(Reader(sign=-1.0), X, corpus, known, random_state=0)
    assert Validation.from_state(found.get_state()) == found


def draws(rng, slope, n=3000, n_labels=10):
    """Logits of labels whose true logits are so many times as large, with labels of their own."""
    logits = 1.5 * rng.normal(size=(n, n_labels)) - 2
    own = 0.2 * rng.normal(size=n_labels)
    return logits, rng.random((n, n_labels)) < sigmoid(slope * logits + own)


@pytest.mark.parametrize("slope", [1.0, 0.5, 2.0])
def test_a_promised_precision_is_reached_by_other_labels(slope):
    rng = np.random.default_rng(0)
    thresholds = unseen_thresholds([draws(rng, slope) for _ in range(3)])
    assert thresholds.tolist() == sorted(thresholds)
    logits, truth = draws(rng, slope, n=30_000)
    for place in (29, 39):
        reached = truth[sigmoid(logits) >= thresholds[place]].mean()
        assert PRECISIONS[place] - 0.05 < reached < PRECISIONS[place] + 0.15


def test_a_threshold_is_the_lowest_whose_lower_bound_reaches_the_precision():
    rng = np.random.default_rng(1)
    logits, truth = draws(rng, 1.0, n=300)
    thresholds = unseen_thresholds([(logits, truth)])
    for place in (19, 39):
        given = sigmoid(logits) >= thresholds[place]
        precision = truth[given].mean()
        by_label = [(truth[:, k] - precision)[given[:, k]].sum() for k in range(logits.shape[1])]
        error = 1.64 * np.sqrt(np.square(by_label).sum()) / given.sum()
        assert precision - error == pytest.approx(PRECISIONS[place], abs=0.05)


def test_few_and_hopeless_labels_promise_nothing():
    rng = np.random.default_rng(2)
    logits, truth = draws(rng, 1.0, n=1)
    assert np.isinf(unseen_thresholds([(logits, truth)])).all()
    assert np.isinf(unseen_thresholds([(logits, np.zeros_like(truth))])).all()
    few = unseen_thresholds([(np.full((30, 2), 3.0), np.ones((30, 2), dtype=bool))])
    assert np.isinf(few).all(), "two labels promise nothing"
    certain = unseen_thresholds([(np.full((20, 3), 3.0), np.ones((20, 3), dtype=bool))])
    assert np.isfinite(certain[:80]).all(), "60 true ones promise 0.8"
    assert np.isinf(certain[-5:]).all(), "but not 0.95"


def test_a_fitted_tagger_knows_what_it_can_promise(world, tiny_space, tmp_path):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=60), random_state=0)
    tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    found = tagger.validation_
    assert found.n_draws == 2
    assert found.seen.concept_map > 0.8
    assert found.unseen.n_items > 50
    assert set(found.labels) <= set(tagger.classes_)
    unseen = np.isin(tagger.classes_, world.unseen)
    goal = round(found.highest_precision, 2)
    assert set(tagger.thresholds(goal)[unseen]) == {found.threshold(goal)}
    tagger.save(tmp_path / "model")
    assert load(tmp_path / "model").validation_ == found
    with pytest.warns(PolysemeWarning, match="cannot be promised of labels that no training item"):
        sets = tagger.predict(world.X_test, precision=0.99)
    assert not {label for tags in sets for label in tags} & set(world.unseen)


def test_without_validation_nothing_is_promised_of_unseen_labels(world, tiny_space):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=20), n_validations=0, random_state=0)
    tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    assert tagger.validation_ is None
    with pytest.warns(PolysemeWarning, match="`n_validations` is 0"):
        assert np.isinf(tagger.thresholds(0.2)).any()


def test_variants_are_measured_side_by_side(fits):
    X, corpus, known = collection()
    both = validate(
        Reader(),
        X,
        corpus,
        known,
        n_draws=1,
        random_state=0,
        variants=lambda fitted: [fitted, clone(fitted).set_params(sign=-1.0).fit(*fits[0])],
    )
    assert [one.seen.concept_map > 0.9 for one in both] == [True, False]


@pytest.mark.parametrize("helpful", [True, False])
def test_names_join_in_where_they_help_on_labels_made_unseen(world, tiny_space, tmp_path, helpful):
    # Unseen labels stand alone in the label sets: only their names say where they belong.
    themes = list(world.themes)
    rng = np.random.default_rng(0)
    vectors = {
        label: np.eye(len(themes))[number if helpful else rng.integers(len(themes))]
        + 0.05 * rng.normal(size=len(themes))
        for number, theme in enumerate(themes)
        for label in world.themes[theme]
    }
    alone = [*world.documents, *([label] for label in world.unseen for _ in range(5))]
    noisy = world.X + 0.6 * rng.normal(size=world.X.shape)
    tagger = ZeroShotTagger(space=tiny_space(n_steps=60, linear=0), n_validations=3, random_state=0)
    tagger.fit(noisy, world.documents, alone, label_vectors=vectors, label_sets_only=True)
    assert (tagger.name_share_ > 0) == helpful
    tagger.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_array_equal(again.predict_proba(noisy), tagger.predict_proba(noisy))
    if helpful:
        bare = ZeroShotTagger(
            space=tiny_space(n_steps=60, linear=0), n_validations=0, random_state=0
        )
        bare.fit(noisy, world.documents, alone, label_sets_only=True)
        columns = [list(tagger.classes_).index(label) for label in world.unseen]
        truth = world.truth(world.unseen)
        gain = [
            concept_map(truth, one.predict_proba(world.X_test)[:, columns])
            for one in (tagger, bare)
        ]
        assert gain[0] > gain[1]
        evidence = tagger.explain(world.X_test[0], "charger")
        assert sum(part for _, part in evidence.parts()) == pytest.approx(evidence.logit)


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
    X, corpus, known = collection()
    plain, pooled = validate(Pooled(gains=gains), X, corpus, known, 2, 0, pool=X[:50])
    gain = pooled.gain_over(plain)
    quality = [one.unseen.example_map + one.unseen.concept_map for one in (plain, pooled)]
    assert gain == pytest.approx((quality[1] - quality[0]) / 2)
    assert (gain > 0.3) == gains
    assert plain.gain_over(plain) == 0, "it cannot learn from clicks"
    assert plain.click_gain is None, "it cannot learn from clicks"


def test_the_pool_of_a_validation_has_what_was_left_out_and_nothing_held_out(fits):
    X, corpus, known = collection()
    X = X + np.arange(N)[:, None] / 1e4  # rows can be told apart
    validate(Pooled(), X, corpus, known, 1, 0, pool=X[:3] + 100)
    (_, items, sets, none), (*_, pool) = fits
    assert none is None
    rows = {row.tobytes(): place for place, row in enumerate(X)}
    drawn = {rows.get(row.tobytes(), -1) for row in pool}
    assert -1 in drawn
    assert len(pool) == 3 + len(drawn - {-1})
    held_out = {place for place, name in enumerate(corpus.ids) if name not in set(sets.ids)}
    trained = {corpus.ids.index(name) for name in items.ids}
    assert drawn - {-1} == set(range(N)) - held_out - trained


def test_unknown_quality_counts_as_no_gain():
    X, corpus, known = collection()
    (found,) = validate(Reader(), X, corpus, known, 1, 0)
    unknown = replace(found, unseen=replace(found.unseen, example_map=np.nan, concept_map=np.nan))
    assert unknown.gain_over(found) == found.gain_over(unknown) == 0


class Clicked(Reader):
    """Ranks badly what it was not told of, and notes what it is told."""

    def fit(self, X, y, label_sets):
        super().fit(X, y, label_sets)
        self.told_ = {}
        return self

    def learn(self, verdicts, X):
        for item, label, answer in verdicts:
            self.told_.setdefault(label, []).append((int(item), answer))
        Reader.fits.append((self.told_, X))

    def decision_function(self, X):
        signs = [1.0 if label in self.told_ else -1.0 for label in self.classes_]
        return np.array(signs) * super().decision_function(X)


def test_the_gain_of_clicks_is_measured_on_items_that_were_not_asked_about(fits):
    X, corpus, known = collection()
    (found,) = validate(Clicked(), X, corpus, known, 1, 0)
    assert 0.3 < found.click_gain <= 1
    told, tested = fits[-1]
    for label, answers in told.items():
        assert len(answers) == CLICKS
        assert all(row % 2 == 0 for row, _ in answers)
        column = LABELS.index(label)
        assert [answer for _, answer in answers] == [tested[row, column] == 1 for row, _ in answers]
    assert f"{100 * found.click_gain:+.1f} points" in str(found)
    assert Validation.from_state(found.get_state()).click_gain == found.click_gain


@pytest.mark.parametrize(("gain", "told"), [(0.023, "+2.3 points.*are used"), (-0.01, "left out")])
def test_what_a_pool_would_bring_is_told(gain, told):
    X, corpus, known = collection()
    (found,) = validate(Reader(), X, corpus, known, 1, 0)
    assert re.search(told.replace("+", r"\+"), str(replace(found, pool_gain=gain)))


def test_a_fitted_tagger_knows_what_clicks_and_a_pool_bring(world, tiny_space):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=40), random_state=0)
    tagger.fit(
        world.X, world.documents, world.label_sets, unlabelled=world.X_test, label_sets_only=True
    )
    found = tagger.validation_
    assert found.click_gain is not None
    assert (found.pool_gain > 0) == tagger.pooled_
    assert not tagger.verdicts_.count, "what was tried is nobody's verdict"


def test_simple_rankers_are_measured_on_the_same_items_for_comparison(world, tiny_space, tmp_path):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=20), n_validations=1, random_state=0)
    tagger.fit(world.X, world.documents, world.label_sets)
    baselines = tagger.validation_.baselines
    assert list(baselines) == ["ridge regression", "most frequent labels"]
    ridge, frequent = (baselines[name] for name in baselines)
    assert all(better > worse for better, worse in zip(ridge, frequent, strict=True))
    assert ridge[0] > 0.7
    assert 0 < frequent[0] < 0.6
    printed = str(tagger.validation_)
    assert f"in comparison, ridge regression: seen labels E-MAP {ridge[0]:.3f}" in printed
    tagger.save(tmp_path / "model")
    assert load(tmp_path / "model").validation_.baselines == baselines
