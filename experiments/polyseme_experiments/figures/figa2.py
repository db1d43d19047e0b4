"""Fig. A.2: image features reduced to fewer."""

from __future__ import annotations

from polyseme_experiments.features import NETWORK, PROTOCOL, FeatureFigure

EXPERIMENT = FeatureFigure(
    name="figA2",
    title="Fig. A.2: reductions of the picture network's features",
    text=(
        "A stack of three restricted Boltzmann machines, the same fine-tuned by triplets (UTH), "
        "and principal components, learned on IM_tr, to 256 and 512 numbers; unreduced beside "
        "them."
    ),
    settings=("pictures",),
    methods=("depth-pre-logit", "rbm-256", "rbm-512", "uth-256", "uth-512", "pca-256", "pca-512"),
    departures=(PROTOCOL, NETWORK),
    published={
        "depth-pre-logit": ("F21 (4096), unreduced", 29.91, 0.15),
        "rbm-256": ("RBM (256)", 26.44, 0.05),
        "rbm-512": ("RBM (512)", 26.96, 0.05),
        "uth-256": ("UTH (256)", 25.23, 0.09),
        "uth-512": ("UTH (512)", 25.17, 0.02),
    },
)
