"""Settings of experiments: which corpora, which labels are hidden, who learns from what.

In: `settings.toml` and a name. Out: a `Setting`, from which every trial draws its split.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from polyseme._validation import unknown_name


@dataclass(frozen=True)
class Setting:
    """How the trials of an experiment are drawn.

    Attributes
    ----------
    name, title : str
    protocol : {"within", "oov", "cross"}
        Within one corpus, the same with its oov test set, or from one corpus to another.
    corpora : tuple of (str, str)
        Pairs of source and target, the paper's own first; the first pair whose folders exist is
        used. Within one corpus both are the same.
    label_pick : {"document share", "random"}
        How unseen labels are drawn.
    labels, split : mapping
        Further arguments of that generator, and of the protocol's function.
    min_documents : mapping of str to int
        For a corpus: labels that fewer documents hold are left out.
    n_labels : int, optional
        Keep only so many labels, the most frequent ones.
    n_partitions : int, optional
        Trials take turns in so many partitions of the documents, each with its own concept space;
        by default every trial has its own. Labels are drawn anew in every trial either way.
    taught_by : str, optional
        Where the source is the paper's own: the setting whose labels and semantics remain.
    spaces_of : str, optional
        The setting whose concept spaces this one shares; by default its own.
    extractor : {"image", "audio"}, optional
        Features are extracted from media files, what it learns anew in every trial; by default
        they come with the corpus.
    named_pictures : bool
        Whether a folder of pictures that the user names replaces the corpora.
    stand_ins : mapping of str to str
        For a corpus: the paper's own which it replaces.
    departures, feature_departures : tuple of str
        Where the setting departs from the paper, for footnotes: always, and with features.
    """

    name: str
    title: str
    protocol: str
    corpora: tuple[tuple[str, str], ...]
    label_pick: str = "document share"
    labels: Mapping[str, Any] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)
    min_documents: Mapping[str, int] = field(default_factory=dict)
    n_labels: int | None = None
    n_partitions: int | None = None
    taught_by: str | None = None
    spaces_of: str | None = None
    extractor: str | None = None
    named_pictures: bool = False
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    departures: tuple[str, ...] = ()
    feature_departures: tuple[str, ...] = ()

    def config(self) -> dict[str, Any]:
        """Give what decides the trials as JSON values; which corpora is said elsewhere."""
        left_out = {"title", "departures", "feature_departures", "spaces_of", "stand_ins"}
        left_out |= {"corpora", "named_pictures"} | (set() if self.extractor else {"extractor"})
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    def sample_pair(self) -> tuple[str, str]:
        """Give the pair whose samples quick runs use: the first of stand-ins, if any."""
        chosen = next((pair for pair in self.corpora if pair[0] in self.stand_ins), None)
        return chosen or self.corpora[0]

    def partition(self, trial: int) -> int:
        """Give the number of a trial's partition of the documents."""
        return trial if self.n_partitions is None else trial % self.n_partitions


def _tuples(value: Any) -> Any:
    """Give lists as tuples, also inside."""
    if isinstance(value, dict):
        return {name: _tuples(one) for name, one in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file with tuples in place of lists."""
    tables: dict[str, Any] = _tuples(tomllib.loads(path.read_text("utf-8")))
    return tables


def _read() -> tuple[dict[str, Setting], dict[str, str]]:
    """Read all settings, and how presets train the concept space."""
    tables = read_toml(Path(__file__).with_name("settings.toml"))
    notes = {f"@{name}": text for name, text in tables["notes"].items()}
    settings = {}
    for name, table in tables["settings"].items():
        pairs = tuple((one, one) if isinstance(one, str) else one for one in table["corpora"])
        told = {
            key: tuple(notes.get(text, text) for text in table.get(key, ()))
            for key in ("departures", "feature_departures")
        }
        settings[name] = Setting(name, **table | told | {"corpora": pairs})
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
    """Give a setting by its name; an unknown one is an `InputError` that lists them."""
    if name not in SETTINGS:
        raise unknown_name("setting", name, tuple(SETTINGS))
    return SETTINGS[name]
