"""What items without tags and answers to questions bring, for labels that nobody has shown.

In: a `Trial` with features. Of its training instances 60 % are tagged; the others, and all known
ones with an unseen label, are the pool: features only, their tag sets among the documents but not
linked. Out: metrics of test instances, after a pool and after so many answers for a label.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme import baselines, corrections, feedback
from polyseme._validation import IntArray, PolysemeWarning
from polyseme.calibration import sigmoid
from polyseme.corpus import LabelCorpus
from polyseme.corrections import correct
from polyseme.feedback import Block, choose
from polyseme.metrics import concept_map, example_map, reliability
from polyseme.space import ConceptSpace
from polyseme.tagger import ZeroShotTagger
from polyseme.training import pool_targets
from polyseme.verdicts import Verdict
from polyseme_experiments.embedding_cache import make_space
from polyseme_experiments.leakage import FitInputs
from polyseme_experiments.methods.base import Matrix, Method, Metrics, Outcome, System
from polyseme_experiments.methods.default import default_config
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.trials import Trial

TAGGED = 0.6
# Answers for each unseen label at which quality is measured, and how many are given at a time.
CLICKS = (3, 10, 30, 100)
BATCH = 10
STRATEGIES = ("likeliest", "active", "random")
# Answers for each label that the whole new fit learns from.
REFIT = 30


# Constants of corrections that decide what answers teach; and how their optimum was looked for when
# the first records were made. It is looked for in a quicker way since, and found within the same
# tolerance, so that those records still say what is learned.
_DECIDE = ("STRENGTHS", "OFFSET", "SKETCH")
_SOLVED = {"_STEPS": "30", "_SMALL": "1e-06", "_DUAL": "600"}


class Split(NamedTuple):
    """Rows of the target: tagged instances, the pool, and the known documents."""

    tagged: IntArray
    pool: IntArray
    known: IntArray


def split_of(trial: Trial) -> Split:
    """Draw which training instances keep their tags."""
    place = {name: row for row, name in enumerate(trial.split.target.ids)}
    known = np.array([place[name] for name in trial.known_documents.ids], dtype=np.int64)
    train = np.random.default_rng((trial.seed, 17)).permutation(trial.split.train)
    tagged = np.sort(train[: int(TAGGED * len(train))])
    return Split(tagged, np.setdiff1d(known, tagged), known)


def tagger_config(config: RunConfig) -> dict[str, Any]:
    """Return all that decides what the default learns here, sizes of samples included."""
    learned = default_config(config)
    samples: dict[str, Callable[..., Any]] = {
        "polyseme.space._BACKGROUND": ConceptSpace._keep_background,
        "polyseme.training._MATCHED": pool_targets,
    }
    for name, function in samples.items():
        learned["constants"][name] = repr(signature(function).parameters["most"].default)
    return learned


def pool_config(config: RunConfig, learned: dict[str, Any]) -> dict[str, Any]:
    """Return all that decides what is learned with a pool and answers."""
    constants = {name: repr(getattr(corrections, name)) for name in _DECIDE} | _SOLVED
    constants["STRATEGIES"] = repr(feedback.STRATEGIES)
    plan = make_space(config).planned(10_000)
    of_pool = {name: getattr(plan, name) for name in vars(plan) if "pool" in name}
    return learned | {"tagged": TAGGED, "of_pool": of_pool, "corrections": constants}


@dataclass(frozen=True)
class PoolSystem(System):
    """The default, or a baseline, with or without a pool."""

    way: str = "pool"  # or "none", "gauged", "ceiling", or for a baseline "clicks"
    estimator: str | None = None  # a baseline in place of the default

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        asked = {"way": self.way, "estimator": self.estimator, "tagged": TAGGED}
        described = super().config(config) | {"asked": asked}
        # What the default learns decides nothing of a baseline.
        learned = tagger_config(config) if self.estimator is None else {}
        if self.way in ("none", "ceiling"):
            return described | learned
        return described | pool_config(config, learned)

    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Score instances; see `System.scores`."""
        if self.estimator is None:
            fitted: Any = tagger_of(trial, self.way)
            return fitted, fitted.predict_proba(X)
        made = getattr(baselines, self.estimator)(random_state=trial.seed)
        pool = None if self.way == "none" else trial.features(split_of(trial).pool)
        fitted = fit(trial, made, pool)
        if self.way == "clicks":
            scores = fitted.decision_function(pool)
            said = answered(trial, [str(label) for label in fitted.classes_], scores)
            fitted = fit(trial, made, pool, verdicts=said)
        return fitted, fitted.decision_function(X)

    def run(self, trial: Trial) -> Outcome:
        """Score the test instances; the ceiling is shown what nothing else may see."""
        fitted, scores = self.scores(trial, trial.features(trial.split.test))
        metrics: Metrics = trial.measure(scores, fitted.classes_, oov=False)
        if self.way == "gauged":
            said = fitted.validation_
            metrics["gauge"] = {
                "used": float(fitted.pooled_),
                "foretold": None if said is None else 100 * (said.pool_gain or 0.0),
                "answers foretold": None if said is None else 100 * (said.click_gain or 0.0),
            }
        if self.way == "ceiling":
            return metrics, trial.audit()
        return metrics, audited(trial, fitted)


def answered(trial: Trial, labels: list[str], scores: Matrix) -> sp.csr_matrix:
    """Answer for the likeliest pool items of each unseen label, (n_pool, n_labels)."""
    target, pool = trial.split.target, split_of(trial).pool
    truth = target.select(pool).align(labels)[0][:, : len(labels)].toarray().astype(bool)
    unseen = {target.key(label) for label in trial.split.labels.unseen}
    said = np.zeros(scores.shape)
    for column in np.flatnonzero([target.key(label) in unseen for label in labels]):
        rows = np.argsort(-scores[:, column], kind="stable")[:REFIT]
        said[rows, column] = np.where(truth[rows, column], 1.0, -1.0)
    return sp.csr_matrix(said)


def inputs(trial: Trial) -> FitInputs:
    """Return the very objects that taggers and baselines are fitted with, for the audit."""
    rows = split_of(trial).tagged
    X, documents = trial.features(rows), trial.split.target.select(rows)
    return FitInputs(X, documents, trial.known_documents)


def audited(trial: Trial, fitted: Any) -> dict[str, Any]:
    """Audit the split, the documents and what was learned; tagged instances are some of it."""
    split = split_of(trial)
    if not set(split.tagged.tolist()) <= set(trial.split.train.tolist()):
        raise AssertionError("an instance is tagged that is not among those to train on")
    if set(split.pool.tolist()) & set(trial.mixed.tolist()):
        raise AssertionError("an instance of the pool is held out")
    return trial.audit(fitted, FitInputs(semantics=trial.known_documents))


def fit(trial: Trial, ranker: Any, pool: NDArray[np.float32] | None, **more: Any) -> Any:
    """Fit a ranker to the tagged instances, and a pool where there is one, without warnings."""
    given = inputs(trial)
    if pool is not None:
        more["unlabelled"] = pool
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        return ranker.fit(given.X, given.documents, given.semantics, label_sets_only=True, **more)


def tagger_of(trial: Trial, way: str) -> ZeroShotTagger:
    """Return the default without a pool, with it, as the gauge decides, or at the ceiling."""

    def new(n_validations: int = 0) -> ZeroShotTagger:
        return ZeroShotTagger(
            space=make_space(trial.config), n_validations=n_validations, random_state=trial.seed
        )

    split = split_of(trial)
    if way == "ceiling":
        known, target = split.known, trial.split.target

        def ceiling() -> ZeroShotTagger:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PolysemeWarning)
                return new().fit(trial.features(known), target.select(known))

        return trial.part("pool, ceiling", ceiling)
    pool = trial.features(split.pool)
    if way == "gauged":
        gauged: ZeroShotTagger = trial.part("pool, gauged", lambda: fit(trial, new(2), pool))
        return gauged
    # With the same seed the gauged tagger is one of the two.
    decided, wanted = tagger_of(trial, "gauged"), way == "pool"
    if decided.pooled_ == wanted:
        return decided
    other: ZeroShotTagger = trial.part(
        f"pool, {way}", lambda: fit(trial, new(), pool if wanted else None)
    )
    return other


@dataclass(frozen=True)
class Clicks(Method):
    """Answers to questions about pool items, up to a hundred for each unseen label."""

    features: ClassVar[bool] = True

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        asked = {"clicks": CLICKS, "batch": BATCH, "strategies": STRATEGIES, "refit": REFIT}
        learned = pool_config(config, tagger_config(config))
        return super().config(config) | learned | {"asked": asked}

    def run(self, trial: Trial) -> Outcome:
        """Ask, learn in closed form, and measure; then fit anew with the same answers."""
        tagger = tagger_of(trial, "gauged")
        game = Game(trial, tagger)
        metrics: Metrics = {"none 0": game.measured(game.test_logits)}
        for strategy in STRATEGIES:
            start = time.perf_counter()
            for n_clicks, answered in game.played(strategy):
                metrics[f"{strategy} {n_clicks}"] = game.measured(game.corrected(answered))
                if strategy == "active" and n_clicks == REFIT:
                    game.answers = answered
            metrics[strategy] = {"seconds": time.perf_counter() - start}
        start = time.perf_counter()
        names = [str(row) for row in range(len(game.pool))]
        said = [
            Verdict(names[row], str(tagger.classes_[column]), bool(game.pool_truth[row, column]))
            for column, rows in game.answers.items()
            for row in rows.tolist()
        ]
        pool = trial.features(split_of(trial).pool)
        again = ZeroShotTagger(
            space=make_space(trial.config), n_validations=0, random_state=trial.seed
        )
        fit(trial, again, pool, verdicts=said)
        metrics["refit"] = {"seconds": time.perf_counter() - start}
        metrics[f"refit {REFIT}"] = game.measured(again.decision_function(game.X_test))
        return metrics, audited(trial, tagger)


class Game:
    """The pool's truth, which answers questions, and what the tagger says of pool and test."""

    def __init__(self, trial: Trial, tagger: ZeroShotTagger) -> None:
        split, labels = split_of(trial), [str(label) for label in tagger.classes_]
        self.pool, self.space = split.pool, tagger.space_
        self.X_test = trial.features(trial.mixed)
        X = trial.features(split.pool)

        def truth(corpus: LabelCorpus) -> NDArray[np.bool_]:
            return corpus.align(labels)[0][:, : len(labels)].toarray().astype(bool)

        target = trial.split.target
        self.pool_truth = truth(target.select(split.pool))
        self.truth = truth(target.select(trial.mixed))
        key = {target.key(label) for label in trial.split.labels.unseen}
        self.unseen = np.flatnonzero([target.key(label) in key for label in labels])
        self.with_unseen = self.truth[:, self.unseen].any(axis=1)
        self.pool_logits = tagger.decision_function(X)
        self.test_logits = tagger.decision_function(self.X_test)
        background = self.space.background_
        # Logits of the tagger as it is; it has been told nothing yet.
        self.usual = tagger._show(tagger._reading.plain_logits(background.codes), -np.inf)
        self.sketches = self.space.sketch(X.astype(np.float64))
        self.test_sketches = self.space.sketch(self.X_test.astype(np.float64))
        self.generator = np.random.default_rng(trial.seed)
        self.answers: dict[int, IntArray] = {}

    def correction(self, column: int, rows: IntArray) -> corrections.Correction:
        """Learn from the answers for some pool items about a label."""
        background = self.space.background_
        return correct(
            self.sketches[rows],
            self.pool_logits[rows, column],
            self.pool_truth[rows, column],
            background.sketches,
            self.usual[:, column],
            background.weights,
        )

    def played(self, strategy: str) -> Iterator[tuple[int, dict[int, IntArray]]]:
        """Ask about each unseen label, some items at a time; yield who was asked about."""
        asked: dict[int, IntArray] = {int(c): np.zeros(0, dtype=np.int64) for c in self.unseen}
        done = 0
        while done < CLICKS[-1]:
            upto = min([done + BATCH, *(n for n in CLICKS if n > done)])
            for column, rows in asked.items():
                logits = self.pool_logits[:, column].copy()
                if len(rows) and strategy != "random":
                    found = self.correction(column, rows)
                    logits += self.sketches @ found.weights + found.intercept
                answered = np.zeros((len(logits), 1), dtype=bool)
                answered[rows] = True
                blocks = [Block(0, logits[:, None], answered, np.zeros_like(answered))]
                chosen = choose(blocks.copy, upto - done, strategy, self.generator)
                asked[column] = np.append(rows, [row for row, _, _, _ in chosen]).astype(np.int64)
            done = upto
            if done in CLICKS:
                yield done, dict(asked)

    def corrected(self, asked: dict[int, IntArray]) -> Matrix:
        """Return logits of test instances after the answers."""
        logits = self.test_logits.copy()
        for column, rows in asked.items():
            found = self.correction(column, rows)
            logits[:, column] += self.test_sketches @ found.weights + found.intercept
        return logits

    def measured(self, logits: Matrix) -> dict[str, Any]:
        """Measure unseen labels on test instances that have one, and on all held-out ones."""
        metrics: dict[str, Callable[..., float]] = {"E-MAP": example_map, "C-MAP": concept_map}
        scores, true = logits[:, self.unseen], self.truth[:, self.unseen]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            measured: dict[str, Any] = {
                name: 100 * metric(true[self.with_unseen], scores[self.with_unseen])
                for name, metric in metrics.items()
            }
        likely = sigmoid(scores)
        measured["calibration error"] = 100 * reliability(true, likely).expected_error
        measured["expected / true"] = float(likely.sum() / max(true.sum(), 1))
        return measured
