"""The commands, one function each; everything heavy is imported inside them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from polyseme.cli.output import Form, emit, say
from polyseme.experiments.names import EXPERIMENTS, SEED

app = typer.Typer(
    name="polyseme",
    help="Rank tags for items by what tags mean in each other's company: tags seen on training "
    "items, tags that none of them carries, and tags that turn up later.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[Path, typer.Argument(help="Folder of a model that `polyseme fit` wrote.")]
Features = Annotated[
    Path, typer.Argument(help="Features, one row an item: .npy, .npz, .csv, .tsv, .parquet, .arff.")
]
Output = Annotated[
    Form, typer.Option("--form", "-f", help="auto: a table on a terminal, JSON lines elsewhere.")
]
Top = Annotated[int, typer.Option("--top", "-k", min=1, help="How many to give.")]
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


class Score(StrEnum):
    """Ways from distances to scores."""

    nearest = "nearest"
    density = "density"


class MapperKind(StrEnum):
    """Ways from features into the concept space."""

    nu_svr = "nu-svr"
    kernel_ridge = "kernel-ridge"


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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of splits and training.")] = 0,
) -> None:
    """Tag emoji, with a quarter of the tags hidden, and write a page that shows how it went."""
    from polyseme.demo import run_demo

    run_demo(out, seed=seed, say=say)
    typer.echo(str(out))


@app.command()
def fit(
    model: Annotated[Path, typer.Argument(help="Folder to write the model to.")],
    documents: Annotated[
        Path,
        typer.Option("--documents", "-d", help="Tags of each item: .jsonl, .csv, .npz, .arff."),
    ],
    features: Annotated[
        Path | None,
        typer.Option("--features", "-x", help="Features of each item; without any, tags only."),
    ] = None,
    semantics: Annotated[
        Path | None,
        typer.Option("--semantics", "-s", help="Tag sets that teach meaning (default: documents)."),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="Parameters to start from.")] = Preset.default,
    mapper: Annotated[
        MapperKind | None, typer.Option(help="How features find their place (default: nu-svr).")
    ] = None,
    score: Annotated[
        Score, typer.Option(help="By a tag's nearest known concept, or by all that are near.")
    ] = Score.nearest,
    components: Annotated[
        int | None, typer.Option(min=1, help="Dimensions of the concept space.")
    ] = None,
    topics: Annotated[
        str | None, typer.Option(help="Number of context topics, or 'hdp' to have it chosen.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="The most training epochs.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same model.")] = 0,
    split: Split = None,
    tags_column: TagsColumn = None,
    delimiter: Delimiter = None,
    normalize: Annotated[
        bool, typer.Option(help="Take labels that differ in case or white space as one.")
    ] = True,
) -> None:
    """Learn a tagger. Interrupted? The same command goes on where it stopped."""
    from polyseme.cli.tasks import fit_files

    try:
        summary = fit_files(
            model,
            documents,
            features,
            semantics,
            preset=preset.value,
            mapper=None if mapper is None else mapper.value,
            score=score.value,
            components=components,
            topics=topics,
            epochs=epochs,
            seed=seed,
            split=split,
            reading={"tags_column": tags_column, "delimiter": delimiter, "normalize": normalize},
        )
    except KeyboardInterrupt:
        say("polyseme: interrupted; run the same command again to go on where it stopped.")
        raise typer.Exit(1) from None
    say(summary)
    typer.echo(str(model))


@app.command()
def rank(model: Model, features: Features, top: Top = 10, form: Output = Form.auto) -> None:
    """Rank tags for items."""
    from polyseme import load, read_features

    tagger = load(model)
    kinds = dict(zip(tagger.labels_, tagger.kinds_.tolist(), strict=True))
    labels, scores = tagger.rank(read_features(features), k=top)
    emit(
        (
            {
                "row": row,
                "labels": names.tolist(),
                "kinds": [kinds[name] for name in names.tolist()],
                "scores": [round(score, 6) for score in values.tolist()],
            }
            for row, (names, values) in enumerate(zip(labels, scores, strict=True))
        ),
        form,
    )


@app.command()
def complete(
    model: Model,
    tags: Annotated[list[str], typer.Argument(help="The tags an item has already.")],
    top: Top = 10,
    form: Output = Form.auto,
) -> None:
    """Suggest tags that go with the given ones."""
    from polyseme import load

    tagger = load(model)
    kinds = dict(zip(tagger.labels_, tagger.kinds_.tolist(), strict=True))
    labels, scores = tagger.complete(tags, k=top)
    emit(
        (
            {"label": label, "kind": kinds[label], "score": round(score, 6)}
            for label, score in zip(labels.tolist(), scores.tolist(), strict=True)
        ),
        form,
        title=f"goes with {', '.join(tags)}",
    )


@app.command()
def explain(
    model: Model,
    features: Features,
    label: Annotated[str, typer.Argument(help="The tag whose score is to be explained.")],
    row: Annotated[int, typer.Option(min=0, help="Which row of the features.")] = 0,
    top: Top = 5,
    form: Output = Form.auto,
) -> None:
    """Show the known tag sets behind a tag's score, from near to far."""
    from polyseme import load, read_features
    from polyseme._validation import InputError

    table = read_features(features)
    if row >= table.shape[0]:
        raise InputError(f"There is no row {row}: '{features}' has {table.shape[0]} rows.")
    found = load(model).explain(table[row : row + 1], label, k=top)
    emit(
        (
            {
                "label": one.label,
                "distance": round(one.distance, 6),
                "document": list(one.document),
                "known_as": list(one.document_ids[:3]),
                "times": len(one.document_ids),
            }
            for one in found
        ),
        form,
    )


@app.command()
def evaluate(
    model: Model,
    features: Features,
    documents: Annotated[Path, typer.Argument(help="The true tags of each item.")],
    split: Split = None,
    tags_column: TagsColumn = None,
    delimiter: Delimiter = None,
    form: Output = Form.auto,
) -> None:
    """Measure rankings against true tags, over all tags and by kind."""
    from polyseme.cli.tasks import evaluate_files

    reading = {"tags_column": tags_column, "delimiter": delimiter}
    emit(evaluate_files(model, features, documents, split=split, reading=reading), form)


@app.command()
def info(
    path: Annotated[Path, typer.Argument(help="A model's folder, or a file of documents.")],
    form: Output = Form.auto,
) -> None:
    """Say what a model or a file of documents holds."""
    from polyseme.cli.tasks import describe

    facts = describe(path)
    if form == Form.auto or form == Form.table:
        emit(({"what": key, "value": value} for key, value in facts.items()), form)
    else:
        emit([facts], form)


@app.command()
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
        int, typer.Option(min=1, help="Trials of each; `compare` has ten at the least.")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Trial t draws with seed + t.")] = SEED,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Samples and short trainings: see that everything runs."),
    ] = False,
    preset: Annotated[
        Preset, typer.Option(help="How the concept space is trained.")
    ] = Preset.default,
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
    from polyseme.cli.experiments import reproduce_named

    options = {
        "trials": trials,
        "seed": seed,
        "quick": quick,
        "preset": preset.value,
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


@app.command()
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
    from polyseme.cli.experiments import audit_setting

    lines, passed = audit_setting(
        setting, data, trial=trial, seed=seed, quick=quick, learn=not split_only
    )
    for line in lines:
        typer.echo(line)
    if not passed:
        raise typer.Exit(1)
