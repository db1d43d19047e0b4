"""Support vector machines for many labels over one kernel, and Platt's sigmoids for them.

In: a kernel matrix (n, n) and which instance carries which label. Out: expansions over the kernel
whose values are decision values, and the sigmoids that turn these into probabilities.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import IntArray

Matrix = NDArray[np.float64]
Truth = NDArray[np.bool_]

_MAX_STEPS = 100
_SMALLEST_STEP = 1e-10


def fit_machines(kernel: Matrix, truth: Truth, C: float) -> tuple[Matrix, Matrix]:
    """Fit one machine per label.

    Parameters
    ----------
    kernel : float64 array, shape (n, n)
    truth : bool array, shape (n, n_labels)
    C : float
        Bound on a coefficient, the same for carriers of a label and for the others.

    Returns
    -------
    coefficients : float64 array, shape (n, n_labels)
    bias : float64 array, shape (n_labels,)
        Decision values are ``kernel_to_rows @ coefficients + bias``. A label that none (or all) of
        the instances carry has no coefficients and the bias -1 (or 1).
    """
    from sklearn.svm import SVC

    coefficients = np.zeros(truth.shape)
    bias = np.where(truth.all(axis=0), 1.0, -1.0)
    for column in np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0)):
        machine = SVC(C=C, kernel="precomputed").fit(kernel, truth[:, column])
        coefficients[machine.support_, column] = machine.dual_coef_[0]
        bias[column] = machine.intercept_[0]
    return coefficients, bias


def held_out_decisions(kernel: Matrix, truth: Truth, folds: IntArray, C: float) -> Matrix:
    """Give the decision values of each instance by machines that have not seen it.

    Parameters
    ----------
    kernel : float64 array, shape (n, n)
    truth : bool array, shape (n, n_labels)
    folds : int64 array, shape (n,)
        Which fold holds each instance out; at least two of them.
    C : float

    Returns
    -------
    float64 array, shape (n, n_labels)
    """
    decisions = np.empty(truth.shape)
    for fold in range(int(folds.max()) + 1):
        held, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        coefficients, bias = fit_machines(kernel[np.ix_(others, others)], truth[others], C)
        decisions[held] = kernel[np.ix_(held, others)] @ coefficients + bias
    return decisions


def fit_platt(decisions: Matrix, truth: Truth) -> tuple[Matrix, Matrix]:
    """Fit Platt's sigmoids: the likeliest ``1 / (1 + exp(-(slope * decision + offset)))``.

    Parameters
    ----------
    decisions : float64 array, shape (n, n_labels)
    truth : bool array, shape (n, n_labels)

    Returns
    -------
    slope, offset : float64 arrays, shape (n_labels,)

    Notes
    -----
    Targets are (p + 1) / (p + 2) for the p carriers of a label and 1 / (q + 2) for the q others,
    which keeps the sigmoid finite where decisions tell the two apart. Newton's method with halved
    steps, for all labels at once. A slope may come out negative, as it may in LIBSVM.
    """
    carriers = truth.sum(axis=0)
    targets = np.where(truth, (carriers + 1) / (carriers + 2), 1 / (len(truth) - carriers + 2))
    centre, spread = decisions.mean(axis=0), decisions.std(axis=0)
    flat = spread <= 1e-12 * np.maximum(np.abs(centre), 1.0)
    spread[flat] = 1.0
    inputs = np.where(flat, 0.0, (decisions - centre) / spread)
    mean = targets.mean(axis=0)
    parameters = np.array([np.zeros_like(mean), np.log(mean / (1 - mean))])
    loss = _platt_loss(inputs, targets, parameters)
    for _ in range(_MAX_STEPS):
        step, length = _newton_step(inputs, targets, parameters), np.ones_like(mean)
        while True:
            tried = _platt_loss(inputs, targets, parameters - length * step)
            worse = tried > loss
            if not worse.any():
                break
            length = np.where(worse, np.where(length > _SMALLEST_STEP, length / 2, 0.0), length)
        parameters, loss = parameters - length * step, tried
        if np.abs(length * step).max() < 1e-10:
            break
    slope = parameters[0] / spread
    return slope, parameters[1] - slope * np.where(flat, 0.0, centre)


def apply_platt(decisions: Matrix, slope: Matrix, offset: Matrix) -> Matrix:
    """Turn decision values (n, n_labels) into probabilities of the same shape."""
    from scipy.special import expit

    return np.asarray(expit(slope * decisions + offset))


def _platt_loss(inputs: Matrix, targets: Matrix, parameters: Matrix) -> Matrix:
    """Give the mean negative log-likelihood of each label, (n_labels,)."""
    values = parameters[0] * inputs + parameters[1]
    return np.asarray((np.logaddexp(0, values) - targets * values).mean(axis=0))


def _newton_step(inputs: Matrix, targets: Matrix, parameters: Matrix) -> Matrix:
    """Give the steps that Newton's method takes away from slope and offset, (2, n_labels)."""
    likely = apply_platt(inputs, parameters[0], parameters[1])
    error, weight = likely - targets, likely * (1 - likely)
    pull, push = (error * inputs).mean(axis=0), error.mean(axis=0)
    # The guard keeps labels solvable whose inputs are all the same.
    steep = (weight * inputs**2).mean(axis=0) + 1e-12
    both, level = (weight * inputs).mean(axis=0), weight.mean(axis=0) + 1e-12
    area = steep * level - both**2
    step: Matrix = np.array([level * pull - both * push, steep * push - both * pull]) / area
    return step
