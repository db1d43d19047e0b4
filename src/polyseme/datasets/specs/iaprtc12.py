"""IAPR TC-12: holiday photographs with the nouns of their descriptions; labels only."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import IMAGES, SampleRecipe

SAMPLE = SampleRecipe(
    IMAGES,
    seed=4,
    own={
        "street": ("square",),
        "coast": ("beach", "landscape"),
        "mountains": ("tourist", "meadow"),
    },
    without=("kettle", "screen", "barn"),
    splits={"train": 0.9, "test": 0.1},
)
FORM = DatasetForm(
    name="iaprtc12",
    title="IAPR TC-12",
    domain="images",
    citation=(
        "Grubinger, M., Clough, P., Müller, H., Deselaers, T.: The IAPR TC-12 Benchmark: A "
        "New Evaluation Resource for Visual Information Systems. OntoImage workshop at LREC "
        "2006."
    ),
    licence="none stated; research use only",
    stands_for="HSUN (as a source)",
    n_documents=19457,
    n_labels=291,
    has_splits=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "4917d477a9d5a201a240caea9722f29eee45a938df79c8a02e4ba2d37080fe5e",
    },
)
