"""Fig. 7: the concept space of HSUN alone, by its dimension."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig7",
    title="Fig. 7: HSUN, error-free mapping",
    text="Labels are ranked around the true points of the test documents, none of which is known.",
    settings=("hsun",),
    methods=("error-free-10", "error-free-50", "error-free-200"),
    by_dimension=True,
    published={
        ("error-free-10", "E-MAP"): {"training": (36.28, 0.77), "zsl": (37.52, 0.64)},
        ("error-free-10", "C-MAP"): {"training": (26.13, 0.40), "zsl": (26.22, 1.38)},
        ("error-free-50", "E-MAP"): {"training": (62.67, 0.54), "zsl": (62.43, 0.32)},
        ("error-free-50", "C-MAP"): {"training": (42.38, 0.69), "zsl": (43.93, 0.39)},
        ("error-free-200", "E-MAP"): {"training": (70.53, 0.87), "zsl": (69.65, 0.77)},
        ("error-free-200", "C-MAP"): {"training": (46.38, 0.47), "zsl": (47.94, 0.16)},
    },
)
