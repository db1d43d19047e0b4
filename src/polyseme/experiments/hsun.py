"""HSUN within one corpus: the concept space alone (Fig. 7) and the whole system (Fig. 9).

In: the folder `hsun`. Out: example MAP and concept MAP on test instances that carry an unseen
label, over the seen, the seen and unseen, and the unseen labels, beside the published figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._estimator import copy_of
from polyseme._validation import InputError
from polyseme.baselines import Popularity, TunedCosta
from polyseme.corpus import LabelCorpus
from polyseme.datasets.folder import load_folder
from polyseme.embedding import ConceptEmbedding
from polyseme.experiments.splits import carries, draw_unseen
from polyseme.known import KnownConcepts
from polyseme.priming import PrimingRanker
from polyseme.scoring import concept_map, example_map
from polyseme.tagger import ZeroShotTagger

Scores = dict[str, NDArray[np.float64]]
COLUMNS = ("seen", "seen+unseen", "unseen")
PUBLISHED = {
    "fig7": {"polyseme": {"E-MAP": (70.53, 69.65), "C-MAP": (46.38, 47.94)}},
    "fig9": {
        "polyseme": {"E-MAP": (58.20, 56.06), "C-MAP": (23.11, 22.70)},
        "tuned COSTA": {"E-MAP": (23.18, 25.90), "C-MAP": (24.45, 20.40)},
    },
}


def run(
    name: str,
    data: str | Path | None,
    *,
    trials: int,
    seed: int,
    say: Callable[[str], None],
    embedding: ConceptEmbedding | None = None,
) -> list[dict[str, Any]]:
    """Run one of the two experiments over several label splits; see `run_experiment`.

    Parameters
    ----------
    name, data, trials, seed, say
        As in `run_experiment`.
    embedding : ConceptEmbedding, optional
        Other settings than the default ones.

    Returns
    -------
    list of dict
    """
    template = ConceptEmbedding() if embedding is None else embedding
    corpus, X, columns = _load(data)
    filled = np.diff(corpus.matrix.indptr) > 0
    splits = np.array(corpus.splits)
    train = filled & (splits == "train")
    test = filled & (splits == "test")
    found: list[dict[str, NDArray[np.float64]]] = []
    for trial in range(trials):
        unseen = draw_unseen(corpus.select(train), random_state=seed + trial)
        tested = test & carries(corpus, unseen)
        start = time.perf_counter()
        learned = copy_of(template).set_params(random_state=seed + trial)
        learned.fit(corpus.select(train))
        say(
            f"trial {trial + 1} of {trials}: concept space learned in "
            f"{time.perf_counter() - start:.0f} s, {len(learned.history_)} epochs, held-out "
            f"E-MAP {100 * learned.best_score_:.1f}"
        )
        if name == "fig7":
            scores = _error_free(learned, corpus.select(train), corpus.select(tested))
        else:
            kept = np.array([label not in unseen for label in columns])
            taught = train & ~carries(corpus, unseen)
            scores = _whole_system(
                learned, corpus, X[:, kept], train=train, taught=taught, tested=tested, seed=seed
            )
        say(f"  done after {time.perf_counter() - start:.0f} s")
        truth = corpus.select(tested).align(learned.labels_)[0]
        found.append(_measure(truth[:, : len(learned.labels_)].toarray(), scores, learned, unseen))
    return _records(name, found)


def _load(data: str | Path | None) -> tuple[LabelCorpus, NDArray[np.float32], tuple[str, ...]]:
    """Load documents, square-rooted detector probabilities and the detectors' labels."""
    folder = load_folder("hsun", data)
    raw = folder.documents
    if folder.X is None or folder.feature_names is None or raw.splits is None:
        raise InputError(
            "The folder 'hsun' lacks features.npy, feature_names.txt or the documents' splits."
        )
    assert raw.label_sets is not None
    made = LabelCorpus.from_documents(raw.label_sets, ids=raw.ids)
    corpus = LabelCorpus(made.labels, made.matrix, made.ids, splits=tuple(raw.splits))
    return corpus, np.sqrt(folder.X), folder.feature_names


def _error_free(
    embedding: ConceptEmbedding, known: LabelCorpus, tested: LabelCorpus
) -> dict[str, NDArray[np.float64]]:
    """Score labels around the true target points of the test documents."""
    store, _, _ = KnownConcepts.none(embedding).add(embedding, known)
    ranker = PrimingRanker(store.index(64.0), embedding.distance_scale_)
    return {"polyseme": ranker.scores(embedding.targets(tested))}


def _whole_system(
    embedding: ConceptEmbedding,
    corpus: LabelCorpus,
    X: NDArray[np.float32],
    *,
    train: NDArray[np.bool_],
    taught: NDArray[np.bool_],
    tested: NDArray[np.bool_],
    seed: int,
) -> dict[str, NDArray[np.float64]]:
    """Score labels from features, by the tagger and by the baselines."""
    semantics, documents = corpus.select(train), corpus.select(taught)
    rankers: dict[str, Any] = {
        "polyseme": ZeroShotTagger(embedding=embedding, fit_embedding=False, random_state=seed),
        "tuned COSTA": TunedCosta(random_state=seed),
        "popularity": Popularity(),
    }
    scores = {}
    for name, ranker in rankers.items():
        ranker.fit(X[taught], documents, semantics)
        order = [ranker.labels_.index(label) for label in embedding.labels_]
        scores[name] = ranker.score_labels(X[tested])[:, order]
    return scores


def _measure(
    truth: NDArray[np.bool_],
    scores: Scores,
    embedding: ConceptEmbedding,
    unseen: tuple[str, ...],
) -> dict[str, NDArray[np.float64]]:
    """Measure each method: (2 measures, 3 sets of labels), in percent."""
    hidden = np.isin(embedding.labels_, unseen)
    sets = (~hidden, np.ones_like(hidden), hidden)
    return {
        name: 100
        * np.array(
            [
                [measure(truth[:, columns], table[:, columns]) for columns in sets]
                for measure in (example_map, concept_map)
            ]
        )
        for name, table in scores.items()
    }


def _records(name: str, found: list[dict[str, NDArray[np.float64]]]) -> list[dict[str, Any]]:
    """Give mean and standard error over the trials beside the published figures."""
    records = []
    for method in found[0]:
        values = np.array([trial[method] for trial in found])
        mean = values.mean(axis=0)
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
        for row, measure in enumerate(("E-MAP", "C-MAP")):
            published = PUBLISHED[name].get(method, {}).get(measure, ())
            for place, columns in enumerate(COLUMNS):
                records.append(
                    {
                        "experiment": name,
                        "method": method,
                        "measure": measure,
                        "labels": columns,
                        "mean": round(float(mean[row, place]), 2),
                        "standard_error": (
                            None if error is None else round(float(error[row, place]), 2)
                        ),
                        "trials": len(values),
                        "published": published[place] if place < len(published) else None,
                    }
                )
    return records
