"""Fig. 12: a concept space learned from one picture corpus, tried on another."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig12",
    title="Fig. 12: from HSUN to LabelMeSub, error-free mapping",
    text=(
        "The concept space is learned from the source's documents; labels are ranked around the "
        "true points of the target's test documents."
    ),
    settings=("image-cross",),
    methods=("error-free-200",),
    columns=("training", "zsl", "zsl-only", "all", "oov"),
    published={
        ("error-free-200", "E-MAP"): {
            "training": (37.03, 6.23),
            "zsl": (52.38, 9.31),
            "all": (40.43, 7.30),
            "oov": (2.66, 0.32),
        },
        ("error-free-200", "C-MAP"): {
            "training": (35.58, 0.72),
            "zsl": (38.55, 0.80),
            "all": (6.96, 0.23),
            "oov": (1.35, 0.08),
        },
    },
)
