"""Kernel regressions on landmarks, for more rows than a kernel matrix has room for.

In: rows, some of them as landmarks, and targets (n, d). Out: coefficients (m, d) of the landmarks
and a bias per output, from the Nyström approximation ``K_nm K_mm^-1 K_mn`` of the kernel, whose
blocks are kept or computed anew as memory allows (which scikit-learn's `Nystroem` cannot).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyseme._validation import FloatArray, IntArray
from polyseme.published.kernels import (
    Array,
    Rows,
    like,
    rbf_kernel,
    rbf_rows,
    row_blocks,
    solve_positive,
    to_device,
    to_numpy,
)
from polyseme.published.nu_svr import (
    GREATEST_RHO,
    Outputs,
    first_rho,
    standardise,
    take_steps,
)

MOST_LANDMARKS = 3000
# Landmarks that the others explain up to this much add nothing but rounding.
_LEAST_PIVOT = {"float32": 1e-5, "float64": 1e-10}
# How a memory bound is shared out: blocks of rows, the kernel to the landmarks, the solver, which
# holds eight arrays of n numbers for each output.
_BLOCK_SHARE, _STORE_SHARE, _STATE_SHARE, _STATE_ARRAYS = 0.1, 0.45, 0.4, 8
# Closer to the optimum than this, what landmarks leave out weighs far more.
_LEAST_TOLERANCE = 3e-3
_MAX_ITER, _CHANGE_EVERY = 200, 5


def landmarks_within(n: int, memory_bytes: float, row_bytes: int = 0) -> int:
    """Say how many landmarks a memory bound has room for: at most n and 3,000, at least 1.

    Half of it is for four (m, m) matrices in float64; `row_bytes` is what is held of each of n rows
    for each landmark, 0 where rows come in blocks and go.
    """
    most = (memory_bytes / 64) ** 0.5
    if row_bytes:
        most = min(most, _STORE_SHARE * memory_bytes / (n * row_bytes))
    return int(np.clip(most, 1, min(n, MOST_LANDMARKS)))


class LandmarkKernel:
    """The kernel between all rows and landmarks, block by block, and what regressions need of it.

    `take` gives the rows of a slice, dense and scaled; landmarks, (m, n_features), are scaled too.
    Those that the others explain are left out: `kept`, (r,), says which are used, `landmarks` are
    their rows. "cpu" computes by numpy, other devices by torch.
    """

    def __init__(
        self,
        take: Callable[[slice], FloatArray],
        n: int,
        landmarks: Rows,
        gamma: float,
        memory_bytes: float,
        device: str = "cpu",
    ) -> None:
        self.kept, root = _independent(landmarks, gamma)
        self.landmarks, self.memory_bytes = landmarks[self.kept], memory_bytes
        self._take, self._n, self._gamma, self._device = take, n, gamma, device
        self._dtype = landmarks.dtype
        self._rows, self._root = to_device(self.landmarks, device), to_device(root, device)
        # A block is its features twice, its kernel, and that once more in float64.
        width = 16 * landmarks.shape[1] + (self._dtype.itemsize + 8) * len(self.kept)
        self._blocks = list(row_blocks(n, width, _BLOCK_SHARE * memory_bytes))
        self._stored: list[Array] = []

    def fit_ridge(self, targets: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
        """Fit kernel ridge regressions of targets (n, d): coefficients (r, d) and bias (d,).

        With every row a landmark it is the problem of `solve_kernel_ridge`. Memory does not grow
        with the rows.
        """
        mean = targets.mean(axis=0, dtype=np.float64)
        gram, _, cross = self._sums(targets)
        weights = solve_positive(self._root.T @ gram @ self._root, penalty, self._root.T @ cross)
        return to_numpy(self._root @ weights).astype(self._dtype), mean.astype(self._dtype)

    def fit_nu_svr(
        self, targets: FloatArray, nu: float, C: float, tolerance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Fit nu-support-vector regressions of targets (n, d): coefficients (r, d) and bias (d,).

        The loss and its weights are those of `SharedKernelSolver`. What is given is the method's
        function of the landmarks and not its dual coefficients: it comes within a few thousandths
        of a spread of the optimum in tens of steps, the coefficients in hundreds. The method stops
        when five steps change predictions by less than the tolerance, in spreads of the target
        (root mean square over the rows); 0.003 where it is smaller, after 200 steps at the latest.
        """
        size = self._n * self._dtype.itemsize
        if size * len(self.kept) <= _STORE_SHARE * self.memory_bytes:
            self._stored = [kernel for _, kernel in self._kernels()]
        gram, sums, _ = self._sums(targets[:, :0])
        self._means = sums / self._n
        mean = self._root.T @ self._means
        self._gram = self._root.T @ gram @ self._root - self._n * mean[:, None] * mean
        most = max(int(_STATE_SHARE * self.memory_bytes / (_STATE_ARRAYS * size)), 1)
        coefficients = np.empty((len(self.kept), targets.shape[1]), self._dtype)
        bias = np.empty(targets.shape[1], self._dtype)
        for part in _alike(targets, most):
            y, centre, spread = standardise(targets[:, part], self._dtype)
            bound = (C / spread).astype(self._dtype)
            weights, middle = self._iterate(y, bound, nu, max(tolerance, _LEAST_TOLERANCE))
            coefficients[:, part] = (weights * spread[:, None]).T
            bias[part] = middle * spread + centre
        return coefficients, bias

    def _kernels(self) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of rows with their kernel to the landmarks, (b, r) each."""
        for number, block in enumerate(self._blocks):
            if self._stored:
                yield block, self._stored[number]
            else:
                queries = to_device(self._take(block), self._device)
                yield block, rbf_rows(queries, self._rows, self._gamma)

    def _sums(self, targets: FloatArray) -> tuple[Array, Array, Array]:
        """Sum products of kernel columns (r, r), the columns (r,), their products with targets.

        The last is (r, d), of centred targets (n, d).
        """
        xp, mean = array_namespace(self._root), targets.mean(axis=0, dtype=np.float64)
        gram, sums = xp.zeros_like(self._root), xp.zeros_like(self._root[0])
        cross = like(np.zeros((len(self.kept), len(mean))), self._root)
        for block, kernel in self._kernels():
            wide = xp.astype(kernel, xp.float64, copy=False)
            gram += wide.T @ wide
            sums += xp.sum(wide, axis=0)
            cross += kernel.T @ like((targets[block] - mean).astype(self._dtype), kernel)
        return gram, sums, cross

    def _iterate(
        self, y: FloatArray, bound: FloatArray, nu: float, tolerance: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run the method for targets (g, n); give weights (g, r) of landmarks and biases (g,)."""
        xp = array_namespace(self._root)
        # Predictions and not coefficients must settle, for which half the usual rho serves best.
        roughness = max(float(xp.linalg.trace(self._gram)) / self._n, 1e-6)
        rho = float(np.clip(0.5 * first_rho(roughness, bound), 1e-4, GREATEST_RHO))
        ridge = solve_positive(self._gram, rho, self._root.T).T
        state = Outputs.start(like(y, self._root), like(bound, self._root), nu)
        features = before = like(np.zeros((len(y), len(self.kept))), self._root)

        def minimise(q: Array) -> Array:
            # Weights of the features ``K_nm root``: a ridge regression of q with penalty rho. With
            # them the Woodbury identity gives ``(K + rho I)^-1 q``.
            nonlocal features
            total = -xp.sum(q, axis=1, dtype=xp.float64)[:, None] * self._means
            for block, kernel in self._kernels():
                total += q[:, block] @ kernel
            features = total @ ridge
            self._subtract(q, features)
            q -= xp.mean(q, axis=1, keepdims=True)
            q *= 1 / rho
            return q

        for _ in range(_MAX_ITER // _CHANGE_EVERY):
            take_steps(state, rho, minimise, _CHANGE_EVERY)
            change, before = features - before, features
            square = xp.sum((change @ self._gram) * change, axis=1)
            if float(xp.max(square)) <= self._n * tolerance**2:
                break
        self._subtract(state.y, features)
        weights, residuals = features @ self._root.T, to_numpy(state.y)
        return to_numpy(weights), tube_middles(residuals, nu) - to_numpy(weights @ self._means)

    def _subtract(self, q: Array, features: Array) -> None:
        """Take what weights (g, r) of features predict, centred, from q (g, n), in place."""
        xp, weights = array_namespace(q), features @ self._root.T
        middle = xp.astype(weights @ self._means, q.dtype)[:, None]
        for block, kernel in self._kernels():
            part = q[:, block]
            part -= xp.astype(weights, q.dtype) @ kernel.T
            part += middle


def _alike(targets: FloatArray, most: int) -> Iterator[IntArray]:
    """Yield groups of at most so many outputs whose spreads, within a factor of 4, want one rho."""
    spreads = targets[:: max(len(targets) // 10_000, 1)].std(axis=0, dtype=np.float64)
    order, start = np.argsort(spreads), 0
    for stop in range(1, len(order) + 1):
        full = stop == len(order) or stop - start == most
        if full or spreads[order[stop]] > 4 * max(spreads[order[start]], 1e-300):
            yield order[start:stop]
            start = stop


def tube_middles(t: FloatArray, nu: float) -> NDArray[np.float64]:
    """Give the biases of residuals (g, n): half of nu's share lies above the tube, half below."""
    n = t.shape[1]
    # Where a whole number of rows lies outside, the edge may pass anywhere between two of them.
    first, second = int(np.ceil(nu * n / 2)) - 1, min(int(nu * n / 2), n - 1)
    places = [first, second, n - 1 - second, n - 1 - first]
    ordered = np.partition(t, sorted(set(places)), axis=1)[:, places].astype(np.float64)
    return np.asarray(ordered.mean(axis=1))


def _independent(landmarks: Rows, gamma: float) -> tuple[IntArray, NDArray[np.float64]]:
    """Find the r landmarks that do not explain each other, and the root of their inverse kernel.

    For the root (r, r), ``root @ root.T`` is that inverse.
    """
    sparse = sp.issparse(landmarks)
    wide = sp.csr_matrix(landmarks, dtype=np.float64) if sparse else landmarks.astype(np.float64)
    kernel = rbf_kernel(wide, gamma)
    _, order, rank, _ = lapack.dpstrf(kernel.T, lower=1, tol=_LEAST_PIVOT[str(landmarks.dtype)])
    kept = np.sort(order[:rank] - 1).astype(np.int64)
    factor, _ = lapack.dpotrf(kernel[np.ix_(kept, kept)].T, lower=1, clean=1)
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return kept, np.ascontiguousarray(inverse.T)
