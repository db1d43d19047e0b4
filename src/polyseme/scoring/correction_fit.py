"""The correction of one label's logits by verdicts, in closed form.

In: random projections of the items that verdicts are about, the logits they had, and the answers.
Out: a direction that is added to the label's logits, so that they agree with the answers as far as
these can be believed.

A label's logit is taken to be what the space says plus a function of the features that is drawn
from a Gaussian process; the answers are its likelihood (logistic regression). The strength of the
process is weighed by the evidence for each strength (Laplace approximation), so that answers which
only confirm what was known change little. Items that people were asked about are no random sample,
but they were chosen by what the space says of them, which the logits hold already: given these,
their answers are as good as any others. How often a label is expected stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import IntArray
from polyseme.space.calibration import match_frequencies, sigmoid

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

# Prior variances of the function that are tried, and that of its mean.
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
OFFSET = 1.0
# Newton's method: the most steps, the change that is small enough to stop, and the share of the
# last change from which on the curvature is computed again.
_MAX_STEPS = 100
_TOLERANCE = 1e-7
_SLOW = 0.5
# A strength whose log evidence is so far behind another's has no share.
_HOPELESS = 12.0


class Correction(NamedTuple):
    """What is added to the logits of one label: projections @ weights + intercept."""

    weights: Matrix  # (projection_size,)
    intercept: float
    key: bytes = b""  # under which it is cached


class CorrectionTable(NamedTuple):
    """The corrections of several labels, side by side."""

    columns: IntArray  # (n_corrected,)
    weights: Matrix  # (projection_size, n_corrected)
    intercepts: Matrix  # (n_corrected,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"CorrectionTable({len(self.columns)} labels)"

    @classmethod
    def of(cls, corrections: Mapping[int, Correction]) -> CorrectionTable:
        """Put corrections by column side by side."""
        weights: Matrix = np.empty((0, 0))
        if corrections:
            label_weights = [correction.weights for correction in corrections.values()]
            weights = np.stack(label_weights, axis=1)
        columns = np.array(list(corrections), dtype=np.int64)
        label_intercepts = [correction.intercept for correction in corrections.values()]
        intercepts = np.array(label_intercepts)
        return cls(columns, weights, intercepts)

    def select(self, columns: Sequence[int]) -> CorrectionTable:
        """Return the corrections of some columns, by their places among these."""
        corrected = {column: place for place, column in enumerate(self.columns.tolist())}
        new_columns = []
        places = []
        for new_column, column in enumerate(columns):
            if column in corrected:
                new_columns.append(new_column)
                places.append(corrected[column])
        new_column_array = np.array(new_columns, dtype=np.int64)
        return CorrectionTable(new_column_array, self.weights[:, places], self.intercepts[places])

    def additions(self, projections: Floats) -> Matrix:
        """Return what is added to the logits of items, by their projections, (n, n_corrected)."""
        return np.asarray(projections @ self.weights + self.intercepts)


def fit_correction(
    projections: Floats,
    logits: Matrix,
    answers: NDArray[np.bool_],
    reference: Floats,
    reference_logits: Matrix,
    reference_weights: Matrix,
) -> Correction:
    """Fit the correction of one label to answers.

    Parameters
    ----------
    projections : float32 array, shape (n, projection_size)
        Projections of the items that verdicts are about.
    logits : float64 array, shape (n,)
        Their logits without corrections.
    answers : bool array, shape (n,)
    reference : float32 array, shape (m, projection_size)
    reference_logits, reference_weights : float64 arrays, shape (m,)
        The reference sample, on which the label stays as frequent as it was.
    """
    inputs = projections.astype(np.float64)
    target = answers.astype(np.float64)
    basis = None
    if len(inputs) < inputs.shape[1]:
        # Weights are mixtures of the items' projections, no more of them than answers.
        basis, triangle = np.linalg.qr(inputs.T)
        inputs = np.ascontiguousarray(triangle.T)

    solutions: list[_Solution] = []
    solution = None
    for strength in STRENGTHS:
        solution = _solve(inputs, logits, target, strength, solution)
        solutions.append(solution)
        best_evidence = max(candidate.evidence for candidate in solutions)
        if solution.evidence < best_evidence - _HOPELESS:
            break  # what is stronger still explains the answers even worse

    # Strengths are averaged by their evidence.
    evidence = np.array([candidate.evidence for candidate in solutions])
    shares = np.exp(evidence - evidence.max())
    shares /= shares.sum()
    solution_weights = np.stack([candidate.weights for candidate in solutions])
    mixture = np.asarray(shares @ solution_weights)
    weights = mixture[:-1]
    offset = float(mixture[-1])
    if basis is not None:
        weights = basis @ weights
    if not len(reference):
        return Correction(weights, offset)

    # The label stays as frequent as it was on the reference sample.
    corrected_logits = reference_logits + reference @ weights
    expected_count = reference_weights @ sigmoid(reference_logits)
    frequencies = np.array([expected_count / reference_weights.sum()])
    columns = corrected_logits[:, None]
    (intercept,) = match_frequencies(columns, reference_weights, frequencies)
    return Correction(weights, float(intercept))


class _Solution(NamedTuple):
    """The most likely weights for a strength, the offset last, and how well it explains answers."""

    weights: Matrix  # (projection_size + 1,)
    evidence: float  # its logarithm
    curvature: Matrix  # of the likelihood there, (projection_size + 1, projection_size + 1)


def _solve(
    inputs: Matrix,
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

    rows = np.hstack([inputs, np.ones((len(inputs), 1))])
    variances = np.full(rows.shape[1], strength)
    variances[-1] = OFFSET
    root = np.sqrt(variances)

    def posterior(weights: Matrix, z: Matrix) -> float:
        # log p(w | y) = -Σ log(1 + exp(∓z)) - ½ wᵀ V⁻¹ w, but for a constant
        losses = np.logaddexp(0, np.where(target > 0, -z, z))
        penalty = 0.5 * weights @ (weights / variances)
        return float(-losses.sum() - penalty)

    def curvature_at(z: Matrix) -> Matrix:
        # Xᵀ diag(p (1 - p)) X
        probabilities = sigmoid(z)
        information = probabilities * (1 - probabilities)
        scale = np.sqrt(np.maximum(information, 1e-6))
        scaled_rows = rows * scale[:, None]
        return np.asarray(scaled_rows.T @ scaled_rows)

    def cholesky(curvature: Matrix) -> tuple[Matrix, bool]:
        # In units of the prior, whose own curvature is then 1.
        hessian = root[:, None] * curvature * root
        diagonal = np.diag_indices_from(hessian)
        hessian[diagonal] += 1
        factor: tuple[Matrix, bool] = cho_factor(hessian, overwrite_a=True, check_finite=False)
        return factor

    weights = np.zeros(rows.shape[1]) if start is None else start.weights
    z = logits + rows @ weights
    curvature = curvature_at(z) if start is None else start.curvature
    is_exact = start is None
    factor = cholesky(curvature)
    value = posterior(weights, z)
    last_size = np.inf
    for _ in range(_MAX_STEPS):
        residuals = target - sigmoid(z)
        slope = rows.T @ residuals - weights / variances
        scaled_step = cho_solve(factor, root * slope, check_finite=False)
        step = root * scaled_step
        z_step = rows @ step
        size = np.abs(step / root).max()
        new_value = posterior(weights + step, z + z_step)
        # Where answers contradict what was certain, a whole step leads too far.
        while new_value < value and size > 1e-9:
            step = step * 0.5
            z_step = z_step * 0.5
            size = size * 0.5
            new_value = posterior(weights + step, z + z_step)
        weights = weights + step
        z = z + z_step
        value = new_value
        if is_exact and size < _TOLERANCE:
            break
        is_exact = bool(size < _TOLERANCE or size > _SLOW * last_size)
        if is_exact:
            curvature = curvature_at(z)
            factor = cholesky(curvature)
        last_size = size
    # Laplace approximation: log evidence = log posterior - ½ log |H|.
    triangle, _ = factor
    half_log_determinant = np.log(np.diag(triangle)).sum()
    evidence = value - half_log_determinant
    return _Solution(weights, float(evidence), curvature)
