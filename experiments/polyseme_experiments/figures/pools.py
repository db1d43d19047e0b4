"""What items without tags and answers to questions bring, for labels that nobody has shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyseme_experiments.figures.base import MEASURES, Experiment, Results, title_of
from polyseme_experiments.methods.pools import CLICKS, REFIT, STRATEGIES
from polyseme_experiments.report.page import Figure, Section
from polyseme_experiments.report.plots import curves
from polyseme_experiments.report.statistics import ABOVE, BELOW, measured
from polyseme_experiments.report.tables import Cell, Row, Table
from polyseme_experiments.settings import get_setting

NONE, GAUGED, COSTA = "pool-none", "pool-gauged", "costa-clicks"
COLUMN = "zsl-only"


@dataclass(frozen=True)
class PoolFigure(Experiment):
    """Unseen labels without and with a pool, and what the gauge foretold."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[Row] = []
        for setting in self.settings:
            methods = self.methods_in(setting)
            tests = results.tests(setting, NONE, methods, (COLUMN,))
            for method in methods:
                cells = results.cells(setting, method, tests, (COLUMN,)).values()
                rows.append((corpus(setting), title_of(method), *cells))
        header = ("corpus", "method", *(f"{measure}, unseen labels" for measure in MEASURES))
        scores = self.table(results, header, rows, reference=NONE)
        return self.make_section(scores, self._gains(results), self._gauge(results))

    def _gains(self, results: Results) -> Table:
        """Return differences to the default without a pool, with paired tests, and their means."""
        rows: list[Row] = []
        for method in self.methods:
            if method == NONE:
                continue
            for measure in MEASURES:
                cells = []
                for setting in self.settings:
                    if method not in self.methods_in(setting):
                        cells.append(Cell(None, None, 0))
                        continue
                    test = results.tests(setting, method, [NONE], (COLUMN,))[NONE, measure, COLUMN]
                    # The mark is of the other, which is below where this one is above.
                    mark = {ABOVE: BELOW, BELOW: ABOVE}.get(test.mark, "")
                    cells.append(Cell(test.difference, test.error, test.n, mark=mark))
                rows.append((title_of(method), measure, *cells, mean_of(cells)))
        return self.table(
            results,
            ("method", "measure", *map(corpus, self.settings), "mean"),
            rows,
            suffix="-gains",
            title="Unseen labels: less our default without a pool, paired over label splits",
        )

    def _gauge(self, results: Results) -> Table:
        """Return what labels made unseen foretold of the pool, and what came."""
        rows: list[Row] = []
        for setting in self.settings:
            foretold = results.values(setting, GAUGED, "gauge", "foretold")
            used = results.values(setting, GAUGED, "gauge", "used")
            came = halves(results, setting, ("pool", COLUMN), (NONE, COLUMN))
            rows.append(
                (
                    corpus(setting),
                    Cell.of(foretold),
                    Cell.of(came),
                    f"{int(sum(measured(used)))} of {len(used)}",
                )
            )
        header = ("corpus", "foretold", "came", "pool used in")
        title = "The gauge: points that the pool brings on unseen labels, mean of E-MAP and C-MAP"
        return self.table(results, header, rows, suffix="-gauge", title=title)


@dataclass(frozen=True)
class ClickFigure(Experiment):
    """Quality of unseen labels against answers a label, by what is asked."""

    def section(self, results: Results) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        tables, figures = [], []
        for measure in MEASURES:
            rows: list[Row] = []
            for setting in self.settings:
                for strategy in STRATEGIES:
                    cells = self._gains(results, setting, strategy, CLICKS, measure)
                    rows.append((corpus(setting), strategy, *cells))
                refitted = self._gains(results, setting, "refit", (REFIT,), measure)[0]
                places = [refitted if clicks == REFIT else "" for clicks in CLICKS]
                rows.append((corpus(setting), "active, fitted anew", *places))
                rival = differences(results, setting, (COSTA, COLUMN), (NONE, COLUMN), measure)
                places = [Cell.of(rival) if clicks == REFIT else "" for clicks in CLICKS]
                rows.append((corpus(setting), "likeliest, by tuned COSTA", *places))
            rows += self._means(results, measure)
            header = ("corpus", "asked about", *(f"{clicks} answers" for clicks in CLICKS))
            title = f"{measure} of unseen labels, less our default without pool and answers"
            tables.append(
                self.table(results, header, rows, suffix=f"-{measure[0].lower()}", title=title)
            )
        for setting in self.settings:
            series = {
                strategy: {
                    float(clicks): Cell.of(
                        results.values(setting, "clicks", f"{strategy} {clicks}", "C-MAP")
                    )
                    for clicks in CLICKS
                }
                for strategy in STRATEGIES
            }
            svg = curves(
                f"clicks-{setting}", series, measure="C-MAP", x_name="answers for each label"
            )
            figures.append(
                Figure(svg, f"{corpus(setting)}: C-MAP of unseen labels against answers")
            )
        return self.make_section(*tables, self._after(results), figures=figures)

    def _gains(
        self, results: Results, setting: str, way: str, clicks: Sequence[int], measure: str
    ) -> list[Cell]:
        """Return differences to the default without pool and answers, for numbers of answers."""
        cells = []
        for number in clicks:
            ours = ("clicks", f"{way} {number}")
            gains = differences(results, setting, ours, (NONE, COLUMN), measure)
            cells.append(Cell.of(gains))
        return cells

    def _means(self, results: Results, measure: str) -> list[Row]:
        """Return the means over all corpora."""
        rows: list[Row] = []
        for way in (*STRATEGIES, "refit"):
            clicks = (REFIT,) if way == "refit" else CLICKS
            by_corpus = [
                self._gains(results, setting, way, clicks, measure) for setting in self.settings
            ]
            means = {
                number: mean_of([cells[place] for cells in by_corpus])
                for place, number in enumerate(clicks)
            }
            name = "active, fitted anew" if way == "refit" else way
            rows.append(("mean", name, *(means.get(number, "") for number in CLICKS)))
        return rows

    def _after(self, results: Results) -> Table:
        """Return seconds, calibration before and after, and what was foretold of ten answers."""
        rows: list[Row] = []
        for setting in self.settings:
            column_after = f"active {REFIT}"
            columns = [("none 0", "calibration error"), (column_after, "calibration error")]
            columns += [
                (f"refit {REFIT}", "calibration error"),
                ("active", "seconds"),
                ("refit", "seconds"),
            ]
            cells = [Cell.of(results.values(setting, "clicks", *column)) for column in columns]
            foretold = Cell.of(results.values(setting, GAUGED, "gauge", "answers foretold"))
            came = Cell.of(
                halves(results, setting, ("clicks", "likeliest 10"), ("clicks", "none 0"))
            )
            rows.append((corpus(setting), *cells, foretold, came))
        header = (
            "corpus",
            "calibration error before (%)",
            f"after {REFIT} answers (%)",
            "fitted anew (%)",
            "seconds for 100 answers a label",
            "seconds of a new fit",
            "ten answers: foretold",
            "came",
        )
        return self.table(results, header, rows, suffix="-after", title="After answers")


def corpus(setting: str) -> str:
    """Name a setting's corpus."""
    return get_setting(setting).title.partition(",")[0]


def differences(
    results: Results, setting: str, ours: tuple[str, str], theirs: tuple[str, str], measure: str
) -> list[float | None]:
    """Return differences of two methods in sets of labels, one for each trial that has both."""
    pairs = zip(
        results.values(setting, *ours, measure),
        results.values(setting, *theirs, measure),
        strict=False,
    )
    gains: list[float | None] = []
    for our_value, their_value in pairs:
        if our_value is None or their_value is None:
            gains.append(None)
        else:
            gains.append(our_value - their_value)
    return gains


def halves(
    results: Results, setting: str, ours: tuple[str, str], theirs: tuple[str, str]
) -> list[float]:
    """Return differences of the mean of E-MAP and C-MAP, one for each trial that has both."""
    gains = [differences(results, setting, ours, theirs, measure) for measure in MEASURES]
    return [sum(pair) / 2 for pair in zip(*gains, strict=True) if None not in pair]


def mean_of(cells: Sequence[Cell]) -> Cell:
    """Return the mean over corpora, where every one has a value, with its standard error."""
    n_corpora = len(cells)
    corpus_means = [cell.mean for cell in cells]
    corpus_errors = [cell.error for cell in cells]
    means = measured(corpus_means)
    errors = measured(corpus_errors)
    if len(means) < n_corpora:
        return Cell(None, None, 0)
    error = None
    if len(errors) == n_corpora:
        length = math.hypot(*errors)
        error = length / n_corpora
    mean = float(means.mean())
    return Cell(mean, error, n_corpora)
