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

Terms, for one label with n answers::

    z = z₀ + X w            logits after the correction; z₀ (n,) are those without it
    X                       (n, n_weights) design matrix: projections, then a column of ones
    w ~ N(0, V)             (n_weights,) weights of the projections, then the offset;
                            V is diagonal: the strength for all weights, `OFFSET` for the offset
    P(yes) = sigmoid(z)

Projections are those of `ConceptSpace.project`: random projections of standardised features. What
names of labels add (`polyseme.scoring.name_evidence`) is not in z₀: it is added to z afterwards.
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

# Prior variances of the weights that are tried, and that of the offset. Corrections in the cache of
# a log were fitted with these: whoever changes them raises `_FITTING` of `feedback.corrections`.
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
OFFSET = 1.0
# Newton's method: the most steps, and the change, in prior standard deviations, that is small
# enough to stop. The curvature is computed again where a step is longer than this share of the one
# before.
_MAX_STEPS = 100
_TOLERANCE = 1e-7
_SLOW = 0.5
# A step that does not improve is halved until it is as short as this.
_SHORTEST_STEP = 1e-9
# The variance of an answer, p (1 - p), counts as at least this, so that certain ones still count.
_LEAST_VARIANCE = 1e-6
# A strength whose log evidence is so far behind another's has a share of less than 1e-5.
_MAX_EVIDENCE_GAP = 12.0


class Correction(NamedTuple):
    """What is added to the logits of one label: projections @ weights + intercept.

    Corrections are cached and shared between taggers: nobody may change their weights.
    """

    weights: Matrix  # (projection_size,)
    intercept: float
    key: bytes = b""  # under which it is cached; see `feedback.corrections`


class CorrectionTable(NamedTuple):
    """The corrections of several labels, side by side; nobody may change its arrays."""

    columns: IntArray  # (n_corrected,): columns of these labels in the logits, in any order
    weights: Matrix  # (projection_size, n_corrected)
    intercepts: Matrix  # (n_corrected,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        n_corrected = len(self.columns)
        return f"CorrectionTable({n_corrected} labels)"

    @classmethod
    def of(cls, corrections: Mapping[int, Correction]) -> CorrectionTable:
        """Put the corrections of labels, by the labels' columns, side by side."""
        label_weights = []
        label_intercepts = []
        for correction in corrections.values():
            label_weights.append(correction.weights)
            label_intercepts.append(correction.intercept)
        weights: Matrix = np.empty((0, 0))
        if label_weights:
            weights = np.stack(label_weights, axis=1)
        columns = list(corrections)
        return cls(
            columns=np.array(columns, dtype=np.int64),
            weights=weights,
            intercepts=np.array(label_intercepts),
        )

    def select(self, columns: Sequence[int]) -> CorrectionTable:
        """Return the corrections for logits of which only some columns are left.

        Parameters
        ----------
        columns : sequence of int
            Those that are left, in their new order. Some may have no correction.

        Returns
        -------
        CorrectionTable
            Its `columns` are places among those that are left.
        """
        corrected_columns = self.columns.tolist()
        place_by_column = {column: place for place, column in enumerate(corrected_columns)}
        new_columns = []
        places = []
        for new_column, column in enumerate(columns):
            if column in place_by_column:
                new_columns.append(new_column)
                places.append(place_by_column[column])
        return CorrectionTable(
            columns=np.array(new_columns, dtype=np.int64),
            weights=self.weights[:, places],
            intercepts=self.intercepts[places],
        )

    def additions(self, projections: Floats) -> Matrix:
        """Return what is added to the logits of items, by their projections, (n, n_corrected)."""
        additions = projections @ self.weights + self.intercepts
        return np.asarray(additions)


def fit_correction(
    projections: Floats,
    logits: Matrix,
    answers: NDArray[np.bool_],
    reference_projections: Floats,
    reference_logits: Matrix,
    reference_weights: Matrix,
) -> Correction:
    """Fit the correction of one label to answers.

    Parameters
    ----------
    projections : float32 array, shape (n, projection_size)
        Projections of the items that verdicts are about, at least one.
    logits : float64 array, shape (n,)
        The label's logits on these, without corrections.
    answers : bool array, shape (n,)
        Whether people said that the item carries the label.
    reference_projections : float32 array, shape (n_reference, projection_size)
    reference_logits, reference_weights : float64 arrays, shape (n_reference,)
        The reference sample, on which the label stays as frequent as it was: projections, logits of
        the label and how much each item counts. Where it is empty, the offset is the intercept.

    Returns
    -------
    Correction
        Without a key.
    """
    inputs = projections.astype(np.float64)
    targets = answers.astype(np.float64)
    n_answers, n_inputs = inputs.shape
    basis = None
    if n_answers < n_inputs:
        # The best weights are mixtures of the items' projections. So they are solved for in an
        # orthonormal basis of these, with no more unknowns than answers:
        # projectionsᵀ = basis @ triangle, so projections @ (basis @ w) = triangleᵀ @ w.
        basis, triangle = np.linalg.qr(inputs.T)
        inputs = np.ascontiguousarray(triangle.T)

    # Each strength starts from the solution of the one before.
    solution = None
    weights_by_strength: list[Matrix] = []
    log_evidences: list[float] = []
    for strength in STRENGTHS:
        solution = _solve(inputs, logits, targets, strength, start=solution)
        weights_by_strength.append(solution.weights)
        log_evidences.append(solution.log_evidence)
        best_evidence = max(log_evidences)
        if solution.log_evidence < best_evidence - _MAX_EVIDENCE_GAP:
            break  # what is stronger still explains the answers even worse

    # Solutions are averaged by the evidence for their strength.
    log_evidence = np.array(log_evidences)
    evidence_ratios = np.exp(log_evidence - log_evidence.max())
    strength_shares = evidence_ratios / evidence_ratios.sum()
    solution_weights = np.stack(weights_by_strength)
    mean_weights = np.asarray(strength_shares @ solution_weights)
    weights = mean_weights[:-1]
    offset = float(mean_weights[-1])
    if basis is not None:
        weights = basis @ weights
    if not len(reference_projections):
        return Correction(weights, offset)

    # The offset is dropped: people are asked about likely items, so it says nothing about how
    # frequent the label is. The intercept leaves it as frequent on the reference sample.
    corrected_logits = reference_logits + reference_projections @ weights
    expected_count = reference_weights @ sigmoid(reference_logits)
    frequency = expected_count / reference_weights.sum()
    (intercept,) = match_frequencies(
        corrected_logits[:, None],
        reference_weights,
        np.array([frequency]),
    )
    return Correction(weights, float(intercept))


class _Solution(NamedTuple):
    """The most likely weights for one strength, and how well this strength explains the answers."""

    weights: Matrix  # (n_weights,), the offset last
    log_evidence: float  # of the strength, but for a constant
    curvature: Matrix  # of the log likelihood there, Xᵀ diag(p (1 - p)) X: (n_weights, n_weights)


def _solve(
    inputs: Matrix,
    logits: Matrix,
    targets: Matrix,
    strength: float,
    start: _Solution | None = None,
) -> _Solution:
    """Find the most likely weights for a strength, from those for another on.

    Newton's steps, but the curvature is computed again only where the last one leads too slowly: it
    costs more than several steps do. The last step is always taken with that of its own place.

    Parameters
    ----------
    inputs : float64 array, shape (n, n_weights - 1)
        Projections of the items, perhaps in another basis.
    logits : float64 array, shape (n,)
        z₀ of the module's equation.
    targets : float64 array, shape (n,)
        1 for yes, 0 for no.
    strength : float
        The prior variance of all weights but the offset.
    start : _Solution, optional
        The solution for another strength, with the same inputs.
    """
    from scipy.linalg import cho_factor, cho_solve

    offset_column = np.ones((len(inputs), 1))
    design = np.hstack([inputs, offset_column])
    prior_variances = np.full(design.shape[1], strength)
    prior_variances[-1] = OFFSET
    prior_spreads = np.sqrt(prior_variances)

    def log_posterior(weights: Matrix, z: Matrix) -> float:
        # log p(w | y) = -Σ log(1 + exp(∓z)) - ½ wᵀ V⁻¹ w, but for a constant
        is_yes = targets > 0
        wrong_logits = np.where(is_yes, -z, z)
        losses = np.logaddexp(0, wrong_logits)
        scaled_weights = weights / prior_variances
        penalty = 0.5 * weights @ scaled_weights
        log_likelihood = -losses.sum()
        return float(log_likelihood - penalty)

    def likelihood_curvature(z: Matrix) -> Matrix:
        # Xᵀ diag(p (1 - p)) X
        probabilities = sigmoid(z)
        answer_variances = probabilities * (1 - probabilities)
        answer_variances = np.maximum(answer_variances, _LEAST_VARIANCE)
        answer_spreads = np.sqrt(answer_variances)
        scaled_design = design * answer_spreads[:, None]
        curvature = scaled_design.T @ scaled_design
        return np.asarray(curvature)

    def cholesky_factor(curvature: Matrix) -> tuple[Matrix, bool]:
        # Of the Hessian H = V^½ curvature V^½ + I: in units of the prior, whose own curvature is 1.
        hessian = prior_spreads[:, None] * curvature * prior_spreads
        diagonal = np.diag_indices_from(hessian)
        hessian[diagonal] += 1
        factor: tuple[Matrix, bool] = cho_factor(
            hessian,
            overwrite_a=True,
            check_finite=False,
        )
        return factor

    if start is None:
        weights = np.zeros(design.shape[1])
        z = logits + design @ weights
        curvature = likelihood_curvature(z)
    else:
        weights = start.weights
        z = logits + design @ weights
        curvature = start.curvature
    is_exact = start is None  # whether the curvature is that of the present weights
    factor = cholesky_factor(curvature)
    posterior = log_posterior(weights, z)
    last_step_size = np.inf
    for _ in range(_MAX_STEPS):
        residuals = targets - sigmoid(z)
        prior_gradient = weights / prior_variances
        gradient = design.T @ residuals - prior_gradient
        scaled_gradient = prior_spreads * gradient
        scaled_step = cho_solve(factor, scaled_gradient, check_finite=False)
        step = prior_spreads * scaled_step
        z_step = design @ step
        steps_in_spreads = np.abs(step / prior_spreads)
        step_size = steps_in_spreads.max()
        new_posterior = log_posterior(weights + step, z + z_step)
        # Where answers contradict what was certain, a whole step leads too far.
        while new_posterior < posterior and step_size > _SHORTEST_STEP:
            step = step * 0.5
            z_step = z_step * 0.5
            step_size = step_size * 0.5
            new_posterior = log_posterior(weights + step, z + z_step)
        weights = weights + step
        z = z + z_step
        posterior = new_posterior
        if is_exact and step_size < _TOLERANCE:
            break
        is_close = step_size < _TOLERANCE
        is_slow = step_size > _SLOW * last_step_size
        is_exact = bool(is_close or is_slow)
        if is_exact:
            curvature = likelihood_curvature(z)
            factor = cholesky_factor(curvature)
        last_step_size = step_size
    # Laplace approximation: log evidence = log posterior - ½ log |H|, and log |H| is twice the sum
    # of the logarithms on the diagonal of the Cholesky factor.
    triangle, _ = factor
    factor_diagonal = np.diag(triangle)
    half_log_determinant = np.log(factor_diagonal).sum()
    log_evidence = posterior - half_log_determinant
    return _Solution(weights, float(log_evidence), curvature)
