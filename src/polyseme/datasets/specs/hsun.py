"""HSUN: scenes with objects and the probabilities of 111 object detectors."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import IMAGES, SampleRecipe

SAMPLE = SampleRecipe(
    IMAGES,
    seed=1,
    own={
        "street": ("streetlight", "awning"),
        "kitchen": ("cupboard",),
        "office": ("curtain", "rug"),
        "field": ("path",),
    },
    without=("palm", "kettle", "barn"),
    n_empty=3,
    splits={"train": 0.5, "test": 0.5},
    features="detectors",
)
FORM = DatasetForm(
    name="hsun",
    title="HSUN (SUN09)",
    domain="images",
    citation=(
        "Choi, M. J., Lim, J. J., Torralba, A., Willsky, A. S.: Exploiting Hierarchical "
        "Context on a Large Database of Object Categories. CVPR 2010."
    ),
    licence="none stated; research use only",
    n_documents=8684,
    n_labels=111,
    has_features=True,
    has_splits=True,
    detectors=True,
    square_root=True,
    sample=SAMPLE.make,
    checksums={
        "documents.jsonl.gz": "78df4be4b749bf80eb4fdcd2e1f1bde490179083ae1807b607dee38eaa5d68a2",
        "features.npy": "8298ab195c9fc5fd050e6dd0f9db48bf0c09cd8994e7c8c613d2c366b2414702",
        "feature_names.txt": "9173a8effdda6300f394586d8c10c5c1420f6b9341f2997a51b9adfa52197cfb",
    },
)
