"""Fig. A.1: image features from several depths of the network."""

from __future__ import annotations

from polyseme_experiments.features import NETWORK, PROTOCOL, FeatureFigure

EXPERIMENT = FeatureFigure(
    name="figA1",
    title="Fig. A.1: depths of the picture network",
    text=(
        "The last block's map, the same averaged over all places, what enters the last layer, and "
        "what leaves it."
    ),
    settings=("pictures",),
    methods=("depth-convolution", "depth-pooled", "depth-pre-logit", "depth-logits"),
    departures=(PROTOCOL, NETWORK),
    published={
        "depth-convolution": ("F19 (26000)", 27.19, 0.12),
        "depth-pooled": ("F21 (4096)", 29.91, 0.15),
        "depth-pre-logit": ("F23 (4096)", 28.64, 0.04),
    },
)
