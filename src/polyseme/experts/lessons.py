"""What experts learn from: instances' labels, all documents, and which document is whose.

In: corpora with names. Out: matrices over one list of labels, and row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from polyseme._folds import group_numbers
from polyseme._validation import IntArray
from polyseme.corpus import LabelCorpus
from polyseme.known import met_documents


class Lessons(NamedTuple):
    """What `LabelExperts.fit` takes beside features.

    Attributes
    ----------
    matrix : csr_matrix, shape (n, n_labels)
        The labels of instances.
    documents : csr_matrix, shape (m, n_labels)
        Semantics documents, then instances' documents that are not among them.
    own : int64 array, shape (n,)
        The document of each instance.
    groups : int64 array, shape (m,), or None
    n_semantics : int
        How many of the documents are semantics documents; they come first.
    """

    matrix: sp.csr_matrix
    documents: sp.csr_matrix
    own: IntArray
    groups: IntArray | None
    n_semantics: int


def lessons_of(corpus: LabelCorpus, teaching: LabelCorpus, labels: Sequence[str]) -> Lessons:
    """Lay out what is learned from.

    Parameters
    ----------
    corpus, teaching : LabelCorpus
        Instances' documents and semantics documents; may be the same.
    labels : sequence of str
        The columns.

    Returns
    -------
    Lessons
    """
    n_labels = len(labels)
    matrix = sp.csr_matrix(corpus.align(labels)[0][:, :n_labels], dtype=np.float64)
    taught = sp.csr_matrix(teaching.align(labels)[0][:, :n_labels], dtype=np.float64)
    own = met_documents(corpus, teaching)
    fresh = np.flatnonzero(own < 0)
    own[fresh] = taught.shape[0] + np.arange(len(fresh))
    documents = sp.csr_matrix(sp.vstack([taught, matrix[fresh]], format="csr"))
    names = None
    if teaching.groups is not None or corpus.groups is not None:
        first = list(teaching.groups or (f"document {row}" for row in range(len(teaching))))
        second = corpus.groups or tuple(f"instance {row}" for row in range(len(corpus)))
        if teaching.groups is None:
            for row in np.flatnonzero(own < len(first)):
                first[own[row]] = second[row]
        names = [*first, *(second[row] for row in fresh)]
    numbers = group_numbers(names, documents.shape[0])
    return Lessons(matrix, documents, own, numbers, taught.shape[0])
