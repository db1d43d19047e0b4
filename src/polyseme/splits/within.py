"""One corpus for meaning and for instances (in the paper: the within-corpus test, WCT).

In: a corpus and the kinds of its labels. Out: a `ZeroShotSplit` with the sets of Table 1.
"""

from __future__ import annotations

import numpy as np

from polyseme._validation import RandomState, as_generator, check_option
from polyseme.corpus import LabelCorpus
from polyseme.splits.documents import draw_rows, filled_rows, halves, without_groups_of
from polyseme.splits.labels import LabelSplit, carries, check_kinds
from polyseme.splits.split import ZeroShotSplit


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
    """Divide one corpus into the sets of the paper's Table 1.

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
        Seeds whatever is drawn.

    Returns
    -------
    ZeroShotSplit
    """
    owner = "within_corpus"
    check_option("validation_from", validation_from, ("first", "second"), owner=owner)
    check_option("test_from", test_from, ("second", "both"), owner=owner)
    check_kinds(corpus, labels)
    generator = as_generator(random_state)
    one, two = halves(corpus, first, by_group=by_group, random_state=generator)
    clean = np.flatnonzero(filled_rows(corpus) & ~carries(corpus, labels.oov))
    hidden = np.flatnonzero(carries(corpus, labels.unseen))
    one, two = np.intersect1d(one, clean), np.intersect1d(two, clean)
    from_first = validation_from == "first"
    held_out = draw_rows(
        corpus,
        one if from_first else two,
        validation,
        by_group=by_group,
        keep_labels=from_first,
        random_state=generator,
    )
    test = np.intersect1d(np.union1d(one, two) if test_from == "both" else two, hidden)
    train = np.setdiff1d(one, hidden)
    return ZeroShotSplit(
        corpus,
        corpus,
        labels,
        semantics=np.setdiff1d(one, held_out),
        semantics_validation=held_out,
        semantics_test=np.setdiff1d(two, held_out),
        train=without_groups_of(corpus, train, test) if by_group else train,
        validation=np.setdiff1d(two, hidden),
        test=test,
        validation_known=from_first,
        by_group=by_group,
    )
