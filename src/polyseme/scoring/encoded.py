"""Items that are asked about again and again: encoded once, and cached.

In: features of items, as a tagger checks them. Out: `EncodedItems`, which stand for X wherever
items are ranked, and have the same scores.
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


class EncodedItems:
    """Items with their codes in a concept space; `ZeroShotTagger.encode` returns them.

    They may be indexed by rows: some of them have the scores that they have among all.

    Parameters
    ----------
    features : float array or csr_matrix, shape (n, n_features)
        Checked; what was given as float32, or lies on disk, stays there.
    ids : sequence of str or None
        The items' names.
    space : str
        The digest of the space.
    most_bytes : int
        What the table of logits may take; a larger one is not cached.

    Attributes
    ----------
    codes, projections : float32 arrays or None
        Of shape (n, n_dimensions) and (n, projection_size).
        None where they are not cached but computed whenever they are needed.
    """

    def __init__(
        self,
        features: Features,
        ids: Sequence[str] | None,
        space: str,
        most_bytes: int,
    ) -> None:
        self.features = features
        self.ids = ids
        self.space = space
        self.codes: Floats | None = None
        self.projections: Floats | None = None
        self._logits = _TableCache(most_bytes)
        # Of some items among all that were encoded: these, and the rows among them.
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

    def __getitem__(self, rows: Any) -> EncodedItems:
        """Return some items, by a number, numbers, a slice or a mask."""
        numbers = np.atleast_1d(np.arange(len(self))[rows])
        selection: Any = numbers
        if _are_consecutive(numbers):  # a slice gives views
            selection = slice(numbers[0], numbers[-1] + 1)
        ids = None
        if self.ids is not None:
            ids = [self.ids[number] for number in numbers.tolist()]
        items = EncodedItems(self.features[selection], ids, self.space, 0)
        if self.codes is not None:
            items.codes = self.codes[selection]
        if self.projections is not None:
            items.projections = self.projections[selection]
        if self._origin is None:
            items._origin = (self, numbers)
        else:
            origin, origin_rows = self._origin
            items._origin = (origin, origin_rows[numbers])
        return items

    def table(self) -> NDArray[np.float64] | sp.csr_matrix:
        """Return the features as a tagger takes them, (n, n_features) of float64."""
        if sp.issparse(self.features):
            return sp.csr_matrix(self.features, dtype=np.float64)
        return np.asarray(self.features, dtype=np.float64)

    def logits(
        self,
        sources: Sequence[NDArray[Any]],
        n_labels: int,
        score: Callable[[EncodedItems], Matrix],
    ) -> Matrix | None:
        """Return the cached logits (n, n_labels) without corrections.

        Parameters
        ----------
        sources : sequence of arrays
            All that the logits depend on: while these are equal, the cached logits are.
        n_labels : int
        score : callable
            Computes the logits of all items.

        Returns
        -------
        float64 array, shape (n, n_labels), or None
            None where the cache would take more memory than it may. It must not be changed.
        """
        if self._origin is not None:
            origin, rows = self._origin
            logits = origin.logits(sources, n_labels, score)
            return None if logits is None else logits[rows]
        n_bytes = 8 * n_labels * len(self)
        return self._logits.get(sources, n_bytes, lambda: score(self))


class _TableCache:
    """A table that is computed once for its sources; threads wait for the one that computes it."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._sources: tuple[NDArray[Any], ...] = ()
        self._table: Matrix | None = None

    def get(
        self, sources: Sequence[NDArray[Any]], n_bytes: int, compute: Callable[[], Matrix]
    ) -> Matrix | None:
        """Return the table of some sources; None where it is too large."""
        if n_bytes > self.most_bytes:
            return None
        with self._lock:
            if self._table is None or not _are_equal(self._sources, sources):
                self._sources = ()
                self._table = None  # never two tables at a time
                self._table = compute()
            self._sources = tuple(sources)  # the same arrays are recognised at once next time
            return self._table


def _are_equal(first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]) -> bool:
    """Whether arrays are equal; the same ones are not looked into."""
    pairs = zip(first, second, strict=True)
    return all(left is right or np.array_equal(left, right) for left, right in pairs)


def _are_consecutive(numbers: IntArray) -> bool:
    """Whether numbers follow one another."""
    return bool(len(numbers) and (np.diff(numbers) == 1).all())


# ---------------------------------------------------------------------- what is kept of items


def item_names(X: Any) -> list[str] | None:
    """Return the ids of items, or their files; None where only their numbers tell them apart."""
    from polyseme.io.join import split_ids

    _, ids = split_ids(X)
    if ids is None and isinstance(X, (list, tuple)) and X:
        files = [str(item) for item in X if isinstance(item, (str, Path))]
        ids = files if len(files) == len(X) else None
    return ids


def item_vectors(space: ConceptSpace, features: Any) -> Floats:
    """Return what is kept of items that verdicts are about: projections, then codes."""
    return np.hstack([space.project(features), space.item_codes(features)])


def table_rows(features: Features | EncodedItems, rows: Sequence[int]) -> Any:
    """Return the features of some rows."""
    selected = features[np.array(rows, dtype=np.int64)]
    return selected.table() if isinstance(selected, EncodedItems) else selected
