"""The label scorer: items and tag sets in, codes and the scores of every label out.

In: a learned space, known documents, labels that are known by name, and corrections learned from
verdicts. Out: a `LabelScorer`, the only place where codes become scores. Who asks has checked it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import InputError, IntArray, first_few
from polyseme.documents.tags import label_preference, rank_blocks
from polyseme.scoring.correction_fit import CorrectionTable
from polyseme.scoring.encoded import EncodedItems
from polyseme.space.calibration import new_label_frequencies
from polyseme.space.concept_space import ConceptSpace, Readout
from polyseme.space.votes import vote_logits

if TYPE_CHECKING:
    from polyseme.scoring.known_documents import KnownDocuments

Features = NDArray[np.float64] | sp.csr_matrix
Items = Features | EncodedItems
Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

METHODS = ("space", "priming")
# What labels score that may not be suggested, and tags that are given.
_LOGIT_BOUNDS, _SHARE_BOUNDS = (-np.inf, np.inf), (0.0, 1.0)
# Rows are scored by blocks in which even a table of so many columns stays small.
_LEAST_COLUMNS = 4096


class NamedLabels(NamedTuple):
    """Labels that are known by name alone."""

    labels: tuple[str, ...]
    likeness: Matrix  # (n_named, n_seen): how like each label of items they are, by their names

    def __repr__(self) -> str:
        """Return the first of them, in a line."""
        return f"NamedLabels({first_few(self.labels)})"


class CodedItems(NamedTuple):
    """Items with all that a single label is scored by; see `LabelScorer.coded`."""

    codes: Matrix  # (n, n_dimensions)
    points: Floats  # (n, n_axes)
    total_votes: Matrix  # of all known documents, (n,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"CodedItems({len(self.codes)} items)"


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class LabelScorer:
    """Score every label from the codes of items or tag sets.

    Columns are in the order of `labels`; what is asked from outside is in the order of classes.

    Attributes
    ----------
    space : ConceptSpace
    store : KnownDocuments
    labels : tuple of str
        Those of documents, then those that are known by name.
    of_items, of_tags : Readout
        How labels are read from codes of items, and of tag sets; with weights of float32, as codes.
    kinds : array of str, shape (n_labels,)
        "seen", "unseen" or "oov".
    in_use : bool array, shape (n_labels,)
        Which labels may be suggested.
    implications : sequence of (int, int)
        Columns of labels that imply another: the other scores at least as much.
    class_columns : int64 array, shape (n_classes,), or None
        The column of each class, -1 where no document holds it; None where they are the same.
    corrections : CorrectionTable
        What verdicts add to the logits of items.
    """

    space: ConceptSpace
    store: KnownDocuments
    labels: tuple[str, ...]
    of_items: Readout
    of_tags: Readout
    kinds: NDArray[np.str_]
    in_use: NDArray[np.bool_]
    implications: Sequence[tuple[int, int]] = ()
    class_columns: IntArray | None = None
    corrections: CorrectionTable = field(default_factory=lambda: CorrectionTable.of({}))

    @classmethod
    def fit(
        cls,
        space: ConceptSpace,
        store: KnownDocuments,
        named: NamedLabels,
        n_fitted: int,
        name_share: float,
        likeness: Matrix,
    ) -> Self:
        """Fit readouts of labels that the space has learned, that came later, and by name.

        Parameters
        ----------
        space : ConceptSpace
        store : KnownDocuments
        named : NamedLabels
        n_fitted : int
            How many of the known documents the space has learned from.
        name_share : float
            The share of names in reading unseen labels.
        likeness : float64 array, shape (n_unseen, n_seen)
            How like seen labels each unseen one is by name; empty where names have no share.
        """
        learned = (space.readout(), space.readout(of_items=False))
        if name_share:
            learned = space.mixed_with_names(*learned, likeness, name_share)
        readouts = [learned]

        # Labels that came later are read by the documents that hold them.
        new_columns = store.matrix[:, store.n_learned :]
        if new_columns.shape[1]:
            rows = np.flatnonzero(np.diff(new_columns.indptr))
            codes = space.encode_documents(store.matrix[rows][:, : store.n_learned])
            counts = store.counts[store.n_learned :].astype(np.float64)
            n_added = len(store.ids) - n_fitted
            frequencies = new_label_frequencies(counts, len(rows), n_added, space.typical_frequency)
            readouts.append(space.readout_of_documents(codes, new_columns[rows], frequencies))
        if named.labels:
            readouts.append(space.readout_of_names(named.likeness))

        item_readouts, tag_readouts = zip(*readouts, strict=True)
        labels = store.labels + named.labels
        kinds = np.full(len(labels), "oov")
        in_use = np.ones(len(labels), dtype=bool)
        of_items = _concatenate(item_readouts)
        of_tags = _concatenate(tag_readouts)
        return cls(space, store, labels, of_items, of_tags, kinds, in_use)

    # ------------------------------------------------------------------ codes

    def codes(self, features: Items | None, tags: sp.csr_matrix | None) -> Floats:
        """Return the codes of a block of items, tag sets over all labels, or both.

        New labels have no place in codes.
        """
        learned_tags = None if tags is None else sp.csr_matrix(tags[:, : self.store.n_learned])
        if features is None:
            assert learned_tags is not None and tags is not None
            has_tags = np.diff(tags.indptr) > 0
            has_learned = np.diff(learned_tags.indptr) > 0
            rows_without = np.flatnonzero(has_tags & ~has_learned)
            if len(rows_without):
                self.check_learned(tags[rows_without[0]].indices)
            return self.space.encode_documents(learned_tags)
        if isinstance(features, EncodedItems):
            if features.codes is not None and learned_tags is None:
                return features.codes
            features = features.table()
        return self.space.encode_items(features, learned_tags).codes

    def all_codes(self, features: Items | None, tags: sp.csr_matrix | None) -> Floats:
        """Return the codes of any number of items or tag sets, (n, n_dimensions)."""
        n = n_rows(features, tags)
        codes = np.empty((n, self.space.n_dimensions), dtype=np.float32)
        for rows in self._blocks(n):
            block_features = None if features is None else features[rows]
            block_tags = None if tags is None else tags[rows]
            codes[rows] = self.codes(block_features, block_tags)
        return codes

    def check_learned(self, columns: IntArray) -> None:
        """Raise where all given tags are newer than the space, which cannot encode them."""
        if len(columns) and (columns >= self.store.n_learned).all():
            label = self.labels[columns[0]]
            raise InputError(
                f"'{label}' came after the concept space was learned, so nothing can be concluded "
                "from it alone; give further tags, or fit anew."
            )

    def encode(self, features: Features, ids: list[str] | None, most_bytes: int) -> EncodedItems:
        """Encode items once, with what is kept of them in no more memory than `most_bytes`."""
        space = self.space
        n = features.shape[0]
        # Room is left for logits first, then for projections, then for codes.
        logit_bytes = 8 * n * len(self.labels)
        free_bytes = most_bytes - 4 * n * space.projection_size
        keeps_projections = free_bytes >= logit_bytes
        keeps_codes = free_bytes - 4 * n * space.n_dimensions >= logit_bytes
        if keeps_codes:
            free_bytes -= 4 * n * space.n_dimensions

        items = EncodedItems(features, ids, space.digest_, free_bytes)
        if keeps_projections:
            items.projections = np.empty((n, space.projection_size), dtype=np.float32)
            for rows in self._blocks(n):
                items.projections[rows] = space.project(items[rows].table())
        if keeps_codes:
            items.codes = self.all_codes(items, None)
        return items

    # ------------------------------------------------------------------ all labels

    def plain_logits(self, codes: Floats) -> Matrix:
        """Score every label by codes of items, (n, n_labels), without corrections."""
        weights, intercepts = self.of_items
        logits = codes @ weights + intercepts
        if self.space.priming:
            n_learned = self.store.n_learned
            points = self.space.points(codes)
            shares = self.store.vote_shares(points)
            # The readout has its share in its weights already; see `votes.mix`.
            logits[:, :n_learned] += vote_logits(shares[:, :n_learned], self.space.priming)
        return np.asarray(logits)

    def tag_logits(self, codes: Floats) -> Matrix:
        """Score every label by codes of tag sets, (n, n_labels)."""
        weights, intercepts = self.of_tags
        return np.asarray(codes @ weights + intercepts)

    def logits(self, codes: Floats, features: Items | None) -> Matrix:
        """Score every label by codes of items or tag sets, (n, n_labels), with corrections."""
        if features is None:
            return self.tag_logits(codes)
        logits = self.plain_logits(codes)
        if len(self.corrections.columns):
            additions = self.corrections.additions(self._projections(features))
            logits[:, self.corrections.columns] += additions
        return logits

    def vote_shares(self, codes: Floats) -> Matrix:
        """Return the share of known documents near each code that hold a label, (n, n_labels)."""
        shares = np.zeros((len(codes), len(self.labels)))
        points = self.space.points(codes)
        n_voted_for = len(self.store.labels)
        shares[:, :n_voted_for] = self.store.vote_shares(points)
        return shares

    def score(
        self,
        features: Items | None,
        tags: sp.csr_matrix | None,
        method: str = "space",
        kinds: Collection[str] | None = None,
        columns: Sequence[int] | None = None,
    ) -> Iterator[tuple[slice, Matrix]]:
        """Score every class for items, some rows at a time.

        Parameters
        ----------
        features : array, csr matrix or EncodedItems, shape (n, n_features), or None
        tags : csr matrix, shape (n, n_labels), or None
            Tags that are given, which are certain.
        method : {"space", "priming"}
            Logits, or shares of votes.
        kinds : collection of {"seen", "unseen", "oov"}, optional
            Labels of other kinds have the lowest score.
        columns : sequence of int, optional
            Score these alone, in their order; only they imply each other.

        Yields
        ------
        rows : slice
        scores : float64 array, shape (n_rows, n_classes) or (n_rows, n_columns)
            They may be changed.
        """
        lowest, highest = _SHARE_BOUNDS if method == "priming" else _LOGIT_BOUNDS
        is_unused = ~self.in_use
        if kinds is not None:
            is_unused |= ~self.are_of_kinds(kinds)
        corrections = self.corrections
        implications = self.implications
        if columns is not None:
            is_unused = is_unused[np.array(columns)]
            corrections = corrections.select(columns)
            implications = _within(implications, columns)
        unused = np.flatnonzero(is_unused)
        is_of_items = features is not None and method == "space"
        is_corrected = is_of_items and len(corrections.columns) > 0
        cached_logits = None
        if is_of_items and tags is None and isinstance(features, EncodedItems):
            cached_logits = self._cached_logits(features)

        for rows in self._blocks(n_rows(features, tags)):
            block_features = None if features is None else features[rows]
            block_tags = None if tags is None else tags[rows]
            if cached_logits is not None:
                scores = cached_logits[rows].copy() if columns is None else cached_logits[rows]
            else:
                codes = self.codes(block_features, block_tags)
                if method == "priming":
                    scores = self.vote_shares(codes)
                elif block_features is None:
                    scores = self.tag_logits(codes)
                else:
                    scores = self.plain_logits(codes)
            if columns is not None:
                scores = scores[:, columns]
            if is_corrected:
                assert block_features is not None
                additions = corrections.additions(self._projections(block_features))
                scores[:, corrections.columns] += additions

            # What a label implies is at least as likely as the label.
            own_scores = scores.copy() if implications else scores
            for source, target in implications:
                np.maximum(scores[:, target], own_scores[:, source], out=scores[:, target])
            scores[:, unused] = lowest
            if block_tags is not None:
                is_given = block_tags.toarray() > 0
                scores[is_given if columns is None else is_given[:, columns]] = highest
            yield rows, scores if columns is not None else self.in_class_order(scores, lowest)

    def in_class_order(self, values: Matrix, missing: float) -> Matrix:
        """Return values of labels (..., n_labels) as those of classes, (..., n_classes)."""
        if self.class_columns is None:
            return values
        return np.where(self.class_columns < 0, missing, values[..., self.class_columns])

    def are_of_kinds(self, kinds: Collection[str]) -> NDArray[np.bool_]:
        """Return which labels are of some kinds, (n_labels,)."""
        is_wanted = np.isin(self.kinds, list(kinds))
        if "seen" in kinds:
            # Also those on training items that no label set holds: they are as well known.
            is_wanted[self.space.seen_columns] = True
        return np.asarray(is_wanted)

    @cached_property
    def preference(self) -> IntArray:
        """The order of classes with equal scores, (n_classes,): the commoner label is first."""
        counts = np.zeros(len(self.labels))
        n_held = len(self.store.labels)
        counts[:n_held] = self.store.counts
        return label_preference(self.in_class_order(counts, 0))

    def thresholds(self, seen_threshold: float, unseen_threshold: float) -> Matrix:
        """Return how likely each class must be, (n_classes,): seen labels, and all others."""
        thresholds = np.full(len(self.labels), unseen_threshold)
        thresholds[self.space.seen_columns] = seen_threshold
        return self.in_class_order(thresholds, 1.0)

    # ------------------------------------------------------------------ one label

    def is_voted_for(self, column: int) -> bool:
        """Whether known documents have a part in the logits of a label."""
        return bool(self.space.priming) and column < self.store.n_learned

    def total_votes(self, codes: Floats) -> Matrix:
        """Sum up the votes of all known documents for items, (n,), where they have a part."""
        if not self.space.priming:
            return np.zeros(len(codes))
        points = self.space.points(codes)
        return self.store.total_votes(points)

    def coded(self, codes: Floats, total_votes: Matrix) -> CodedItems:
        """Return items whose labels are to be scored one at a time, from their codes and votes."""
        points = self.space.points(codes)
        return CodedItems(codes.astype(np.float64), points, total_votes)

    def label_logits(self, items: CodedItems, column: int) -> Matrix:
        """Score one label of encoded items, (n,), without corrections.

        It costs no more where there are many other labels, and many documents that do not hold it.
        """
        weights, intercepts = self.of_items
        logits = items.codes @ weights[:, column] + intercepts[column]
        if self.is_voted_for(column):
            shares = self.store.label_vote_shares(items.points, column, items.total_votes)
            logits += vote_logits(shares, self.space.priming)
        return np.asarray(logits)

    def highest_source(
        self, features: Features | None, tags: sp.csr_matrix | None, column: int
    ) -> int:
        """Return the column whose score a label of an item has: its own, or one that implies it."""
        sources = [source for source, target in self.implications if target == column]
        if not sources:
            return column
        codes = self.codes(features, tags)
        (logits,) = self.logits(codes, features)
        return max([column, *sources], key=lambda source: logits[source])

    # ------------------------------------------------------------------ parts

    def _blocks(self, n: int) -> list[slice]:
        """Return the rows, of n, that are scored at a time."""
        n_columns = max(len(self.labels), _LEAST_COLUMNS)
        return rank_blocks(n, n_columns)

    def _cached_logits(self, items: EncodedItems) -> Matrix | None:
        """Return the cached logits of encoded items, without corrections, (n, n_labels)."""
        settings = np.array([self.space.priming, self.space.context])
        matrix = self.store.matrix
        # While all of these are the same, so are the logits.
        sources: list[NDArray[Any]] = [
            self.store.points,
            self.store.sets,
            matrix.indices,
            matrix.indptr,
            self.of_items.weights,
            self.of_items.intercepts,
            settings,
        ]
        return items.logits(sources, len(self.labels), self._all_plain_logits)

    def _all_plain_logits(self, items: EncodedItems) -> Matrix:
        """Score every label of encoded items, (n, n_labels), without corrections."""
        logits = np.empty((len(items), len(self.labels)))
        for rows in self._blocks(len(items)):
            codes = self.codes(items[rows], None)
            logits[rows] = self.plain_logits(codes)
        return logits

    def _projections(self, features: Items) -> Floats:
        """Return the projections of items, (n, projection_size)."""
        if not isinstance(features, EncodedItems):
            return self.space.project(features)
        if features.projections is not None:
            return features.projections
        return self.space.project(features.table())


def n_rows(features: Items | None, tags: sp.csr_matrix | None) -> int:
    """Return how many items features or tags are of; one of the two may be missing."""
    if features is not None:
        return int(features.shape[0])
    assert tags is not None
    return int(tags.shape[0])


def _within(pairs: Sequence[tuple[int, int]], columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of columns that are both among some, by their places among these."""
    place_by_column = {column: place for place, column in enumerate(columns)}
    places = []
    for source, target in pairs:
        if source in place_by_column and target in place_by_column:
            source_place = place_by_column[source]
            target_place = place_by_column[target]
            places.append((source_place, target_place))
    return places


def _concatenate(readouts: Sequence[Readout]) -> Readout:
    """Return the readouts of several groups of labels as one."""
    weight_tables = [readout.weights for readout in readouts]
    intercepts = [readout.intercepts for readout in readouts]
    weights = np.concatenate(weight_tables, axis=1, dtype=np.float32)
    return Readout(weights, np.concatenate(intercepts))
