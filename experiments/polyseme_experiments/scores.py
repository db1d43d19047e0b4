"""Figures that print example and concept MAP: methods down, sets of labels across.

In: records of one setting. Out: a table with the published values in brackets, and plots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyseme_experiments.experiment import COLUMNS, MEASURES, Experiment, Results
from polyseme_experiments.methods import get_method
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.comparisons import compare_all
from polyseme_experiments.rendering.plots import Point, bars, curves, points_of
from polyseme_experiments.rendering.report import Figure, Section

Published = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]


@dataclass(frozen=True)
class ScoreFigure(Experiment):
    """One of the paper's Figs 6 to 14.

    Attributes
    ----------
    columns : tuple of str
        Sets of labels, left to right.
    published : mapping of (method, measure) to mapping of column to (mean, standard error)
    reference : str, optional
        The method that all others are compared with, pair by pair over the trials.
    by_dimension : bool
        Whether methods differ in the dimension of the concept space, so that curves say more
        than bars.
    """

    columns: tuple[str, ...] = ("training", "zsl", "zsl-only")
    published: Published = field(default_factory=dict)
    reference: str | None = None
    by_dimension: bool = False

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        table = self._table(results, command)
        figures = []
        for measure in MEASURES:
            name = f"{self.name}-{measure[0].lower()}"
            if self.by_dimension:
                points = self._by_dimension(results, measure)
                figures.append(Figure(curves(name, points, measure=measure), measure))
            else:
                shown = points_of(table, "method", where={"measure": measure})
                figures.append(Figure(bars(name, shown, measure=measure), measure))
        return self.make_section(table, figures=figures)

    def _table(self, results: Results, command: str) -> Table:
        """Give one row for each method and measure."""
        (setting,) = self.settings
        marks = self._marks(results)
        rows: list[tuple[Value, ...]] = []
        for measure in MEASURES:
            for method in self.methods:
                published = self.published.get((method, measure), {})
                rows.append(
                    (
                        get_method(method).title,
                        measure,
                        *(
                            Cell.of(
                                results.values(setting, method, column, measure),
                                published.get(column),
                                mark=marks.get((method, measure, column), ""),
                            )
                            for column in self.columns
                        ),
                    )
                )
        return Table(
            self.name,
            self.title,
            ("method", "measure", *(COLUMNS[column] for column in self.columns)),
            tuple(rows),
            notes=self.all_notes(results),
            command=command,
            caution=results.caution(self.settings),
            reference="" if self.reference is None else get_method(self.reference).title,
        )

    def _marks(self, results: Results) -> dict[tuple[str, str, str], str]:
        """Mark what is significantly above or below the reference over the trials."""
        if self.reference is None:
            return {}
        (setting,) = self.settings
        pairs = {
            (method, measure, column): (
                results.values(setting, self.reference, column, measure),
                results.values(setting, method, column, measure),
            )
            for method in self.methods
            for measure in MEASURES
            for column in self.columns
            if method != self.reference
        }
        return {key: test["mark"] for key, test in compare_all(pairs).items()}

    def _by_dimension(self, results: Results, measure: str) -> list[Point]:
        """Give a curve for each set of labels, and for each reading of the own document."""
        (setting,) = self.settings
        points = []
        for method in self.methods:
            known = get_method(method)
            own = ", own document known" if method.endswith("-own") else ""
            published = self.published.get((method, measure), {})
            for column in self.columns:
                cell = Cell.of(
                    results.values(setting, method, column, measure), published.get(column)
                )
                points.append(
                    Point(
                        COLUMNS[column] + own,
                        float(known.dimensions[0]),
                        cell.mean,
                        cell.error,
                        cell.published,
                        cell.published_error,
                    )
                )
        return points
