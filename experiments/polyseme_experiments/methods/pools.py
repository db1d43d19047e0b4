"""What items without tags and answers to questions bring, for labels that nobody has shown.

In: a `Trial` with features. Of its training instances 60 % are tagged; the others, and all known
ones with an unseen label, are the pool: features only, their tag sets among the documents but not
linked. Out: metrics of test instances, after a pool and after so many answers for a label.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray, PolysemeWarning
from polyseme.feedback import active_learning
from polyseme.feedback.active_learning import Block, choose
from polyseme.feedback.verdict_log import Verdict
from polyseme.metrics import concept_map, example_map, reliability
from polyseme.scoring import correction_fit
from polyseme.scoring.correction_fit import fit_correction
from polyseme.space import features
from polyseme.space.calibration import pool_targets, sigmoid
from polyseme.space.space_fit import SpaceCalibration
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments import baselines
from polyseme_experiments.embedding_cache import make_space
from polyseme_experiments.leakage import FitInputs
from polyseme_experiments.methods.base import Matrix, Method, Metrics, Outcome, System
from polyseme_experiments.methods.calibration import truth_of
from polyseme_experiments.methods.default import default_config
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.trials import Trial

TAGGED = 0.6  # share of the training instances that keep their tags
# Answers for each unseen label at which quality is measured, and how many are given at a time.
CLICKS = (3, 10, 30, 100)
BATCH = 10
STRATEGIES = ("likeliest", "active", "random")
# Answers for each label that the whole new fit learns from.
REFIT = 30


# Constants of corrections that decide what answers teach; and how their optimum was looked for when
# the first records were made. It is looked for in a quicker way since, and found within the same
# tolerance, so that those records still say what is learned.
_DECIDE = ("STRENGTHS", "OFFSET")
_SOLVED = {"_STEPS": "30", "_SMALL": "1e-06", "_DUAL": "600"}


class Split(NamedTuple):
    """Rows of the target: tagged instances, the pool, and the known documents."""

    tagged: IntArray
    pool: IntArray
    known: IntArray


def split_of(trial: Trial) -> Split:
    """Draw which training instances keep their tags."""
    row_by_name = {name: row for row, name in enumerate(trial.split.target.ids)}
    known_rows = [row_by_name[name] for name in trial.known_documents.ids]
    known_documents = np.array(known_rows, dtype=np.int64)
    # 17 keeps these draws apart from others of the trial; recorded results rest on it.
    generator = np.random.default_rng((trial.seed, 17))
    train = generator.permutation(trial.split.train)
    n_tagged = int(TAGGED * len(train))
    tagged = np.sort(train[:n_tagged])
    pool = np.setdiff1d(known_documents, tagged)
    return Split(tagged, pool, known_documents)


def tagger_config(config: RunConfig) -> dict[str, Any]:
    """Return all that decides what the default learns here, sizes of samples included."""
    learned = default_config(config)
    samples: dict[str, Callable[..., Any]] = {
        "space._BACKGROUND": SpaceCalibration._draw_reference_sample,
        "training._MATCHED": pool_targets,
    }
    for name, function in samples.items():
        parameters = signature(function).parameters
        learned["constants"][name] = repr(parameters["most"].default)
    return learned


def pool_config(config: RunConfig, learned: dict[str, Any]) -> dict[str, Any]:
    """Return all that decides what is learned with a pool and answers."""
    constants = {name: repr(getattr(correction_fit, name)) for name in _DECIDE}
    constants["SKETCH"] = repr(features.PROJECTION_SIZE)
    constants |= _SOLVED
    constants["STRATEGIES"] = repr(active_learning.STRATEGIES)
    plan = make_space(config).planned(10_000)
    pool_fields = {}
    for name, value in vars(plan).items():
        # A baseline takes no steps.
        decides = learned or name != "pool_steps"
        if "pool" in name and decides:
            pool_fields[name] = value
    described = dict(learned)
    described["tagged"] = TAGGED
    described["of_pool"] = pool_fields
    described["corrections"] = constants
    return described


@dataclass(frozen=True)
class PoolSystem(System):
    """The default, or a baseline, with or without a pool."""

    way: str = "pool"  # or "none", "gauged", "ceiling", or for a baseline "clicks"
    estimator: str | None = None  # a baseline in place of the default

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        described = super().config(config)
        described["asked"] = {
            "way": self.way,
            "estimator": self.estimator,
            "tagged": TAGGED,
        }
        # The default's parameters decide nothing about a baseline.
        learned = tagger_config(config) if self.estimator is None else {}
        if self.way in ("none", "ceiling"):
            return described | learned
        return described | pool_config(config, learned)

    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Score instances; see `System.scores`."""
        if self.estimator is None:
            fitted: Any = tagger_of(trial, self.way)
            return fitted, fitted.predict_proba(X)
        estimator = getattr(baselines, self.estimator)
        baseline = estimator(random_state=trial.seed)
        pool = None
        if self.way != "none":
            pool = trial.features(split_of(trial).pool)
        fitted = fit(trial, baseline, pool)
        if self.way == "clicks":
            pool_scores = fitted.decision_function(pool)
            labels = [str(label) for label in fitted.classes_]
            verdicts = answered(trial, labels, pool_scores)
            fitted = fit(trial, baseline, pool, verdicts=verdicts)
        scores = fitted.decision_function(X)
        return fitted, scores

    def run(self, trial: Trial) -> Outcome:
        """Score the test instances; the ceiling is shown what nothing else may see."""
        X = trial.features(trial.split.test)
        fitted, scores = self.scores(trial, X)
        metrics: Metrics = trial.measure(scores, fitted.classes_, oov=False)
        if self.way == "gauged":
            validation = fitted.validation_
            pool_gain, click_gain = None, None
            if validation is not None:
                pool_gain = 100 * (validation.pool_gain or 0.0)
                click_gain = 100 * (validation.click_gain or 0.0)
            metrics["gauge"] = {
                "used": float(fitted.pooled_),
                "foretold": pool_gain,
                "answers foretold": click_gain,
            }
        if self.way == "ceiling":
            return metrics, trial.audit()
        return metrics, audited(trial, fitted)


def answered(trial: Trial, labels: list[str], scores: Matrix) -> sp.csr_matrix:
    """Answer for the likeliest pool items of each unseen label, (n_pool, n_labels)."""
    target = trial.split.target
    pool_corpus = target.select(split_of(trial).pool)
    truth = truth_of(pool_corpus, labels)
    verdicts = np.zeros(scores.shape)
    for column in unseen_columns(trial, labels):
        likeliest = np.argsort(-scores[:, column], kind="stable")
        rows = likeliest[:REFIT]
        verdicts[rows, column] = np.where(truth[rows, column], 1.0, -1.0)
    return sp.csr_matrix(verdicts)


def unseen_columns(trial: Trial, labels: list[str]) -> IntArray:
    """Return the places of unseen labels among some labels."""
    split = trial.split
    key = split.target.key
    unseen_labels = split.labels.unseen
    unseen_keys = {key(label) for label in unseen_labels}
    columns = []
    for column, label in enumerate(labels):
        label_key = key(label)
        if label_key in unseen_keys:
            columns.append(column)
    return np.array(columns, dtype=np.int64)


def inputs(trial: Trial) -> FitInputs:
    """Return the very objects that taggers and baselines are fitted with, for the audit."""
    rows = split_of(trial).tagged
    X = trial.features(rows)
    target = trial.split.target
    documents = target.select(rows)
    return FitInputs(X, documents, trial.known_documents)


def audited(trial: Trial, fitted: Any) -> dict[str, Any]:
    """Audit the split, the documents and what was learned; tagged instances are some of it."""
    split = split_of(trial)
    train = set(trial.split.train.tolist())
    held_out = set(trial.mixed.tolist())
    tagged = split.tagged.tolist()
    pool = split.pool.tolist()
    if not train.issuperset(tagged):
        raise AssertionError("an instance is tagged that is not among those to train on")
    if not held_out.isdisjoint(pool):
        raise AssertionError("an instance of the pool is held out")
    documents = FitInputs(semantics=trial.known_documents)
    return trial.audit(fitted, documents)


def fit(trial: Trial, ranker: Any, pool: NDArray[np.float32] | None, **more: Any) -> Any:
    """Fit a ranker to the tagged instances, and a pool where there is one, without warnings."""
    fit_inputs = inputs(trial)
    if pool is not None:
        more["unlabelled"] = pool
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        return ranker.fit(
            fit_inputs.X,
            fit_inputs.documents,
            fit_inputs.semantics,
            label_sets_only=True,
            **more,
        )


def tagger_of(trial: Trial, way: str) -> ZeroShotTagger:
    """Return the default without a pool, with it, as the gauge decides, or at the ceiling."""

    def new(n_validations: int = 0) -> ZeroShotTagger:
        return ZeroShotTagger(
            space=make_space(trial.config),
            n_validations=n_validations,
            random_state=trial.seed,
        )

    split = split_of(trial)
    if way == "ceiling":
        rows = split.known
        documents = trial.split.target.select(rows)

        def fit_ceiling() -> ZeroShotTagger:
            X = trial.features(rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PolysemeWarning)
                return new().fit(X, documents)

        return trial.part("pool, ceiling", fit_ceiling)
    pool = trial.features(split.pool)
    if way == "gauged":
        gauged: ZeroShotTagger = trial.part("pool, gauged", lambda: fit(trial, new(2), pool))
        return gauged
    # With the same seed the gauged tagger is either the one with the pool or the one without.
    uses_pool = way == "pool"
    decided = tagger_of(trial, "gauged")
    if decided.pooled_ == uses_pool:
        return decided
    unlabelled = pool if uses_pool else None
    tagger: ZeroShotTagger = trial.part(f"pool, {way}", lambda: fit(trial, new(), unlabelled))
    return tagger


@dataclass(frozen=True)
class Clicks(Method):
    """Answers to questions about pool items, up to a hundred for each unseen label."""

    features: ClassVar[bool] = True

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        described = super().config(config)
        described |= pool_config(config, tagger_config(config))
        described["asked"] = {
            "clicks": CLICKS,
            "batch": BATCH,
            "strategies": STRATEGIES,
            "refit": REFIT,
        }
        return described

    def run(self, trial: Trial) -> Outcome:
        """Ask, learn in closed form, and measure; then fit anew with the same answers."""
        tagger = tagger_of(trial, "gauged")
        game = Game(trial, tagger)
        metrics: Metrics = {"none 0": game.measured(game.test_logits)}
        for strategy in STRATEGIES:
            start = time.perf_counter()
            for n_clicks, rows_by_column in game.played(strategy):
                logits = game.corrected(rows_by_column)
                metrics[f"{strategy} {n_clicks}"] = game.measured(logits)
                if strategy == "active" and n_clicks == REFIT:
                    game.answers = rows_by_column
            seconds = time.perf_counter() - start
            metrics[strategy] = {"seconds": seconds}

        start = time.perf_counter()
        verdicts = game.verdicts([str(label) for label in tagger.classes_])
        pool = trial.features(split_of(trial).pool)
        refitted = ZeroShotTagger(
            space=make_space(trial.config),
            n_validations=0,
            random_state=trial.seed,
        )
        fit(trial, refitted, pool, verdicts=verdicts)
        seconds = time.perf_counter() - start
        metrics["refit"] = {"seconds": seconds}
        logits = refitted.decision_function(game.X_test)
        metrics[f"refit {REFIT}"] = game.measured(logits)
        return metrics, audited(trial, tagger)


class Game:
    """The pool's truth, which answers questions, and what the tagger says of pool and test.

    Attributes
    ----------
    pool : int64 array, shape (n_pool,)
        Rows of the pool's items in the target.
    unseen : int64 array, shape (n_unseen,)
        Columns of the labels that are asked about.
    pool_truth, truth : bool arrays, shapes (n_pool, n_labels) and (n_test, n_labels)
    with_unseen : bool array, shape (n_test,)
        Test instances with an unseen label.
    pool_logits, test_logits, reference_logits : float64 arrays, one row for each item
        Before any answer: of the pool, of the test instances and of the reference sample.
    projections, test_projections : float64 arrays
        What corrections see of the pool's items and of the test instances.
    answers : dict
        Rows of the pool that were answered for each column, by the active strategy.
    """

    def __init__(self, trial: Trial, tagger: ZeroShotTagger) -> None:
        labels = [str(label) for label in tagger.classes_]
        self.pool = split_of(trial).pool
        self.space = tagger.space_
        self.X_test = trial.features(trial.mixed)
        X = trial.features(self.pool)
        target = trial.split.target
        self.pool_truth = truth_of(target.select(self.pool), labels)
        self.truth = truth_of(target.select(trial.mixed), labels)
        self.unseen = unseen_columns(trial, labels)
        self.with_unseen = self.truth[:, self.unseen].any(axis=1)
        self.pool_logits = tagger.decision_function(X)
        self.test_logits = tagger.decision_function(self.X_test)
        sample = self.space.reference_sample_
        # Logits of the reference sample before any verdict.
        plain_logits = tagger._scorer.plain_logits(sample.codes)
        self.reference_logits = tagger._scorer.in_class_order(plain_logits, -np.inf)
        self.projections = self.space.project(X.astype(np.float64))
        self.test_projections = self.space.project(self.X_test.astype(np.float64))
        self.generator = np.random.default_rng(trial.seed)
        self.answers: dict[int, IntArray] = {}

    def verdicts(self, labels: Sequence[str]) -> list[Verdict]:
        """Return the answers as verdicts on pool items, which are named by their rows."""
        verdicts = []
        for column, rows in self.answers.items():
            label = labels[column]
            for row in rows.tolist():
                name = str(row)
                is_true = bool(self.pool_truth[row, column])
                verdict = Verdict(name, label, is_true)
                verdicts.append(verdict)
        return verdicts

    def correction(self, column: int, rows: IntArray) -> correction_fit.Correction:
        """Learn from the answers for some pool items about a label."""
        sample = self.space.reference_sample_
        return fit_correction(
            self.projections[rows],
            self.pool_logits[rows, column],
            self.pool_truth[rows, column],
            sample.projections,
            self.reference_logits[:, column],
            sample.weights,
        )

    def played(self, strategy: str) -> Iterator[tuple[int, dict[int, IntArray]]]:
        """Ask about each unseen label, some items at a time; yield the rows asked about."""
        rows_by_column: dict[int, IntArray] = {}
        for column in self.unseen:
            rows_by_column[int(column)] = np.zeros(0, dtype=np.int64)
        n_answers = 0
        while n_answers < CLICKS[-1]:
            stops = [n_clicks for n_clicks in CLICKS if n_clicks > n_answers]
            n_next = min(n_answers + BATCH, *stops)
            for column, rows in rows_by_column.items():
                chosen = self._choose(column, rows, strategy, n_next - n_answers)
                rows_by_column[column] = np.append(rows, chosen).astype(np.int64)
            n_answers = n_next
            if n_answers in CLICKS:
                yield n_answers, dict(rows_by_column)

    def _choose(self, column: int, rows: IntArray, strategy: str, n_chosen: int) -> list[int]:
        """Choose the next pool items to ask about for a label, after answers on some rows."""
        logits = self.pool_logits[:, column].copy()
        if len(rows) and strategy != "random":
            correction = self.correction(column, rows)
            logits += self.projections @ correction.weights + correction.intercept
        # One block with one label: its logits, what was answered, and what is tagged (nothing).
        n_pool = len(logits)
        is_answered = np.zeros((n_pool, 1), dtype=bool)
        is_answered[rows] = True
        is_tagged = np.zeros_like(is_answered)
        blocks = [Block(0, logits[:, None], is_answered, is_tagged)]
        queries = choose(blocks.copy, n_chosen, strategy, self.generator)
        return [row for row, *_ in queries]

    def corrected(self, rows_by_column: dict[int, IntArray]) -> Matrix:
        """Return logits of test instances after the answers on some pool items for each label."""
        logits = self.test_logits.copy()
        projections = self.test_projections
        for column, rows in rows_by_column.items():
            correction = self.correction(column, rows)
            change = projections @ correction.weights
            change += correction.intercept
            logits[:, column] += change
        return logits

    def measured(self, logits: Matrix) -> dict[str, Any]:
        """Measure unseen labels on test instances that have one, and on all held-out ones."""
        scores = logits[:, self.unseen]
        truth = self.truth[:, self.unseen]
        rows = self.with_unseen
        tested_truth = truth[rows]
        tested_scores = scores[rows]
        values: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            example_quality = example_map(tested_truth, tested_scores)
            concept_quality = concept_map(tested_truth, tested_scores)
        values["E-MAP"] = 100 * example_quality
        values["C-MAP"] = 100 * concept_quality
        probabilities = sigmoid(scores)
        curve = reliability(truth, probabilities)
        values["calibration error"] = 100 * curve.expected_error
        n_true = max(truth.sum(), 1)
        n_expected = probabilities.sum()
        values["expected / true"] = float(n_expected / n_true)
        return values
