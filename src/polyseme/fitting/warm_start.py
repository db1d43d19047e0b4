"""Whether a fit can start from a former one, and which documents both of them have.

In: a former space with the keys of its documents, and what a new fit learns from. Out: the former
folds of documents, or the reason why the new fit has to start from nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
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

# The least share of the former items that must be found again, and of the labels that must be known
# already; and the largest share of features that may be spread otherwise: their mean by more than a
# spread, or their spread by more than this factor.
_FOUND, _KNOWN, _MOVED, _FACTOR = 0.5, 0.5, 0.1, 2.0
# Parameters of an extractor that say nothing about what it makes of items, once it has learned.
_NOT_COMPARED = ("device", "n_jobs", "random_state")


class ColdStartError(InputError):
    """A fit cannot start from a former one; the sentence says why."""


class DocumentKeys(NamedTuple):
    """By what documents, and then items without tags, are found again in a later fit.

    Each key is a digest of 64 bits; 0 where there is none.
    """

    names: Keys  # of items and of named label sets, (n,)
    items: Keys  # by the features of the document's item, (n,)
    tags: Keys  # by labels, 0 for items without tags, (n,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"DocumentKeys({len(self.names)} documents and items)"

    @classmethod
    def of(cls, data: TrainingSet) -> DocumentKeys:
        """Return the keys of the documents of a training set, in their order.

        Names that were made up, or may be numbers of rows, are no keys: another document may have
        them next time.
        """
        tables = data.tables
        documents = tables.documents
        n_documents = documents.shape[0]
        names = np.zeros(n_documents, dtype=np.uint64)
        if not data.sets.numbered:
            set_names = [_name_or_none(name) for name in data.sets.ids]
            names[: len(set_names)] = _digests(set_names)

        labels = np.asarray(data.labels, dtype=object)
        tag_sets = np.split(documents.indices, documents.indptr[1:-1])
        sorted_tags = (sorted(labels[columns]) for columns in tag_sets)
        tags = _digests("\0".join(set_tags) for set_tags in sorted_tags)

        items = np.zeros(n_documents, dtype=np.uint64)
        if data.features is not None:
            rows = tables.item_documents
            item_names, _ = data.names
            if not data.corpus.numbered:
                item_names = list(data.corpus.ids)
            names[rows] = 0 if item_names is None else _digests(item_names)
            items[rows] = feature_digests(data.features)
        return cls(names, items, tags)

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

        Parameters
        ----------
        former : DocumentKeys
        folds : int64 array, shape (n_former,)
        """
        former_folds = np.full(len(self.names), -1, dtype=np.int64)
        # What was an item's is not found by its tags, which others have as well.
        tags_of_sets = np.where(former.items == 0, former.tags, 0)
        for keys, former_keys in (
            (self.items, former.items),
            (self.names, former.names),
            (self.tags, tags_of_sets),
        ):
            is_new = former_folds < 0
            former_folds[is_new] = _looked_up(keys[is_new], former_keys, folds)
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
        items = self.items[self.items != 0]
        names = self.names[self.names != 0]
        has_features = np.isin(former.items, items)
        has_name = np.isin(former.names, names)
        is_present = has_features | has_name
        return float(is_present[had_item].mean())


def _name_or_none(name: str) -> str | None:
    """Return a name, or None where it may be the number of a row."""
    return None if _is_number(name) else name


def _is_number(name: str) -> bool:
    """Return whether a name may be the number of a row."""
    return name.removeprefix("instance:").isdecimal() or name.startswith("instance:")


def name_digests(names: Iterable[str]) -> Keys:
    """Return the keys of names, (n,)."""
    return _digests(names)


def _digests(values: Iterable[str | bytes | None]) -> Keys:
    """Return digests of texts or bytes, never 0; 0 for None."""
    numbers = []
    for value in values:
        if value is None:
            numbers.append(0)
            continue
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(value, digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        numbers.append(max(number, 1))
    return np.array(numbers, dtype=np.uint64)


# The key of a document without labels.
_NO_TAGS = _digests([""])[0]


def feature_digests(features: Features) -> Keys:
    """Return digests of the features of items, the same for dense and sparse rows, (n,)."""
    return _digests(_row_bytes(features))


def _row_bytes(features: Features) -> Iterator[bytes]:
    """Yield what tells the features of items apart."""
    table: Any = features
    for number in range(table.shape[0]):
        row = table[number]
        if sp.issparse(table):
            row = row.toarray().ravel()
        dense = np.asarray(row)
        columns = np.flatnonzero(dense).astype(np.int32)
        values = dense[columns].astype(np.float32)
        yield columns.tobytes() + values.tobytes()


def _looked_up(keys: Keys, former: Keys, folds: IntArray) -> IntArray:
    """Return the former fold of each key (n,); -1 where it is new, or was in several folds."""
    has_key = former != 0
    key_folds = folds[has_key]
    former_keys = former[has_key]
    if not len(former_keys):
        return np.full(len(keys), -1, dtype=np.int64)
    distinct, first, numbers = np.unique(former_keys, return_index=True, return_inverse=True)
    distinct_folds = key_folds[first]
    is_other_fold = key_folds != distinct_folds[numbers]
    distinct_folds[numbers[is_other_fold]] = -1
    insertions = np.searchsorted(distinct, keys)
    places = np.minimum(insertions, len(distinct) - 1)
    is_former = distinct[places] == keys
    return np.where(is_former, distinct_folds[places], -1)


def placed_groups(folds: IntArray, groups: IntArray | None) -> IntArray:
    """Return folds with the new documents of a group where its other documents are, (n,).

    Parameters
    ----------
    folds : int64 array, shape (n,)
        -1 for new documents.
    groups : int64 array, shape (n,), optional

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
    group_folds = np.full(int(groups.max(initial=-1)) + 1, -1, dtype=np.int64)
    group_folds[former_groups] = former_folds
    if (group_folds[former_groups] != former_folds).any():
        raise ColdStartError("documents that are one group now were in several folds")
    return np.where(has_fold, folds, group_folds[groups])


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
    """
    for name in ("n_folds", "members_per_fold", "hidden", "code"):
        new_size = getattr(plan, name)
        old_size = getattr(former.plan_, name)
        if new_size != old_size:
            raise ColdStartError(
                f"its plan has {old_size} as `{name}`, and this fit asks for {new_size}"
            )
    n_features = 0 if X is None else X.shape[1]
    if n_features != len(former.mean_):
        raise ColdStartError(f"it takes {len(former.mean_)} features, and these are {n_features}")
    if X is None:
        return
    mean, scale = column_statistics(X)
    ratio = scale / former.scale_
    is_shifted = np.abs(mean - former.mean_) > np.maximum(scale, former.scale_)
    is_rescaled = (ratio > _FACTOR) | (ratio < 1 / _FACTOR)
    differs = is_shifted | is_rescaled
    if differs.mean() > _MOVED:
        raise ColdStartError(f"{differs.sum():,} of {n_features:,} features are spread otherwise")


def check_known(columns: IntArray, share_of_items: float) -> None:
    """Raise a `ColdStartError` where most labels are new, or most former items are not there.

    Parameters
    ----------
    columns : int64 array, shape (n_labels,)
        The former column of each label; -1 for new ones.
    share_of_items : float
        The share of the former items that are here.
    """
    share_of_labels = float((columns >= 0).mean())
    if share_of_labels < _KNOWN:
        raise ColdStartError(f"{(columns < 0).sum():,} of {len(columns):,} labels are new")
    if share_of_items < _FOUND:
        raise ColdStartError(
            f"{1 - share_of_items:.0%} of the items that it was fitted to are not among these, or "
            "have other features"
        )
