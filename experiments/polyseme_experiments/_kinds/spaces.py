"""Parts of the published system: the concept space alone, its senses, the mapping into it.

In: a `Trial`. Out: metrics of label scores or points, and maps of senses.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from polyseme._validation import PolysemeWarning
from polyseme.metrics import regression_error, scattering
from polyseme.senses import SenseRule, find_senses
from polyseme_experiments._kinds.method import Method, Metrics
from polyseme_experiments.draws import Conditions
from polyseme_experiments.own_documents import own_document_scores
from polyseme_experiments.trials import Trial


@dataclass(frozen=True)
class ErrorFree(Method):
    """The concept space alone: labels are ranked around the test documents' true points.

    Attributes
    ----------
    own : {"strict", "paper"}
        Whether a test document that is also a known one helps to find its own labels.
    """

    own: str = "strict"

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        return super().config(conditions) | {"own": self.own}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Rank labels around true points."""
        space = trial.space(self.dimensions[0])
        known = space.store_
        fresh = trial.split.unmet_instances("train")
        if len(fresh):
            known, _, _ = known.add(space.embedding_, fresh)
        tested = trial.split.instances("test")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            scores = own_document_scores(known, space.embedding_, tested, own=self.own)
        return trial.measure(scores, known.labels), trial.audit(space)


@dataclass(frozen=True)
class Regression(Method):
    """How far the mapping's points lie from the true ones (in the paper: Table 2)."""

    features: ClassVar[bool] = True

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Compare predicted and true points of the test instances."""
        tagger = trial.tagger(self.dimensions[0])
        tested = trial.split.instances("test")
        truth = tagger.embedding_.targets(tested)
        placed = np.isfinite(truth).all(axis=1)
        predicted = tagger.points(trial.features(trial.split.test))
        known = trial.space(self.dimensions[0]).store_
        # Set by set, whatever order the concepts are kept in: the scattering draws some of them.
        order = np.argsort(known.set_ids, kind="stable")
        counts = np.bincount(known.sets)[known.set_ids[order]]
        points = np.repeat(known.points[order], counts, axis=0)
        spread = scattering(points, max_points=3000, random_state=trial.seed)
        error = regression_error(predicted[placed], truth[placed], points)
        return {"space": spread | error}, trial.audit(tagger, trial.given())


@dataclass(frozen=True)
class SensesOfLabels(Method):
    """Labels whose concepts fall apart into senses (the idea of the paper's Fig. 1)."""

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Find them and lay them out in two dimensions."""
        space = trial.space(self.dimensions[0])
        concepts = space.embedding_.transform(trial.split.known())
        rows = np.arange(len(trial.split.known()))
        least = 9 if trial.conditions.quick else 60
        rule = SenseRule(n_labels=3, fewest=least, most=20 * least, min_members=least // 3)
        found = find_senses(concepts, rows, rule=rule, random_state=trial.seed)
        maps = [
            {
                "label": one.label,
                "points": one.points.round(2).tolist(),
                "senses": one.senses.tolist(),
                "words": [list(words) for words in one.words],
                "background": one.background.round(2).tolist(),
                "silhouette": round(one.silhouette, 4),
            }
            for one in found
        ]
        return {"senses": {"maps": maps}}, trial.audit(space)
