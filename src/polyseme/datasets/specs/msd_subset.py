"""Songs of the Million Song Dataset with the MusicBrainz tags of their artists."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import MUSIC, SampleRecipe

SAMPLE = SampleRecipe(
    MUSIC,
    seed=9,
    own={
        "rock": ("british", "indie"),
        "classical": ("baroque",),
        "electronic": ("house",),
        "folk": ("american",),
        "jazz": ("bebop",),
    },
    without=("harmonica", "loud", "cello"),
    n_documents=300,
    group_size=2,
    shared_labels=True,
    features="dense",
    feature_names=tuple(
        f"{kind}_{number}_mean" for kind in ("pitch", "timbre") for number in range(12)
    ),
)
FORM = DatasetForm(
    name="msd-subset",
    title="Million Song Dataset (songs with MusicBrainz tags)",
    domain="music",
    citation=(
        "Bertin-Mahieux, T., Ellis, D. P. W., Whitman, B., Lamere, P.: The Million Song "
        "Dataset. ISMIR 2011."
    ),
    licence="none stated; research use only",
    stands_for="MagTag5K (music with features) and MSDSub",
    n_documents=3611,
    n_labels=1324,
    has_features=True,
    has_groups=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "d034cad2196c61100d0dd66a08e9e10b921afa22abe6aa820ccd33c50b82e6b7",
        "features.npy": "ba5dc87a943fc9b0fdaea43f4a54136af1d0844a309df320b31bfd233dd53151",
        "feature_names.txt": "26884345c757932e07adc91973a6c47cca6d1505f8b46382837cd5f9683a2143",
    },
)
