"""Kinds of the paper's tables and figures, with its published values beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyseme_experiments.figures.base import (
    COLUMNS,
    MEASURES,
    SHOWN,
    Experiment,
    Results,
    title_of,
)
from polyseme_experiments.methods import get_method
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.plots import bars, curves, senses, usage, usage_correlation
from polyseme_experiments.report.tables import Cell, Row
from polyseme_experiments.settings import get_setting

# Means and standard errors of E-MAP and of C-MAP, over these columns in this order.
PUBLISHED_COLUMNS = ("training", "zsl", "all", "oov")
Pairs = tuple[tuple[float, float], ...]
Published = Mapping[str, tuple[Pairs, Pairs]]


@dataclass(frozen=True)
class ScoreFigure(Experiment):
    """Example and concept MAP: methods down, sets of labels across (in the paper: Figs 6 to 14).

    Attributes
    ----------
    columns : tuple of str
        Sets of labels, left to right.
    published : mapping of method to (E-MAP, C-MAP)
        For each measure pairs of mean and standard error over `PUBLISHED_COLUMNS`.
    reference : str
        The method that all others are compared with, pair by pair over the trials, if any.
    by_dimension : bool
        Whether methods differ in the dimension of the concept space, so that curves say more
        than bars.
    """

    columns: tuple[str, ...] = SHOWN
    published: Published = field(default_factory=dict)
    reference: str = ""
    by_dimension: bool = False

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        cells = self._cells(results)
        rows: list[Row] = [
            (title_of(method), measure, *cells[method, measure].values())
            for measure in MEASURES
            for method in self.methods
        ]
        table = self.table(
            results,
            ("method", "measure", *(COLUMNS[column] for column in self.columns)),
            rows,
            notes=self.all_notes(results),
            reference=self.reference,
        )
        return self.make_section(table, figures=[self._plot(cells, m) for m in MEASURES])

    def _cells(self, results: Results) -> dict[tuple[str, str], dict[str, Cell]]:
        """Give the cells of each method and measure, by the name of the set of labels."""
        (setting,) = self.settings
        methods = self.methods if self.reference else ()
        tests = results.tests(setting, self.reference, methods, self.columns)
        cells: dict[tuple[str, str], dict[str, Cell]] = {}
        for method in self.methods:
            for place, measure in enumerate(MEASURES):
                pairs = self.published[method][place] if method in self.published else ()
                published = dict(zip(PUBLISHED_COLUMNS, pairs, strict=False))
                cells[method, measure] = {
                    COLUMNS[column]: Cell.of(
                        results.values(setting, method, column, measure),
                        published.get(column),
                        mark=tests[key].mark if (key := (method, measure, column)) in tests else "",
                    )
                    for column in self.columns
                }
        return cells

    def _plot(self, cells: dict[tuple[str, str], dict[str, Cell]], measure: str) -> Figure:
        """Draw one measure: bars, or curves of each set of labels over the dimension."""
        name = f"{self.name}-{measure[0].lower()}"
        if not self.by_dimension:
            series = {title_of(method): cells[method, measure] for method in self.methods}
            return Figure(bars(name, series, measure=measure), measure)
        lines: dict[str, dict[float, Cell]] = {}
        for method in self.methods:
            own = ", own document known" if method.endswith("-own") else ""
            for column, cell in cells[method, measure].items():
                lines.setdefault(column + own, {})[get_method(method).dimensions[0]] = cell
        return Figure(curves(name, lines, measure=measure), measure)


@dataclass(frozen=True)
class FeatureFigure(Experiment):
    """Image feature sets by the C-MAP of classifiers (in the paper: Appendix A).

    Attributes
    ----------
    published : mapping of method to (name, mean, standard error)
        The paper's feature set that corresponds to ours.
    """

    published: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        (setting,) = self.settings
        rows: list[Row] = []
        for method in self.methods:
            name, *value = self.published.get(method, ("",))
            sizes = results.values(setting, method, "training", "features")
            values = results.values(setting, method, "training", "C-MAP")
            cell = Cell.of(values, (value[0], value[1]) if value else None)
            rows.append((title_of(method), int(sizes[0] or 0), name, cell))
        header = ("feature set", "features", "in the paper", "C-MAP")
        table = self.table(results, header, rows, notes=self.all_notes(results))
        series: Any = {row[0]: {"C-MAP": row[3]} for row in rows}
        return self.make_section(table, figures=[Figure(bars(self.name, series, measure="C-MAP"))])


@dataclass(frozen=True)
class SensePictures(Experiment):
    """Labels whose concepts fall apart most clearly, in two dimensions."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        record = results.records(self.settings[0], self.methods[0])[0]
        rows: list[Row] = []
        figures = []
        for number, one in enumerate(record["metrics"]["senses"]["maps"]):
            label, company, kinds = one["label"], one["words"], one["senses"]
            for sense, words in enumerate(company):
                rows.append((label, sense + 1, kinds.count(sense), ", ".join(words)))
            others = one["background"]
            svg = senses(
                f"fig1-{number}", one["points"], kinds, company, label=label, others=others
            )
            figures.append(Figure(svg, f"“{label}”, silhouette {one['silhouette']:.2f}"))
        header = ("label", "sense", "documents", "typical company")
        table = self.table(results, header, rows, notes=results.data_notes(self.settings))
        return self.make_section(table, figures=figures)


@dataclass(frozen=True)
class UsageFigure(Experiment):
    """Label usage of the source beside the target's.

    Attributes
    ----------
    published : mapping of setting to float
        The correlation that the paper states.
    """

    published: Mapping[str, float] = field(default_factory=dict)

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[Row] = []
        figures = []
        for setting in self.settings:
            record = results.records(setting, "usage")[0]
            source, target = record["config"]["corpora"]
            first, second = (record["metrics"]["usage"][side] for side in ("source", "target"))
            shared = sum(share > 0 for share in second.values())
            correlation = usage_correlation(first, second)
            rounded = None if correlation is None else round(correlation, 2)
            title = get_setting(setting).title
            published = self.published[setting]
            rows.append((title, source, target, len(first), shared, rounded, published))
            svg = usage(f"fig5-{setting}", first, second, names=(source, target))
            figures.append(Figure(svg, title))
        header = ("setting", "source", "target", "labels", "shared", "correlation", "published")
        table = self.table(results, header, rows, notes=results.data_notes(self.settings))
        return self.make_section(table, figures=figures)


SIZES = {
    "seen": "seen labels",
    "unseen": "unseen labels",
    "oov": "oov labels",
    "documents": "instances",
    "semantics": "S_tr",
    "semantics_validation": "S_val",
    "semantics_test": "S_tst",
    "train": "IM_tr",
    "validation": "IM_val",
    "test": "IM_tst",
}


@dataclass(frozen=True)
class SizeTable(Experiment):
    """Sizes of labels and sets, setting by setting; published: a mean, or with its error."""

    published: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        corpora = [
            " → ".join(dict.fromkeys(results.records(setting, "sizes")[0]["config"]["corpora"]))
            for setting in self.settings
        ]
        rows: list[Row] = [("corpora", *corpora)]
        for size, words in SIZES.items():
            cells = (
                Cell.of(
                    self._counts(results, setting, size),
                    self.published.get(setting, {}).get(size),
                    digits=0,
                )
                for setting in self.settings
            )
            rows.append((words, *cells))
        notes = (*results.data_notes(self.settings), *self.departures)
        table = self.table(results, ("set", *self.settings), rows, notes=notes)
        return self.make_section(table)

    def _counts(self, results: Results, setting: str, size: str) -> list[float | None]:
        """Give a size in every trial; of another corpus, only usable documents count."""
        if size != "documents" or get_setting(setting).protocol != "cross":
            return results.values(setting, "sizes", "sizes", size)
        sets = ("train", "validation", "test")
        parts = [results.values(setting, "sizes", "sizes", part) for part in sets]
        return [sum(value or 0 for value in trial) for trial in zip(*parts, strict=True)]


UNITS = {
    "s_squared": "s (squared)",
    "s_mean": "s (plain)",
    "error": "error",
    "relative_paper": "error / s (squared)",
    "relative": "error / √s (squared)",
}


@dataclass(frozen=True)
class RegressionTable(Experiment):
    """Spread and regression error by dimension; published: `UNITS` but s (plain)."""

    published: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[Row] = []
        series: dict[str, dict[float, Cell]] = {}
        for setting in self.settings:
            for d, (first, *others) in self.published[setting].items():
                cells = [
                    Cell.of(results.values(setting, f"mapping-{d}", "space", unit), value)
                    for unit, value in zip(UNITS, (first, None, *others), strict=True)
                ]
                rows.append((get_setting(setting).title, int(d), *cells))
                series.setdefault(setting, {})[int(d)] = cells[-1]
        header = ("setting", "d", *UNITS.values())
        table = self.table(results, header, rows, notes=self.all_notes(results))
        figure = Figure(curves("table2-error", series, measure="error / √s"))
        return self.make_section(table, figures=[figure])
