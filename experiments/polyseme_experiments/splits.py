"""The paper's protocols: which labels are hidden, who learns from what, and what is measured.

In: a corpus, or two. Out: a `LabelSplit` of its labels, a `ZeroShotSplit` of its rows, and every
metric over sets of label columns. Whatever is drawn comes from one `random_state`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme.base.validation import (
    InputError,
    PolysemeWarning,
    RandomState,
    as_generator,
    check_number,
    check_option,
    first_few,
)
from polyseme.documents.corpus import LabelCorpus, Labels
from polyseme.documents.label_sets import select_unmatched_documents
from polyseme.metrics import evaluate

Rows = NDArray[np.int64]
InstanceSet = Literal["train", "validation", "test"]
SEMANTICS = ("semantics", "semantics_validation", "semantics_test")
INSTANCES = ("train", "validation", "test")
N_TRIES = 10_000  # draws of labels before giving up
# The names that tables use, and what turns a value into the number they show.
MEASURES = {
    "example_map": ("E-MAP", 100.0),
    "concept_map": ("C-MAP", 100.0),
    "mean_average_precision": ("MAP", 100.0),
    "f1_at_5": ("F1@5", 100.0),
    "ranking_loss": ("ranking loss", 100.0),
    "coverage": ("coverage", 1.0),
    "label_ranking_average_precision": ("LRAP", 100.0),
    "roc_auc": ("AUC", 100.0),
}


# ---- labels


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
    """

    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    oov: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise when a label has two kinds."""
        counts = Counter(self.vocabulary)
        counts.update(self.oov)
        repeated = [label for label, count in counts.items() if count > 1]
        repeated.sort()
        if repeated:
            named = first_few(repeated)
            raise InputError(f"Labels must be of one kind each; named twice: {named}.")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The labels that semantics documents may hold (in the paper: Γ^(S))."""
        return self.seen + self.unseen


def carries(corpus: LabelCorpus, labels: Collection[str]) -> NDArray[np.bool_]:
    """Return which documents hold at least one of some labels, in any spelling, (n_documents,)."""
    return corpus.restrict(labels).lengths > 0


def random_labels(
    corpus: LabelCorpus,
    *,
    unseen_share: float = 0.25,
    oov_share: float = 0.0,
    random_state: RandomState = None,
) -> LabelSplit:
    """Draw unseen and oov labels without looking at how often they are used.

    This is what the paper's text says. A quarter of the labels then touches most of the documents;
    its Table 1 rather follows `labels_by_document_share`, which describes the parameters.
    """
    _check_shares("random_labels", unseen_share=unseen_share, oov_share=oov_share)
    generator = as_generator(random_state)
    columns = np.flatnonzero(corpus.counts)
    order = generator.permutation(columns)
    n_labels = len(order)
    n_oov = round(oov_share * n_labels)
    n_without_oov = n_labels - n_oov
    n_unseen = round(unseen_share * n_without_oov)
    oov = order[:n_oov]
    without_oov = order[n_oov:]
    unseen = without_oov[:n_unseen]
    return _named(corpus, unseen, oov)


def labels_by_document_share(
    corpus: LabelCorpus,
    *,
    unseen_share: float = 0.25,
    oov_share: float = 0.0,
    document_share: tuple[float, float] = (0.25, 0.30),
    oov_document_share: tuple[float, float] = (0.15, 0.30),
    random_state: RandomState = None,
) -> LabelSplit:
    """Draw unseen and oov labels so that given shares of the documents carry one.

    Labels are taken in random order; one that would push the share of documents over the upper
    bound is passed over. A draw that stays under the lower bound is thrown away. Each kind of label
    comes in the corpus' column order.

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
    """
    owner = "labels_by_document_share"
    _check_shares(owner, unseen_share=unseen_share, oov_share=oov_share)
    ranges = {"document_share": document_share, "oov_document_share": oov_document_share}
    for name, bounds in ranges.items():
        if not (len(bounds) == 2 and 0 <= bounds[0] <= bounds[1] <= 1):
            raise InputError(f"`{name}` must be two shares from low to high; got {bounds!r}.")
    generator = as_generator(random_state)
    filled = sp.csr_matrix(corpus.matrix[corpus.lengths > 0])
    without_oov = filled
    n_oov = round(oov_share * len(_used(filled)))
    oov = np.empty(0, dtype=np.int64)
    failures: Counter[tuple[str, str, int]] = Counter()
    for _ in range(N_TRIES):
        if n_oov:
            candidates = _draw_labels(filled, n_oov, oov_document_share, generator)
            if candidates is None:
                failures["oov", "oov_document_share", n_oov] += 1
                continue
            oov = candidates
            oov_counts = np.diff(filled[:, oov].indptr)
            without_oov = sp.csr_matrix(filled[oov_counts == 0])
        n_unseen = round(unseen_share * len(_used(without_oov)))
        unseen = _draw_labels(without_oov, n_unseen, document_share, generator)
        if unseen is not None:
            return _named(corpus, unseen, oov)
        failures["unseen", "document_share", n_unseen] += 1
    most_common, _ = failures.most_common(1)[0]
    kind, name, n = most_common
    low, high = ranges[name]
    raise InputError(
        f"No {n} labels whose documents are {low:.0%} to {high:.0%} of the corpus were found in "
        f"{N_TRIES} draws of {kind} labels; widen `{name}`."
    )


def _check_shares(owner: str, **shares: float) -> None:
    """Raise unless all are shares."""
    for name, share in shares.items():
        check_number(name, share, owner=owner, low=0, high=1)


def _draw_labels(
    documents: sp.csr_matrix,
    n_labels: int,
    share: tuple[float, float],
    generator: np.random.Generator,
) -> Rows | None:
    """Draw columns whose documents are a share inside the range; None when this draw fails."""
    n_documents = documents.shape[0]
    low_share, high_share = share
    low = low_share * n_documents
    high = high_share * n_documents
    columns = documents.tocsc()
    covered = np.zeros(n_documents, dtype=bool)
    n_covered = 0
    chosen: list[int] = []
    order = generator.permutation(_used(documents))
    for column in order.tolist():
        start = columns.indptr[column]
        stop = columns.indptr[column + 1]
        rows = columns.indices[start:stop]
        is_new = ~covered[rows]
        n_added = int(is_new.sum())
        if n_covered + n_added <= high:
            covered[rows] = True
            n_covered += n_added
            chosen.append(column)
        if len(chosen) == n_labels:
            break
    if len(chosen) < n_labels or n_covered < low:
        return None
    chosen.sort()
    return np.array(chosen, dtype=np.int64)


def _used(documents: sp.csr_matrix) -> Rows:
    """List the columns that some document uses."""
    counts = np.bincount(documents.indices, minlength=documents.shape[1])
    return np.flatnonzero(counts)


def _named(corpus: LabelCorpus, unseen: Rows, oov: Rows) -> LabelSplit:
    """Return the split of the labels by kind, in column order."""
    labels = np.array(corpus.labels, dtype=object)
    is_seen = np.ones(len(labels), dtype=bool)
    is_seen[unseen] = False
    is_seen[oov] = False
    seen_labels = labels[is_seen]
    unseen_labels = labels[np.sort(unseen)]
    oov_labels = labels[np.sort(oov)]
    return LabelSplit(
        seen=tuple(seen_labels),
        unseen=tuple(unseen_labels),
        oov=tuple(oov_labels),
    )


# ---- rows


def _clean_rows(corpus: LabelCorpus, labels: LabelSplit) -> Rows:
    """Return the documents with labels but no oov one; raise unless every label has a kind."""
    key = corpus.key
    all_labels = labels.vocabulary + labels.oov
    known_keys = {key(label) for label in all_labels}
    unnamed = []
    for column in _used(corpus.matrix):
        label = corpus.labels[column]
        if key(label) not in known_keys:
            unnamed.append(label)
    if unnamed:
        raise InputError(
            f"Labels of the documents are neither seen, unseen nor oov in `labels`: "
            f"{first_few(unnamed)}; draw the split on these documents or name every label."
        )
    filled = corpus.lengths > 0
    has_oov = carries(corpus, labels.oov)
    is_clean = filled & ~has_oov
    return np.flatnonzero(is_clean)


def _halves(
    corpus: LabelCorpus, first: str | float, by_group: bool, generator: np.random.Generator
) -> tuple[Rows, Rows]:
    """Divide the filled documents in two (D1, D2): by the source's marks, or by a drawn share."""
    rows = np.flatnonzero(corpus.lengths)
    if first != "split":
        if isinstance(first, str):
            raise InputError(f"`first` must be 'split' or a share; got {first!r}.")
        check_number("first", first, owner="within_corpus", low=0, high=1, above=True)
        share = float(first)
        first_half = _draw_rows(corpus, rows, share, by_group, generator)
        second_half = np.setdiff1d(rows, first_half)
        return first_half, second_half
    if corpus.splits is None:
        raise InputError("The documents name no split of their own; give `first` as a share.")
    marks = np.asarray(corpus.splits)
    distinct = set(marks.tolist())
    unexpected = sorted(distinct - {"train", "test"})
    if unexpected:
        raise InputError(
            f"The documents' split must say 'train' or 'test'; got '{unexpected[0]}': give a share."
        )
    row_marks = marks[rows]
    first_half = rows[row_marks == "train"]
    second_half = rows[row_marks == "test"]
    return first_half, second_half


def _units(corpus: LabelCorpus, rows: Rows, by_group: bool) -> list[list[int]]:
    """List what is drawn as a whole: groups of rows, or single rows."""
    if corpus.groups is None or not by_group:
        return [[row] for row in rows.tolist()]
    rows_by_group: dict[object, list[int]] = {}
    for row in rows.tolist():
        group = corpus.groups[row]
        rows_by_group.setdefault(group, []).append(row)
    return list(rows_by_group.values())


def _label_counts(corpus: LabelCorpus, rows: Rows) -> Rows:
    """Count the rows that hold each label, (n_labels,)."""
    documents = corpus.matrix[rows]
    sums = documents.sum(axis=0)
    counts = np.asarray(sums, dtype=np.int64)
    return counts.ravel()


def _draw_rows(
    corpus: LabelCorpus,
    rows: Rows,
    size: int | float,
    by_group: bool,
    generator: np.random.Generator,
    keep_labels: bool = False,
) -> Rows:
    """Draw a count or a share of rows, whole groups by_group; every label may keep a document."""
    # Groups are taken in random order as long as they fit; at the end one more is taken if that
    # comes nearer to the wanted size.
    if isinstance(size, float):
        size = round(size * len(rows))
    if size > len(rows):
        raise InputError(f"{size} documents were asked for, but there are only {len(rows)}.")
    units = _units(corpus, rows, by_group)
    label_counts = _label_counts(corpus, rows)
    chosen: list[int] = []

    def take(unit: list[int]) -> bool:
        """Take a unit, unless a label would be left without a document; return whether it is."""
        if keep_labels:
            unit_counts = _label_counts(corpus, np.array(unit))
            is_last = (label_counts <= unit_counts) & (unit_counts > 0)
            if is_last.any():
                return False
            label_counts[:] -= unit_counts
        chosen.extend(unit)
        return True

    too_large: list[list[int]] = []
    order = generator.permutation(len(units))
    for place in order.tolist():
        unit = units[place]
        gap = size - len(chosen)
        if gap == 0:
            break
        if len(unit) > gap:
            too_large.append(unit)
        else:
            take(unit)

    gap = size - len(chosen)
    too_large.sort(key=len)
    for unit in too_large:
        excess = len(unit) - gap
        if excess >= gap or take(unit):
            break
    chosen.sort()
    return np.array(chosen, dtype=np.int64)


def _check_size(validation: object, *, owner: str) -> None:
    """Raise unless a size is a count, or a share between 0 and 1."""
    is_share = isinstance(validation, float)
    high = 1 if is_share else np.inf
    check_number(
        "validation",
        validation,
        owner=owner,
        low=0,
        high=high,
        whole=not is_share,
    )


def _without_groups_of(corpus: LabelCorpus, rows: Rows, excluded: Rows, by_group: bool) -> Rows:
    """Return, by_group, those rows whose group has no excluded row; without groups all."""
    if corpus.groups is None or not by_group:
        return rows
    names = np.asarray(corpus.groups)
    row_groups = names[rows]
    excluded_groups = names[excluded]
    shares_group = np.isin(row_groups, excluded_groups)
    return rows[~shares_group]


# ---- the sets of one trial


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class ZeroShotSplit:
    """The sets of one trial, as rising row numbers (in the paper: a row of Table 1).

    Attributes
    ----------
    source : LabelCorpus
        Whose documents teach what labels mean.
    target : LabelCorpus
        Whose instances are mapped and tested; the same object within one corpus.
    labels : LabelSplit
        The kinds of the labels.
    semantics, semantics_validation, semantics_test : int64 arrays
        Rows of `source` that teach the concept space, that stop its training, and the rest (in
        the paper: S_tr, S_val, S_tst).
    train, validation, test : int64 arrays
        Rows of `target` that teach the mapping, that choose its settings, and that are tested (in
        the paper: IM_tr or OOV_tr, IM_val, IM_tst or OOV_tst).
    validation_known : bool
        Whether the documents of `semantics_validation` are among the known ones, which they are
        when they come from the first half.
    by_group : bool
        Whether no group of a test instance has a training instance.
    """

    source: LabelCorpus
    target: LabelCorpus
    labels: LabelSplit
    semantics: Rows
    semantics_validation: Rows
    semantics_test: Rows
    train: Rows
    validation: Rows
    test: Rows
    validation_known: bool
    by_group: bool

    def __post_init__(self) -> None:
        """Put every set in rising order and check that its rows exist."""
        for name in SEMANTICS + INSTANCES:
            corpus = self.source if name in SEMANTICS else self.target
            last = len(corpus) - 1
            values = getattr(self, name)
            integers = np.asarray(values, dtype=np.int64)
            rows = np.unique(integers)
            if len(rows) and not (rows[0] >= 0 and rows[-1] <= last):
                raise InputError(
                    f"`{name}` of `ZeroShotSplit` must hold rows in 0..{last}; "
                    f"got {rows[0]}..{rows[-1]}."
                )
            object.__setattr__(self, name, rows)

    def training_label_sets(self) -> LabelCorpus:
        """Return the documents that teach the concept space, over the vocabulary (S_tr)."""
        return self._semantics(self.semantics)

    def validation_label_sets(self) -> LabelCorpus:
        """Return the documents that stop the training of the concept space (S_val)."""
        return self._semantics(self.semantics_validation)

    def known(self) -> LabelCorpus:
        """Return the label documents whose concepts labels are ranked by.

        Those that teach the concept space, and those that stop its training where
        `validation_known`; a tagger adds the documents of its training instances.
        """
        return self._semantics(self.known_rows)

    @property
    def known_rows(self) -> Rows:
        """The rows of `source` that `known` gives."""
        if not self.validation_known:
            return self.semantics
        return np.union1d(self.semantics, self.semantics_validation)

    def instances(self, name: InstanceSet) -> LabelCorpus:
        """Return the documents of "train", "validation" or "test" instances, with oov labels."""
        check_option("name", name, INSTANCES, owner="ZeroShotSplit.instances")
        rows = getattr(self, name)
        documents = self.target.select(rows)
        return replace(documents, numbered=False)

    def unmet_instances(self, name: InstanceSet) -> LabelCorpus:
        """Return those of `instances` that `known` does not hold yet, named as a tagger does."""
        return select_unmatched_documents(self.instances(name), self.known())

    def own_documents(self) -> NDArray[np.bool_]:
        """Return which test instances have their own document among the known ones, (n_test,)."""
        test = self.test
        n_test = len(test)
        if self.source is not self.target:
            return np.zeros(n_test, dtype=bool)
        known_rows = self.known_rows
        return np.isin(test, known_rows)

    def sizes(self) -> dict[str, int]:
        """Count labels of each kind, the target's documents, and the rows of each set."""
        counts = {
            "seen": len(self.labels.seen),
            "unseen": len(self.labels.unseen),
            "oov": len(self.labels.oov),
            "documents": len(self.target),
        }
        for name in SEMANTICS + INSTANCES:
            counts[name] = len(getattr(self, name))
        return counts

    def _semantics(self, rows: Rows) -> LabelCorpus:
        """Return source documents over the vocabulary, under the source's own names."""
        documents = self.source.select(rows).restrict(self.labels.vocabulary)
        # Made-up numbers become names, so that a document is recognised in every set.
        return replace(documents, numbered=False)


def within_corpus(
    corpus: LabelCorpus,
    labels: LabelSplit,
    *,
    first: str | float = "split",
    validation_from: str = "first",
    validation: int | float = 0.35,
    test_from: str = "second",
    by_group: bool = True,
    random_state: RandomState = None,
) -> ZeroShotSplit:
    """Divide one corpus into the sets of the paper's Table 1 (the within-corpus test, WCT).

    The documents are divided in two halves. Those of the first teach meaning, unless they hold an
    oov label; those of its instances that carry no unseen label teach the mapping; instances with
    an unseen label are tested. Documents with an oov label are in no set: `oov_test` uses them.

    Parameters
    ----------
    corpus : LabelCorpus
        Documents without any label are in no set.
    labels : LabelSplit
        The kind of every label in use.
    first : "split" or float
        What makes the first half: the source's own "train" and "test", or a share drawn at random
        (in the paper: HSUN's own split, and two thirds of MagTag5K).
    validation_from : {"first", "second"}
        Where the documents that stop the concept space's training come from. "first": from the
        first half, as the paper's text says; they stay known, and no label loses its last
        document in `semantics`. "second": from the second half, as its Table 1 counts for
        MagTag5K; some of them are then the documents of test instances.
    validation : int or float
        How many, as a count or a share of that half (in the paper: 300, and 35 % of HSUN's).
    test_from : {"second", "both"}
        Whether instances of the first half are tested as well. "both" is the paper's MagTag5K:
        the own documents of those instances are among the known ones.
    by_group : bool
        Whether groups that the corpus names stay on one side: halves are drawn by whole groups,
        and training instances whose group has a test instance are left out.
    random_state : int, numpy Generator or None
    """
    check_option("validation_from", validation_from, ("first", "second"), owner="within_corpus")
    check_option("test_from", test_from, ("second", "both"), owner="within_corpus")
    _check_size(validation, owner="within_corpus")
    generator = as_generator(random_state)
    clean = _clean_rows(corpus, labels)
    hidden = np.flatnonzero(carries(corpus, labels.unseen))
    all_first, all_second = _halves(corpus, first, by_group, generator)
    first_half = np.intersect1d(all_first, clean)
    second_half = np.intersect1d(all_second, clean)

    # Documents that stop the training of the concept space.
    from_first = validation_from == "first"
    pool = first_half if from_first else second_half
    stopping = _draw_rows(corpus, pool, validation, by_group, generator, keep_labels=from_first)

    # Instances.
    candidates = second_half
    if test_from == "both":
        candidates = np.union1d(first_half, second_half)
    test = np.intersect1d(candidates, hidden)
    train = np.setdiff1d(first_half, hidden)
    return ZeroShotSplit(
        corpus,
        corpus,
        labels,
        semantics=np.setdiff1d(first_half, stopping),
        semantics_validation=stopping,
        semantics_test=np.setdiff1d(second_half, stopping),
        train=_without_groups_of(corpus, train, test, by_group),
        validation=np.setdiff1d(second_half, hidden),
        test=test,
        validation_known=from_first,
        by_group=by_group,
    )


def oov_test(split: ZeroShotSplit) -> ZeroShotSplit:
    """Bring in the instances with oov labels that a within-corpus split leaves out.

    Training instances are the split's own and all that carry seen and oov labels but no unseen
    one, from both halves; test instances are those with an unseen and an oov label, none of which
    the split itself tests (in the paper: OOV_tr and OOV_tst). An instance with oov labels alone
    has no place in the concept space and is in no set. Semantics documents stay as they are in
    `split`, and so does whether groups stay on one side.
    """
    corpus = split.target
    labels = split.labels
    if split.source is not corpus:
        raise InputError("`oov_test` needs a split of one corpus; `cross_corpora` has oov labels.")
    if not labels.oov:
        raise InputError("`oov_test` needs oov labels; draw the labels with an `oov_share`.")
    has_seen = carries(corpus, labels.seen)
    has_unseen = carries(corpus, labels.unseen)
    has_oov = carries(corpus, labels.oov)
    is_test = has_oov & has_unseen
    is_additional = has_oov & ~has_unseen & has_seen
    test = np.flatnonzero(is_test)
    additional = np.flatnonzero(is_additional)
    train = np.union1d(split.train, additional)
    train = _without_groups_of(corpus, train, test, split.by_group)
    return replace(split, train=train, test=test)


def cross_corpora(
    source: ZeroShotSplit | LabelCorpus,
    target: LabelCorpus,
    labels: LabelSplit | None = None,
    *,
    max_oov: int = 2,
    validation: int | float = 0.1,
    validation_share: float = 0.25,
    by_group: bool = True,
    random_state: RandomState = None,
) -> ZeroShotSplit:
    """Divide a target corpus by what another corpus teaches (the cross-corpora test, CCT).

    Usable instances carry at least one label that the source's semantics documents hold and at
    most `max_oov` others. Those with an unseen label are tested; of the others some are held out
    for validation and the rest teach the mapping. Labels are compared after normalisation.

    Parameters
    ----------
    source : ZeroShotSplit or LabelCorpus
        A split of the source, whose semantics sets are taken as they are; or a corpus, whose
        documents without an oov label teach meaning and stop its training.
    target : LabelCorpus
    labels : LabelSplit, optional
        The kinds of the source's labels; a split brings its own.
    max_oov : int
        The most oov labels of a usable instance.
    validation : int or float
        How many of a source corpus' documents stop the training of the concept space: a count or
        a share. They stay known, and no label loses its last document in `semantics`.
    validation_share : float
        Share of the instances without an unseen label to hold out (in the paper: 0.29 and 0.22).
    by_group : bool
        Whether groups that the target names stay on one side: instances whose group has a test
        instance are left out of training and validation, which share no group either.
    random_state : int, numpy Generator or None

    Returns
    -------
    ZeroShotSplit
        Its `labels` are those of the source that semantics documents hold, and, as oov, the
        target's others that usable instances carry.
    """
    check_number("max_oov", max_oov, owner="cross_corpora", low=0, whole=True)
    _check_size(validation, owner="cross_corpora")
    check_number("validation_share", validation_share, owner="cross_corpora", low=0, high=1)
    generator = as_generator(random_state)

    if isinstance(source, ZeroShotSplit):
        if labels is not None:
            raise InputError("`labels` are for a source that is a corpus; a split brings its own.")
        taught = source
    else:
        if labels is None:
            raise InputError("A source that is a corpus needs the kinds of its labels: `labels`.")
        taught = _taught_by_corpus(source, labels, validation, by_group, generator)
    corpus = taught.source
    kinds = taught.labels
    semantics = corpus.select(taught.semantics)
    carried = semantics.used(kinds.vocabulary)
    seen = tuple(label for label in kinds.seen if label in carried)
    unseen = tuple(label for label in kinds.unseen if label in carried)

    # Instances of the target.
    matrix, extra_labels = target.align(seen + unseen)
    first_unseen = len(seen)
    first_oov = len(seen) + len(unseen)
    n_seen = np.diff(matrix[:, :first_unseen].indptr)
    n_unseen = np.diff(matrix[:, first_unseen:first_oov].indptr)
    n_oov = np.diff(matrix[:, first_oov:].indptr)
    has_taught = n_seen + n_unseen > 0
    usable = has_taught & (n_oov <= max_oov)
    hidden = n_unseen > 0
    test = np.flatnonzero(usable & hidden)
    train = np.flatnonzero(usable & ~hidden)
    train = _without_groups_of(target, train, test, by_group)
    tuning = _draw_rows(target, train, float(validation_share), by_group, generator)
    carried = target.select(usable).used(extra_labels)
    oov = tuple(label for label in extra_labels if label in carried)

    # A label that only the stopping documents hold is not taught, so such documents must go.
    stopping = taught.semantics_validation
    if len(stopping):
        has_oov = carries(corpus.select(stopping), oov)
        stopping = stopping[~has_oov]
    return replace(
        taught,
        target=target,
        labels=LabelSplit(seen, unseen, oov),
        semantics_validation=stopping,
        train=np.setdiff1d(train, tuning),
        validation=tuning,
        test=test,
        by_group=by_group,
    )


def _taught_by_corpus(
    corpus: LabelCorpus,
    labels: LabelSplit,
    validation: int | float,
    by_group: bool,
    generator: np.random.Generator,
) -> ZeroShotSplit:
    """Return a split in which a whole corpus teaches meaning, without any instances."""
    clean = _clean_rows(corpus, labels)
    stopping = _draw_rows(corpus, clean, validation, by_group, generator, keep_labels=True)
    nothing = np.empty(0, dtype=np.int64)
    return ZeroShotSplit(
        corpus,
        corpus,
        labels,
        semantics=np.setdiff1d(clean, stopping),
        semantics_validation=stopping,
        semantics_test=nothing,
        train=nothing,
        validation=nothing,
        test=nothing,
        validation_known=True,
        by_group=by_group,
    )


# ---- what is measured


def evaluation_columns(labels: LabelSplit) -> dict[str, tuple[str, ...]]:
    """Return the label columns that each figure is about; a set without labels is left out.

    "training": the seen `labels`; "zsl": seen and unseen ones, which is how the paper's figures add
    up; "zsl-only": the unseen ones; where there are oov labels also "all", the three kinds
    together, and "oov".
    """
    columns = {"training": labels.seen}
    if labels.unseen:
        columns["zsl"] = labels.vocabulary
        columns["zsl-only"] = labels.unseen
    if labels.oov:
        columns["all"] = labels.vocabulary + labels.oov
        columns["oov"] = labels.oov
    return {name: set_labels for name, set_labels in columns.items() if set_labels}


def measure(
    documents: LabelCorpus,
    scores: ArrayLike,
    scored: Labels,
    columns: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, float]]:
    """Measure scores on sets of label columns.

    The candidates are a set's columns and the truth is what a document holds of them. A document
    that holds none is left out of the means over instances; where a label ranks instances, it is
    one that the label does not apply to. A label that has no score comes last.

    Parameters
    ----------
    documents : LabelCorpus
        The true labels of n instances.
    scores : array, shape (n, n_scored)
        Larger is better.
    scored : sequence of str, length n_scored
        The label of each column of `scores`.
    columns : mapping of str to sequence of str
        The sets, as `evaluation_columns` gives them.

    Returns
    -------
    dict of str to dict of str to float
        For each set with a true label: E-MAP, C-MAP, MAP, F1@5, ranking loss, LRAP and AUC in
        percent, and coverage as a rank. A measure that is not defined is left out.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.shape != (len(documents), len(scored)):
        raise InputError(
            f"`scores` of `measure` have shape {table.shape}; expected {len(documents)} documents "
            f"and {len(scored)} scored labels."
        )
    # One more column, of labels without a score.
    unscored = np.full(len(table), -np.inf)
    table = np.column_stack([table, unscored])
    column_by_key = {documents.key(label): column for column, label in enumerate(scored)}
    measures: dict[str, dict[str, float]] = {}
    for name, labels in columns.items():
        matrix, _ = documents.align(labels)
        truth = matrix[:, : len(labels)].toarray()
        if not truth.any():
            continue
        places = [column_by_key.get(documents.key(label), -1) for label in labels]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            values = evaluate(truth, table[:, places])
        measures[name] = {}
        for metric, (title, factor) in MEASURES.items():
            value = values[metric]
            if np.isfinite(value):
                measures[name][title] = factor * value
    return measures
