"""The default with fewer and with more unseen labels, and across corpora."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme.experiments.experiment import COLUMNS, MEASURES, Experiment, Results
from polyseme.experiments.methods import get_method
from polyseme.experiments.rendering.cells import Cell, Table, Value
from polyseme.experiments.rendering.comparisons import compare_all
from polyseme.experiments.rendering.report import Section
from polyseme.experiments.settings import get_setting

SHOWN = ("training", "zsl", "zsl-only")
OURS = "default"


@dataclass(frozen=True)
class OtherShares(Experiment):
    """One row for each setting and method."""

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[tuple[Value, ...]] = []
        for setting in self.settings:
            pairs = {
                (method, measure, column): (
                    results.values(setting, OURS, column, measure),
                    results.values(setting, method, column, measure),
                )
                for method in self.methods
                for measure in MEASURES
                for column in SHOWN
                if method != OURS
            }
            tests = compare_all(pairs)
            for method in self.methods:
                cells = [
                    Cell.of(
                        results.values(setting, method, column, measure),
                        mark=tests[method, measure, column]["mark"] if method != OURS else "",
                    )
                    for measure in MEASURES
                    for column in SHOWN
                ]
                rows.append((get_setting(setting).title, get_method(method).title, *cells))
        header = [f"{measure} {COLUMNS[column]}" for measure in MEASURES for column in SHOWN]
        table = Table(
            self.name,
            self.title,
            ("setting", "method", *header),
            tuple(rows),
            notes=(*results.data_notes(self.settings), *self.departures),
            command=command,
            reference=get_method(OURS).title,
            caution=results.caution(self.settings),
        )
        return self.make_section(table)


EXPERIMENT = OtherShares(
    name="shares",
    title="Our default with other shares of unseen labels, and across corpora",
    text=(
        "A tenth or a half of the labels unseen instead of a quarter, and semantics learned on one "
        "corpus for the items of another. Few trials: marks need large differences."
    ),
    settings=(
        "hsun-unseen-10",
        "hsun-unseen-50",
        "corel5k-unseen-10",
        "corel5k-unseen-50",
        "msd-subset-unseen-10",
        "msd-subset-unseen-50",
        "image-cross",
        "music-cross",
    ),
    methods=(OURS, "tuned-costa", "popularity"),
    departures=("Not in the paper, but for the way across corpora.",),
)
