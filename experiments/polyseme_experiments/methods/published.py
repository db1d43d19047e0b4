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

from polyseme.base.validation import PolysemeWarning
from polyseme.documents.corpus import LabelCorpus
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
        index = tagger.store_.index(64.0)
        scale = tagger.embedding_.distance_scale_
        ranker = PrimingRanker(index, scale, self.score)
        points = tagger.points(X)
        scores = ranker.scores(points)
        return tagger, scores


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
        embedding = space.embedding_
        store = space.store_
        unmet = trial.split.unmet_instances("train")
        if len(unmet):
            store, _, _ = store.add(embedding, unmet)
        tested = trial.split.instances("test")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            keep_own = self.own == "paper"
            scores = error_free_scores(store, embedding, tested, keep_own=keep_own)
        metrics = trial.measure(scores, store.labels)
        return metrics, trial.audit(space)


def error_free_scores(
    store: PrimingStore,
    embedding: ConceptEmbedding,
    documents: LabelCorpus,
    *,
    keep_own: bool = False,
) -> Matrix:
    """Score every known label around the true points of test documents.

    Its own document, by name and labels, counts only with `keep_own`, as in the paper; others with
    the same labels always do. Returns (n, n_labels) over `store.labels`, larger is better; 0
    throughout for an instance without a point.
    """
    points = embedding.targets(documents)
    has_point = np.isfinite(points).all(axis=1)
    placed = np.flatnonzero(has_point)
    distances = store.index(64.0).distances(points[placed])
    if not keep_own:
        rows = known_rows(store, documents)
        _leave_out(distances, store, points[placed], rows[placed])
    scores = np.zeros((len(points), len(store.labels)))
    # As in `PrimingRanker`: distances below a guard count as equal.
    floor = 1e-8 * embedding.distance_scale_
    guarded = np.maximum(distances.astype(np.float64), floor)
    weights = 1.0 / guarded
    totals = weights.sum(axis=1, keepdims=True)
    shares = np.divide(weights, totals, out=weights, where=totals > 0)
    scores[placed] = shares
    return scores


def known_rows(store: PrimingStore, documents: LabelCorpus) -> NDArray[np.int64]:
    """Find documents among the known ones by name and labels, (n_documents,); -1: not known."""
    row_by_name = {}
    for row, name in enumerate(store.ids):
        row_by_name[name] = row
    rows = np.full(len(documents), -1, dtype=np.int64)
    for place, name in enumerate(documents.ids):
        if name not in row_by_name:
            continue
        row = row_by_name[name]
        known_document = store.document(row)
        document = documents.document(place)
        known_labels = set(map(documents.key, known_document))
        labels = set(map(documents.key, document))
        if labels == known_labels:
            rows[place] = row
    return rows


def _leave_out(
    distances: NDArray[np.float32],
    store: PrimingStore,
    points: NDArray[np.float32],
    own_rows: NDArray[np.int64],
) -> None:
    """Correct distances (n, n_labels) of points to labels for one known document left out of each.

    Only labels of that document (of `own_rows`, or -1) can be further away without it, and only if
    no other document has the same label set, and so the same concepts.
    """
    own_sets = np.where(own_rows >= 0, store.sets[own_rows], -1)
    set_sizes = np.bincount(store.sets)
    has_unique_set = (own_sets >= 0) & (set_sizes[own_sets] == 1)
    alone = np.flatnonzero(has_unique_set)
    documents = store.matrix[own_rows[alone]].tocsc()
    label_ids = np.flatnonzero(np.diff(documents.indptr)).tolist()
    for label in label_ids:
        start = documents.indptr[label]
        stop = documents.indptr[label + 1]
        rows = alone[documents.indices[start:stop]]
        concepts = np.flatnonzero(store.label_ids == label)
        concept_sets = store.set_ids[concepts]
        n_blocks = -(-len(rows) // 512)
        for block in np.array_split(rows, n_blocks):
            gaps = cdist(store.points[concepts], points[block])
            is_own = concept_sets[:, None] == own_sets[block]
            gaps[is_own] = np.inf
            distances[block, label] = gaps.min(axis=0)


@dataclass(frozen=True)
class Regression(Method):
    """How far the mapping's points lie from the true ones (in the paper: Table 2)."""

    features: ClassVar[bool] = True

    def run(self, trial: Trial) -> Outcome:
        """Compare predicted and true points of the test instances."""
        tagger = trial.tagger(self.dimensions[0])
        tested = trial.split.instances("test")
        truth = tagger.embedding_.targets(tested)
        placed = np.isfinite(truth).all(axis=1)
        X = trial.features(trial.split.test)
        predicted = tagger.points(X)

        store = trial.space(self.dimensions[0]).store_
        # Set by set, whatever the order of the stored concepts: the scattering draws some of them.
        order = np.argsort(store.set_ids, kind="stable")
        set_sizes = np.bincount(store.sets)
        counts = set_sizes[store.set_ids[order]]
        points = np.repeat(store.points[order], counts, axis=0)
        metrics = scattering(points, max_points=3000, random_state=trial.seed)
        metrics |= regression_error(predicted[placed], truth[placed], points)
        audit = trial.audit(tagger, trial.fit_inputs())
        return {"space": metrics}, audit


@dataclass(frozen=True)
class SensesOfLabels(Method):
    """Labels whose concepts fall apart into senses (the idea of the paper's Fig. 1)."""

    def run(self, trial: Trial) -> Outcome:
        """Choose the labels and lay their concepts out in two dimensions."""
        space = trial.space(self.dimensions[0])
        documents = trial.split.known()
        concepts = space.embedding_.transform(documents)
        owners = np.arange(len(documents))
        fewest = 9 if trial.config.quick else 60
        rule = SenseRule(
            n_labels=3,
            fewest=fewest,
            most=20 * fewest,
            min_members=fewest // 3,
        )
        maps = []
        for layout in find_senses(concepts, owners, rule=rule, random_state=trial.seed):
            maps.append(
                {
                    "label": layout.label,
                    "points": layout.points.round(2).tolist(),
                    "senses": layout.senses.tolist(),
                    "words": [list(words) for words in layout.words],
                    "background": layout.background.round(2).tolist(),
                    "silhouette": round(layout.silhouette, 4),
                }
            )
        return {"senses": {"maps": maps}}, trial.audit(space)
