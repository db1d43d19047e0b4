"""Fig. 14: the whole system, from one picture corpus to another."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig14",
    title="Fig. 14: from HSUN to LabelMeSub, the whole system",
    text=(
        "Semantics come from the source, instances from the target. COSTA's classifiers are "
        "trained on the target, its regressors and priors on the source."
    ),
    settings=("image-cross",),
    methods=("polyseme", "costa", "costa-no-prior", "tuned-costa", "popularity"),
    columns=("training", "zsl", "zsl-only", "all", "oov"),
    reference="polyseme",
    published={
        ("costa", "E-MAP"): {"training": (4.03, 0.05), "zsl": (4.24, 0.11)},
        ("costa", "C-MAP"): {"training": (7.18, 0.17), "zsl": (7.32, 0.17)},
        ("polyseme", "E-MAP"): {
            "training": (14.72, 1.27),
            "zsl": (14.16, 1.11),
            "all": (2.72, 0.10),
            "oov": (1.84, 0.18),
        },
        ("polyseme", "C-MAP"): {
            "training": (12.04, 0.61),
            "zsl": (13.54, 0.51),
            "all": (2.99, 0.07),
            "oov": (1.15, 0.03),
        },
    },
)
