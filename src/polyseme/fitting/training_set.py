"""What a tagger is fitted to: items, tag sets, items without tags and verdicts, brought together.

In: whatever `ZeroShotTagger.fit` takes. Out: a `TrainingSet` of checked tables over one list of
labels, and what people have said of its rows.
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

from polyseme.base.extractors import FeatureExtractor, fitted_copy
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

Features = NDArray[np.float64] | sp.csr_matrix
Floats = NDArray[np.float32]

# Items whose vectors are kept at a time.
_PLACED = 4096
# So many items, and such a share of all, may have the same features by chance.
_EQUAL_ITEMS, _EQUAL_SHARE = 2, 0.1


@dataclass(frozen=True)
class TrainingSet:
    """Items and tag sets that a space learns from.

    Attributes
    ----------
    corpus : LabelCorpus
        The labels of each item, in the order of the features.
    sets : LabelCorpus
        The tag sets that teach what labels mean, without labels that none of them holds.
    documents : LabelCorpus
        The corpus under the names that its documents have among the tag sets.
    labels : tuple of str
        Those of the label sets, then others that items carry.
    seen : frozenset of str
        Labels of the label sets that items carry.
    features : array or csr matrix, shape (n, n_features), or None
    pool : array or csr matrix, shape (n_pool, n_features), or None
        Items without tags.
    names : tuple of (list of str or None)
        What tells items apart, and those of the pool; None where only their numbers do.
    columns : tuple of str or None
        Names of the features.
    extractor : FeatureExtractor or None
        What made them, with what it has learned.
    """

    corpus: LabelCorpus
    sets: LabelCorpus
    documents: LabelCorpus
    labels: tuple[str, ...]
    seen: frozenset[str]
    features: Features | None
    pool: Features | None
    names: tuple[list[str] | None, list[str] | None]
    columns: tuple[str, ...] | None
    extractor: FeatureExtractor | None

    @property
    def items(self) -> LabelCorpus:
        """The labels of each row: of an item, or of a label set where there are no features."""
        return self.sets if self.features is None else self.corpus

    @cached_property
    def tables(self) -> TrainingTables:
        """The documents of label sets and items over all labels."""
        return training_tables(self.taught, self.sets, self.labels)

    @property
    def taught(self) -> LabelCorpus:
        """The documents of the rows, named as among the tag sets."""
        return self.sets if self.features is None else self.documents

    @property
    def n_features(self) -> int:
        """Columns of the features; 0 where there are none."""
        return 0 if self.features is None else self.features.shape[1]

    @property
    def n_pool(self) -> int:
        """Items without tags."""
        return 0 if self.pool is None else self.pool.shape[0]

    def parts(self) -> list[tuple[Features, int]]:
        """Return the features of items and of the pool, each with the number of its first row."""
        tables = ((self.features, 0), (self.pool, len(self.items)))
        return [(table, first) for table, first in tables if table is not None]

    def rows(self) -> dict[str, int]:
        """Return which rows names stand for: those of items, then those of the pool.

        Where items have no names, numbers are those of the pool, if it has none either.
        """
        item_names, pool_names = self.names
        pool_has_numbers = self.pool is not None and pool_names is None
        if not self.items.numbered or (item_names is None and not pool_has_numbers):
            item_names = list(self.items.ids)
        if pool_names is None:
            pool_names = [str(row) for row in range(self.n_pool)]

        rows = {name: row for row, name in enumerate(item_names or ())}
        first_of_pool = len(self.items)
        for row, name in enumerate(pool_names, start=first_of_pool):
            rows[name] = row
        return rows

    def answered(
        self,
        verdicts: Iterable[Verdict],
        rows: Mapping[str, int],
        column: Callable[[str], int | None],
        *,
        pooled: bool,
    ) -> tuple[sp.csr_matrix | None, Features | None]:
        """Return what people said of rows, and the part of the pool that is learned from.

        Parameters
        ----------
        verdicts : iterable of Verdict
        rows : mapping of str to int
            As `rows` gives them.
        column : callable
            Gives the column of a label, None where it is not there.
        pooled : bool
            Whether all of the pool is learned from, or only what people have answered for.
        """
        n_items = len(self.items)
        shape = (n_items + self.n_pool, len(self.labels))
        answers = answer_table(verdicts, rows, column, shape)
        if self.pool is None or pooled:
            return answers, self.pool
        if answers is None:
            return None, None

        answer_counts = np.diff(answers.indptr)
        answered_rows = np.flatnonzero(answer_counts[n_items:])
        learned_rows = np.concatenate([np.arange(n_items), n_items + answered_rows])
        learned_answers = sp.csr_matrix(answers[learned_rows])
        if not len(answered_rows):
            return learned_answers, None
        return learned_answers, self.pool[answered_rows]

    def place_answered(
        self, feedback: Feedback, space: ConceptSpace, rows: Mapping[str, int]
    ) -> Feedback:
        """Keep the vectors of items that verdicts are about, in a space; give what is then known.

        Parameters
        ----------
        feedback : Feedback
        space : ConceptSpace
        rows : mapping of str to int
            As `rows` gives them.
        """
        if self.features is None or not len(feedback):
            return feedback
        items = feedback.items()
        row_by_item = {item: rows[item] for item in items if item in rows}
        absent_items = [item for item in items if item not in rows]
        former_vectors = feedback.vectors(absent_items)
        n_lost = len(absent_items) - len(former_vectors)
        if n_lost:
            warnings.warn(
                f"Verdicts on {n_lost} items are kept but not learned from: these items are among "
                "neither X nor `unlabelled`.",
                PolysemeWarning,
                stacklevel=3,
            )
        for table, first in self.parts():
            table_rows = range(first, first + table.shape[0])
            table_items = [item for item, row in row_by_item.items() if row in table_rows]
            for start in range(0, len(table_items), _PLACED):
                block_items = table_items[start : start + _PLACED]
                numbers = np.array([row_by_item[item] - first for item in block_items])
                vectors = item_vectors(space, table[numbers])
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
    normalize : bool
        Whether labels that differ only in case or white space are one.
    seed : int
        Of the extractor.
    verbose : bool
    owner : str
        Who asks, for sentences about what is wrong.
    """
    corpus = vocabulary.apply(as_corpus(y, normalize=normalize))
    table, corpus = in_order_of(X, y, corpus)
    further = None
    if label_sets is not None:
        further = vocabulary.apply(as_corpus(label_sets, normalize=normalize))
    sets, documents = teaching_corpora(corpus, further, label_sets_only=label_sets_only)
    check_corpus(sets, owner=owner)
    if X is not None and label_sets_only:
        check_corpus(corpus, owner=owner, n_labels=1)
    elif X is not None:
        check_labels(corpus, owner=owner, n_labels=1)  # of the empty ones was told just now
    named, learned = table, None
    if extractor is not None and X is not None and is_learned:
        learned, table = extractor, extractor.transform(table)
    elif extractor is not None and X is not None:
        with working(f"learning {extractor.kind} features", verbose=verbose):
            learned, table = fitted_copy(extractor, table, seed)
    features = None if table is None else check_instances(table, len(corpus), owner=owner)
    if features is not None:
        _warn_of_equal_items(features)
    pool, columns = None, column_names(named)
    if unlabelled is not None:
        if features is None:
            raise InputError("Items without tags are learned from beside others; give X, too.")
        with working("reading items without tags", verbose=verbose):
            pool = _pool(unlabelled, learned, columns, features, owner)
    sets = sets.without_unused()
    items = sets if X is None else corpus
    seen = frozenset() if X is None else corpus.used(sets.labels)
    if X is not None and not seen:
        raise InputError(
            "No item carries a label of the label sets, so nothing can be learned of "
            "how they go together; check that both use the same labels."
        )
    return TrainingSet(
        corpus,
        sets,
        documents,
        sets.labels + items.without_unused().align(sets.labels)[1],
        seen,
        features,
        pool,
        (item_names(named), item_names(unlabelled)),
        None if extractor is not None else columns,
        learned,
    )


def _warn_of_equal_items(features: Features) -> None:
    """Warn where many items have the very same features, as blank pictures do."""
    counts = Counter(_row_hashes(features))
    _, n_equal = counts.most_common(1)[0]
    if n_equal > max(_EQUAL_ITEMS, _EQUAL_SHARE * counts.total()):
        warnings.warn(
            f"{n_equal:,} of {counts.total():,} items have the same features: nothing can be "
            "learned that tells these apart. Look whether they are blank, silent or damaged.",
            PolysemeWarning,
            stacklevel=4,
        )


def warn_of_lost_features(features: Features, space: ConceptSpace) -> None:
    """Warn where features that vary are not learned from by a space, as they vary by too little."""
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
            yield hash(row.tobytes())
        return
    starts = features.indptr.tolist()
    for start, end in pairwise(starts):
        columns = features.indices[start:end].tobytes()
        values = features.data[start:end].tobytes()
        yield hash((columns, values))


def _pool(
    unlabelled: Any,
    extractor: FeatureExtractor | None,
    columns: tuple[str, ...] | None,
    features: Features,
    owner: str,
) -> Features:
    """Check items without tags against those with tags; give features of the same form."""
    if extractor is not None:
        table = extractor.transform(unlabelled)
    else:
        table = in_order(split_ids(unlabelled)[0], columns, owner=owner)
    pool = check_features(table, owner=owner, n_features=features.shape[1])
    if sp.issparse(features) and not sp.issparse(pool):
        return sp.csr_matrix(pool)
    if sp.issparse(pool) and not sp.issparse(features):
        return np.asarray(pool.toarray())
    return pool
