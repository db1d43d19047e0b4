"""Which labels are shown with instances, which only in documents, and which not at all.

In: a corpus. Out: a `LabelSplit` into seen, unseen and oov labels, seeded; drawn blindly, or so
that given shares of the documents carry an unseen or an oov label, as in the paper's Table 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, RandomState, as_generator, check_number, first_few
from polyseme.corpus import LabelCorpus


@dataclass(frozen=True)
class LabelSplit:
    """Labels by what a method may learn of them.

    Attributes
    ----------
    seen : tuple of str
        Training instances may carry them (in the paper: T-class labels).
    unseen : tuple of str
        Only semantics documents hold them (in the paper: ZSL-class labels).
    oov : tuple of str
        No semantics document holds them (in the paper: OOV labels).

    Examples
    --------
    >>> LabelSplit(("cat", "dog"), ("fox",)).vocabulary
    ('cat', 'dog', 'fox')
    """

    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    oov: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise when a label has two kinds."""
        counts = Counter((*self.seen, *self.unseen, *self.oov))
        twice = sorted(label for label, count in counts.items() if count > 1)
        if twice:
            raise InputError(
                f"The labels of `LabelSplit` must be of one kind each; named twice: "
                f"{first_few(twice)}."
            )

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The labels that semantics documents may hold (in the paper: Γ^(S))."""
        return self.seen + self.unseen


def carries(corpus: LabelCorpus, labels: Collection[str]) -> NDArray[np.bool_]:
    """Say which documents hold at least one of some labels.

    Parameters
    ----------
    corpus : LabelCorpus
    labels : collection of str
        Any spelling of them.

    Returns
    -------
    bool array, shape (n_documents,)
    """
    return np.diff(corpus.restrict(labels).matrix.indptr) > 0


def check_kinds(corpus: LabelCorpus, labels: LabelSplit) -> None:
    """Raise unless every label in use is seen, unseen or oov.

    Parameters
    ----------
    corpus : LabelCorpus
    labels : LabelSplit
    """
    named = {corpus.key(label) for label in (*labels.vocabulary, *labels.oov)}
    used = np.asarray(corpus.matrix.sum(axis=0)).ravel() > 0
    left = [
        label
        for label, in_use in zip(corpus.labels, used, strict=True)
        if in_use and corpus.key(label) not in named
    ]
    if left:
        raise InputError(
            f"Labels of the documents are neither seen, unseen nor oov in `labels`: "
            f"{first_few(left)}; draw the split on these documents or name every label."
        )


def random_labels(
    corpus: LabelCorpus,
    *,
    unseen_share: float = 0.25,
    oov_share: float = 0.0,
    random_state: RandomState = None,
) -> LabelSplit:
    """Draw unseen and oov labels without looking at how often they are used.

    This is what the paper's text says. A quarter of the labels then touches most of the documents;
    its Table 1 rather follows `labels_by_document_share`.

    Parameters
    ----------
    corpus : LabelCorpus
        Its labels are drawn from; those that no document uses count as seen.
    unseen_share : float
        Share of the labels that are not oov (in the paper: 0.25).
    oov_share : float
        Share of all labels (in the paper: 22 of 136).
    random_state : int, numpy Generator or None

    Returns
    -------
    LabelSplit
        Each kind in the corpus' column order.
    """
    _check_shares(unseen_share, oov_share, owner="random_labels")
    used = np.flatnonzero(np.asarray(corpus.matrix.sum(axis=0)).ravel())
    order = as_generator(random_state).permutation(used)
    n_oov = round(oov_share * len(order))
    n_unseen = round(unseen_share * (len(order) - n_oov))
    return _named(corpus, order[n_oov : n_oov + n_unseen], order[:n_oov])


def labels_by_document_share(
    corpus: LabelCorpus,
    *,
    unseen_share: float = 0.25,
    oov_share: float = 0.0,
    document_share: tuple[float, float] = (0.25, 0.30),
    oov_document_share: tuple[float, float] = (0.15, 0.30),
    random_state: RandomState = None,
    n_tries: int = 10_000,
) -> LabelSplit:
    """Draw unseen and oov labels so that given shares of the documents carry one.

    Labels are taken in random order; one that would push the share of documents over the upper
    bound is passed over. A draw that stays under the lower bound is thrown away.

    Parameters
    ----------
    corpus : LabelCorpus
        The documents whose share counts, empty ones aside. Labels that none uses count as seen.
    unseen_share : float
        Share of the labels that are not oov (in the paper: 29 of 114, 27 of 107).
    oov_share : float
        Share of all labels (in the paper: 22 of 136); 0 for no oov label.
    document_share : (float, float)
        Range for the share of documents with an unseen label, among the documents without an oov
        label (in the paper: 0.249 and 0.296).
    oov_document_share : (float, float)
        Range for the share of documents with an oov label (in the paper: 0.233).
    random_state : int, numpy Generator or None
    n_tries : int
        Draws before giving up.

    Returns
    -------
    LabelSplit
        Each kind in the corpus' column order.
    """
    owner = "labels_by_document_share"
    _check_shares(unseen_share, oov_share, owner=owner)
    check_number("n_tries", n_tries, owner=owner, low=1, whole=True)
    for name, bounds in (
        ("document_share", document_share),
        ("oov_document_share", oov_document_share),
    ):
        if not (len(bounds) == 2 and 0 <= bounds[0] <= bounds[1] <= 1):
            raise InputError(
                f"`{name}` of `{owner}` must be two shares from low to high; got {bounds!r}."
            )
    generator = as_generator(random_state)
    filled = sp.csr_matrix(corpus.matrix[np.diff(corpus.matrix.indptr) > 0])
    n_oov = round(oov_share * len(_used(filled)))
    too_few = {"oov": 0, "unseen": 0}
    for _ in range(n_tries):
        oov, rest = np.empty(0, dtype=np.int64), filled
        if n_oov:
            drawn = _draw(filled, n_oov, oov_document_share, generator)
            if drawn is None:
                too_few["oov"] += 1
                continue
            oov = drawn
            rest = sp.csr_matrix(filled[np.diff(filled[:, oov].indptr) == 0])
        n_unseen = round(unseen_share * len(_used(rest)))
        unseen = _draw(rest, n_unseen, document_share, generator)
        if unseen is not None:
            return _named(corpus, unseen, oov)
        too_few["unseen"] += 1
    kind, name, bounds = (
        ("oov", "oov_document_share", oov_document_share)
        if too_few["oov"] > too_few["unseen"]
        else ("unseen", "document_share", document_share)
    )
    raise InputError(
        f"No {n_oov if kind == 'oov' else n_unseen} labels whose documents are {bounds[0]:.0%} to "
        f"{bounds[1]:.0%} of the corpus were found in {n_tries} draws of {kind} labels; widen "
        f"`{name}`."
    )


def _draw(
    documents: sp.csr_matrix,
    n_labels: int,
    share: tuple[float, float],
    generator: np.random.Generator,
) -> NDArray[np.int64] | None:
    """Draw labels whose documents are a share inside the range; None when this draw fails."""
    low, high = (bound * documents.shape[0] for bound in share)
    columns = documents.tocsc()
    covered = np.zeros(documents.shape[0], dtype=bool)
    chosen: list[int] = []
    n_covered = 0
    for column in generator.permutation(_used(documents)):
        rows = columns.indices[columns.indptr[column] : columns.indptr[column + 1]]
        added = int((~covered[rows]).sum())
        if n_covered + added <= high:
            covered[rows] = True
            n_covered += added
            chosen.append(int(column))
        if len(chosen) == n_labels:
            break
    if len(chosen) == n_labels and n_covered >= low:
        return np.array(sorted(chosen), dtype=np.int64)
    return None


def _used(documents: sp.csr_matrix) -> NDArray[np.int64]:
    """List the columns that some document uses."""
    return np.flatnonzero(np.bincount(documents.indices, minlength=documents.shape[1]))


def _named(corpus: LabelCorpus, unseen: NDArray[np.int64], oov: NDArray[np.int64]) -> LabelSplit:
    """Name the labels of each kind, in column order."""
    kinds = np.zeros(len(corpus.labels), dtype=np.int64)
    kinds[unseen], kinds[oov] = 1, 2
    seen, hidden, outside = (
        tuple(corpus.labels[column] for column in np.flatnonzero(kinds == kind))
        for kind in range(3)
    )
    return LabelSplit(seen, hidden, outside)


def _check_shares(unseen_share: float, oov_share: float, *, owner: str) -> None:
    """Raise unless both shares of labels are shares."""
    for name, value in (("unseen_share", unseen_share), ("oov_share", oov_share)):
        check_number(name, value, owner=owner, low=0, high=1)
