"""Whether a fit can start from a former one, and which documents both of them have.

In: a former space with the keys of its documents, and what a new fit learns from. Out: the former
folds of documents, or the reason why the new fit has to start from nothing.

Terms: *documents* are the rows of a training set, label sets first, then documents of items that
are not among these; *items without tags* (the pool) follow. The *fold* of a document is the one
whose members have never seen it, and it must stay so. *Keys* are how a document is found again.
Of a training set, `sets` are the label sets and `corpus` the documents of items; either is
*numbered* where its ids are no names but numbers of rows. `names` has the names that came with the
features of items and of the pool, and `tables.item_documents` the document of each item, its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.extractors import FeatureExtractor
from polyseme.base.validation import InputError, IntArray
from polyseme.fitting.training_set import TrainingSet
from polyseme.space.concept_space import ConceptSpace
from polyseme.space.features import Features, column_statistics
from polyseme.space.training import SpacePlan

Keys = NDArray[np.uint64]

# A warm start is refused below these shares of former items that are found again, and of labels
# that the former fit knew.
_LEAST_SHARE_OF_ITEMS = 0.5
_LEAST_SHARE_OF_LABELS = 0.5
# It is refused if more than this share of features is spread otherwise than it was: the mean by
# more than a spread, or the spread by more than this factor.
_MOST_SHARE_OF_CHANGED_FEATURES = 0.1
_MOST_SPREAD_RATIO = 2.0
# Parameters of an extractor that say nothing about what it makes of items, once it has learned.
_NOT_COMPARED = ("device", "n_jobs", "random_state")
# Bytes of a key. Keys are saved with a model (docs/own-data.md): other digests would not be found.
_KEY_BYTES = 8


class ColdStartError(InputError):
    """A fit cannot start from a former one; the sentence says why."""


class DocumentKeys(NamedTuple):
    """By what documents, and then items without tags, are found again in a later fit.

    Each key is a digest of 64 bits; 0 where there is none. They are saved with a model.
    """

    names: Keys  # of items and of named label sets, (n,)
    items: Keys  # by the features of the document's item, (n,)
    tags: Keys  # by the set of labels, 0 for items without tags, (n,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        n_keys = len(self.names)
        return f"DocumentKeys({n_keys} documents and items)"

    @classmethod
    def of(cls, data: TrainingSet) -> DocumentKeys:
        """Return the keys of the documents of a training set, in their order.

        Names that were made up, or may be numbers of rows, are no keys: another document may have
        them next time.
        """
        tables = data.tables
        documents = tables.documents
        n_documents = documents.shape[0]
        name_keys = np.zeros(n_documents, dtype=np.uint64)
        if not data.sets.numbered:
            set_names = list(map(_name_or_none, data.sets.ids))
            n_sets = len(set_names)
            name_keys[:n_sets] = _digests(set_names)

        labels = np.asarray(data.labels, dtype=object)
        texts = []
        for start, end in pairwise(documents.indptr):
            columns = documents.indices[start:end]
            sorted_tags = sorted(labels[columns])  # in whatever order they were given
            texts.append("\0".join(sorted_tags))
        tag_keys = _digests(texts)

        item_keys = np.zeros(n_documents, dtype=np.uint64)
        if data.features is not None:
            rows = tables.item_documents
            item_names, _pool_names = data.names
            # Ids of tags come first: saved models have their keys.
            if not data.corpus.numbered:
                item_names = list(data.corpus.ids)
            name_keys[rows] = 0  # a label set's name does not count where it is an item's document
            if item_names is not None:
                name_keys[rows] = _digests(item_names)
            item_keys[rows] = feature_digests(data.features)
        return cls(name_keys, item_keys, tag_keys)

    def with_pool(self, pool: Features | None) -> DocumentKeys:
        """Return them followed by the keys of items without tags, which are their features."""
        if pool is None:
            return self
        digests = feature_digests(pool)
        no_keys = np.zeros_like(digests)
        return DocumentKeys(
            names=np.concatenate([self.names, no_keys]),
            items=np.concatenate([self.items, digests]),
            tags=np.concatenate([self.tags, no_keys]),
        )

    def folds_among(self, former: DocumentKeys, folds: IntArray) -> IntArray:
        """Return the former fold of each document and item, -1 for new ones, (n,).

        A document is looked for by its item's features first, then by its name, then by its tags.

        Parameters
        ----------
        former : DocumentKeys
            Of all that the former fit learned from.
        folds : int64 array, shape (n_former,)
            The fold of each of these.
        """
        n_keys = len(self.names)
        former_folds = np.full(n_keys, -1, dtype=np.int64)
        # What was an item's is not found by its tags, which others have as well.
        had_no_item = former.items == 0
        tags_of_sets = np.where(had_no_item, former.tags, 0)
        for keys, former_keys in (
            (self.items, former.items),
            (self.names, former.names),
            (self.tags, tags_of_sets),
        ):
            is_new = former_folds < 0
            new_keys = keys[is_new]
            former_folds[is_new] = _folds_of_keys(new_keys, former_keys, folds)
        return former_folds

    @property
    def documents(self) -> NDArray[np.bool_]:
        """Which are documents with labels, which the store of known documents has, (n,)."""
        return np.asarray((self.tags != 0) & (self.tags != _NO_TAGS))

    @property
    def of_items(self) -> NDArray[np.bool_]:
        """Which documents are those of items with tags, (n,)."""
        return np.asarray((self.items != 0) & (self.tags != 0))

    def found_among(self, former: DocumentKeys) -> float:
        """Return the share of the former items that are here, by their features or their names."""
        had_item = former.items != 0
        if not had_item.any():
            return 1.0
        is_item = self.items != 0
        has_name = self.names != 0
        item_keys = self.items[is_item]
        name_keys = self.names[has_name]
        has_same_features = np.isin(former.items, item_keys)
        has_same_name = np.isin(former.names, name_keys)
        is_present = has_same_features | has_same_name
        former_items_present = is_present[had_item]
        return float(former_items_present.mean())


def _name_or_none(name: str) -> str | None:
    """Return a name, or None where it may be the number of a row."""
    return None if _is_number(name) else name


def _is_number(name: str) -> bool:
    """Whether a name may be the number of a row: "7", or "instance:" and whatever follows."""
    if name.startswith("instance:"):  # which a corpus without names calls its documents
        return True
    return name.isdecimal()


def name_digests(names: Iterable[str]) -> Keys:
    """Return the keys of names, (n,)."""
    return _digests(names)


def _digests(texts: Iterable[str | bytes | None]) -> Keys:
    """Return digests of texts or bytes, never 0; 0 for None."""
    digests = []
    for text in texts:
        if text is None:
            digests.append(0)
            continue
        # Names of files may hold what is not valid text, which is encoded as well.
        content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        digest = hashlib.blake2b(content, digest_size=_KEY_BYTES).digest()
        number = int.from_bytes(digest, "little")
        digests.append(max(number, 1))
    return np.array(digests, dtype=np.uint64)


# The key of a document without labels.
_NO_TAGS = _digests([""])[0]


def feature_digests(features: Features) -> Keys:
    """Return digests of the features of items, the same for dense and sparse rows, (n,)."""
    return _digests(_row_contents(features))


def _row_contents(features: Features) -> Iterator[bytes]:
    """Yield, for each row, what tells it apart: columns that are not 0 and their values.

    Values count as float32, so that an item is found again whichever precision it was stored in.
    """
    table: Any = features
    for row_number in range(table.shape[0]):
        row = table[row_number]
        if sp.issparse(table):
            row = row.toarray().ravel()
        dense_row = np.asarray(row)
        nonzero = np.flatnonzero(dense_row)
        columns = nonzero.astype(np.int32)
        values = dense_row[columns]
        single_values = values.astype(np.float32)
        content = columns.tobytes()
        content += single_values.tobytes()
        yield content


def _folds_of_keys(keys: Keys, former_keys: Keys, folds: IntArray) -> IntArray:
    """Return the former fold of each key; -1 where it is new, or was in several folds.

    Parameters
    ----------
    keys : uint64 array, shape (n,)
    former_keys : uint64 array, shape (n_former,)
        0 for former documents without such a key, by which nothing is found.
    folds : int64 array, shape (n_former,)
        Of the former documents.

    Returns
    -------
    int64 array, shape (n,)
    """
    has_key = former_keys != 0
    key_folds = folds[has_key]
    former_keys = former_keys[has_key]
    if not len(former_keys):
        n_keys = len(keys)
        return np.full(n_keys, -1, dtype=np.int64)
    distinct_keys, first_rows, key_numbers = np.unique(
        former_keys,
        return_index=True,
        return_inverse=True,
    )
    distinct_folds = key_folds[first_rows]
    is_other_fold = key_folds != distinct_folds[key_numbers]
    ambiguous_keys = key_numbers[is_other_fold]
    distinct_folds[ambiguous_keys] = -1
    # Distinct keys are sorted, so each key is looked up by bisection.
    insertions = np.searchsorted(distinct_keys, keys)
    last_place = len(distinct_keys) - 1
    places = np.minimum(insertions, last_place)
    is_former = distinct_keys[places] == keys
    found_folds = distinct_folds[places]
    return np.where(is_former, found_folds, -1)


def placed_groups(folds: IntArray, groups: IntArray | None) -> IntArray:
    """Return folds with the new documents of a group where its other documents are, (n,).

    Parameters
    ----------
    folds : int64 array, shape (n,)
        -1 for new documents.
    groups : int64 array, shape (n,), optional
        The number of each document's group, from 0 on. Documents of a group belong to one fold.

    Raises
    ------
    ColdStartError
        Where documents that are one group now were in several folds: members have seen a part.
    """
    if groups is None:
        return folds
    has_fold = folds >= 0
    former_groups = groups[has_fold]
    former_folds = folds[has_fold]
    n_groups = int(groups.max(initial=-1)) + 1
    group_folds = np.full(n_groups, -1, dtype=np.int64)
    group_folds[former_groups] = former_folds
    # Of several folds the last was taken, so that others differ from it.
    is_split = group_folds[former_groups] != former_folds
    if is_split.any():
        raise ColdStartError("documents that are one group now were in several folds")
    folds_by_group = group_folds[groups]
    return np.where(has_fold, folds, folds_by_group)


def extractor_parameters(extractor: FeatureExtractor | None) -> dict[str, str]:
    """Return the parameters by which two extractors are compared before a warm start.

    Values are compared as text; parameters that change no learned feature are left out.
    """
    if extractor is None:
        return {}
    parameters = {"kind": extractor.kind}
    for name, value in extractor.get_params().items():
        if name not in _NOT_COMPARED:
            parameters[name] = repr(value)
    return parameters


def check_sizes(former: ConceptSpace, plan: SpacePlan, X: Features | None) -> None:
    """Raise a `ColdStartError` unless members of a plan can go on from those of a former space.

    Parameters
    ----------
    former : ConceptSpace
        Fitted.
    plan : SpacePlan
        What the new fit asks for.
    X : float64 array or csr_matrix, shape (n, n_features), optional
        Its features; they must be spread much as the former ones, by which members read them.
    """
    for name in ("n_folds", "members_per_fold", "hidden", "code"):
        new_size = getattr(plan, name)
        old_size = getattr(former.plan_, name)
        if new_size != old_size:
            raise ColdStartError(
                f"its plan has {old_size} as `{name}`, and this fit asks for {new_size}"
            )
    n_former = len(former.mean_)
    n_features = 0
    if X is not None:
        n_features = X.shape[1]
    if n_features != n_former:
        raise ColdStartError(f"it takes {n_former} features, and these are {n_features}")
    if X is None:
        return
    mean, scale = column_statistics(X)
    shift = np.abs(mean - former.mean_)
    larger_scale = np.maximum(scale, former.scale_)
    is_shifted = shift > larger_scale
    ratio = scale / former.scale_
    is_wider = ratio > _MOST_SPREAD_RATIO
    is_narrower = ratio < 1 / _MOST_SPREAD_RATIO
    is_changed = is_shifted | is_wider | is_narrower
    if is_changed.mean() > _MOST_SHARE_OF_CHANGED_FEATURES:
        n_changed = is_changed.sum()
        raise ColdStartError(f"{n_changed:,} of {n_features:,} features are spread otherwise")


def check_known(columns: IntArray, share_of_items: float) -> None:
    """Raise a `ColdStartError` where most labels are new, or most former items are not there.

    Parameters
    ----------
    columns : int64 array, shape (n_labels,)
        The former column of each label; -1 for new ones.
    share_of_items : float
        The share of the former items that are here, as `DocumentKeys.found_among` returns it.
    """
    n_labels = len(columns)
    is_known = columns >= 0
    if is_known.mean() < _LEAST_SHARE_OF_LABELS:
        n_new = n_labels - is_known.sum()
        raise ColdStartError(f"{n_new:,} of {n_labels:,} labels are new")
    if share_of_items < _LEAST_SHARE_OF_ITEMS:
        share_missing = 1 - share_of_items
        raise ColdStartError(
            f"{share_missing:.0%} of the items that it was fitted to are not among these, or "
            "have other features"
        )
