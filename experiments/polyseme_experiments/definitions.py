"""What is only declared: settings, methods and experiments are tables of TOML files.

In: a file and a name. Out: the table's fields, or the object that they describe.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from polyseme.base.validation import unknown_name

T = TypeVar("T")


def _tuples(value: Any) -> Any:
    """Return lists as tuples, also inside."""
    if isinstance(value, dict):
        table = {}
        for name, entry in value.items():
            table[name] = _tuples(entry)
        return table
    if isinstance(value, list):
        return tuple(_tuples(entry) for entry in value)
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file with tuples in place of lists."""
    tables: dict[str, Any] = _tuples(tomllib.loads(path.read_text("utf-8")))
    return tables


def make_all(tables: Mapping[str, Any], modules: Iterable[ModuleType]) -> dict[str, Any]:
    """Make what tables describe: `kind` is a class of one of the modules, all else its fields."""
    kinds: dict[str, Any] = {}
    for module in modules:
        kinds |= vars(module)

    definitions = {}
    for name, table in tables.items():
        fields = dict(table)
        kind = kinds[fields.pop("kind")]
        definitions[name] = kind(name=name, **fields)
    return definitions


def find(kind: str, name: str, definitions: Mapping[str, T]) -> T:
    """Return what a name stands for; raise an `InputError` that lists the known names."""
    if name not in definitions:
        raise unknown_name(kind, name, tuple(definitions))
    return definitions[name]
