"""The test on instances with oov labels, within one corpus.

In: a within-corpus split whose labels include oov ones. Out: the same split with other training
and test instances (in the paper: OOV_tr and OOV_tst).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyseme._validation import InputError
from polyseme.splits.documents import without_groups_of
from polyseme.splits.labels import carries
from polyseme.splits.split import ZeroShotSplit


def oov_test(split: ZeroShotSplit) -> ZeroShotSplit:
    """Bring in the instances with oov labels that a within-corpus split leaves out.

    Training instances are the split's own and all that carry seen and oov labels but no unseen
    one, from both halves; test instances are those with an unseen and an oov label, none of which
    the split itself tests. An instance with oov labels alone has no place in the concept space
    and is in no set. The semantics documents stay as they are.

    Parameters
    ----------
    split : ZeroShotSplit
        From `within_corpus`. Where it keeps groups on one side, so does the result.

    Returns
    -------
    ZeroShotSplit
    """
    corpus, labels = split.target, split.labels
    if split.source is not corpus:
        raise InputError(
            "`oov_test` needs a split of one corpus; `cross_corpora` has its oov labels already."
        )
    if not labels.oov:
        raise InputError(
            "`oov_test` needs oov labels, but the split has none; draw the labels with an "
            "`oov_share`."
        )
    outside, hidden = carries(corpus, labels.oov), carries(corpus, labels.unseen)
    more = np.flatnonzero(outside & ~hidden & carries(corpus, labels.seen))
    test = np.flatnonzero(outside & hidden)
    train = np.union1d(split.train, more)
    return replace(
        split, train=without_groups_of(corpus, train, test) if split.by_group else train, test=test
    )
