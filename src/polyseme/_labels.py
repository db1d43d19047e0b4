"""Labels as people write them: one spelling for each, and clear words for what is none.

In: documents, ids and indicator matrices as a user gave them. Out: checked strings and matrices for
`LabelCorpus`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyseme._validation import InputError


def normalize_label(label: str) -> str:
    """Give the form by which two spellings count as one label.

    Unicode is composed (NFC), letters are case-folded, white space at the ends is cut and inner
    runs of it become one space. `"  New   York"` and `"new york"` are one label.
    """
    # Folding can take a composed letter apart, so it is composed again.
    folded = unicodedata.normalize("NFC", label).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def labels_of(document: object, number: int | str) -> Iterator[str]:
    """Iterate over one document's labels, refusing what is not a collection of strings."""
    where = number if isinstance(number, str) else f"Document {number}"
    if isinstance(document, (str, bytes)):
        raise InputError(
            f"{where} is the text {document!r}; expected a collection of labels, "
            f"for example [{document!r}]."
        )
    if not isinstance(document, Iterable):
        raise InputError(
            f"{where} is {type(document).__name__}; expected a collection of labels (str)."
        )
    for label in document:
        if not isinstance(label, str):
            raise InputError(
                f"{where} holds the label {label!r} of type {type(label).__name__}; labels must "
                "be str, so convert them first."
            )
        if not label.strip():
            raise InputError(f"{where} holds an empty label; remove it or give it a name.")
        yield str(label)


def main_spelling(counts: Counter[str], *, normalize: bool) -> str:
    """Give the most frequent spelling of one label; ties go by sorted order."""
    tidied: Counter[str] = Counter()
    for spelling, count in counts.items():
        tidied[" ".join(spelling.split()) if normalize else spelling] += count
    return min(tidied, key=lambda spelling: (-tidied[spelling], spelling))


def indicator_matrix(matrix: Any) -> sp.csr_matrix:
    """Give a 0/1 matrix as a boolean CSR matrix of its own, without stored zeros or repeats."""
    try:
        indicator = sp.csr_matrix(matrix)
        binary = np.isin(indicator.data, (0, 1)).all()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"An indicator matrix must hold numbers in two dimensions; {error}. Drop other columns."
        ) from error
    if not binary:
        raise InputError("An indicator matrix must hold only 0 and 1; binarise it first.")
    boolean = sp.csr_matrix(indicator.astype(bool))
    boolean.eliminate_zeros()
    boolean.sum_duplicates()
    return boolean


def checked_ids(ids: Sequence[str] | None, n_documents: int) -> tuple[str, ...]:
    """Give unique document ids, numbering the documents when none are given."""
    if ids is None:
        return tuple(str(number) for number in range(n_documents))
    names = tuple(str(name) for name in ids)
    if len(names) != n_documents:
        raise InputError(f"{len(names)} ids were given for {n_documents} documents.")
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"Document id '{twice}' is given twice; ids must be unique.")
    return names
