"""Recorded results: what the public interfaces answered, to be the same after any rewrite.

Each group of cases (`taggers`, `published`, `measures`, `command_line`, `service`, `surface`)
computes its results on small worlds; `recorded/GROUP.json` holds what they were. After a change
that is meant to alter results, record them anew and read the difference before you commit it:

PYTHONPATH=tests python -m golden --write [GROUP ...]
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded")
# The most by which a number may differ. One thread or two gave the same numbers; AVX2 in place of
# AVX-512 changed scores by 1e-6, those of the default plan by 4e-5. Metrics sum in any order.
TOLERANCES = {
    "taggers": 1e-5,
    "published": 1e-5,
    "measures": 1e-12,
    "command_line": 1e-5,
    "service": 1e-5,
    "surface": 0.0,
}
LOOSER = {"rank default two.npy --top 4": 1e-4}
GROUPS = tuple(TOLERANCES)

Case = Callable[[], Any]


def compute(group: str, folder: Path) -> dict[str, Any]:
    """Compute the results of a group of cases by name; files are written to `folder`."""
    from golden.compare import plain

    cases = import_module(f"golden.{group}").cases(folder)
    results = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, case in cases.items():
            results[name] = plain(case())
    return results


def changes(group: str, results: dict[str, Any]) -> dict[str, list[str]]:
    """Return what differs from the recorded results of a group, by the names of its cases."""
    from golden.compare import differences

    differences_by_case = {}
    for name, expected in recorded(group).items():
        tolerance = LOOSER.get(name, TOLERANCES[group])
        differences_by_case[name] = list(differences(expected, results.get(name), tolerance, name))
    return differences_by_case


def recorded(group: str) -> dict[str, Any]:
    """Load the recorded results of a group by name."""
    text = (RECORDED / f"{group}.json").read_text("utf-8")
    results: dict[str, Any] = json.loads(text)
    return results


def record(group: str, results: dict[str, Any]) -> Path:
    """Write the results of a group, one case a line."""
    path = RECORDED / f"{group}.json"
    lines = []
    for name, result in results.items():
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        lines.append(f"{json.dumps(name)}: {text}")
    content = ",\n".join(lines)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{{\n{content}\n}}\n", "utf-8")
    return path
