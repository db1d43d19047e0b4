"""The commands about experiments; everything heavy is imported inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyseme.cli.app import FILES, SHOWING, Output, Preset, app
from polyseme.cli.media_commands import KindOfMedia
from polyseme.cli.output import Form, say
from polyseme_experiments.names import EXPERIMENTS, SEED


@app.command(rich_help_panel=SHOWING)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"Tables and figures: all, {', '.join(EXPERIMENTS)}. By default all.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(envvar="POLYSEME_DATA", help="Folder that holds the corpora."),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Trials; `default` and `compare` have ten at the least.")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Trial t draws with seed + t.")] = SEED,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Samples and short trainings: see that everything runs."),
    ] = False,
    preset: Annotated[
        Preset, typer.Option(help="How the published method is trained.")
    ] = Preset.default,
    pictures: Annotated[
        Path | None,
        typer.Option(
            help="figA1, figA2: a folder of your own pictures, with tags.jsonl, tags.csv or XMP "
            "files beside them, in place of the emoji."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for records, tables and the report. By default results, or results-quick.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, one thread each.")] = 2,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run again what is recorded already.")
    ] = False,
    from_records: Annotated[
        bool,
        typer.Option("--from-records", help="Run nothing: tables and report of what is recorded."),
    ] = False,
    form: Output = Form.auto,
) -> None:
    """Run the paper's tables and figures and print ours beside the published values."""
    from polyseme_experiments.tasks import reproduce_named

    options = {
        "trials": trials,
        "seed": seed,
        "quick": quick,
        "preset": preset.value,
        "pictures": pictures,
        "workers": workers,
        "fresh": fresh,
        "from_records": from_records,
    }
    try:
        report = reproduce_named(names or ["all"], data, out, form, **options)
    except KeyboardInterrupt:
        say("polyseme: interrupted; run the same command again to go on where it stopped.")
        raise typer.Exit(1) from None
    say(f"report: {report}")


@app.command(rich_help_panel=SHOWING)
def audit(
    setting: Annotated[str, typer.Argument(help="Where a split is drawn: hsun, corel5k, ….")],
    data: Annotated[
        Path | None,
        typer.Option(envvar="POLYSEME_DATA", help="Folder that holds the corpora."),
    ] = None,
    trial: Annotated[int, typer.Option(min=0, help="Which trial, from 0.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Trial t draws with seed + t.")] = SEED,
    quick: Annotated[bool, typer.Option("--quick", help="Audit a sample.")] = False,
    split_only: Annotated[
        bool, typer.Option("--split-only", help="Look at the split without learning from it.")
    ] = False,
) -> None:
    """Prove that nothing a split hides reaches training, and print the receipt."""
    from polyseme_experiments.tasks import audit_setting

    lines, passed = audit_setting(
        setting, data, trial=trial, seed=seed, quick=quick, learn=not split_only
    )
    for line in lines:
        typer.echo(line)
    if not passed:
        raise typer.Exit(1)


@app.command(rich_help_panel=SHOWING)
def demo(
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of splits and training.")] = 0,
    from_pictures: Annotated[
        bool,
        typer.Option(
            "--from-pictures",
            help="Look at the emoji's picture files instead of taking their stored features.",
        ),
    ] = False,
) -> None:
    """Tag emoji, with a quarter of the tags hidden, and write a page that shows how it went."""
    from polyseme_experiments.demo import run_demo

    run_demo(out, seed=seed, from_pictures=from_pictures, say=say)
    typer.echo(str(out))


@app.command(rich_help_panel=FILES)
def sample(
    kind: KindOfMedia,
    folder: Annotated[Path, typer.Argument(help="A new or empty folder to write to.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Write so many files only.", show_default=False)
    ] = None,
) -> None:
    """Write sample files to try the next commands on: drawn emoji, or rendered music."""
    from polyseme_experiments.tasks import write_sample

    say(write_sample(kind.value, folder, limit))
    typer.echo(str(folder))
