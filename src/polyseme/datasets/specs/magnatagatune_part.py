"""Part of MagnaTagATune: clips with the 50 most frequent tags of a game; labels only."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import MUSIC, SampleRecipe

SAMPLE = SampleRecipe(
    MUSIC,
    seed=7,
    own={
        "rock": ("male voice",),
        "classical": ("choir", "harpsichord"),
        "electronic": ("no vocals",),
        "folk": ("female voice",),
    },
    without=("punk", "banjo", "swing"),
    group_size=4,
    splits={"val_": 0.25, "test": 0.75},
)
FORM = DatasetForm(
    name="magnatagatune-part",
    title="MagnaTagATune (validation and test part, 50 tags)",
    domain="music",
    citation=(
        "Law, E., West, K., Mandel, M., Bay, M., Downie, J. S.: Evaluation of Algorithms "
        "Using Games: The Case of Music Tagging. ISMIR 2009."
    ),
    licence="ISC-style",
    stands_for="MagTag5K (labels)",
    n_documents=5861,
    n_labels=50,
    has_groups=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "721a96462c2479fd090ac2da3f2ce85a11780c19d5f693f00ba6c33c1aeb99eb",
    },
)
