"""LabelMe: photographs with the objects that people outlined; an original that users bring."""

from __future__ import annotations

from polyseme.datasets.base import DatasetForm
from polyseme.datasets.samples import IMAGES, SampleRecipe

SAMPLE = SampleRecipe(
    IMAGES,
    seed=3,
    own={
        "street": ("kerb", "licence plate"),
        "kitchen": ("drawer", "tap"),
        "office": ("keyboard", "cable"),
    },
    without=("palm", "horse"),
    features="dense",
)
FORM = DatasetForm(
    name="labelme",
    title="LabelMe",
    domain="images",
    citation=(
        "Russell, B. C., Torralba, A., Murphy, K. P., Freeman, W. T.: LabelMe: A Database and "
        "Web-Based Tool for Image Annotation. International Journal of Computer Vision 77, "
        "2008."
    ),
    licence="as its source states; we have no files of it",
    has_features=True,
    sample=SAMPLE.make,
)
