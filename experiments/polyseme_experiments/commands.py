"""The commands about experiments; everything heavy is imported inside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyseme.cli.app import FILES, SHOWING, KindOfMedia, Output, Preset, app, resumable
from polyseme.cli.output import Form, emit, for_people, say
from polyseme_experiments import EXPERIMENTS, SEED

if TYPE_CHECKING:
    from polyseme_experiments.report.tables import Table

# Of the concept space that `audit` learns; what is proved does not depend on it.
DIMENSIONS = 50


Data = Annotated[
    Path | None, typer.Option(envvar="POLYSEME_DATA", help="Folder that holds the corpora.")
]
Seed = Annotated[int, typer.Option(min=0, help="Trial t draws with seed + t.")]


@app.command(rich_help_panel=SHOWING, epilog="Example: polyseme reproduce --quick")
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"Tables and figures: all, {', '.join(EXPERIMENTS)}. By default all.",
            show_default=False,
        ),
    ] = None,
    data: Data = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Trials; `default` and `compare` have ten at the least.")
    ] = 3,
    seed: Seed = SEED,
    quick: Annotated[
        bool, typer.Option("--quick", help="Samples and short trainings: see that everything runs.")
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
    from polyseme_experiments import reproduce as experiments
    from polyseme_experiments.sampling import RunConfig

    config = RunConfig(
        data=_text(data),
        seed=seed,
        quick=quick,
        preset=preset.value,
        pictures=_text(pictures),
    )
    folder = experiments.folder_of(out, config)
    options: dict[str, Any] = {"fresh": fresh, "from_records": from_records, "log": say}
    options |= {"trials": trials, "out": folder, "workers": workers}
    with resumable():
        sections = experiments.reproduce(names or ["all"], config, **options)
    tables: list[Table] = []
    for section in sections:
        tables += section.tables
    _print_tables(tables, form, folder)
    say(f"report: {folder / 'report.html'}")


def _text(path: Path | None) -> str | None:
    """Return a path as text."""
    return None if path is None else str(path)


def _print_tables(tables: Sequence[Table], form: Form, folder: Path) -> None:
    """Print tables: as they stand in the report for people, cell by cell for programs."""
    from polyseme.base.validation import InputError
    from polyseme_experiments.report.tables import legend, long_records, wide_records

    if form == Form.csv and len(tables) > 1:
        raise InputError(
            f"CSV has one header, but there are {len(tables)} tables; they are in "
            f"'{folder / 'tables'}', one file each."
        )
    wide = for_people(form)
    for table in tables:
        records = wide_records(table) if wide else long_records(table)
        emit(records, form, title=table.title)
        if wide:
            for line in (legend(table), *table.notes):
                typer.echo(f"  {line}")


@app.command(rich_help_panel=SHOWING, epilog="Example: polyseme audit hsun --quick")
def audit(
    setting: Annotated[str, typer.Argument(help="Where a split is drawn: hsun, corel5k, ….")],
    data: Data = None,
    trial: Annotated[int, typer.Option(min=0, help="Which trial, from 0.")] = 0,
    seed: Seed = SEED,
    quick: Annotated[bool, typer.Option("--quick", help="Audit a sample.")] = False,
    split_only: Annotated[
        bool, typer.Option("--split-only", help="Look at the split without learning from it.")
    ] = False,
) -> None:
    """Prove that nothing a split hides reaches training, and print the leakage report."""
    from polyseme_experiments.sampling import RunConfig
    from polyseme_experiments.settings import get_setting
    from polyseme_experiments.trials import Trial

    config = RunConfig(_text(data), seed, quick)
    subject = Trial(get_setting(setting), trial, config)
    fitted = None
    inputs = None
    if not split_only:
        say(f"learning from trial {trial} of {setting}; --split-only would leave that out")
        if subject.instance_features is None:
            fitted = subject.space(DIMENSIONS)
        else:
            fitted = subject.tagger(DIMENSIONS)
            inputs = subject.fit_inputs()
    report = subject.leakage_report(fitted, inputs, relearn_topics=True)
    for line in report.lines():
        typer.echo(line)
    if not report.passed:
        raise typer.Exit(1)


@app.command(rich_help_panel=SHOWING, epilog="Example: polyseme demo --out demo.html")
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
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Open the studio on the hidden emoji instead; on a terminal only."
        ),
    ] = False,
    studio: Annotated[
        Path, typer.Option(help="The studio's folder: its model is kept there.")
    ] = Path("demo-studio"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="The studio's port.")] = 8080,
) -> None:
    """Tag emoji, with a quarter of the tags hidden, and write a page that shows how it went."""
    if serve and sys.stdin.isatty():
        from polyseme_experiments.demo.studio import run_studio

        run_studio(studio, seed=seed, port=port, log=say)
        return
    from polyseme_experiments.demo import run_demo

    run_demo(out, seed=seed, from_pictures=from_pictures, log=say)
    typer.echo(str(out))


@app.command(rich_help_panel=FILES, epilog="Example: polyseme sample image photos")
def sample(
    kind: KindOfMedia,
    folder: Annotated[
        Path, typer.Argument(help="A folder to write to, new or empty; nothing is overwritten.")
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Write so many files only.", show_default=False)
    ] = None,
) -> None:
    """Write sample files to try the next commands on: drawn emoji, or rendered music."""
    from polyseme_experiments.datasets import known_specs

    dataset_names = {"image": "emoji", "audio": "clips"}
    spec = known_specs()[dataset_names[kind]]
    assert spec.embedded is not None
    assert spec.write_media is not None
    ids = spec.embedded().corpus.ids
    # Spread evenly over the documents, which stand in groups.
    step = max(1.0, len(ids) / (limit or len(ids)))
    n_files = int(len(ids) / step)
    chosen = [ids[int(number * step)] for number in range(n_files)]
    spec.write_media(folder, chosen)
    say(f"{len(chosen):,} {kind} files, their tags in '{folder / 'tags.jsonl'}'")
    typer.echo(str(folder))
