"""Segments become words: the bag of audio words of the paper's equation (10).

In: for each clip a matrix of segments (n_i, d). Out: for each clip the shares of its segments
that fall to each of `n_words` Gaussians, (n, n_words), learned on training clips.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

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
    check_option,
    draw_seed,
    first_few,
)
from polyseme.features._mixture import (
    BLOCK,
    Frames,
    Mixture,
    diagonal_density,
    fit_diagonal,
    fit_full,
    full_density,
    starting_words,
)

COVARIANCES = ("diag", "full")

_ARRAYS = ("mean", "scale", "means", "precisions_cholesky", "weights")
# Numbers are cut off here before squares are taken, so that these stay finite: as they come, and
# in spreads of the training frames.
_LARGEST = 1e100
_FARTHEST = 1e6


class Codebook(TransformerMixin, Estimator):  # type: ignore[misc]  # untyped mixin
    """Describe clips by how often each word of a learned codebook occurs in them.

    Words are the Gaussians of a mixture that is fitted to segments of the training clips. Each
    segment of a clip falls to the word under which it is most likely, and a clip's feature is
    the share of its segments that falls to each word (in the paper: Q and equation 10).

    Parameters
    ----------
    n_words : int
        Gaussians in the codebook (in the paper: d^(I), 128).
    covariance : {"diag", "full"}
        Whether the Gaussians have axes along the coordinates, or any.
    max_frames : int
        Learn from at most so many segments, drawn evenly over all segments of all clips.
    max_iterations : int
        Bound on the rounds of expectation maximisation.
    tolerance : float
        It has converged when the mean log-likelihood of a segment grows by less.
    random_state : int, numpy.random.Generator or None
        Draws segments and the start of the words.

    Attributes
    ----------
    n_words_ : int
        Words found: fewer than `n_words` when there are fewer different segments.
    n_features_in_ : int
        Numbers per segment, d.
    mean_, scale_ : float64 array, shape (d,)
        The segments' own mean and spread, taken out first.
    means_ : float64 array, shape (n_words_, d)
        The words' centres, in spreads.
    precisions_cholesky_ : float64 array, shape (n_words_, d) or (n_words_, d, d)
        One over the words' spreads, or factors of their inverse covariances, in spreads.
    weights_ : float64 array, shape (n_words_,)
        The words' shares in the mixture; as in the paper, they do not enter `transform`.
    n_iter_ : int
        Rounds made.
    converged_ : bool
    log_likelihood_ : float
        Mean log-likelihood of a training segment in the last round.

    Notes
    -----
    The paper does not say which covariances it uses. Ties go to the first word. A segment more
    than a million spreads away in a coordinate is treated as if it were there.
    """

    def __init__(
        self,
        n_words: int = 128,
        covariance: str = "diag",
        max_frames: int = 100_000,
        max_iterations: int = 300,
        tolerance: float = 1e-3,
        random_state: RandomState = None,
    ) -> None:
        self.n_words = n_words
        self.covariance = covariance
        self.max_frames = max_frames
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, segments: Sequence[FloatArray], y: object = None) -> Self:
        """Learn the words from the segments of training clips.

        Parameters
        ----------
        segments : sequence of arrays, each of shape (n_i, d)
            One matrix per clip; some may have no rows, not all.
        y : ignored
        """
        self._check_parameters()
        generator = as_generator(self.random_state)
        frames = _draw(_checked(segments, None), self.max_frames, generator)
        self.n_features_in_ = frames.shape[1]
        # Only differences of more than rounding are a spread.
        self.mean_ = frames.mean(axis=0)
        spread = frames.std(axis=0)
        self.scale_ = np.where(spread > 1e-7 * np.abs(self.mean_), spread, 1.0)
        frames = self._standardised(frames)
        self.n_words_ = self._count_words(frames)
        start = starting_words(frames, self.n_words_, draw_seed(generator))
        learn = fit_diagonal if self.covariance == "diag" else fit_full
        self._keep(learn(frames, start, self.max_iterations, self.tolerance))
        if not self.converged_:
            warnings.warn(
                f"The codebook has not converged after {self.n_iter_} rounds; it can be used, and "
                "a larger `max_iterations` of `Codebook` brings it closer.",
                PolysemeWarning,
                stacklevel=2,
            )
        return self

    def transform(self, segments: Sequence[FloatArray]) -> Frames:
        """Count the words of clips.

        Parameters
        ----------
        segments : sequence of arrays, each of shape (n_i, d)
            One matrix per clip.

        Returns
        -------
        float64 array, shape (n, n_words_)
            Shares that sum to 1 in each row; zeros, with a warning, for a clip without segments.
        """
        check_fitted(self, "means_")
        clips = _checked(segments, self.n_features_in_)
        shares = np.zeros((len(clips), self.n_words_))
        numbers = self._different()
        for row, clip in enumerate(clips):
            if len(clip):
                counts = np.bincount(self._words(clip, numbers), minlength=self.n_words_)
                shares[row] = counts / len(clip)
        if empty := [row for row, clip in enumerate(clips) if not len(clip)]:
            warnings.warn(
                f"{len(empty)} of {len(clips)} clips have no segments and get zeros: "
                f"{first_few(empty)}.",
                PolysemeWarning,
                stacklevel=2,
            )
        return shares

    def words(self, clip: FloatArray) -> NDArray[np.int64]:
        """Give the word of each segment of one clip.

        Parameters
        ----------
        clip : array, shape (n_segments, d)

        Returns
        -------
        int64 array, shape (n_segments,)
        """
        check_fitted(self, "means_")
        (checked,) = _checked([clip], self.n_features_in_)
        return self._words(checked, self._different())

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the fitted codebook as JSON values and arrays, for saving without pickle.

        Returns
        -------
        config : dict
            Parameters and how learning ended; a generator given as `random_state` is left out.
        arrays : dict of str to array
        """
        check_fitted(self, "means_")
        parameters = {name: _plain(value) for name, value in self.get_params().items()}
        config = {
            "parameters": parameters,
            "n_iter": self.n_iter_,
            "converged": self.converged_,
            "log_likelihood": self.log_likelihood_,
        }
        return config, {name: getattr(self, f"{name}_") for name in _ARRAYS}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted codebook from `get_state`; it gives bit for bit the same shares.

        Parameters
        ----------
        config : mapping
        arrays : mapping of str to array

        Returns
        -------
        Codebook
        """
        if missing := sorted(set(_ARRAYS) - set(arrays)):
            raise InputError(f"The saved Codebook lacks the array(s) {', '.join(missing)}.")
        book = cls(**config["parameters"])
        for name in _ARRAYS:
            setattr(book, f"{name}_", np.array(arrays[name], dtype=np.float64, order="C"))
        n_words, d = book.means_.shape
        right = (n_words, d) if book.covariance == "diag" else (n_words, d, d)
        shapes = (book.precisions_cholesky_.shape, book.mean_.shape, book.scale_.shape)
        if shapes != (right, (d,), (d,)):
            raise InputError("The saved Codebook has arrays that do not fit each other.")
        book.n_words_, book.n_features_in_ = n_words, d
        book.n_iter_ = int(config["n_iter"])
        book.converged_ = bool(config["converged"])
        book.log_likelihood_ = float(config["log_likelihood"])
        return book

    def _check_parameters(self) -> None:
        """Raise for a parameter that cannot be used."""
        owner = type(self).__name__
        check_number("n_words", self.n_words, owner=owner, low=1, whole=True)
        check_option("covariance", self.covariance, COVARIANCES, owner=owner)
        check_number("max_frames", self.max_frames, owner=owner, low=1, whole=True)
        check_number("max_iterations", self.max_iterations, owner=owner, low=1, whole=True)
        check_number("tolerance", self.tolerance, owner=owner, low=0)

    def _count_words(self, frames: Frames) -> int:
        """Give the number of words that the frames allow, with a warning when it is smaller."""
        # As many different frames as words are found at once, unless most are alike.
        n_different = len(np.unique(frames[: 20 * self.n_words], axis=0))
        if n_different < self.n_words:
            n_different = len(np.unique(frames, axis=0))
        if n_different < self.n_words:
            warnings.warn(
                f"There are only {n_different} different segments to learn {self.n_words} words "
                f"from; the codebook has {n_different} words.",
                PolysemeWarning,
                stacklevel=3,
            )
        return min(self.n_words, n_different)

    def _keep(self, mixture: Mixture) -> None:
        """Keep what was learned."""
        self.means_ = mixture.means
        self.precisions_cholesky_ = mixture.precisions_cholesky
        self.weights_ = mixture.weights
        self.n_iter_ = mixture.n_iter
        self.converged_ = mixture.converged
        self.log_likelihood_ = mixture.log_likelihood

    def _standardised(self, frames: FloatArray) -> Frames:
        """Take the training frames' mean and spread out of frames."""
        with np.errstate(over="ignore"):
            moved = (_as_frames(frames) - self.mean_) / self.scale_
        standardised: Frames = np.clip(moved, -_FARTHEST, _FARTHEST, out=moved)
        return standardised

    def _different(self) -> NDArray[np.int64]:
        """Give the numbers of the words that can be found: the first of words that are the same.

        Rounding in a matrix product could otherwise favour a later one.
        """
        factors = self.precisions_cholesky_.reshape(self.n_words_, -1)
        rows = np.hstack([self.means_, factors])
        _, first = np.unique(rows, axis=0, return_index=True)
        return np.sort(first)

    def _words(self, clip: FloatArray, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the most likely of some Gaussians for each frame, block by block."""
        means, factors = self.means_[numbers], self.precisions_cholesky_[numbers]
        density = diagonal_density if factors.ndim == 2 else full_density
        found = np.empty(len(clip), dtype=np.int64)
        for start in range(0, len(clip), BLOCK):
            block = self._standardised(clip[start : start + BLOCK])
            found[start : start + BLOCK] = numbers[density(block, means, factors).argmax(axis=1)]
        return found


def _as_frames(frames: FloatArray) -> Frames:
    """Give frames as float64, cut off where squares would overflow."""
    return np.clip(frames.astype(np.float64), -_LARGEST, _LARGEST)


def _plain(value: object) -> object:
    """Give a parameter as a JSON value: numpy numbers as Python's, a generator as None."""
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    return None if isinstance(value, (np.random.Generator, np.random.RandomState)) else value


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
    lengths = np.array([len(clip) for clip in clips], dtype=np.int64)
    n_frames = int(lengths.sum())
    if not n_frames:
        raise InputError("`segments` of `Codebook` must hold at least one segment; got none.")
    if n_frames <= most:
        return _as_frames(np.concatenate(clips))
    chosen = np.sort(generator.choice(n_frames, most, replace=False))
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(chosen, ends)
    parts = np.split(chosen, cuts[:-1])
    taken = [
        clip[part - (end - len(clip))] for clip, part, end in zip(clips, parts, ends, strict=True)
    ]
    return _as_frames(np.concatenate(taken))
