"""How far probabilities can be believed: reliability, log-loss, and the precision that is reached.

In: a `Trial` with features. Out: for seen, unseen and new labels, on held-out instances as they
come, what was predicted and what was true.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme import holdout
from polyseme._validation import IntArray, PolysemeWarning
from polyseme.corpus import LabelCorpus, Labels
from polyseme.metrics import concept_map, example_map, log_loss, reliability
from polyseme.splits import evaluation_columns
from polyseme.tagger import ZeroShotTagger
from polyseme.word_vectors import NOISE, SPREAD
from polyseme_experiments.embedding_cache import make_space
from polyseme_experiments.methods.base import Matrix, Method, Metrics, Outcome
from polyseme_experiments.methods.costa import (
    FLOOR,
    as_probabilities,
    costa_config,
    label_frequencies,
)
from polyseme_experiments.methods.default import default_config
from polyseme_experiments.sampling import RunConfig, word_vectors
from polyseme_experiments.trials import Trial

PRECISIONS = (0.2, 0.3, 0.5, 0.7, 0.9)
N_DRAWS = ZeroShotTagger().n_validations
# From how many documents a label may be known.
FEW = (1, 2, 5, 20)


@dataclass(frozen=True)
class Precision(Method):
    """Which share of given labels is true, where a precision is asked for."""

    features: ClassVar[bool] = True

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        numbers = {name: value for name, value in vars(holdout).items() if name.startswith("_")}
        constants = {name: one for name, one in numbers.items() if isinstance(one, (int, float))}
        asked = {"precisions": PRECISIONS, "n_validations": N_DRAWS, "validation": constants}
        return super().config(config) | default_config(config) | asked

    def run(self, trial: Trial) -> Outcome:
        """Ask for precisions of seen and unseen labels, all held-out instances."""
        tagger = trial.default_tagger("validated", N_DRAWS)
        probabilities = tagger.predict_proba(trial.features(trial.mixed))
        tested = trial.split.target.select(trial.mixed)
        metrics: Metrics = {}
        for name, chosen in evaluation_columns(trial.split.labels).items():
            if name not in ("training", "zsl-only"):
                continue
            truth = tested.align(chosen)[0][:, : len(chosen)].toarray().astype(bool)
            predicted = columns_of(probabilities, tagger.classes_, chosen, tested.key)
            metrics[name] = {}
            for asked in PRECISIONS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PolysemeWarning)
                    least = tagger.thresholds(asked)
                enough = columns_of(least[None], tagger.classes_, chosen, tested.key, np.inf)
                metrics[name] |= precision_reached(truth, predicted >= enough, asked)
        return metrics, trial.audit(tagger, trial.fit_inputs())


@dataclass(frozen=True)
class Calibration(Method):
    """Probabilities of seen and unseen labels, by the default or as tuned COSTA's scores."""

    features: ClassVar[bool] = True
    raw: bool = False  # whether tuned COSTA's scores are read as probabilities instead

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        learned = costa_config() | {"floor": FLOOR} if self.raw else default_config(config)
        return super().config(config) | learned | {"raw": self.raw}

    def run(self, trial: Trial) -> Outcome:
        """Compare probabilities with what held-out instances have."""
        ranker = trial.tuned_costa() if self.raw else trial.default_tagger()
        X = trial.features(trial.mixed)
        if isinstance(ranker, ZeroShotTagger):
            probabilities = ranker.predict_proba(X)
        else:
            probabilities = ranker.decision_function(X)
            probabilities = as_probabilities(probabilities, label_frequencies(trial, ranker))
        tested = trial.split.target.select(trial.mixed)
        metrics: Metrics = {}
        for name, chosen in evaluation_columns(trial.split.labels).items():
            if name not in ("training", "zsl-only"):
                continue
            truth = tested.align(chosen)[0][:, : len(chosen)].toarray().astype(bool)
            predicted = columns_of(probabilities, ranker.classes_, chosen, tested.key)
            metrics[name] = reliability_of(truth, predicted)
        return metrics, trial.audit(ranker, trial.fit_inputs())


@dataclass(frozen=True)
class NewLabelCalibration(Method):
    """A third of the unseen labels: learned, or new to a tagger that has documents or names."""

    features: ClassVar[bool] = True

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        words = None if config.quick else word_vectors(config.data).checksum
        added = {"few": FEW, "words": (SPREAD, NOISE)}
        return super().config(config) | default_config(config) | {"words": words, "late": added}

    def run(self, trial: Trial) -> Outcome:
        """Learn without some labels, then take the documents that hold them, or their names."""
        generator = np.random.default_rng(trial.seed)
        added = new_labels(trial, generator)
        X, tested = trial.features(trial.mixed), trial.split.target.select(trial.mixed)
        taught, tagger = trial.default_tagger(), self._without(trial, added)
        scores = taught.predict_proba(X)
        probabilities = {"taught": columns_of(scores, taught.classes_, added, tested.key)}
        # Without a document or a vector there is no hint: such a label is as likely everywhere.
        usual = tagger.space_.typical_frequency
        for name, grown in self._with_new(trial, tagger, added).items():
            scores = grown.predict_proba(X)
            probabilities[name] = columns_of(scores, grown.classes_, added, tested.key, usual)
        probabilities["chance"] = generator.random((len(X), len(added)))
        truth = tested.align(added)[0][:, : len(added)].toarray().astype(bool)
        metrics = {name: reliability_of(truth, one) for name, one in probabilities.items()}
        for name, one in probabilities.items() if truth.any() else ():
            metrics[name]["E-MAP"] = 100 * example_map(truth, one)
            metrics[name]["C-MAP"] = 100 * concept_map(truth, one)
        return metrics, trial.audit(taught, trial.fit_inputs())

    def _without(self, trial: Trial, added: Sequence[str]) -> ZeroShotTagger:
        """Return the default, fitted to documents without the new labels."""
        hidden = set(added)
        kept = [label for label in trial.known_documents.labels if label not in hidden]
        tagger = ZeroShotTagger(space=make_space(trial.config), random_state=trial.seed)
        return trial.fitted(tagger, trial.known_documents.restrict(kept))

    def _with_new(
        self, trial: Trial, tagger: ZeroShotTagger, added: Sequence[str]
    ) -> dict[str, ZeroShotTagger]:
        """Let the new labels turn up, in every way that is measured."""
        known = trial.known_documents
        holding = np.flatnonzero(np.diff(known.restrict(added).matrix.indptr))
        taggers = {"sample": _grow(tagger, known), "oov": _grow(tagger, known.select(holding))}
        order = shuffled_holders(known, added, np.random.default_rng((trial.seed, 1)))
        for n in FEW:
            taggers[f"new-{n}"] = _grow(tagger, picked(known, added, [rows[:n] for rows in order]))
        has = trial.word_vectors.label_vectors(added)[1]
        if has.any():
            taggers["named"] = copy(tagger)
            words = [label for label, one in zip(added, has, strict=True) if one]
            taggers["named"].add_labels(words, trial.word_vectors)
        return taggers


def new_labels(trial: Trial, generator: np.random.Generator) -> tuple[str, ...]:
    """Draw a third of the labels that are on no training instance, in the documents' order."""
    labels = trial.known_documents.labels
    matrix = trial.train_documents.align(labels)[0]
    unseen = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel()[: len(labels)] == 0)
    added = np.sort(generator.permutation(unseen)[: max(1, len(unseen) // 3)])
    return tuple(labels[column] for column in added)


def _grow(tagger: ZeroShotTagger, documents: LabelCorpus) -> ZeroShotTagger:
    """Return a tagger that knows further documents; the one that is given stays as it is."""
    grown = copy(tagger)
    # Without the new labels they are known already, under their own names.
    renamed = replace(documents, ids=tuple(f"again {name}" for name in documents.ids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        grown.add_documents(renamed)
    return grown


def shuffled_holders(
    known: LabelCorpus, added: Sequence[str], draws: np.random.Generator
) -> list[IntArray]:
    """Return for each new label the rows of documents that hold it and another, in random order."""
    is_new = np.isin(np.asarray(known.labels), added)
    placed = np.diff(sp.csr_matrix(known.matrix[:, ~is_new]).indptr) > 0
    matrix = known.align(added)[0][:, : len(added)].toarray() & placed[:, None]
    return [draws.permutation(np.flatnonzero(holds)) for holds in matrix.T]


def picked(known: LabelCorpus, added: Sequence[str], rows: Sequence[IntArray]) -> LabelCorpus:
    """Return documents that hold a new label only in the rows that were picked for it."""
    place = {label: column for column, label in enumerate(known.labels)}
    chosen = np.unique(np.concatenate(rows))
    matrix = known.matrix[chosen].toarray()
    for label, mine in zip(added, rows, strict=True):
        matrix[:, place[label]] = np.isin(chosen, mine)
    return replace(known.select(chosen), matrix=sp.csr_matrix(matrix))


def columns_of(
    table: Matrix,
    labels: Labels,
    chosen: Sequence[str],
    key: Callable[[str], str],
    missing: float = 0.0,
) -> Matrix:
    """Return some labels' columns of a table, (n, n_chosen), compared by `key`."""
    place = {key(label): column for column, label in enumerate(labels)}
    others = np.full((len(table), 1), missing)
    return np.hstack([table, others])[:, [place.get(key(label), -1) for label in chosen]]


def reliability_of(truth: NDArray[np.bool_], probabilities: Matrix) -> dict[str, Any]:
    """Return calibration error and base rate (%), log-loss, expected for each true, the curve."""
    curve = reliability(truth, probabilities)
    filled = curve.counts > 0
    return {
        "calibration error": 100 * curve.expected_error,
        "log-loss": log_loss(truth, probabilities),
        "true": 100 * float(truth.mean()),
        "expected / true": float(probabilities.sum() / max(truth.sum(), 1)),
        "curve": {
            "counts": curve.counts[filled].tolist(),
            "predicted": curve.predicted[filled].round(6).tolist(),
            "observed": curve.observed[filled].round(6).tolist(),
        },
    }


def precision_reached(
    truth: NDArray[np.bool_], given: NDArray[np.bool_], precision: float
) -> dict[str, float | None]:
    """Return the precision that was reached (%), and the share of true labels that were given."""
    right = float((truth & given).sum())
    asked = f"{100 * precision:.0f} %"
    return {
        f"reached of {asked}": 100 * right / given.sum() if given.any() else None,
        f"found at {asked}": 100 * right / max(truth.sum(), 1),
    }
