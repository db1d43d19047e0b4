"""What each part of the default tagger is worth: the default with a part left out or changed."""

from __future__ import annotations

from polyseme_experiments.figures.default import OURS, RIVAL, DefaultComparison

EXPERIMENT = DefaultComparison(
    name="parts",
    title="What the parts of our default are worth",
    text=(
        "Rows with dots leave a part of the default out. Those about training (weights, soft "
        "targets, probable tags) are trained again; the others ask the very members of the first "
        "row, with levels learned anew where they have any. Features alone and probable tags "
        "alone: only one half of an item's code. Levels: slopes, and intercepts by which labels "
        "are expected as often as documents hold them. Tuned COSTA's second row has levels too."
    ),
    settings=("hsun", "corel5k", "msd-subset", "emoji"),
    methods=(
        OURS,
        "default-priming",
        "default-features",
        "default-context",
        "default-no-priming",
        "default-no-levels",
        "default-5-members",
        "default-1-member",
        "default-no-weights",
        "default-no-soft",
        "default-no-probable",
        RIVAL,
        "costa-shifted",
    ),
    trials=(3, 3),
    departures=("Not in the paper.",),
)
