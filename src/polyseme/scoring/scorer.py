"""The label scorer: items and tag sets in, codes and the scores of every label out.

In: a learned space, known documents, labels that are known by name, and corrections learned from
verdicts. Out: a `LabelScorer`, the only place where codes become scores. Callers have checked what
they pass; `ZeroShotTagger` does.

Terms:

- Labels have *columns*, in three groups: those that the space has learned (`store.n_learned`),
  new ones that documents hold (up to `len(store.labels)`), and those known by name alone.
- *Classes* are the labels in the order of the public `classes_`; see `class_columns`.
- A *code* is the vector of an item or a tag set; a *readout* the linear map from codes to logits.
- *Points* are codes on the principal axes of the space, at length 1 (directions), where known
  documents vote: the nearer they are, the more. The votes are the method "priming", and a share
  `space.priming` of the logits of learned labels.
- *Corrections* are what verdicts add to the logits of items, and *names* what labels' names do.
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
    from polyseme.scoring.name_evidence import NameReadout

Features = NDArray[np.float64] | sp.csr_matrix
Items = Features | EncodedItems
Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

# What a score may be: a logit, or a share of the votes of known documents.
METHODS = ("space", "priming")
# The scores of labels that may not be suggested, and of tags that are given.
_LOGIT_BOUNDS = (-np.inf, np.inf)
_SHARE_BOUNDS = (0.0, 1.0)
# Blocks of rows are as small as if there were at least so many labels: codes take memory, too.
_LEAST_COLUMNS = 4096


class NamedLabels(NamedTuple):
    """Labels that are known by name alone."""

    labels: tuple[str, ...]  # (n_named,)
    likeness: Matrix  # (n_named, n_seen): how like each label of items they are, by their names

    def __repr__(self) -> str:
        """Return the first of them, in a line."""
        first_labels = first_few(self.labels)
        return f"NamedLabels({first_labels})"


class CodedItems(NamedTuple):
    """A block of items as `LabelScorer.label_logits` takes it, which scores one label at a time.

    It is prepared once, by `LabelScorer.coded`, for all labels. What users encode and index is
    `EncodedItems`.
    """

    codes: Matrix  # (n, n_dimensions)
    points: Floats  # the codes' directions, (n, n_axes)
    total_votes: Matrix  # the sum of the votes of all known documents, (n,); 0 without priming

    def __repr__(self) -> str:
        """Return its size, in a line."""
        n_items = len(self.codes)
        return f"CodedItems({n_items} items)"


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class LabelScorer:
    """Score every label from the codes of items or tag sets.

    Columns are in the order of `labels`; what is asked from outside is in the order of classes.
    A scorer is replaced rather than changed: threads rank with it while another one is made.

    Attributes
    ----------
    space : ConceptSpace
    store : KnownDocuments
    labels : tuple of str
        Those of documents (`store.labels`), then those that are known by name.
    item_readout, tag_readout : Readout
        How labels are read from codes of items, and of tag sets; with weights of float32, as codes.
    kinds : array of str, shape (n_labels,)
        "seen", "unseen" or "oov".
    in_use : bool array, shape (n_labels,)
        Which labels may be suggested: neither blocked nor without a document.
    implications : sequence of (int, int)
        Columns (source, target) of labels of which the first implies the second: the second
        scores at least as much.
    class_columns : int64 array, shape (n_classes,), or None
        The column of each class, -1 where no document holds it; None where they are the same.
    corrections : CorrectionTable
        What verdicts add to the logits of items.
    names : NameReadout or None
        What the likeness of items and labels' names adds to the logits of items.
    """

    space: ConceptSpace
    store: KnownDocuments
    labels: tuple[str, ...]
    item_readout: Readout
    tag_readout: Readout
    kinds: NDArray[np.str_]
    in_use: NDArray[np.bool_]
    implications: Sequence[tuple[int, int]] = ()
    class_columns: IntArray | None = None
    corrections: CorrectionTable = field(default_factory=lambda: CorrectionTable.of({}))
    names: NameReadout | None = None

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
            The share of names in reading unseen labels, between 0 and 1.
        likeness : float64 array, shape (n_unseen, n_seen)
            How like seen labels each unseen one is by name; empty where names have no share.

        Returns
        -------
        LabelScorer
            Every label is "oov" and in use, and none implies another: `FittedTagger` replaces
            these by what it knows.
        """
        learned_readouts = (space.readout(), space.readout(of_items=False))
        if name_share:
            learned_readouts = space.mixed_with_names(*learned_readouts, likeness, name_share)
        # Pairs of readouts, of items and of tag sets, for each group of columns.
        readout_pairs = [learned_readouts]

        # Labels that came later are read by the documents that hold them.
        new_columns = store.matrix[:, store.n_learned :]
        if new_columns.shape[1]:
            n_new_labels = np.diff(new_columns.indptr)  # of each document
            rows = np.flatnonzero(n_new_labels)
            learned_tags = store.matrix[rows][:, : store.n_learned]
            codes = space.encode_documents(learned_tags)
            counts = store.counts[store.n_learned :].astype(np.float64)
            n_added = len(store.ids) - n_fitted
            frequencies = new_label_frequencies(
                counts,
                len(rows),
                n_added,
                space.typical_frequency,
            )
            readout_pair = space.readout_of_documents(codes, new_columns[rows], frequencies)
            readout_pairs.append(readout_pair)
        if named.labels:
            readout_pair = space.readout_of_names(named.likeness)
            readout_pairs.append(readout_pair)

        item_readouts, tag_readouts = zip(*readout_pairs, strict=True)
        labels = store.labels + named.labels
        return cls(
            space,
            store,
            labels,
            item_readout=_concatenate(item_readouts),
            tag_readout=_concatenate(tag_readouts),
            kinds=np.full(len(labels), "oov"),
            in_use=np.ones(len(labels), dtype=bool),
        )

    # ------------------------------------------------------------------ codes

    def codes(self, features: Items | None, tags: sp.csr_matrix | None) -> Floats:
        """Return the codes of a block of items, tag sets over all labels, or both.

        New labels have no place in codes.

        Parameters
        ----------
        features : array, csr matrix or EncodedItems, shape (n, n_features), or None
        tags : csr matrix, shape (n, n_labels), or None
            Tags that are given. One of the two is not None.

        Returns
        -------
        float32 array, shape (n, n_dimensions)
            It may be the cached codes of encoded items, so it must not be changed.
        """
        learned_tags = None
        if tags is not None:
            n_learned = self.store.n_learned
            learned_tags = sp.csr_matrix(tags[:, :n_learned])
        if features is None:
            assert learned_tags is not None and tags is not None
            n_tags = np.diff(tags.indptr)  # of each tag set
            n_learned_tags = np.diff(learned_tags.indptr)
            has_new_tags_only = (n_tags > 0) & (n_learned_tags == 0)
            refused_rows = np.flatnonzero(has_new_tags_only)
            if len(refused_rows):
                refused_tags = tags[refused_rows[0]]
                self.check_learned(refused_tags.indices)
            return self.space.encode_documents(learned_tags)
        if isinstance(features, EncodedItems):
            if features.codes is not None and learned_tags is None:
                return features.codes
            features = features.float64_features()
        encoded = self.space.encode_items(features, learned_tags)
        return encoded.codes

    def all_codes(self, features: Items | None, tags: sp.csr_matrix | None) -> Floats:
        """Return the codes of any number of items or tag sets, block by block.

        Parameters are those of `codes`; the array (n, n_dimensions) belongs to the caller.
        """
        n = n_rows(features, tags)
        n_dimensions = self.space.n_dimensions
        codes = np.empty((n, n_dimensions), dtype=np.float32)
        for rows in self._blocks(n):
            block_features = _rows_of(features, rows)
            block_tags = _rows_of(tags, rows)
            codes[rows] = self.codes(block_features, block_tags)
        return codes

    def check_learned(self, columns: IntArray) -> None:
        """Raise where all tags that are given are newer than the space, which cannot encode them.

        `columns` are those of the tags of one tag set; without any nothing is raised.
        """
        is_new = columns >= self.store.n_learned
        if len(columns) and is_new.all():
            label = self.labels[columns[0]]
            raise InputError(
                f"'{label}' came after the concept space was learned, so nothing can be concluded "
                "from it alone; give further tags, or fit anew."
            )

    def encode(self, features: Features, ids: list[str] | None, most_bytes: int) -> EncodedItems:
        """Encode items once, with what is cached of them in no more memory than `most_bytes`.

        Logits save most time, then projections, then codes, so room is left in this order: codes
        are cached only where projections are, and both only where logits will fit beside them.
        """
        space = self.space
        n = features.shape[0]
        logit_bytes = 8 * n * len(self.labels)  # of float64
        projection_bytes = 4 * n * space.projection_size  # of float32
        code_bytes = 4 * n * space.n_dimensions  # of float32
        free_bytes = most_bytes - projection_bytes
        keeps_projections = free_bytes >= logit_bytes
        keeps_codes = free_bytes - code_bytes >= logit_bytes
        if keeps_codes:
            free_bytes -= code_bytes

        items = EncodedItems(features, ids, space.digest_, free_bytes)
        if keeps_projections:
            projections = np.empty((n, space.projection_size), dtype=np.float32)
            for rows in self._blocks(n):
                block_features = items[rows].float64_features()
                projections[rows] = space.project(block_features)
            projections.setflags(write=False)
            items.projections = projections
        if keeps_codes:
            codes = self.all_codes(items, None)
            codes.setflags(write=False)
            items.codes = codes
        return items

    # ------------------------------------------------------------------ all labels

    def plain_logits(self, codes: Floats, features: Items | None = None) -> Matrix:
        """Score every label of items, (n, n_labels), without corrections.

        `codes` (n, n_dimensions) and `features` (n, n_features) are of the same items; names are
        compared with the latter, or left out where these are None.
        """
        weights, intercepts = self.item_readout
        logits = codes @ weights + intercepts
        priming = self.space.priming
        if priming:
            n_learned = self.store.n_learned
            points = self.space.points(codes)
            shares = self.store.vote_shares(points)
            learned_shares = shares[:, :n_learned]
            # The readout has its share in its weights already; see `votes.mix`.
            logits[:, :n_learned] += vote_logits(learned_shares, priming)
        if self.names is not None and features is not None:
            logits += self.names.additions(_as_table(features))
        return np.asarray(logits)

    def tag_logits(self, codes: Floats) -> Matrix:
        """Score every label by codes of tag sets, (n, n_labels).

        Neither votes nor corrections have a part: both are about items.
        """
        weights, intercepts = self.tag_readout
        logits = codes @ weights + intercepts
        return np.asarray(logits)

    def logits(self, codes: Floats, features: Items | None) -> Matrix:
        """Score every label with corrections, (n, n_labels).

        Parameters
        ----------
        codes : float32 array, shape (n, n_dimensions)
        features : array, csr matrix or EncodedItems, shape (n, n_features), or None
            Of the items that the codes are of; None for codes of tag sets.
        """
        if features is None:
            return self.tag_logits(codes)
        logits = self.plain_logits(codes, features)
        columns = self.corrections.columns
        if len(columns):
            projections = self._projections(features)
            logits[:, columns] += self.corrections.additions(projections)
        return logits

    def vote_shares(self, codes: Floats) -> Matrix:
        """Return the share of known documents' votes near each code that a label gets.

        The array (n, n_labels) has 0 for labels that no document holds.
        """
        n_items = len(codes)
        n_labels = len(self.labels)
        shares = np.zeros((n_items, n_labels))
        points = self.space.points(codes)
        document_shares = self.store.vote_shares(points)
        n_document_labels = len(self.store.labels)
        shares[:, :n_document_labels] = document_shares
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
            Blocks of rows, from the first on.
        scores : float64 array, shape (n_rows, n_classes) or (n_rows, n_columns)
            They belong to the caller, who may change them.
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
        unused_columns = np.flatnonzero(is_unused)
        gives_item_logits = features is not None and method == "space"
        n_corrected = len(corrections.columns)
        is_corrected = gives_item_logits and n_corrected > 0
        cached_logits = None
        if gives_item_logits and tags is None and isinstance(features, EncodedItems):
            cached_logits = self._cached_logits(features)

        n = n_rows(features, tags)
        for rows in self._blocks(n):
            block_features = _rows_of(features, rows)
            block_tags = _rows_of(tags, rows)
            if cached_logits is not None:
                scores = cached_logits[rows]
            else:
                codes = self.codes(block_features, block_tags)
                if method == "priming":
                    scores = self.vote_shares(codes)
                elif block_features is None:
                    scores = self.tag_logits(codes)
                else:
                    scores = self.plain_logits(codes, block_features)
            # From here on scores are changed in place, so cached ones are copied.
            if columns is not None:
                scores = scores[:, columns]
            elif cached_logits is not None:
                scores = scores.copy()
            if is_corrected:
                assert block_features is not None
                projections = self._projections(block_features)
                additions = corrections.additions(projections)
                scores[:, corrections.columns] += additions

            # What a label implies is at least as likely as the label.
            own_scores = scores.copy() if implications else scores
            for source, target in implications:
                target_scores = scores[:, target]
                np.maximum(target_scores, own_scores[:, source], out=target_scores)
            scores[:, unused_columns] = lowest
            if block_tags is not None:
                is_given = block_tags.toarray() > 0
                if columns is not None:
                    is_given = is_given[:, columns]
                scores[is_given] = highest
            if columns is None:
                scores = self.in_class_order(scores, lowest)
            yield rows, scores

    def in_class_order(self, label_values: Matrix, missing: float) -> Matrix:
        """Return values of labels as those of classes.

        Parameters
        ----------
        label_values : array, shape (..., n_labels)
        missing : float
            The value of classes that no document holds.

        Returns
        -------
        array, shape (..., n_classes)
            The argument itself where classes are labels in the same order.
        """
        if self.class_columns is None:
            return label_values
        class_values = label_values[..., self.class_columns]
        return np.where(self.class_columns < 0, missing, class_values)

    def are_of_kinds(self, kinds: Collection[str]) -> NDArray[np.bool_]:
        """Return which labels are of some kinds, (n_labels,)."""
        wanted_kinds = list(kinds)
        is_wanted = np.isin(self.kinds, wanted_kinds)
        if "seen" in kinds:
            # Also those on training items that no label set holds: they are as well known.
            is_wanted[self.space.seen_columns] = True
        return np.asarray(is_wanted)

    @cached_property
    def preference(self) -> IntArray:
        """The classes in the order in which equal scores rank them, (n_classes,): commoner first.

        Read-only, for it is cached.
        """
        counts = np.zeros(len(self.labels))
        n_document_labels = len(self.store.labels)
        counts[:n_document_labels] = self.store.counts
        class_counts = self.in_class_order(counts, 0)
        preference = label_preference(class_counts)
        preference.setflags(write=False)
        return preference

    def thresholds(self, seen_threshold: float, unseen_threshold: float) -> Matrix:
        """Return how likely each class must be to be suggested, (n_classes,).

        One threshold is for labels that training items carry, the other for all others. Classes
        that no document holds are never suggested: they must be certain.
        """
        n_labels = len(self.labels)
        thresholds = np.full(n_labels, unseen_threshold)
        thresholds[self.space.seen_columns] = seen_threshold
        return self.in_class_order(thresholds, 1.0)

    # ------------------------------------------------------------------ one label

    def is_voted_for(self, column: int) -> bool:
        """Whether known documents have a part in the logits of a label."""
        return bool(self.space.priming) and column < self.store.n_learned

    def total_votes(self, codes: Floats) -> Matrix:
        """Sum up the votes of all known documents for items, (n,); 0 where they have no part."""
        if not self.space.priming:
            n_items = len(codes)
            return np.zeros(n_items)
        points = self.space.points(codes)
        return self.store.total_votes(points)

    def coded(self, codes: Floats, total_votes: Matrix) -> CodedItems:
        """Return items as `label_logits` takes them.

        Parameters
        ----------
        codes : float32 array, shape (n, n_dimensions)
        total_votes : float64 array, shape (n,)
            As the method `total_votes` returns them for these codes.
        """
        points = self.space.points(codes)
        return CodedItems(codes.astype(np.float64), points, total_votes)

    def label_logits(self, items: CodedItems, column: int) -> Matrix:
        """Score one label of encoded items, (n,), without corrections and names.

        It costs no more where there are many other labels, and many documents that do not hold it.
        """
        weights, intercepts = self.item_readout
        label_weights = weights[:, column]
        logits = items.codes @ label_weights + intercepts[column]
        if self.is_voted_for(column):
            shares = self.store.label_vote_shares(
                items.points,
                column,
                items.total_votes,
            )
            logits += vote_logits(shares, self.space.priming)
        return np.asarray(logits)

    def highest_source(
        self, features: Features | None, tags: sp.csr_matrix | None, column: int
    ) -> int:
        """Return the column whose score a label has: its own, or one that implies it.

        Parameters
        ----------
        features : array or csr matrix, shape (1, n_features), or None
        tags : csr matrix, shape (1, n_labels), or None
            Tags that are given. One of the two is not None.
        column : int
            The label's.
        """
        candidates = [column]
        for source, target in self.implications:
            if target == column:
                candidates.append(source)
        if len(candidates) == 1:
            return column
        codes = self.codes(features, tags)
        (logits,) = self.logits(codes, features)
        # Of equal ones it is the label itself, as the first.
        return max(candidates, key=lambda candidate: logits[candidate])

    # ------------------------------------------------------------------ parts

    def _blocks(self, n: int) -> list[slice]:
        """Return slices of n rows, each of which is scored at a time, in order."""
        n_columns = max(len(self.labels), _LEAST_COLUMNS)
        return rank_blocks(n, n_columns)

    def _cached_logits(self, items: EncodedItems) -> Matrix | None:
        """Return the cached logits of encoded items, without corrections, (n, n_labels).

        Read-only; None where they do not fit into the cache.
        """
        settings = np.array([self.space.priming, self.space.context])
        matrix = self.store.matrix
        # While all of these are the same, so are the logits. Members of the space are not among
        # them: encoded items belong to one space, whose digest callers compare.
        dependencies: list[NDArray[Any]] = [
            self.store.points,
            self.store.sets,
            matrix.indices,
            matrix.indptr,
            self.item_readout.weights,
            self.item_readout.intercepts,
            settings,
        ]
        if self.names is not None:
            dependencies += self.names.arrays()
        return items.logits(dependencies, len(self.labels), self._all_plain_logits)

    def _all_plain_logits(self, items: EncodedItems) -> Matrix:
        """Score every label of any number of items, (n, n_labels), without corrections."""
        n_items = len(items)
        n_labels = len(self.labels)
        logits = np.empty((n_items, n_labels))
        for rows in self._blocks(n_items):
            block_items = items[rows]
            codes = self.codes(block_items, None)
            logits[rows] = self.plain_logits(codes, block_items)
        return logits

    def _projections(self, features: Items) -> Floats:
        """Return the projections of items, (n, projection_size); cached ones are read-only."""
        if not isinstance(features, EncodedItems):
            return self.space.project(features)
        if features.projections is not None:
            return features.projections
        return self.space.project(features.float64_features())


def _as_table(features: Items) -> Features:
    """Return features as an array or a csr matrix of float64."""
    if isinstance(features, EncodedItems):
        return features.float64_features()
    return features


def _rows_of(table: Any, rows: slice) -> Any:
    """Return some rows of features or tags; None where there are none."""
    return None if table is None else table[rows]


def n_rows(features: Items | None, tags: sp.csr_matrix | None) -> int:
    """Return how many items features or tags are of; one of the two may be missing."""
    if features is not None:
        return int(features.shape[0])
    assert tags is not None
    return int(tags.shape[0])


def _within(
    implications: Sequence[tuple[int, int]], columns: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the implications between labels of some columns, by their places among these."""
    place_by_column = {column: place for place, column in enumerate(columns)}
    pairs_of_places = []
    for source, target in implications:
        source_place = place_by_column.get(source)
        target_place = place_by_column.get(target)
        if source_place is not None and target_place is not None:
            pairs_of_places.append((source_place, target_place))
    return pairs_of_places


def _concatenate(readouts: Sequence[Readout]) -> Readout:
    """Return the readouts of several groups of labels as one, with weights of float32."""
    weight_tables = [readout.weights for readout in readouts]
    label_intercepts = [readout.intercepts for readout in readouts]
    weights: Any = np.concatenate(
        weight_tables,
        axis=1,
        dtype=np.float32,
    )
    intercepts = np.concatenate(label_intercepts)
    return Readout(weights, intercepts)
