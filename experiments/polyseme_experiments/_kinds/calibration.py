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

from polyseme._validation import IntArray, PolysemeWarning
from polyseme.corpus import LabelCorpus, Labels
from polyseme.metrics import concept_map, example_map, log_loss, reliability
from polyseme.splits import evaluation_columns
from polyseme.tagger import ZeroShotTagger
from polyseme.word_vectors import NOISE, SPREAD
from polyseme_experiments._kinds.costa import (
    FLOOR,
    as_probabilities,
    costa_config,
    label_frequencies,
)
from polyseme_experiments._kinds.method import Method, Metrics
from polyseme_experiments._kinds.systems import default_config
from polyseme_experiments.draws import Conditions, word_vectors
from polyseme_experiments.spaces import make_space
from polyseme_experiments.trials import Trial

Matrix = NDArray[np.float64]
PRECISIONS = (0.3, 0.5, 0.7)
# From how many documents a label may be known.
FEW = (1, 2, 5, 20)


@dataclass(frozen=True)
class Calibration(Method):
    """Probabilities of seen and unseen labels, by the default or as tuned COSTA's scores.

    Attributes
    ----------
    raw : bool
        Whether tuned COSTA's scores are read as probabilities instead.
    """

    features: ClassVar[bool] = True
    raw: bool = False

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        learned = costa_config() | {"floor": FLOOR} if self.raw else default_config(conditions)
        return super().config(conditions) | learned | {"raw": self.raw}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Compare probabilities with what held-out instances have."""
        ranker = trial.tuned_costa() if self.raw else trial.default_tagger()
        X = trial.features(trial.mixed)
        least: dict[float, Matrix] = {}
        if isinstance(ranker, ZeroShotTagger):
            probabilities = ranker.predict_proba(X)
            least = {one: ranker.thresholds(one) for one in PRECISIONS}
        else:
            probabilities = ranker.decision_function(X)
            probabilities = as_probabilities(probabilities, label_frequencies(trial, ranker))
        tested = trial.split.target.select(trial.mixed)
        found: Metrics = {}
        for name, chosen in evaluation_columns(trial.split.labels).items():
            if name not in ("training", "zsl-only"):
                continue
            truth = tested.align(chosen)[0][:, : len(chosen)].toarray().astype(bool)
            given = columns_of(probabilities, ranker.classes_, chosen, tested.key)
            found[name] = believed(truth, given)
            for asked, thresholds in least.items():
                enough = columns_of(thresholds[None], ranker.classes_, chosen, tested.key, 1.0)
                found[name] |= reached(truth, given >= enough, asked)
        return found, trial.audit(ranker, trial.given())


@dataclass(frozen=True)
class LateCalibration(Method):
    """A third of the unseen labels: learned, or new to a tagger that has documents or names."""

    features: ClassVar[bool] = True

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        words = None if conditions.quick else word_vectors(conditions.data).checksum
        late = {"few": FEW, "words": (SPREAD, NOISE)}
        return (
            super().config(conditions) | default_config(conditions) | {"words": words, "late": late}
        )

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Learn without some labels, then take the documents that hold them, or their names."""
        generator = np.random.default_rng(trial.seed)
        late = late_labels(trial, generator)
        X, tested = trial.features(trial.mixed), trial.split.target.select(trial.mixed)
        taught, tagger = trial.default_tagger(), self._without(trial, late)
        scores = taught.predict_proba(X)
        probabilities = {"taught": columns_of(scores, taught.classes_, late, tested.key)}
        # Without a document or a vector there is no hint: such a label is as likely everywhere.
        usual = tagger.space_.typical_frequency
        for name, grown in self._grown(trial, tagger, late).items():
            scores = grown.predict_proba(X)
            probabilities[name] = columns_of(scores, grown.classes_, late, tested.key, usual)
        probabilities["chance"] = generator.random((len(X), len(late)))
        truth = tested.align(late)[0][:, : len(late)].toarray().astype(bool)
        found = {name: self._measured(truth, one) for name, one in probabilities.items()}
        for precision in PRECISIONS:
            least = tagger.space_.thresholds(precision)[1]
            found["oov"] |= reached(truth, probabilities["oov"] >= least, precision)
        return found, trial.audit(taught, trial.given())

    def _without(self, trial: Trial, late: Sequence[str]) -> ZeroShotTagger:
        """Give the default, fitted to documents without the new labels."""
        hidden = set(late)
        kept = [label for label in trial.known_documents.labels if label not in hidden]
        return trial.fitted(make_space(trial.conditions), trial.known_documents.restrict(kept))

    def _grown(
        self, trial: Trial, tagger: ZeroShotTagger, late: Sequence[str]
    ) -> dict[str, ZeroShotTagger]:
        """Let the new labels turn up, in every way that is measured."""
        known = trial.known_documents
        holding = np.flatnonzero(np.diff(known.restrict(late).matrix.indptr))
        found = {"sample": grow(tagger, known), "oov": grow(tagger, known.select(holding))}
        order = shuffled_holders(known, late, np.random.default_rng((trial.seed, 1)))
        for n in FEW:
            found[f"new-{n}"] = grow(tagger, picked(known, late, [rows[:n] for rows in order]))
        has = trial.word_vectors.label_vectors(late)[1]
        if has.any():
            found["named"] = copy(tagger)
            words = [label for label, one in zip(late, has, strict=True) if one]
            found["named"].add_labels(words, trial.word_vectors)
        return found

    def _measured(self, truth: NDArray[np.bool_], probabilities: Matrix) -> dict[str, Any]:
        """Measure ranks and probabilities."""
        found: dict[str, Any] = believed(truth, probabilities)
        if truth.any():
            found["E-MAP"] = 100 * example_map(truth, probabilities)
            found["C-MAP"] = 100 * concept_map(truth, probabilities)
        return found


def late_labels(trial: Trial, generator: np.random.Generator) -> tuple[str, ...]:
    """Draw a third of the labels that are on no training instance, in the documents' order."""
    labels = trial.known_documents.labels
    matrix = trial.train_documents.align(labels)[0]
    unseen = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel()[: len(labels)] == 0)
    late = np.sort(generator.permutation(unseen)[: max(1, len(unseen) // 3)])
    return tuple(labels[column] for column in late)


def grow(tagger: ZeroShotTagger, documents: LabelCorpus) -> ZeroShotTagger:
    """Give a tagger that knows further documents; the one that is given stays as it is."""
    grown = copy(tagger)
    # Without the new labels they are known already, under their own names.
    renamed = replace(documents, ids=tuple(f"again {name}" for name in documents.ids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        grown.add_documents(renamed)
    return grown


def shuffled_holders(
    known: LabelCorpus, late: Sequence[str], draws: np.random.Generator
) -> list[IntArray]:
    """Give the documents that hold each new label and some other, in random order.

    Parameters
    ----------
    known : LabelCorpus
    late : sequence of str
    draws : numpy.random.Generator

    Returns
    -------
    list of int64 arrays, one for each label
    """
    is_late = np.isin(np.asarray(known.labels), late)
    placed = np.diff(sp.csr_matrix(known.matrix[:, ~is_late]).indptr) > 0
    matrix = known.align(late)[0][:, : len(late)].toarray() & placed[:, None]
    return [draws.permutation(np.flatnonzero(holds)) for holds in matrix.T]


def picked(known: LabelCorpus, late: Sequence[str], rows: Sequence[IntArray]) -> LabelCorpus:
    """Give documents that hold a new label only where they were picked for it.

    Parameters
    ----------
    known : LabelCorpus
    late : sequence of str
    rows : sequence of int64 arrays, one for each label

    Returns
    -------
    LabelCorpus
    """
    place = {label: column for column, label in enumerate(known.labels)}
    chosen = np.unique(np.concatenate(rows))
    matrix = known.matrix[chosen].toarray()
    for label, mine in zip(late, rows, strict=True):
        matrix[:, place[label]] = np.isin(chosen, mine)
    return replace(known.select(chosen), matrix=sp.csr_matrix(matrix))


def columns_of(
    table: Matrix,
    labels: Labels,
    chosen: Sequence[str],
    key: Callable[[str], str],
    missing: float = 0.0,
) -> Matrix:
    """Give some labels' columns of a table.

    Parameters
    ----------
    table : float64 array, shape (n, n_labels)
    labels : sequence of str
        Its columns.
    chosen : sequence of str
    key : callable
        Gives what labels are compared by.
    missing : float
        What a label without a column gets.

    Returns
    -------
    float64 array, shape (n, n_chosen)
    """
    place = {key(label): column for column, label in enumerate(labels)}
    found = np.full((len(table), len(chosen)), missing)
    for at, label in enumerate(chosen):
        if (column := place.get(key(label))) is not None:
            found[:, at] = table[:, column]
    return found


def believed(truth: NDArray[np.bool_], probabilities: Matrix) -> dict[str, Any]:
    """Give calibration error and base rate (%), log-loss, expected for each true, the curve."""
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


def reached(
    truth: NDArray[np.bool_], given: NDArray[np.bool_], precision: float
) -> dict[str, float | None]:
    """Give the precision that was reached (%), and the share of true labels that were given."""
    right = float((truth & given).sum())
    asked = f"{100 * precision:.0f} %"
    return {
        f"reached of {asked}": 100 * right / given.sum() if given.any() else None,
        f"found at {asked}": 100 * right / max(truth.sum(), 1),
    }
