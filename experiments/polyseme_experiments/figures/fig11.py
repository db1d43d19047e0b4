"""Fig. 11: a concept space learned from one music corpus, tried on another."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig11",
    title="Fig. 11: from MagTag5K to MSDSub, error-free mapping",
    text=(
        "The concept space is learned from the source's documents; labels are ranked around the "
        "true points of the target's test documents."
    ),
    settings=("music-cross",),
    methods=("error-free-200",),
    columns=("training", "zsl", "zsl-only", "all", "oov"),
    published={
        ("error-free-200", "E-MAP"): {
            "training": (52.62, 2.15),
            "zsl": (64.50, 3.41),
            "all": (44.82, 4.66),
            "oov": (0.14, 0.02),
        },
        ("error-free-200", "C-MAP"): {
            "training": (19.90, 0.97),
            "zsl": (23.90, 0.60),
            "all": (2.39, 0.04),
            "oov": (0.53, 0.01),
        },
    },
)
