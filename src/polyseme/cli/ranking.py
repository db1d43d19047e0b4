"""The commands that ask a model: rank, add, complete, explain, senses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import typer

import polyseme
from polyseme.base.text import counted
from polyseme.cli.app import (
    LEARNING,
    EngineName,
    LabelKind,
    TableOptions,
    command,
    refuse,
    resumable,
)
from polyseme.cli.models import load_default_tagger, readable_record
from polyseme.cli.output import Form, emit, emit_evidence, for_people, say, summarize_verdicts


@command(LEARNING)
def rank(
    model: Path,
    features: Path,
    top: int = 10,
    precision: float | None = None,
    kind: LabelKind | None = None,
    tags: Path | None = None,
    method: Literal["space", "priming"] = "space",
    features_column: str | None = None,
    *,
    tables: TableOptions,
    form: Form = Form.auto,
    out: Path | None = None,
    out_form: Literal["jsonl", "parquet"] = "jsonl",
    engine: EngineName = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Rank tags for items."""
    from polyseme.base.progress import FileProgress
    from polyseme.base.validation import first_few
    from polyseme.batch import open_engine, rank_shards
    from polyseme.batch.ranking import RankingInput, SavedRanker, rank_table
    from polyseme.cli.inputs import TableReader, tags_of_items
    from polyseme.io.shards import find_shards
    from polyseme.media.extraction import is_extraction

    # Print the rankings as they are made, or write those of each shard to a file of --out.
    reader = TableReader(tables, features_column)
    if out is None:
        ranker = SavedRanker(model, top, precision, method, kind)
        tagger = ranker.tagger
        table = RankingInput(features, reader.feature_options)
        item_tags = None
        if tags is not None:
            reader = reader._replace(normalize=tagger.normalize_labels_)
            corpus = reader.corpus(tags)
            heads = list(table.names())
            item_tags = tags_of_items(corpus, heads, tags, features, reader)
        with open_engine(engine, address, workers, say) as ray_engine:
            rankings = rank_table(table, ranker, item_tags, ray_engine, workers)
            headed_rankings = zip(table.names(), rankings, strict=True)
            records: Iterable[dict[str, Any]] = (
                head | ranking for head, ranking in headed_rankings
            )
            if for_people(form):
                records = map(readable_record, records)
            emit(records, form)
        return

    if tags is not None or form != Form.auto:
        raise typer.BadParameter("--tags and --form do not go with --out; see --out-form.")
    if is_extraction(features):
        refuse(
            "`--out` is for .npy and .parquet shards; leave it out to rank what `polyseme extract` "
            "wrote."
        )
    _, ignored_files = find_shards(features, reader.feature_options)
    if ignored_files:
        listed = first_few(ignored_files)
        say(f"files that are not shards are ignored ({len(ignored_files)}): {listed}")
    with (
        resumable(),
        open_engine(engine, address, workers, say) as ray_engine,
        FileProgress("ranking") as progress,
    ):
        summary = rank_shards(
            model,
            features,
            out,
            k=top,
            precision=precision,
            method=method,
            kind=kind,
            tags_column=tables.tags_column,
            features_column=features_column,
            form=out_form,
            engine=ray_engine,
            workers=workers,
            progress=progress.tell,
        )
    n_shards = counted(summary.n_shards, "shard")
    former_rows = ""
    if summary.n_before:
        former_rows = f" ({summary.n_before:,} of them before)"
    say(f"{summary.n_rows:,} rows of {n_shards} ranked{former_rows}")
    typer.echo(str(out))


@command(LEARNING)
def add(
    model: Path,
    items: list[str] | None = None,
    documents: Path | None = None,
    label: list[str] | None = None,
    vectors: Path | None = None,
    features: Path | None = None,
    out: Path | None = None,
    features_column: str | None = None,
    *,
    tables: TableOptions,
) -> None:
    """Add tag sets to a model, or tags by name or by items. Nothing is trained."""
    from polyseme.base.validation import first_few
    from polyseme.cli.inputs import TableReader, items_to_learn
    from polyseme.feedback.verdict_log import Verdict
    from polyseme.storage.model_file import check_destination

    # Check that the options go together.
    labels = label or []
    given_items = items or []
    destination = out or model
    if given_items and not labels:
        refuse("Name the tag that these items carry with --label.")
    if documents is None and not labels:
        refuse("Give tag sets with --documents, or tags with --label and --vectors or items.")
    has_source = bool(vectors is not None or given_items)
    if bool(labels) != has_source:
        refuse("`--label` and `--vectors` belong together: a name needs word vectors, or items.")
    tagger: Any
    if given_items:
        tagger = load_default_tagger(model, "add ITEMS")
    else:
        tagger = polyseme.load(model)
    check_destination(destination)
    if given_items:
        reader = TableReader(tables, features_column)
        item_names, X = items_to_learn(given_items, tagger, features, reader)

    # Add tag sets and names, and save; then learn from the items.
    former_labels = frozenset(tagger.classes_)
    additions = []
    if documents is not None:
        reader = TableReader(tables, normalize=tagger.normalize_labels_)
        corpus = reader.corpus(documents)
        document_ids = tagger.add_documents(corpus)
        additions.append(counted(len(document_ids), "document"))
    if vectors is not None:
        n_named = _add_names(tagger, labels, vectors)
        additions.append(f"{counted(n_named, 'label')} by name")
    tagger.save(destination)
    if given_items:
        # The verdicts belong into the log of the model that was just written.
        tagger = load_default_tagger(destination, "add ITEMS")
        verdicts: list[Verdict] = []
        for label_name in labels:
            verdicts.extend(Verdict(item, label_name, True) for item in item_names)
        tagger.learn(verdicts, X)
        additions.append(summarize_verdicts(verdicts))
    new_labels = [name for name in tagger.classes_ if name not in former_labels]
    listed = first_few(new_labels) if new_labels else "none"
    say(f"added {' and '.join(additions)}; new labels: {listed}")
    typer.echo(str(destination))


def _add_names(tagger: Any, labels: Sequence[str], vectors: Path) -> int:
    """Add labels by the word vectors in a file; return how many are new, and print the others."""
    from polyseme.base.validation import first_few
    from polyseme.documents.corpus import normalize_label

    used_labels = [*tagger.classes_, *labels]
    word_vectors = polyseme.WordVectors.read(vectors, labels=used_labels)
    new_labels = tagger.add_labels(labels, word_vectors)
    new_keys = set(map(normalize_label, new_labels))
    known_labels = [label for label in labels if normalize_label(label) not in new_keys]
    if known_labels:
        say(f"known already, so nothing is added by name: {first_few(known_labels)}")
    return len(new_labels)


@command(LEARNING)
def complete(model: Path, tags: list[str], top: int = 10, form: Form = Form.auto) -> None:
    """Suggest tags that go with the given ones."""
    tagger = polyseme.load(model)
    kinds = tagger.kinds_.tolist()
    kind_by_label = dict(zip(tagger.classes_, kinds, strict=True))
    labels, scores = tagger.complete(tags, k=top)
    records = []
    for label, score in zip(labels.tolist(), scores.tolist(), strict=True):
        record: dict[str, Any] = {"label": label, "kind": kind_by_label[label]}
        record["score"] = round(score, 6)
        records.append(record)
    listed_tags = ", ".join(tags)
    emit(records, form, title=f"goes with {listed_tags}")


@command(LEARNING)
def explain(
    model: Path,
    features: Path,
    label: str,
    row: str = "0",
    tag: list[str] | None = None,
    top: int = 5,
    tags_column: str | None = None,
    features_column: str | None = None,
    form: Form = Form.auto,
) -> None:
    """Show where a tag's score comes from, in parts that add up to its logit."""
    from polyseme.cli.inputs import TableReader, read_item

    tagger = polyseme.load(model)
    x: Any = None  # one item, as `explain` takes it; None for the tags alone
    head: dict[str, Any] = {}  # what the item is called
    extractor = tagger.features_
    if extractor is not None and features.suffix.lower() in extractor.suffixes:
        x = features
        head = {"file": str(features)}
    elif str(features) != "-":
        reader = TableReader(TableOptions(tags_column), features_column)
        x, head = read_item(features, row, reader)
    if not isinstance(tagger, polyseme.PublishedTagger):
        evidence = tagger.explain(x, label, k=top, tags=tag or None)
        emit_evidence(head, evidence, form)
        return
    if tag or x is None:
        refuse("`--tag` needs the default tagger; the published method explains features alone.")
    records = []
    for concept in tagger.explain(x, label, k=top):
        records.append(
            {
                "label": concept.label,
                "distance": round(concept.distance, 6),
                "document": list(concept.document),
                "known_as": list(concept.document_ids[:3]),
                "times": len(concept.document_ids),
            }
        )
    emit(records, form)


@command(LEARNING)
def senses(model: Path, tag: str, form: Form = Form.auto) -> None:
    """Show the senses in which a tag is used, judged by the known tag sets that hold it."""
    from polyseme.scoring.senses import label_senses

    tagger = load_default_tagger(model, "senses")
    sense_map = label_senses(tagger.store_, tag, normalize=tagger.normalize_labels_)
    if sense_map is None:
        say(f"the tag sets that hold '{tag}' form no separate groups: it has one sense here")
        return
    n_documents = len(sense_map.senses)
    records = []
    for number, words in enumerate(sense_map.words):
        n_in_sense = int((sense_map.senses == number).sum())
        record: dict[str, Any] = {"sense": number + 1, "tag_sets": n_in_sense}
        record["share"] = round(n_in_sense / n_documents, 3)
        record["set_apart_by"] = list(words)
        records.append(record)
    emit(records, form, title=f"senses of {sense_map.label}")
