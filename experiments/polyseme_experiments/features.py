"""Figures that compare image feature sets by the C-MAP of classifiers, as in Appendix A.

In: records of the setting "pictures". Out: a table with the published values, and a plot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyseme_experiments.experiment import Experiment, Results
from polyseme_experiments.methods import get_method
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.plots import bars, points_of
from polyseme_experiments.rendering.report import Figure, Section

PROTOCOL = (
    "As in the paper's appendix, independent classifiers (support vector machines with Platt's "
    "sigmoid) learn the training labels on IM_tr and are measured on IM_val by C-MAP."
)
NETWORK = (
    "Features are EfficientNet-Lite0's at 192 pixels in place of OverFeat's, and the pictures are "
    "others: compare the order of the rows with the paper's, not the values."
)


@dataclass(frozen=True)
class FeatureFigure(Experiment):
    """Fig. A.1 or A.2.

    Attributes
    ----------
    published : mapping of method to (name, mean, standard error)
        The paper's feature set in the place of ours.
    """

    published: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        (setting,) = self.settings
        rows: list[tuple[Value, ...]] = []
        for method in self.methods:
            name, *value = self.published.get(method, ("",))
            sizes = results.values(setting, method, "training", "features")
            rows.append(
                (
                    get_method(method).title,
                    int(sizes[0] or 0),
                    name,
                    Cell.of(
                        results.values(setting, method, "training", "C-MAP"),
                        (value[0], value[1]) if value else None,
                    ),
                )
            )
        table = Table(
            self.name,
            self.title,
            ("feature set", "features", "in the paper", "C-MAP"),
            tuple(rows),
            notes=self.all_notes(results),
            command=command,
            caution=results.caution(self.settings),
        )
        figure = Figure(bars(self.name, points_of(table, "feature set"), measure="C-MAP"))
        return self.make_section(table, figures=[figure])
