"""The commands: what each takes, calls and prints; everything heavy is imported inside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

import polyseme
from polyseme._text import in_words
from polyseme.cli.app import (
    FILES,
    LEARNING,
    VOCABULARY,
    Kind,
    Preset,
    TableOptions,
    command,
    refuse,
    resumable,
)
from polyseme.cli.output import Form, counted, emit, emit_evidence, for_people, say, told

if TYPE_CHECKING:
    from polyseme.features import MediaFeatures
    from polyseme.features.extraction import Summary
    from polyseme.published.tagger import PublishedTagger
    from polyseme.tagger import Tagger, ZeroShotTagger
    from polyseme.verdicts import VerdictLog

Engine = Literal["local", "ray"]
LabelKind = Literal["seen", "unseen", "oov"]
_MOST_DIGITS = 18  # of a whole number
_NAMED = 20  # reasons for skipped files that are told


@command(LEARNING)
def fit(
    model: Path,
    documents: Path | None = None,
    features: Path | None = None,
    label_sets: Path | None = None,
    preset: Preset = Preset.default,
    mapper: Literal["nu-svr", "kernel-ridge"] | None = None,
    relatedness: Literal["nearest", "density"] | None = None,
    components: int | None = None,
    topics: str | None = None,
    words: int | None = None,
    epochs: int | None = None,
    device: str | None = None,
    seed: int = 0,
    split: str | None = None,
    features_column: str | None = None,
    *,
    tables: TableOptions,
    label_sets_only: bool = False,
    normalize: bool = True,
    label_vectors: Path | None = None,
    vocabulary: Path | None = None,
    validations: int = 2,
    unlabelled: Path | None = None,
    verdicts: Path | None = None,
    update: Path | None = None,
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Learn a tagger. Interrupted? The same command goes on where it stopped."""
    from polyseme.checkpoints import remove_checkpoint
    from polyseme.cli.reading import (
        Reading,
        check_rows,
        extractor_of,
        read_items,
        read_label_sets,
        read_pool,
        verdicts_for,
    )
    from polyseme.cluster import RayTraining
    from polyseme.persistence import MODEL, check_destination

    if engine == "local" and not (address is None and workers is None):
        raise typer.BadParameter("--address and --workers of `fit` need --engine ray.")
    check_destination(model)
    published: dict[str, Any] = {"mapper": mapper, "relatedness": relatedness, "epochs": epochs}
    published |= {"components": components, "topics": topics}
    if engine == "ray" and preset != Preset.default:
        refuse(
            "`--engine ray` trains the default tagger; the published one trains in this process."
        )
    of_default: dict[str, Any] = {"label-vectors": label_vectors, "vocabulary": vocabulary}
    of_default |= {"unlabelled": unlabelled, "verdicts": verdicts, "update": update}
    for name, value in of_default.items():
        if preset != Preset.default and value is not None:
            refuse(f"`--{name}` belongs to the default tagger; leave out --preset.")
    for name, value in published.items():
        if preset == Preset.default and value is not None:
            refuse(f"`--{name}` belongs to the published method; add --preset paper.")
    old = None if update is None else default_tagger(update, "fit --update")
    if old is not None:
        normalize = old.normalize_labels_
    reading = Reading(tables, features_column, normalize)
    items = read_items(features, documents, split, reading)
    sets = read_label_sets(label_sets, items, reading, only=label_sets_only)
    # The state of an interrupted run lies beside the model, never inside an older one.
    checkpoint = model.resolve().with_name(model.resolve().name + ".checkpoint")
    extractor = extractor_of(items.X, words)
    care: Any = vocabulary
    if old is not None:
        extractor = _extractor_to_update(old, items.X, extractor, words)
        care = old.vocabulary_ if vocabulary is None else vocabulary
        say(_carried_over(old, len(items.documents)))
    pool = None
    if unlabelled is not None:
        if items.X is None:
            refuse("`--unlabelled` stands beside items with tags; give theirs with --features.")
        pool = read_pool(unlabelled, items.X, extractor, reading)
    shared: dict[str, Any] = {"features": extractor, "device": device, "random_state": seed}
    trainer, tagger = None, None
    with resumable(), verdicts_for(model, verdicts, update) as log:
        if preset != Preset.default:
            tagger = _published_tagger(published, checkpoint, normalize, shared)
            tagger.fit(items.X, items.documents, sets, label_sets_only=label_sets_only)
        else:
            if engine == "ray":
                # Beside the model: where that is a folder of all machines, this is one as well.
                storage = checkpoint.with_suffix(".ray")
                trainer = RayTraining(workers or 2, address, storage, device or "cpu")
            shared |= {"vocabulary": care, "n_validations": validations}
            tagger = polyseme.ZeroShotTagger(
                checkpoint=checkpoint, normalize_labels=normalize, verbose=True, **shared
            )
            words_of_labels = None
            if label_vectors is not None:
                known = [*items.documents.labels, *(sets.labels if sets is not None else ())]
                words_of_labels = polyseme.WordVectors.read(label_vectors, labels=known)
            answers = log if log.count else None
            if answers is not None:
                # Numbers of rows are those of the pool, or else of the items, where these have no
                # names; they must be what was answered for.
                rows = pool if pool is not None else items.X
                for place in filter(None, (model, update, verdicts)):
                    if rows is not None and (place / MODEL).exists():
                        check_rows(default_tagger(place, "learn"), rows)
                say(f"learned from, too: {told(answers.standing())}")
            tagger.fit(
                items.X,
                items.documents,
                sets,
                words_of_labels,
                trainer,
                pool,
                answers,
                label_sets_only=label_sets_only,
                warm_start_from=old,
            )
        if trainer is not None:
            trainer.forget()
        tagger.save(model)
    remove_checkpoint(checkpoint)
    say(_summary(tagger))
    typer.echo(str(model))


def _extractor_to_update(
    old: ZeroShotTagger, X: Any, extractor: MediaFeatures | None, words: int | None
) -> MediaFeatures | None:
    """Return a model's extractor anew for items that are like its own; refuse others."""
    from polyseme._estimator import copy_of
    from polyseme._validation import in_order
    from polyseme.features import Extracted

    if (X is None) != (old.n_features_in_ == 0):
        has = "has no features" if X is not None else "has features"
        refuse(f"The model of --update {has}, and these items are not so; leave out --update.")
    if (extractor is None) != (old.features_ is None):
        made = "numbers" if old.features_ is None else f"{old.features_.kind} files"
        refuse(f"The model of --update was made of {made}, and these items are others.")
    if isinstance(X, Extracted) and old.features_ is not None:
        old.features_.raw(X)  # refuses what was extracted in another way
        return copy_of(old.features_) if words is None else extractor
    if X is not None:
        in_order(X, getattr(old, "feature_names_in_", None), owner="fit --update")
        if X.shape[1] != old.n_features_in_:
            refuse(
                f"These items have {X.shape[1]} features, and the model of --update was fitted "
                f"with {old.n_features_in_}; leave out --update, or mend the features."
            )
    return extractor


def _carried_over(old: ZeroShotTagger, n_items: int) -> str:
    """Return what a fit takes from an older model, and what it does not."""
    words = old.vocabulary_
    sentence = (
        f"a fit to all {n_items:,} items that are given, from the older model's members; carried "
        "over: "
        f"{counted(len(words.blocked), 'blocked label')}, "
        f"{counted(len(words.aliases), 'other name')}, "
        f"{counted(len(words.implies), 'implication')}, "
        f"{counted(len(old.verdicts_.standing()), 'answer')}"
    )
    later = len(old.store_.ids) - old.n_fitted_
    if later:
        sentence += (
            f"; not {counted(later, 'tag set')} that came by `add`: give them with --label-sets"
        )
    return sentence


def _published_tagger(
    options: dict[str, Any], checkpoint: Path, normalize: bool, shared: dict[str, Any]
) -> PublishedTagger:
    """Make the unfitted tagger of the published method."""
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.mapping import InstanceMapper

    topics = options["topics"]
    if topics not in (None, "hdp"):
        if not topics.isdecimal() or len(topics) > _MOST_DIGITS:
            refuse(f"`--topics` must be a whole number or 'hdp'; got '{in_words(topics, 60)}'.")
        topics = int(topics)
    embedding = ConceptEmbedding.from_preset(
        "paper", checkpoint=checkpoint, verbose=True, normalize_labels=normalize
    )
    tagger = polyseme.PublishedTagger.from_preset(
        "paper", embedding=embedding, verbose=True, **shared
    )
    # The preset's own is a nu-svr, with constants that belong to it.
    ridge = options["mapper"] == "kernel-ridge"
    parameters = {
        "embedding__n_components": options["components"],
        "embedding__context_descriptor__n_topics": topics,
        "embedding__training__max_epochs": options["epochs"],
        "relatedness": options["relatedness"],
        "mapper": InstanceMapper(kind="kernel-ridge") if ridge else None,
    }
    tagger.set_params(**{name: value for name, value in parameters.items() if value is not None})
    return tagger


def _summary(tagger: Tagger) -> str:
    """Return a sentence about a tagger that was just fitted."""
    counts = ", ".join(f"{count} {kind}" for kind, count in _kinds(tagger).items())
    summary = f"{len(tagger.classes_)} labels ({counts}) from {len(tagger.store_.ids)} documents"
    if isinstance(tagger, polyseme.PublishedTagger):
        return summary
    space = tagger.space_
    summary += (
        f" ({len(tagger.store_.points)} different tag sets); {len(space.members_)} "
        f"members of {space.plan_.code} dimensions, {space.plan_.n_steps} steps each"
    )
    if tagger.name_share_:
        summary += f"; names of labels have a share of {tagger.name_share_:g} in unseen ones"
    if tagger.pooled_ and (tagger.validation_ is None or tagger.validation_.pool_gain is None):
        summary += "; items without tags are learned from, and what they bring was not measured"
    if tagger.validation_ is None:
        return summary
    return f"{summary}\nmeasured on held-out items, by smaller spaces:\n{tagger.validation_}"


def _kinds(tagger: Tagger) -> dict[str, int]:
    """Count the labels of each kind that there is."""
    counts = {kind: int((tagger.kinds_ == kind).sum()) for kind in ("seen", "unseen", "oov")}
    return {kind: count for kind, count in counts.items() if count}


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
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Rank tags for items."""
    from polyseme._progress import FileProgress
    from polyseme._validation import first_few
    from polyseme.cli.reading import Reading, tags_of_items
    from polyseme.cluster import open_engine, rank_shards
    from polyseme.cluster.ranking import Suggestions, Table, rank_table
    from polyseme.features.extraction import is_extraction
    from polyseme.io.shards import find_shards

    reading = Reading(tables, features_column)
    if out is None:
        suggestions = Suggestions(model, top, precision, method, kind)
        tagger, table, known = suggestions.tagger, Table(features, reading.wanted), None
        if tags is not None:
            reading = reading._replace(normalize=tagger.normalize_labels_)
            items = list(table.names())
            known = tags_of_items(reading.corpus(tags), items, tags, features, reading)
        with open_engine(engine, address, workers, say) as where:
            ranked = rank_table(table, suggestions, known, where, workers)
            named = (item | record for item, record in zip(table.names(), ranked, strict=True))
            emit((_readable(record) for record in named) if for_people(form) else named, form)
        return
    if tags is not None or form != Form.auto:
        raise typer.BadParameter("--tags and --form do not go with --out; see --out-form.")
    if is_extraction(features):
        refuse(
            "`--out` is for .npy and .parquet shards; what `polyseme extract` wrote is ranked "
            "without it."
        )
    _, others = find_shards(features, reading.wanted)
    if others:
        say(f"files that are no shards are passed over ({len(others)}): {first_few(others)}")
    options: dict[str, Any] = {"k": top, "precision": precision, "method": method, "kind": kind}
    options |= {"tags_column": tables.tags_column, "features_column": features_column}
    with (
        resumable(),
        open_engine(engine, address, workers, say) as where,
        FileProgress("ranking") as bar,
    ):
        options |= {"form": out_form, "workers": workers, "progress": bar.tell}
        done = rank_shards(model, features, out, engine=where, **options)
    before = f" ({done.n_before:,} of them before)" if done.n_before else ""
    say(f"{done.n_rows:,} rows of {counted(done.n_shards, 'shard')} ranked{before}")
    typer.echo(str(out))


def _readable(ranked: dict[str, Any]) -> dict[str, Any]:
    """Put each tag beside its score, for people."""
    labels = ranked["added"] if "added" in ranked else ranked["labels"]
    kinds = ranked.get("kinds", ["seen"] * len(labels))
    tags = (
        f"{label} {score:.3g}" + ("" if kind == "seen" else f" ({kind})")
        for label, kind, score in zip(labels, kinds, ranked["scores"], strict=True)
    )
    name = next(name for name in ("file", "id", "row") if name in ranked)
    added = "added" if "added" in ranked else "tags"
    return {name: ranked[name], added: ", ".join(tags)}


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
    """Let a model know more tag sets, or tags by name or by items. Nothing is trained."""
    from polyseme._validation import first_few
    from polyseme.cli.reading import Reading, items_to_learn
    from polyseme.corpus import normalize_label
    from polyseme.persistence import check_destination
    from polyseme.verdicts import Verdict

    labels = label or []
    item_names = items or []
    place = out or model
    if item_names and not labels:
        refuse("Say with --label which tag these items carry.")
    if documents is None and not labels:
        refuse("Give tag sets with --documents, or tags with --label and --vectors or items.")
    if bool(labels) != bool(vectors is not None or item_names):
        refuse("`--label` and `--vectors` belong together: a name needs word vectors, or items.")
    tagger: Any = default_tagger(model, "add ITEMS") if item_names else polyseme.load(model)
    check_destination(place)
    if item_names:
        reading = Reading(tables, features_column)
        names, X = items_to_learn(item_names, tagger, features, reading)
    labels_before = frozenset(tagger.classes_)
    added = []
    if documents is not None:
        corpus = Reading(tables, normalize=tagger.normalize_labels_).corpus(documents)
        added.append(counted(len(tagger.add_documents(corpus)), "document"))
    if vectors is not None:
        words = polyseme.WordVectors.read(vectors, labels=[*tagger.classes_, *labels])
        named_labels = tagger.add_labels(labels, words)
        named_keys = set(map(normalize_label, named_labels))
        present = [name for name in labels if normalize_label(name) not in named_keys]
        if present:
            say(f"known already, so nothing is added by name: {first_few(present)}")
        added.append(counted(len(named_labels), "label") + " by name")
    tagger.save(place)
    if item_names:
        # The log of the model that was written: to teach is to say yes, as `learn` does.
        tagger = default_tagger(place, "add ITEMS")
        verdicts: list[Verdict] = []
        for label_name in labels:
            verdicts.extend(Verdict(item, label_name, True) for item in names)
        tagger.learn(verdicts, X)
        added.append(told(verdicts))
    new_labels = [name for name in tagger.classes_ if name not in labels_before]
    listed = first_few(new_labels) if new_labels else "none"
    say(f"added {' and '.join(added)}; new labels: {listed}")
    typer.echo(str(place))


@command(LEARNING)
def complete(model: Path, tags: list[str], top: int = 10, form: Form = Form.auto) -> None:
    """Suggest tags that go with the given ones."""
    tagger = polyseme.load(model)
    kinds = dict(zip(tagger.classes_, tagger.kinds_.tolist(), strict=True))
    labels, scores = tagger.complete(tags, k=top)
    records = (
        {"label": label, "kind": kinds[label], "score": round(score, 6)}
        for label, score in zip(labels.tolist(), scores.tolist(), strict=True)
    )
    emit(records, form, title=f"goes with {', '.join(tags)}")


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
    from polyseme.cli.reading import Reading, read_item

    reading = Reading(TableOptions(tags_column), features_column)
    tagger = polyseme.load(model)
    x: Any = None
    item: dict[str, Any] = {}
    if tagger.features_ is not None and features.suffix.lower() in tagger.features_.suffixes:
        x, item = features, {"file": str(features)}
    elif str(features) != "-":
        x, item = read_item(features, row, reading)
    if not isinstance(tagger, polyseme.PublishedTagger):
        emit_evidence(item, tagger.explain(x, label, k=top, tags=tag or None), form)
        return
    if tag or x is None:
        refuse("`--tag` needs the default tagger; the published method explains features alone.")
    records = (
        {
            "label": concept.label,
            "distance": round(concept.distance, 6),
            "document": list(concept.document),
            "known_as": list(concept.document_ids[:3]),
            "times": len(concept.document_ids),
        }
        for concept in tagger.explain(x, label, k=top)
    )
    emit(records, form)


@command(LEARNING)
def senses(model: Path, tag: str, form: Form = Form.auto) -> None:
    """Show the senses in which a tag is used, by the known tag sets that hold it."""
    from polyseme.senses import label_senses

    tagger = default_tagger(model, "senses")
    split = label_senses(tagger.store_, tag, normalize=tagger.normalize_labels_)
    if split is None:
        say(f"the tag sets that hold '{tag}' do not fall apart: it has one sense here")
        return
    sizes = [int((split.senses == sense).sum()) for sense in range(len(split.words))]
    records = (
        {"sense": sense + 1, "tag_sets": size, "share": round(size / sum(sizes), 3)}
        | {"set_apart_by": list(split.words[sense])}
        for sense, size in enumerate(sizes)
    )
    emit(records, form, title=f"senses of {split.label}")


@command(LEARNING)
def evaluate(
    model: Path,
    features: Path,
    documents: Path | None = None,
    split: str | None = None,
    features_column: str | None = None,
    *,
    tables: TableOptions,
    form: Form = Form.auto,
) -> None:
    """Measure rankings against true tags, over all tags and by kind."""
    from polyseme.cli.reading import Reading, read_items
    from polyseme.metrics import evaluate_kinds, true_labels

    tagger = polyseme.load(model)
    # Labels are compared as the model does, whatever the command says elsewhere.
    reading = Reading(tables, features_column, tagger.normalize_labels_)
    items = read_items(features, documents, split, reading)
    truth = true_labels(tagger, items.X, items.documents)
    if not truth.any():
        refuse(f"No item in '{documents or features}' carries a label that the model knows.")
    is_default = isinstance(tagger, polyseme.ZeroShotTagger)
    scores = tagger.predict_proba(items.X) if is_default else tagger.decision_function(items.X)
    records = evaluate_kinds(truth, scores, tagger.kinds_, are_probabilities=is_default)
    if for_people(form):
        # Many measures of few kinds: a row for each measure.
        records = [
            {"measure": name} | {record["labels"]: record[name] for record in records}
            for name in records[0]
            if name != "labels"
        ]
    emit(records, form)


@command(LEARNING)
def validate(
    documents: Path | None = None,
    features: Path | None = None,
    label_sets: Path | None = None,
    draws: int = 3,
    page: Path | None = None,
    device: str | None = None,
    seed: int = 0,
    words: int | None = None,
    split: str | None = None,
    features_column: str | None = None,
    unlabelled: Path | None = None,
    *,
    tables: TableOptions,
    label_sets_only: bool = False,
    normalize: bool = True,
    form: Form = Form.auto,
) -> None:
    """Hide some of your tags and say how such tags would fare in your collection."""
    from polyseme._progress import working
    from polyseme._validation import check_device, check_features, column_names, in_order
    from polyseme.cli.reading import (
        Reading,
        extractor_of,
        read_items,
        read_label_sets,
        read_pool,
    )
    from polyseme.cli.validation_page import validation_page
    from polyseme.extractors import fitted_copy
    from polyseme.holdout import validate as validate_collection
    from polyseme.io.folders import check_file, replacing

    check_device(device, owner="validate")
    if page is not None:
        page_file = check_file(page)
    reading = Reading(tables, features_column, normalize)
    items = read_items(features, documents, split, reading)
    if items.X is None:
        refuse("`validate` measures items; give their features with --features.")
    sets = read_label_sets(label_sets, items, reading, only=label_sets_only)
    X, extractor = items.X, extractor_of(items.X, words)
    pool = None if unlabelled is None else read_pool(unlabelled, X, extractor, reading)
    if extractor is None:
        pool = None if pool is None else in_order(pool, column_names(X), owner="validate")
        X = X.to_numpy()
    else:
        fitted, X = fitted_copy(extractor, X, seed)
        pool = None if pool is None else fitted.transform(pool)
    if pool is not None:
        pool = check_features(pool, owner="validate", n_features=X.shape[1])
    tagger = polyseme.ZeroShotTagger(device=device, n_validations=0, random_state=seed)
    with working(f"fitting to what is left, {draws} times", shown=True):
        found = validate_collection(
            tagger,
            X,
            items.documents,
            sets or items.documents,
            draws,
            seed,
            n_examples=6,
            pool=pool,
            label_sets_only=label_sets_only,
        )
    if not found:
        place = " that the label sets hold" if label_sets_only else ""
        refuse(
            f"There are too few items or tags to hold any out: it takes 40 items and 8 tags{place}."
        )
    measured = found[0]
    if pool is not None:
        measured = replace(measured, pool_gain=found[-1].gain_over(measured))
    emit(
        ({"labels": kind} | asdict(getattr(measured, kind)) for kind in ("seen", "unseen")),
        form,
    )
    say("\n".join(str(measured).splitlines()[2:]))
    if page is not None:
        with replacing(page_file) as stream:
            stream.write(validation_page(measured, f"Tags of {documents or features}").encode())
        typer.echo(str(page))


@command(LEARNING)
def info(
    path: Path,
    *,
    tables: TableOptions,
    form: Form = Form.auto,
) -> None:
    """Show what a model or a table of documents holds."""
    from polyseme.cli.reading import is_table

    if path.is_dir() and not is_table(path):
        facts = _describe_model(path)
    else:
        facts = _describe_documents(path, tables)
    if for_people(form):
        emit(({"what": key, "value": value} for key, value in facts.items()), form)
    else:
        emit([facts], form)


def _describe_documents(path: Path, tables: TableOptions) -> dict[str, Any]:
    """Return the facts about a table of documents."""
    import numpy as np

    corpus = polyseme.LabelCorpus.read(path, **asdict(tables))
    lengths, counts = corpus.lengths, corpus.counts
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
    """Return the facts about a saved tagger."""
    tagger = polyseme.load(path)
    facts: dict[str, Any] = {"labels": len(tagger.classes_), **_kinds(tagger)}
    n_features, store = tagger.n_features_in_, tagger.store_
    if isinstance(tagger, polyseme.ZeroShotTagger):
        space = tagger.space_
        last = space.history_[-1] if space.history_ else {}
        facts |= {
            "method": "one concept space",
            "fitted or changed": _saved(path),
            "data": space.data_digest_[:16],
            "known documents": len(store.ids),
            "different tag sets": len(store.points),
            "labels by name": 0 if tagger.named_ is None else len(tagger.named_.labels),
            "members": len(space.members_),
            "dimensions": space.n_dimensions,
            "training steps": space.plan_.n_steps,
            "final loss of documents": last.get("documents"),
            "final loss of items": last.get("items") if n_features else None,
        }
        if tagger.validation_ is not None:
            for kind in ("seen", "unseen"):
                part = getattr(tagger.validation_, kind)
                facts |= {
                    f"held-out E-MAP, {kind}": part.example_map,
                    f"held-out C-MAP, {kind}": part.concept_map,
                    f"held-out precision at 0.5, {kind}": part.precision,
                    f"held-out recall at 0.5, {kind}": part.recall,
                }
            facts["highest precision of unseen"] = tagger.validation_.highest_precision
            facts["foretold gain by untagged items"] = tagger.validation_.pool_gain
            facts["foretold gain by 10 answers a label"] = tagger.validation_.click_gain
        facts |= {"learned from untagged items": tagger.pooled_, **_describe_log(tagger.verdicts_)}
        facts["blocked"] = list(tagger.vocabulary_.blocked)
    else:
        embedding = tagger.embedding_
        facts |= {
            "method": "as published",
            "known documents": len(store.ids),
            "known concepts": len(store.points),
            "dimensions": embedding.n_components,
            "topics": embedding.context_descriptor_.n_topics_,
            "E-MAP of tag sets read back": embedding.best_score_,
            "epochs": len(embedding.history_),
            "mapper": "none (tags only)" if tagger.mapper_ is None else tagger.mapper_.kind,
            "relatedness": tagger.relatedness,
        }
    extractor = "none (numbers)" if tagger.features_ is None else str(tagger.features_)
    return facts | {
        "features": n_features,
        "feature extractor": extractor if n_features else "none (tags only)",
        "documents left out": len(tagger.dropped_),
    }


def _describe_log(log: VerdictLog) -> dict[str, Any]:
    """Count the answers that a model has been given."""
    from polyseme.verdicts import Undo

    stands = log.standing()
    counts = Counter(verdict.label for verdict in stands)
    return {
        "answers": len(stands),
        "answers undone": sum(isinstance(event, Undo) for event in log.events()),
        "answers are about": [f"{label} ({count})" for label, count in counts.most_common(10)],
    }


def _saved(path: Path) -> str:
    """Return when a model was saved, by its file."""
    from polyseme.persistence import MODEL

    seconds = (path / MODEL).stat().st_mtime
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


# ---------------------------------------------------------------------- vocabulary


@command(VOCABULARY)
def labels(
    model: Path,
    kind: LabelKind | None = None,
    merges: bool = False,
    top: int = 20,
    form: Form = Form.auto,
) -> None:
    """List a model's tags, with what is known of each, or suggest which to merge."""
    tagger = default_tagger(model, "labels")
    if merges:
        from polyseme.vocabulary import similar_labels

        pairs = similar_labels(tagger.store_.matrix, tagger.store_.labels, top)
        names = ("label", "into", "alike")
        emit((dict(zip(names, (a, b, round(c, 3)), strict=True)) for a, b, c in pairs), form)
        return
    counts = dict(zip(tagger.store_.labels, tagger.store_.counts.tolist(), strict=True))
    quality = {} if tagger.validation_ is None else tagger.validation_.labels
    blocked = set(tagger.vocabulary_.blocked)
    emit(
        (
            {
                "label": label,
                "kind": own,
                "documents": counts.get(label, 0),
                "c_map": quality.get(label, (None, None))[0],
                "c_map_unseen": quality.get(label, (None, None))[1],
                "blocked": label in blocked,
            }
            for label, own in zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True)
            if kind in (None, own)
        ),
        form,
    )


@command(VOCABULARY)
def block(model: Path, labels: list[str], undo: bool = False, out: Path | None = None) -> None:
    """Never suggest some tags."""
    _change(model, out, "block", lambda tagger: tagger.block(labels, undo=undo))


@command(VOCABULARY)
def rename(model: Path, label: str, name: str, out: Path | None = None) -> None:
    """Rename a tag."""
    _change(model, out, "rename", lambda tagger: tagger.rename(label, name))


@command(VOCABULARY)
def merge(model: Path, label: str, into: str, out: Path | None = None) -> None:
    """Make two tags one."""
    _change(model, out, "merge", lambda tagger: tagger.merge(label, into))


@command(VOCABULARY)
def remove(model: Path, labels: list[str], out: Path | None = None) -> None:
    """Forget tags for good."""
    _change(model, out, "remove", lambda tagger: tagger.remove_labels(labels))


def default_tagger(model: Path, name: str) -> ZeroShotTagger:
    """Load a model that must be a default tagger."""
    tagger = polyseme.load(model)
    if not isinstance(tagger, polyseme.ZeroShotTagger):
        refuse(f"`{name}` needs the default tagger.")
    return tagger


def _change(
    model: Path, out: Path | None, name: str, change: Callable[[ZeroShotTagger], object]
) -> None:
    """Change a model and write it, to its own folder or to another one."""
    from polyseme.persistence import check_destination

    tagger = default_tagger(model, name)
    check_destination(out or model)
    change(tagger)
    tagger.save(out or model)
    typer.echo(str(out or model))


# ---------------------------------------------------------------------- media files


@command(FILES)
def extract(
    kind: Kind,
    folder: Path,
    out: Path,
    depth: Literal["pre-logit", "pooled", "convolution", "logits"] = "pre-logit",
    size: int | None = None,
    framing: Literal["stretch", "crop", "pad"] = "stretch",
    max_seconds: float = 600.0,
    network: str | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> None:
    """Turn a folder of media into numbers. Interrupted? The same command goes on."""
    from polyseme._validation import first_few
    from polyseme.cluster import open_engine
    from polyseme.features import extractor_class

    parameters: dict[str, Any] = {"depth": depth, "size": size, "framing": framing}
    if kind == "audio":
        parameters = {"max_seconds": max_seconds}
        if weights is not None:
            refuse("`--weights` is for networks that look at pictures.")
    given = {"network": network, "weights": weights}
    parameters |= {name: value for name, value in given.items() if value is not None}
    extractor = extractor_class(kind)(n_jobs=workers, device=device, **parameters)
    if trained := extractor.trained_tags():
        say(
            f"{network} was trained on {len(trained)} tags ({first_few(trained, most=3)}): such a "
            "tag is not new to it, also where no item here carries it; extraction.json has them all"
        )
    with resumable(), open_engine(engine, address, workers, say) as where:
        summary = look_at(folder, out, extractor, where)
    typer.echo(str(out))
    if strict and (summary.skipped or summary.unread):
        raise typer.Exit(1)


def look_at(folder: Path, out: Path, extractor: MediaFeatures, engine: Any = None) -> Summary:
    """Turn a folder of media into numbers, and say what became of its files and keywords."""
    from polyseme._progress import FileProgress
    from polyseme.features import extract_folder
    from polyseme.features.base import quiet_decoders
    from polyseme.features.extraction import by_reason

    with quiet_decoders(), FileProgress(f"extracting {extractor.kind}") as bar:
        summary = extract_folder(folder, out, extractor, progress=bar.tell, engine=engine)
    _say_skipped(summary.skipped)
    for names, reason in by_reason(summary.unread)[:_NAMED]:
        say(f"keywords of {names} cannot be read: {reason}")
    say(summary.sentence())
    if same := summary.sameness():
        say(same)
    say(summary.keywords())
    return summary


def _say_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Name the files that could not be used, each reason once."""
    from polyseme.features.extraction import by_reason

    reasons = by_reason(skipped)
    for names, reason in reasons[:_NAMED]:
        say(f"skipped {names}: {reason}")
    if len(reasons) > _NAMED:
        say(f"… and for {len(reasons) - _NAMED:,} more reasons; files.jsonl of `extract` has all")


@command(FILES)
def tag(
    model: Path,
    paths: list[Path],
    top: int | None = None,
    precision: float | None = None,
    kind: LabelKind | None = None,
    features: Path | None = None,
    form: Form = Form.auto,
    sidecars: bool = False,
    dry_run: bool = False,
    undo: bool = False,
    device: str = "cpu",
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> None:
    """Tag media files. They are only read; with --sidecars, tags go into files beside them."""
    if undo:
        undone = _undone(paths, dry_run)
        if for_people(form):  # a sidecar is called like its file
            undone = [{name: one[name] for name in ("file", "removed")} for one in undone]
        emit(undone, form)
        return
    from polyseme.cluster import Tagging, open_engine

    options: dict[str, Any] = {"precision": precision, "kind": kind, "n_jobs": workers}
    options |= {"extraction": features, "device": device}
    with open_engine(engine, address, workers, say) as where:
        tagging = Tagging(model, paths, top, engine=where, **options)
        if top is None and precision is None and tagging.suggestions.precision is not None:
            wanted = tagging.suggestions.precision
            say(f"tags for a precision of {wanted:g}; --precision asks for another, --top for more")
            if tagging.suggestions.leaves_out:
                say(
                    "tags that no training item carries are left out: of them it cannot be "
                    "promised; --top 10 gives the ten best of all tags, --kind unseen these alone"
                )
        records: Iterable[dict[str, Any]] = tagging.records()
        if sidecars or dry_run:
            # All are written before any is told of: a reader that goes away must not stop it.
            records = list(tagging.sidecars(dry_run=dry_run))
        emit(map(_readable, records) if for_people(form) else records, form)
    if dry_run:
        say("nothing was written; --sidecars in place of --dry-run writes these tags")
    _say_skipped(tagging.skipped)
    if tagging.n_unwritten:
        refuse(
            f"{counted(tagging.n_unwritten, 'sidecar')} could not be written; run again when the "
            "reason is mended: what has been added is not added again."
        )
    if tagging.skipped and (strict or len(tagging.skipped) >= len(tagging.files)):
        raise typer.Exit(1)


def _undone(paths: Sequence[Path], dry_run: bool) -> list[dict[str, Any]]:
    """Take suggestions that wait for an answer out of sidecars; tell which."""
    from polyseme.io.xmp import undo_suggestions

    found = _sidecars(paths)
    records = [
        {"file": file, "sidecar": str(sidecar), "removed": removed}
        for file, sidecar in found
        if (removed := undo_suggestions(sidecar, dry_run=dry_run))
    ]
    n_tags = sum(len(record["removed"]) for record in records)
    would = "would be " if dry_run else ""
    say(f"{counted(n_tags, 'suggestion')} {would}taken back from {counted(len(records), 'file')}")
    return records


def _sidecars(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Find the sidecars of media files and folders, each once, with the file's name."""
    from polyseme.features import EXTRACTORS
    from polyseme.features.extraction import find_media
    from polyseme.io.xmp import sidecars_of

    suffixes = frozenset().union(*(extractor.suffixes for extractor in EXTRACTORS.values()))
    files = find_media(paths, suffixes)[0]
    found = {sidecar: str(file.path) for file in files for sidecar in sidecars_of(file.path)}
    return [(file, sidecar) for sidecar, file in found.items()]


@command(FILES)
def review(
    paths: list[Path],
    accept: list[str] | None = None,
    refuse: list[str] | None = None,
    model: Path | None = None,
    features: Path | None = None,
    form: Form = Form.auto,
) -> None:
    """Answer the tags that `tag --sidecars` suggested; without an answer, list them."""
    from polyseme._validation import InputError
    from polyseme.cli.reading import Reading, items_to_learn
    from polyseme.io.xmp import answer_suggestions, lacking, read_sidecar
    from polyseme.verdicts import Verdict

    tagger = None if model is None else default_tagger(model, "review --model")
    if tagger is not None and tagger.features_ is None:
        raise InputError("This model takes numbers; `review --model` needs one that takes files.")
    waiting = [(file, place, read_sidecar(place).pending) for file, place in _sidecars(paths)]
    if not (accept or refuse):
        pending = [{"file": file, "suggested": tags} for file, _, tags in waiting if tags]
        emit(pending, form)
        if not pending:
            say("no suggestion waits for an answer; `polyseme tag --sidecars` makes some")
        return
    yes = accept or []
    no = refuse or []
    records = []
    # What is to be learned from is looked at before anything is changed.
    names: dict[str, str] = {}
    X: Any = None
    if tagger is not None:
        answers = [*yes, *no]
        answered = [
            file
            for file, _, tags in waiting
            if tags and ("*" in answers or len(lacking(answers, tags)) < len(tags))
        ]
        if answered:
            item_names, X = items_to_learn(answered, tagger, features, Reading())
            names = dict(zip(answered, item_names, strict=True))
    for file, place, tags in waiting:
        # A star stands for all tags that the other answer does not name.
        wanted = lacking(no, tags) if "*" in yes else yes
        unwanted = lacking(yes, tags) if "*" in no else no
        accepted, refused = answer_suggestions(place, accept=wanted, refuse=unwanted)
        if accepted or refused:
            records.append({"file": file, "accepted": accepted, "refused": refused})
    if not records:
        raise InputError(
            "None of these tags waits for an answer there; `polyseme review` without --accept and "
            "--refuse lists those that do."
        )
    emit(records, form)
    if tagger is not None:
        verdicts: list[Verdict] = []
        for record in records:
            name = names[str(record["file"])]
            verdicts.extend(Verdict(name, label, True) for label in record["accepted"])
            verdicts.extend(Verdict(name, label, False) for label in record["refused"])
        tagger.learn(verdicts, X)
        say(f"the model has learned from {told(verdicts)}")
    if any(record["accepted"] for record in records):
        say("accepted tags are yours now: `polyseme extract` again, and the next `fit` learns them")
