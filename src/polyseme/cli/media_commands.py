"""The commands from media files to tags; everything heavy is imported inside them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from polyseme.cli.app import (
    AGAIN,
    FILES,
    Address,
    Engine,
    Model,
    Output,
    Precision,
    Top,
    Where,
    Workers,
    app,
)
from polyseme.cli.output import Form, emit, for_people, say

_NAMED = 20  # skipped files that are named


class Kind(StrEnum):
    """Kinds of media."""

    image = "image"
    audio = "audio"


class Depth(StrEnum):
    """Where the picture network is listened to."""

    pre_logit = "pre-logit"
    pooled = "pooled"
    convolution = "convolution"
    logits = "logits"


class Framing(StrEnum):
    """How pictures become squares."""

    stretch = "stretch"
    crop = "crop"
    pad = "pad"


KindOfMedia = Annotated[Kind, typer.Argument(help="What the files are.", metavar="image|audio")]
Strict = Annotated[
    bool, typer.Option("--strict", help="End with exit code 1 if any file had to be skipped.")
]


@app.command(rich_help_panel=FILES)
def extract(
    kind: KindOfMedia,
    folder: Annotated[Path, typer.Argument(help="Looked through with all folders below it.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the numbers to.")],
    depth: Annotated[
        Depth, typer.Option(help="image: where the network is listened to.")
    ] = Depth.pre_logit,
    size: Annotated[
        int, typer.Option(min=32, help="image: pixels a side, a multiple of 32.")
    ] = 224,
    framing: Annotated[
        Framing, typer.Option(help="image: how pictures become squares.")
    ] = Framing.stretch,
    max_seconds: Annotated[
        float, typer.Option(help="audio: how much of each file is listened to.")
    ] = 600.0,
    engine: Where = Engine.local,
    address: Address = None,
    workers: Workers = None,
    strict: Strict = False,
) -> None:
    """Turn a folder of media into numbers. Interrupted? The same command goes on."""
    from polyseme._progress import FileProgress
    from polyseme.cluster import open_engine
    from polyseme.features import extract_folder, extractor_class
    from polyseme.features.base import quiet_decoders

    parameters: dict[str, Any] = {"n_jobs": workers}
    if kind == Kind.image:
        parameters |= {"depth": depth.value, "size": size, "framing": framing.value}
    else:
        parameters |= {"max_seconds": max_seconds}
    extractor = extractor_class(kind.value)(**parameters)
    try:
        with (
            open_engine(engine.value, address, workers, say) as where,
            quiet_decoders(),
            FileProgress(f"extracting {kind.value}") as bar,
        ):
            summary = extract_folder(folder, out, extractor, progress=bar.tell, engine=where)
    except KeyboardInterrupt:
        say(AGAIN)
        raise typer.Exit(1) from None
    _say_skipped(summary.skipped)
    for name, reason in summary.sidecars[:_NAMED]:
        say(f"the tags beside {name} cannot be read: {reason}")
    say(summary.sentence())
    typer.echo(str(out))
    if strict and (summary.skipped or summary.sidecars):
        raise typer.Exit(1)


def _say_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Name the files that could not be used."""
    for name, reason in skipped[:_NAMED]:
        say(f"skipped {name}: {reason}")
    if len(skipped) > _NAMED:
        say(f"… and {len(skipped) - _NAMED:,} more; the folder's files.jsonl names them all")


@app.command(rich_help_panel=FILES)
def tag(
    model: Model,
    paths: Annotated[list[Path], typer.Argument(help="Media files, or folders that hold some.")],
    top: Top = 10,
    precision: Precision = None,
    form: Output = Form.auto,
    sidecars: Annotated[
        bool,
        typer.Option(
            "--sidecars",
            help="Write the tags into XMP files beside the media, to those already there.",
        ),
    ] = False,
    engine: Where = Engine.local,
    address: Address = None,
    workers: Workers = None,
    strict: Strict = False,
) -> None:
    """Tag media files. They are only read; with --sidecars, tags go into files beside them."""
    from polyseme.cluster import Tagging, open_engine

    options: dict[str, Any] = {"precision": precision, "n_jobs": workers}
    with open_engine(engine.value, address, workers, say) as where:
        tagging = Tagging(model, paths, top, engine=where, **options)
        if sidecars:
            # All are written before any is told of: a reader that goes away must not stop it.
            emit(list(tagging.sidecars()), form)
        else:
            emit(tagging.lines() if for_people(form) else tagging.records(), form)
    _say_skipped(tagging.skipped)
    if tagging.skipped and (strict or len(tagging.skipped) >= len(tagging.files)):
        raise typer.Exit(1)
