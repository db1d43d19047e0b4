"""Table 2: how widely known concepts spread, and how far from their points instances land."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme_experiments.experiment import Experiment, Results
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.plots import Point, curves
from polyseme_experiments.rendering.report import Figure, Section
from polyseme_experiments.settings import get_setting

UNITS = {
    "s_squared": "s (squared)",
    "s_mean": "s (plain)",
    "error": "error",
    "relative_paper": "error / s (squared)",
    "relative": "error / √s (squared)",
}
PUBLISHED = {
    "magtag-system": {
        10: {"s_squared": 2.58, "error": 1.00, "relative_paper": 0.39, "relative": 0.62},
        50: {"s_squared": 25.27, "error": 3.35, "relative_paper": 0.13, "relative": 0.67},
        200: {"s_squared": 173.15, "error": 8.13, "relative_paper": 0.05, "relative": 0.62},
    },
    "hsun": {
        10: {"s_squared": 8.56, "error": 1.35, "relative_paper": 0.16, "relative": 0.46},
        50: {"s_squared": 28.42, "error": 3.22, "relative_paper": 0.11, "relative": 0.60},
        200: {"s_squared": 171.93, "error": 7.06, "relative_paper": 0.04, "relative": 0.54},
    },
}


@dataclass(frozen=True)
class RegressionTable(Experiment):
    """Spread and regression error by dimension, in both units."""

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[tuple[Value, ...]] = []
        points = []
        for setting in self.settings:
            for d, published in PUBLISHED[setting].items():
                cells = {
                    unit: Cell.of(
                        results.values(setting, f"mapping-{d}", "space", unit), published.get(unit)
                    )
                    for unit in UNITS
                }
                rows.append((get_setting(setting).title, d, *cells.values()))
                one = cells["relative"]
                points.append(
                    Point(setting, float(d), one.mean, one.error, published["relative"], None)
                )
        table = Table(
            self.name,
            self.title,
            ("setting", "d", *UNITS.values()),
            tuple(rows),
            notes=self.all_notes(results),
            command=command,
            caution=results.caution(self.settings),
        )
        figure = Figure(curves("table2-error", points, measure="error / √s"))
        return self.make_section(table, figures=[figure])


EXPERIMENT = RegressionTable(
    name="table2",
    title="Table 2: regression error of the mapping",
    text=(
        "The paper divides the mean distance by the mean squared distance of known concepts, which "
        "mixes units: its fall with d is mostly an artefact. In one unit (last column) the error "
        "changes little with d. The published last column is arithmetic on the paper's numbers."
    ),
    settings=("magtag-system", "hsun"),
    methods=("mapping-10", "mapping-50", "mapping-200"),
)
