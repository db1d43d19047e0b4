"""Fig. 6: the concept space of MagTag5K alone, by its dimension."""

from __future__ import annotations

from polyseme_experiments.scores import ScoreFigure

EXPERIMENT = ScoreFigure(
    name="fig6",
    title="Fig. 6: MagTag5K, error-free mapping",
    text=(
        "Labels are ranked around the true points of the test documents. In the paper most test "
        "documents are among the known ones; the rows without that word leave a document's own "
        "concepts out, which is the harder question. "
        "Other known documents may hold the same labels."
    ),
    settings=("magtag",),
    methods=tuple(f"error-free-{d}{own}" for own in ("-own", "") for d in (10, 50, 200)),
    by_dimension=True,
    published={
        ("error-free-10-own", "E-MAP"): {"training": (67.40, 0.09), "zsl": (67.03, 0.10)},
        ("error-free-10-own", "C-MAP"): {"training": (41.08, 0.11), "zsl": (40.40, 0.86)},
        ("error-free-50-own", "E-MAP"): {"training": (86.31, 2.68), "zsl": (86.68, 2.51)},
        ("error-free-50-own", "C-MAP"): {"training": (70.46, 3.97), "zsl": (71.63, 3.71)},
        ("error-free-200-own", "E-MAP"): {"training": (91.96, 1.66), "zsl": (92.47, 1.43)},
        ("error-free-200-own", "C-MAP"): {"training": (78.01, 1.53), "zsl": (79.27, 1.91)},
    },
)
