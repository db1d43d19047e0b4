"""Which documents go to which side: the official split, or a seeded draw of whole groups.

In: a corpus. Out: row numbers. Where groups count, a group (an artist, a scene) is never divided.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, RandomState, as_generator, check_number
from polyseme.corpus import LabelCorpus

Rows = NDArray[np.int64]


def filled_rows(corpus: LabelCorpus) -> NDArray[np.bool_]:
    """Say which documents hold a label at all, shape (n_documents,)."""
    return np.diff(corpus.matrix.indptr) > 0


def halves(
    corpus: LabelCorpus,
    first: str | float = "split",
    *,
    by_group: bool = True,
    random_state: RandomState = None,
) -> tuple[Rows, Rows]:
    """Divide the documents in two (in the paper: D1 and D2); empty documents go nowhere.

    Parameters
    ----------
    corpus : LabelCorpus
    first : "split" or float
        "split": documents marked "train" come first and those marked "test" second, as the source
        says. A number: the share of the documents that come first, drawn at random.
    by_group : bool
        Whether a drawn side holds whole groups, where the corpus names groups.
    random_state : int, numpy Generator or None

    Returns
    -------
    first, second : int64 arrays
        Row numbers, rising.
    """
    filled = filled_rows(corpus)
    if first == "split":
        marks = _marks(corpus)
        return np.flatnonzero(filled & (marks == "train")), np.flatnonzero(
            filled & (marks == "test")
        )
    if isinstance(first, str):
        raise InputError(f"`first` of `halves` must be 'split' or a share; got {first!r}.")
    check_number("first", first, owner="halves", low=0, high=1, above=True)
    rows = np.flatnonzero(filled)
    chosen = draw_rows(corpus, rows, float(first), by_group=by_group, random_state=random_state)
    return chosen, np.setdiff1d(rows, chosen)


def _marks(corpus: LabelCorpus) -> NDArray[np.str_]:
    """Give the source's words about the documents, which must be "train" and "test"."""
    if corpus.splits is None:
        raise InputError(
            "The documents name no split of their own; give `first` as a share of them."
        )
    marks = np.asarray(corpus.splits)
    others = sorted(set(marks.tolist()) - {"train", "test"})
    if others:
        raise InputError(
            f"The documents' own split must say 'train' or 'test'; got '{others[0]}': give `first` "
            "as a share, or mark the documents otherwise."
        )
    return marks


def draw_rows(
    corpus: LabelCorpus,
    rows: Rows,
    size: int | float,
    *,
    by_group: bool = True,
    keep_labels: bool = False,
    random_state: RandomState = None,
) -> Rows:
    """Draw some of the given documents.

    Whole groups are taken in random order as long as they fit; at the end one more is taken if
    that comes nearer to the size asked for.

    Parameters
    ----------
    corpus : LabelCorpus
    rows : int64 array
        The documents to draw from.
    size : int or float
        How many: a count, or a share of `rows` between 0 and 1.
    by_group : bool
        Whether groups stay whole, where the corpus names groups.
    keep_labels : bool
        Whether every label keeps a document among the rows not drawn; fewer rows may be drawn
        then.
    random_state : int, numpy Generator or None

    Returns
    -------
    int64 array
        Row numbers, rising.
    """
    wanted = _count(size, len(rows))
    generator = as_generator(random_state)
    units = _units(corpus, rows, by_group)
    left = np.asarray(corpus.matrix[rows].sum(axis=0)).ravel().astype(np.int64)
    chosen: list[Rows] = []
    passed_over: list[Rows] = []
    n_chosen = 0
    for place in generator.permutation(len(units)):
        unit = units[place]
        if n_chosen == wanted:
            break
        if n_chosen + len(unit) > wanted:
            passed_over.append(unit)
        elif not keep_labels or _spare(corpus.matrix, unit, left):
            chosen.append(unit)
            n_chosen += len(unit)
    gap = wanted - n_chosen
    for unit in sorted(passed_over, key=len):
        if len(unit) - gap >= gap:
            break
        if not keep_labels or _spare(corpus.matrix, unit, left):
            chosen.append(unit)
            break
    return np.sort(np.concatenate([*chosen, np.empty(0, dtype=np.int64)]))


def _count(size: int | float, n: int) -> int:
    """Turn a count or a share into a count."""
    if isinstance(size, float):
        check_number("size", size, owner="draw_rows", low=0, high=1)
        return round(size * n)
    check_number("size", size, owner="draw_rows", low=0, whole=True)
    if size > n:
        raise InputError(f"{size} documents were asked for, but there are only {n} to draw from.")
    return int(size)


def _units(corpus: LabelCorpus, rows: Rows, by_group: bool) -> list[Rows]:
    """Give the rows that must stay together, each unit as an array."""
    if not by_group or corpus.groups is None:
        return [rows[place : place + 1] for place in range(len(rows))]
    together: dict[str, list[int]] = {}
    for row in rows.tolist():
        together.setdefault(corpus.groups[row], []).append(row)
    return [np.array(unit, dtype=np.int64) for unit in together.values()]


def _spare(matrix: sp.csr_matrix, unit: Rows, left: NDArray[np.int64]) -> bool:
    """Take the unit's labels off the counts, unless one of them would be left without any."""
    labels = np.concatenate(
        [matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]] for row in unit]
    )
    columns, counts = np.unique(labels, return_counts=True)
    if (left[columns] <= counts).any():
        return False
    left[columns] -= counts
    return True


def without_groups_of(corpus: LabelCorpus, rows: Rows, others: Rows) -> Rows:
    """Give those rows whose group has none of the other rows.

    Parameters
    ----------
    corpus : LabelCorpus
        Without groups nothing is left out.
    rows, others : int64 arrays

    Returns
    -------
    int64 array
    """
    if corpus.groups is None:
        return rows
    names = np.asarray(corpus.groups)
    return rows[~np.isin(names[rows], names[others])]
