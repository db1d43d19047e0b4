"""The commands that learn and rank; everything heavy is imported inside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyseme.cli.app import (
    LEARNING,
    Address,
    Delimiter,
    Engine,
    Features,
    Model,
    Output,
    Precision,
    Preset,
    Shardable,
    Split,
    TagsColumn,
    Top,
    Where,
    Workers,
    app,
)
from polyseme.cli.output import Form, emit, for_people, say

if TYPE_CHECKING:
    from polyseme.published.priming import Explanation


class Score(StrEnum):
    """Ways of the published method from distances to scores."""

    nearest = "nearest"
    density = "density"


class MapperKind(StrEnum):
    """Ways of the published method from features into the concept space."""

    nu_svr = "nu-svr"
    kernel_ridge = "kernel-ridge"


@app.command(rich_help_panel=LEARNING)
def fit(
    model: Annotated[Path, typer.Argument(help="Folder to write the model to.")],
    documents: Annotated[
        Path | None,
        typer.Option(
            "--documents",
            "-d",
            help="Tags of each item: .jsonl, .csv, .npz, .arff. For an extracted folder they name "
            "their files; without any, the tags in the files' XMP sidecars are taken.",
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            "--features",
            "-x",
            help="Features of each item, or the folder that `polyseme extract` wrote; without "
            "any, tags only.",
        ),
    ] = None,
    semantics: Annotated[
        Path | None,
        typer.Option("--semantics", "-s", help="Tag sets that teach meaning (default: documents)."),
    ] = None,
    preset: Annotated[
        Preset, typer.Option(help="What ranks best, or the published method.")
    ] = Preset.default,
    mapper: Annotated[
        MapperKind | None,
        typer.Option(
            help="paper: how features find their place, nu-svr as published (the default) or "
            "kernel-ridge, which is faster.",
            show_default=False,
        ),
    ] = None,
    score: Annotated[
        Score | None,
        typer.Option(
            help="paper: by a tag's nearest known concept, as published (the default), or by all "
            "concepts that are near.",
            show_default=False,
        ),
    ] = None,
    components: Annotated[
        int | None, typer.Option(min=1, help="paper: dimensions of the concept space.")
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(help="paper: number of context topics, or 'hdp' to have it chosen."),
    ] = None,
    words: Annotated[
        int | None, typer.Option(min=1, help="audio: words of the codebook (default: 128).")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="paper: the most epochs with the combined loss.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where networks are trained: cpu, cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same model.")] = 0,
    split: Split = None,
    tags_column: TagsColumn = None,
    delimiter: Delimiter = None,
    normalize: Annotated[
        bool, typer.Option(help="Take labels that differ in case or white space as one.")
    ] = True,
    engine: Where = Engine.local,
    address: Address = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Workers of --engine ray (default: 2).", show_default=False),
    ] = None,
) -> None:
    """Learn a tagger. Interrupted? The same command goes on where it stopped."""
    from polyseme.cli.tasks import fit_files

    if engine == Engine.local and not (address is None and workers is None):
        raise typer.BadParameter("--address and --workers of `fit` need --engine ray.")
    try:
        summary = fit_files(
            model,
            documents,
            features,
            semantics,
            media={"n_words": words},
            preset=preset.value,
            published={
                "mapper": None if mapper is None else mapper.value,
                "score": None if score is None else score.value,
                "components": components,
                "topics": topics,
                "epochs": epochs,
            },
            device=device,
            seed=seed,
            split=split,
            reading={"tags_column": tags_column, "delimiter": delimiter, "normalize": normalize},
            cluster=None if engine == Engine.local else (address, workers),
        )
    except KeyboardInterrupt:
        say("polyseme: interrupted; run the same command again to go on where it stopped.")
        raise typer.Exit(1) from None
    if summary:
        say(summary)
        typer.echo(str(model))


class Method(StrEnum):
    """Ways of the default tagger to score labels."""

    space = "space"
    priming = "priming"


class OutForm(StrEnum):
    """What rankings of shards are written as."""

    jsonl = "jsonl"
    parquet = "parquet"


@app.command(rich_help_panel=LEARNING)
def rank(
    model: Model,
    features: Shardable,
    top: Top = 10,
    precision: Precision = None,
    tags: Annotated[
        Path | None,
        typer.Option(
            help="Tags that items have already, which move the others: a document for each row, or "
            "named after the files."
        ),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="By probabilities read from the concept space, or by known tag sets nearby alone."
        ),
    ] = Method.space,
    tags_column: TagsColumn = None,
    delimiter: Delimiter = None,
    form: Output = Form.auto,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="For .npy and .parquet: write a file of rankings for each shard to this folder. "
            "Interrupted? The same command goes on.",
            show_default=False,
        ),
    ] = None,
    out_form: Annotated[
        OutForm, typer.Option(help="For --out: what rankings are written as.")
    ] = OutForm.jsonl,
    engine: Where = Engine.local,
    address: Address = None,
    workers: Workers = None,
) -> None:
    """Rank tags for items."""
    from polyseme.cli.tasks import rank_files, rank_into
    from polyseme.cluster import open_engine

    with open_engine(engine.value, address, workers, say) as where:
        if out is None:
            ranked = rank_files(
                model,
                features,
                top,
                tags=tags,
                precision=precision,
                method=method.value,
                reading={"tags_column": tags_column, "delimiter": delimiter},
                engine=where,
                workers=workers,
            )
            emit((_readable(one) for one in ranked) if for_people(form) else ranked, form)
            return
        if tags is not None or form != Form.auto:
            raise typer.BadParameter("--tags and --form do not go with --out; see --out-form.")
        try:
            told = rank_into(
                model,
                features,
                out,
                k=top,
                precision=precision,
                method=method.value,
                form=out_form.value,
                engine=where,
                workers=workers,
            )
        except KeyboardInterrupt:
            say("polyseme: interrupted; run the same command again to go on where it stopped.")
            raise typer.Exit(1) from None
    say(told)
    typer.echo(str(out))


def _readable(ranked: dict[str, Any]) -> dict[str, Any]:
    """Put each tag beside its score, for people."""
    listed = zip(ranked["labels"], ranked["kinds"], ranked["scores"], strict=True)
    told = (
        f"{label} {score:.3g}" + ("" if kind == "seen" else f" ({kind})")
        for label, kind, score in listed
    )
    item = {name: value for name, value in ranked.items() if name not in _LISTED}
    return item | {"tags": ", ".join(told)}


_LISTED = ("labels", "kinds", "scores")


@app.command(rich_help_panel=LEARNING)
def add(
    model: Model,
    documents: Annotated[
        Path | None,
        typer.Option("--documents", "-d", help="Tag sets to know from now on; new tags are oov."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="A tag that no tag set holds, by its name; repeatable."),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="For --label: word vectors, .npz or text as GloVe has it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write to (default: the model's own)."),
    ] = None,
    tags_column: TagsColumn = None,
    delimiter: Delimiter = None,
) -> None:
    """Let a model know more tag sets, or tags by name. Nothing is trained."""
    from polyseme.cli.tasks import add_to_model

    reading = {"tags_column": tags_column, "delimiter": delimiter}
    say(add_to_model(model, documents, label or [], vectors, out=out or model, reading=reading))
    typer.echo(str(out or model))


@app.command(rich_help_panel=LEARNING)
def complete(
    model: Model,
    tags: Annotated[list[str], typer.Argument(help="The tags an item has already.")],
    top: Top = 10,
    form: Output = Form.auto,
) -> None:
    """Suggest tags that go with the given ones."""
    from polyseme import load

    tagger = load(model)
    kinds = dict(zip(tagger.classes_, tagger.kinds_.tolist(), strict=True))
    labels, scores = tagger.complete(tags, k=top)
    emit(
        (
            {"label": label, "kind": kinds[label], "score": round(score, 6)}
            for label, score in zip(labels.tolist(), scores.tolist(), strict=True)
        ),
        form,
        title=f"goes with {', '.join(tags)}",
    )


@app.command(rich_help_panel=LEARNING)
def explain(
    model: Model,
    features: Annotated[
        Path,
        typer.Argument(
            help="Features, or the folder that `polyseme extract` wrote; - explains what the tags "
            "of --tag alone suggest."
        ),
    ],
    label: Annotated[str, typer.Argument(help="The tag whose score is to be explained.")],
    row: Annotated[
        str, typer.Option(help="Which row of the features, from 0, or which file of the folder.")
    ] = "0",
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", "-t", help="A tag that the item has already; repeatable."),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", "-k", min=1, help="How many tags and known tag sets to name.")
    ] = 5,
    form: Output = Form.auto,
) -> None:
    """Show where a tag's score comes from, in parts that add up to its logit."""
    from polyseme import load
    from polyseme._validation import InputError
    from polyseme.cli.evidence import emit_evidence
    from polyseme.cli.media import one_item
    from polyseme.published.tagger import PublishedTagger

    one, item = (None, {}) if str(features) == "-" else one_item(features, row)
    tagger = load(model)
    if not isinstance(tagger, PublishedTagger):
        emit_evidence(item, tagger.explain(one, label, k=top, tags=tag or None), form)
        return
    if tag or one is None:
        raise InputError(
            "`--tag` needs the default tagger; the published method explains features alone."
        )
    emit(_near_concepts(tagger.explain(one, label, k=top)), form)


def _near_concepts(found: Sequence[Explanation]) -> Iterator[dict[str, Any]]:
    """Yield a record for each known concept that the published method's score rests on."""
    for one in found:
        yield {
            "label": one.label,
            "distance": round(one.distance, 6),
            "document": list(one.document),
            "known_as": list(one.document_ids[:3]),
            "times": len(one.document_ids),
        }


@app.command(rich_help_panel=LEARNING)
def senses(
    model: Model,
    tag: Annotated[str, typer.Argument(help="The tag whose senses are asked for.")],
    form: Output = Form.auto,
) -> None:
    """Show the senses in which a tag is used, by the known tag sets that hold it."""
    from polyseme import load
    from polyseme._validation import InputError
    from polyseme.tagger import ZeroShotTagger

    tagger = load(model)
    if not isinstance(tagger, ZeroShotTagger):
        raise InputError("`senses` needs the default tagger.")
    found = tagger.senses(tag)
    if found is None:
        say(f"the tag sets that hold '{tag}' do not fall apart: it has one sense here")
        return
    sizes = [int((found.senses == sense).sum()) for sense in range(len(found.words))]
    emit(
        (
            {"sense": sense + 1, "tag_sets": size, "share": round(size / sum(sizes), 3)}
            | {"set_apart_by": list(found.words[sense])}
            for sense, size in enumerate(sizes)
        ),
        form,
        title=f"senses of {found.label}",
    )


@app.command(rich_help_panel=LEARNING)
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
    found = list(evaluate_files(model, features, documents, split=split, reading=reading))
    if not for_people(form):
        emit(found, form)
        return
    # Many measures of few kinds: a row for each measure.
    measures = [name for name in found[0] if name != "labels"]
    emit(
        ({"measure": name} | {one["labels"]: one[name] for one in found} for name in measures), form
    )


@app.command(rich_help_panel=LEARNING)
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
