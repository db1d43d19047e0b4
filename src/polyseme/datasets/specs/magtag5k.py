"""MagTag5K: music clips with the tags of a game; an original that users bring."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import MUSIC, SampleRecipe

SAMPLE = SampleRecipe(
    MUSIC,
    seed=6,
    own={
        "rock": ("male voice",),
        "classical": ("choir",),
        "folk": ("female voice",),
        "ambient": ("eerie",),
    },
    without=("drone", "swing"),
    features="dense",
)
FORM = DatasetForm(
    name="magtag5k",
    title="MagTag5K",
    domain="music",
    citation=(
        "Marques, G., Domingues, M. A., Langlois, T., Gouyon, F.: Three Current Issues in "
        "Music Autotagging. ISMIR 2011."
    ),
    licence="as its source states; we have no files of it",
    has_features=True,
    sample=SAMPLE.make,
)
