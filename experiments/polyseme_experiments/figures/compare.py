"""Every method on ten or more label splits of several corpora, compared pair by pair."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyseme_experiments.figures.base import (
    COLUMNS,
    MEASURES,
    Experiment,
    Results,
    Tests,
    score_header,
    title_of,
)
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.plots import differences
from polyseme_experiments.report.tables import Cell, Row, Table
from polyseme_experiments.settings import get_setting

TESTED = ("zsl", "zsl-only")
OURS, RIVAL = "polyseme", "tuned-costa"
FLOOR = {"popularity", "chance"}
# Composition visits every combination of labels, so it runs where these are few.
FEW_LABELS = "hsun-12"
PAIRS_NOTE = (
    "Two-sided paired t-tests over label splits. Splits share their documents, and take turns in "
    "three partitions with a concept space each, so they are not independent and p is on the small "
    "side. Holm's correction is over all tests of the table."
)


@dataclass(frozen=True)
class SplitComparison(Experiment):
    """All methods over many label splits, with paired tests."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            title = get_setting(setting).title
            tests = self._tests(results, setting)
            tables.append(self._scores(results, setting, title, tests))
            rows: list[Row] = [
                (
                    title_of(method),
                    measure,
                    COLUMNS[column],
                    Cell(test.difference, test.error, test.n),
                    _p(test.p),
                    _p(test.p_holm),
                )
                for (method, measure, column), test in tests.items()
            ]
            tables.append(
                self.table(
                    results,
                    ("method", "measure", "labels", "difference", "p", "p (Holm)"),
                    rows,
                    notes=(PAIRS_NOTE,),
                    suffix=f"-{setting}-tests",
                    title=f"{title}: concept embedding less each other method",
                    settings=(setting,),
                )
            )
            for measure in MEASURES:
                lines = {
                    COLUMNS[column]: {
                        title_of(method): tests[method, measure, column]
                        for method in self.methods_in(setting)
                        if method not in {OURS, *FLOOR}
                    }
                    for column in TESTED
                }
                name = f"compare-{setting}-{measure[0].lower()}"
                svg = differences(name, lines, measure=measure, versus="each other method")
                caption = f"{title}: {measure}, without popularity and chance"
                figures.append(Figure(svg, caption))
        return self.make_section(*tables, figures=figures)

    def headline(self, results: Results) -> str:
        """Say how the concept embedding stands beside tuned COSTA on unseen labels."""
        words = []
        for setting in self.settings:
            tests = self._tests(results, setting)
            parts = []
            for measure in MEASURES:
                test = tests[RIVAL, measure, "zsl-only"]
                if test.difference is not None:
                    spread = "" if test.error is None else f" ± {test.error:.2f}"
                    p = _p(test.p_holm) or "not known"
                    p = f"= {p}" if p[0].isdigit() else p
                    parts.append(f"{measure} {test.difference:+.2f}{spread} (p {p})")
            words.append(f"{setting}: {', '.join(parts)}")
        return (
            f"Concept embedding less {title_of(RIVAL)} on unseen labels alone, over label "
            f"splits: {'; '.join(words)}. p is Holm's, over all tests of a corpus."
        )

    def _tests(self, results: Results, setting: str) -> Tests:
        """Compare the concept embedding with every other method."""
        return results.tests(setting, OURS, self.methods_in(setting), TESTED)

    def _scores(self, results: Results, setting: str, title: str, tests: Tests) -> Table:
        """Give every method's means, the best of each column in bold, and its seconds."""
        methods = self.methods_in(setting)
        cells = [results.cells(setting, method, tests) for method in methods]
        best = [max(cell.mean or 0.0 for cell in column) for column in zip(*cells, strict=True)]
        rows: list[Row] = []
        for method, row in zip(methods, cells, strict=True):
            seconds = [record["seconds"] for record in results.records(setting, method)]
            marked = (
                replace(cell, best=cell.mean == top) for cell, top in zip(row, best, strict=True)
            )
            rows.append((title_of(method), *marked, round(sum(seconds) / len(seconds), 1)))
        notes = (*results.notes((setting,), features=True), *self.departures)
        if setting != FEW_LABELS:
            notes += ("Composition refuses this many labels; it runs on HSUN's 12 most frequent.",)
        return self.table(
            results,
            ("method", *score_header(), "seconds"),
            rows,
            notes=notes,
            suffix=f"-{setting}",
            title=f"{title}: all methods",
            settings=(setting,),
            reference=OURS,
        )


def _p(value: float | None) -> str | None:
    """Write a p-value."""
    if value is None:
        return None
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"
