"""How labels are read: items and tag sets in, codes and the logits of every label out.

In: a learned space, known documents, and labels that are known by name. Out: a `Reading`, which
codes what is asked about and reads every label from the codes. Who asks has checked it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._threads import one_blas_thread
from polyseme._validation import InputError, IntArray, first_few
from polyseme.calibration import logit, new_label_frequencies
from polyseme.corrections import CorrectionTable
from polyseme.encoded import EncodedItems
from polyseme.space import ConceptSpace, Readout
from polyseme.store import ConceptStore
from polyseme.tags import rank_blocks

Features = NDArray[np.float64] | sp.csr_matrix
Items = Features | EncodedItems
Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

METHODS = ("space", "priming")
# Rows are coded by blocks that a table of so many numbers a row leaves, however many labels are
# read from them: codes depend on the rows beside them in their last bits.
_CODED = 4096


def coded_blocks(n: int) -> list[slice]:
    """Return the rows that are coded together, of n."""
    return rank_blocks(n, _CODED)


class NamedLabels(NamedTuple):
    """Labels that are known by name alone."""

    labels: tuple[str, ...]
    likeness: Matrix  # (n_named, n_seen): how like each label of items they are, by their names

    def __repr__(self) -> str:
        """Return the first of them, in a line."""
        return f"NamedLabels({first_few(self.labels)})"


class CodedItems(NamedTuple):
    """Items with all that labels are read from, one at a time; see `Reading.coded`."""

    codes: Matrix  # (n, n_dimensions)
    points: Floats  # (n, n_axes)
    total_votes: Matrix  # of all known documents, (n,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"CodedItems({len(self.codes)} items)"


@dataclass(frozen=True)
class Reading:
    """How every label is read from codes.

    Attributes
    ----------
    space : ConceptSpace
    store : ConceptStore
        The documents that are known.
    labels : tuple of str
        Those of documents, then those that are known by name.
    of_items, of_tags : Readout
        How labels are read from codes of items, and of tag sets; with weights of float32, as codes.
    """

    space: ConceptSpace
    store: ConceptStore
    labels: tuple[str, ...]
    of_items: Readout
    of_tags: Readout

    @classmethod
    def learn(
        cls,
        space: ConceptSpace,
        store: ConceptStore,
        named: NamedLabels | None,
        n_fitted: int,
        name_share: float,
        likeness: Matrix,
    ) -> Self:
        """Learn how labels are read that the space has learned, that came later, and by name.

        Parameters
        ----------
        space : ConceptSpace
        store : ConceptStore
        named : NamedLabels or None
        n_fitted : int
            How many of the known documents the space has learned from.
        name_share : float
            The share of names in reading unseen labels.
        likeness : float64 array, shape (n_unseen, n_seen)
            How like seen labels each unseen one is by name; empty where names have no share.
        """
        of_learned = (space.readout(), space.readout(of_items=False))
        if name_share:
            of_learned = space.mixed_with_names(*of_learned, likeness, name_share)
        readouts = [of_learned]
        labels = store.labels

        # Labels that came later are read by the documents that hold them.
        new_columns = store.matrix[:, store.n_learned :]
        if new_columns.shape[1]:
            rows = np.flatnonzero(np.diff(new_columns.indptr))
            codes = space.document_codes(store.matrix[rows][:, : store.n_learned])
            counts = store.counts[store.n_learned :].astype(np.float64)
            n_added = len(store.ids) - n_fitted
            frequencies = new_label_frequencies(counts, len(rows), n_added, space.typical_frequency)
            readouts.append(space.readout_of_documents(codes, new_columns[rows], frequencies))
        if named is not None:
            readouts.append(space.readout_of_names(named.likeness))
            labels += named.labels

        item_readouts, tag_readouts = zip(*readouts, strict=True)
        return cls(space, store, labels, _joined(item_readouts), _joined(tag_readouts))

    def codes(self, features: Items | None, tags: sp.csr_matrix | None) -> Floats:
        """Code a block of items, tag sets over all labels, or both; see `coded_blocks`.

        New labels have no place in codes.
        """
        learned = None if tags is None else sp.csr_matrix(tags[:, : self.store.n_learned])
        if features is None:
            assert learned is not None and tags is not None
            has_learned = np.diff(learned.indptr) > 0
            has_tags = np.diff(tags.indptr) > 0
            new_alone = np.flatnonzero(has_tags & ~has_learned)
            if len(new_alone):
                self.refuse_new(tags[new_alone[0]].indices)
            return self.space.document_codes(learned)
        if isinstance(features, EncodedItems):
            if features.codes is not None and learned is None:
                return features.codes
            features = features.table()
        return self.space.views(features, learned).codes

    def refuse_new(self, columns: IntArray) -> None:
        """Raise where all given tags are newer than the space, which cannot code them."""
        if len(columns) and (columns >= self.store.n_learned).all():
            label = self.labels[columns[0]]
            raise InputError(
                f"'{label}' came after the concept space was learned, so nothing can be concluded "
                "from it alone; give further tags, or fit anew."
            )

    def plain_logits(self, codes: Floats) -> Matrix:
        """Read every label from codes of items, (n, n_labels), without corrections."""
        logits = codes @ self.of_items.weights + self.of_items.intercepts
        if self.space.priming:
            n_learned = self.store.n_learned
            votes = self.store.votes(self.space.points(codes))[:, :n_learned]
            logits[:, :n_learned] += self.space.priming * logit(votes)
        return np.asarray(logits)

    def is_voted_for(self, column: int) -> bool:
        """Whether known documents have a part in the logits of a label."""
        return bool(self.space.priming) and column < self.store.n_learned

    def total_votes(self, codes: Floats) -> Matrix:
        """Sum up the votes of all known documents for items, (n,), where they have a part."""
        if not self.space.priming:
            return np.zeros(len(codes))
        return self.store.total_votes(self.space.points(codes))

    def coded(self, codes: Floats, total_votes: Matrix) -> CodedItems:
        """Return items whose labels are to be read one at a time, from their codes and votes."""
        return CodedItems(codes.astype(np.float64), self.space.points(codes), total_votes)

    def label_logits(self, items: CodedItems, column: int) -> Matrix:
        """Read one label of coded items, (n,), without corrections.

        It costs no more where there are many other labels, and many documents that do not hold it.
        """
        # To the bit the same wherever among others the label stands.
        weights = np.ascontiguousarray(self.of_items.weights[:, column])
        logits = items.codes @ weights + self.of_items.intercepts[column]
        if self.is_voted_for(column):
            votes = self.store.label_votes(items.points, column, items.total_votes)
            logits += self.space.priming * logit(votes)
        return np.asarray(logits)

    def logits(
        self, codes: Floats, features: Features | None, corrections: CorrectionTable
    ) -> Matrix:
        """Read every label from codes, (n, n_labels), as answers correct them."""
        if features is None:
            return self._tag_logits(codes)
        logits = self.plain_logits(codes)
        if len(corrections.columns):
            logits[:, corrections.columns] += corrections.additions(self.space.sketch(features))
        return logits

    def _tag_logits(self, codes: Floats) -> Matrix:
        """Read every label from codes of tag sets, (n, n_labels)."""
        return np.asarray(codes @ self.of_tags.weights + self.of_tags.intercepts)

    def blocks(
        self,
        features: Items | None,
        tags: sp.csr_matrix | None,
        corrections: CorrectionTable,
        method: str = "space",
        columns: Sequence[int] | None = None,
        *,
        plain: bool = False,
    ) -> Iterator[tuple[slice, Matrix, sp.csr_matrix | None]]:
        """Read labels, some rows at a time.

        Parameters
        ----------
        features : array, csr matrix or EncodedItems, shape (n, n_features), or None
        tags : csr matrix, shape (n, n_labels), or None
        corrections : CorrectionTable
            What answers add.
        method : {"space", "priming"}
        columns : sequence of int, optional
            Read these alone.
        plain : bool
            Leave corrections out, and what is kept of logits.

        Yields
        ------
        rows : slice
        scores : float64 array, shape (n_rows, n_columns)
            Logits, or shares of votes; they may be changed.
        tags : csr matrix, shape (n_rows, n_labels), or None
        """
        n = (features if features is not None else tags).shape[0]  # type: ignore[union-attr]
        of_items = features is not None and method == "space"
        if columns is not None:
            corrections = corrections.select(columns)
        are_corrected = of_items and not plain and len(corrections.columns) > 0
        cached_logits = None
        if isinstance(features, EncodedItems) and of_items and tags is None and not plain:
            cached_logits = self._cached_logits(features)
        for block in coded_blocks(n):
            block_features = None if features is None else features[block]
            block_tags = None if tags is None else tags[block]
            codes = None
            if cached_logits is None:
                codes = self.codes(block_features, block_tags)
            sketches = None
            if block_features is not None and are_corrected:
                sketches = self._sketches(block_features)
            # A block is also a table over known documents.
            for within in rank_blocks(block.stop - block.start, max(len(self.labels), 4096)):
                rows = slice(block.start + within.start, block.start + within.stop)
                if codes is None:
                    assert cached_logits is not None
                    scores = cached_logits[rows]
                    if columns is None:
                        scores = scores.copy()
                elif method == "priming":
                    scores = self._vote_shares(codes[within])
                elif block_features is None:
                    scores = self._tag_logits(codes[within])
                else:
                    scores = self.plain_logits(codes[within])
                if columns is not None:
                    scores = scores[:, columns]
                if sketches is not None:
                    with one_blas_thread():  # too small a product for several
                        scores[:, corrections.columns] += corrections.additions(sketches[within])
                yield rows, scores, None if block_tags is None else block_tags[within]

    def _vote_shares(self, codes: Floats) -> Matrix:
        """Return the share of known documents near each code that hold a label, (n, n_labels)."""
        shares = np.zeros((len(codes), len(self.labels)))
        shares[:, : len(self.store.labels)] = self.store.votes(self.space.points(codes))
        return shares

    def _cached_logits(self, items: EncodedItems) -> Matrix | None:
        """Return the cached logits of encoded items, without corrections, (n, n_labels)."""
        matrix = self.store.matrix
        space = self.space
        state: list[NDArray[Any]] = [self.store.points, self.store.sets]
        state += [matrix.indices, matrix.indptr, *self.of_items]
        state.append(np.array([space.priming, space.context]))

        def read(all_items: EncodedItems) -> Matrix:
            table = np.empty((len(all_items), len(self.labels)))
            no_corrections = CorrectionTable.of({})
            for rows, logits, _ in self.blocks(all_items, None, no_corrections, plain=True):
                table[rows] = logits
            return table

        return items.logits(state, len(self.labels), read)

    def _sketches(self, features: Items) -> Floats:
        """Return the sketches of items, (n, n_sketch)."""
        if not isinstance(features, EncodedItems):
            return self.space.sketch(features)
        if features.sketches is not None:
            return features.sketches
        return self.space.sketch(features.table())


def _joined(readouts: Sequence[Readout]) -> Readout:
    """Return the readouts of several groups of labels as one."""
    weights = [readout.weights for readout in readouts]
    intercepts = [readout.intercepts for readout in readouts]
    return Readout(np.concatenate(weights, axis=1, dtype=np.float32), np.concatenate(intercepts))
