"""What `reproduce` and `audit` do, apart from parsing and printing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from polyseme.cli.output import say

# Of the concept space that `audit` learns; what is proved does not depend on it.
DIMENSIONS = 50


def reproduce_named(
    names: Sequence[str],
    data: Path | None,
    *,
    trials: int,
    seed: int,
    quick: bool,
    preset: str,
    out: Path | None,
    workers: int,
    fresh: bool,
    wide: bool,
) -> tuple[list[tuple[str, list[dict[str, Any]]]], Path]:
    """Run experiments; give the title and rows of each table asked for, and the report's path.

    Rows are for people where `wide`, for programs otherwise.
    """
    from polyseme.experiments.reproduce import default_folder, reproduce
    from polyseme.experiments.tables import to_records

    folder = default_folder(out, quick=quick)
    sections = reproduce(
        names,
        data,
        trials=trials,
        seed=seed,
        quick=quick,
        preset=preset,
        out=folder,
        workers=workers,
        fresh=fresh,
        say=say,
        terminal=sys.stderr.isatty(),
    )
    tables = [table for section in sections for table in section.tables]
    form: Literal["wide", "long"] = "wide" if wide else "long"
    return [(table.title, to_records(table, form)) for table in tables], folder / "report.html"


def audit_setting(
    name: str, data: Path | None, *, trial: int, seed: int, quick: bool, learn: bool
) -> tuple[list[str], bool]:
    """Draw a split, learn from it, and audit both; give the receipt and whether all checks hold."""
    from polyseme.experiments.settings import get_setting
    from polyseme.experiments.trials import Conditions, Trial

    conditions = Conditions(None if data is None else str(data), seed, quick)
    drawn = Trial(get_setting(name), trial, conditions)
    fitted, given = None, None
    if learn:
        say(f"learning from trial {trial} of {name}; --split-only would leave that out")
        has_features = drawn.instance_features is not None
        fitted = drawn.tagger(DIMENSIONS) if has_features else drawn.space(DIMENSIONS)
        given = drawn.lessons() if has_features else None
    receipt = drawn.receipt(fitted, given)
    return receipt.lines(), receipt.passed
