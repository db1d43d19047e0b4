"""What every table and figure has in common: the runs it needs, and a section made of records.

In: records of runs. Out: sections for the report; each experiment is one file in `figures`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from polyseme_experiments.former import former_values
from polyseme_experiments.methods import get_method
from polyseme_experiments.records import Record
from polyseme_experiments.rendering.cells import Table
from polyseme_experiments.rendering.report import Figure, Section
from polyseme_experiments.schedule import Run
from polyseme_experiments.settings import TRAINING, get_setting

COLUMNS = {
    "training": "Training",
    "zsl": "ZSL",
    "zsl-only": "ZSL only",
    "all": "All",
    "oov": "OOV",
}
MEASURES = ("E-MAP", "C-MAP")


class Results:
    """Records of runs, asked by what they measure.

    Parameters
    ----------
    records : iterable of dict
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._records: dict[tuple[str, str], dict[int, Record]] = {}
        for record in records:
            of_method = self._records.setdefault((record["setting"], record["method"]), {})
            of_method[record["trial"]] = record

    def records(self, setting: str, method: str) -> list[Record]:
        """Give the records of a method, by trial."""
        return [one for _, one in sorted(self._records.get((setting, method), {}).items())]

    def values(self, setting: str, method: str, column: str, measure: str) -> list[float | None]:
        """Give one measured value for each trial; None where a trial has none."""
        return [
            record["metrics"].get(column, {}).get(measure)
            for record in self.records(setting, method)
        ]

    def former(self, setting: str, method: str, column: str, measure: str) -> list[float | None]:
        """Give the former default's value for each trial of a method; None where it has none."""
        return former_values(self.records(setting, method), column, measure)

    def of_setting(self, setting: str) -> list[Record]:
        """Give all records of a setting."""
        return [
            record
            for (name, _), trials in self._records.items()
            if name == setting
            for record in trials.values()
        ]

    def data_notes(self, settings: Sequence[str]) -> tuple[str, ...]:
        """Give footnotes on samples and stand-ins of some settings."""
        notes = []
        for record in (one for name in settings for one in self.of_setting(name)[:1]):
            if record["sample"]:
                notes.append(
                    "SAMPLES of our own making and short trainings: these figures say nothing "
                    "about the method."
                )
            notes += [
                f"STAND-IN: {corpus} is used in place of {original}."
                for corpus, original in record["stand_in"].items()
                if original
            ]
        return tuple(dict.fromkeys(notes))

    def notes(self, settings: Sequence[str], *, features: bool = False) -> tuple[str, ...]:
        """Give footnotes on data and departures of some settings, and on their features."""
        departures: list[str] = []
        for setting in map(get_setting, settings):
            departures += setting.departures + (setting.feature_departures if features else ())
        return tuple(
            dict.fromkeys((*self.data_notes(settings), *self._training(settings), *departures))
        )

    def _training(self, settings: Sequence[str]) -> list[str]:
        """Say how concept spaces were trained, where there are any."""
        presets = {
            record["config"].get("preset") for name in settings for record in self.of_setting(name)
        }
        return [TRAINING[preset] for preset in sorted(presets & TRAINING.keys())]

    def caution(self, settings: Sequence[str]) -> str:
        """Say in a few words what no figure of some settings may be read without."""
        words = []
        for record in (one for name in settings for one in self.of_setting(name)[:1]):
            words += ["sample"] if record["sample"] else []
            words += [
                f"{corpus} stands in for {original}"
                for corpus, original in record["stand_in"].items()
                if original
            ]
        return "; ".join(dict.fromkeys(words))


@dataclass(frozen=True)
class Experiment(ABC):
    """A table or a figure.

    Attributes
    ----------
    name : str
        On the command line: "fig9".
    title : str
    text : str
        What it shows and how to read it, for the report.
    settings, methods : tuple of str
        Every method is run in every setting.
    trials : (int, int), optional
        The fewest and the most trials, whatever is asked for.
    departures : tuple of str
        Where it leaves the paper, beyond what its settings say.
    """

    name: str
    title: str
    text: str
    settings: tuple[str, ...]
    methods: tuple[str, ...]
    trials: tuple[int, int] | None = None
    departures: tuple[str, ...] = ()

    def runs(self, trials: int, *, quick: bool = False) -> list[Run]:
        """List the runs it needs.

        Parameters
        ----------
        trials : int
            How many were asked for.
        quick : bool
            Whether two are enough.
        """
        low, high = self.trials or (1, trials)
        n_trials = min(max(trials, low), max(high, low))
        if quick:
            n_trials = min(n_trials, 2)
        return [
            Run(setting, method, trial)
            for setting in self.settings
            for trial in range(n_trials)
            for method in self.methods
        ]

    @abstractmethod
    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report.

        Parameters
        ----------
        results : Results
            Holds the records of its runs.
        command : str
            What makes it again.
        """

    def make_section(self, *tables: Table, figures: Iterable[Figure] = ()) -> Section:
        """Put tables and plots under its title and text."""
        return Section(self.name, self.title, self.text, tables, tuple(figures))

    def headline(self, results: Results) -> str:
        """Say in a sentence or two what it found, for the top of the report; may be empty."""
        return ""

    def all_notes(self, results: Results) -> tuple[str, ...]:
        """Give all footnotes: data, the settings' departures, and its own."""
        features = any(get_method(name).features for name in self.methods)
        return (*results.notes(self.settings, features=features), *self.departures)
