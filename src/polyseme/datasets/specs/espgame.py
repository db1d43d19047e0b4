"""ESP Game: web pictures with the words on which two players agreed; labels only."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import IMAGES, SampleRecipe

SAMPLE = SampleRecipe(
    IMAGES,
    seed=5,
    own={"coast": ("blue",), "office": ("logo", "cartoon"), "field": ("green", "smile")},
    without=("stove", "barn", "fence"),
    splits={"train": 0.9, "test": 0.1},
)
FORM = DatasetForm(
    name="espgame",
    title="ESP Game",
    domain="images",
    citation="von Ahn, L., Dabbish, L.: Labeling Images with a Computer Game. CHI 2004.",
    licence="none stated; research use only",
    stands_for="HSUN (as a source)",
    n_documents=21846,
    n_labels=269,
    has_splits=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "e18920eef9a440a5c4848006ed8e438e4546219ade77913a215c111bb1d119af",
    },
)
