"""How far the default's probabilities can be believed: seen, unseen and new labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyseme.metrics import BINS
from polyseme_experiments.figures.base import FORMER, FORMER_TITLE, Experiment, Results
from polyseme_experiments.methods.calibration import PRECISIONS
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.plots import Bins, reliability
from polyseme_experiments.report.tables import Cell, Row, Table
from polyseme_experiments.settings import get_setting

NEW = "calibration-late"
ERROR = "calibration error"


@dataclass(frozen=True)
class CalibrationFigure(Experiment):
    """A table and reliability curves for each setting."""

    # Method, set of labels, and what the row is called; the default's have a curve, by its name.
    rows: tuple[tuple[str, str, str], ...] = ()
    curves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    measures: Mapping[str, str] = field(default_factory=dict)  # what a column shows: its name
    ways: Mapping[str, str] = field(default_factory=dict)  # what is known of new labels: its words
    new_measures: tuple[str, ...] = ()  # of `measures` and scores, of new labels

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            former = [
                (both[1], column, f"{name}, {FORMER_TITLE}")
                for method, column, name in self.rows
                if len(both := results.with_former(setting, method, column, ERROR)) > 1
            ]
            n_curves = len(self.curves)
            rows: list[Row] = [
                (
                    name,
                    *(Cell.of(results.values(setting, method, column, m)) for m in self.measures),
                )
                for method, column, name in (*self.rows[:n_curves], *former, *self.rows[n_curves:])
            ]
            header = ("probabilities of", *self.measures.values())
            tables.append(self.table(results, header, rows, setting=setting))
            curves = {name: _curve(results, setting, *key) for name, key in self.curves.items()}
            svg = reliability(f"reliability-{setting}", curves)
            title = get_setting(setting).title
            figures.append(Figure(svg, f"{title}: how often labels of each probability are true"))
        return self.make_section(*tables, self._new_labels(results), figures=figures)

    def _new_labels(self, results: Results) -> Table:
        """Compare what can be known of labels that were not learned."""
        rows: list[Row] = []
        for setting in self.settings:
            for column, name in self.ways.items():
                for method in results.with_former(setting, NEW, column, ERROR):
                    words = f"{name}, {FORMER_TITLE}" if method.startswith(FORMER) else name
                    values = (results.values(setting, method, column, m) for m in self.new_measures)
                    rows.append((get_setting(setting).title, words, *map(Cell.of, values)))
        names = (self.measures.get(measure, measure) for measure in self.new_measures)
        title = "A third of the unseen labels, all held-out instances"
        header = ("setting", "what is known of them", *names)
        return self.table(results, header, rows, suffix="-late", title=title)


@dataclass(frozen=True)
class PrecisionFigure(Experiment):
    """A table of precisions that were asked for and reached, seen and unseen labels."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        names = []
        for precision in PRECISIONS:
            percent = f"{100 * precision:.0f} %"
            names += [f"reached of {percent}", f"found at {percent}"]
        rows: list[Row] = []
        for setting in self.settings:
            corpus, _, _ = get_setting(setting).title.partition(",")
            for kind, column in (("seen", "training"), ("unseen", "zsl-only")):
                cells = []
                for name in names:
                    values = results.values(setting, "precision", column, name)
                    cells.append(Cell.of(values))
                rows.append((corpus, kind, *cells))
        return self.make_section(self.table(results, ("corpus", "labels", *names), rows))


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
