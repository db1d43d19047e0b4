"""The default tagger beside tuned COSTA: over label splits, part by part, other label shares."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyseme_experiments.figures.base import (
    COLUMNS,
    FORMER,
    MEASURES,
    Experiment,
    Results,
    score_header,
    title_of,
)
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.plots import differences
from polyseme_experiments.report.statistics import PairedTest, measured
from polyseme_experiments.report.tables import Row, Table
from polyseme_experiments.settings import TRAINING, get_setting

OURS, RIVAL = "default", "tuned-costa"
MIX = ("default-mix", "costa-mix")
# The published method is shown where `compare` runs it anyway.
PUBLISHED, COMPARED = "polyseme", ("hsun", "corel5k", "msd-subset")
# Means over all corpora in the headline: rival, measure, set of labels, and their words.
MEANS = (
    (RIVAL, "E-MAP", "zsl-only", "E-MAP over unseen labels"),
    (RIVAL, "C-MAP", "zsl-only", "C-MAP over unseen labels"),
    (RIVAL, "E-MAP", "zsl", "E-MAP over all labels"),
    (FORMER + OURS, "E-MAP", "zsl", "E-MAP over all labels"),
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
            tables.append(self._scores(results, setting, list(MIX), mixed, "-mix"))
            rivals = [RIVAL, *results.with_former(setting, OURS)[1:]]
            lines: dict[str, dict[str, PairedTest]] = {}
            tests = results.tests(setting, OURS, rivals)
            for (method, measure, column), test in tests.items():
                group = lines.setdefault(f"{measure}, {COLUMNS[column]}", {})
                group[title_of(method)] = test
            svg = differences(f"default-{setting}", lines, measure="points", versus="others")
            names = " and ".join(map(title_of, rivals))
            figures.append(Figure(svg, f"{title}: our default less {names}"))
        return self.make_section(*tables, figures=figures)

    def headline(self, results: Results) -> str:
        """Say how far ahead of tuned COSTA and of the former default our default is."""
        if MIX[0] not in self.methods:
            return ""  # the comparison itself has said so
        words = []
        for setting in self.settings:
            tests = results.tests(setting, OURS, [RIVAL])
            parts = []
            for measure in MEASURES:
                test = tests[RIVAL, measure, "zsl-only"]
                if test.difference is not None and test.error is not None:
                    parts.append(
                        f"{measure} {test.difference:+.2f} ± {test.error:.2f} (p = {test.p:.4f})"
                    )
            words.append(f"{setting}: {', '.join(parts)}")
        return (
            "Our default less tuned COSTA on unseen labels alone, over label splits (paired "
            f"t-tests, before Holm's correction): {'; '.join(words)}.{self._means(results)}"
        )

    def _means(self, results: Results) -> str:
        """Say the mean of the differences over all corpora, where every corpus has them."""
        by_rival: dict[str, list[str]] = {}
        for rival, measure, column, words in MEANS:
            tests = [
                results.tests(setting, OURS, [rival])[rival, measure, column]
                for setting in self.settings
            ]
            gaps = measured([test.difference for test in tests])
            if len(gaps) < len(self.settings):
                continue
            errors = measured([test.error for test in tests])
            error = f" ± {math.hypot(*errors) / len(gaps):.2f}" if len(errors) == len(gaps) else ""
            by_rival.setdefault(title_of(rival), []).append(f"{words} {gaps.mean():+.2f}{error}")
        if not by_rival:
            return ""
        parts = (f"less {rival}: {', '.join(some)}" for rival, some in by_rival.items())
        return f" Mean over the {len(self.settings)} corpora, {'; '.join(parts)}."

    def _scores(
        self, results: Results, setting: str, methods: list[str], title: str, suffix: str = ""
    ) -> Table:
        """Give every method's means, and where others are significantly above or below ours."""
        ours = methods[0]
        shown = [*results.with_former(setting, ours), *methods[1:]]
        tests = results.tests(setting, ours, shown)
        notes = (*results.notes((setting,), features=True), *self.departures)
        return self.table(
            results,
            ("method", *score_header()),
            [(title_of(method), *results.cells(setting, method, tests)) for method in shown],
            notes=[note for note in notes if PUBLISHED in methods or note not in TRAINING.values()],
            suffix=f"-{setting}{suffix}",
            title=title,
            settings=(setting,),
            reference=ours,
        )


@dataclass(frozen=True)
class OtherShares(Experiment):
    """One row for each setting and method."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[Row] = []
        for setting in self.settings:
            shown = [*results.with_former(setting, OURS), *self.methods[1:]]
            tests = results.tests(setting, OURS, shown)
            title = get_setting(setting).title
            for method in shown:
                rows.append((title, title_of(method), *results.cells(setting, method, tests)))
        table = self.table(
            results,
            ("setting", "method", *score_header()),
            rows,
            notes=(*results.data_notes(self.settings), *self.departures),
            reference=OURS,
        )
        return self.make_section(table)
