"""The paper's protocols: who learns from what, and what is measured."""

from __future__ import annotations

from polyseme.splits.columns import evaluation_columns, evaluation_sets, measure
from polyseme.splits.cross import cross_corpora
from polyseme.splits.documents import draw_rows, halves
from polyseme.splits.labels import (
    LabelSplit,
    carries,
    labels_by_document_share,
    random_labels,
)
from polyseme.splits.oov import oov_test
from polyseme.splits.split import ZeroShotSplit
from polyseme.splits.within import within_corpus

__all__ = [
    "LabelSplit",
    "carries",
    "labels_by_document_share",
    "random_labels",
    "draw_rows",
    "halves",
    "ZeroShotSplit",
    "within_corpus",
    "oov_test",
    "cross_corpora",
    "evaluation_columns",
    "evaluation_sets",
    "measure",
]
