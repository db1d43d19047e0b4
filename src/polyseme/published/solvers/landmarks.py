"""Kernel regressions on landmarks, for more rows than a kernel matrix has room for.

In: a kernel between n rows and m of them (the Nyström approximation ``K_nm K_mm^-1 K_mn``), block
by block, and targets (n, d). Out: coefficients (m, d) of the landmarks and a bias per output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from polyseme._validation import FloatArray, IntArray
from polyseme.published.solvers.blocks import in_blocks
from polyseme.published.solvers.kernels import Rows, rbf_kernel, rbf_rows, row_blocks
from polyseme.published.solvers.nu_svr import GREATEST_RHO, OVER_RELAXATION, first_rho, standardise
from polyseme.published.solvers.projection import project_to_box_and_budget

Take: TypeAlias = Callable[[slice | IntArray], FloatArray]

MOST_LANDMARKS = 3000
# Landmarks that the others explain up to this much add nothing but rounding.
_LEAST_PIVOT = {"float32": 1e-5, "float64": 1e-10}
# How a memory bound is shared out: blocks of rows, the kernel to the landmarks, the solver.
_BLOCK_SHARE, STORE_SHARE, STATE_SHARE = 0.1, 0.45, 0.4
# What the solver holds of one output: six arrays of n numbers.
_STATE_ARRAYS = 6
# Closer to the optimum than this, what landmarks leave out weighs far more.
LEAST_TOLERANCE = 3e-3
MAX_ITER = 200
CHANGE_EVERY = 5
_LIKE_SPREADS = 4.0


class LandmarkSolution(NamedTuple):
    """Coefficients (m, d) of the landmarks and bias (d,), as for a kernel of the landmarks."""

    coefficients: FloatArray
    bias: FloatArray


def landmarks_within(n: int, memory_bytes: float, row_bytes: int = 0) -> int:
    """Say how many landmarks a memory bound has room for: at most n and 3,000, at least 1.

    Parameters
    ----------
    n : int
        Rows.
    memory_bytes : float
        Half of it is for four (m, m) matrices in float64.
    row_bytes : int
        What is held of a row for each landmark; 0 where rows come in blocks and go.
    """
    most = (memory_bytes / 64) ** 0.5
    if row_bytes:
        most = min(most, STORE_SHARE * memory_bytes / (n * row_bytes))
    return int(np.clip(most, 1, min(n, MOST_LANDMARKS)))


def draw_landmarks(n: int, m: int, generator: np.random.Generator) -> IntArray:
    """Draw m of n rows, all with the same chance; give their numbers in ascending order.

    On features of pictures, rows drawn far from each other predict no better and take longer.
    """
    return np.sort(generator.choice(n, min(m, n), replace=False)).astype(np.int64)


class LandmarkRows:
    """The kernel between all rows and the landmarks, kept whole or computed anew each time.

    Parameters
    ----------
    take : callable
        Gives the rows of a slice, dense and scaled.
    n : int
    landmarks : array or csr_matrix, shape (m, n_features)
        Scaled. Those that the others explain are left out.
    gamma : float
    memory_bytes : float

    Attributes
    ----------
    kept : int64 array, shape (r,)
        Which landmarks are used, in ascending order.
    root : float64 array, shape (r, r)
        ``root @ root.T`` is the inverse of the landmarks' own kernel.
    """

    def __init__(
        self, take: Take, n: int, landmarks: Rows, gamma: float, memory_bytes: float
    ) -> None:
        self.n, self.gamma, self.take = n, gamma, take
        self.dtype: np.dtype[Any] = landmarks.dtype
        self.kept, self.root = independent(landmarks, gamma)
        self.landmarks = landmarks[self.kept]
        self.memory_bytes = memory_bytes
        # A block is its features twice, its kernel, and that once more in float64.
        width = 16 * landmarks.shape[1] + (self.dtype.itemsize + 8) * len(self.kept)
        self.blocks = list(row_blocks(n, width, _BLOCK_SHARE * memory_bytes))
        self._stored: FloatArray | None = None

    def __len__(self) -> int:
        """Give the number of landmarks used."""
        return len(self.kept)

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of rows with their kernel to the landmarks, (b, r) each."""
        for block in self.blocks:
            if self._stored is not None:
                yield block, self._stored[block]
            else:
                yield block, rbf_rows(self.take(block), self.landmarks, self.gamma)

    def store(self) -> None:
        """Keep the kernel where the memory bound allows."""
        if self.n * len(self) * self.dtype.itemsize <= STORE_SHARE * self.memory_bytes:
            stored = np.empty((self.n, len(self)), dtype=self.dtype)
            for block, kernel in self:
                stored[block] = kernel
            self._stored = stored

    def gram(
        self, also: Callable[[slice, FloatArray], None] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum over all rows: the products of kernel columns (r, r), and the columns (r,).

        Parameters
        ----------
        also : callable, optional
            Called with each block of rows and its kernel, which is then computed only once.
        """
        total = np.zeros((len(self), len(self)), order="F")
        sums = np.zeros(len(self))
        for block, kernel in self:
            if also is not None:
                also(block, kernel)
            wide = kernel.astype(np.float64, copy=False)
            total = blas.dsyrk(1.0, wide.T, beta=1.0, c=total, lower=1, overwrite_c=1)
            sums += wide.sum(axis=0)
        return np.tril(total) + np.tril(total, -1).T, sums


def solve_landmark_ridge(
    rows: LandmarkRows, targets: FloatArray, *, penalty: float
) -> LandmarkSolution:
    """Kernel ridge regression with the landmarks' kernel; memory does not grow with the rows.

    Parameters
    ----------
    rows : LandmarkRows
    targets : array, shape (n, d)
    penalty : float
        As in `solve_kernel_ridge`: with every row a landmark both solve the same problem.

    Returns
    -------
    LandmarkSolution
    """
    mean = targets.mean(axis=0, dtype=np.float64)
    cross = np.zeros((len(rows), targets.shape[1]))

    def add(block: slice, kernel: FloatArray) -> None:
        np.add(cross, kernel.T @ (targets[block] - mean).astype(rows.dtype), out=cross)

    gram, _ = rows.gram(add)
    inner = rows.root.T @ gram @ rows.root
    coefficients = rows.root @ _solve(inner, penalty, rows.root.T @ cross)
    return LandmarkSolution(coefficients.astype(rows.dtype), mean.astype(rows.dtype))


def solve_landmark_nu_svr(
    rows: LandmarkRows, targets: FloatArray, *, nu: float, C: float, tolerance: float
) -> LandmarkSolution:
    """Nu-support-vector regressions with the landmarks' kernel, by alternating directions.

    Parameters
    ----------
    rows : LandmarkRows
    targets : array, shape (n, d)
    nu, C : see `SharedKernelSolver.solve`
    tolerance : float
        Stops when five steps change predictions by less, in spreads of the target (root mean
        square over the rows); 0.003 where it is smaller, and after 200 steps at the latest.

    Returns
    -------
    LandmarkSolution

    Notes
    -----
    The loss and its weights are those of the exact problem. What is returned is the method's
    function of the landmarks and not its dual coefficients: it comes within a few thousandths of a
    spread of the optimum in tens of steps, the coefficients in hundreds.
    """
    rows.store()
    kernel = LandmarkKernel(rows)

    def settle(y: FloatArray, bound: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _iterate(kernel, y, bound, nu, max(tolerance, LEAST_TOLERANCE))

    return in_parts(rows, targets, C, settle, _STATE_ARRAYS)


def in_parts(
    rows: LandmarkRows,
    targets: FloatArray,
    C: float,
    settle: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]],
    n_arrays: int,
) -> LandmarkSolution:
    """Solve for as many outputs at a time as memory allows, alike ones together.

    Parameters
    ----------
    rows : LandmarkRows
    targets : array, shape (n, d)
    C : float
    settle : callable
        Takes standardised targets (g, n) and their bounds (g,); gives weights (g, r) of the
        landmarks and biases (g,).
    n_arrays : int
        How many arrays of the size of the targets `settle` works with.

    Returns
    -------
    LandmarkSolution
    """
    n, d = targets.shape
    most = int(STATE_SHARE * rows.memory_bytes / (n_arrays * rows.dtype.itemsize * n))
    coefficients, bias = np.empty((len(rows), d), rows.dtype), np.empty(d, rows.dtype)
    for part in alike(targets, max(most, 1)):
        y, centre, spread = standardise(targets[:, part], rows.dtype)
        weights, middle = settle(y, (C / spread).astype(rows.dtype))
        coefficients[:, part] = (weights * spread[:, None]).T
        bias[part] = middle * spread + centre
    return LandmarkSolution(coefficients, bias)


def _iterate(
    kernel: LandmarkKernel, y: FloatArray, bound: FloatArray, nu: float, tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Run the method for targets (g, n); give weights (g, r) of the landmarks and biases (g,)."""
    n, dtype = y.shape[1], y.dtype.type
    rho = landmark_rho(kernel.roughness, bound)
    kernel.factorise(rho)
    z, u, q, threshold = np.zeros_like(y), np.zeros_like(y), np.empty_like(y), bound * 0
    budget, relax = bound * dtype(nu * n), dtype(OVER_RELAXATION)

    def ask(part: slice) -> None:
        np.subtract(z[part], u[part], out=q[part])
        q[part] *= dtype(rho)
        q[part] += y[part]

    def answer(part: slice) -> None:
        v = q[part]
        v *= relax
        v -= (relax - 1) * z[part]
        v += u[part]
        z[part], threshold[part] = project_to_box_and_budget(
            v, bound[part, None], budget[part], threshold[part]
        )
        np.subtract(v, z[part], out=u[part])

    inner = np.zeros((len(y), len(kernel)))
    for number in range(1, MAX_ITER + 1):
        in_blocks(ask, *y.shape)
        before, inner = inner, kernel.fit(q)
        if number % CHANGE_EVERY == 1:
            last = before
        elif number % CHANGE_EVERY == 0 and kernel.changes(inner - last).max() <= tolerance:
            break
        kernel.subtract(q, inner, dtype(1 / rho))
        in_blocks(answer, *y.shape)
    np.copyto(q, y)
    kernel.subtract(q, inner, dtype(1))
    weights = kernel.weights(inner)
    return weights, tube_middles(q, nu) - weights @ kernel.means


def landmark_rho(roughness: float, bound: FloatArray) -> float:
    """Guess rho for landmarks, where predictions and not coefficients must settle."""
    return float(np.clip(0.5 * first_rho(max(roughness, 1e-6), bound), 1e-4, GREATEST_RHO))


def tube_middles(t: FloatArray, nu: float) -> NDArray[np.float64]:
    """Give the biases of residuals (g, n): half of nu's share lies above the tube, half below."""
    n = t.shape[1]
    out = nu * n / 2
    # Where a whole number of rows lies outside, the edge may pass anywhere between two of them.
    first, second = int(np.ceil(out)) - 1, int(np.floor(out))
    places = sorted({min(first, n - 1), min(second, n - 1)})
    places = sorted({*places, *(n - 1 - place for place in places)})
    middles = np.empty(len(t))
    for number, row in enumerate(t):
        ordered = np.partition(row, places)
        low = (float(ordered[places[0]]) + float(ordered[min(second, n - 1)])) / 2
        high = (float(ordered[n - 1 - min(second, n - 1)]) + float(ordered[places[-1]])) / 2
        middles[number] = (low + high) / 2
    return middles


def alike(targets: FloatArray, most: int) -> Iterator[IntArray]:
    """Yield groups of at most so many outputs whose spreads differ by a factor of 4 at most."""
    sample = targets[:: max(len(targets) // 10_000, 1)]
    spreads = sample.std(axis=0, dtype=np.float64)
    order = np.argsort(spreads)
    start = 0
    for stop in range(1, len(order) + 1):
        full = stop == len(order) or stop - start == most
        if full or spreads[order[stop]] > _LIKE_SPREADS * max(spreads[order[start]], 1e-300):
            yield order[start:stop]
            start = stop


class LandmarkKernel:
    """The kernel ``K_nm K_mm^-1 K_mn``, centred, as products of features ``K_nm root``.

    Parameters
    ----------
    rows : LandmarkRows

    Attributes
    ----------
    roughness : float
        Mean of the centred kernel's diagonal.
    means : float64 array, shape (r,)
        Of the kernel's columns.
    """

    def __init__(self, rows: LandmarkRows) -> None:
        self._rows, self._root = rows, rows.root
        gram, sums = rows.gram()
        self.means = sums / rows.n
        mean = self._root.T @ self.means
        self._gram = self._root.T @ gram @ self._root - rows.n * np.outer(mean, mean)
        self.roughness = float(np.trace(self._gram)) / rows.n
        self._map = self._root

    def __len__(self) -> int:
        """Give the number of landmarks."""
        return len(self._rows)

    def factorise(self, rho: float) -> None:
        """Prepare `fit` for a value of rho: a matrix of the landmarks only."""
        self._map = _solve(self._gram, rho, self._root.T).T

    def fit(self, q: FloatArray) -> NDArray[np.float64]:
        """Fit a ridge regression of penalty rho to each row of q (g, n): features' weights (g, r).

        With this the Woodbury identity gives ``(K + rho I)^-1 q``, all but the division by rho.
        """
        total = np.zeros((len(q), len(self)))
        for block, kernel in self._rows:
            total += q[:, block] @ kernel
        total -= np.outer(q.sum(axis=1, dtype=np.float64), self.means)
        return np.asarray(total @ self._map)

    def weights(self, inner: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn weights of features into those of landmarks, both (g, r)."""
        return np.asarray(inner @ self._root.T)

    def changes(self, inner: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the root mean square over all rows of what weights (g, r) predict: shape (g,)."""
        square = np.einsum("ij,ij->i", inner @ self._gram, inner)
        return np.asarray(np.sqrt(np.maximum(square, 0) / self._rows.n))

    def subtract(self, q: FloatArray, inner: NDArray[np.float64], factor: Any) -> None:
        """Take what weights (g, r) predict from q (g, n), centre and multiply it, in place."""
        weights = self.weights(inner)
        single = weights.astype(q.dtype)
        middle = (weights @ self.means).astype(q.dtype)[:, None]
        for block, kernel in self._rows:
            part = q[:, block]
            part -= single @ kernel.T
            part += middle
        if factor != 1:
            q -= q.mean(axis=1, keepdims=True)
            q *= factor


def independent(landmarks: Rows, gamma: float) -> tuple[IntArray, NDArray[np.float64]]:
    """Find landmarks that do not explain each other, and the root of their inverse kernel."""
    wide = (
        sp.csr_matrix(landmarks, dtype=np.float64)
        if sp.issparse(landmarks)
        else (np.asarray(landmarks, dtype=np.float64))
    )
    kernel = rbf_kernel(wide, gamma)
    least = _LEAST_PIVOT[str(landmarks.dtype)]
    _, order, rank, _ = lapack.dpstrf(kernel.T, lower=1, tol=least)
    kept = np.sort(order[:rank] - 1).astype(np.int64)
    factor, _ = lapack.dpotrf(kernel[np.ix_(kept, kept)].T, lower=1, clean=1)
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return kept, np.ascontiguousarray(inverse.T)


def _solve(
    inner: NDArray[np.float64], penalty: float, right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve ``(inner + penalty I) x = right``."""
    matrix = np.array(inner, order="F")
    matrix.flat[:: len(matrix) + 1] += penalty
    _, solution, _ = lapack.dposv(matrix, np.asfortranarray(right), lower=1, overwrite_a=1)
    return np.asarray(solution)
