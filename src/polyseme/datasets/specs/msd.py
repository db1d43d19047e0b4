"""Million Song Dataset: songs with Last.fm tags; an original that users bring."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import MUSIC, SampleRecipe

SAMPLE = SampleRecipe(
    MUSIC,
    seed=8,
    own={
        "rock": ("metal", "grunge"),
        "electronic": ("trance",),
        "folk": ("bluegrass", "country"),
        "ambient": ("chillout",),
    },
    without=("flute", "fiddle"),
    group_size=2,
    features="dense",
)
FORM = DatasetForm(
    name="msd",
    title="Million Song Dataset",
    domain="music",
    citation=(
        "Bertin-Mahieux, T., Ellis, D. P. W., Whitman, B., Lamere, P.: The Million Song "
        "Dataset. ISMIR 2011."
    ),
    licence="as its source states; we have no files of it",
    has_features=True,
    sample=SAMPLE.make,
)
