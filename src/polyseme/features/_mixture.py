"""Mixtures of Gaussians for the codebook: how likely frames are under them, and fitting them.

In: standardised frames (n_frames, d). Out: a `Mixture`, and log-densities (n, n_words).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

# Frames looked at together: small enough to stay in the processor's cache.
BLOCK = 2048
# A Gaussian's variance is at least this share of the frames' own.
_SMALLEST_VARIANCE = 1e-6

Frames = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussians and how it was found."""

    means: Frames
    precisions_cholesky: Frames
    weights: Frames
    n_iter: int = 0
    converged: bool = False
    log_likelihood: float = -np.inf


def starting_words(frames: Frames, n_words: int, seed: int) -> NDArray[np.int64]:
    """Give each frame a word to start from, by k-means on small batches.

    The words found in the end are as likely as those from k-means on all frames, which takes
    longer and whose sums, with several threads, do not always come out the same.
    """
    from sklearn.cluster import MiniBatchKMeans

    means = MiniBatchKMeans(
        n_words, n_init=1, batch_size=4096, max_iter=5, reassignment_ratio=0.0, random_state=seed
    )
    labels: NDArray[np.int64] = means.fit(frames).labels_.astype(np.int64)
    counts = np.bincount(labels, minlength=n_words)
    for word in np.flatnonzero(counts == 0):
        # A word that no frame is closest to starts from half of the largest word's frames.
        largest = int(counts.argmax())
        taken = np.flatnonzero(labels == largest)[::2]
        labels[taken] = word
        counts = np.bincount(labels, minlength=n_words)
    return labels


def _blocks(n_frames: int) -> Iterator[slice]:
    """Yield slices that cover the frames."""
    for start in range(0, n_frames, BLOCK):
        yield slice(start, start + BLOCK)


def fit_diagonal(
    frames: Frames, start: NDArray[np.int64], max_iterations: int, tolerance: float
) -> Mixture:
    """Fit Gaussians with axes along the coordinates by expectation maximisation.

    The same rounds as scikit-learn's `GaussianMixture`, with the frames' shares in the words
    summed block by block in place of a matrix (n_frames, n_words): a third of the time, and
    memory that does not grow with the frames.
    """
    n_frames, d = frames.shape
    memberships = np.eye(int(start.max()) + 1)
    sums = np.zeros((len(memberships), 2 * d + 1))
    for block in _blocks(n_frames):
        sums += memberships[start[block]].T @ _moments(frames[block])
    mixture = _maximise(sums)
    for n_iter in range(1, max_iterations + 1):
        sums, log_likelihood = _expect(frames, mixture)
        converged = abs(log_likelihood - mixture.log_likelihood) < tolerance
        mixture = replace(_maximise(sums), n_iter=n_iter, log_likelihood=log_likelihood)
        if converged:
            return replace(mixture, converged=True)
    return mixture


def _moments(block: Frames) -> Frames:
    """Put ones, frames and their squares side by side, (n, 2 d + 1)."""
    return np.hstack([np.ones((len(block), 1)), block, block * block])


def _expect(frames: Frames, mixture: Mixture) -> tuple[Frames, float]:
    """Sum what falls to each word of a mixture, and average the frames' log-likelihoods."""
    n_frames, d = frames.shape
    sums, total = np.zeros((len(mixture.means), 2 * d + 1)), 0.0
    log_weights = np.log(mixture.weights)
    for block in _blocks(n_frames):
        part = frames[block]
        shares = diagonal_density(part, mixture.means, mixture.precisions_cholesky)
        shares += log_weights
        largest = shares.max(axis=1, keepdims=True)
        shares -= largest
        np.exp(shares, out=shares)
        total_shares = shares.sum(axis=1, keepdims=True)
        shares /= total_shares
        total += float(largest.sum() + np.log(total_shares).sum())
        sums += shares.T @ _moments(part)
    return sums, total / n_frames


def _maximise(sums: Frames) -> Mixture:
    """Give the mixture that fits sums of shares, frames and squares, (n_words, 2 d + 1), best."""
    d = sums.shape[1] // 2
    # A word to which nothing falls any more stays where dividing is possible.
    counts = sums[:, 0] + 10 * np.finfo(np.float64).eps
    means = sums[:, 1 : d + 1] / counts[:, None]
    variances = sums[:, d + 1 :] / counts[:, None] - means**2
    variances = np.maximum(variances, 0) + _SMALLEST_VARIANCE
    return Mixture(means, 1 / np.sqrt(variances), counts / counts.sum())


def fit_full(
    frames: Frames, start: NDArray[np.int64], max_iterations: int, tolerance: float
) -> Mixture:
    """Fit Gaussians of any shape by scikit-learn's expectation maximisation."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    rough = fit_diagonal(frames, start, 1, 0.0)
    squared = rough.precisions_cholesky**2
    model = GaussianMixture(
        len(rough.means),
        covariance_type="full",
        tol=tolerance,
        reg_covar=_SMALLEST_VARIANCE,
        max_iter=max_iterations,
        weights_init=rough.weights,
        means_init=rough.means,
        precisions_init=np.stack([np.diag(one) for one in squared]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # It asks for two frames at least; twice the same one changes nothing.
        model.fit(frames if len(frames) > 1 else np.repeat(frames, 2, axis=0))
    return Mixture(
        model.means_, model.precisions_cholesky_, model.weights_,
        int(model.n_iter_), bool(model.converged_), float(model.lower_bound_),
    )  # fmt: skip


def diagonal_density(block: Frames, means: Frames, factors: Frames) -> Frames:
    """Give the log-densities of frames under Gaussians along the axes, (n, n_words)."""
    precisions = factors**2
    constants = np.log(factors).sum(axis=1) - 0.5 * (
        np.einsum("ij,ij->i", means**2, precisions) + means.shape[1] * np.log(2 * np.pi)
    )
    slopes = np.hstack([means * precisions, -0.5 * precisions])
    densities: Frames = np.hstack([block, block * block]) @ slopes.T
    densities += constants
    return densities


def full_density(block: Frames, means: Frames, factors: Frames) -> Frames:
    """Give the log-densities of frames under Gaussians of any shape, (n, n_words)."""
    densities = np.empty((len(block), len(means)))
    for word, (mean, factor) in enumerate(zip(means, factors, strict=True)):
        away = (block - mean) @ factor
        densities[:, word] = np.log(np.diag(factor)).sum() - 0.5 * np.einsum("ij,ij->i", away, away)
    densities -= 0.5 * means.shape[1] * np.log(2 * np.pi)
    return densities
