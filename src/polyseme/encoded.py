"""Items that are asked about again and again: coded once, and kept.

In: features of items, as a tagger checks them. Out: `EncodedItems`, which stand for X wherever
items are ranked, and answer to the last bit as X does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import IntArray

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Features = NDArray[np.floating[Any]] | sp.csr_matrix


class EncodedItems:
    """Items with their codes in a concept space; `ZeroShotTagger.encode` makes them.

    They may be indexed by rows: some of them answer as they do among all.

    Parameters
    ----------
    features : float array or csr_matrix, shape (n, n_features)
        Checked; what was given as float32, or lies on disk, stays there.
    ids : sequence of str or None
        The items' names.
    space : str
        The digest of the space.
    most_bytes : int
        What the table of logits may take; a larger one is not kept.

    Attributes
    ----------
    codes, sketches : float32 arrays, shapes (n, n_dimensions) and (n, n_sketch), or None
        None where they are not kept but made whenever they are needed.
    """

    def __init__(
        self,
        features: Features,
        ids: Sequence[str] | None,
        space: str,
        most_bytes: int,
    ) -> None:
        self.features, self.ids, self.space = features, ids, space
        self.codes: Floats | None = None
        self.sketches: Floats | None = None
        self._logits = _Kept(most_bytes)
        self._whole: tuple[EncodedItems, IntArray] | None = None

    def __repr__(self) -> str:
        """Return its size, in a line."""
        kept = "kept" if self.codes is not None else "made anew"
        return f"EncodedItems({len(self)} items, codes {kept})"

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
        part = slice(numbers[0], numbers[-1] + 1) if _in_a_row(numbers) else numbers
        ids = None if self.ids is None else [self.ids[number] for number in numbers.tolist()]
        made = EncodedItems(self.features[part], ids, self.space, 0)
        made.codes = None if self.codes is None else self.codes[part]
        made.sketches = None if self.sketches is None else self.sketches[part]
        whole, own = (self, numbers) if self._whole is None else self._whole
        made._whole = (whole, own if whole is self else own[numbers])
        return made

    def table(self) -> NDArray[np.float64] | sp.csr_matrix:
        """Return the features as a tagger takes them, (n, n_features) of float64."""
        if sp.issparse(self.features):
            return sp.csr_matrix(self.features, dtype=np.float64)
        return np.asarray(self.features, dtype=np.float64)

    def logits(
        self, state: Sequence[NDArray[Any]], n_labels: int, read: Callable[[EncodedItems], Matrix]
    ) -> Matrix | None:
        """Return the table of logits (n, n_labels) without corrections, which is kept.

        Parameters
        ----------
        state : sequence of arrays
            All that the logits depend on: while these are equal, the table is.
        n_labels : int
        read : callable
            Makes the table of all items.

        Returns
        -------
        float64 array, shape (n, n_labels), or None
            None where it would take more than it may. It must not be changed.
        """
        whole, rows = (self, None) if self._whole is None else self._whole
        kept = whole._logits.get(state, 8 * n_labels * len(whole), lambda: read(whole))
        return kept if kept is None or rows is None else kept[rows]


class _Kept:
    """A table that is made once for a state; threads wait for the one that makes it."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._state: tuple[NDArray[Any], ...] = ()
        self._table: Matrix | None = None

    def get(
        self, state: Sequence[NDArray[Any]], n_bytes: int, make: Callable[[], Matrix]
    ) -> Matrix | None:
        """Return the table of a state; None where it is too large."""
        if n_bytes > self.most_bytes:
            return None
        with self._lock:
            if self._table is None or not _same(self._state, state):
                self._state, self._table = (), None  # never two tables at a time
                self._table = make()
            self._state = tuple(state)  # these very arrays are known at once next time
            return self._table


def _same(first: Sequence[NDArray[Any]], second: Sequence[NDArray[Any]]) -> bool:
    """Return whether arrays are equal; the same ones are not looked into."""
    pairs = zip(first, second, strict=True)
    return all(one is other or np.array_equal(one, other) for one, other in pairs)


def _in_a_row(numbers: IntArray) -> bool:
    """Return whether numbers follow one another, so that a slice gives a view."""
    n = len(numbers)
    return bool(n and (np.diff(numbers) == 1).all())
