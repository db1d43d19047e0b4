"""Tuned COSTA beyond its scores of the test instances: on the natural mix, and calibrated.

In: a `Trial` with features. Out: metrics of tuned COSTA's label scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.base.folds import fold_numbers
from polyseme.base.validation import check_instances
from polyseme.documents.label_sets import training_tables
from polyseme.space.calibration import expected_frequencies, logit, match_frequencies
from polyseme_experiments.baselines import TunedCosta
from polyseme_experiments.baselines.base import out_of_fold
from polyseme_experiments.baselines.costa import ridge
from polyseme_experiments.methods.base import Matrix, System, reprs
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.trials import Trial

# In units of a label's frequency: below it a regression's score is no longer taken at its word.
FLOOR = 0.3
# No instance stands for more than ten.
MOST_CERTAIN = 0.9


def costa_config() -> dict[str, Any]:
    """Return every parameter of tuned COSTA."""
    return {"costa": reprs(TunedCosta().get_params())}


@dataclass(frozen=True)
class CostaSystem(System):
    """Tuned COSTA on other instances, or with labels as frequent as they should be."""

    # Whether every label is moved to be expected as often as documents hold it, as the default
    # does; it changes no label's order of instances.
    calibrated: bool = False

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        described = super().config(config)
        described |= costa_config()
        described["levels"] = self.calibrated
        described["mix"] = self.mix
        if self.calibrated:
            described["floor"] = FLOOR
            described["most certain"] = MOST_CERTAIN
        return described

    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Score instances; see `System.scores`."""
        costa = trial.tuned_costa()
        scores = costa.decision_function(X)
        if self.calibrated:
            frequencies = label_frequencies(trial, costa)
            probabilities = as_probabilities(scores, frequencies)
            intercepts = _intercepts(trial, costa, frequencies)
            scores = logit(probabilities) + intercepts
        return costa, scores


def label_frequencies(trial: Trial, costa: TunedCosta) -> Matrix:
    """Return how often documents hold each label, (n_labels,), above 0 and below 1."""
    tables = training_tables(trial.train_documents, trial.known_documents, costa.classes_)
    sums = tables.documents.sum(axis=0)
    counts = np.asarray(sums, dtype=np.float64).ravel()
    # Of labels that no instance carries only semantics documents tell.
    n_documents = tables.documents.shape[0]
    sizes = np.where(costa.direct_, n_documents, tables.n_label_sets)
    # Half a document more keeps them above 0 and, with the ceiling, below 1.
    divisors = sizes + 1
    frequencies = (counts + 0.5) / divisors
    ceilings = 1 - 0.5 / divisors
    return np.asarray(np.minimum(frequencies, ceilings))


def as_probabilities(scores: Matrix, frequencies: Matrix) -> Matrix:
    """Read scores (n, n_labels) as probabilities; well above the floor they stay as they are."""
    floor = FLOOR * frequencies
    squares = scores * scores
    squared_floor = floor**2
    radicand = squares + 4 * squared_floor
    root = np.sqrt(radicand)
    softened = 0.5 * (scores + root)
    softened = np.minimum(softened, 1.0)
    return np.asarray(softened)


def _intercepts(trial: Trial, costa: TunedCosta, frequencies: Matrix) -> Matrix:
    """Find what makes labels as frequent as in documents, on held-out instances, (n_labels,).

    What instances are known to carry, or guessed by the label regression, says how frequent labels
    are among these instances; importance weights turn them into a natural mix.
    """
    corpus = trial.train_documents
    n = len(corpus)
    seen = np.asarray(costa.direct_)
    n_labels = len(seen)
    X = check_instances(trial.train_features, n, owner="TunedCosta")
    aligned, _ = corpus.align(costa.classes_)
    all_truth = aligned.toarray()
    truth = all_truth[:, seen].astype(np.float64)
    generator = np.random.default_rng(trial.seed)
    folds = fold_numbers(n, costa.n_folds, generator, costa.groups_)
    scores = np.empty((n, n_labels))
    guesses = np.empty((n, n_labels))
    scores[:, seen] = out_of_fold(costa.classifier_, X, truth, folds)
    guesses[:, seen] = truth
    weights = np.ones(n)
    tables = training_tables(corpus, trial.known_documents, costa.classes_)
    if not seen.all():
        slopes, intercepts = costa.regression_
        scores[:, ~seen] = scores[:, seen] @ slopes + intercepts
        expected = truth @ slopes + intercepts
        guesses[:, ~seen] = np.clip(expected, 0, 1)
        # How likely an instance with such seen labels would carry an unseen one.
        label_sets = tables.documents[: tables.n_label_sets]
        documents = np.asarray(label_sets.toarray())
        has_unseen = documents[:, ~seen].max(axis=1, keepdims=True)
        slopes, intercepts = ridge(documents[:, seen], has_unseen, costa.penalty_)
        certainty = (truth @ slopes + intercepts).ravel()
        certainty = np.clip(certainty, 0, MOST_CERTAIN)
        # Training instances hold no unseen label: importance weights make a natural mix of them.
        weights = 1 / (1 - certainty)

    is_new = tables.item_documents >= tables.n_label_sets
    share_elsewhere = float(is_new.mean())
    observed = weights @ guesses / weights.sum()
    expected_shares = expected_frequencies(frequencies, observed, n, share_elsewhere)
    probabilities = as_probabilities(scores, frequencies)
    return match_frequencies(logit(probabilities), weights, expected_shares)
