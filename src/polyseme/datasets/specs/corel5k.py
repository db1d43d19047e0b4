"""Corel5K: stock photographs with keywords and features of a convolutional network."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import IMAGES, SampleRecipe

SAMPLE = SampleRecipe(
    IMAGES,
    seed=2,
    own={"coast": ("coral", "swimmer"), "mountains": ("fox", "ice"), "field": ("flower", "foal")},
    without=("sink", "screen", "plate"),
    n_empty=2,
    splits={"train": 0.7, "test": 0.3},
    features="dense",
)
FORM = DatasetForm(
    name="corel5k",
    title="Corel5K",
    domain="images",
    citation=(
        "Duygulu, P., Barnard, K., de Freitas, J. F. G., Forsyth, D. A.: Object Recognition "
        "as Machine Translation: Learning a Lexicon for a Fixed Image Vocabulary. ECCV 2002."
    ),
    licence="none stated for the annotations; research use only",
    stands_for="LabelMeSub",
    n_documents=4999,
    n_labels=260,
    has_features=True,
    has_splits=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "65b77903a75504f9df01adc1634f7b0129265b7d048a9177322b04e5ede584c5",
        "features.npy": "1dca2165c0f2af256df7d1a5faee48aa21f57e6b75eb0b8d04d0c920ac5d00b2",
    },
)
