"""How far the default's probabilities can be believed: seen, unseen and new labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme.metrics import BINS
from polyseme_experiments.figures.base import FORMER, FORMER_TITLE, Experiment, Results
from polyseme_experiments.methods.calibration import FEW, PRECISIONS
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.plots import Bins, reliability
from polyseme_experiments.report.tables import Cell, Row, Table
from polyseme_experiments.settings import get_setting

NEW = "calibration-late"
# Method, set of labels, what the row is called, and what its curve is.
OWN = (
    ("calibration", "training", "seen labels", "seen labels"),
    ("calibration", "zsl-only", "unseen labels", "unseen labels"),
    (NEW, "oov", "labels that turned up later", "new labels"),
)
COSTA = (
    ("calibration-costa", "training", "seen labels, tuned COSTA's scores"),
    ("calibration-costa", "zsl-only", "unseen labels, tuned COSTA's scores"),
)
ERROR = "calibration error"
REACHED = tuple(
    f"{what} {100 * one:.0f} %" for one in PRECISIONS for what in ("reached of", "found at")
)
MEASURES = ("true", ERROR, "log-loss", "expected / true", *REACHED)
# What is measured of new labels, and what the column is called.
NEW_MEASURES = {
    "E-MAP": "E-MAP",
    "C-MAP": "C-MAP",
    ERROR: f"{ERROR} (%)",
    "expected / true": "expected / true",
}
# What is known of the new labels, and what the row is called.
WAYS = {
    "taught": "learned from the start, as unseen labels",
    "sample": "a sample of documents that turned up later",
    "oov": "documents picked for them that turned up later",
    **{
        f"new-{n}": f"{n} document{'s' if n > 1 else ''} for each that turned up later" for n in FEW
    },
    "named": "their names alone, by word vectors",
    "chance": "nothing (chance)",
}


@dataclass(frozen=True)
class CalibrationFigure(Experiment):
    """A table and reliability curves for each setting."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            shown = [(method, column, name) for method, column, name, _ in OWN]
            former = [
                (both[1], column, f"{name}, {FORMER_TITLE}")
                for method, column, name in shown
                if len(both := results.with_former(setting, method, column, ERROR)) > 1
            ]
            rows: list[Row] = [
                (name, *(Cell.of(results.values(setting, method, column, m)) for m in MEASURES))
                for method, column, name in (*shown, *former, *COSTA)
            ]
            header = ("probabilities of", "true (%)", f"{ERROR} (%)", *MEASURES[2:])
            tables.append(self.table(results, header, rows, setting=setting))
            curves = {
                name: _curve(results, setting, method, column) for method, column, _, name in OWN
            }
            svg = reliability(f"reliability-{setting}", curves)
            title = get_setting(setting).title
            figures.append(Figure(svg, f"{title}: how often labels of each probability are true"))
        return self.make_section(*tables, self._new_labels(results), figures=figures)

    def _new_labels(self, results: Results) -> Table:
        """Compare what can be known of labels that were not learned."""
        rows: list[Row] = []
        for setting in self.settings:
            for column, name in WAYS.items():
                for method in results.with_former(setting, NEW, column, ERROR):
                    words = f"{name}, {FORMER_TITLE}" if method.startswith(FORMER) else name
                    values = (results.values(setting, method, column, m) for m in NEW_MEASURES)
                    rows.append((get_setting(setting).title, words, *map(Cell.of, values)))
        header = ("setting", "what is known of them", *NEW_MEASURES.values())
        title = "A third of the unseen labels, all held-out instances"
        return self.table(results, header, rows, suffix="-late", title=title)


def _curve(results: Results, setting: str, method: str, column: str) -> Bins:
    """Add up the bins of all trials."""
    bins: dict[int, NDArray[np.float64]] = {}
    for curve in filter(None, results.values(setting, method, column, "curve")):
        columns = (curve["counts"], curve["predicted"], curve["observed"])
        for count, predicted, observed in zip(*columns, strict=True):
            # Mean probabilities lie inside their bins, so that they say which one it is.
            place = min(int(predicted * BINS), BINS - 1)
            added = count * np.array([1.0, predicted, observed])
            bins[place] = bins.get(place, np.zeros(3)) + added
    counts, predicted, observed = np.array([bins[place] for place in sorted(bins)]).T
    return {
        "counts": counts.tolist(),
        "predicted": (predicted / counts).tolist(),
        "observed": (observed / counts).tolist(),
    }
