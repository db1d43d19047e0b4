"""The paper's protocols: who learns from what, and what is measured."""

from __future__ import annotations

from polyseme.protocols.columns import evaluation_columns, evaluation_sets, measure
from polyseme.protocols.cross import cross_corpora
from polyseme.protocols.documents import draw_rows, halves
from polyseme.protocols.labels import (
    LabelSplit,
    carries,
    labels_by_document_share,
    random_labels,
)
from polyseme.protocols.oov import oov_test
from polyseme.protocols.split import ZeroShotSplit
from polyseme.protocols.within import within_corpus

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
