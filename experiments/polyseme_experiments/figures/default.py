"""The default tagger beside tuned COSTA over label splits, and what each of its parts is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyseme_experiments.experiment import COLUMNS, MEASURES, Experiment, Results
from polyseme_experiments.former import FORMER, NOTE
from polyseme_experiments.methods import get_method
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.comparisons import compare_all, measured
from polyseme_experiments.rendering.plots import Difference, differences
from polyseme_experiments.rendering.report import Figure, Section
from polyseme_experiments.schedule import Run
from polyseme_experiments.settings import TRAINING, get_setting

SHOWN = ("training", "zsl", "zsl-only")
OURS, RIVAL = "default", "tuned-costa"
MIX = ("default-mix", "costa-mix")
# The published method is shown where `compare` runs it anyway.
PUBLISHED, COMPARED = "polyseme", ("hsun", "corel5k", "msd-subset")
# What the mean over all corpora is told of: rival, measure, set of labels, and its words.
MEANS = (
    (RIVAL, "E-MAP", "zsl-only", "E-MAP over unseen labels"),
    (RIVAL, "C-MAP", "zsl-only", "C-MAP over unseen labels"),
    (RIVAL, "E-MAP", "zsl", "E-MAP over all labels"),
    (FORMER, "E-MAP", "zsl", "E-MAP over all labels"),
)


@dataclass(frozen=True)
class DefaultComparison(Experiment):
    """Our default, its parts, the former default and tuned COSTA, with paired tests."""

    def runs(self, trials: int, *, quick: bool = False) -> list[Run]:
        """List the runs it needs; see `Experiment.runs`."""
        return [
            run
            for run in super().runs(trials, quick=quick)
            if run.method in self._methods_in(run.setting)
        ]

    def _methods_in(self, setting: str) -> list[str]:
        """Name the methods that are run in a setting."""
        return [name for name in self.methods if name != PUBLISHED or setting in COMPARED]

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            on_test = [name for name in self._methods_in(setting) if name not in MIX]
            title = get_setting(setting).title
            tables.append(self._scores(results, setting, on_test, title, command))
            if MIX[0] not in self.methods:
                continue
            mixed = f"{title}, natural mix of instances"
            tables.append(self._scores(results, setting, list(MIX), mixed, command))
            rivals = [RIVAL, *self._former(results, setting, OURS)]
            lines = [
                Difference(
                    f"{measure}, {COLUMNS[column]}",
                    _title(method),
                    test["difference"],
                    test["low"],
                    test["high"],
                )
                for rival in rivals
                for (method, measure, column), test in self._tests(
                    results, setting, [rival], OURS
                ).items()
            ]
            svg = differences(f"default-{setting}", lines, measure="points", versus="others")
            names = " and ".join(map(_title, rivals))
            figures.append(Figure(svg, f"{title}: our default less {names}"))
        return self.make_section(*tables, figures=figures)

    def headline(self, results: Results) -> str:
        """Say how far ahead of tuned COSTA and of the former default our default is."""
        if MIX[0] not in self.methods:
            return ""  # the comparison itself has said so
        words = []
        for setting in self.settings:
            tests = self._tests(results, setting, [RIVAL], OURS)
            told = []
            for measure in MEASURES:
                test = tests[RIVAL, measure, "zsl-only"]
                if test["difference"] is not None and test["standard_error"] is not None:
                    told.append(
                        f"{measure} {test['difference']:+.2f} ± {test['standard_error']:.2f} "
                        f"(p = {test['p']:.4f})"
                    )
            words.append(f"{setting}: {', '.join(told)}")
        return (
            "Our default less tuned COSTA on unseen labels alone, over label splits (paired "
            f"t-tests, before Holm's correction): {'; '.join(words)}.{self._means(results)}"
        )

    def _means(self, results: Results) -> str:
        """Say the mean of the differences over all corpora, where every corpus has them."""
        told: dict[str, list[str]] = {}
        for rival, measure, column, words in MEANS:
            tests = [
                self._tests(results, setting, [rival], OURS)[rival, measure, column]
                for setting in self.settings
            ]
            gaps = measured([test["difference"] for test in tests])
            if len(gaps) < len(self.settings):
                continue
            errors = measured([test["standard_error"] for test in tests])
            error = f" ± {math.hypot(*errors) / len(gaps):.2f}" if len(errors) == len(gaps) else ""
            told.setdefault(_title(rival), []).append(f"{words} {gaps.mean():+.2f}{error}")
        if not told:
            return ""
        parts = (f"less {rival}: {', '.join(some)}" for rival, some in told.items())
        return f" Mean over the {len(self.settings)} corpora, {'; '.join(parts)}."

    def _former(self, results: Results, setting: str, ours: str) -> list[str]:
        """Name the former default where it was measured on the same splits."""
        known = results.former(setting, ours, SHOWN[0], MEASURES[0])
        return [FORMER] if any(value is not None for value in known) else []

    def _values(
        self, results: Results, setting: str, method: str, ours: str, column: str, measure: str
    ) -> list[float | None]:
        """Give a row's values; the former default stands beside ours."""
        if method == FORMER:
            return results.former(setting, ours, column, measure)
        return results.values(setting, method, column, measure)

    def _tests(
        self, results: Results, setting: str, methods: Sequence[str], ours: str
    ) -> dict[tuple[str, str, str], Any]:
        """Compare our values with other methods' over the splits."""
        pairs = {
            (method, measure, column): (
                results.values(setting, ours, column, measure),
                self._values(results, setting, method, ours, column, measure),
            )
            for method in methods
            for measure in MEASURES
            for column in SHOWN
            if method != ours
        }
        return compare_all(pairs)

    def _scores(
        self, results: Results, setting: str, methods: list[str], title: str, command: str
    ) -> Table:
        """Give every method's means, and where others are significantly above or below ours."""
        ours = methods[0]
        former = self._former(results, setting, ours)
        shown = [ours, *former, *methods[1:]]
        tests = self._tests(results, setting, shown, ours)
        rows: list[tuple[Value, ...]] = []
        for method in shown:
            cells = [
                Cell.of(
                    self._values(results, setting, method, ours, column, measure),
                    mark=tests[method, measure, column]["mark"] if method != ours else "",
                )
                for measure in MEASURES
                for column in SHOWN
            ]
            rows.append((_title(method), *cells))
        header = [f"{measure} {COLUMNS[column]}" for measure in MEASURES for column in SHOWN]
        suffix = "-mix" if ours in MIX else ""
        notes = (*results.notes((setting,), features=True), *self.departures)
        if PUBLISHED not in methods:
            notes = tuple(note for note in notes if note not in TRAINING.values())
        return Table(
            f"{self.name}-{setting}{suffix}",
            title,
            ("method", *header),
            tuple(rows),
            notes=(*notes, NOTE) if former else notes,
            command=command,
            reference=get_method(ours).title,
            caution=results.caution((setting,)),
        )


def _title(method: str) -> str:
    """Name a row."""
    return FORMER if method == FORMER else get_method(method).title


EXPERIMENT = DefaultComparison(
    name="default",
    title="Our default beside tuned COSTA",
    text=(
        "Beyond the paper: the default tagger codes documents and items in one space and reads "
        "every label from it. Tuned COSTA has the same features and splits. Priming ranks labels "
        "by the votes of known documents near an item's code alone. The recipe was found on "
        "nested splits of the training halves of HSUN, Corel5K and the MSD subset (label splits "
        "of seeds 0 to 2), of Delicious and of the cooking questions. HSUN's test pictures "
        "and the emoji played no part in that; Corel5K and the MSD subset are partitioned "
        "anew for every seed, so most of their test items did, with other labels hidden. "
        "`results/default-model.md` has the search."
    ),
    settings=(*COMPARED, "emoji"),
    methods=(OURS, RIVAL, "default-priming", PUBLISHED, *MIX),
    trials=(10, 1000),
    departures=("Not in the paper.",),
)
