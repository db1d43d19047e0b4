"""Fig. 9: the whole system on HSUN."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig9",
    title="Fig. 9: HSUN, the whole system",
    text="Labels are ranked for pictures from their features.",
    settings=("hsun",),
    methods=("polyseme", "costa", "costa-no-prior", "tuned-costa", "popularity"),
    reference="polyseme",
    published={
        ("costa", "E-MAP"): {"training": (23.18, 0.05), "zsl": (25.90, 0.05)},
        ("costa", "C-MAP"): {"training": (24.45, 0.13), "zsl": (20.40, 0.10)},
        ("polyseme", "E-MAP"): {"training": (58.20, 0.29), "zsl": (56.06, 0.16)},
        ("polyseme", "C-MAP"): {"training": (23.11, 0.54), "zsl": (22.70, 0.33)},
    },
)
