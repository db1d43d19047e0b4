"""Convert tag sets that users pass to columns of labels, and scores to rankings and tag sets.

In: tags as users write them, and tables of scores. Out: columns, 0/1 tables, ranked labels.

Terms: `labels` are those of a model, and a *column* is a label's place among them. `n` counts
items, one row each. With `normalize` spellings that differ only in case or white space are one
label, as the model was fitted.
"""

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

# Numbers of a table over all labels that is worked on at once: 32 MiB in double precision.
_BLOCK_NUMBERS = 2**22
# Up to so many labels all are sorted, in one call for all rows; of more only the best ones of each
# row. Both give the same ranking.
_FEW_LABELS = 512


def check_tags(tags: object) -> list[Any]:
    """Return the tags of several items as a list, or raise unless they are a list of something.

    Each item's tags are checked where they become columns: see `tag_table`.
    """
    is_single = isinstance(tags, (str, bytes, Mapping))
    if is_single or not isinstance(tags, Iterable):
        got = shown(tags)
        message = f"`tags` holds a list of tags for each item; got {got}."
        raise InputError(message)
    return list(tags)


def tag_table(
    tags: Iterable[Collection[str]], labels: Labels, n: int, *, normalize: bool
) -> sp.csr_matrix:
    """Return the tags of n items as a 0/1 table of float64, (n, n_labels).

    Unknown tags are left out, with a warning that names them.
    """
    corpus = LabelCorpus.from_documents(tags, normalize=normalize)
    n_labels = len(labels)
    n_collections = len(corpus)
    if n_collections != n:
        raise InputError(f"`tags` has {n_collections} tag sets for {n} items.")
    matrix, unknown_tags = corpus.align(labels)
    _warn_unknown(unknown_tags)
    table = matrix[:, :n_labels]
    return sp.csr_matrix(table, dtype=np.float64)


def carried_labels(
    X: object, y: Documents, labels: Labels, vocabulary: Vocabulary, *, normalize: bool
) -> sp.csr_matrix:
    """Return the labels that items carry, csr_matrix of bool, (n, n_labels).

    Labels that the model does not have are left out, with a warning that names them.

    Parameters
    ----------
    X : object
        The items' features, in whose order the rows come; only their ids count.
    y : Documents
        The items' documents, in any accepted form.
    labels : sequence of str
        Those of the model.
    vocabulary : Vocabulary
        Applied to the documents first, as in `fit`.
    normalize : bool
    """
    written = as_corpus(y, normalize=normalize)
    corpus = vocabulary.apply(written)
    _, corpus = in_order_of(X, y, corpus)
    matrix, unknown_labels = corpus.align(labels)
    if unknown_labels:
        warnings.warn(
            f"{len(unknown_labels)} true labels are not among the model's and are left out: "
            f"{first_few(unknown_labels)}.",
            PolysemeWarning,
            stacklevel=4,
        )
    n_labels = len(labels)
    return sp.csr_matrix(matrix[:, :n_labels])


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
    labels, scores : sequences, length n_ranked
        A ranking of one item, the best first, by probability.
    thresholds : mapping of str to float
        How likely each label must be; see `ZeroShotTagger.thresholds`. Others may have any score.
    k : int
        How many labels at the most.
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
    """Return the columns of one tag set, rising, (n_known_tags,); raise where no tag is known.

    Some unknown tags are left out, with a warning that names them.
    """
    n_labels = len(labels)
    corpus = LabelCorpus.from_documents([tags], normalize=normalize)
    matrix, unknown_tags = corpus.align(labels)
    columns = matrix.indices
    is_known = columns < n_labels  # unknown tags have the columns behind the labels
    columns = columns[is_known]
    if not len(columns):
        listed = first_few(unknown_tags)
        if not listed:
            listed = "no tag was given"
        raise InputError(f"None of the tags is known: {listed}; see `classes_` for the known ones.")
    _warn_unknown(unknown_tags)
    return np.asarray(columns, dtype=np.int64)


def tag_sets(
    scores: NDArray[np.float64], thresholds: NDArray[np.float64], labels: Labels
) -> list[tuple[str, ...]]:
    """Return the labels of each item that reach their threshold, the likeliest first.

    Parameters
    ----------
    scores : float64 array, shape (n, n_labels)
    thresholds : float64 array, shape (n_labels,)
    labels : sequence of str, length n_labels
    """
    names = np.asarray(labels, dtype=object)
    columns_by_score = np.argsort(-scores, axis=1, kind="stable")
    sets: list[tuple[str, ...]] = []
    for row_scores, columns in zip(scores, columns_by_score, strict=True):
        sorted_scores = row_scores[columns]
        is_likely = sorted_scores >= thresholds[columns]
        likely_columns = columns[is_likely]
        likely_names = names[likely_columns]
        sets.append(tuple(likely_names.tolist()))
    return sets


def complete_each(
    tags: Collection[str] | Iterable[Collection[str]],
    complete: Callable[[Collection[str]], tuple[NDArray[np.object_], NDArray[np.float64]]],
) -> tuple[NDArray[np.object_], NDArray[np.float64]]:
    """Complete one tag set, or each of several.

    Parameters
    ----------
    tags : collection of str, or iterable of such
        One tag set, or one for each item.
    complete : callable
        Returns the labels that complete a tag set and their scores, both (k,).

    Returns
    -------
    labels, scores : arrays, shape (k,) or (n, k)
        Of several tag sets k is that of the shortest completion.
    """
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
    shortest = min(map(len, label_rows))
    label_table = [labels[:shortest] for labels in label_rows]
    score_table = [scores[:shortest] for scores in score_rows]
    all_labels = np.array(label_table, dtype=object)
    all_scores = np.array(score_table)
    return all_labels, all_scores


def label_kinds(labels: Labels, seen: Collection[str], n_vocabulary: int) -> NDArray[np.str_]:
    """Return the kind of every label: "seen", "unseen" or, beyond the vocabulary, "oov".

    Parameters
    ----------
    labels : sequence of str
        Those of the vocabulary first.
    seen : collection of str
        Labels that training items carry.
    n_vocabulary : int
        How many of `labels` are in the vocabulary.
    """
    seen_labels = set(seen)
    is_seen = [label in seen_labels for label in labels]
    kinds = np.where(is_seen, "seen", "unseen")
    kinds[n_vocabulary:] = "oov"
    return kinds


def _warn_unknown(unknown_tags: Sequence[str]) -> None:
    """Warn of tags that are not known, if there are any."""
    if unknown_tags:
        message = f"Unknown tags are passed over: {first_few(unknown_tags)}."
        warnings.warn(message, PolysemeWarning, stacklevel=5)


def label_preference(n_occurrences: ArrayLike) -> IntArray:
    """Return all columns in the order in which labels with equal scores are ranked, (n_labels,).

    The commonest label comes first, equally common ones by column. `n_occurrences` (n_labels,)
    counts the known documents that hold each label.
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
        Columns in the order of labels with equal scores; see `label_preference`.
    k : int
        How many labels; all of them if there are fewer.

    Returns
    -------
    label_ids : int64 array, shape (n, min(k, n_labels))
        Columns, the best first.
    scores : float64 array, of the same shape
    """
    check_number("k", k, owner="rank", low=1, whole=True)
    table = np.asarray(scores, dtype=np.float64)
    n_rows, n_labels = table.shape
    n_best = min(k, n_labels)
    label_ids = np.empty((n_rows, n_best), dtype=np.int64)
    for block in rank_blocks(n_rows, n_labels):
        # With columns in the order of preference, the first of equals is the preferred one.
        preferred_scores = table[block][:, preference]
        places = _smallest_places(-preferred_scores, k)
        label_ids[block] = preference[places]
    best_scores = np.take_along_axis(table, label_ids, axis=1)
    return label_ids, best_scores


def rank_blocks(n: int, n_labels: int) -> list[slice]:
    """Return slices that cut n rows into blocks, of a row at least, of few enough numbers.

    A block's table over all labels, (rows, n_labels), has at most `_BLOCK_NUMBERS` numbers, unless
    a single row has more.
    """
    rows_per_block = _BLOCK_NUMBERS // max(n_labels, 1)
    step = max(1, rows_per_block)
    blocks = []
    for start in range(0, n, step):
        stop = min(start + step, n)
        blocks.append(slice(start, stop))
    return blocks


def _smallest_places(table: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return the columns of each row's k smallest numbers, the first of equals first, (n, k).

    Numbers may be NaN, which come last. With fewer than k columns all are returned.
    """
    n_rows, n_columns = table.shape
    is_small = n_columns <= max(8 * k, _FEW_LABELS)
    if is_small:
        order = np.argsort(table, axis=1, kind="stable")
        return order[:, :k]
    # The k-th smallest number of each row; only those up to it need be sorted.
    partitioned = np.partition(table, k - 1, axis=1)
    limits = partitioned[:, k - 1]
    places = np.empty((n_rows, k), dtype=np.int64)
    for row, numbers in enumerate(table):
        # "Not after" in place of "up to": a limit of NaN has fewer than k numbers before it.
        is_after = numbers > limits[row]
        candidates = np.flatnonzero(~is_after)
        order = np.argsort(numbers[candidates], kind="stable")
        places[row] = candidates[order[:k]]
    return places
