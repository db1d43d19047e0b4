"""The commands that learn and rank; everything heavy is imported inside them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyseme.cli.app import (
    AGAIN,
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
from polyseme.cli.output import Form, emit, emit_evidence, for_people, say

if TYPE_CHECKING:
    from polyseme.published.tagger import PublishedTagger
    from polyseme.tagger import Tagger


class Relatedness(StrEnum):
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
    label_sets: Annotated[
        Path | None,
        typer.Option(
            "--label-sets", "-s", help="Tag sets that teach meaning (default: documents)."
        ),
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
    relatedness: Annotated[
        Relatedness | None,
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
    device: Annotated[
        str | None,
        typer.Option(help="Where it is trained: cpu, cuda (default: a GPU where there is one)."),
    ] = None,
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
    from polyseme._validation import InputError
    from polyseme.cli.reading import read_corpus, read_training
    from polyseme.persistence import check_destination, remove_model
    from polyseme.tagger import ZeroShotTagger

    if engine == Engine.local and not (address is None and workers is None):
        raise typer.BadParameter("--address and --workers of `fit` need --engine ray.")
    check_destination(model)
    published = {
        "mapper": mapper,
        "relatedness": relatedness,
        "components": components,
        "topics": topics,
        "epochs": epochs,
    }
    if engine == Engine.ray and preset != Preset.default:
        raise InputError(
            "`--engine ray` trains the default tagger; the published one trains in this process."
        )
    if preset == Preset.default:
        for name in (name for name, value in published.items() if value is not None):
            raise InputError(f"`--{name}` belongs to the published method; add --preset paper.")
    reading = {"tags_column": tags_column, "delimiter": delimiter, "normalize": normalize}
    data = read_training(documents, features, split, {"n_words": words}, reading)
    sets = data.everything if label_sets is None else read_corpus(label_sets, reading)
    # The state of an interrupted run lies beside the model, never inside an older one.
    checkpoint = model.resolve().with_name(model.resolve().name + ".checkpoint")
    shared: dict[str, Any] = {"features": data.extractor, "device": device, "random_state": seed}
    tagger: Tagger
    try:
        if preset != Preset.default:
            tagger = _published_tagger(published, checkpoint, normalize, shared)
            tagger.fit(data.X, data.documents, sets)
        else:
            tagger = ZeroShotTagger(
                checkpoint=checkpoint, normalize_labels=normalize, verbose=True, **shared
            )
            if engine == Engine.local:
                tagger.fit(data.X, data.documents, sets)
            else:
                from polyseme.cluster import RayTraining

                # Beside the model: where that is a folder of all machines, this is one as well.
                storage = checkpoint.with_suffix(".ray")
                trainer = RayTraining(workers or 2, address, storage, device or "cpu")
                tagger.fit(data.X, data.documents, sets, trainer=trainer)
                trainer.forget()
    except KeyboardInterrupt:
        say(AGAIN)
        raise typer.Exit(1) from None
    tagger.save(model)
    remove_model(checkpoint)
    say(_summary(tagger))
    typer.echo(str(model))


def _published_tagger(
    options: dict[str, Any], checkpoint: Path, normalize: bool, shared: dict[str, Any]
) -> PublishedTagger:
    """Make the unfitted tagger of the published method."""
    from polyseme._validation import InputError
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.mapping import InstanceMapper
    from polyseme.published.tagger import PublishedTagger

    embedding = ConceptEmbedding.from_preset(
        "paper", checkpoint=checkpoint, verbose=True, normalize_labels=normalize
    )
    if options["components"] is not None:
        embedding.set_params(n_components=options["components"])
    if options["topics"] is not None:
        topics = options["topics"]
        if topics != "hdp" and not topics.isdecimal():
            raise InputError(f"`--topics` must be a whole number or 'hdp'; got '{topics}'.")
        n_topics = topics if topics == "hdp" else int(topics)
        embedding.set_params(context_descriptor__n_topics=n_topics)
    if options["epochs"] is not None:
        embedding.set_params(training__max_epochs=options["epochs"])
    tagger = PublishedTagger.from_preset("paper", embedding=embedding, verbose=True, **shared)
    if options["relatedness"] is not None:
        tagger.set_params(relatedness=options["relatedness"].value)
    # The preset's own is a nu-svr, with constants that belong to it.
    if options["mapper"] == MapperKind.kernel_ridge:
        tagger.set_params(mapper=InstanceMapper(kind="kernel-ridge"))
    return tagger


def _summary(tagger: Tagger) -> str:
    """Give a sentence about a tagger that was just fitted."""
    from polyseme.published.tagger import PublishedTagger

    counts = ", ".join(f"{count} {kind}" for kind, count in _kinds(tagger).items())
    summary = f"{len(tagger.classes_)} labels ({counts}) from "
    if isinstance(tagger, PublishedTagger):
        summary += f"{len(tagger.store_.ids)} documents"
        held_out = tagger.embedding_.best_score_
        if math.isfinite(held_out):
            summary += f"; held-out E-MAP of the concept space {100 * held_out:.1f}"
        return summary
    space, store = tagger.space_, tagger.store_
    return (
        f"{summary}{len(store.ids)} documents ({len(store.points)} different tag sets); "
        f"{len(space.members_)} members of {space.plan_.code} dimensions, "
        f"{space.plan_.n_steps} steps each"
    )


def _kinds(tagger: Tagger) -> dict[str, int]:
    """Count the labels of each kind that there is."""
    counts = {kind: int((tagger.kinds_ == kind).sum()) for kind in ("seen", "unseen", "oov")}
    return {kind: count for kind, count in counts.items() if count}


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
    from polyseme._progress import FileProgress
    from polyseme._validation import InputError, first_few
    from polyseme.cli.reading import read_corpus, tags_of_items
    from polyseme.cluster import open_engine, rank_shards
    from polyseme.cluster.ranking import Suggestions, Table, rank_table
    from polyseme.features.extraction import is_extraction
    from polyseme.io.shards import find_shards

    if out is None:
        suggestions = Suggestions(model, top, precision, method.value)
        tagger, table, known = suggestions.tagger, Table(features), None
        if tags is not None:
            reading = {"tags_column": tags_column, "delimiter": delimiter}
            corpus = read_corpus(tags, reading | {"normalize": tagger.normalize_labels_})
            known = tags_of_items(corpus, list(table.names()), tags, features)
        with open_engine(engine.value, address, workers, say) as where:
            ranked = rank_table(table, suggestions, known, where, workers)
            named = (item | record for item, record in zip(table.names(), ranked, strict=True))
            emit((_readable(record) for record in named) if for_people(form) else named, form)
        return
    if tags is not None or form != Form.auto:
        raise typer.BadParameter("--tags and --form do not go with --out; see --out-form.")
    if is_extraction(features):
        raise InputError(
            "`--out` is for .npy and .parquet shards; what `polyseme extract` wrote is ranked "
            "without it."
        )
    _, others = find_shards(features)
    if others:
        say(f"files that are no shards are passed over ({len(others)}): {first_few(others)}")
    options: dict[str, Any] = {"k": top, "precision": precision, "method": method.value}
    try:
        with (
            open_engine(engine.value, address, workers, say) as where,
            FileProgress("ranking") as bar,
        ):
            options |= {"form": out_form.value, "workers": workers, "progress": bar.tell}
            done = rank_shards(model, features, out, engine=where, **options)
    except KeyboardInterrupt:
        say(AGAIN)
        raise typer.Exit(1) from None
    shards = f"{done.n_shards:,} shard{'' if done.n_shards == 1 else 's'}"
    before = f" ({done.n_before:,} of them before)" if done.n_before else ""
    say(f"{done.n_rows:,} rows of {shards} ranked{before}")
    typer.echo(str(out))


def _readable(ranked: dict[str, Any]) -> dict[str, Any]:
    """Put each tag beside its score, for people."""
    listed = zip(ranked["labels"], ranked["kinds"], ranked["scores"], strict=True)
    told = (
        f"{label} {score:.3g}" + ("" if kind == "seen" else f" ({kind})")
        for label, kind, score in listed
    )
    item = {name: value for name, value in ranked.items() if name in ("row", "file", "shard")}
    return item | {"tags": ", ".join(told)}


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
    from polyseme._validation import InputError, first_few
    from polyseme.cli.reading import read_corpus
    from polyseme.persistence import check_destination
    from polyseme.tagger import load
    from polyseme.word_vectors import WordVectors

    labels, place = label or [], out or model
    if documents is None and not labels:
        raise InputError("Give tag sets with --documents, or tags with --label and --vectors.")
    if bool(labels) != (vectors is not None):
        raise InputError("`--label` and `--vectors` belong together: a name needs word vectors.")
    if place != model:
        check_destination(place)
    tagger = load(model)
    before, added = frozenset(tagger.classes_), []
    if documents is not None:
        reading = {"tags_column": tags_column, "delimiter": delimiter}
        corpus = read_corpus(documents, reading | {"normalize": tagger.normalize_labels_})
        n_added = len(tagger.add_documents(corpus))
        added.append(f"{n_added} document{'' if n_added == 1 else 's'}")
    if vectors is not None:
        words = WordVectors.read(vectors, labels=[*tagger.classes_, *labels])
        n_added = len(tagger.add_labels(labels, words))
        added.append(f"{n_added} label{'' if n_added == 1 else 's'} by name")
    tagger.save(place)
    fresh = [name for name in tagger.classes_ if name not in before]
    say(f"added {' and '.join(added)}; new labels: {first_few(fresh) if fresh else 'none'}")
    typer.echo(str(place))


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
    from polyseme._validation import InputError
    from polyseme.cli.reading import read_item
    from polyseme.published.tagger import PublishedTagger
    from polyseme.tagger import load

    x, item = (None, {}) if str(features) == "-" else read_item(features, row)
    tagger = load(model)
    if not isinstance(tagger, PublishedTagger):
        emit_evidence(item, tagger.explain(x, label, k=top, tags=tag or None), form)
        return
    if tag or x is None:
        raise InputError(
            "`--tag` needs the default tagger; the published method explains features alone."
        )
    emit(
        (
            {
                "label": concept.label,
                "distance": round(concept.distance, 6),
                "document": list(concept.document),
                "known_as": list(concept.document_ids[:3]),
                "times": len(concept.document_ids),
            }
            for concept in tagger.explain(x, label, k=top)
        ),
        form,
    )


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
    from polyseme._validation import InputError, PolysemeWarning, first_few
    from polyseme.cli.reading import match_items, read_rows, read_split
    from polyseme.features import read_extraction
    from polyseme.tagger import load

    tagger = load(model)
    # Labels are compared as the model does, whatever the command says elsewhere.
    reading = {"tags_column": tags_column, "delimiter": delimiter}
    corpus, rows = read_split(documents, split, reading | {"normalize": tagger.normalize_labels_})
    table: Any
    if features.is_dir():
        table, corpus, _ = match_items(read_extraction(features), corpus)
    else:
        table = read_rows(features, rows)
    if table.shape[0] != len(corpus):
        raise InputError(
            f"'{features}' has {table.shape[0]} rows but '{documents}' has {len(corpus)} documents."
        )
    aligned, unknown = corpus.align(tagger.classes_)
    truth = aligned[:, : len(tagger.classes_)].toarray()
    if not truth.any():
        raise InputError(f"No item in '{documents}' carries a label that the model knows.")
    if unknown:
        warnings.warn(
            f"{len(unknown)} true labels are not among the model's and are left out: "
            f"{first_few(unknown)}.",
            PolysemeWarning,
            stacklevel=2,
        )
    records = list(_measures(tagger, table, truth))
    if not for_people(form):
        emit(records, form)
        return
    # Many measures of few kinds: a row for each measure.
    measures = [name for name in records[0] if name != "labels"]
    emit(
        ({"measure": name} | {one["labels"]: one[name] for one in records} for name in measures),
        form,
    )


def _measures(tagger: Tagger, X: Any, truth: Any) -> Iterator[dict[str, Any]]:
    """Measure scores against the truth (n, n_labels), a record for all labels and for each kind."""
    import numpy as np

    from polyseme.metrics import evaluate, expected_calibration_error
    from polyseme.tagger import ZeroShotTagger

    probabilistic = isinstance(tagger, ZeroShotTagger)
    score: Any = tagger.predict_proba if probabilistic else tagger.decision_function
    scores = score(X)
    kinds = {"all": np.ones(truth.shape[1], dtype=bool)}
    kinds |= {kind: tagger.kinds_ == kind for kind in ("seen", "unseen", "oov")}
    for name, columns in kinds.items():
        n_items = int(truth[:, columns].any(axis=1).sum())
        if n_items:
            measures = evaluate(truth[:, columns], scores[:, columns])
            if probabilistic:
                error = expected_calibration_error(truth[:, columns], scores[:, columns])
                measures["calibration_error"] = error
            yield {"labels": name, "n_labels": int(columns.sum()), "n_items": n_items} | measures


@app.command(rich_help_panel=LEARNING)
def info(
    path: Annotated[Path, typer.Argument(help="A model's folder, or a file of documents.")],
    form: Output = Form.auto,
) -> None:
    """Say what a model or a file of documents holds."""
    facts = _describe_model(path) if path.is_dir() else _describe_documents(path)
    if form == Form.auto or form == Form.table:
        emit(({"what": key, "value": value} for key, value in facts.items()), form)
    else:
        emit([facts], form)


def _describe_documents(path: Path) -> dict[str, Any]:
    """Give the facts about a file of documents."""
    import numpy as np

    from polyseme.corpus import LabelCorpus

    corpus = LabelCorpus.read(path)
    lengths = np.diff(corpus.matrix.indptr)
    counts = np.asarray(corpus.matrix.sum(axis=0)).ravel()
    common = np.argsort(-counts, kind="stable")[:10]
    return {
        "documents": len(corpus),
        "empty documents": int((lengths == 0).sum()),
        "labels": len(corpus.labels),
        "labels a document": float(lengths.mean()),
        "spellings joined": len(corpus.spellings),
        "most frequent": [f"{corpus.labels[column]} ({counts[column]})" for column in common],
        "splits": sorted(set(corpus.splits or ())),
    }


def _describe_model(path: Path) -> dict[str, Any]:
    """Give the facts about a saved tagger."""
    from polyseme.tagger import ZeroShotTagger, load

    tagger = load(path)
    facts: dict[str, Any] = {"labels": len(tagger.classes_), **_kinds(tagger)}
    if isinstance(tagger, ZeroShotTagger):
        space, store = tagger.space_, tagger.store_
        last = space.history_[-1] if space.history_ else {}
        method: dict[str, Any] = {
            "method": "one concept space",
            "known documents": len(store.ids),
            "different tag sets": len(store.points),
            "labels by name": 0 if tagger.named_ is None else len(tagger.named_.labels),
            "members": len(space.members_),
            "dimensions": space.n_dimensions,
            "training steps": space.plan_.n_steps,
            "final loss of documents": last.get("documents"),
            "final loss of items": last.get("items") if tagger.n_features_in_ else None,
        }
    else:
        mapper, embedding = tagger.mapper_, tagger.embedding_
        method = {
            "method": "as published",
            "known documents": len(tagger.store_.ids),
            "known concepts": len(tagger.store_.points),
            "dimensions": embedding.n_components,
            "topics": embedding.context_descriptor_.n_topics_,
            "held-out E-MAP": embedding.best_score_,
            "epochs": len(embedding.history_),
            "mapper": "none (tags only)" if mapper is None else mapper.kind,
            "relatedness": tagger.relatedness,
        }
    extractor = "none (numbers)" if tagger.features_ is None else str(tagger.features_)
    return (
        facts
        | method
        | {
            "features": tagger.n_features_in_,
            "feature extractor": extractor if tagger.n_features_in_ else "none (tags only)",
            "documents left out": len(tagger.dropped_),
        }
    )
