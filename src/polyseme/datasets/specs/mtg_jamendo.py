"""MTG-Jamendo: free music with genres, instruments and moods; labels only."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import MUSIC, SampleRecipe

SAMPLE = SampleRecipe(
    MUSIC,
    seed=12,
    own={"electronic": ("party",), "folk": ("happy",), "ambient": ("relaxing", "film")},
    without=("loud", "opera"),
    group_size=3,
    splits={"train": 0.6, "validation": 0.2, "test": 0.2},
)
FORM = DatasetForm(
    name="mtg-jamendo",
    title="MTG-Jamendo",
    domain="music",
    citation=(
        "Bogdanov, D., Won, M., Tovstogan, P., Porter, A., Serra, X.: The MTG-Jamendo Dataset "
        "for Automatic Music Tagging. Machine Learning for Music Discovery workshop at ICML "
        "2019."
    ),
    licence="CC BY-NC-SA 4.0",
    n_documents=55525,
    n_labels=183,
    has_splits=True,
    has_groups=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "1c1d39979567848745e9da5235db2040f6f760f33545925927e241fb634ed392",
    },
)
