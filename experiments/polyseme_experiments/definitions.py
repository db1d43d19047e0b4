"""What is only declared: settings, methods and experiments are tables of TOML files.

In: a file and a name. Out: the table's fields, or what they make.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from polyseme._validation import unknown_name

T = TypeVar("T")


def _tuples(value: Any) -> Any:
    """Return lists as tuples, also inside."""
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file with tuples in place of lists."""
    tables: dict[str, Any] = _tuples(tomllib.loads(path.read_text("utf-8")))
    return tables


def make_all(tables: Mapping[str, Any], modules: Iterable[ModuleType]) -> dict[str, Any]:
    """Make what tables describe: `kind` is a class of one of the modules, the rest its fields."""
    kinds = {name: kind for module in modules for name, kind in vars(module).items()}
    return {
        name: kinds[table["kind"]](name=name, **{f: v for f, v in table.items() if f != "kind"})
        for name, table in tables.items()
    }


def find(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return what a name stands for; raise an `InputError` that lists the known ones."""
    if name not in known:
        raise unknown_name(kind, name, tuple(known))
    return known[name]
