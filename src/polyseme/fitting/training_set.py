"""What a tagger is fitted to: items, tag sets, items without tags and verdicts, brought together.

In: whatever `ZeroShotTagger.fit` takes. Out: a `TrainingSet` of checked tables over one list of
labels, and what people have said of its rows.

Terms: *items* have features and, where they are not of the pool, tags. The *pool* are items without
tags (`unlabelled`). *Label sets* (tag sets) teach what labels mean. *Rows* are numbered: items with
tags first, then the pool.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.extractors import FeatureExtractor, fitted_copy, n_item_columns
from polyseme.base.progress import working
from polyseme.base.validation import (
    InputError,
    PolysemeWarning,
    check_features,
    check_instances,
    column_names,
    in_order,
)
from polyseme.documents.corpus import (
    Documents,
    LabelCorpus,
    as_corpus,
    check_corpus,
    check_labels,
    in_order_of,
)
from polyseme.documents.label_sets import TrainingTables, teaching_corpora, training_tables
from polyseme.documents.vocabulary import Vocabulary
from polyseme.feedback.standing_verdicts import Feedback, answer_table
from polyseme.feedback.verdict_log import Verdict
from polyseme.io.join import split_ids
from polyseme.scoring.encoded import item_names, item_vectors
from polyseme.space.concept_space import ConceptSpace
from polyseme.space.features import first_columns

Features = NDArray[np.float64] | sp.csr_matrix
Floats = NDArray[np.float32]

# Items that are encoded, and whose vectors are written to the log, at a time.
_BLOCK_ITEMS = 4096
# So many items, or such a share of all, may have the same features by chance.
_EQUAL_ITEMS = 2
_EQUAL_SHARE = 0.1


@dataclass(frozen=True)
class TrainingSet:
    """Items and tag sets that a space learns from, checked; nobody may change them.

    Attributes
    ----------
    corpus : LabelCorpus
        The labels of each item, in the order of the features.
    sets : LabelCorpus
        The tag sets that teach what labels mean, without labels that none of them holds. Items' own
        documents are among them, unless `label_sets_only` is set.
    documents : LabelCorpus
        The corpus under the names that its documents have among the tag sets.
    labels : tuple of str
        Those of the label sets, then others that items carry.
    seen : frozenset of str
        Labels of the label sets that items carry.
    features : array or csr matrix, shape (n, n_features), or None
        The columns that describe items.
    all_features : array or csr matrix, shape (n, n_all_features), or None
        Those, and columns that are for names of labels alone.
    pool : array or csr matrix, shape (n_pool, n_features), or None
        Features of items without tags, dense or sparse as those of the items.
    names : tuple of (list of str or None)
        What tells items apart, and those of the pool; None where only their row numbers do.
    feature_names : tuple of str or None
        Names of the columns of the features; None where they have none, or an extractor made them.
    extractor : FeatureExtractor or None
        What made the features, with what it has learned.
    column_labels : tuple of str
        The labels of the items in the order in which they were given, under the vocabulary's names:
        several may have become one, and labels that only others imply are not among them.
    """

    corpus: LabelCorpus
    sets: LabelCorpus
    documents: LabelCorpus
    labels: tuple[str, ...]
    seen: frozenset[str]
    features: Features | None
    all_features: Features | None
    pool: Features | None
    names: tuple[list[str] | None, list[str] | None]
    feature_names: tuple[str, ...] | None
    extractor: FeatureExtractor | None
    column_labels: tuple[str, ...]

    @property
    def items(self) -> LabelCorpus:
        """The labels of each row: of an item, or of a label set where there are no features."""
        return self.sets if self.features is None else self.corpus

    @cached_property
    def tables(self) -> TrainingTables:
        """The documents of label sets and items over `labels`, in this order of columns."""
        return training_tables(self.row_documents, self.sets, self.labels)

    @property
    def row_documents(self) -> LabelCorpus:
        """The labels of each row, as `items` has them, under their names among the tag sets."""
        return self.sets if self.features is None else self.documents

    @property
    def n_features(self) -> int:
        """Columns of the features; 0 where there are none."""
        return 0 if self.features is None else self.features.shape[1]

    @property
    def n_all_features(self) -> int:
        """Columns of all features; 0 where there are none."""
        return 0 if self.all_features is None else self.all_features.shape[1]

    @property
    def n_pool(self) -> int:
        """Items without tags."""
        return 0 if self.pool is None else self.pool.shape[0]

    def feature_tables(self) -> list[tuple[Features, int]]:
        """Return the features of items and of the pool, each with the number of its first row."""
        tables: list[tuple[Features, int]] = []
        if self.features is not None:
            tables.append((self.features, 0))
        if self.pool is not None:
            n_items = len(self.items)
            tables.append((self.pool, n_items))
        return tables

    def row_by_name(self) -> dict[str, int]:
        """Return the row of each item by the name that verdicts call it.

        Items without names are called by their row numbers as text, "0", "1" …. If neither items
        nor the pool have names, these are the numbers within the pool: people are asked about items
        without tags. A name that both have is that of the pool's item.
        """
        item_names, pool_names = self.names
        pool_has_numbers = self.pool is not None and pool_names is None
        have_names = not self.items.numbered
        take_numbers = item_names is None and not pool_has_numbers
        if have_names or take_numbers:
            item_names = list(self.items.ids)
        if item_names is None:
            item_names = []
        if pool_names is None:
            pool_names = list(map(str, range(self.n_pool)))

        rows: dict[str, int] = {}
        for row, name in enumerate(item_names):
            rows[name] = row
        first_of_pool = len(self.items)
        for row, name in enumerate(pool_names, start=first_of_pool):
            rows[name] = row
        return rows

    def answered(
        self,
        verdicts: Iterable[Verdict],
        rows: Mapping[str, int],
        column_of: Callable[[str], int | None],
        *,
        pooled: bool,
    ) -> tuple[sp.csr_matrix | None, Features | None]:
        """Return what people said of rows, and the part of the pool that is learned from.

        Parameters
        ----------
        verdicts : iterable of Verdict
        rows : mapping of str to int
            The row of each item by its name, as `row_by_name` returns them.
        column_of : callable
            Returns the column of a label in `labels`, None where it is not there.
        pooled : bool
            Whether all of the pool is learned from, or only what people have answered for.

        Returns
        -------
        answers : csr_matrix, shape (n + n_learned_pool, n_labels), or None
            1 for yes, -1 for no, as `answer_table` makes it; None without any.
        pool : array or csr matrix, shape (n_learned_pool, n_features), or None
        """
        n_items = len(self.items)
        n_labels = len(self.labels)
        shape = (n_items + self.n_pool, n_labels)
        answers = answer_table(verdicts, rows, column_of, shape)
        if self.pool is None or pooled:
            return answers, self.pool
        if answers is None:
            return None, None

        answer_counts = np.diff(answers.indptr)
        answered_pool = np.flatnonzero(answer_counts[n_items:])  # rows of the pool
        item_rows = np.arange(n_items)
        learned_rows = np.concatenate([item_rows, n_items + answered_pool])
        learned_answers = sp.csr_matrix(answers[learned_rows])
        if not len(answered_pool):
            return learned_answers, None
        return learned_answers, self.pool[answered_pool]

    def store_answered_vectors(
        self, feedback: Feedback, space: ConceptSpace, rows: Mapping[str, int]
    ) -> Feedback:
        """Write the vectors that answered items have in a space to the log of verdicts.

        Corrections are fitted to these vectors, so that nobody needs the features later. Answered
        items that are absent here keep the vectors that the log has; without any, a warning says
        how many are not learned from.

        Parameters
        ----------
        feedback : Feedback
            The verdicts, for this space.
        space : ConceptSpace
            Fitted.
        rows : mapping of str to int
            The row of each item by its name, as `row_by_name` returns them.

        Returns
        -------
        Feedback
            With the vectors that the log has now.
        """
        if self.features is None or not len(feedback):
            return feedback
        row_by_item: dict[str, int] = {}
        absent_items: list[str] = []
        for item in feedback.items():
            if item in rows:
                row_by_item[item] = rows[item]
            else:
                absent_items.append(item)
        former_vectors = feedback.vectors(absent_items)
        n_lost = len(absent_items) - len(former_vectors)
        if n_lost:
            warnings.warn(
                f"Verdicts on {n_lost} items are kept but not learned from: these items are among "
                "neither X nor `unlabelled`.",
                PolysemeWarning,
                stacklevel=3,
            )
        for table, first_row in self.feature_tables():
            n_rows = table.shape[0]
            table_rows = range(first_row, first_row + n_rows)
            table_items: list[str] = []
            places: list[int] = []  # of these items in the table
            for item, row in row_by_item.items():
                if row in table_rows:
                    table_items.append(item)
                    places.append(row - first_row)
            for start in range(0, len(table_items), _BLOCK_ITEMS):
                block = slice(start, start + _BLOCK_ITEMS)
                block_places = np.array(places[block])
                block_features = table[block_places]
                vectors = item_vectors(space, block_features)
                block_items = table_items[block]
                vector_by_item = dict(zip(block_items, vectors, strict=True))
                feedback.log.append([], vector_by_item, feedback.space_digest)
        feedback, _ = feedback.refreshed()
        return feedback


def gather(
    X: object,
    y: Documents,
    label_sets: Documents | None = None,
    unlabelled: object = None,
    *,
    label_sets_only: bool = False,
    extractor: FeatureExtractor | None,
    is_learned: bool = False,
    vocabulary: Vocabulary,
    normalize: bool,
    seed: int,
    verbose: bool,
    owner: str,
) -> TrainingSet:
    """Check everything that a fit is given, and bring it together.

    Parameters
    ----------
    X, y, label_sets, unlabelled, label_sets_only : as for `ZeroShotTagger.fit`
    extractor : FeatureExtractor or None
        Learns from X what it has to learn, as a copy.
    is_learned : bool
        Whether the extractor has learned already, and stays as it is.
    vocabulary : Vocabulary
        Which labels are blocked, renamed or merged before anything else.
    normalize : bool
        Whether labels that differ only in case or white space are one.
    seed : int
        Of the extractor.
    verbose : bool
    owner : str
        The estimator that asks, for sentences about what is wrong.

    Raises
    ------
    InputError
        Where something cannot be learned from; the sentence says what and how to mend it.
    """
    given_corpus = as_corpus(y, normalize=normalize)
    column_labels = tuple(vocabulary.resolve(label) for label in given_corpus.labels)
    corpus = vocabulary.apply(given_corpus)
    X_in_order, corpus = in_order_of(X, y, corpus)
    further_sets = None
    if label_sets is not None:
        further_sets = vocabulary.apply(as_corpus(label_sets, normalize=normalize))
    sets, documents = teaching_corpora(corpus, further_sets, label_sets_only=label_sets_only)
    check_corpus(sets, owner=owner)
    if X is not None and label_sets_only:
        check_corpus(corpus, owner=owner, n_labels=1)
    elif X is not None:
        # The check of the sets, which hold these documents, has warned of empty ones already.
        check_labels(corpus, owner=owner, n_labels=1)

    # Features, with an extractor that has learned from X where there is one.
    table = X_in_order
    learned_extractor = None
    if extractor is not None and X is not None:
        if is_learned:
            learned_extractor = extractor
            table = extractor.transform(X_in_order)
        else:
            with working(f"learning {extractor.kind} features", verbose=verbose):
                learned_extractor, table = fitted_copy(extractor, X_in_order, seed)
    features = None
    all_features = None
    if table is not None:
        all_features = check_instances(table, len(corpus), owner=owner)
        features = _item_columns(all_features, learned_extractor)
        _warn_of_equal_items(features)
    feature_names = column_names(X_in_order)
    pool = None
    if unlabelled is not None:
        if features is None:
            raise InputError("Items without tags are learned from beside others; give X, too.")
        with working("reading items without tags", verbose=verbose):
            pool = _pool_features(unlabelled, learned_extractor, feature_names, features, owner)

    # Labels: those of the sets, then others of the items.
    sets = sets.without_unused()
    items = sets if X is None else corpus
    seen: frozenset[str] = frozenset()
    if X is not None:
        seen = corpus.used(sets.labels)
        if not seen:
            raise InputError(
                "No item carries a label of the label sets, so nothing can be learned of "
                "how they go together; check that both use the same labels."
            )
    used_items = items.without_unused()
    _, further_labels = used_items.align(sets.labels)
    return TrainingSet(
        corpus=corpus,
        sets=sets,
        documents=documents,
        labels=sets.labels + further_labels,
        seen=seen,
        features=features,
        all_features=all_features,
        pool=pool,
        names=(item_names(X_in_order, extractor), item_names(unlabelled, extractor)),
        feature_names=feature_names if extractor is None else None,
        extractor=learned_extractor,
        column_labels=column_labels,
    )


def _item_columns(table: Any, extractor: FeatureExtractor | None) -> Any:
    """Return the columns of features that describe items, dense where they are cut."""
    if extractor is None:
        return table
    n_columns = n_item_columns(extractor)
    return table if n_columns is None else first_columns(table, n_columns)


def _warn_of_equal_items(features: Features) -> None:
    """Warn where many items have the very same features, as blank pictures do."""
    counts = Counter(_row_hashes(features))
    ((_, n_equal),) = counts.most_common(1)
    n_items = counts.total()
    most_equal = max(_EQUAL_ITEMS, _EQUAL_SHARE * n_items)
    if n_equal > most_equal:
        warnings.warn(
            f"{n_equal:,} of {n_items:,} items have the same features: nothing can be learned "
            "that tells these apart. Look whether they are blank, silent, damaged or copies.",
            PolysemeWarning,
            stacklevel=4,
        )


def warn_of_lost_features(features: Features, space: ConceptSpace) -> None:
    """Warn where features vary by so little that a fitted space does not learn from them."""
    n_lost = len(space.lost_features(features))
    if n_lost:
        warnings.warn(
            f"{n_lost:,} of {features.shape[1]:,} features vary by less than a billionth of their "
            "size, or by less than 1e-150, and are not learned from; subtract their means, or "
            "scale them, first.",
            PolysemeWarning,
            stacklevel=3,
        )


def _row_hashes(features: Features) -> Iterator[int]:
    """Yield a hash of each row, equal for equal rows."""
    if not sp.issparse(features):
        for row in features:
            content = row.tobytes()
            yield hash(content)
        return
    bounds = features.indptr.tolist()
    for start, end in pairwise(bounds):
        columns = features.indices[start:end]
        values = features.data[start:end]
        content = (columns.tobytes(), values.tobytes())
        yield hash(content)


def _pool_features(
    unlabelled: Any,
    extractor: FeatureExtractor | None,
    feature_names: tuple[str, ...] | None,
    features: Features,
    owner: str,
) -> Features:
    """Return the features of items without tags, checked against those of items with tags.

    Parameters
    ----------
    unlabelled : what `ZeroShotTagger.fit` takes
    extractor : FeatureExtractor or None
        That of the items, with what it has learned.
    feature_names : tuple of str or None
        Those of the items; columns of a table are put in their order.
    features : array or csr matrix, shape (n, n_features)
        Those of the items.
    owner : str
        The estimator that asks, for sentences about what is wrong.

    Returns
    -------
    array or csr matrix, shape (n_pool, n_features)
        Sparse or dense as the items' features are.
    """
    if extractor is not None:
        table = _item_columns(extractor.transform(unlabelled), extractor)
    else:
        rows, _ = split_ids(unlabelled)
        table = in_order(rows, feature_names, owner=owner)
    n_features = features.shape[1]
    pool = check_features(table, owner=owner, n_features=n_features)
    is_sparse = sp.issparse(features)
    if sp.issparse(pool):
        return pool if is_sparse else np.asarray(pool.toarray())
    return sp.csr_matrix(pool) if is_sparse else pool
