"""The codebook: bags of audio words from segments, the paper's equation (10).

In: for each clip a matrix of segments (n_i, d). Out: for each clip the shares of its segments that
fall to each of `n_words` Gaussians, (n, n_words), learned on training clips.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator, TransformerMixin
from polyseme.base.validation import (
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
from polyseme.storage.array_checks import Array, Fields, Number, Whole, check_arrays
from polyseme.storage.model_file import Arrays, Config, State

MAX_ROUNDS = 300
TOLERANCE = 1e-3  # converged when the mean log-likelihood of a segment grows by less
BLOCK = 2048  # segments at a time: they stay in the processor's cache
_SMALLEST_VARIANCE = 1e-6  # of a Gaussian, as a share of the segments' own
# Numbers are cut off here before squares are taken, so that these stay finite: as they come, and
# in spreads of the training segments.
_LARGEST = 1e100
_FARTHEST = 1e6
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
    # Inverse standard deviations; variances are at least the smallest one.
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
        frames = _draw(_check_frames(segments, None), self.max_frames, generator)
        self.mean_ = frames.mean(axis=0)
        spread = frames.std(axis=0)
        # Only differences of more than rounding are a spread.
        self.scale_ = np.where(spread > 1e-7 * np.abs(self.mean_), spread, 1.0)
        frames = self._standardise(frames)
        # The first frames hold enough different ones, unless most are alike.
        first_frames = frames[: 20 * self.n_words]
        n_words = min(self.n_words, len(np.unique(first_frames, axis=0)))
        if n_words < self.n_words:
            n_words = min(self.n_words, len(np.unique(frames, axis=0)))
        if n_words < self.n_words:
            warnings.warn(
                f"There are only {n_words} different segments to learn {self.n_words} words from; "
                f"the codebook has {n_words} words.",
                PolysemeWarning,
                stacklevel=2,
            )
        seed = draw_seed(generator)
        starting_words = _starting_words(frames, n_words, seed)
        self._fit_mixture(frames, starting_words)
        return self

    def transform(self, segments: Sequence[FloatArray]) -> Frames:
        """Return the shares of words (n, n_words_) in clips (n_i, d).

        Rows sum to 1; a clip without segments gets zeros, with a warning.
        """
        check_fitted(self, "means_")
        n_words, d = self.means_.shape
        clips = _check_frames(segments, d)
        shares = np.zeros((len(clips), n_words))
        # The first of words that are the same: rounding could otherwise favour a later one.
        words = np.hstack([self.means_, self.precisions_cholesky_])
        _, first_numbers = np.unique(words, axis=0, return_index=True)
        numbers = np.sort(first_numbers)
        means = self.means_[numbers]
        factors = self.precisions_cholesky_[numbers]
        for row, clip in enumerate(clips):
            for start in range(0, len(clip), BLOCK):
                block = self._standardise(clip[start : start + BLOCK])
                densities = _log_densities(block, means, factors)
                likeliest = numbers[densities.argmax(axis=1)]
                shares[row] += np.bincount(likeliest, minlength=n_words)
        lengths = np.array([len(clip) for clip in clips])
        empty = np.flatnonzero(lengths == 0).tolist()
        if empty:
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

    def _standardise(self, frames: FloatArray) -> Frames:
        """Return frames (n, d) without the training frames' mean and spread."""
        centred = _as_frames(frames) - self.mean_
        with np.errstate(over="ignore"):
            standardised: Frames = centred / self.scale_
        np.clip(standardised, -_FARTHEST, _FARTHEST, out=standardised)
        return standardised

    def _fit_mixture(self, frames: Frames, start: NDArray[np.int64]) -> None:
        """Fit the Gaussians by expectation maximisation, from a first word for each frame."""
        # The rounds of scikit-learn's GaussianMixture (to 1e-13), summed block by block: a quarter
        # of its time for 40,000 frames and 128 words, and memory that does not grow with frames.
        n_words = int(start.max()) + 1
        n_features = frames.shape[1]
        sums = np.zeros((n_words, 2 * n_features + 1))
        for first in range(0, len(frames), BLOCK):
            block = slice(first, first + BLOCK)
            memberships = np.eye(n_words)[start[block]]
            sums += memberships.T @ _moments(frames[block])
        self.log_likelihood_ = -np.inf
        has_converged = False
        for n_iter in range(1, MAX_ROUNDS + 1):
            means, factors, weights = _maximise(sums)
            sums, log_likelihood = _expect(frames, means, factors, weights)
            gain = abs(log_likelihood - self.log_likelihood_)
            self.log_likelihood_ = log_likelihood
            self.n_iter_ = n_iter
            has_converged = gain < TOLERANCE
            if has_converged:
                break
        self.means_, self.precisions_cholesky_, _ = _maximise(sums)
        if not has_converged:
            warnings.warn(
                f"The codebook has not converged after {MAX_ROUNDS} rounds; it can be used.",
                PolysemeWarning,
                stacklevel=3,
            )


def _as_frames(frames: FloatArray) -> Frames:
    """Return frames as float64, cut off where squares would overflow."""
    return np.clip(frames.astype(np.float64), -_LARGEST, _LARGEST)


def _check_frames(segments: Sequence[FloatArray], n_features: int | None) -> list[FloatArray]:
    """Return one finite matrix per clip, all of the same width; raise where that is not so."""
    clips = [np.asarray(clip) for clip in segments]
    for row, clip in enumerate(clips):
        if clip.ndim != 2 or clip.dtype.kind not in "fiu":
            raise InputError(
                "`segments` of `Codebook` must be one matrix of numbers (segments, features) per "
                f"clip; clip {row} has {clip.ndim} dimension(s) of type {clip.dtype}."
            )
        width = clips[0].shape[1] if n_features is None else n_features
        if clip.shape[1] != width or not width:
            expected = "the first has" if n_features is None else "`Codebook` was fitted with"
            raise InputError(f"Clip {row} has {clip.shape[1]} columns but {expected} {width}.")
        if not np.isfinite(clip).all():
            raise InputError(f"`segments` of `Codebook` has NaN or infinity in clip {row}.")
    return clips


def _draw(clips: list[FloatArray], most: int, generator: np.random.Generator) -> Frames:
    """Draw frames from all clips evenly and without repetition."""
    ends = np.cumsum([len(clip) for clip in clips])
    if not ends.size or not ends[-1]:
        raise InputError("`segments` of `Codebook` must hold at least one segment; got none.")
    n_frames = ends[-1]
    if n_frames <= most:
        return _as_frames(np.concatenate(clips))
    drawn_numbers = np.sort(generator.choice(n_frames, most, replace=False))
    clip_bounds = np.searchsorted(drawn_numbers, ends[:-1])
    numbers_by_clip = np.split(drawn_numbers, clip_bounds)
    frames: list[FloatArray] = []
    for clip, numbers, end in zip(clips, numbers_by_clip, ends, strict=True):
        start = end - len(clip)
        frames.append(clip[numbers - start])
    return _as_frames(np.concatenate(frames))


def _starting_words(frames: Frames, n_words: int, seed: int) -> NDArray[np.int64]:
    """Return each frame a word to start from, by k-means on small batches, (n,)."""
    from sklearn.cluster import MiniBatchKMeans

    # On all frames k-means ends as likely, takes longer, and its sums depend on the threads.
    means = MiniBatchKMeans(
        n_words, n_init=1, batch_size=4096, max_iter=5, reassignment_ratio=0.0, random_state=seed
    )
    words: NDArray[np.int64] = means.fit(frames).labels_.astype(np.int64)
    counts = np.bincount(words, minlength=n_words)
    for word in np.flatnonzero(counts == 0):
        # A word that no frame is closest to starts from half of the largest word's frames.
        counts = np.bincount(words, minlength=n_words)
        largest = int(counts.argmax())
        largest_frames = np.flatnonzero(words == largest)
        words[largest_frames[::2]] = word
    return words


def _moments(block: Frames) -> Frames:
    """Return ones, frames and their squares side by side, (n, 2 d + 1)."""
    return np.hstack([np.ones((len(block), 1)), block, block * block])


def _expect(
    frames: Frames, means: Frames, factors: Frames, weights: Frames
) -> tuple[Frames, float]:
    """Return each word's sums of moments, (n_words, 2 d + 1), and the mean log-likelihood."""
    n_words = len(means)
    n_features = frames.shape[1]
    sums = np.zeros((n_words, 2 * n_features + 1))
    total = 0.0
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
    mean_squares = sums[:, d + 1 :] / counts[:, None]
    variances = np.maximum(mean_squares - means**2, 0)
    variances += _SMALLEST_VARIANCE
    factors = 1 / np.sqrt(variances)
    weights = counts / counts.sum()
    return means, factors, weights


def _log_densities(block: Frames, means: Frames, factors: Frames) -> Frames:
    """Return the log-densities of frames under Gaussians along the axes, (n, n_words)."""
    precisions = factors**2
    distances = np.einsum("ij,ij->i", means**2, precisions)
    n_features = means.shape[1]
    norms = distances + n_features * np.log(2 * np.pi)
    constants = np.log(factors).sum(axis=1) - 0.5 * norms
    slopes = np.hstack([means * precisions, -0.5 * precisions])
    squares = block * block
    densities: Frames = np.hstack([block, squares]) @ slopes.T
    densities += constants
    return densities
