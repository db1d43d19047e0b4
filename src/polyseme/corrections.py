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

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from polyseme._validation import IntArray
from polyseme.calibration import match_frequencies, sigmoid
from polyseme.persistence import package_version, read_cache, write_cache

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

# Variances of the function that are tried, and that of its mean.
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
OFFSET = 1.0
# Dimensions of a sketch at the most.
SKETCH = 512
# Steps at the most, the change that is small enough to stop, and the share of the change before
# from which on a curvature is made anew.
_STEPS, _SMALL, _SLOW = 100, 1e-7, 0.5
# The way they are learned, to be raised whenever it changes; bytes of the digest of a source.
_FORM, SOURCE = 2, 32
# A strength whose log evidence is so far behind another's has no share.
_HOPELESS = 12.0


class Correction(NamedTuple):
    """What is added to the logits of one label: sketches @ weights + intercept."""

    weights: Matrix  # (n_sketch,)
    intercept: float
    source: bytes = b""  # the digest of all that it was learned from, where somebody made one


class CorrectionTable(NamedTuple):
    """The corrections of several labels, side by side."""

    columns: IntArray  # (n_corrected,)
    weights: Matrix  # (n_sketch, n_corrected)
    intercepts: Matrix  # (n_corrected,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"CorrectionTable({len(self.columns)} labels)"

    @classmethod
    def of(cls, corrections: Mapping[int, Correction]) -> CorrectionTable:
        """Put corrections by column side by side."""
        learned = list(corrections.values())
        weights = (
            np.stack([one.weights for one in learned], axis=1) if learned else np.empty((0, 0))
        )
        columns = np.array([*corrections], dtype=np.int64)
        return cls(columns, weights, np.array([one.intercept for one in learned]))

    def select(self, columns: Sequence[int]) -> CorrectionTable:
        """Return the corrections of some columns, by their places among these."""
        own = {column: place for place, column in enumerate(self.columns.tolist())}
        places = [place for place, column in enumerate(columns) if column in own]
        some = [own[columns[place]] for place in places]
        numbers = np.array(places, dtype=np.int64)
        return CorrectionTable(numbers, self.weights[:, some], self.intercepts[some])

    def additions(self, sketches: Floats) -> Matrix:
        """Return what is added to the logits of items, by their sketches, (n, n_corrected)."""
        return np.asarray(sketches @ self.weights + self.intercepts)


@lru_cache(maxsize=2)
def _signs(n_features: int) -> Floats:
    """Return the projection of features to sketches, (n_features, SKETCH).

    Its signs are bits that are the same in every version of numpy, so that a sketch which was kept
    stays one of the same space.
    """
    drawn = np.random.PCG64(n_features).random_raw(n_features * SKETCH // 64)
    bits = np.unpackbits(np.asarray(drawn, dtype="<u8").view(np.uint8))
    signs = bits.reshape(n_features, SKETCH).astype(np.float32) * 2 - 1
    return np.asarray(signs / np.float32(SKETCH**0.5))


def sketch(features: Floats) -> Floats:
    """Return directions (n, n_sketch) of bounded size that keep the cosines of features.

    Standardised features (n, n_features) are left as they are but for their length, where there are
    no more than `SKETCH` of them.
    """
    n_features = features.shape[1]
    made = features if n_features <= SKETCH else features @ _signs(n_features)
    lengths = np.sqrt(np.einsum("ij,ij->i", made, made))[:, None]
    return np.asarray(made / np.maximum(lengths, 1e-9), dtype=np.float32)


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
    known, target, back = sketches.astype(np.float64), answers.astype(np.float64), None
    if len(known) < known.shape[1]:
        # Weights are mixtures of the items' sketches: there are no more dimensions than answers.
        back, triangle = np.linalg.qr(known.T)
        known = np.ascontiguousarray(triangle.T)
    found: list[_Solution] = []
    for strength in STRENGTHS:
        found.append(_solved(known, logits, target, strength, found[-1] if found else None))
        if found[-1].evidence < max(one.evidence for one in found) - _HOPELESS:
            break  # what is stronger still explains the answers even worse
    evidence = np.array([one.evidence for one in found])
    shares = np.exp(evidence - evidence.max())
    shares /= shares.sum()
    mixed = np.asarray(shares @ np.stack([one.weights for one in found]))
    weights = mixed[:-1] if back is None else back @ mixed[:-1]
    if not len(reference):
        return Correction(weights, float(mixed[-1]))
    moved = reference_logits + reference @ weights
    expected = reference_weights @ sigmoid(reference_logits) / reference_weights.sum()
    intercept = match_frequencies(moved[:, None], reference_weights, np.array([expected]))
    return Correction(weights, float(intercept[0]))


class _Solution(NamedTuple):
    """The most likely weights for a strength, the offset last, and how well it explains answers."""

    weights: Matrix  # (n_sketch + 1,)
    evidence: float  # its logarithm
    curvature: Matrix  # of the likelihood there, (n_sketch + 1, n_sketch + 1)


def _solved(
    known: Matrix,
    logits: Matrix,
    target: Matrix,
    strength: float,
    start: _Solution | None = None,
) -> _Solution:
    """Find the most likely weights for a strength, from those for another on.

    Newton's steps, but a curvature is made anew only where the one at hand leads too slowly: it
    costs more than several steps do. The last step is always taken with that of its own place.
    """
    from scipy.linalg import cho_factor, cho_solve

    rows = np.hstack([known, np.ones((len(known), 1))])
    variances = np.full(rows.shape[1], strength)
    variances[-1] = OFFSET
    root = np.sqrt(variances)

    def posterior(weights: Matrix, z: Matrix) -> float:
        likelihood = -np.logaddexp(0, np.where(target > 0, -z, z)).sum()
        return float(likelihood - 0.5 * weights @ (weights / variances))

    def curved(z: Matrix) -> Matrix:
        likely = sigmoid(z)
        scaled = rows * np.sqrt(np.maximum(likely * (1 - likely), 1e-6))[:, None]
        return np.asarray(scaled.T @ scaled)

    def factored(curvature: Matrix) -> tuple[Matrix, bool]:
        # In units of the prior, whose own curvature is then 1.
        inner = root[:, None] * curvature * root
        inner.flat[:: len(inner) + 1] += 1
        factor: tuple[Matrix, bool] = cho_factor(inner, overwrite_a=True, check_finite=False)
        return factor

    weights = np.zeros(rows.shape[1]) if start is None else start.weights
    z = logits + rows @ weights
    curvature, exact = (curved(z), True) if start is None else (start.curvature, False)
    factor, value, last = factored(curvature), posterior(weights, z), np.inf
    for _ in range(_STEPS):
        slope = rows.T @ (target - sigmoid(z)) - weights / variances
        change = root * cho_solve(factor, root * slope, check_finite=False)
        size = np.abs(change / root).max()
        moved = rows @ change
        # Where answers contradict what was certain, a whole step leads too far.
        while (after := posterior(weights + change, z + moved)) < value and size > 1e-9:
            change, moved, size = change * 0.5, moved * 0.5, size * 0.5
        weights, z, value = weights + change, z + moved, after
        if exact and size < _SMALL:
            break
        exact = bool(size < _SMALL or size > _SLOW * last)
        if exact:
            curvature = curved(z)
            factor = factored(curvature)
        last = size
    evidence = value - np.log(np.diag(factor[0])).sum()
    return _Solution(weights, float(evidence), curvature)


# ---------------------------------------------------------------------- what was learned before


@cache
def learned_by() -> str:
    """Return who learns corrections; of others, the last bits may differ."""
    versions = (package_version(), np.__version__, scipy.__version__)
    return f"{_FORM} {versions} {STRENGTHS} {OFFSET} {_STEPS} {_SMALL} {_SLOW} {_HOPELESS}"


def keep_corrections(file: Path, corrections: Collection[Correction]) -> None:
    """Keep corrections by their sources, in place of those in the file; see `write_cache`."""
    write_cache(
        file,
        {
            "sources": np.frombuffer(b"".join(one.source for one in corrections), dtype=np.uint8),
            "weights": np.stack([one.weights for one in corrections]),
            "intercepts": np.array([one.intercept for one in corrections]),
        },
    )


def kept_corrections(file: Path, n_sketch: int) -> dict[bytes, Correction]:
    """Return the corrections that a file keeps, by their sources; none where it cannot be used."""
    arrays = read_cache(file)
    weights, intercepts, sources = map(arrays.get, ("weights", "intercepts", "sources"))
    if weights is None or intercepts is None or sources is None:
        return {}
    n = len(intercepts) if intercepts.ndim == 1 else 0
    told = {"weights": (n, n_sketch), "intercepts": (n,), "sources": (n * SOURCE,)}
    numbers = weights.dtype == intercepts.dtype == np.float64 and sources.dtype == np.uint8
    if {name: one.shape for name, one in arrays.items()} != told or not numbers:
        return {}
    if not (np.isfinite(weights).all() and np.isfinite(intercepts).all()):
        return {}
    names = [one.tobytes() for one in sources.reshape(n, SOURCE)]
    kept = zip(weights, intercepts.tolist(), names, strict=True)
    return {one.source: one for one in map(Correction._make, kept)}
