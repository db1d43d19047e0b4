"""Settings of experiments: the corpora, the hidden labels, and the sets of documents.

In: `settings.toml` and a name. Out: a `Setting`, from which every trial draws its split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from polyseme_experiments.definitions import find, read_toml

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """How the trials of an experiment are drawn."""

    name: str
    title: str
    protocol: str  # "within" one corpus, "oov": the same with its oov test set, or "cross" corpora
    # Pairs of source and target, the paper's own first; the first whose folders exist is used.
    corpora: tuple[tuple[str, str], ...]
    label_pick: str = "document share"  # how unseen labels are drawn; or "random"
    labels: Table = field(default_factory=dict)  # further arguments of that generator
    split: Table = field(default_factory=dict)  # and of the protocol's function
    min_documents: Table = field(default_factory=dict)  # by corpus: fewer leave a label out
    n_labels: int | None = None  # keep only so many labels, the most frequent ones
    # Trials take turns in so many partitions of the documents, each with its own concept space
    # (None: every trial has its own). Labels are drawn anew in every trial either way.
    n_partitions: int | None = None
    taught_by: str | None = None  # from the paper's own source: whose labels and semantics remain
    spaces_of: str | None = None  # the setting whose concept spaces this one shares
    extractor: str | None = None  # "image" or "audio": features are extracted from media files
    extractor_parameters: Table = field(default_factory=dict)  # where they are not the defaults
    named_pictures: bool = False  # a folder of pictures that the user names replaces the corpora
    stand_ins: Table = field(default_factory=dict)  # by corpus: the paper's own which it replaces
    departures: tuple[str, ...] = ()  # from the paper, for footnotes: always
    feature_departures: tuple[str, ...] = ()  # and with features

    def config(self) -> dict[str, Any]:
        """Return what decides the trials as JSON values; without the corpora."""
        left_out = {"title", "departures", "feature_departures", "spaces_of", "stand_ins"}
        left_out |= {"corpora", "named_pictures"}
        # Most settings were recorded before there were these.
        for name in ("extractor", "extractor_parameters"):
            if not getattr(self, name):
                left_out.add(name)
        fields = asdict(self)
        return {name: value for name, value in fields.items() if name not in left_out}

    def sample_pair(self) -> tuple[str, str]:
        """Return the pair whose samples quick runs use: the first of stand-ins, if any."""
        for pair in self.corpora:
            if pair[0] in self.stand_ins:
                return pair
        return self.corpora[0]

    def partition(self, trial: int) -> int:
        """Return the number of a trial's partition of the documents."""
        return trial if self.n_partitions is None else trial % self.n_partitions


def _pair(corpora: str | tuple[str, str]) -> tuple[str, str]:
    """Return source and target; a single name stands for both."""
    if isinstance(corpora, str):
        return corpora, corpora
    return corpora


def _read() -> tuple[dict[str, Setting], dict[str, str]]:
    """Read all settings, and how presets train the concept space."""
    tables = read_toml(Path(__file__).with_name("settings.toml"))
    notes = {f"@{name}": text for name, text in tables["notes"].items()}
    settings = {}
    for name, table in tables["settings"].items():
        fields = dict(table)
        fields["corpora"] = tuple(_pair(corpora) for corpora in table["corpora"])
        for key in ("departures", "feature_departures"):
            texts = table.get(key, ())
            fields[key] = tuple(notes.get(text, text) for text in texts)
        settings[name] = Setting(name, **fields)
    return settings, tables["training"]


SETTINGS, TRAINING = _read()
# How large a share of the labels may be unseen, and on how many documents these then are.
_SHARES = {"10": (0.10, (0.05, 0.25)), "50": (0.50, (0.40, 0.85))}
SETTINGS |= {
    f"{name}-unseen-{percent}": replace(
        SETTINGS[name],
        name=f"{name}-unseen-{percent}",
        title=f"{SETTINGS[name].title}, {percent} % of the labels unseen",
        labels={"unseen_share": share, "document_share": documents},
    )
    for name in ("hsun", "corel5k", "msd-subset")
    for percent, (share, documents) in _SHARES.items()
}


def get_setting(name: str) -> Setting:
    """Return a setting by its name."""
    return find("setting", name, SETTINGS)
