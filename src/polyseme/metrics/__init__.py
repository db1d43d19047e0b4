"""Step 6: score rankings of labels against the labels that are true.

In: `truth`, 0/1 of shape (n, n_labels), and `scores`, floats of the same shape, larger is better.
Out: one float per metric, or one per row or label; `validate` comes first, `evaluate` runs all.
`reliability`, `expected_calibration_error` and `log_loss` take probabilities; `scattering` and
`regression_error` measure points in concept space instead.

Ties never count in one's favour: with `ties="worst"`, the default, irrelevant entries come first
among equal scores; `ties="index"` keeps column order (row order, where a label ranks rows). A
metric that scikit-learn has too treats ties as it does, and says how. A score of -inf is the
lowest there is: ranked last, tied with its like. Rows with no relevant label and labels with no
positive row are left out of means; a mean over nothing is NaN and warns.
"""

from __future__ import annotations

from polyseme.metrics.calibration import (
    Reliability,
    expected_calibration_error,
    log_loss,
    reliability,
)
from polyseme.metrics.checks import Truth, validate
from polyseme.metrics.ranking import (
    Ties,
    concept_map,
    concept_precision,
    coverage,
    evaluate,
    example_map,
    example_precision,
    f1_at_k,
    label_ranking_average_precision,
    mean_average_precision,
    ranking_loss,
    roc_auc,
)
from polyseme.metrics.space import regression_error, scattering

__all__ = [
    "Reliability",
    "Ties",
    "Truth",
    "concept_map",
    "concept_precision",
    "coverage",
    "evaluate",
    "example_map",
    "example_precision",
    "expected_calibration_error",
    "f1_at_k",
    "label_ranking_average_precision",
    "log_loss",
    "mean_average_precision",
    "ranking_loss",
    "regression_error",
    "reliability",
    "roc_auc",
    "scattering",
    "validate",
]
