"""Table 1: how many labels and instances each set of a split has."""

from __future__ import annotations

from dataclasses import dataclass

from polyseme_experiments.experiment import Experiment, Results
from polyseme_experiments.rendering.cells import Cell, Table, Value
from polyseme_experiments.rendering.report import Section
from polyseme_experiments.settings import get_setting

SIZES = {
    "seen": "seen labels",
    "unseen": "unseen labels",
    "oov": "oov labels",
    "documents": "instances",
    "semantics": "S_tr",
    "semantics_validation": "S_val",
    "semantics_test": "S_tst",
    "train": "IM_tr",
    "validation": "IM_val",
    "test": "IM_tst",
}
# In the paper's Table 1; where our set is its OOV_tr or OOV_tst, these are given.
_MAGTAG: dict[str, tuple[float, float | None]] = {
    "seen": (85, None),
    "unseen": (29, None),
    "oov": (22, None),
    "documents": (4986, None),
    "semantics": (2550, 50),
    "semantics_validation": (300, None),
    "semantics_test": (975, 50),
}
PUBLISHED: dict[str, dict[str, tuple[float, float | None]]] = {
    "hsun": {
        "seen": (80, None),
        "unseen": (27, None),
        "oov": (0, None),
        "documents": (8684, None),
        "semantics": (2839, 5),
        "semantics_validation": (1527, 5),
        "semantics_test": (4217, None),
        "train": (3074, None),
        "validation": (2955, None),
        "test": (1262, None),
    },
    "magtag": _MAGTAG | {"train": (1914, 55), "validation": (957, 55), "test": (953, None)},
    "magtag-oov": _MAGTAG | {"train": (2664, 55), "test": (410, None)},
    "music-cross": {
        "unseen": (29, None),
        "oov": (1191, None),
        "documents": (4035, None),
        "validation": (675, None),
        "train": (1668, None),
        "test": (1692, None),
    },
    "image-cross": {
        "unseen": (27, None),
        "oov": (544, None),
        "documents": (4628, None),
        "validation": (720, None),
        "train": (2605, None),
        "test": (1303, None),
    },
}


@dataclass(frozen=True)
class SizeTable(Experiment):
    """Sizes of labels and sets, setting by setting."""

    def section(self, results: Results, command: str) -> Section:
        """Make its section of the report; see `Experiment.section`."""
        rows: list[tuple[Value, ...]] = [
            ("corpora", *(self._corpora(results, s) for s in self.settings))
        ]
        for size, words in SIZES.items():
            cells = (
                Cell.of(
                    self._counts(results, setting, size),
                    PUBLISHED.get(setting, {}).get(size),
                    digits=0,
                )
                for setting in self.settings
            )
            rows.append((words, *cells))
        table = Table(
            self.name,
            self.title,
            ("set", *self.settings),
            tuple(rows),
            notes=(*results.data_notes(self.settings), *self.departures),
            command=command,
            caution=results.caution(self.settings),
        )
        return self.make_section(table)

    def _corpora(self, results: Results, setting: str) -> str:
        """Name the corpora that a setting used."""
        corpora = results.records(setting, "sizes")[0]["config"]["corpora"]
        return " → ".join(dict.fromkeys(corpora))

    def _counts(self, results: Results, setting: str, size: str) -> list[float | None]:
        """Give a size in every trial; of another corpus, only usable documents count."""
        counts = results.values(setting, "sizes", "sizes", size)
        if size != "documents" or get_setting(setting).protocol != "cross":
            return counts
        parts = [
            results.values(setting, "sizes", "sizes", part)
            for part in ("train", "validation", "test")
        ]
        return [sum(value or 0 for value in trial) for trial in zip(*parts, strict=True)]


EXPERIMENT = SizeTable(
    name="table1",
    title="Table 1: sizes of the splits",
    text=(
        "Labels and instances of every set, with the published sizes in brackets. For the oov and "
        "cross-corpora tests, IM_tr and IM_tst are the paper's OOV_tr and OOV_tst."
    ),
    settings=("magtag", "magtag-system", "magtag-oov", "hsun", "music-cross", "image-cross"),
    methods=("sizes",),
    departures=(
        "MagTag5K's stand-ins keep a track's clips or an artist's songs on one side, and "
        "`magtag-system` and `magtag-oov` take S_val from D1 and test on D2 alone.",
        "HSUN as distributed has 111 labels; the paper used 107 and does not say which.",
    ),
)
