"""Meaning from one corpus, instances from another (in the paper: the cross-corpora test, CCT).

In: a source, whose documents teach meaning, and a target with instances. Out: a `ZeroShotSplit`
whose oov labels are the target's labels that the source does not teach.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyseme._validation import InputError, RandomState, as_generator, check_number
from polyseme.corpus import LabelCorpus
from polyseme.splits.documents import Rows, draw_rows, filled_rows, without_groups_of
from polyseme.splits.labels import LabelSplit, carries, check_kinds
from polyseme.splits.split import ZeroShotSplit


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
    """Divide a target corpus by what another corpus teaches.

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
        Seeds the choice of documents and instances for validation.

    Returns
    -------
    ZeroShotSplit
        Its `labels` are those of the source that semantics documents hold, and, as oov, the
        target's others that usable instances carry.
    """
    owner = "cross_corpora"
    check_number("max_oov", max_oov, owner=owner, low=0, whole=True)
    check_number("validation_share", validation_share, owner=owner, low=0, high=1)
    generator = as_generator(random_state)
    corpus, kinds, sets, known = _meaning(source, labels, validation, by_group, generator)
    taught = corpus.select(sets[0]).used(kinds.vocabulary)
    seen = tuple(label for label in kinds.seen if label in taught)
    unseen = tuple(label for label in kinds.unseen if label in taught)
    matrix, outside = target.align(seen + unseen)
    n_inside, n_outside = (
        np.diff(sp.csr_matrix(part).indptr)
        for part in (matrix[:, : len(taught)], matrix[:, len(taught) :])
    )
    usable = (n_inside > 0) & (n_outside <= max_oov)
    hidden = np.diff(sp.csr_matrix(matrix[:, len(seen) : len(taught)]).indptr) > 0
    test, rest = np.flatnonzero(usable & hidden), np.flatnonzero(usable & ~hidden)
    if by_group:
        rest = without_groups_of(target, rest, test)
    tuning = draw_rows(
        target, rest, float(validation_share), by_group=by_group, random_state=generator
    )
    carried = target.select(usable).used(outside)
    oov = tuple(label for label in outside if label in carried)
    # A label that only the stopping documents hold is not taught, so such documents must go.
    teaching, stopping, others = sets
    stopping = stopping[~carries(corpus.select(stopping), oov)] if len(stopping) else stopping
    return ZeroShotSplit(
        corpus,
        target,
        LabelSplit(seen, unseen, oov),
        teaching,
        stopping,
        others,
        train=np.setdiff1d(rest, tuning),
        validation=tuning,
        test=test,
        validation_known=known,
        by_group=by_group,
    )


def _meaning(
    source: ZeroShotSplit | LabelCorpus,
    labels: LabelSplit | None,
    validation: int | float,
    by_group: bool,
    generator: np.random.Generator,
) -> tuple[LabelCorpus, LabelSplit, tuple[Rows, Rows, Rows], bool]:
    """Give the source corpus, the kinds of its labels, its semantics sets and validation_known."""
    if isinstance(source, ZeroShotSplit):
        if labels is not None:
            raise InputError(
                "`labels` of `cross_corpora` belong to a source that is a corpus; a split brings "
                "its own."
            )
        sets = (source.semantics, source.semantics_validation, source.semantics_test)
        return source.source, source.labels, sets, source.validation_known
    if labels is None:
        raise InputError(
            "`cross_corpora` needs the kinds of the source's labels; give `labels`, for example "
            "from `labels_by_document_share(source)`."
        )
    check_kinds(source, labels)
    rows = np.flatnonzero(filled_rows(source) & ~carries(source, labels.oov))
    held_out = draw_rows(
        source, rows, validation, by_group=by_group, keep_labels=True, random_state=generator
    )
    return (
        source,
        labels,
        (np.setdiff1d(rows, held_out), held_out, np.empty(0, dtype=np.int64)),
        True,
    )
