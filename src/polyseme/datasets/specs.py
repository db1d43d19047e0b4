"""The known datasets: an entry each in `specs.toml`.

Other packages add theirs by the entry points "polyseme.datasets".
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from polyseme._plugins import load_plugins
from polyseme.datasets.base import DatasetSpec
from polyseme.datasets.samples import TOPICS, SyntheticSample


def _spec(name: str, entry: dict[str, Any]) -> DatasetSpec:
    """Build the spec of one entry."""
    sample = SyntheticSample(TOPICS[entry["domain"]], **entry.pop("sample"))
    return DatasetSpec(name, sample=sample.make, **entry)


@cache
def known_specs() -> dict[str, DatasetSpec]:
    """Give the specs of all known datasets by name.

    Read when first asked for: packages that add some import this one.
    """
    with Path(__file__).with_suffix(".toml").open("rb") as stream:
        specs = {name: _spec(name, entry) for name, entry in tomllib.load(stream).items()}
    return specs | load_plugins("polyseme.datasets")
