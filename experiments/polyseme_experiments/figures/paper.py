"""Kinds of the paper's tables and figures, with its published values beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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

# Of these sets of labels the paper has means and standard errors, in this order.
PUBLISHED_COLUMNS = ("training", "zsl", "all", "oov")
Cells = dict[tuple[str, str], Cell]


@dataclass(frozen=True)
class ScoreFigure(Experiment):
    """Example and concept MAP: methods down, sets of labels across (in the paper: Figs 6 to 14).

    Published: for each method E-MAP and C-MAP over `PUBLISHED_COLUMNS`.
    """

    columns: tuple[str, ...] = SHOWN  # sets of labels, left to right
    reference: str = ""  # the method that all others are compared with, over the trials, if any
    by_dimension: bool = False  # methods differ in dimension, so that curves say more than bars

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        cells = self._cells(results)
        rows: list[Row] = [
            (title_of(method), measure, *(cells[method][measure, c] for c in self.columns))
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

    def _cells(self, results: Results) -> dict[str, Cells]:
        """Return the cells of each method, by measure and set of labels."""
        (setting,) = self.settings
        methods = self.methods if self.reference else ()
        tests = results.tests(setting, self.reference, methods, self.columns)
        cells = {}
        for method in self.methods:
            cells[method] = results.cells(setting, method, tests, self.columns)
            for measure, pairs in zip(MEASURES, self.published.get(method, ()), strict=False):
                for column, (mean, error) in zip(PUBLISHED_COLUMNS, pairs, strict=False):
                    if (key := (measure, column)) in cells[method]:
                        beside = {"published": mean, "published_error": error}
                        cells[method][key] = replace(cells[method][key], **beside)
        return cells

    def _plot(self, cells: dict[str, Cells], measure: str) -> Figure:
        """Draw one measure: bars, or curves of each set of labels over the dimension."""
        name = f"{self.name}-{measure[0].lower()}"
        bars_of: dict[str, dict[str, Cell]] = {}
        lines: dict[str, dict[float, Cell]] = {}
        for method in self.methods:
            suffix = ", own document known" if method.endswith("-own") else ""
            for column in self.columns:
                cell = cells[method][measure, column]
                bars_of.setdefault(title_of(method), {})[COLUMNS[column]] = cell
                if self.by_dimension:
                    dimension = get_method(method).dimensions[0]
                    lines.setdefault(COLUMNS[column] + suffix, {})[dimension] = cell
        if self.by_dimension:
            return Figure(curves(name, lines, measure=measure), measure)
        return Figure(bars(name, bars_of, measure=measure), measure)


@dataclass(frozen=True)
class FeatureFigure(Experiment):
    """Image feature sets by the C-MAP of classifiers (in the paper: Appendix A).

    Published: for each method the paper's feature set that corresponds, a mean and its error.
    """

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
        for number, layout in enumerate(record["metrics"]["senses"]["maps"]):
            label = layout["label"]
            contexts = layout["words"]
            kinds = layout["senses"]
            for sense, words in enumerate(contexts):
                rows.append((label, sense + 1, kinds.count(sense), ", ".join(words)))
            svg = senses(
                f"fig1-{number}",
                layout["points"],
                kinds,
                contexts,
                label=label,
                background=layout["background"],
            )
            caption = f"“{label}”, silhouette {layout['silhouette']:.2f}"
            figures.append(Figure(svg, caption))
        header = ("label", "sense", "documents", "typical company")
        table = self.table(results, header, rows)
        return self.make_section(table, figures=figures)


@dataclass(frozen=True)
class UsageFigure(Experiment):
    """Label usage of the source beside the target's; published: a correlation by setting."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[Row] = []
        figures = []
        for setting in self.settings:
            record = results.records(setting, "usage")[0]
            source, target = record["config"]["corpora"]
            shares_by_side = record["metrics"]["usage"]
            first = shares_by_side["source"]
            second = shares_by_side["target"]
            shared = sum(share > 0 for share in second.values())
            correlation = usage_correlation(first, second)
            rounded = None if correlation is None else round(correlation, 2)
            title = get_setting(setting).title
            published = self.published[setting]
            rows.append((title, source, target, len(first), shared, rounded, published))
            svg = usage(f"fig5-{setting}", first, second, names=(source, target))
            figures.append(Figure(svg, title))
        header = ("setting", "source", "target", "labels", "shared", "correlation", "published")
        table = self.table(results, header, rows)
        return self.make_section(table, figures=figures)


@dataclass(frozen=True)
class SizeTable(Experiment):
    """Sizes of labels and sets, setting by setting; published: a mean, or with its error."""

    sizes: Mapping[str, str] = field(default_factory=dict)

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        corpora = [
            " → ".join(dict.fromkeys(results.records(setting, "sizes")[0]["config"]["corpora"]))
            for setting in self.settings
        ]
        rows: list[Row] = [("corpora", *corpora)]
        for size, words in self.sizes.items():
            cells = (
                Cell.of(
                    self._counts(results, setting, size),
                    self.published.get(setting, {}).get(size),
                    digits=0,
                )
                for setting in self.settings
            )
            rows.append((words, *cells))
        return self.make_section(self.table(results, ("set", *self.settings), rows))

    def _counts(self, results: Results, setting: str, size: str) -> list[float | None]:
        """Return a size in every trial; of another corpus, only usable documents count."""
        is_cross = get_setting(setting).protocol == "cross"
        if size != "documents" or not is_cross:
            return results.values(setting, "sizes", "sizes", size)
        sizes_by_set = []
        for name in ("train", "validation", "test"):
            sizes = results.values(setting, "sizes", "sizes", name)
            sizes_by_set.append(sizes)
        counts: list[float | None] = []
        sizes_by_trial = zip(*sizes_by_set, strict=True)
        for sizes_of_trial in sizes_by_trial:
            filled = filter(None, sizes_of_trial)
            count = sum(filled)
            counts.append(count)
        return counts


@dataclass(frozen=True)
class RegressionTable(Experiment):
    """Spread and regression error by dimension; published: all units but s (plain)."""

    units: Mapping[str, str] = field(default_factory=dict)

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[Row] = []
        series: dict[str, dict[float, Cell]] = {}
        for setting in self.settings:
            title = get_setting(setting).title
            for d, (first, *further) in self.published[setting].items():
                published = (first, None, *further)
                cells = []
                for unit, value in zip(self.units, published, strict=True):
                    values = results.values(setting, f"mapping-{d}", "space", unit)
                    cells.append(Cell.of(values, value))
                rows.append((title, int(d), *cells))
                errors = series.setdefault(setting, {})
                errors[int(d)] = cells[-1]
        header = ("setting", "d", *self.units.values())
        table = self.table(results, header, rows, notes=self.all_notes(results))
        figure = Figure(curves("table2-error", series, measure="error / √s"))
        return self.make_section(table, figures=[figure])
