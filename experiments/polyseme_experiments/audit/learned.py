"""The part of the audit that looks into fitted models.

In: a split and a fitted embedding, tagger or baseline. Out: checks that what it holds could be
learned from the split's training sets alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._estimator import copy_of
from polyseme._validation import check_features
from polyseme.corpus import LabelCorpus
from polyseme.published.descriptors import CentredRows
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.kernels import column_statistics, scale_rows
from polyseme.published.mapping import InstanceMapper
from polyseme.published.priming import PrimingStore
from polyseme.published.tagger import PublishedTagger
from polyseme.splits.split import ZeroShotSplit
from polyseme.store import ConceptStore
from polyseme_experiments.audit.receipt import Check, check


def check_embedding(
    split: ZeroShotSplit, embedding: object, *, relearn_topics: bool = False
) -> Iterator[Check]:
    """Check vocabulary, idf, label descriptors and topics of a concept embedding.

    Parameters
    ----------
    split : ZeroShotSplit
    embedding : object
        Anything but a fitted `ConceptEmbedding` gives no check.
    relearn_topics : bool
        Whether to learn the topics again, which takes seconds, and compare.

    Yields
    ------
    Check
    """
    if not isinstance(embedding, ConceptEmbedding):
        return
    key = split.source.key
    teaching = split.teaching().without_unused()
    held = {key(label) for label in teaching.labels}
    oov = {key(label) for label in split.labels.oov}
    vocabulary = [key(label) for label in embedding.classes_]
    looked_at = f"{len(vocabulary)} labels of the concept space"
    yield check(
        "vocabulary without oov labels",
        looked_at,
        [label for label in vocabulary if label in oov],
        "none is oov",
        "oov labels among them",
    )
    yield check(
        "vocabulary taught",
        looked_at,
        sorted((set(vocabulary) ^ held) - oov),
        "exactly those of the documents that teach",
        "labels on one side only",
    )
    yield from _descriptors(teaching, embedding)
    n_columns = embedding.context_descriptor_.topics_.shape[1]
    yield check(
        "topics over the vocabulary",
        f"{embedding.context_descriptor_.n_topics_} topics",
        [] if n_columns == len(vocabulary) else [f"{n_columns} columns"],
        "one column per label",
        f"not the {len(vocabulary)} labels",
    )
    if relearn_topics:
        yield _topics(teaching, embedding)


def _descriptors(teaching: LabelCorpus, embedding: ConceptEmbedding) -> Iterator[Check]:
    """Learn idf and label descriptors again and compare."""
    wanted = copy_of(embedding.label_descriptor_)
    if [*map(teaching.key, embedding.classes_)] == [*map(teaching.key, teaching.labels)]:
        wanted.fit(teaching.matrix)
    for name in ("idf_", "descriptors_"):
        learned = _numbers(getattr(embedding.label_descriptor_, name))
        again = _numbers(getattr(wanted, name, None))
        yield check(
            f"{name.rstrip('_')} learned from semantics alone",
            f"{learned.size} values, {len(teaching)} documents",
            []
            if again is not None and np.array_equal(learned, again)
            else [_differ(learned, again)],
            "the same when learned again, bit for bit",
            "not what these documents give",
        )


def _numbers(learned: Any) -> Any:
    """Give learned numbers as one array, also those of sparse rows; None stays None."""
    if isinstance(learned, CentredRows):
        return np.concatenate([learned.rows.data, learned.rows.indices, learned.mean])
    return learned


def _topics(teaching: LabelCorpus, embedding: ConceptEmbedding) -> Check:
    """Learn the topics again from the same seed and compare."""
    name, topics = "topics learned from semantics alone", embedding.context_descriptor_.topics_
    looked_at = f"{topics.size} values, {len(teaching)} documents"
    if not isinstance(embedding.context_descriptor_.random_state, int):
        return Check(name, looked_at, 0, True, "their seed is not known", note=True)
    again = copy_of(embedding.context_descriptor_).fit(teaching.matrix).topics_
    return check(
        name,
        looked_at,
        [] if np.array_equal(topics, again) else [_differ(topics, again)],
        "the same when learned again, bit for bit",
        "not what these documents give",
    )


def _differ(learned: NDArray[Any], again: NDArray[Any] | None) -> str:
    """Say how far two arrays are apart."""
    if again is None or again.shape != learned.shape:
        return "the labels differ"
    return f"{int((learned != again).sum())} values differ"


def check_ranker(split: ZeroShotSplit, fitted: object) -> Iterator[Check]:
    """Check the kinds of labels and the known documents of a tagger or baseline.

    Parameters
    ----------
    split : ZeroShotSplit
    fitted : object
        What lacks labels and kinds, or known documents, gives no check of them.

    Yields
    ------
    Check
    """
    key = split.target.key
    labels = [key(label) for label in getattr(fitted, "classes_", ())]
    kinds = getattr(fitted, "kinds_", None)
    if kinds is not None:
        unseen = {key(label) for label in split.labels.unseen}
        oov = {key(label) for label in split.labels.oov}
        direct = np.asarray(getattr(fitted, "direct_", np.zeros(len(labels), dtype=bool)))
        shown = np.asarray(kinds) == "seen"
        if direct.dtype == bool and direct.shape == shown.shape:
            shown = shown | direct
        yield check(
            "no unseen label learned from instances",
            f"{len(labels)} labels",
            [
                label
                for label, wrong in zip(labels, shown, strict=True)
                if wrong and label in unseen
            ],
            "none was",
            "labels that were",
        )
        yield check(
            "oov labels only from instances",
            f"{len(labels)} labels",
            [
                label
                for label, kind in zip(labels, kinds, strict=True)
                if label in oov and kind != "oov"
            ],
            "none came from semantics documents",
            "labels that did not",
        )
    known = getattr(fitted, "store_", None)
    if isinstance(known, (PrimingStore, ConceptStore)):
        yield _known_documents(split, known)


def _known_documents(split: ZeroShotSplit, known: PrimingStore | ConceptStore) -> Check:
    """Check that every known document is a semantics document or a training instance's."""
    allowed: dict[str, frozenset[str]] = {}
    for corpus in (split.known(), split.unmet_instances("train")):
        for row, name in enumerate(corpus.ids):
            allowed[name] = frozenset(map(corpus.key, corpus.document(row)))
    key = split.target.key
    return check(
        "known documents are the split's",
        f"{len(known.ids)} known documents",
        [
            name
            for row, name in enumerate(known.ids)
            if allowed.get(name) != frozenset(map(key, known.document(row)))
        ],
        "all are semantics documents or training instances",
        "others",
    )


def check_mappers(split: ZeroShotSplit, X: NDArray[np.generic], fitted: object) -> Iterator[Check]:
    """Check the feature rows that kernel regressions keep.

    Parameters
    ----------
    split : ZeroShotSplit
    X : array, shape (n_documents, n_features)
        The features of all instances of the target.
    fitted : object
        Its attributes that are fitted instance mappers are looked at.

    Yields
    ------
    Check
    """
    train = np.asarray(check_features(X[split.train], owner="audit"))
    for name, mapper in sorted(vars(fitted).items()):
        if not (isinstance(mapper, InstanceMapper) and hasattr(mapper, "X_fit_")):
            continue
        title = f"{name.rstrip('_')} keeps training rows alone"
        looked_at = f"{mapper.X_fit_.shape[0]} rows kept"
        if mapper.n_features_in_ != train.shape[1]:
            wrong = [f"{mapper.n_features_in_} features instead of {train.shape[1]}"]
            yield check(title, looked_at, wrong, "", "fitted on other columns")
            continue
        dtype = np.float64 if mapper.X_fit_.dtype == np.float64 else np.float32
        scaled = scale_rows(train, mapper.scaling, mapper.mean_, mapper.scale_, dtype)
        allowed = {row.tobytes() for row in np.asarray(scaled)}
        kept = mapper.X_fit_ if isinstance(mapper.X_fit_, np.ndarray) else mapper.X_fit_.toarray()
        wrong = [str(place) for place, row in enumerate(kept) if row.tobytes() not in allowed]
        yield check(title, looked_at, wrong, "each is a training instance's", "rows that are not")
        if isinstance(fitted, PublishedTagger):
            yield _scales(split, train, fitted, mapper)


def _scales(
    split: ZeroShotSplit,
    train: NDArray[np.float64],
    tagger: PublishedTagger,
    mapper: InstanceMapper,
) -> Check:
    """Check that the features' means and spreads are those of the training instances."""
    documents = split.instances("train").align(tagger.embedding_.classes_)[0]
    placed = np.diff(documents[:, : len(tagger.embedding_.classes_)].indptr) > 0
    again = column_statistics(train[placed], mapper.scaling)
    learned = (mapper.mean_, mapper.scale_)
    same = all(np.array_equal(one, other) for one, other in zip(learned, again, strict=True))
    return check(
        "scales learned from training rows alone",
        f"{train.shape[1]} columns, {int(placed.sum())} rows",
        [] if same else ["means or spreads differ"],
        "the same when learned again, bit for bit",
        "not what these rows give",
    )
