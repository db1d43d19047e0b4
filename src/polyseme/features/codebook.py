"""Segments become words: the bag of audio words of the paper's equation (10).

In: for each clip a matrix of segments (n_i, d). Out: for each clip the shares of its segments
that fall to each of `n_words` Gaussians, (n, n_words), learned on training clips.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from polyseme._estimator import Estimator, TransformerMixin
from polyseme._validation import (
    FloatArray,
    InputError,
    PolysemeWarning,
    RandomState,
    as_generator,
    check_fitted,
    check_number,
    draw_seed,
    first_few,
)
from polyseme.persistence import Arrays, Config, State
from polyseme.schema import Array, Fields, Number, Whole, check_arrays

MAX_ROUNDS = 300
TOLERANCE = 1e-3  # converged when the mean log-likelihood of a segment grows by less
BLOCK = 2048  # segments looked at together: they stay in the processor's cache
_SMALLEST_VARIANCE = 1e-6  # of a Gaussian, as a share of the segments' own
# Numbers are cut off here before squares are taken, so that these stay finite: as they come, and
# in spreads of the training segments.
_LARGEST, _FARTHEST = 1e100, 1e6
_ARRAYS = ("mean", "scale", "means", "precisions_cholesky")
# What the state of a codebook holds.
_VALUES = Fields(
    {
        "parameters": Fields({"n_words": Whole(1), "max_frames": Whole(1)}),
        "n_iter": Whole(0),
        "log_likelihood": Number(),
    }
)
_DECLARED = {
    "mean": Array("float64", ("n_features",), -_LARGEST, _LARGEST),
    "scale": Array("float64", ("n_features",), 1e-300, _LARGEST),
    "means": Array("float64", ("n_words", "n_features"), -_FARTHEST, _FARTHEST),
    # One over spreads, whose squares are at least the smallest variance.
    "precisions_cholesky": Array("float64", ("n_words", "n_features"), 1e-9, 1e9),
}

Frames = NDArray[np.float64]


class Codebook(TransformerMixin, Estimator):  # type: ignore[misc]  # untyped mixin
    """Describe clips by how often each word of a learned codebook occurs in them.

    Words are the Gaussians, with axes along the coordinates, of a mixture fitted to segments of the
    training clips. A segment falls to the word under which it is most likely; a clip's features are
    the shares of its segments (in the paper: Q and equation 10; which covariances, it does not
    say).

    Learned: `mean_` and `scale_` (d,), the segments' own, taken out first; `means_` and
    `precisions_cholesky_` (n_words, d), the words' centres and one over their spreads, fewer than
    `n_words` where segments do not differ enough; `n_iter_` and `log_likelihood_` of the last
    round. As in the paper, the words' weights do not enter `transform`.
    """

    def __init__(
        self, n_words: int = 128, max_frames: int = 100_000, random_state: RandomState = None
    ) -> None:
        self.n_words = n_words  # in the paper: d^(I), 128
        self.max_frames = max_frames  # learned from at most, drawn evenly over all clips
        self.random_state = random_state

    def fit(self, segments: Sequence[FloatArray], y: object = None) -> Self:
        """Learn the words from training clips (n_i, d); some may have no rows, not all."""
        for name in ("n_words", "max_frames"):
            check_number(name, getattr(self, name), owner="Codebook", low=1, whole=True)
        generator = as_generator(self.random_state)
        frames = _draw(_checked(segments, None), self.max_frames, generator)
        self.mean_ = frames.mean(axis=0)
        spread = frames.std(axis=0)
        # Only differences of more than rounding are a spread.
        self.scale_ = np.where(spread > 1e-7 * np.abs(self.mean_), spread, 1.0)
        frames = self._standardised(frames)
        # As many different frames as words are found at once, unless most are alike.
        for some in (frames[: 20 * self.n_words], frames):
            n_words = min(self.n_words, len(np.unique(some, axis=0)))
            if n_words == self.n_words:
                break
        else:
            warnings.warn(
                f"There are only {n_words} different segments to learn {self.n_words} words from; "
                f"the codebook has {n_words} words.",
                PolysemeWarning,
                stacklevel=2,
            )
        self._fit_mixture(frames, _starting_words(frames, n_words, draw_seed(generator)))
        return self

    def transform(self, segments: Sequence[FloatArray]) -> Frames:
        """Return the shares of words (n, n_words_) in clips (n_i, d).

        Rows sum to 1; a clip without segments gets zeros, with a warning.
        """
        check_fitted(self, "means_")
        n_words, d = self.means_.shape
        clips = _checked(segments, d)
        shares = np.zeros((len(clips), n_words))
        # The first of words that are the same: rounding could otherwise favour a later one.
        words = np.hstack([self.means_, self.precisions_cholesky_])
        numbers = np.sort(np.unique(words, axis=0, return_index=True)[1])
        means, factors = self.means_[numbers], self.precisions_cholesky_[numbers]
        for row, clip in enumerate(clips):
            for start in range(0, len(clip), BLOCK):
                block = self._standardised(clip[start : start + BLOCK])
                likeliest = numbers[_log_densities(block, means, factors).argmax(axis=1)]
                shares[row] += np.bincount(likeliest, minlength=n_words)
        lengths = np.array([len(clip) for clip in clips])
        if empty := np.flatnonzero(lengths == 0).tolist():
            warnings.warn(
                f"{len(empty)} of {len(clips)} clips have no segments and get zeros: "
                f"{first_few(empty)}.",
                PolysemeWarning,
                stacklevel=2,
            )
        shares /= np.maximum(lengths, 1)[:, None]
        return shares

    def get_state(self) -> State:
        """Return the fitted codebook as JSON values and arrays, for saving without pickle."""
        check_fitted(self, "means_")
        config = {
            "parameters": {"n_words": int(self.n_words), "max_frames": int(self.max_frames)},
            "n_iter": self.n_iter_,
            "log_likelihood": self.log_likelihood_,
        }
        return config, {name: getattr(self, f"{name}_") for name in _ARRAYS}

    @classmethod
    def from_state(cls, config: Config, arrays: Arrays) -> Self:
        """Rebuild a fitted codebook from `get_state`; it gives bit for bit the same shares."""
        _VALUES.check(config)
        check_arrays(arrays, _DECLARED)
        book = cls(**config["parameters"])
        for name in _ARRAYS:
            setattr(book, f"{name}_", np.array(arrays[name], dtype=np.float64, order="C"))
        book.n_iter_ = int(config["n_iter"])
        book.log_likelihood_ = float(config["log_likelihood"])
        return book

    def _standardised(self, frames: FloatArray) -> Frames:
        """Take the training frames' mean and spread out of frames (n, d)."""
        with np.errstate(over="ignore"):
            moved = (_as_frames(frames) - self.mean_) / self.scale_
        standardised: Frames = np.clip(moved, -_FARTHEST, _FARTHEST, out=moved)
        return standardised

    def _fit_mixture(self, frames: Frames, start: NDArray[np.int64]) -> None:
        """Fit the Gaussians by expectation maximisation, from a first word for each frame."""
        # The rounds of scikit-learn's GaussianMixture (to 1e-13), summed block by block: a quarter
        # of its time for 40,000 frames and 128 words, and memory that does not grow with frames.
        n_words, d = int(start.max()) + 1, frames.shape[1]
        sums = np.zeros((n_words, 2 * d + 1))
        for first in range(0, len(frames), BLOCK):
            block = slice(first, first + BLOCK)
            sums += np.eye(n_words)[start[block]].T @ _moments(frames[block])
        before, converged = -np.inf, False
        for n_iter in range(1, MAX_ROUNDS + 1):
            sums, log_likelihood = _expect(frames, *_maximise(sums))
            converged = abs(log_likelihood - before) < TOLERANCE
            before, self.n_iter_ = log_likelihood, n_iter
            if converged:
                break
        self.means_, self.precisions_cholesky_, _ = _maximise(sums)
        self.log_likelihood_ = before
        if not converged:
            warnings.warn(
                f"The codebook has not converged after {MAX_ROUNDS} rounds; it can be used.",
                PolysemeWarning,
                stacklevel=3,
            )


def _as_frames(frames: FloatArray) -> Frames:
    """Return frames as float64, cut off where squares would overflow."""
    return np.clip(frames.astype(np.float64), -_LARGEST, _LARGEST)


def _checked(segments: Sequence[FloatArray], n_features: int | None) -> list[FloatArray]:
    """Check that there is one finite matrix per clip, all of the same width."""
    clips = [np.asarray(clip) for clip in segments]
    for row, clip in enumerate(clips):
        if clip.ndim != 2 or clip.dtype.kind not in "fiu":
            raise InputError(
                "`segments` of `Codebook` must be one matrix of numbers (segments, features) per "
                f"clip; clip {row} has {clip.ndim} dimension(s) of type {clip.dtype}."
            )
        width = clips[0].shape[1] if n_features is None else n_features
        if clip.shape[1] != width or not width:
            known = "the first has" if n_features is None else "`Codebook` was fitted with"
            raise InputError(f"Clip {row} has {clip.shape[1]} columns but {known} {width}.")
        if not np.isfinite(clip).all():
            raise InputError(f"`segments` of `Codebook` has NaN or infinity in clip {row}.")
    return clips


def _draw(clips: list[FloatArray], most: int, generator: np.random.Generator) -> Frames:
    """Draw at most so many frames from all clips, evenly and without repetition."""
    ends = np.cumsum([len(clip) for clip in clips])
    if not ends.size or not ends[-1]:
        raise InputError("`segments` of `Codebook` must hold at least one segment; got none.")
    if ends[-1] <= most:
        return _as_frames(np.concatenate(clips))
    chosen = np.sort(generator.choice(ends[-1], most, replace=False))
    parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    triples = zip(clips, parts, ends, strict=True)
    return _as_frames(np.concatenate([c[part - end + len(c)] for c, part, end in triples]))


def _starting_words(frames: Frames, n_words: int, seed: int) -> NDArray[np.int64]:
    """Return each frame a word to start from, by k-means on small batches, (n,)."""
    from sklearn.cluster import MiniBatchKMeans

    # On all frames k-means ends as likely, takes longer, and its sums depend on the threads.
    means = MiniBatchKMeans(
        n_words, n_init=1, batch_size=4096, max_iter=5, reassignment_ratio=0.0, random_state=seed
    )
    labels: NDArray[np.int64] = means.fit(frames).labels_.astype(np.int64)
    for word in np.flatnonzero(np.bincount(labels, minlength=n_words) == 0):
        # A word that no frame is closest to starts from half of the largest word's frames.
        largest = int(np.bincount(labels, minlength=n_words).argmax())
        labels[np.flatnonzero(labels == largest)[::2]] = word
    return labels


def _moments(block: Frames) -> Frames:
    """Put ones, frames and their squares side by side, (n, 2 d + 1)."""
    return np.hstack([np.ones((len(block), 1)), block, block * block])


def _expect(
    frames: Frames, means: Frames, factors: Frames, weights: Frames
) -> tuple[Frames, float]:
    """Sum what falls to each word, (n_words, 2 d + 1), and average the log-likelihoods."""
    sums, total = np.zeros((len(means), 2 * frames.shape[1] + 1)), 0.0
    log_weights = np.log(weights)
    for start in range(0, len(frames), BLOCK):
        block = frames[start : start + BLOCK]
        shares = _log_densities(block, means, factors)
        shares += log_weights
        largest = shares.max(axis=1, keepdims=True)
        shares -= largest
        np.exp(shares, out=shares)
        total_shares = shares.sum(axis=1, keepdims=True)
        shares /= total_shares
        total += float(largest.sum() + np.log(total_shares).sum())
        sums += shares.T @ _moments(block)
    return sums, total / len(frames)


def _maximise(sums: Frames) -> tuple[Frames, Frames, Frames]:
    """Return means, inverse spreads and weights by sums of shares, frames and squares."""
    d = sums.shape[1] // 2
    # A word to which nothing falls any more stays where dividing is possible.
    counts = sums[:, 0] + 10 * np.finfo(np.float64).eps
    means = sums[:, 1 : d + 1] / counts[:, None]
    variances = sums[:, d + 1 :] / counts[:, None] - means**2
    variances = np.maximum(variances, 0) + _SMALLEST_VARIANCE
    return means, 1 / np.sqrt(variances), counts / counts.sum()


def _log_densities(block: Frames, means: Frames, factors: Frames) -> Frames:
    """Return the log-densities of frames under Gaussians along the axes, (n, n_words)."""
    precisions = factors**2
    constants = np.log(factors).sum(axis=1) - 0.5 * (
        np.einsum("ij,ij->i", means**2, precisions) + means.shape[1] * np.log(2 * np.pi)
    )
    slopes = np.hstack([means * precisions, -0.5 * precisions])
    densities: Frames = np.hstack([block, block * block]) @ slopes.T
    densities += constants
    return densities
