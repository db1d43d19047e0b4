"""Metrics of fixed scores, and splits of fixed corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from golden import Case, models
from golden.compare import Exact
from polyseme import LabelCorpus, metrics
from polyseme_experiments import splits
from polyseme_experiments.datasets import load_dataset


def cases(folder: Path) -> dict[str, Case]:
    """Return the cases by name."""
    del folder
    results = metric_cases() | split_cases()
    return {name: exactly(case) for name, case in results.items()}


def exactly(case: Case) -> Case:
    """Return a case whose numbers are recorded with all their digits."""
    return lambda: Exact(case())


def metric_cases() -> dict[str, Case]:
    """Return the cases of metrics, with ties, empty rows and empty columns."""
    rng = np.random.default_rng(0)
    truth = rng.random((30, 12)) < 0.2
    truth[4] = False
    truth[:, 7] = False
    scores = np.round(rng.random((30, 12)), 1)
    distinct = rng.random((30, 12))
    points = rng.integers(0, 50, (30, 4)) / 7
    predicted = rng.integers(0, 50, (30, 4)) / 7
    results: dict[str, Case] = {}
    for name in (
        "mean_average_precision",
        "ranking_loss",
        "coverage",
        "label_ranking_average_precision",
        "roc_auc",
    ):
        metric = getattr(metrics, name)
        results[name] = lambda metric=metric: [metric(truth, scores), metric(truth, distinct)]
    for name in ("example_precision", "concept_precision", "example_map", "concept_map"):
        metric = getattr(metrics, name)
        results[name] = lambda metric=metric: [
            metric(truth, scores),
            metric(truth, scores, ties="index"),
            metric(truth, distinct),
        ]
    return results | {
        "f1_at_k": lambda: [metrics.f1_at_k(truth, scores, k) for k in (1, 3, 5)],
        "evaluate": lambda: metrics.evaluate(truth, distinct, k=3),
        "reliability": lambda: metrics.reliability(truth, distinct, n_bins=5),
        "expected_calibration_error": lambda: metrics.expected_calibration_error(truth, distinct),
        "log_loss": lambda: metrics.log_loss(truth, distinct),
        "scattering": lambda: metrics.scattering(points),
        "regression_error": lambda: metrics.regression_error(predicted, points, points),
    }


def split_cases() -> dict[str, Case]:
    """Return the cases of splits: of the toy world and of samples with groups and splits."""
    toy = LabelCorpus.from_documents(models.world().label_sets)
    scenes = load_dataset("hsun", sample=True).corpus
    music = load_dataset("magtag5k", sample=True).corpus
    labels = splits.labels_by_document_share(scenes, oov_share=0.1, random_state=1)
    of_music = splits.labels_by_document_share(music, random_state=2)
    within = splits.within_corpus(scenes, labels, random_state=3)

    def by_share() -> Any:
        """Divide by a share, with validation from the second half and both halves tested."""
        split = splits.within_corpus(
            music,
            of_music,
            first=2 / 3,
            validation_from="second",
            validation=20,
            test_from="both",
            random_state=4,
        )
        return rows_of(split)

    def measured() -> Any:
        """Measure fixed scores on every set of labels."""
        corpus = within.instances("test")
        scored = labels.vocabulary
        scores = np.random.default_rng(5).random((len(corpus), len(scored)))
        return splits.measure(corpus, scores, scored, splits.evaluation_columns(labels))

    return {
        "random_labels": lambda: splits.random_labels(toy, oov_share=0.2, random_state=0),
        "labels_by_document_share": lambda: [labels, of_music],
        "carries": lambda: np.flatnonzero(splits.carries(scenes, labels.unseen)),
        "within_corpus": lambda: rows_of(within),
        "within_corpus by a share": by_share,
        "within_corpus of the toy world": lambda: rows_of(
            splits.within_corpus(
                toy, splits.random_labels(toy, random_state=0), first=0.5, random_state=6
            )
        ),
        "oov_test": lambda: rows_of(splits.oov_test(within)),
        "cross_corpora": lambda: rows_of(
            splits.cross_corpora(music, other_music(), of_music, random_state=7)
        ),
        "evaluation_columns": lambda: splits.evaluation_columns(labels),
        "measure": measured,
    }


def other_music() -> LabelCorpus:
    """Return another corpus that shares labels with the first one."""
    return load_dataset("msd", sample=True).corpus


def rows_of(split: splits.ZeroShotSplit) -> dict[str, Any]:
    """Return the rows of every set of a split."""
    sets = {name: getattr(split, name) for name in splits.SEMANTICS + splits.INSTANCES}
    return sets | {"labels": split.labels, "sizes": split.sizes()}
