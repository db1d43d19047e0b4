"""What there is to use: commands with their options, routes with their parameters, public names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polyseme
from golden import Case, models
from golden.command_line import run
from polyseme.studio.app import create_app
from polyseme.studio.host import ModelHost

_COMMAND = re.compile(r"^│ ([a-z]+)  ", re.MULTILINE)
_OPTIONS = re.compile(r"^│[ *]*((?:--?[a-z][a-z-]*[ ,]+)+)", re.MULTILINE)


def cases(folder: Path) -> dict[str, Case]:
    """Return the cases by name."""
    return {
        "commands": lambda: commands(folder),
        "routes": lambda: routes(folder),
        "public names": lambda: {"polyseme": sorted(polyseme.__all__)},
    }


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the options of every command, as its help names them."""
    names = _COMMAND.findall(help_of("", folder))
    lines = ["", *sorted(names), "extract image", "extract audio", "sample image", "sample audio"]
    options = {}
    for line in lines:
        rows = _OPTIONS.findall(help_of(line, folder))
        options[f"polyseme {line}".rstrip()] = sorted(
            {name for row in rows for name in row.split()}
        )
    return options


def help_of(line: str, folder: Path) -> str:
    """Return what a command says of itself."""
    return "\n".join(run(f"{line} --help", folder, n_columns=200)["out"])


def routes(folder: Path) -> dict[str, Any]:
    """Return the parameters and bodies of every route, and the fields of what is sent."""
    models.small_tagger().fit(None, models.world().label_sets).save(folder / "toy")
    hosts = [ModelHost(folder / "toy")]
    described = create_app(hosts).openapi()
    routes_by_path = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parameters = [parameter["name"] for parameter in operation.get("parameters", ())]
            bodies = operation.get("requestBody", {}).get("content", {})
            routes_by_path[f"{method.upper()} {path}"] = [sorted(parameters), sorted(bodies)]
    schemas = described["components"]["schemas"].values()
    fields = {field for schema in schemas for field in schema.get("properties", {})}
    return {"routes": dict(sorted(routes_by_path.items())), "fields": fields}
