"""What every way of searching works on: distinct concepts, sorted by label.

In: concepts, their label ids and counts, one row each. Out: the same with the places where each
label starts and a common centre, near which rounding costs least.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class SortedConcepts:
    """Distinct concepts sorted by label.

    Attributes
    ----------
    points : float32 array, shape (n, d)
    labels, counts : int64 arrays, shape (n,)
    starts : int64 array, shape (n_segments + 1,)
        Where the concepts of each label that has some start; last, n.
    segments : int64 array, shape (n_segments,)
        Those labels.
    centre : float32 array, shape (d,)
        About the mean of the concepts.
    """

    points: NDArray[np.float32]
    labels: NDArray[np.int64]
    counts: NDArray[np.int64]
    starts: NDArray[np.int64] = field(init=False)
    segments: NDArray[np.int64] = field(init=False)
    centre: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        firsts = np.flatnonzero(np.diff(self.labels, prepend=-1))
        self.segments = self.labels[firsts]
        self.starts = np.append(firsts, len(self.labels)).astype(np.int64)
        # Any point among the concepts will do, so a few thousand of them are enough to find it.
        some = self.points[:: max(1, len(self.points) // 4096)]
        total = some.sum(axis=0, dtype=np.float64)
        self.centre = (total / max(1, len(some))).astype(np.float32)

    def __len__(self) -> int:
        return len(self.labels)
