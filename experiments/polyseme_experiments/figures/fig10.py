"""Fig. 10: labels that the semantics never met, on MagTag5K."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig10",
    title="Fig. 10: MagTag5K, oov test",
    text=(
        "Test instances carry an unseen and an oov label. No document with an oov label reached "
        "the semantics; training instances may carry oov labels. COSTA as in the paper ignores "
        "oov labels; tuned COSTA classifies them from the training instances that carry them."
    ),
    settings=("magtag-oov",),
    methods=("polyseme", "costa", "costa-no-prior", "tuned-costa", "popularity"),
    columns=("training", "zsl", "zsl-only", "all", "oov"),
    reference="polyseme",
    published={
        ("costa", "E-MAP"): {"training": (29.16, 9.73), "zsl": (24.92, 12.32)},
        ("costa", "C-MAP"): {"training": (12.90, 0.20), "zsl": (11.33, 0.32)},
        ("polyseme", "E-MAP"): {
            "training": (48.50, 1.50),
            "zsl": (47.40, 1.39),
            "all": (23.58, 0.17),
            "oov": (21.51, 1.76),
        },
        ("polyseme", "C-MAP"): {
            "training": (17.98, 0.22),
            "zsl": (16.66, 0.23),
            "all": (16.42, 0.24),
            "oov": (15.20, 0.35),
        },
    },
)
