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
        tables = []
        figures = []
        for setting in self.settings:
            former_rows = []
            for method, column, name in self.rows:
                methods = results.with_former(setting, method, column, ERROR)
                if len(methods) > 1:
                    former_rows.append((methods[1], column, f"{name}, {FORMER_TITLE}"))
            # Former results stand behind the methods whose curves are drawn.
            n_curves = len(self.curves)
            all_rows = (*self.rows[:n_curves], *former_rows, *self.rows[n_curves:])
            rows: list[Row] = []
            for method, column, name in all_rows:
                cells = []
                for measure in self.measures:
                    values = results.values(setting, method, column, measure)
                    cells.append(Cell.of(values))
                rows.append((name, *cells))
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
                    words = name
                    if method.startswith(FORMER):
                        words = f"{name}, {FORMER_TITLE}"
                    cells = []
                    for measure in self.new_measures:
                        values = results.values(setting, method, column, measure)
                        cells.append(Cell.of(values))
                    title = get_setting(setting).title
                    rows.append((title, words, *cells))
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
    # By the number of a bin: its count, and the sums of probabilities and of true labels.
    sums_by_bin: dict[int, NDArray[np.float64]] = {}
    curves = results.values(setting, method, column, "curve")
    for curve in filter(None, curves):
        columns = (curve["counts"], curve["predicted"], curve["observed"])
        for count, mean_predicted, mean_observed in zip(*columns, strict=True):
            # Mean probabilities lie inside their bins, so that they say which one it is.
            bin_number = min(int(mean_predicted * BINS), BINS - 1)
            former_sums = sums_by_bin.get(bin_number, np.zeros(3))
            means = np.array([1.0, mean_predicted, mean_observed])
            sums_by_bin[bin_number] = former_sums + count * means
    sums = [sums_by_bin[bin_number] for bin_number in sorted(sums_by_bin)]
    counts, predicted, observed = np.array(sums).T
    return {
        "counts": counts.tolist(),
        "predicted": (predicted / counts).tolist(),
        "observed": (observed / counts).tolist(),
    }
