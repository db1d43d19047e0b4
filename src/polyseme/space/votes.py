"""Kernel votes: known documents vote for their labels, the nearer to an item's code the more.

In: points of documents and of items on the same axes. Out: the share of the votes that each label
gets, and the logit of an item's label with that share in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.space.calibration import logit

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
IntArray = NDArray[np.int64]

# The width of the kernel: how fast a vote falls with the cosine of a document to a code.
TEMPERATURE = 0.1
# Votes that are counted at a time.
_BLOCK_VOTES = 2**23
_SMALLEST_TOTAL = 1e-30


class Voters(NamedTuple):
    """Known documents that vote for their labels, the nearer the more (priming)."""

    points: Floats  # (m, n_axes)
    holders: sp.csr_matrix  # of float32, (n_labels, m): which of them hold each label
    times: Floats  # (m, 1): how often each votes

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Voters({len(self.points)} tag sets)"

    @classmethod
    def of(cls, points: Floats, documents: sp.csr_matrix, counts: IntArray | None = None) -> Voters:
        """Return documents (m, n_labels) that vote from their points, each `counts` (m,) times."""
        if counts is None:
            counts = np.ones(len(points), dtype=np.int64)
        holders = sp.csr_matrix(documents.T, dtype=np.float32)
        times = counts.astype(np.float32)
        return cls(points, holders, times[:, None])

    def shares(self, points: Floats, left_out: IntArray | None = None) -> Matrix:
        """Compute the share of the votes that each label gets, (n, n_labels).

        Parameters
        ----------
        points : float32 array, shape (n, n_axes)
        left_out : int64 array, shape (n,), optional
            A document that does not vote for each point; -1 where all do.
        """
        shares = np.zeros((len(points), self.holders.shape[0]))
        for rows in self._blocks(len(points)):
            weights = self._kernel(points[rows])
            if left_out is not None:
                columns = np.flatnonzero(left_out[rows] >= 0)
                weights[left_out[rows][columns], columns] = 0
            totals = weights.sum(axis=0, dtype=np.float64)
            label_votes = self.holders @ weights
            shares[rows] = (label_votes / np.maximum(totals, _SMALLEST_TOTAL)).T
        return shares

    def label_shares(self, points: Floats, column: int, totals: Matrix) -> Matrix:
        """Compute the share of the votes that one label gets, (n,), for points (n, n_axes).

        Only documents that hold the label are looked at; `totals` (n,) are the sums of all votes.
        """
        rows = self.holders[column].indices
        holders = self._replace(points=self.points[rows], times=self.times[rows])
        label_votes = holders.totals(points)
        return label_votes / np.maximum(totals, _SMALLEST_TOTAL)

    def totals(self, points: Floats) -> Matrix:
        """Sum up the votes of all documents, (n,), for points (n, n_axes)."""
        totals = np.zeros(len(points))
        for rows in self._blocks(len(points)):
            totals[rows] = self._kernel(points[rows]).sum(axis=0, dtype=np.float64)
        return totals

    def _blocks(self, n: int) -> Iterator[slice]:
        """Yield the points, of n, whose votes are counted at a time."""
        step = max(1, _BLOCK_VOTES // max(len(self.points), 1))
        for start in range(0, n, step):
            yield slice(start, start + step)

    def _kernel(self, points: Floats) -> Floats:
        """Compute how strongly each document votes, (m, n), for points (n, n_axes)."""
        # Cosines are at most 1, so that nothing overflows.
        weights: Floats = self.points @ points.T
        weights -= 1
        weights /= TEMPERATURE
        np.exp(weights, out=weights)
        weights *= self.times
        return weights


def mix(logits: Matrix, votes: Matrix, share: float) -> Matrix:
    """Return logits (n, n_labels) in which the logits of votes have a share.

    mixed = (1 - share) * logits + share * logit(votes). A readout may hold the first term already,
    its weights times `readout_share`; `vote_logits` is the second one.
    """
    if not share:
        return logits
    return np.asarray(readout_share(share) * logits + vote_logits(votes, share))


def readout_share(vote_share: float) -> float:
    """Return the share that a readout has in logits, beside that of votes."""
    return 1 - vote_share


def vote_logits(votes: Matrix, share: float) -> Matrix:
    """Return what shares of votes add to logits in which they have a share."""
    return share * logit(votes)
