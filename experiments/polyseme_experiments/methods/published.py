"""The published system: whole, the concept space alone, its senses, the mapping into it.

In: a `Trial`. Out: metrics of label scores or points, and maps of senses.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from polyseme._validation import PolysemeWarning
from polyseme.corpus import LabelCorpus
from polyseme.metrics import regression_error, scattering
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.priming import PrimingRanker, PrimingStore
from polyseme_experiments.methods.base import Matrix, Method, Outcome, System
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.senses import SenseRule, find_senses
from polyseme_experiments.trials import Trial


@dataclass(frozen=True)
class PublishedSystem(System):
    """The concept embedding, mapped from features."""

    score: str = "nearest"  # how distances become scores; or "density"

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        return super().config(config) | {"score": self.score}

    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Rank instances by the concepts around their points; see `System.scores`."""
        tagger = trial.tagger(self.dimensions[0])
        index, scale = tagger.store_.index(64.0), tagger.embedding_.distance_scale_
        return tagger, PrimingRanker(index, scale, self.score).scores(tagger.points(X))


@dataclass(frozen=True)
class ErrorFree(Method):
    """The concept space alone: labels are ranked around the test documents' true points."""

    # Whether a test document that is also a known one helps to find its own labels ("paper").
    own: str = "strict"

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        return super().config(config) | {"own": self.own}

    def run(self, trial: Trial) -> Outcome:
        """Rank labels around true points."""
        space = trial.space(self.dimensions[0])
        known = space.store_
        new = trial.split.unmet_instances("train")
        if len(new):
            known, _, _ = known.add(space.embedding_, new)
        tested = trial.split.instances("test")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            scores = error_free_scores(known, space.embedding_, tested, own=self.own == "paper")
        return trial.measure(scores, known.labels), trial.audit(space)


def error_free_scores(
    known: PrimingStore, embedding: ConceptEmbedding, documents: LabelCorpus, *, own: bool = False
) -> Matrix:
    """Score every known label around the true points of test documents.

    Its own document, by name and labels, counts only if `own`, as in the paper; others with the
    same labels always do. Gives (n, n_labels) over `known.labels`, larger is better; 0 throughout
    for an instance without a point.
    """
    points = embedding.targets(documents)
    placed = np.flatnonzero(np.isfinite(points).all(axis=1))
    distances = known.index(64.0).distances(points[placed])
    if not own:
        _leave_out(distances, known, points[placed], known_rows(known, documents)[placed])
    scores = np.zeros((len(points), len(known.labels)))
    # As `PrimingRanker`: distances below a guard are not told apart.
    floor = 1e-8 * embedding.distance_scale_
    weights = 1.0 / np.maximum(distances.astype(np.float64), floor)
    totals = weights.sum(axis=1, keepdims=True)
    scores[placed] = np.divide(weights, totals, out=weights, where=totals > 0)
    return scores


def known_rows(known: PrimingStore, documents: LabelCorpus) -> NDArray[np.int64]:
    """Find documents among the known ones by name and labels, (n_documents,); -1: not known."""
    row_of = {name: row for row, name in enumerate(known.ids)}
    rows = np.full(len(documents), -1, dtype=np.int64)
    for place, name in enumerate(documents.ids):
        row = row_of.get(name)
        if row is not None and {*map(documents.key, known.document(row))} == {
            *map(documents.key, documents.document(place))
        }:
            rows[place] = row
    return rows


def _leave_out(
    distances: NDArray[np.float32],
    known: PrimingStore,
    points: NDArray[np.float32],
    own: NDArray[np.int64],
) -> None:
    """Correct distances (n, n_labels) of points to labels for one known document left out of each.

    Only labels of that document (`own`, its row, or -1) can be further away without it, and only if
    no other document has the same label set, and so the same concepts.
    """
    own_sets = np.where(own >= 0, known.sets[own], -1)
    alone = np.flatnonzero((own_sets >= 0) & (np.bincount(known.sets)[own_sets] == 1))
    documents = known.matrix[own[alone]].tocsc()
    for label in np.flatnonzero(np.diff(documents.indptr)).tolist():
        rows = alone[documents.indices[documents.indptr[label] : documents.indptr[label + 1]]]
        concepts = np.flatnonzero(known.label_ids == label)
        for block in np.array_split(rows, -(-len(rows) // 512)):
            gaps = cdist(known.points[concepts], points[block])
            gaps[known.set_ids[concepts][:, None] == own_sets[block]] = np.inf
            distances[block, label] = gaps.min(axis=0)


@dataclass(frozen=True)
class Regression(Method):
    """How far the mapping's points lie from the true ones (in the paper: Table 2)."""

    features: ClassVar[bool] = True

    def run(self, trial: Trial) -> Outcome:
        """Compare predicted and true points of the test instances."""
        tagger = trial.tagger(self.dimensions[0])
        truth = tagger.embedding_.targets(trial.split.instances("test"))
        placed = np.isfinite(truth).all(axis=1)
        predicted = tagger.points(trial.features(trial.split.test))
        known = trial.space(self.dimensions[0]).store_
        # Set by set, whatever order the concepts are kept in: the scattering draws some of them.
        order = np.argsort(known.set_ids, kind="stable")
        counts = np.bincount(known.sets)[known.set_ids[order]]
        points = np.repeat(known.points[order], counts, axis=0)
        spread = scattering(points, max_points=3000, random_state=trial.seed)
        error = regression_error(predicted[placed], truth[placed], points)
        return {"space": spread | error}, trial.audit(tagger, trial.fit_inputs())


@dataclass(frozen=True)
class SensesOfLabels(Method):
    """Labels whose concepts fall apart into senses (the idea of the paper's Fig. 1)."""

    def run(self, trial: Trial) -> Outcome:
        """Find them and lay them out in two dimensions."""
        space = trial.space(self.dimensions[0])
        concepts = space.embedding_.transform(trial.split.known())
        rows = np.arange(len(trial.split.known()))
        least = 9 if trial.config.quick else 60
        rule = SenseRule(n_labels=3, fewest=least, most=20 * least, min_members=least // 3)
        maps = [
            {
                "label": one.label,
                "points": one.points.round(2).tolist(),
                "senses": one.senses.tolist(),
                "words": [list(words) for words in one.words],
                "background": one.background.round(2).tolist(),
                "silhouette": round(one.silhouette, 4),
            }
            for one in find_senses(concepts, rows, rule=rule, random_state=trial.seed)
        ]
        return {"senses": {"maps": maps}}, trial.audit(space)
