"""Convert tag sets that users pass to columns of labels, and scores to rankings and tag sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme.base.text import shown
from polyseme.base.validation import InputError, IntArray, PolysemeWarning, check_number, first_few
from polyseme.documents.corpus import Documents, LabelCorpus, Labels, as_corpus, in_order_of
from polyseme.documents.vocabulary import Vocabulary

_BLOCK_NUMBERS = 2**22
# Up to here all labels are sorted.
_FEW_LABELS = 512


def check_tags(tags: object) -> list[Any]:
    """Return the tags of several items, or raise unless there is something for each."""
    if isinstance(tags, (str, bytes, Mapping)) or not isinstance(tags, Iterable):
        got = shown(tags)
        raise InputError(f"`tags` holds a list of tags for each item; got {got}.")
    return list(tags)


def tag_table(
    tags: Iterable[Collection[str]], labels: Labels, n: int, *, normalize: bool
) -> sp.csr_matrix:
    """Return n tag sets as a 0/1 table (n, n_labels); unknown tags are named in a warning."""
    corpus = LabelCorpus.from_documents(tags, normalize=normalize)
    n_labels = len(labels)
    n_collections = len(corpus)
    if n_collections != n:
        raise InputError(f"`tags` has {n_collections} tag sets for {n} items.")
    matrix, unknown = corpus.align(labels)
    _warn_unknown(unknown)
    table = matrix[:, :n_labels]
    return sp.csr_matrix(table, dtype=np.float64)


def carried_labels(
    X: object, y: Documents, labels: Labels, vocabulary: Vocabulary, *, normalize: bool
) -> sp.csr_matrix:
    """Return the labels that items X carry, (n, n_labels); unknown ones are named in a warning."""
    corpus = vocabulary.apply(as_corpus(y, normalize=normalize))
    _, corpus = in_order_of(X, y, corpus)
    matrix, unknown = corpus.align(labels)
    if unknown:
        warnings.warn(
            f"{len(unknown)} true labels are not among the model's and are left out: "
            f"{first_few(unknown)}.",
            PolysemeWarning,
            stacklevel=4,
        )
    return sp.csr_matrix(matrix[:, : len(labels)])


def likely_tags(
    labels: Sequence[str],
    scores: Sequence[float],
    thresholds: Mapping[str, float],
    k: int,
    *,
    lowest: float = 0.0,
    excluded: Collection[str] = (),
) -> list[tuple[str, float]]:
    """Return the first k labels of a ranking that are likely enough, with their scores.

    Parameters
    ----------
    labels, scores : sequences, length n
        A ranking, the best first.
    thresholds : mapping of str to float
        How likely each label must be; see `ZeroShotTagger.thresholds`.
    k : int
    lowest : float
        How likely any label must be.
    excluded : collection of str
        Labels that are left out.
    """
    likely: list[tuple[str, float]] = []
    for label, score in zip(labels, scores, strict=True):
        n_likely = len(likely)
        if n_likely == k:
            break
        threshold = thresholds.get(label, 0.0)
        least = max(lowest, threshold)
        is_likely = score >= least
        if is_likely and label not in excluded:
            tag = (label, score)
            likely.append(tag)
    return likely


def tag_columns(tags: Collection[str], labels: Labels, *, normalize: bool) -> IntArray:
    """Return the columns of one tag set, at least one; see `tag_table`."""
    n_labels = len(labels)
    corpus = LabelCorpus.from_documents([tags], normalize=normalize)
    matrix, unknown = corpus.align(labels)
    columns = matrix.indices
    is_known = columns < n_labels
    columns = columns[is_known]
    if not len(columns):
        listed = first_few(unknown)
        if not listed:
            listed = "no tag was given"
        raise InputError(f"None of the tags is known: {listed}; see `classes_` for the known ones.")
    _warn_unknown(unknown)
    return np.asarray(columns, dtype=np.int64)


def tag_sets(
    table: NDArray[np.float64], thresholds: NDArray[np.float64], labels: Labels
) -> list[tuple[str, ...]]:
    """Return the labels of each row (n, n_labels) that reach their threshold, likeliest first."""
    names = np.asarray(labels, dtype=object)
    order = np.argsort(-table, axis=1, kind="stable")
    sets: list[tuple[str, ...]] = []
    for scores, columns in zip(table, order, strict=True):
        sorted_scores = scores[columns]
        is_likely = sorted_scores >= thresholds[columns]
        likely_columns = columns[is_likely]
        likely_names = names[likely_columns]
        sets.append(tuple(likely_names.tolist()))
    return sets


def complete_each(
    tags: Collection[str] | Iterable[Collection[str]],
    complete: Callable[[Collection[str]], tuple[NDArray[np.object_], NDArray[np.float64]]],
) -> tuple[NDArray[np.object_], NDArray[np.float64]]:
    """Complete one tag set, (k,), or several into one table, (n, k): labels and scores."""
    is_bytes_or_mapping = isinstance(tags, (bytes, Mapping))
    is_list = isinstance(tags, Iterable)
    if is_bytes_or_mapping or not is_list:
        raise InputError(f"Tags are given as a list of texts, or several; got {shown(tags)}.")
    tag_list: list[Any] = [tags] if isinstance(tags, str) else list(tags)
    if all(isinstance(tag, str) for tag in tag_list):
        return complete(tag_list)
    label_rows = []
    score_rows = []
    for tag_set in tag_list:
        labels, scores = complete(tag_set)
        label_rows.append(labels)
        score_rows.append(scores)
    width = min(map(len, label_rows))
    label_table = [labels[:width] for labels in label_rows]
    score_table = [scores[:width] for scores in score_rows]
    return np.array(label_table, dtype=object), np.array(score_table)


def label_kinds(labels: Labels, seen: Collection[str], n_vocabulary: int) -> NDArray[np.str_]:
    """Return of every label whether it is "seen", "unseen" or, beyond the vocabulary, "oov"."""
    seen_labels = set(seen)
    is_seen = [label in seen_labels for label in labels]
    kinds = np.where(is_seen, "seen", "unseen")
    kinds[n_vocabulary:] = "oov"
    return kinds


def _warn_unknown(unknown: Sequence[str]) -> None:
    """Name tags that are not known, if there are any."""
    if unknown:
        message = f"Unknown tags are passed over: {first_few(unknown)}."
        warnings.warn(message, PolysemeWarning, stacklevel=5)


def label_preference(n_occurrences: ArrayLike) -> IntArray:
    """Return the order of labels with equal scores: the commonest first, then by column.

    `n_occurrences` (n_labels,) are the known concepts of each label.
    """
    counts = np.asarray(n_occurrences)
    return np.argsort(-counts, kind="stable").astype(np.int64)


def rank_labels(
    scores: ArrayLike, preference: IntArray, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k best labels of each row.

    Parameters
    ----------
    scores : array, shape (n, n_labels)
    preference : int64 array, shape (n_labels,)
        The order of labels with equal scores; see `label_preference`.
    k : int
        How many labels; all of them if there are fewer.

    Returns
    -------
    label_ids : int64 array, shape (n, min(k, n_labels))
    scores : float64 array, of the same shape
    """
    check_number("k", k, owner="rank", low=1, whole=True)
    table = np.asarray(scores, dtype=np.float64)
    n_rows, n_labels = table.shape
    shape = (n_rows, min(k, n_labels))
    label_ids = np.empty(shape, dtype=np.int64)
    for block in rank_blocks(n_rows, n_labels):
        block_scores = table[block]
        in_preference = block_scores[:, preference]
        places = _first_in_order(-in_preference, k)
        label_ids[block] = preference[places]
    best_scores = np.take_along_axis(table, label_ids, axis=1)
    return label_ids, best_scores


def rank_blocks(n: int, n_labels: int) -> list[slice]:
    """Cut n rows into blocks, of a row at least, for which tables over all labels stay small."""
    rows_per_block = _BLOCK_NUMBERS // max(n_labels, 1)
    step = max(1, rows_per_block)
    blocks = []
    for start in range(0, n, step):
        stop = min(start + step, n)
        blocks.append(slice(start, stop))
    return blocks


def _first_in_order(values: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return the places of each row's k smallest values, the first of equals first."""
    n_rows, n_values = values.shape
    if n_values <= max(8 * k, _FEW_LABELS):
        order = np.argsort(values, axis=1, kind="stable")
        return order[:, :k]
    partitioned = np.partition(values, k - 1, axis=1)
    limits = partitioned[:, k - 1]
    places = np.empty((n_rows, k), dtype=np.int64)
    for row, row_values in enumerate(values):
        # A limit of NaN has fewer than k numbers before it.
        is_after = row_values > limits[row]
        candidates = np.flatnonzero(~is_after)
        candidate_values = row_values[candidates]
        order = np.argsort(candidate_values, kind="stable")
        places[row] = candidates[order[:k]]
    return places
