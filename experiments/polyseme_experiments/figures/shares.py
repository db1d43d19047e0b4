"""The default with fewer and with more unseen labels, and across corpora."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme_experiments.experiment import COLUMNS, MEASURES, Experiment, Results
from polyseme_experiments.former import FORMER, NOTE
from polyseme_experiments.methods import get_method
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.comparisons import compare_all
from polyseme_experiments.rendering.report import Section
from polyseme_experiments.settings import get_setting

SHOWN = ("training", "zsl", "zsl-only")
OURS = "default"


@dataclass(frozen=True)
class OtherShares(Experiment):
    """One row for each setting and method."""

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[tuple[Value, ...]] = []
        for setting in self.settings:
            values = self._values(results, setting)
            tests = compare_all(
                {
                    key: (values[OURS, *key[1:]], one)
                    for key, one in values.items()
                    if key[0] != OURS
                }
            )
            for method in dict.fromkeys(method for method, _, _ in values):
                cells = [
                    Cell.of(
                        values[method, measure, column],
                        mark=tests[method, measure, column]["mark"] if method != OURS else "",
                    )
                    for measure in MEASURES
                    for column in SHOWN
                ]
                title = FORMER if method == FORMER else get_method(method).title
                rows.append((get_setting(setting).title, title, *cells))
        header = [f"{measure} {COLUMNS[column]}" for measure in MEASURES for column in SHOWN]
        notes = (*results.data_notes(self.settings), *self.departures)
        table = Table(
            self.name,
            self.title,
            ("setting", "method", *header),
            tuple(rows),
            notes=(*notes, NOTE) if any(row[1] == FORMER for row in rows) else notes,
            command=command,
            reference=get_method(OURS).title,
            caution=results.caution(self.settings),
        )
        return self.make_section(table)

    def _values(
        self, results: Results, setting: str
    ) -> dict[tuple[str, str, str], list[float | None]]:
        """Give every method's values in a setting; the former default's stand beside ours."""
        known = results.former(setting, OURS, SHOWN[0], MEASURES[0])
        former = (FORMER,) if any(value is not None for value in known) else ()
        return {
            (method, measure, column): results.former(setting, OURS, column, measure)
            if method == FORMER
            else results.values(setting, method, column, measure)
            for method in (OURS, *former, *self.methods[1:])
            for measure in MEASURES
            for column in SHOWN
        }


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
