"""Fig. 5: how differently two corpora use the same labels."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme_experiments.experiment import Experiment, Results
from polyseme_experiments.rendering.cells import Table, Value
from polyseme_experiments.rendering.plots import usage, usage_correlation
from polyseme_experiments.rendering.report import Figure, Section
from polyseme_experiments.settings import get_setting

PUBLISHED = {"music-cross": 0.07, "image-cross": 0.75}


@dataclass(frozen=True)
class UsageFigure(Experiment):
    """Label usage of the source beside the target's."""

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[tuple[Value, ...]] = []
        figures = []
        for setting in self.settings:
            (record,) = results.records(setting, "usage")[:1]
            source, target = record["config"]["corpora"]
            told = record["metrics"]["usage"]
            shared = sum(share > 0 for share in told["target"].values())
            correlation = usage_correlation(told["source"], told["target"])
            published = PUBLISHED[setting]
            rows.append(
                (
                    get_setting(setting).title,
                    source,
                    target,
                    len(told["source"]),
                    shared,
                    None if correlation is None else round(correlation, 2),
                    published,
                )
            )
            svg = usage(f"fig5-{setting}", told["source"], told["target"], names=(source, target))
            figures.append(Figure(svg, get_setting(setting).title))
        table = Table(
            self.name,
            self.title,
            ("setting", "source", "target", "labels", "shared", "correlation", "published"),
            tuple(rows),
            notes=results.data_notes(self.settings),
            command=command,
            caution=results.caution(self.settings),
        )
        return self.make_section(table, figures=figures)


EXPERIMENT = UsageFigure(
    name="fig5",
    title="Fig. 5: label usage of source and target",
    text="The share of documents that hold each label of the source, in the source's order.",
    settings=("music-cross", "image-cross"),
    methods=("usage",),
    trials=(1, 1),
)
