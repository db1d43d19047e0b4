"""Methods over many label splits of several corpora, compared pair by pair.

The default tagger beside tuned COSTA, part by part and with other shares of unseen labels; and the
published method beside every other one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyseme_experiments.figures.base import (
    COLUMNS,
    FORMER,
    MEASURES,
    Experiment,
    Results,
    Tests,
    score_header,
    title_of,
)
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.plots import differences
from polyseme_experiments.report.statistics import PairedTest, measured
from polyseme_experiments.report.tables import Cell, Row, Table
from polyseme_experiments.settings import TRAINING, get_setting

DEFAULT, PUBLISHED, RIVAL = "default", "polyseme", "tuned-costa"
MIX = ("default-mix", "costa-mix")
# Means over all corpora in the headline: rival, measure, set of labels, and their words.
MEANS = (
    (RIVAL, "E-MAP", "zsl-only", "E-MAP over unseen labels"),
    (RIVAL, "C-MAP", "zsl-only", "C-MAP over unseen labels"),
    (RIVAL, "E-MAP", "zsl", "E-MAP over all labels"),
    (FORMER + DEFAULT, "E-MAP", "zsl", "E-MAP over all labels"),
)
TESTED = ("zsl", "zsl-only")
FLOOR = {"popularity", "chance"}
# Composition visits every combination of labels, so it runs where these are few.
FEW_LABELS = "hsun-12"
PAIRS_NOTE = (
    "Two-sided paired t-tests over label splits. Splits share their documents, and take turns in "
    "three partitions with a concept space each, so they are not independent and p is on the small "
    "side. Holm's correction is over all tests of the table."
)


@dataclass(frozen=True)
class DefaultComparison(Experiment):
    """Our default, its parts, the former default and tuned COSTA, with paired tests."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            on_test = [name for name in self.methods_in(setting) if name not in MIX]
            title = get_setting(setting).title
            tables.append(self._scores(results, setting, on_test, title))
            if MIX[0] not in self.methods:
                continue
            mixed = f"{title}, natural mix of instances"
            tables.append(self._scores(results, setting, MIX, mixed, "-mix"))
            rivals = [RIVAL, *results.with_former(setting, DEFAULT)[1:]]
            lines: dict[str, dict[str, PairedTest]] = {}
            for (method, measure, column), test in results.tests(setting, DEFAULT, rivals).items():
                group = lines.setdefault(f"{measure}, {COLUMNS[column]}", {})
                group[title_of(method)] = test
            svg = differences(f"default-{setting}", lines, measure="points", versus="others")
            names = " and ".join(map(title_of, rivals))
            figures.append(Figure(svg, f"{title}: our default less {names}"))
        return self.make_section(*tables, figures=figures)

    def headline(self, results: Results) -> str:
        """Return how far ahead of tuned COSTA and of the former default our default is."""
        if MIX[0] not in self.methods:
            return ""  # the comparison itself has said so
        words = []
        for setting in self.settings:
            tests = results.tests(setting, DEFAULT, [RIVAL])
            gaps = []
            for measure in MEASURES:
                test = tests[RIVAL, measure, "zsl-only"]
                if test.error is not None:
                    gaps.append(f"{measure} {_gap(test)} (p = {test.p:.4f})")
            words.append(f"{setting}: {', '.join(gaps)}")
        return (
            "Our default minus tuned COSTA on unseen labels alone, over label splits (paired "
            f"t-tests, before Holm's correction): {'; '.join(words)}.{self._means(results)}"
        )

    def _means(self, results: Results) -> str:
        """Return the mean difference over all corpora in words, where every corpus has one."""
        by_rival: dict[str, list[str]] = {}
        for rival, measure, column, words in MEANS:
            tests = [
                results.tests(setting, DEFAULT, [rival])[rival, measure, column]
                for setting in self.settings
            ]
            gaps = measured([test.difference for test in tests])
            if len(gaps) == len(self.settings):
                errors = measured([test.error for test in tests])
                error = math.hypot(*errors) / len(gaps) if len(errors) == len(gaps) else None
                mean = _gap(PairedTest(len(gaps), float(gaps.mean()), error))
                by_rival.setdefault(title_of(rival), []).append(f"{words} {mean}")
        if not by_rival:
            return ""
        clauses = []
        for rival, means in by_rival.items():
            clauses.append(f"minus {rival}: {', '.join(means)}")
        return f" Mean over the {len(self.settings)} corpora, {'; '.join(clauses)}."

    def _scores(
        self, results: Results, setting: str, methods: Sequence[str], title: str, suffix: str = ""
    ) -> Table:
        """Return every method's means, and where others are significantly above or below ours."""
        ours = methods[0]
        notes = (*results.notes((setting,), features=True), *self.departures)
        return self.table(
            results,
            ("method", *score_header()),
            _score_rows(results, setting, ours, methods[1:]),
            setting=setting,
            suffix=suffix,
            title=title,
            # The published method is shown where the comparison of all methods runs it anyway.
            notes=[note for note in notes if PUBLISHED in methods or note not in TRAINING.values()],
            reference=ours,
        )


@dataclass(frozen=True)
class OtherShares(Experiment):
    """One row for each setting and method."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[Row] = [
            (get_setting(setting).title, *row)
            for setting in self.settings
            for row in _score_rows(results, setting, DEFAULT, self.methods[1:])
        ]
        header = ("setting", "method", *score_header())
        return self.make_section(self.table(results, header, rows, reference=DEFAULT))


@dataclass(frozen=True)
class SplitComparison(Experiment):
    """All methods over many label splits, with paired tests."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            title = get_setting(setting).title
            methods = self.methods_in(setting)
            tests = results.tests(setting, PUBLISHED, methods, TESTED)
            tables.append(self._scores(results, setting, tests))
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
                    setting=setting,
                    suffix="-tests",
                    title=f"{title}: concept embedding minus each other method",
                    notes=(PAIRS_NOTE,),
                )
            )
            for measure in MEASURES:
                lines = {
                    COLUMNS[column]: {
                        title_of(method): tests[method, measure, column]
                        for method in methods
                        if method not in {PUBLISHED, *FLOOR}
                    }
                    for column in TESTED
                }
                name = f"compare-{setting}-{measure[0].lower()}"
                svg = differences(name, lines, measure=measure, versus="each other method")
                caption = f"{title}: {measure}, without popularity and chance"
                figures.append(Figure(svg, caption))
        return self.make_section(*tables, figures=figures)

    def headline(self, results: Results) -> str:
        """Return how the concept embedding stands beside tuned COSTA on unseen labels."""
        words = []
        for setting in self.settings:
            tests = results.tests(setting, PUBLISHED, self.methods_in(setting), TESTED)
            gaps = []
            for measure in MEASURES:
                test = tests[RIVAL, measure, "zsl-only"]
                if test.difference is not None:
                    p = _p(test.p_holm) or "not known"
                    p = f"= {p}" if p[0].isdigit() else p
                    gaps.append(f"{measure} {_gap(test)} (p {p})")
            words.append(f"{setting}: {', '.join(gaps)}")
        return (
            f"Concept embedding minus {title_of(RIVAL)} on unseen labels alone, over label "
            f"splits: {'; '.join(words)}. p is Holm's, over all tests of a corpus."
        )

    def _scores(self, results: Results, setting: str, tests: Tests) -> Table:
        """Return every method's means, the best of each column in bold, and its seconds."""
        methods = self.methods_in(setting)
        cells = [[*results.cells(setting, method, tests).values()] for method in methods]
        best = [max(cell.mean or 0.0 for cell in column) for column in zip(*cells, strict=True)]
        rows: list[Row] = []
        for method, row in zip(methods, cells, strict=True):
            seconds = [record["seconds"] for record in results.records(setting, method)]
            pairs = zip(row, best, strict=True)
            marked = (replace(cell, best=cell.mean == top) for cell, top in pairs)
            rows.append((title_of(method), *marked, round(sum(seconds) / len(seconds), 1)))
        notes = (*results.notes((setting,), features=True), *self.departures)
        if setting != FEW_LABELS:
            notes += ("Composition refuses this many labels; it runs on HSUN's 12 most frequent.",)
        return self.table(
            results,
            ("method", *score_header(), "seconds"),
            rows,
            setting=setting,
            title=f"{get_setting(setting).title}: all methods",
            notes=notes,
            reference=PUBLISHED,
        )


def _score_rows(
    results: Results, setting: str, ours: str, rivals: Sequence[str]
) -> list[tuple[str | Cell, ...]]:
    """Return the scores of our method, the former default where there is one, and other methods."""
    former = results.with_former(setting, ours)
    methods = [*former, *rivals]
    tests = results.tests(setting, ours, methods)
    rows: list[tuple[str | Cell, ...]] = []
    for method in methods:
        title = title_of(method)
        cells = results.cells(setting, method, tests)
        values = cells.values()
        rows.append((title, *values))
    return rows


def _gap(test: PairedTest) -> str:
    """Write a difference, and its error where there is one."""
    text = f"{test.difference:+.2f}"
    if test.error is not None:
        text += f" ± {test.error:.2f}"
    return text


def _p(value: float | None) -> str | None:
    """Write a p-value."""
    if value is None:
        return None
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"
