"""Fig. 13: the whole system, from one music corpus to another."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig13",
    title="Fig. 13: from MagTag5K to MSDSub, the whole system",
    text=(
        "Semantics come from the source, instances from the target. COSTA's classifiers are "
        "trained on the target, its regressors and priors on the source."
    ),
    settings=("music-cross",),
    methods=("polyseme", "costa", "costa-no-prior", "tuned-costa", "popularity"),
    columns=("training", "zsl", "zsl-only", "all", "oov"),
    reference="polyseme",
    published={
        ("costa", "E-MAP"): {"training": (0.05, 0.05), "zsl": (0.17, 0.17)},
        ("costa", "C-MAP"): {"training": (2.30, 0.10), "zsl": (3.27, 0.08)},
        ("polyseme", "E-MAP"): {
            "training": (8.34, 0.98),
            "zsl": (7.67, 0.76),
            "all": (0.74, 0.05),
            "oov": (0.30, 0.03),
        },
        ("polyseme", "C-MAP"): {
            "training": (3.71, 0.02),
            "zsl": (5.22, 0.07),
            "all": (0.71, 0.01),
            "oov": (0.34, 0.01),
        },
    },
)
