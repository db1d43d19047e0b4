"""The codebook: bags of audio words from segments, the paper's equation (10).

In: for each clip a matrix of segments (n_segments, n_features). Out: for each clip the shares of
its segments that fall to each of `n_words` Gaussians, (n_clips, n_words), learned on training
clips.

Terms: a *word* is a Gaussian of the mixture; a *frame* is one segment, a row, once it does not
matter which clip it is of; *precision factors* are one over the standard deviations of a word, a
number for each feature; *responsibilities* are the probabilities of the words for a frame;
*moments* are 1, a frame and its squares, whose sums are all that a round of fitting needs.
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

# As in scikit-learn's GaussianMixture, but for three times its rounds.
MAX_ROUNDS = 300
TOLERANCE = 1e-3  # converged when the mean log-likelihood of a segment grows by less
_SMALLEST_VARIANCE = 1e-6  # of a Gaussian, as a share of the segments' own
BLOCK = 2048  # segments at a time: they stay in the processor's cache
# Numbers are cut off here before squares are taken, so that these stay finite: as they come, and
# in standard deviations of the training segments.
_LARGEST = 1e100
_FARTHEST = 1e6
# What a saved codebook holds: values, and arrays by the names of the attributes without `_`.
_SAVED_VALUES = Fields(
    {
        "parameters": Fields({"n_words": Whole(1), "max_frames": Whole(1)}),
        "n_iter": Whole(0),
        "log_likelihood": Number(),
    }
)
_SAVED_ARRAYS = {
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
    say). As in the paper, the words' weights do not enter `transform`.

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        Mean and standard deviation of the training segments, by which all are standardised.
    means_ : ndarray of shape (n_words_, n_features)
        Centres of the words; fewer than `n_words` where segments do not differ enough.
    precisions_cholesky_ : ndarray of shape (n_words_, n_features)
        The words' precision factors: one over their standard deviations.
    n_iter_ : int
        Rounds of fitting.
    log_likelihood_ : float
        Of a training segment on average, in the last round.
    """

    def __init__(
        self, n_words: int = 128, max_frames: int = 100_000, random_state: RandomState = None
    ) -> None:
        self.n_words = n_words  # in the paper: d^(I), 128
        self.max_frames = max_frames  # learned from at most, drawn evenly over all clips
        self.random_state = random_state

    def fit(self, segments: Sequence[FloatArray], y: object = None) -> Self:
        """Learn the words from training clips (n_segments, n_features); not all may be empty."""
        for name in ("n_words", "max_frames"):
            check_number(name, getattr(self, name), owner="Codebook", low=1, whole=True)
        generator = as_generator(self.random_state)
        clips = _check_clips(segments, None)
        frames = _draw_frames(clips, self.max_frames, generator)
        self.mean_ = frames.mean(axis=0)
        deviation = frames.std(axis=0)
        # A column that differs by no more than rounding is constant, and only centred.
        least_deviation = 1e-7 * np.abs(self.mean_)
        self.scale_ = np.where(deviation > least_deviation, deviation, 1.0)
        frames = self._standardise(frames)
        # The first frames hold enough different ones, unless most are alike: the quick test first.
        first_frames = frames[: 20 * self.n_words]
        n_different = len(np.unique(first_frames, axis=0))
        if n_different < self.n_words:
            n_different = len(np.unique(frames, axis=0))
        n_words = min(self.n_words, n_different)
        if n_words < self.n_words:
            warnings.warn(
                f"There are only {n_words} different segments to learn {self.n_words} words from; "
                f"the codebook has {n_words} words.",
                PolysemeWarning,
                stacklevel=2,
            )
        seed = draw_seed(generator)
        word_of_frame = _starting_words(frames, n_words, seed)
        self._fit_mixture(frames, word_of_frame)
        return self

    def transform(self, segments: Sequence[FloatArray]) -> Frames:
        """Return the shares of words (n_clips, n_words_) in clips (n_segments, n_features).

        Rows sum to 1; a clip without segments gets zeros, with a warning.
        """
        check_fitted(self, "means_")
        n_words, n_features = self.means_.shape
        clips = _check_clips(segments, n_features)
        shares = np.zeros((len(clips), n_words))
        # The first of words that are the same: rounding could otherwise favour a later one.
        words = np.hstack([self.means_, self.precisions_cholesky_])
        _, first_columns = np.unique(words, axis=0, return_index=True)
        distinct_columns = np.sort(first_columns)
        means = self.means_[distinct_columns]
        precision_factors = self.precisions_cholesky_[distinct_columns]
        for row, clip in enumerate(clips):
            for start in range(0, len(clip), BLOCK):
                block = self._standardise(clip[start : start + BLOCK])
                densities = _log_densities(block, means, precision_factors)
                places = densities.argmax(axis=1)
                likeliest_columns = distinct_columns[places]
                shares[row] += np.bincount(likeliest_columns, minlength=n_words)
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
        arrays = {name: getattr(self, f"{name}_") for name in _SAVED_ARRAYS}
        return config, arrays

    @classmethod
    def from_state(cls, config: Config, arrays: Arrays) -> Self:
        """Rebuild a fitted codebook from `get_state`; it gives bit for bit the same shares."""
        _SAVED_VALUES.check(config)
        check_arrays(arrays, _SAVED_ARRAYS)
        codebook = cls(**config["parameters"])
        for name in _SAVED_ARRAYS:
            copied = np.array(arrays[name], dtype=np.float64, order="C")
            setattr(codebook, f"{name}_", copied)
        codebook.n_iter_ = int(config["n_iter"])
        codebook.log_likelihood_ = float(config["log_likelihood"])
        return codebook

    def _standardise(self, frames: FloatArray) -> Frames:
        """Return frames (n_frames, n_features) less the mean, in standard deviations."""
        centred = _as_frames(frames) - self.mean_
        with np.errstate(over="ignore"):
            standardised: Frames = centred / self.scale_
        np.clip(standardised, -_FARTHEST, _FARTHEST, out=standardised)
        return standardised

    def _fit_mixture(self, frames: Frames, word_of_frame: NDArray[np.int64]) -> None:
        """Fit the Gaussians by expectation maximisation, from a first word for each frame.

        `frames` (n_frames, n_features) are standardised. Sets `means_`, `precisions_cholesky_`,
        `n_iter_` and `log_likelihood_`.
        """
        # The rounds of scikit-learn's GaussianMixture (to 1e-13), summed block by block: a quarter
        # of its time for 40,000 frames and 128 words, and memory that does not grow with frames.
        n_words = int(word_of_frame.max()) + 1
        n_features = frames.shape[1]
        moment_sums = np.zeros((n_words, 2 * n_features + 1))
        for start in range(0, len(frames), BLOCK):
            block = slice(start, start + BLOCK)
            memberships = np.eye(n_words)[word_of_frame[block]]
            moment_sums += memberships.T @ _moments(frames[block])
        self.log_likelihood_ = -np.inf
        has_converged = False
        for n_iter in range(1, MAX_ROUNDS + 1):
            means, precision_factors, weights = _maximise(moment_sums)
            moment_sums, log_likelihood = _expect(frames, means, precision_factors, weights)
            gain = abs(log_likelihood - self.log_likelihood_)
            self.log_likelihood_ = log_likelihood
            self.n_iter_ = n_iter
            has_converged = gain < TOLERANCE
            if has_converged:
                break
        self.means_, self.precisions_cholesky_, _ = _maximise(moment_sums)
        if not has_converged:
            warnings.warn(
                f"The codebook has not converged after {MAX_ROUNDS} rounds; it can be used.",
                PolysemeWarning,
                stacklevel=3,
            )


def _as_frames(frames: FloatArray) -> Frames:
    """Return frames as float64, cut off where squares would overflow."""
    return np.clip(frames.astype(np.float64), -_LARGEST, _LARGEST)


def _check_clips(segments: Sequence[FloatArray], n_features: int | None) -> list[FloatArray]:
    """Return one finite matrix per clip, all of the same width; raise where that is not so.

    The width is `n_features`; before the fit, where it is None, that of the first clip.
    """
    clips = [np.asarray(clip) for clip in segments]
    for row, clip in enumerate(clips):
        if clip.ndim != 2 or clip.dtype.kind not in "fiu":
            raise InputError(
                "`segments` of `Codebook` must be one matrix of numbers (segments, features) per "
                f"clip; clip {row} has {clip.ndim} dimension(s) of type {clip.dtype}."
            )
        if n_features is None:
            expected_width = clips[0].shape[1]
            reference = "the first has"
        else:
            expected_width = n_features
            reference = "`Codebook` was fitted with"
        width = clip.shape[1]
        if width != expected_width or not expected_width:
            raise InputError(f"Clip {row} has {width} columns but {reference} {expected_width}.")
        if not np.isfinite(clip).all():
            raise InputError(f"`segments` of `Codebook` has NaN or infinity in clip {row}.")
    return clips


def _draw_frames(
    clips: list[FloatArray], max_frames: int, generator: np.random.Generator
) -> Frames:
    """Draw at most `max_frames` from all clips evenly, without repetition, in the clips' order."""
    ends = np.cumsum([len(clip) for clip in clips])
    if not ends.size or not ends[-1]:
        raise InputError("`segments` of `Codebook` must hold at least one segment; got none.")
    n_frames = ends[-1]
    if n_frames <= max_frames:
        return _as_frames(np.concatenate(clips))
    # Rows of all clips joined, which are not joined to save memory.
    joined_rows = generator.choice(n_frames, max_frames, replace=False)
    joined_rows = np.sort(joined_rows)
    clip_bounds = np.searchsorted(joined_rows, ends[:-1])
    joined_rows_by_clip = np.split(joined_rows, clip_bounds)
    frames_by_clip: list[FloatArray] = []
    for clip, clip_rows, end in zip(clips, joined_rows_by_clip, ends, strict=True):
        start = end - len(clip)
        frames = clip[clip_rows - start]
        frames_by_clip.append(frames)
    return _as_frames(np.concatenate(frames_by_clip))


def _starting_words(frames: Frames, n_words: int, seed: int) -> NDArray[np.int64]:
    """Return a word for each frame to start from, (n_frames,), by k-means on small batches.

    Every word has at least one frame, as `fit` asks for no more words than there are different
    frames.
    """
    from sklearn.cluster import MiniBatchKMeans

    # On all frames k-means ends as likely, takes longer, and its sums depend on the threads.
    k_means = MiniBatchKMeans(
        n_words, n_init=1, batch_size=4096, max_iter=5, reassignment_ratio=0.0, random_state=seed
    )
    word_of_frame: NDArray[np.int64] = k_means.fit(frames).labels_.astype(np.int64)
    counts = np.bincount(word_of_frame, minlength=n_words)
    empty_words = np.flatnonzero(counts == 0)
    for word in empty_words:
        # A word that no frame is closest to starts from half of the largest word's frames.
        counts = np.bincount(word_of_frame, minlength=n_words)
        largest = int(counts.argmax())
        largest_frames = np.flatnonzero(word_of_frame == largest)
        every_second = largest_frames[::2]
        word_of_frame[every_second] = word
    return word_of_frame


def _moments(block: Frames) -> Frames:
    """Return ones, frames and their squares side by side, (n_frames, 1 + 2 n_features)."""
    column_of_ones = np.ones((len(block), 1))
    squares = block * block
    return np.hstack([column_of_ones, block, squares])


def _expect(
    frames: Frames, means: Frames, precision_factors: Frames, weights: Frames
) -> tuple[Frames, float]:
    """Return the sums of moments by responsibility, and the mean log-likelihood of a frame.

    Words are given by `means` and `precision_factors`, (n_words, n_features), and `weights`
    (n_words,), which sum to 1. The sums are (n_words, 1 + 2 n_features).
    """
    n_words = len(means)
    n_features = frames.shape[1]
    moment_sums = np.zeros((n_words, 2 * n_features + 1))
    log_likelihood_sum = 0.0
    log_weights = np.log(weights)
    for start in range(0, len(frames), BLOCK):
        block = frames[start : start + BLOCK]
        joint = _log_densities(block, means, precision_factors)
        joint += log_weights
        # The largest is taken out before the exponential, so that it stays finite.
        largest = joint.max(axis=1, keepdims=True)
        joint -= largest
        responsibilities = np.exp(joint, out=joint)
        totals = responsibilities.sum(axis=1, keepdims=True)
        responsibilities /= totals
        log_likelihood_sum += float(largest.sum() + np.log(totals).sum())
        moment_sums += responsibilities.T @ _moments(block)
    return moment_sums, log_likelihood_sum / len(frames)


def _maximise(moment_sums: Frames) -> tuple[Frames, Frames, Frames]:
    """Return the words' means, precision factors and weights by their sums of moments.

    The moments are those of `_moments`; for the shapes see `_expect`.
    """
    n_features = moment_sums.shape[1] // 2
    # A word to which nothing falls any more stays where dividing is possible.
    counts = moment_sums[:, 0] + 10 * np.finfo(np.float64).eps
    divisors = counts[:, None]
    means = moment_sums[:, 1 : n_features + 1] / divisors
    mean_squares = moment_sums[:, n_features + 1 :] / divisors
    variances = np.maximum(mean_squares - means**2, 0)
    variances += _SMALLEST_VARIANCE
    precision_factors = 1 / np.sqrt(variances)
    weights = counts / counts.sum()
    return means, precision_factors, weights


def _log_densities(block: Frames, means: Frames, precision_factors: Frames) -> Frames:
    """Return the log-densities of frames under Gaussians along the axes, (n_frames, n_words).

    With precisions p = 1 / variance and d features, that is
    sum(log sqrt(p)) - (d log 2π + sum(p (x - mean)²)) / 2, multiplied out: one product of matrices
    for a block of frames x and their squares.
    """
    n_features = means.shape[1]
    precisions = precision_factors**2
    centre_terms = np.einsum("ij,ij->i", means**2, precisions)
    norms = centre_terms + n_features * np.log(2 * np.pi)
    constants = np.log(precision_factors).sum(axis=1) - 0.5 * norms
    slopes = np.hstack([means * precisions, -0.5 * precisions])
    frames_and_squares = np.hstack([block, block * block])
    densities: Frames = frames_and_squares @ slopes.T
    densities += constants
    return densities
