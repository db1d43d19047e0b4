"""Fig. 8: the whole system on MagTag5K."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig8",
    title="Fig. 8: MagTag5K, the whole system",
    text="Labels are ranked for clips from their features.",
    settings=("magtag-system",),
    methods=("polyseme", "costa", "costa-no-prior", "tuned-costa", "popularity"),
    reference="polyseme",
    published={
        ("costa", "E-MAP"): {"training": (21.66, 7.24), "zsl": (18.96, 9.18)},
        ("costa", "C-MAP"): {"training": (13.16, 0.25), "zsl": (11.64, 0.06)},
        ("polyseme", "E-MAP"): {"training": (47.20, 1.69), "zsl": (45.64, 1.51)},
        ("polyseme", "C-MAP"): {"training": (18.86, 0.34), "zsl": (18.22, 0.28)},
    },
)
