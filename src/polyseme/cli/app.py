"""The command's frame: the application, and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from polyseme.cli.output import Form

app = typer.Typer(
    name="polyseme",
    help="Rank tags for items by what tags mean in the context of other tags: tags seen on "
    "training items, tags that none of them carries, and tags that turn up later.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Engine(StrEnum):
    """Where long work is done."""

    local = "local"
    ray = "ray"


# Groups of commands in the help.
SHOWING = "See that it works"
LEARNING = "Learn, rank and ask"
FILES = "From files to tags"
# What is said when a command that can go on is interrupted.
AGAIN = "polyseme: interrupted; run the same command again to go on where it stopped."

Model = Annotated[Path, typer.Argument(help="Folder of a model that `polyseme fit` wrote.")]
Features = Annotated[
    Path,
    typer.Argument(
        help="Features, one row an item: .npy, .npz, .csv, .tsv, .parquet, .arff; or the folder "
        "that `polyseme extract` wrote."
    ),
]
Shardable = Annotated[
    Path,
    typer.Argument(
        help="Features, one row an item: .npy, .npz, .csv, .tsv, .parquet, .arff; the folder that "
        "`polyseme extract` wrote; or a folder of .npy or .parquet shards.",
    ),
]
# Where long work is done: the same options for all commands that do some.
Where = Annotated[
    Engine,
    typer.Option(help="This process, or the workers of a Ray cluster; the results are the same."),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="For --engine ray: auto or HOST:PORT of a cluster that runs; local, or nothing, "
        "starts one on this machine.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Threads, or workers of --engine ray; by default one for each processor.",
        show_default=False,
    ),
]
Output = Annotated[
    Form, typer.Option("--form", "-f", help="auto: a table on a terminal, JSON lines elsewhere.")
]
Top = Annotated[int, typer.Option("--top", "-k", min=1, help="How many to give.")]
Precision = Annotated[
    float | None,
    typer.Option(
        "--precision",
        "-p",
        min=0.01,
        max=0.99,
        help="Give only tags that are likely enough for this share of them to be true, as far as "
        "training items tell; --top is then the most.",
        show_default=False,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Use only the documents of this split (their `split` field), and their rows."
    ),
]
TagsColumn = Annotated[
    str | None,
    typer.Option(help="For CSV: the column that holds the tags (default: tags, labels)."),
]
Delimiter = Annotated[str | None, typer.Option(help="For CSV: what stands between two tags.")]


class Preset(StrEnum):
    """Named sets of parameters."""

    default = "default"
    paper = "paper"


def _version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        from polyseme import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
