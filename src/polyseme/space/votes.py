"""Kernel votes: known documents vote for their labels, the nearer to an item's code the more.

In: points of documents and of items on the same axes. Out: the share of the votes that each label
gets, and the logit of an item's label with that share in it. How codes become points is here, too.

Terms: a *point* is a code on the principal axes of the space, at length 1, (n_axes,), so that the
product of two points is their cosine. A *vote* is the weight of one document at one point. The
*share* of a label is its holders' part in all votes at a point, between 0 and 1.
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
# Steps of subspace iteration that turn former axes to new codes.
_N_TURNS = 2
# Votes that are counted at a time: 32 MiB.
_BLOCK_VOTES = 2**23
# Where the votes of all documents underflow, they are divided by this in place of zero.
_SMALLEST_TOTAL = 1e-30


class Voters(NamedTuple):
    """Known documents that vote for their labels, the nearer the more (priming)."""

    points: Floats  # of documents, (n_documents, n_axes)
    holders: sp.csr_matrix  # float32, (n_labels, n_documents): 1 where a document holds a label
    counts: Floats  # how often each document votes, (n_documents, 1)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Voters({len(self.points)} tag sets)"

    @classmethod
    def of(cls, points: Floats, documents: sp.csr_matrix, counts: IntArray | None = None) -> Voters:
        """Return documents that vote from their points.

        Parameters
        ----------
        points : float32 array, shape (n_documents, n_axes)
            Shared with the voters, not copied.
        documents : csr_matrix, shape (n_documents, n_labels)
            1 where a document holds a label.
        counts : int64 array, shape (n_documents,), optional
            How often each document votes; by default once.
        """
        if counts is None:
            counts = np.ones(len(points), dtype=np.int64)
        factors = counts.astype(np.float32)
        return cls(
            points=points,
            holders=sp.csr_matrix(documents.T, dtype=np.float32),
            counts=factors[:, None],
        )

    def shares(self, points: Floats, left_out: IntArray | None = None) -> Matrix:
        """Compute the share of the votes that each label gets at some points.

        Parameters
        ----------
        points : float32 array, shape (n_points, n_axes)
        left_out : int64 array, shape (n_points,), optional
            For each point the row of a document that does not vote there; -1 where all do.

        Returns
        -------
        float64 array, shape (n_points, n_labels)
        """
        n_points = len(points)
        n_labels = self.holders.shape[0]
        shares = np.zeros((n_points, n_labels))
        for block in self._blocks(n_points):
            block_points = points[block]
            votes = self._votes(block_points)
            if left_out is not None:
                silent_documents = left_out[block]
                affected = np.flatnonzero(silent_documents >= 0)
                silent_rows = silent_documents[affected]
                votes[silent_rows, affected] = 0
            totals = votes.sum(axis=0, dtype=np.float64)
            label_votes = self.holders @ votes
            divisors = np.maximum(totals, _SMALLEST_TOTAL)
            label_shares = label_votes / divisors
            shares[block] = label_shares.T
        return shares

    def label_shares(self, points: Floats, column: int, totals: Matrix) -> Matrix:
        """Compute the share of the votes that one label gets, (n_points,).

        Only documents that hold the label are looked at.

        Parameters
        ----------
        points : float32 array, shape (n_points, n_axes)
        column : int
            Of the label, in the `documents` that the voters were made of.
        totals : float64 array, shape (n_points,)
            The sums of all votes; see `totals`.
        """
        holder_rows = self.holders[column].indices
        holders = self._replace(
            points=self.points[holder_rows],
            counts=self.counts[holder_rows],
        )
        label_votes = holders.totals(points)
        divisors = np.maximum(totals, _SMALLEST_TOTAL)
        return label_votes / divisors

    def totals(self, points: Floats) -> Matrix:
        """Sum up the votes of all documents, (n_points,), at points (n_points, n_axes)."""
        n_points = len(points)
        totals = np.zeros(n_points)
        for block in self._blocks(n_points):
            block_points = points[block]
            votes = self._votes(block_points)
            totals[block] = votes.sum(axis=0, dtype=np.float64)
        return totals

    def _blocks(self, n_points: int) -> Iterator[slice]:
        """Yield slices of points whose votes are counted at a time."""
        n_documents = len(self.points)
        divisor = max(n_documents, 1)
        n_together = _BLOCK_VOTES // divisor
        n_together = max(1, n_together)
        for start in range(0, n_points, n_together):
            stop = start + n_together
            yield slice(start, stop)

    def _votes(self, points: Floats) -> Floats:
        """Compute how strongly each document votes, (n_documents, n_points)."""
        # vote = count * exp((cosine - 1) / temperature). Cosines are at most 1, so that nothing
        # overflows; one table is changed in place, because it is large.
        votes: Floats = self.points @ points.T
        votes -= 1
        votes /= TEMPERATURE
        np.exp(votes, out=votes)
        votes *= self.counts
        return votes


def mix(logits: Matrix, votes: Matrix, share: float) -> Matrix:
    """Return logits in which the logits of votes have a share.

    mixed = (1 - share) * logits + share * logit(votes). A readout may hold the first term already,
    its weights times `readout_share`; `vote_logits` is the second one.

    Parameters
    ----------
    logits, votes : float64 arrays, shape (n_items, n_labels)
        Logits without votes, and labels' shares of the votes.
    share : float
        Between 0 and 1. With 0, `logits` themselves are returned.
    """
    if not share:
        return logits
    from_readout = readout_share(share) * logits
    from_votes = vote_logits(votes, share)
    return np.asarray(from_readout + from_votes)


def readout_share(vote_share: float) -> float:
    """Return the share that a readout has in logits, beside that of votes."""
    return 1 - vote_share


def vote_logits(votes: Matrix, share: float) -> Matrix:
    """Return what labels' shares of the votes, (n_items, n_labels), add to logits.

    `share` is the one that votes have in logits; see `mix`.
    """
    return share * logit(votes)


def side_by_side(codes: Floats) -> Floats:
    """Return codes (n_members, n_rows, code) as rows (n_rows, n_members * code).

    Of codes as `affine` leaves them, that is a view.
    """
    n_members, n_rows, code = codes.shape
    n_dimensions = n_members * code
    transposed = codes.transpose(1, 0, 2)
    by_row = np.ascontiguousarray(transposed)
    return by_row.reshape(n_rows, n_dimensions)


def unit_directions(coordinates: Floats) -> Floats:
    """Return coordinates (n_rows, n_axes), each row at length 1; rows of zeros stay zeros."""
    squared_lengths = np.einsum("ij,ij->i", coordinates, coordinates)
    lengths = np.sqrt(squared_lengths)
    divisors = np.maximum(lengths, 1e-12)
    factors = divisors[:, None]
    directions = coordinates / factors
    return np.asarray(directions, dtype=np.float32)


def turn_axes(axes: Floats, codes: Matrix) -> Matrix:
    """Return the principal axes (n_dimensions, n_axes) of centred codes, from some near them.

    Codes are (n_rows, n_dimensions); the axes come in falling order of variance.
    """
    for _ in range(_N_TURNS):
        # One step of subspace iteration.
        coordinates = codes @ axes
        stretched = codes.T @ coordinates
        axes, _ = np.linalg.qr(stretched)
    coordinates = codes @ axes
    scatter = coordinates.T @ coordinates
    _, rotation = np.linalg.eigh(scatter)
    falling = rotation[:, ::-1]
    return np.asarray(axes @ falling)
