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

from polyseme.base.validation import IntArray, PolysemeWarning
from polyseme.documents.corpus import LabelCorpus, Labels
from polyseme.documents.word_vectors import COSINE_SPREAD, LABEL_NOISE
from polyseme.fitting import holdout_validation
from polyseme.metrics import concept_map, example_map, log_loss, reliability
from polyseme.space import calibration
from polyseme.tagger import ZeroShotTagger
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
from polyseme_experiments.splits import evaluation_columns
from polyseme_experiments.trials import Trial

PRECISIONS = (0.2, 0.3, 0.5, 0.7, 0.9)
N_DRAWS = ZeroShotTagger().n_validations
# Constants that decide what a validation measures, by the names that they had when the first
# records were made.
_VALIDATION_CONSTANTS = {
    "_ITEMS": holdout_validation._HELD_OUT_SHARE,
    "_LABELS": holdout_validation._HIDDEN_SHARE,
    "_CARRYING": holdout_validation._MOST_CARRYING,
    "_FEWEST_ITEMS": holdout_validation._FEWEST_ITEMS,
    "_FEWEST_LABELS": holdout_validation._FEWEST_LABELS,
    "_MOST_TESTED": holdout_validation._MOST_TESTED,
    "_CUT": holdout_validation._DEFAULT_THRESHOLD,
    "_FEWEST_GIVEN": calibration._FEWEST_GIVEN,
    "_FEWEST_WRONG": calibration._FEWEST_WRONG,
    "_EXPECTED": calibration._EXPECTED_COUNT,
    "_FEWEST_SHARING": calibration._FEWEST_SHARING,
    "_CAUTION": calibration._STANDARD_ERRORS,
    "_MOST_READ": calibration._MOST_READ,
}
# From how many documents a label may be known.
FEW = (1, 2, 5, 20)


@dataclass(frozen=True)
class Precision(Method):
    """Which share of given labels is true, where a precision is asked for."""

    features: ClassVar[bool] = True

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        described = super().config(config)
        described |= default_config(config)
        described["precisions"] = PRECISIONS
        described["n_validations"] = N_DRAWS
        described["validation"] = _VALIDATION_CONSTANTS
        return described

    def run(self, trial: Trial) -> Outcome:
        """Ask for precisions of seen and unseen labels, all held-out instances."""
        tagger = trial.default_tagger("validated", N_DRAWS)
        X = trial.features(trial.mixed)
        probabilities = tagger.predict_proba(X)
        tested = trial.split.target.select(trial.mixed)
        columns = evaluation_columns(trial.split.labels)
        metrics: Metrics = {}
        for name in ("training", "zsl-only"):
            if name not in columns:
                continue
            labels = columns[name]
            truth = truth_of(tested, labels)
            predicted = columns_of(probabilities, tagger.classes_, labels, tested.key)
            metrics[name] = {}
            for precision in PRECISIONS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PolysemeWarning)
                    thresholds = tagger.thresholds(precision)
                row = columns_of(thresholds[None], tagger.classes_, labels, tested.key, np.inf)
                assigned = predicted >= row
                metrics[name] |= precision_reached(truth, assigned, precision)
        audit = trial.audit(tagger, trial.fit_inputs())
        return metrics, audit


@dataclass(frozen=True)
class Calibration(Method):
    """Probabilities of seen and unseen labels, by the default or as tuned COSTA's scores."""

    features: ClassVar[bool] = True
    raw: bool = False  # whether tuned COSTA's scores are read as probabilities instead

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        described = super().config(config)
        if self.raw:
            described |= costa_config()
            described["floor"] = FLOOR
        else:
            described |= default_config(config)
        described["raw"] = self.raw
        return described

    def run(self, trial: Trial) -> Outcome:
        """Compare probabilities with what held-out instances have."""
        ranker = trial.tuned_costa() if self.raw else trial.default_tagger()
        X = trial.features(trial.mixed)
        if isinstance(ranker, ZeroShotTagger):
            probabilities = ranker.predict_proba(X)
        else:
            scores = ranker.decision_function(X)
            frequencies = label_frequencies(trial, ranker)
            probabilities = as_probabilities(scores, frequencies)
        tested = trial.split.target.select(trial.mixed)
        columns = evaluation_columns(trial.split.labels)
        metrics: Metrics = {}
        for name in ("training", "zsl-only"):
            if name not in columns:
                continue
            labels = columns[name]
            truth = truth_of(tested, labels)
            predicted = columns_of(probabilities, ranker.classes_, labels, tested.key)
            metrics[name] = reliability_of(truth, predicted)
        return metrics, trial.audit(ranker, trial.fit_inputs())


@dataclass(frozen=True)
class NewLabelCalibration(Method):
    """A third of the unseen labels: learned, or new to a tagger that has documents or names."""

    features: ClassVar[bool] = True

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        described = super().config(config)
        described |= default_config(config)
        described["words"] = None
        if not config.quick:
            vectors = word_vectors(config.data)
            described["words"] = vectors.checksum
        described["late"] = {"few": FEW, "words": (COSINE_SPREAD, LABEL_NOISE)}
        return described

    def run(self, trial: Trial) -> Outcome:
        """Learn without some labels, then take the documents that hold them, or their names."""
        generator = np.random.default_rng(trial.seed)
        added = new_labels(trial, generator)
        X = trial.features(trial.mixed)
        tested = trial.split.target.select(trial.mixed)
        taught = trial.default_tagger()
        tagger = self._without(trial, added)
        scores = taught.predict_proba(X)
        probabilities = {"taught": columns_of(scores, taught.classes_, added, tested.key)}
        # Without a document or a vector there is no hint: such a label is as likely everywhere.
        default = tagger.space_.typical_frequency
        for name, grown in self._with_new(trial, tagger, added).items():
            scores = grown.predict_proba(X)
            probabilities[name] = columns_of(scores, grown.classes_, added, tested.key, default)
        probabilities["chance"] = generator.random((len(X), len(added)))

        truth = truth_of(tested, added)
        metrics = {}
        for name, predicted in probabilities.items():
            metrics[name] = reliability_of(truth, predicted)
            if truth.any():
                metrics[name]["E-MAP"] = 100 * example_map(truth, predicted)
                metrics[name]["C-MAP"] = 100 * concept_map(truth, predicted)
        audit = trial.audit(taught, trial.fit_inputs())
        return metrics, audit

    def _without(self, trial: Trial, added: Sequence[str]) -> ZeroShotTagger:
        """Return the default, fitted to documents without the new labels."""
        hidden = set(added)
        documents = trial.known_documents
        labels = []
        for label in documents.labels:
            if label not in hidden:
                labels.append(label)
        space = make_space(trial.config)
        tagger = ZeroShotTagger(space=space, random_state=trial.seed)
        return trial.fitted(tagger, documents.restrict(labels))

    def _with_new(
        self, trial: Trial, tagger: ZeroShotTagger, added: Sequence[str]
    ) -> dict[str, ZeroShotTagger]:
        """Let the new labels turn up, in every way that is measured."""
        documents = trial.known_documents
        matrix = documents.restrict(added).matrix
        holders = np.flatnonzero(np.diff(matrix.indptr))
        taggers = {
            "sample": _grow(tagger, documents),
            "oov": _grow(tagger, documents.select(holders)),
        }
        draws = np.random.default_rng((trial.seed, 1))
        holders_by_label = shuffled_holders(documents, added, draws)
        for n_documents in FEW:
            rows = [holders[:n_documents] for holders in holders_by_label]
            sample = picked(documents, added, rows)
            taggers[f"new-{n_documents}"] = _grow(tagger, sample)

        _, has_vector = trial.word_vectors.label_vectors(added)
        if has_vector.any():
            named = copy(tagger)
            labels = [added[place] for place in np.flatnonzero(has_vector).tolist()]
            named.add_labels(labels, trial.word_vectors)
            taggers["named"] = named
        return taggers


def new_labels(trial: Trial, generator: np.random.Generator) -> tuple[str, ...]:
    """Draw a third of the labels that are on no training instance, in the documents' order."""
    labels = trial.known_documents.labels
    n_labels = len(labels)
    matrix, _ = trial.train_documents.align(labels)
    sums = matrix.sum(axis=0)
    counts = np.asarray(sums).ravel()
    is_unseen = counts[:n_labels] == 0
    unseen = np.flatnonzero(is_unseen)
    n_added = max(1, len(unseen) // 3)
    shuffled = generator.permutation(unseen)
    columns = np.sort(shuffled[:n_added])
    return tuple(labels[column] for column in columns)


def _grow(tagger: ZeroShotTagger, documents: LabelCorpus) -> ZeroShotTagger:
    """Return a copy of a tagger that knows further documents."""
    grown = copy(tagger)
    # Without the new labels they are known already, under their own names.
    names = tuple(f"again {name}" for name in documents.ids)
    renamed = replace(documents, ids=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        grown.add_documents(renamed)
    return grown


def shuffled_holders(
    documents: LabelCorpus, added: Sequence[str], draws: np.random.Generator
) -> list[IntArray]:
    """Return for each new label the rows of documents that hold it and another, in random order."""
    labels = np.asarray(documents.labels)
    is_new = np.isin(labels, added)
    is_former = ~is_new
    former = documents.matrix[:, is_former]
    former = sp.csr_matrix(former)
    n_former = np.diff(former.indptr)
    holds_former = n_former > 0
    holds_added = truth_of(documents, added)
    holders = []
    for column in holds_added.T:
        holds_both = column & holds_former
        rows = np.flatnonzero(holds_both)
        shuffled = draws.permutation(rows)
        holders.append(shuffled)
    return holders


def picked(documents: LabelCorpus, added: Sequence[str], rows: Sequence[IntArray]) -> LabelCorpus:
    """Return documents that hold a new label only in the rows that were picked for it."""
    chosen = np.unique(np.concatenate(rows))
    sample = documents.select(chosen)
    labels = list(documents.labels)
    matrix = sample.matrix.toarray()
    for label, label_rows in zip(added, rows, strict=True):
        column = labels.index(label)
        is_holder = np.isin(chosen, label_rows)
        matrix[:, column] = is_holder
    sparse_matrix = sp.csr_matrix(matrix)
    return replace(sample, matrix=sparse_matrix)


def truth_of(documents: LabelCorpus, labels: Sequence[str]) -> NDArray[np.bool_]:
    """Return which documents hold which labels, (n_documents, n_labels)."""
    n_labels = len(labels)
    aligned, _ = documents.align(labels)
    # Columns beyond these are for labels that were not asked for.
    matrix = aligned[:, :n_labels]
    table = matrix.toarray()
    return table.astype(bool)


def columns_of(
    table: Matrix,
    labels: Labels,
    chosen: Sequence[str],
    key: Callable[[str], str],
    missing: float = 0.0,
) -> Matrix:
    """Return some labels' columns of a table, (n, n_chosen), compared by `key`."""
    column_by_key = {}
    for column, label in enumerate(labels):
        column_by_key[key(label)] = column
    # The last column is for labels that the table lacks.
    filler = np.full((len(table), 1), missing)
    extended = np.hstack([table, filler])
    columns = []
    for label in chosen:
        label_key = key(label)
        column = column_by_key.get(label_key, -1)
        columns.append(column)
    return extended[:, columns]


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
    truth: NDArray[np.bool_], assigned: NDArray[np.bool_], precision: float
) -> dict[str, float | None]:
    """Return the precision that was reached and the recall, in percent."""
    n_right = float((truth & assigned).sum())
    n_assigned = assigned.sum()
    reached = None
    if n_assigned > 0:
        reached = 100 * n_right / n_assigned
    recall = 100 * n_right / max(truth.sum(), 1)
    target = f"{100 * precision:.0f} %"
    return {
        f"reached of {target}": reached,
        f"found at {target}": recall,
    }
