"""Genius: songs with the tags of the site's contributors; labels only."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import MUSIC, SampleRecipe

SAMPLE = SampleRecipe(
    MUSIC,
    seed=10,
    own={
        "rock": ("cover",),
        "electronic": ("remix",),
        "folk": ("ballad",),
        "ambient": ("soundtrack",),
    },
    without=("distortion", "sampler", "drone"),
    group_size=3,
)
FORM = DatasetForm(
    name="genius",
    title="Genius song tags",
    domain="music",
    citation="none known to us: song tags by the contributors of genius.com",
    licence="non-commercial research",
    stands_for="MagTag5K (as a source)",
    n_documents=193230,
    n_labels=982,
    has_groups=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "080dc86d86e4db23b8674e0fe0147185ce67c479cb8eef14b99bcedbbadb6f3a",
    },
)
