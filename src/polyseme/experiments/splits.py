"""Label splits: which labels are hidden from the instances.

In: a corpus. Out: sets of unseen labels, seeded, with the share of documents that carry one inside
a given range, as in the paper's Table 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, RandomState, as_generator
from polyseme.corpus import LabelCorpus


def draw_unseen(
    corpus: LabelCorpus,
    *,
    label_share: float = 0.25,
    document_share: tuple[float, float] = (0.25, 0.30),
    random_state: RandomState = None,
    n_tries: int = 10_000,
) -> tuple[str, ...]:
    """Draw labels to hide, so that a given share of the documents carries one.

    Labels are taken in random order; one that would push the share of documents over the upper
    bound is passed over. A draw that stays under the lower bound is thrown away.

    Parameters
    ----------
    corpus : LabelCorpus
        The documents whose share counts.
    label_share : float
        Share of the labels to hide (in the paper: 27 of 107).
    document_share : (float, float)
        Range for the share of documents with at least one hidden label (in the paper: 0.296).
    random_state : int, numpy Generator or None
    n_tries : int
        Draws before giving up.

    Returns
    -------
    tuple of str
        In the corpus' column order.
    """
    generator = as_generator(random_state)
    matrix = corpus.matrix.tocsc()
    counts = np.diff(matrix.indptr)
    candidates = np.flatnonzero(counts)
    n_hidden = round(label_share * len(candidates))
    low, high = (bound * len(corpus) for bound in document_share)
    for _ in range(n_tries):
        covered = np.zeros(len(corpus), dtype=bool)
        chosen: list[int] = []
        for column in generator.permutation(candidates):
            rows = matrix.indices[matrix.indptr[column] : matrix.indptr[column + 1]]
            added = int((~covered[rows]).sum())
            if covered.sum() + added <= high:
                covered[rows] = True
                chosen.append(int(column))
            if len(chosen) == n_hidden:
                break
        if len(chosen) == n_hidden and covered.sum() >= low:
            return tuple(corpus.labels[column] for column in sorted(chosen))
    raise InputError(
        f"No {n_hidden} labels whose documents are {document_share[0]:.0%} to "
        f"{document_share[1]:.0%} of the corpus were found in {n_tries} draws; widen "
        "`document_share`."
    )


def carries(corpus: LabelCorpus, labels: tuple[str, ...]) -> NDArray[np.bool_]:
    """Say which documents hold at least one of the labels, shape (n_documents,)."""
    return np.diff(corpus.restrict(labels).matrix.indptr) > 0
