"""What the former default measured: the experts' last figures, shown beside ours and never run.

In: records of today's default. Out: the experts' values for the same trials of the same splits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from polyseme_experiments.records import Record, config_hash

# Its row in tables.
FORMER = "experts (former default)"
NOTE = (
    "Experts: the default before there was one concept space. Their code is gone; the figures are "
    "those of their last records, for the same trials."
)
# What decides who learns from what, beside a trial's number.
_SPLIT = ("setting", "corpora", "data", "seed", "quick")


def former_values(
    records: Sequence[Record], column: str, measure: str, method: str | None = None
) -> list[float | None]:
    """Give the experts' value for each of some records of today's default.

    Parameters
    ----------
    records : sequence of dict
    column, measure : str
        As in records.
    method : str, optional
        The experts' method, where it had another name than the records'.

    Returns
    -------
    list of float or None
        None where the experts were not measured on that very split.
    """
    return [_value(record, method or record["method"], column, measure) for record in records]


def split_digest(record: Record) -> str:
    """Digest what decides the splits of a record's setting."""
    return config_hash({name: record["config"].get(name) for name in _SPLIT})


def _value(record: Record, method: str, column: str, measure: str) -> float | None:
    """Look one value up."""
    known = _figures().get(record["setting"], {})
    found = known.get("methods", {}).get(method, {}).get(column, {}).get(measure, [])
    if record["trial"] >= len(found) or split_digest(record) != known["split"]:
        return None
    value: float | None = found[record["trial"]]
    return value


@lru_cache(maxsize=1)
def _figures() -> dict[str, Any]:
    """Read the figures: by setting, method, set of labels and measure, a value for each trial."""
    path = Path(__file__).with_name("former_default.json")
    figures: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return figures
