"""The commands from media files to tags; everything heavy is imported inside them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from polyseme.cli.app import (
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

AGAIN = "polyseme: interrupted; run the same command again to go on where it stopped."


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
    from polyseme.cli.media import extract_files
    from polyseme.cluster import open_engine

    parameters: dict[str, Any] = {"n_jobs": workers}
    if kind == Kind.image:
        parameters |= {"depth": depth.value, "size": size, "framing": framing.value}
    else:
        parameters |= {"max_seconds": max_seconds}
    try:
        with open_engine(engine.value, address, workers, say) as where:
            complete = extract_files(kind.value, folder, out, parameters, where)
    except KeyboardInterrupt:
        say(AGAIN)
        raise typer.Exit(1) from None
    typer.echo(str(out))
    if strict and not complete:
        raise typer.Exit(1)


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
    from polyseme import load
    from polyseme.cli.media import tell_skipped
    from polyseme.cluster import Tagging, open_engine

    options: dict[str, Any] = {"precision": precision, "n_jobs": workers, "model": model}
    with open_engine(engine.value, address, workers, say) as where:
        tagging = Tagging(load(model), paths, top, engine=where, **options)
        if sidecars:
            # All are written before any is told of: a reader that goes away must not stop it.
            emit(list(tagging.sidecars()), form)
        else:
            emit(tagging.lines() if for_people(form) else tagging.records(), form)
    tell_skipped(tagging.skipped)
    if tagging.skipped and (strict or len(tagging.skipped) >= len(tagging.files)):
        raise typer.Exit(1)
