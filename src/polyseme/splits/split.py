"""The sets of one trial: who teaches meaning, who is mapped, and who is tested.

In: corpora, kinds of labels and row numbers, made by `within`, `oov` and `cross`. Out: a
`ZeroShotSplit`, which hands out the documents of each set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, check_option
from polyseme.corpus import LabelCorpus
from polyseme.documents import unmet_documents
from polyseme.splits.documents import Rows
from polyseme.splits.labels import LabelSplit

Part = Literal["train", "validation", "test"]
SEMANTICS = ("semantics", "semantics_validation", "semantics_test")
INSTANCES = ("train", "validation", "test")


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
            rows = np.unique(np.asarray(getattr(self, name), dtype=np.int64))
            corpus = self.source if name in SEMANTICS else self.target
            if len(rows) and not (rows[0] >= 0 and rows[-1] < len(corpus)):
                raise InputError(
                    f"`{name}` of `ZeroShotSplit` must hold rows in 0..{len(corpus) - 1}; "
                    f"got {rows[0]}..{rows[-1]}."
                )
            object.__setattr__(self, name, rows)

    def teaching(self) -> LabelCorpus:
        """Give the documents that teach the concept space, over the vocabulary (S_tr)."""
        return self._semantics(self.semantics)

    def held_out(self) -> LabelCorpus:
        """Give the documents that stop the training of the concept space (S_val)."""
        return self._semantics(self.semantics_validation)

    def known(self) -> LabelCorpus:
        """Give the label documents whose concepts labels are ranked by.

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

    def instances(self, part: Part) -> LabelCorpus:
        """Give the documents of "train", "validation" or "test" instances, oov labels included."""
        check_option("part", part, INSTANCES, owner="ZeroShotSplit.instances")
        return replace(self.target.select(getattr(self, part)), numbered=False)

    def unmet_instances(self, part: Part) -> LabelCorpus:
        """Give the documents of "train", "validation" or "test" that `known` does not hold yet.

        They are named as a tagger names them.
        """
        return unmet_documents(self.instances(part), self.known())

    def own_documents(self) -> NDArray[np.bool_]:
        """Say which test instances have their own document among the known ones, (n_test,)."""
        if self.source is not self.target:
            return np.zeros(len(self.test), dtype=bool)
        return np.isin(self.test, self.known_rows)

    def sizes(self) -> dict[str, int]:
        """Count labels of each kind, the target's documents, and the rows of each set."""
        counts = {kind: len(getattr(self.labels, kind)) for kind in ("seen", "unseen", "oov")}
        counts["documents"] = len(self.target)
        return counts | {name: len(getattr(self, name)) for name in SEMANTICS + INSTANCES}

    def _semantics(self, rows: Rows) -> LabelCorpus:
        """Give source documents over the vocabulary, under the source's own names."""
        # Made-up numbers become names, so that a document is recognised in every set.
        return replace(self.source.select(rows).restrict(self.labels.vocabulary), numbered=False)
