"""What every table and figure has in common: the runs it needs, and a section made of records.

In: records of runs, and the last figures of the former default. Out: `Results` and `Experiment`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from polyseme_experiments.methods import get_method
from polyseme_experiments.records import Record, config_hash
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.statistics import PairedTest, compare_all
from polyseme_experiments.report.tables import Cell, Row, Table
from polyseme_experiments.runner import Run
from polyseme_experiments.settings import TRAINING, get_setting

COLUMNS = {"training": "Training", "zsl": "ZSL", "zsl-only": "ZSL only", "all": "All", "oov": "OOV"}
SHOWN = ("training", "zsl", "zsl-only")
MEASURES = ("E-MAP", "C-MAP")
# The default before there was one concept space: "former:default" are its last figures for the
# trials of the method "default". Its code is gone.
FORMER = "former:"
FORMER_TITLE = "experts (former default)"
FORMER_NOTE = (
    "Experts: the default before there was one concept space. Their code is gone; the figures are "
    "those of their last records, for the same trials."
)

SAMPLE_NOTE = (
    "SAMPLES of our own making and short trainings: these figures say nothing about the method."
)

Tests = dict[tuple[str, str, str], PairedTest]


class Results:
    """Records of runs, found by what they measure; `command` makes their tables again."""

    def __init__(self, records: Iterable[Record], command: str = "") -> None:
        self.command = command
        self._records: dict[tuple[str, str], dict[int, Record]] = {}
        for record in records:
            setting = record["setting"]
            method = record["method"]
            trial = record["trial"]
            key = (setting, method)
            records_by_trial = self._records.setdefault(key, {})
            records_by_trial[trial] = record

    def records(self, setting: str, method: str) -> list[Record]:
        """Return the records of a method, by trial."""
        records_by_trial = self._records.get((setting, method), {})
        return [records_by_trial[trial] for trial in sorted(records_by_trial)]

    def values(self, setting: str, method: str, column: str, measure: str) -> list[Any]:
        """Return one measured value for each trial, None where a trial has none.

        A method that begins with `FORMER` gives the former default's values for the same trials.
        """
        records = self.records(setting, method.removeprefix(FORMER))
        if method.startswith(FORMER):
            return [_former_value(record, column, measure) for record in records]
        values = []
        for record in records:
            metrics = record["metrics"].get(column, {})
            values.append(metrics.get(measure))
        return values

    def with_former(
        self, setting: str, method: str, column: str = SHOWN[0], measure: str = MEASURES[0]
    ) -> list[str]:
        """Return a method, and the former default if it was measured on the same splits."""
        former = FORMER + method
        values = self.values(setting, former, column, measure)
        methods = [method]
        if any(value is not None for value in values):
            methods.append(former)
        return methods

    def cautions(self, settings: Sequence[str]) -> dict[str, str]:
        """Return footnotes on samples and stand-ins of some settings, and each in a few words."""
        first = {name: trials for (name, _), trials in reversed(self._records.items())}
        cautions = {}
        for record in (next(iter(first[name].values())) for name in settings if name in first):
            if record["sample"]:
                cautions[SAMPLE_NOTE] = "sample"
            for corpus, original in record["stand_in"].items():
                if original:
                    note = f"STAND-IN: {corpus} is used in place of {original}."
                    cautions[note] = f"{corpus} stands in for {original}"
        return cautions

    def notes(self, settings: Sequence[str], *, features: bool = False) -> tuple[str, ...]:
        """Return footnotes on data, training and departures of some settings."""
        presets = {
            record["config"].get("preset")
            for (name, _), trials in self._records.items()
            if name in settings
            for record in trials.values()
        }
        notes = [*self.cautions(settings)]
        notes += [TRAINING[preset] for preset in sorted(presets & TRAINING.keys())]
        for setting in map(get_setting, settings):
            notes += setting.departures + (setting.feature_departures if features else ())
        return tuple(dict.fromkeys(notes))

    def tests(
        self, setting: str, ours: str, methods: Sequence[str], columns: Sequence[str] = SHOWN
    ) -> Tests:
        """Compare our values with other methods' over the trials, by (method, measure, column)."""
        pairs = {}
        rivals = [method for method in methods if method != ours]
        for method in rivals:
            for measure in MEASURES:
                for column in columns:
                    our_values = self.values(setting, ours, column, measure)
                    their_values = self.values(setting, method, column, measure)
                    pairs[method, measure, column] = (our_values, their_values)
        return compare_all(pairs)

    def cells(
        self, setting: str, method: str, tests: Tests, columns: Sequence[str] = SHOWN
    ) -> dict[tuple[str, str], Cell]:
        """Return a method's scores by measure and set of labels."""
        cells = {}
        for measure in MEASURES:
            for column in columns:
                values = self.values(setting, method, column, measure)
                test = tests.get((method, measure, column))
                mark = ""
                if test is not None:
                    mark = test.mark
                cell = Cell.of(values, mark=mark)
                cells[measure, column] = cell
        return cells


def score_header() -> list[str]:
    """Name the columns of `Results.cells`."""
    header = []
    for measure in MEASURES:
        header += [f"{measure} {COLUMNS[column]}" for column in SHOWN]
    return header


def title_of(method: str) -> str:
    """Name a method in tables."""
    return FORMER_TITLE if method.startswith(FORMER) else get_method(method).title


def _former_value(record: Record, column: str, measure: str) -> float | None:
    """Look the former default's value up; None if it was not measured on that very split."""
    figures = _former_figures().get(record["setting"], {})
    values = figures.get("methods", {}).get(record["method"], {}).get(column, {}).get(measure, [])
    # What decides the split, beside the trial's number.
    decides = ("setting", "corpora", "data", "seed", "quick")
    split = config_hash({name: record["config"].get(name) for name in decides})
    if record["trial"] >= len(values) or split != figures["split"]:
        return None
    value: float | None = values[record["trial"]]
    return value


@lru_cache(maxsize=1)
def _former_figures() -> dict[str, Any]:
    """Read the figures: by setting, method, set of labels and measure, a value for each trial."""
    path = Path(__file__)
    figures_file = path.with_name("former_default.json")
    text = figures_file.read_text("utf-8")
    figures: dict[str, Any] = json.loads(text)
    return figures


@dataclass(frozen=True)
class Experiment(ABC):
    """A table or a figure."""

    name: str  # on the command line: "fig9"
    title: str
    text: str  # what it shows and how to read it, for the report
    settings: tuple[str, ...]
    methods: tuple[str, ...]  # every one is run in every setting
    trials: tuple[int, int] | None = None  # the fewest and the most, whatever is asked for
    departures: tuple[str, ...] = ()  # from the paper, beyond what its settings say
    # Methods that are run in some settings only.
    only_in: Mapping[str, Collection[str]] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)  # the paper's values

    def methods_in(self, setting: str) -> list[str]:
        """Name the methods that are run in a setting."""
        methods = []
        for name in self.methods:
            if name not in self.only_in or setting in self.only_in[name]:
                methods.append(name)
        return methods

    def runs(self, trials: int, *, quick: bool = False) -> list[Run]:
        """List the runs it needs for so many trials, at most two if quick."""
        low, high = self.trials or (1, trials)
        n_trials = min(max(trials, low), max(high, low))
        if quick:
            n_trials = min(n_trials, 2)
        runs = []
        for setting in self.settings:
            methods = self.methods_in(setting)
            for trial in range(n_trials):
                runs += [Run(setting, method, trial) for method in methods]
        return runs

    @abstractmethod
    def section(self, results: Results) -> Section:
        """Make its section of the report from the records of its runs."""

    def headline(self, results: Results) -> str:
        """Return what it found in a sentence or two, for the top of the report; may be empty."""
        return ""

    def all_notes(self, results: Results) -> tuple[str, ...]:
        """Return all footnotes: data, the settings' departures, and its own."""
        features = any(get_method(name).features for name in self.methods)
        return (*results.notes(self.settings, features=features), *self.departures)

    def table(
        self,
        results: Results,
        header: Iterable[str],
        rows: Iterable[Row],
        *,
        setting: str = "",
        suffix: str = "",
        title: str = "",
        notes: Iterable[str] | None = None,
        reference: str = "",
    ) -> Table:
        """Make a table of its section, of one setting or of all; see `Table`.

        By default its footnotes are all there are on a setting, and otherwise those on data.
        """
        listed = tuple(rows)
        settings = (setting,) if setting else self.settings
        if notes is None:
            about = (
                results.notes(settings, features=True) if setting else results.cautions(settings)
            )
            notes = (*about, *self.departures)
        former = any(FORMER_TITLE in str(row[:2]) for row in listed)
        return Table(
            self.name + (f"-{setting}" if setting else "") + suffix,
            title or (get_setting(setting).title if setting else self.title),
            tuple(header),
            listed,
            notes=(*notes, *([FORMER_NOTE] if former else [])),
            command=results.command,
            reference=reference and get_method(reference).title,
            caution="; ".join(dict.fromkeys(results.cautions(settings).values())),
        )

    def make_section(self, *tables: Table, figures: Iterable[Figure] = ()) -> Section:
        """Put tables and plots under its title and text."""
        return Section(self.name, self.title, self.text, tables, tuple(figures))
