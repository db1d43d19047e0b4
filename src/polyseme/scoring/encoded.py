"""Items that are asked about again and again: encoded once, and cached.

In: features of items, as a tagger checks them. Out: `EncodedItems`, which stand for X wherever
items are ranked, and have the same scores.

Cached arrays are shared by all who ask, in several threads perhaps, and are therefore read-only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray

if TYPE_CHECKING:
    from polyseme.space.concept_space import ConceptSpace

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Features = NDArray[np.floating[Any]] | sp.csr_matrix

_LOGIT_BYTES = np.dtype(np.float64).itemsize


class EncodedItems:
    """Items with their codes in a concept space; `ZeroShotTagger.encode` returns them.

    They may be indexed by rows: some of them have the scores that they have among all.

    Parameters
    ----------
    features : float array or csr_matrix, shape (n, n_features)
        Checked; what was given as float32, or lies on disk, stays there.
    ids : sequence of str, length n, or None
        The items' names.
    space_digest : str
        The digest of the space that the codes are of.
    max_logit_bytes : int
        What the cached logits may take; larger ones are not cached.

    Attributes
    ----------
    codes, projections : float32 arrays or None
        Of shape (n, n_dimensions) and (n, projection_size); see `ConceptSpace.item_codes` and
        `ConceptSpace.project`. None where they are not cached but computed whenever they are
        needed. `LabelScorer.encode` sets them, once; they are read-only from then on.
    """

    def __init__(
        self,
        features: Features,
        ids: Sequence[str] | None,
        space_digest: str,
        max_logit_bytes: int,
    ) -> None:
        self.features = features
        self.ids = ids
        self.space_digest = space_digest
        self.codes: Floats | None = None
        self.projections: Floats | None = None
        self._logit_cache = _LogitCache(max_logit_bytes)
        # Of a selection: all items that were encoded, and the rows of the selected ones among them.
        self._origin: tuple[EncodedItems, IntArray] | None = None

    def __repr__(self) -> str:
        """Return its size, in a line."""
        state = "cached" if self.codes is not None else "computed when needed"
        return f"EncodedItems({len(self)} items, codes {state})"

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the features."""
        return tuple(self.features.shape)

    def __array__(self, *_: object, **__: object) -> NDArray[Any]:
        """Refuse to be taken for features."""
        raise TypeError("items that are encoded can be asked about, but not learned from")

    def __getitem__(self, selection: Any) -> EncodedItems:
        """Return some items, by a row number, row numbers, a slice or a mask.

        Their logits come from the cache of all items, so that they are not computed again.
        """
        all_rows = np.arange(len(self))
        rows = np.atleast_1d(all_rows[selection])
        row_index: Any = rows
        if _are_consecutive(rows):  # a slice gives views
            row_index = slice(rows[0], rows[-1] + 1)
        ids = None
        if self.ids is not None:
            ids = [self.ids[row] for row in rows.tolist()]
        items = EncodedItems(
            self.features[row_index],
            ids,
            self.space_digest,
            max_logit_bytes=0,
        )
        if self.codes is not None:
            items.codes = self.codes[row_index]
        if self.projections is not None:
            items.projections = self.projections[row_index]
        if self._origin is None:
            items._origin = (self, rows)
        else:
            origin, origin_rows = self._origin
            items._origin = (origin, origin_rows[rows])
        return items

    def float64_features(self) -> NDArray[np.float64] | sp.csr_matrix:
        """Return the features as a tagger takes them, (n, n_features) of float64.

        They may be the features themselves rather than a copy, so they must not be changed.
        """
        if sp.issparse(self.features):
            return sp.csr_matrix(self.features, dtype=np.float64)
        return np.asarray(self.features, dtype=np.float64)

    def logits(
        self,
        dependencies: Sequence[NDArray[Any]],
        n_labels: int,
        score: Callable[[EncodedItems], Matrix],
    ) -> Matrix | None:
        """Return the cached logits (n, n_labels) without corrections.

        Parameters
        ----------
        dependencies : sequence of arrays
            All that the logits depend on beside the items, in an order of their own: while these
            are equal, so are the logits. They are kept for comparison and must not be changed.
        n_labels : int
        score : callable
            Computes the logits of all items that were encoded.

        Returns
        -------
        float64 array, shape (n, n_labels), or None
            It may be shared, so it must not be changed. None where the cache would take more memory
            than it may.
        """
        if self._origin is not None:
            origin, rows = self._origin
            all_logits = origin.logits(dependencies, n_labels, score)
            if all_logits is None:
                return None
            return all_logits[rows]
        n_logits = n_labels * len(self)
        return self._logit_cache.get(
            dependencies,
            n_bytes=_LOGIT_BYTES * n_logits,
            compute=lambda: score(self),
        )


class _LogitCache:
    """Logits that are computed once; other threads wait for the one that computes them.

    Parameters
    ----------
    max_bytes : int
        What the logits may take; larger ones are not computed.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._dependencies: tuple[NDArray[Any], ...] = ()
        self._logits: Matrix | None = None

    def get(
        self,
        dependencies: Sequence[NDArray[Any]],
        n_bytes: int,
        compute: Callable[[], Matrix],
    ) -> Matrix | None:
        """Return the logits for some dependencies, read-only; None where they are too large.

        They are computed again only where a dependency differs from those of the last call.
        """
        if n_bytes > self.max_bytes:
            return None
        with self._lock:
            if self._logits is None or not _are_equal(self._dependencies, dependencies):
                self._dependencies = ()
                self._logits = None  # never two tables at a time
                logits = compute()
                logits.setflags(write=False)
                self._logits = logits
            # The same arrays are recognised at once next time.
            self._dependencies = tuple(dependencies)
            return self._logits


def _are_equal(first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]) -> bool:
    """Whether arrays are equal, one by one; the same ones are not looked into."""
    if len(first) != len(second):
        return False
    for left, right in zip(first, second, strict=True):
        if left is right:
            continue
        if not np.array_equal(left, right):
            return False
    return True


def _are_consecutive(rows: IntArray) -> bool:
    """Whether there are row numbers, and each is one more than the last."""
    if not len(rows):
        return False
    steps = np.diff(rows)
    return bool((steps == 1).all())


# ---------------------------------------------------------------------- what is kept of items


def item_names(X: Any, extractor: object = None) -> list[str] | None:
    """Return the ids of items, or their files; None where only their row numbers tell them apart.

    Parameters
    ----------
    X : what `ZeroShotTagger.fit` takes as X
        A list or tuple that holds nothing but paths names its items by them.
    extractor : FeatureExtractor or None
        Where its `names_are_paths` is False, items that are `str` are no paths but texts.
    """
    from polyseme.io.join import split_ids

    _, ids = split_ids(X)
    if ids is not None or not isinstance(X, (list, tuple)) or not X:
        return ids
    path_types: tuple[type, ...] = (str, Path)
    if not getattr(extractor, "names_are_paths", True):
        path_types = (Path,)
    files = []
    for item in X:
        if not isinstance(item, path_types):
            return None
        files.append(str(item))
    return files


def item_vectors(space: ConceptSpace, features: Any) -> Floats:
    """Return the vectors of items that verdicts are about, as the verdict log stores them.

    Parameters
    ----------
    space : ConceptSpace
    features : float64 array or csr_matrix, shape (n, n_features)

    Returns
    -------
    float32 array, shape (n, projection_size + n_dimensions)
        Projections, then codes; `feedback.corrections` splits them again.
    """
    projections = space.project(features)
    codes = space.item_codes(features)
    blocks = [projections, codes]
    return np.hstack(blocks)


def table_rows(features: Features | EncodedItems, rows: Sequence[int]) -> Any:
    """Return the features of some rows, (len(rows), n_features), of float64 if they are encoded."""
    row_numbers = np.array(rows, dtype=np.int64)
    selected = features[row_numbers]
    if isinstance(selected, EncodedItems):
        return selected.float64_features()
    return selected
