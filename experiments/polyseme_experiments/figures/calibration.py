"""How far the default's probabilities can be believed: seen, unseen and new labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyseme.metrics.calibration import BINS
from polyseme_experiments._kinds.calibration import FEW, PRECISIONS
from polyseme_experiments.experiment import Experiment, Results
from polyseme_experiments.former import FORMER, NOTE
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.reliability import reliability_curves
from polyseme_experiments.rendering.report import Figure, Section
from polyseme_experiments.settings import get_setting

# Method, set of labels, and what the row is called.
OWN = (
    ("calibration", "training", "seen labels"),
    ("calibration", "zsl-only", "unseen labels"),
    ("calibration-late", "oov", "labels that turned up later"),
)
COSTA = (
    ("calibration-costa", "training", "seen labels, tuned COSTA's scores"),
    ("calibration-costa", "zsl-only", "unseen labels, tuned COSTA's scores"),
)
# What the curves of the first rows are called.
LEGEND = ("seen labels", "unseen labels", "new labels")
MEASURES = ("true", "calibration error", "log-loss", "expected / true")
# What is measured of new labels, and what the column is called.
LATE = (
    ("E-MAP", "E-MAP"),
    ("C-MAP", "C-MAP"),
    ("calibration error", "calibration error (%)"),
    ("expected / true", "expected / true"),
)
# What is known of the new labels, and what the row is called.
WAYS = (
    ("taught", "learned from the start, as unseen labels"),
    ("sample", "a sample of documents that turned up later"),
    ("oov", "documents picked for them that turned up later"),
    *(
        (f"new-{n}", f"{n} document{'s' if n > 1 else ''} for each that turned up later")
        for n in FEW
    ),
    ("named", "their names alone, by word vectors"),
    ("chance", "nothing (chance)"),
)


@dataclass(frozen=True)
class CalibrationFigure(Experiment):
    """A table and reliability curves for each setting."""

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            title = get_setting(setting).title
            rows = [_row(told, results, setting, method, column) for method, column, told in OWN]
            former = [
                _row(f"{told}, {FORMER}", results, setting, method, column, former=True)
                for method, column, told in OWN
                if _has_former(results, setting, method, column)
            ]
            rows += [
                *former,
                *(_row(told, results, setting, method, column) for method, column, told in COSTA),
            ]
            notes = (*results.notes((setting,), features=True), *self.departures)
            header = ("true (%)", "calibration error (%)", *MEASURES[2:], *_asked())
            tables.append(
                Table(
                    f"{self.name}-{setting}",
                    title,
                    ("probabilities of", *header),
                    tuple(rows),
                    notes=(*notes, NOTE) if former else notes,
                    command=command,
                    caution=results.caution((setting,)),
                )
            )
            curves = {
                name: self._curve(results, setting, method, column)
                for name, (method, column, _) in zip(LEGEND, OWN, strict=True)
            }
            svg = reliability_curves(f"reliability-{setting}", curves)
            figures.append(Figure(svg, f"{title}: how often labels of each probability are true"))
        return self.make_section(*tables, self._late(results, command), figures=figures)

    def _late(self, results: Results, command: str) -> Table:
        """Compare what can be known of labels that were not learned."""
        rows: list[tuple[Value, ...]] = []
        method, with_former = "calibration-late", False
        for setting in self.settings:
            title = get_setting(setting).title
            for column, told in WAYS:
                cells = [Cell.of(results.values(setting, method, column, name)) for name, _ in LATE]
                rows.append((title, told, *cells))
                if _has_former(results, setting, method, column):
                    with_former = True
                    cells = [
                        Cell.of(results.former(setting, method, column, name)) for name, _ in LATE
                    ]
                    rows.append((title, f"{told}, {FORMER}", *cells))
        notes = (*results.data_notes(self.settings), *self.departures)
        return Table(
            f"{self.name}-late",
            "A third of the unseen labels, all held-out instances",
            ("setting", "what is known of them", *(title for _, title in LATE)),
            tuple(rows),
            notes=(*notes, NOTE) if with_former else notes,
            command=command,
            caution=results.caution(self.settings),
        )

    def _curve(
        self, results: Results, setting: str, method: str, column: str
    ) -> dict[str, Sequence[float | None]]:
        """Add up the bins of all trials."""
        bins: dict[int, Any] = {}
        for curve in results.values(setting, method, column, "curve"):
            for count, predicted, observed in zip(*_columns(curve), strict=True):
                # Mean probabilities lie inside their bins, so that they tell which one it is.
                place = min(int(predicted * BINS), BINS - 1)
                bins[place] = bins.get(place, np.zeros(3)) + count * np.array(
                    [1.0, predicted, observed]
                )
        sums = [bins[place] for place in sorted(bins)]
        return {
            "counts": [float(one[0]) for one in sums],
            "predicted": [float(one[1] / one[0]) for one in sums],
            "observed": [float(one[2] / one[0]) for one in sums],
        }


def _has_former(results: Results, setting: str, method: str, column: str) -> bool:
    """Say whether the former default was measured on the same splits."""
    known = results.former(setting, method, column, "calibration error")
    return any(value is not None for value in known)


def _row(
    told: str, results: Results, setting: str, method: str, column: str, *, former: bool = False
) -> tuple[Value, ...]:
    """Give what was measured of one set of labels, by us or by the former default."""
    values = results.former if former else results.values
    measures = (*MEASURES, *_asked())
    return (told, *(Cell.of(values(setting, method, column, one)) for one in measures))


def _columns(curve: Any) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Give the bins of one trial; none where it has no curve."""
    if curve is None:
        return (), (), ()
    return curve["counts"], curve["predicted"], curve["observed"]


def _asked() -> tuple[str, ...]:
    """Name the columns of precisions."""
    return tuple(
        f"{what} {100 * one:.0f} %" for one in PRECISIONS for what in ("reached of", "found at")
    )


EXPERIMENT = CalibrationFigure(
    name="calibration",
    title="Probabilities of the default",
    text=(
        "Held-out instances as they come, with and without unseen labels. Calibration error: mean "
        "distance of predicted and observed in 15 bins; where few labels are true (first column) a "
        "small one is easily had, and the curves say more. Log-loss: nats an instance. Expected / "
        "true: the sum of probabilities for each label that is true. Reached of 50 %: the share of "
        "labels that are true when a precision of 50 % is asked for; found at 50 %: the share of "
        "true labels that are then given. Labels that turned up later: a third of the unseen ones, "
        "left out of everything that is learned and then placed by documents picked because they "
        "hold them; the last table has other ways, such as 1 to 20 documents for each label, drawn "
        "at random and silent about the other new labels. The rule for how common such labels are "
        "taken to be is that of the former default, which had changed it after a first look at "
        "these very splits (calibration errors 5.9, 1.5 and 4.4 %); the slope they are read with "
        "was halved, on development splits, after these had shown 0.42 % on Corel5K. So their "
        "calibration is no first look."
    ),
    settings=("hsun", "corel5k", "msd-subset"),
    methods=("calibration", "calibration-costa", "calibration-late"),
    departures=("Not in the paper.",),
)
