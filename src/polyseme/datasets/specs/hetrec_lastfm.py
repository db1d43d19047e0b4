"""HetRec 2011 Last.fm: artists with the tags of listeners; labels only."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import MUSIC, SampleRecipe

SAMPLE = SampleRecipe(
    MUSIC,
    seed=11,
    own={
        "rock": ("seen live", "favourites"),
        "jazz": ("smooth",),
        "ambient": ("chillout", "dreamy"),
    },
    without=("sampler", "opera"),
)
FORM = DatasetForm(
    name="hetrec-lastfm",
    title="HetRec 2011 Last.fm",
    domain="music",
    citation=(
        "Cantador, I., Brusilovsky, P., Kuflik, T.: Second Workshop on Information "
        "Heterogeneity and Fusion in Recommender Systems (HetRec 2011). RecSys 2011."
    ),
    licence="none stated; research use only",
    stands_for="MagTag5K (as a source)",
    n_documents=12523,
    n_labels=9743,  # of 9,749 spellings
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "3a988e327a08151186060c1f79dfb5b6baf7eef48e0aec683d8ff8062876a4cb",
    },
)
