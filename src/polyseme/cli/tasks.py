"""What `fit`, `rank`, `add`, `evaluate` and `info` do with files, apart from printing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, PolysemeWarning, first_few
from polyseme.corpus import LabelCorpus
from polyseme.features import MediaFeatures, match_documents, read_extraction
from polyseme.features.extraction import is_extraction
from polyseme.io import read_features
from polyseme.persistence import check_destination, remove_model

if TYPE_CHECKING:
    from polyseme.cluster.engine import RayEngine
    from polyseme.published.tagger import PublishedTagger
    from polyseme.tagger import Tagger, ZeroShotTagger


def fit_files(
    model: Path,
    documents: Path | None,
    features: Path | None,
    semantics: Path | None,
    *,
    media: Mapping[str, Any],
    preset: str,
    published: Mapping[str, Any],
    device: str,
    seed: int,
    split: str | None,
    reading: Mapping[str, Any],
    cluster: tuple[str | None, int | None] | None = None,
) -> str:
    """Fit a tagger from files, save it, and give a sentence about it.

    Parameters
    ----------
    model : Path
        Where it is saved.
    documents, features, semantics : Path or None
    media : mapping
        Parameters of the feature extractor, by their names; None where nothing was said.
    preset : {"default", "paper"}
        The default tagger, or the published method.
    published : mapping
        What was said about the published method: mapper, score, components, topics, epochs.
    device : str
    seed : int
    split : str or None
    reading : mapping
        How tables are read, and whether spellings are taken as one (`normalize`).
    cluster : (str or None, int or None), optional
        Address and workers of a Ray cluster that trains; by default this process does.
    """
    check_destination(model)
    if cluster is not None and preset != "default":
        raise InputError(
            "`--engine ray` trains the default tagger; the published one trains in this process."
        )
    if preset == "default":
        for name in (name for name, value in published.items() if value is not None):
            raise InputError(f"`--{name}` belongs to the published method; add --preset paper.")
    learning = _learning(documents, features, split, media, reading)
    teaching = learning.everything
    if semantics is not None:
        teaching = LabelCorpus.read(semantics, **_fitting(semantics, reading))
    # The state of an interrupted run lies beside the model, never inside an older one.
    checkpoint = model.resolve().with_name(model.resolve().name + ".checkpoint")
    shared: dict[str, Any] = {
        "features": learning.extractor,
        "device": device,
        "verbose": True,
        "random_state": seed,
    }
    from polyseme.tagger import ZeroShotTagger

    tagger: Tagger
    if preset == "default":
        tagger = ZeroShotTagger(
            checkpoint=checkpoint, normalize_labels=reading["normalize"], **shared
        )
    else:
        tagger = _published_tagger(
            preset, published, checkpoint=checkpoint, normalize=reading["normalize"], **shared
        )
    if cluster is None or not isinstance(tagger, ZeroShotTagger):
        tagger.fit(learning.X, learning.documents, teaching)
    else:
        from polyseme.cluster import RayTraining

        # Beside the model: where that is a folder of all machines, this is one as well.
        storage = checkpoint.with_suffix(".ray")
        trainer = RayTraining(cluster[1] or 2, cluster[0], storage, device)
        tagger.fit(learning.X, learning.documents, teaching, trainer=trainer)
        trainer.forget()
    tagger.save(model)
    remove_model(checkpoint)
    return _summary(tagger)


def _published_tagger(
    preset: str,
    told: Mapping[str, Any],
    *,
    checkpoint: Path,
    normalize: bool,
    verbose: bool,
    **shared: Any,
) -> PublishedTagger:
    """Make the tagger of the published method, unfitted; see `fit_files` for what is told."""
    from polyseme.published.descriptors import ContextDescriptor
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.mapping import InstanceMapper
    from polyseme.published.tagger import PublishedTagger
    from polyseme.published.training import TrainingPlan

    embedding = ConceptEmbedding.from_preset(
        preset, checkpoint=checkpoint, verbose=verbose, normalize_labels=normalize
    )
    if told["components"] is not None:
        embedding.set_params(n_components=told["components"])
    if told["topics"] is not None:
        descriptor = ContextDescriptor(n_topics=_topics(told["topics"]))
        embedding.set_params(context_descriptor=descriptor)
    if told["epochs"] is not None:
        plan = TrainingPlan() if embedding.training is None else embedding.training
        embedding.set_params(training=plan.set_params(max_epochs=told["epochs"]))
    tagger = PublishedTagger.from_preset(preset, embedding=embedding, verbose=verbose, **shared)
    if told["score"] is not None:
        tagger.set_params(relatedness=told["score"])
    # The preset's own is a nu-svr, with constants that belong to it.
    if told["mapper"] not in (None, "nu-svr"):
        tagger.set_params(mapper=InstanceMapper(kind=told["mapper"]))
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


def evaluate_files(
    model: Path,
    features: Path,
    documents: Path,
    *,
    split: str | None,
    reading: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Score a saved tagger's rankings against true labels, a record per set of labels."""
    from polyseme.metrics import evaluate, expected_calibration_error
    from polyseme.tagger import ZeroShotTagger, load

    tagger = load(model)
    # Labels are compared as the model does, whatever the command says elsewhere.
    spelling = {"normalize": tagger.normalize_labels_}
    corpus, rows = _documents(documents, split, _fitting(documents, {**reading, **spelling}))
    table: Any
    if features.is_dir():
        from polyseme.cli.media import matched

        table, corpus, _ = matched(read_extraction(features), corpus)
    else:
        table = _features(features, rows)
    if table.shape[0] != len(corpus):
        raise InputError(
            f"'{features}' has {table.shape[0]} rows but '{documents}' has {len(corpus)} documents."
        )
    probabilistic = isinstance(tagger, ZeroShotTagger)
    score: Any = tagger.predict_proba if probabilistic else tagger.decision_function
    scores = score(table)
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
    groups = {"all": np.ones(len(tagger.classes_), dtype=bool)}
    groups |= {kind: tagger.kinds_ == kind for kind in ("seen", "unseen", "oov")}
    for name, columns in groups.items():
        carried = truth[:, columns].any(axis=1)
        if carried.any():
            found = evaluate(truth[:, columns], scores[:, columns])
            if probabilistic:
                error = expected_calibration_error(truth[:, columns], scores[:, columns])
                found["calibration_error"] = error
            yield {
                "labels": name,
                "n_labels": int(columns.sum()),
                "n_items": int(carried.sum()),
            } | found


def rank_files(
    model: Path,
    features: Path,
    k: int,
    *,
    tags: Path | None,
    precision: float | None,
    method: str,
    reading: Mapping[str, Any],
    engine: RayEngine | None = None,
    workers: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Rank tags for the items of a file, an extracted folder or shards, a record for each."""
    from polyseme.cluster.ranking import Suggestions, Table, rank_table
    from polyseme.tagger import load

    tagger = load(model)
    suggestions = Suggestions(tagger, k, precision, method)
    table = Table(features)
    given = None
    if tags is not None:
        spelling = {"normalize": tagger.normalize_labels_}
        corpus = LabelCorpus.read(tags, **_fitting(tags, {**reading, **spelling}))
        given = _tags_of_items(corpus, list(table.names()), f"'{tags}'", f"'{features}'")
    records = rank_table(table, model, suggestions, given, engine, workers)
    for item, record in zip(table.names(), records, strict=True):
        yield item | record


def rank_into(
    model: Path,
    features: Path,
    out: Path,
    *,
    k: int,
    precision: float | None,
    method: str,
    form: str,
    engine: RayEngine | None,
    workers: int | None,
) -> str:
    """Rank tags for the rows of shards into a folder; give a sentence about it."""
    from polyseme._progress import FileProgress
    from polyseme.cli.output import say
    from polyseme.cluster import rank_shards
    from polyseme.io.shards import find_shards

    if is_extraction(features):
        raise InputError(
            "`--out` is for .npy and .parquet shards; what `polyseme extract` wrote is ranked "
            "without it."
        )
    others = find_shards(features).others
    if others:
        say(f"files that are no shards are passed over ({len(others)}): {first_few(others)}")
    options: dict[str, Any] = {"k": k, "precision": precision, "method": method, "form": form}
    with FileProgress("ranking") as progress:
        done = rank_shards(
            model, features, out, engine=engine, workers=workers, progress=progress.tell, **options
        )
    shards = f"{done.n_shards:,} shard{'' if done.n_shards == 1 else 's'}"
    before = f" ({done.n_before:,} of them before)" if done.n_before else ""
    return f"{done.n_rows:,} rows of {shards} ranked{before}"


def _tags_of_items(
    corpus: LabelCorpus, items: Sequence[Mapping[str, Any]], tags: str, features: str
) -> list[tuple[str, ...]]:
    """Give the tags that each item has already: of files by their names, of rows in order."""
    documents = [tuple(document) for document in corpus]
    if items and "file" in items[0]:
        files, rows = match_documents([str(item["file"]) for item in items], corpus.ids)
        given: list[tuple[str, ...]] = [()] * len(items)
        for file, row in zip(files.tolist(), rows.tolist(), strict=True):
            given[file] = documents[row]
        return given
    if len(documents) != len(items):
        raise InputError(
            f"{tags} has {len(documents)} documents but {features} has {len(items)} items; give "
            "one document for each, an empty one where nothing is known."
        )
    return documents


def add_to_model(
    model: Path,
    documents: Path | None,
    labels: Sequence[str],
    vectors: Path | None,
    *,
    out: Path,
    reading: Mapping[str, Any],
) -> str:
    """Add documents, or labels by name, to a saved tagger; give a sentence about it."""
    from polyseme.tagger import load
    from polyseme.word_vectors import WordVectors

    if documents is None and not labels:
        raise InputError("Give tag sets with --documents, or tags with --label and --vectors.")
    if bool(labels) != (vectors is not None):
        raise InputError("`--label` and `--vectors` belong together: a name needs word vectors.")
    if out != model:
        check_destination(out)
    tagger = load(model)
    before = frozenset(tagger.classes_)
    told = []
    if documents is not None:
        spelling = {"normalize": tagger.normalize_labels_}
        corpus = LabelCorpus.read(documents, **_fitting(documents, {**reading, **spelling}))
        n_added = len(tagger.add_documents(corpus))
        told.append(f"{n_added} document{'' if n_added == 1 else 's'}")
    if vectors is not None:
        words = WordVectors.read(vectors, labels=[*tagger.classes_, *labels])
        n_added = len(tagger.add_labels(labels, words))
        told.append(f"{n_added} label{'' if n_added == 1 else 's'} by name")
    tagger.save(out)
    fresh = [label for label in tagger.classes_ if label not in before]
    return f"added {' and '.join(told)}; new labels: {first_few(fresh) if fresh else 'none'}"


def describe(path: Path) -> dict[str, Any]:
    """Give the facts about a model's folder or a file of documents."""
    if path.is_dir():
        return _describe_model(path)
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
    from polyseme.published.tagger import PublishedTagger
    from polyseme.tagger import load

    tagger = load(path)
    facts: dict[str, Any] = {"labels": len(tagger.classes_), **_kinds(tagger)}
    method = _published_facts(tagger) if isinstance(tagger, PublishedTagger) else _facts(tagger)
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


def _facts(tagger: ZeroShotTagger) -> dict[str, Any]:
    """Give the facts about a tagger's concept space and what it knows."""
    space, store = tagger.space_, tagger.store_
    last = space.history_[-1] if space.history_ else {}
    return {
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


def _published_facts(tagger: PublishedTagger) -> dict[str, Any]:
    """Give the facts about a tagger of the published method, apart from its labels."""
    mapper = tagger.mapper_
    return {
        "method": "as published",
        "known documents": len(tagger.store_.ids),
        "known concepts": len(tagger.store_.points),
        "dimensions": tagger.embedding_.n_components,
        "topics": tagger.embedding_.context_descriptor_.n_topics_,
        "held-out E-MAP": tagger.embedding_.best_score_,
        "epochs": len(tagger.embedding_.history_),
        "mapper": "none (tags only)" if mapper is None else mapper.kind,
        "score": tagger.relatedness,
    }


def _documents(
    path: Path, split: str | None, reading: Mapping[str, Any]
) -> tuple[LabelCorpus, NDArray[np.bool_] | None]:
    """Read documents, all or those of a split; give also which rows they are."""
    corpus = LabelCorpus.read(path, **reading)
    if split is None:
        return corpus, None
    known = sorted(set(corpus.splits or ()))
    if split not in known:
        listed = ", ".join(known) if known else "none; the documents have no `split` field"
        raise InputError(f"Unknown split '{split}' in '{path}'; known: {listed}.")
    rows = np.array([name == split for name in corpus.splits or ()])
    return corpus.select(rows), rows


@dataclass(frozen=True)
class _Learning:
    """What a tagger is fitted with: items, their documents, all documents, and an extractor."""

    X: Any
    documents: LabelCorpus
    everything: LabelCorpus | None = None
    extractor: MediaFeatures | None = None


def _learning(
    documents: Path | None,
    features: Path | None,
    split: str | None,
    media: Mapping[str, Any],
    reading: Mapping[str, Any],
) -> _Learning:
    """Read what a tagger is fitted with, from files of numbers or from an extracted folder."""
    corpus, rows = None, None
    if documents is not None:
        corpus, rows = _documents(documents, split, _fitting(documents, reading))
    if features is not None and features.is_dir():
        from polyseme.cli.media import extractor_of, matched

        if corpus is None and split is not None:
            raise InputError("`--split` chooses among documents; give them with --documents.")
        extraction = read_extraction(features)
        extractor = extractor_of(extraction, dict(media))
        items, kept, everything = matched(extraction, corpus, normalize=reading["normalize"])
        return _Learning(items, kept, everything, extractor)
    if corpus is None:
        raise InputError("Give the tags of each item with --documents.")
    from polyseme.cli.media import OPTIONS

    for name in (name for name, value in media.items() if value is not None):
        raise InputError(
            f"`{OPTIONS[name]}` is for folders that `polyseme extract` wrote, not for numbers."
        )
    return _Learning(None if features is None else _features(features, rows), corpus)


def _features(
    path: Path, rows: NDArray[np.bool_] | None
) -> NDArray[np.floating[Any]] | sp.csr_matrix:
    """Read features, all rows or those that belong to the documents in use."""
    table = read_features(path)
    if rows is None:
        return table
    if table.shape[0] != len(rows):
        raise InputError(f"'{path}' has {table.shape[0]} rows but there are {len(rows)} documents.")
    return table[rows]


def _fitting(path: Path, reading: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the options of tables from files that are none."""
    table = any(ending in path.name for ending in (".csv", ".tsv"))
    return {key: value for key, value in reading.items() if table or key == "normalize"}


def _topics(given: str) -> int | str:
    """Read the number of topics."""
    if given == "hdp":
        return given
    if not given.isdecimal():
        raise InputError(f"`--topics` must be a whole number or 'hdp'; got '{given}'.")
    return int(given)
