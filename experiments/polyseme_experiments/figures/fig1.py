"""Fig. 1's idea as a picture: one label, several senses."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme_experiments.experiment import Experiment, Results
from polyseme_experiments.rendering.cells import Table, Value
from polyseme_experiments.rendering.plots import senses
from polyseme_experiments.rendering.report import Figure, Section


@dataclass(frozen=True)
class SensePictures(Experiment):
    """Labels whose concepts fall apart most clearly, in two dimensions."""

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        (record,) = results.records(self.settings[0], self.methods[0])[:1]
        maps = record["metrics"]["senses"]["maps"]
        rows: list[tuple[Value, ...]] = []
        figures = []
        for number, one in enumerate(maps):
            for sense, words in enumerate(one["words"]):
                size = one["senses"].count(sense)
                rows.append((one["label"], sense + 1, size, ", ".join(words)))
            svg = senses(
                f"fig1-{number}",
                one["points"],
                one["senses"],
                one["words"],
                label=one["label"],
                others=one["background"],
            )
            figures.append(Figure(svg, f"“{one['label']}”, silhouette {one['silhouette']:.2f}"))
        table = Table(
            self.name,
            self.title,
            ("label", "sense", "documents", "typical company"),
            tuple(rows),
            notes=results.data_notes(self.settings),
            command=command,
            caution=results.caution(self.settings),
        )
        return self.make_section(table, figures=figures)


EXPERIMENT = SensePictures(
    name="fig1",
    title="The concept space: one label, several senses",
    text=(
        "Each dot is a label in the company of one document's other labels, on the label's first "
        "two principal axes; grey dots are other labels. The labels are those whose concepts "
        "k-means parts most clearly; nobody picked them."
    ),
    settings=("hsun",),
    methods=("senses",),
    trials=(1, 1),
)
