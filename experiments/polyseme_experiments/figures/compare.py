"""Every method on ten or more label splits of three corpora, compared pair by pair."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme_experiments.experiment import COLUMNS, MEASURES, Experiment, Results
from polyseme_experiments.methods import RANKERS, get_method
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.comparisons import compare_all, mean_and_error
from polyseme_experiments.rendering.plots import Difference, differences
from polyseme_experiments.rendering.report import Figure, Section
from polyseme_experiments.schedule import Run
from polyseme_experiments.settings import get_setting

SHOWN = ("training", "zsl", "zsl-only")
TESTED = ("zsl", "zsl-only")
OURS = "polyseme"
RIVAL = "tuned-costa"
FLOOR = {"popularity", "chance"}
# Its search visits every combination of labels, so it runs where these are few.
ONLY_FEW_LABELS = {"composition"}
FEW_LABELS = "hsun-12"


@dataclass(frozen=True)
class SplitComparison(Experiment):
    """All methods over many label splits, with paired tests."""

    def runs(self, trials: int, *, quick: bool = False) -> list[Run]:
        """List the runs it needs; see `Experiment.runs`."""
        return [
            run
            for run in super().runs(trials, quick=quick)
            if run.setting == FEW_LABELS or run.method not in ONLY_FEW_LABELS
        ]

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for setting in self.settings:
            tables.append(self._scores(results, setting, command))
            tables.append(self._tests(results, setting, command))
            for measure in MEASURES:
                svg = differences(
                    f"compare-{setting}-{measure[0].lower()}",
                    self._lines(results, setting, measure),
                    measure=measure,
                    versus="each other method",
                )
                caption = f"{get_setting(setting).title}: {measure}, without popularity and chance"
                figures.append(Figure(svg, caption))
        return self.make_section(*tables, figures=figures)

    def headline(self, results: Results) -> str:
        """Say how the concept embedding stands beside tuned COSTA on unseen labels."""
        words = []
        for setting in self.settings:
            tests = compare_all(self._pairs(results, setting))
            told = []
            for measure in MEASURES:
                test = tests[RIVAL, measure, "zsl-only"]
                if test["difference"] is None:
                    continue
                error = test["standard_error"]
                spread = "" if error is None else f" ± {error:.2f}"
                p = _p_word(test["p_holm"])
                told.append(f"{measure} {test['difference']:+.2f}{spread} (p {p})")
            words.append(f"{setting}: {', '.join(told)}")
        return (
            f"Concept embedding less {get_method(RIVAL).title} on unseen labels alone, over label "
            f"splits: {'; '.join(words)}. p is Holm's, over all tests of a corpus."
        )

    def _methods(self, setting: str) -> list[str]:
        """List the methods of a setting."""
        few = setting == FEW_LABELS
        return [name for name in self.methods if few or name not in ONLY_FEW_LABELS]

    def _pairs(
        self, results: Results, setting: str
    ) -> dict[tuple[str, str, str], tuple[list[float | None], list[float | None]]]:
        """Give our values and another method's, for every test of a setting."""
        return {
            (method, measure, column): (
                results.values(setting, OURS, column, measure),
                results.values(setting, method, column, measure),
            )
            for method in self._methods(setting)
            for measure in MEASURES
            for column in TESTED
            if method != OURS
        }

    def _scores(self, results: Results, setting: str, command: str) -> Table:
        """Give every method's means."""
        marks = {
            key: test["mark"] for key, test in compare_all(self._pairs(results, setting)).items()
        }
        means = {
            (measure, column, method): mean_and_error(
                results.values(setting, method, column, measure)
            )[0]
            for measure in MEASURES
            for column in SHOWN
            for method in self._methods(setting)
        }
        rows: list[tuple[Value, ...]] = []
        for method in self._methods(setting):
            cells = [
                Cell.of(
                    results.values(setting, method, column, measure),
                    mark=marks.get((method, measure, column), ""),
                    best=means[measure, column, method]
                    == max(means[measure, column, other] for other in self._methods(setting)),
                )
                for measure in MEASURES
                for column in SHOWN
            ]
            seconds = [record["seconds"] for record in results.records(setting, method)]
            taken = round(sum(seconds) / len(seconds), 1)
            rows.append((get_method(method).title, *cells, taken))
        header = [f"{measure} {COLUMNS[column]}" for measure in MEASURES for column in SHOWN]
        notes = (*results.notes((setting,), features=True), *self.departures)
        if setting != FEW_LABELS:
            notes += ("Composition refuses this many labels; it runs on HSUN's 12 most frequent.",)
        return Table(
            f"{self.name}-{setting}",
            f"{get_setting(setting).title}: all methods",
            ("method", *header, "seconds"),
            tuple(rows),
            notes=notes,
            command=command,
            reference=get_method(OURS).title,
            caution=results.caution((setting,)),
        )

    def _tests(self, results: Results, setting: str, command: str) -> Table:
        """Give every paired test."""
        rows: list[tuple[Value, ...]] = []
        for (method, measure, column), test in compare_all(self._pairs(results, setting)).items():
            rows.append(
                (
                    get_method(method).title,
                    measure,
                    COLUMNS[column],
                    Cell(test["difference"], test["standard_error"], test["n"], mark=""),
                    _p(test["p"]),
                    _p(test["p_holm"]),
                )
            )
        return Table(
            f"{self.name}-{setting}-tests",
            f"{get_setting(setting).title}: concept embedding less each other method",
            ("method", "measure", "labels", "difference", "p", "p (Holm)"),
            tuple(rows),
            notes=(
                "Two-sided paired t-tests over label splits. Splits share their documents, and "
                "take turns in three partitions with a concept space each, so they are not "
                "independent and p is on the small side. Holm's correction is over all tests of "
                "the table.",
            ),
            command=command,
            caution=results.caution((setting,)),
        )

    def _lines(self, results: Results, setting: str, measure: str) -> list[Difference]:
        """Give the paired differences of one measure in a setting, by set of labels."""
        tests = compare_all(self._pairs(results, setting))
        return [
            Difference(
                COLUMNS[column],
                get_method(method).title,
                test["difference"],
                test["low"],
                test["high"],
            )
            for column in TESTED
            for method in self._methods(setting)
            if method not in FLOOR and (test := tests.get((method, measure, column))) is not None
        ]


def _p(value: float | None) -> str | None:
    """Write a p-value."""
    if value is None:
        return None
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def _p_word(value: float | None) -> str:
    """Write a p-value after the letter p."""
    text = _p(value)
    return "not known" if text is None else text if text.startswith("<") else f"= {text}"


EXPERIMENT = SplitComparison(
    name="compare",
    title="Every method over label splits",
    text=(
        "Test instances carry at least one unseen label. Every method has the same features and "
        "splits, and its settings are chosen on training instances alone: 9 to 27 for a kernel "
        "machine, 5 to 7 more for what is special to a method, where possible on seen labels made "
        "pseudo-unseen. Marks say where another method is significantly above or below the concept "
        "embedding. Seconds include what a method shares with others."
    ),
    settings=("hsun", "corel5k", "msd-subset", FEW_LABELS),
    methods=RANKERS,
    trials=(10, 1000),
    departures=(
        "Not in the paper, which compares with one form of COSTA over three trials of one label "
        "split.",
    ),
)
