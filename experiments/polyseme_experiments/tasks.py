"""What `reproduce` and `audit` do, apart from parsing and printing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from polyseme._validation import InputError
from polyseme.cli.output import Form, emit, for_people, say

# Of the concept space that `audit` learns; what is proved does not depend on it.
DIMENSIONS = 50


def reproduce_named(
    names: Sequence[str], data: Path | None, out: Path | None, form: Form, **options: Any
) -> Path:
    """Run experiments, print the tables asked for, and give the report's path."""
    from polyseme_experiments.rendering.cells import legend
    from polyseme_experiments.rendering.tables import to_records
    from polyseme_experiments.reproduce import default_folder, reproduce

    folder = default_folder(out, quick=options["quick"], pictures=options["pictures"] is not None)
    sections = reproduce(names, data, out=folder, say=say, terminal=sys.stderr.isatty(), **options)
    tables = [table for section in sections for table in section.tables]
    if form == Form.csv and len(tables) > 1:
        raise InputError(
            f"CSV has one header, but there are {len(tables)} tables; they are in "
            f"'{folder / 'tables'}', one file each."
        )
    for table in tables:
        wide = for_people(form)
        emit(to_records(table, "wide" if wide else "long"), form, title=table.title)
        if wide:
            for line in (legend(table), *table.notes):
                typer.echo(f"  {line}")
    return folder / "report.html"


def audit_setting(
    name: str, data: Path | None, *, trial: int, seed: int, quick: bool, learn: bool
) -> tuple[list[str], bool]:
    """Draw a split, learn from it, and audit both; give the receipt and whether all checks hold."""
    from polyseme_experiments.draws import Conditions
    from polyseme_experiments.settings import get_setting
    from polyseme_experiments.trials import Trial

    conditions = Conditions(None if data is None else str(data), seed, quick)
    drawn = Trial(get_setting(name), trial, conditions)
    fitted, given = None, None
    if learn:
        say(f"learning from trial {trial} of {name}; --split-only would leave that out")
        has_features = drawn.instance_features is not None
        fitted = drawn.tagger(DIMENSIONS) if has_features else drawn.space(DIMENSIONS)
        given = drawn.given() if has_features else None
    receipt = drawn.receipt(fitted, given, relearn_topics=True)
    return receipt.lines(), receipt.passed


def write_sample(kind: str, folder: Path, limit: int | None) -> str:
    """Write sample media with their tags; give a sentence about them."""
    from polyseme.datasets import SPECS

    spec = SPECS[{"image": "emoji", "audio": "clips"}[kind]]
    assert spec.embedded is not None and spec.write_media is not None
    ids = spec.embedded().corpus.ids
    step = 1.0 if limit is None else max(1.0, len(ids) / limit)
    chosen = [ids[int(place * step)] for place in range(int(len(ids) / step))]
    spec.write_media(folder, chosen)
    return f"{len(chosen):,} {kind} files, their tags in '{folder / 'tags.jsonl'}'"
