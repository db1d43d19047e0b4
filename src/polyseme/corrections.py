"""What yes and no to suggestions change, in closed form: a correction of one label's logits.

In: sketches of items that were asked about, the logits they had, and the answers. Out: a direction
that is added to the label's logits, so that they agree with the answers as far as these can be
believed.

A label's logit is taken to be what the space says plus a function of the features that is drawn
from a Gaussian process; the answers are its likelihood (logistic). How strong the process is, is
weighed by how well each strength explains the answers (Laplace's approximation), so that answers
which only confirm what was known change little. Items that were asked about are no random sample,
but they were chosen by what the space says of them, which the logits hold already: given these,
their answers are as good as any others'. How often a label is expected stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.calibration import match_frequencies, sigmoid

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

# Variances of the function that are tried, and that of its mean.
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
OFFSET = 1.0
# Dimensions of a sketch at the most.
SKETCH = 512
# Newton's steps at the most, and the change that is small enough to stop.
_STEPS, _SMALL = 30, 1e-6
# A strength whose log evidence is so far behind another's has no share.
_HOPELESS = 12.0
# Beyond so many answers to one label they are solved in the dimensions of sketches, not of answers.
_DUAL = 600


class Correction(NamedTuple):
    """What is added to the logits of one label: sketches @ weights + intercept."""

    weights: Matrix  # (n_sketch,)
    intercept: float


@lru_cache(maxsize=2)
def _signs(n_features: int) -> Floats:
    """Give the projection of features to sketches, (n_features, SKETCH).

    Its signs are bits that are the same in every version of numpy, so that a sketch which was kept
    stays one of the same space.
    """
    drawn = np.random.PCG64(n_features).random_raw(n_features * SKETCH // 64)
    bits = np.unpackbits(np.asarray(drawn, dtype="<u8").view(np.uint8))
    signs = bits.reshape(n_features, SKETCH).astype(np.float32) * 2 - 1
    return np.asarray(signs / np.float32(SKETCH**0.5))


def sketch(features: Floats) -> Floats:
    """Give directions (n, n_sketch) of bounded size that keep the cosines of features.

    Standardised features (n, n_features) are left as they are but for their length, where there are
    no more than `SKETCH` of them.
    """
    n_features = features.shape[1]
    made = features if n_features <= SKETCH else features @ _signs(n_features)
    lengths = np.sqrt(np.einsum("ij,ij->i", made, made))[:, None]
    return np.asarray(made / np.maximum(lengths, 1e-9), dtype=np.float32)


def corrected(sketches: Floats, corrections: Mapping[int, Correction]) -> Matrix:
    """Say what corrections add to the logits of items, by their sketches, (n, n_corrections)."""
    weights = np.stack([one.weights for one in corrections.values()], axis=1)
    intercepts = np.array([one.intercept for one in corrections.values()])
    return np.asarray(sketches @ weights + intercepts)


def correct(
    sketches: Floats,
    logits: Matrix,
    answers: NDArray[np.bool_],
    reference: Floats,
    reference_logits: Matrix,
    reference_weights: Matrix,
) -> Correction:
    """Learn the correction of one label from answers.

    Parameters
    ----------
    sketches : float32 array, shape (n, n_sketch)
        Of the items that were asked about.
    logits : float64 array, shape (n,)
        What the space says of them, without corrections.
    answers : bool array, shape (n,)
    reference, reference_logits, reference_weights : arrays, shapes (m, n_sketch), (m,), (m,)
        Items that stand for all others, on which the label stays as frequent as it was.
    """
    known, target = sketches.astype(np.float64), answers.astype(np.float64)
    found: list[tuple[Matrix, float, float]] = []
    for strength in STRENGTHS:
        found.append(_solved(known, logits, target, strength, *(found[-1][:2] if found else ())))
        if found[-1][2] < max(one[2] for one in found) - _HOPELESS:
            break  # what is stronger still explains the answers even worse
    evidence = np.array([one[2] for one in found])
    shares = np.exp(evidence - evidence.max())
    shares /= shares.sum()
    weights = sum(share * one[0] for share, one in zip(shares, found, strict=True))
    if not len(reference):
        offset = sum(share * one[1] for share, one in zip(shares, found, strict=True))
        return Correction(np.asarray(weights), float(offset))
    moved = reference_logits + reference @ weights
    expected = reference_weights @ sigmoid(reference_logits) / reference_weights.sum()
    intercept = match_frequencies(moved[:, None], reference_weights, np.array([expected]))
    return Correction(np.asarray(weights), float(intercept[0]))


def _solved(
    known: Matrix,
    logits: Matrix,
    target: Matrix,
    strength: float,
    start: Matrix | float = 0.0,
    start_offset: float = 0.0,
) -> tuple[Matrix, float, float]:
    """Give the most likely weights and offset for a strength, and the log evidence for it."""
    rows = np.hstack([known * strength**0.5, np.full((len(known), 1), OFFSET**0.5)])
    gram = rows @ rows.T if len(rows) <= _DUAL else None

    def posterior(weights: Matrix) -> float:
        z = logits + rows @ weights
        return float(-np.logaddexp(0, np.where(target > 0, -z, z)).sum() - 0.5 * weights @ weights)

    weights = np.empty(rows.shape[1])
    weights[:-1], weights[-1] = start / strength**0.5, start_offset / OFFSET**0.5
    value = posterior(weights)
    for _ in range(_STEPS):
        moved = rows @ weights
        likely = sigmoid(logits + moved)
        spread = np.maximum(likely * (1 - likely), 1e-6)
        wanted = spread * moved + target - likely
        if gram is not None:
            root = np.sqrt(spread)
            inner = np.eye(len(rows)) + root[:, None] * gram * root
            solved = wanted - root * np.linalg.solve(inner, root * (gram @ wanted))
            change = rows.T @ solved - weights
        else:
            inner = np.eye(rows.shape[1]) + rows.T @ (rows * spread[:, None])
            change = np.linalg.solve(inner, rows.T @ wanted) - weights
        # Where answers contradict what was certain, a whole step leads too far.
        while (after := posterior(weights + change)) < value and np.abs(change).max() > 1e-9:
            change *= 0.5
        weights, value = weights + change, after
        if np.abs(change).max() < _SMALL:
            break
    evidence = value - 0.5 * np.linalg.slogdet(inner)[1]
    return weights[:-1] * strength**0.5, float(weights[-1] * OFFSET**0.5), float(evidence)
