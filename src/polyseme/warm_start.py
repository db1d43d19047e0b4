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

from polyseme._validation import InputError, IntArray
from polyseme.features.base import MediaFeatures
from polyseme.space import ConceptSpace
from polyseme.training import Features, SpacePlan, column_statistics
from polyseme.training_set import TrainingSet

Keys = NDArray[np.uint64]

# The least share of the former items that must be found again, and of the labels that must be known
# already; and the largest share of features that may be spread otherwise: their mean by more than a
# spread, or their spread by more than this factor.
_FOUND, _KNOWN, _MOVED, _FACTOR = 0.5, 0.5, 0.1, 2.0
# Parameters of an extractor that say nothing about what it makes of items, once it has learned.
_HERE_ONLY = ("device", "n_jobs", "random_state")


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
        names, items, tags = np.zeros((3, tables.documents.shape[0]), dtype=np.uint64)
        if not data.sets.numbered:
            own = [None if _is_number(name) else name for name in data.sets.ids]
            names[: len(own)] = _digests(own)
        labels = np.asarray(data.labels, dtype=object)
        rows = np.split(tables.documents.indices, tables.documents.indptr[1:-1])
        tags[:] = _digests("\0".join(sorted(labels[row])) for row in rows)
        if data.features is not None:
            of_items = tables.item_documents
            named = data.names[0] if data.corpus.numbered else list(data.corpus.ids)
            names[of_items] = 0 if named is None else _digests(named)
            items[of_items] = feature_digests(data.features)
        return cls(names, items, tags)

    def with_pool(self, pool: Features | None) -> DocumentKeys:
        """Return them followed by the keys of items without tags, which are their features."""
        if pool is None:
            return self
        digests = feature_digests(pool)
        none = np.zeros_like(digests)
        parts = ((self.names, none), (self.items, digests), (self.tags, none))
        return DocumentKeys(*map(np.concatenate, parts))

    def folds_among(self, former: DocumentKeys, folds: IntArray) -> IntArray:
        """Return the former fold of each document and item, -1 for new ones, (n,).

        Parameters
        ----------
        former : DocumentKeys
        folds : int64 array, shape (n_former,)
        """
        placed = np.full(len(self.names), -1, dtype=np.int64)
        # What was an item's is not found by its tags, which others have as well.
        of_sets = np.where(former.items == 0, former.tags, 0)
        pairs = ((self.items, former.items), (self.names, former.names), (self.tags, of_sets))
        for keys, former_keys in pairs:
            left = placed < 0
            placed[left] = _looked_up(keys[left], former_keys, folds)
        return placed

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
        found = np.isin(former.items, self.items[self.items != 0])
        found |= np.isin(former.names, self.names[self.names != 0])
        return float(found[had_item].mean()) if had_item.any() else 1.0


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
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        digest = b"" if data is None else hashlib.blake2b(data, digest_size=8).digest()
        numbers.append(0 if data is None else int.from_bytes(digest, "little") or 1)
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
        dense = row.toarray().ravel() if sp.issparse(table) else np.asarray(row)
        columns = np.flatnonzero(dense).astype(np.int32)
        yield columns.tobytes() + dense[columns].astype(np.float32).tobytes()


def _looked_up(keys: Keys, former: Keys, folds: IntArray) -> IntArray:
    """Return the former fold of each key (n,); -1 where it is new, or was in several folds."""
    known = former != 0
    table, first, numbers = np.unique(former[known], return_index=True, return_inverse=True)
    if not len(table):
        return np.full(len(keys), -1, dtype=np.int64)
    fold_of = folds[known][first]
    differing = folds[known] != fold_of[numbers]
    fold_of[numbers[differing]] = -1
    places = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return np.where(table[places] == keys, fold_of[places], -1)


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
    known = folds >= 0
    fold_of = np.full(int(groups.max(initial=-1)) + 1, -1, dtype=np.int64)
    fold_of[groups[known]] = folds[known]
    if (fold_of[groups[known]] != folds[known]).any():
        raise ColdStartError("documents that are one group now were in several folds")
    return np.where(known, folds, fold_of[groups])


def extractor_parameters(extractor: MediaFeatures | None) -> dict[str, str]:
    """Return what decides what an extractor makes of items; what it draws is learned already."""
    if extractor is None:
        return {}
    chosen = {name: repr(value) for name, value in extractor.get_params().items()}
    return {"kind": extractor.kind} | {
        name: value for name, value in chosen.items() if name not in _HERE_ONLY
    }


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
        asked, had = getattr(plan, name), getattr(former.plan_, name)
        if asked != had:
            raise ColdStartError(f"its plan has {had} as `{name}`, and this fit asks for {asked}")
    n_features = 0 if X is None else X.shape[1]
    if n_features != len(former.mean_):
        raise ColdStartError(f"it takes {len(former.mean_)} features, and these are {n_features}")
    if X is None:
        return
    mean, scale = column_statistics(X)
    ratio = scale / former.scale_
    moved = np.abs(mean - former.mean_) > np.maximum(scale, former.scale_)
    moved |= (ratio > _FACTOR) | (ratio < 1 / _FACTOR)
    if moved.mean() > _MOVED:
        raise ColdStartError(f"{moved.sum():,} of {n_features:,} features are spread otherwise")


def check_known(columns: IntArray, found: float) -> None:
    """Raise a `ColdStartError` where most labels are new, or most former items are not there.

    Parameters
    ----------
    columns : int64 array, shape (n_labels,)
        The former column of each label; -1 for new ones.
    found : float
        The share of the former items that are here.
    """
    known = float((columns >= 0).mean())
    if known < _KNOWN:
        raise ColdStartError(f"{(columns < 0).sum():,} of {len(columns):,} labels are new")
    if found < _FOUND:
        raise ColdStartError(
            f"{1 - found:.0%} of the items that it was fitted to are not among these, or have "
            "other features"
        )
