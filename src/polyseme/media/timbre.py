"""Compute the timbre of samples: a clip is cut into segments of 12 numbers each.

In: samples (n_samples,) of one channel. Out: timbre (n_segments, 12), in time order, and with
derivatives (n_segments, 36): what the paper's ENT features are to a track (section 4.2).

Terms: a *frame* is one short window of samples; a *band* is a triangular filter over frequencies
evenly spaced on the mel scale, which follows hearing; a *level* is the power of a band in decibels;
a *rise* is how much the levels of a frame grew on average; an *onset* is a frame where sound sets
in; a *segment* is a run of frames between two cuts.

Every constant here decides the features: change one, and `VERSION` in `audio.py` must be raised, so
that caches and saved models of the old numbers are refused.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct, rfft
from scipy.ndimage import maximum_filter1d, uniform_filter1d

from polyseme.media.audio import RATE

N_COEFFICIENTS = 12  # of a segment's timbre, as many as the paper's ENT features have
# Samples in a frame and from one frame to the next: windows of 46 ms, every 12 ms.
FRAME = 1024
HOP = 256
N_BANDS = 64
# In hertz. Below lies rumble, above the slope of the resampler: neither belongs to the sound.
LOWEST = 40.0
HIGHEST = 10_000.0
# Frames in a segment: 81 ms to 1 s.
SHORTEST = 7
LONGEST = 86
# Power below which nothing is heard (16-bit rounding lies near it), and below which share of the
# power of a clip's loudest band (80 dB less) its bands are not told apart.
_SILENT_POWER = 1e-10
_LEAST_POWER_SHARE = 1e-8
# An onset is a rise over two frames, in decibels averaged over the bands, that is the largest
# within the shortest segment on each side and exceeds the average rise of 20 frames on each side by
# more than 1 dB. Not tuned on a data set; tests/media/test_timbre.py checks it on plucked notes.
_RISE_FRAMES = 2
_AVERAGED_FRAMES_EACH_SIDE = 20
_LEAST_EXCESS_RISE = 1.0
_BLOCK = 128  # frames transformed at a time: bounds the memory, changes no number
# The mel scale of Slaney's Auditory Toolbox, as librosa has it: linear up to 1,000 Hz, logarithmic
# above. Mels for each hertz below, and for each factor of e above.
_CORNER_HERTZ = 1000.0
_MELS_PER_HERTZ = 3 / 200
_MELS_PER_FOLD = 27 / np.log(6.4)

Matrix = NDArray[np.float32]


def segment_timbre(samples: NDArray[np.float32]) -> Matrix:
    """Cut a clip (n_samples,) into segments and describe the timbre of each, (n_segments, 12).

    Cuts are made where sound sets in and, in steady sound, after at most one second; a clip of less
    than 162 ms is one segment. Coefficients are the cosine transform of the levels, in decibels, of
    64 bands evenly spaced on the mel scale, averaged over the segment. The first is loudness and
    moves by 8 for each decibel of gain; the other 11 and the cuts do not depend on gain, as long as
    the clip is well above silence, which gives -800 and eleven zeros.
    """
    levels = _band_levels(samples)
    starts = _segment_starts(levels)
    lengths = np.diff(starts, append=len(levels))
    # The transform of an average is the average of the transforms, and cheaper.
    level_sums = np.add.reduceat(levels, starts, axis=0, dtype=np.float64)
    average_levels = level_sums / lengths[:, None]
    coefficients = dct(average_levels, norm="ortho")
    timbre: Matrix = coefficients[:, :N_COEFFICIENTS].astype(np.float32)
    return timbre


def with_derivatives(timbre: ArrayLike) -> Matrix:
    """Put first and second derivatives beside timbre (n_segments, d), (n_segments, 3 d).

    The derivative is the slope of the regression line through a segment and two neighbours on each
    side, where the first and the last one are repeated beyond the ends.
    """
    coefficients = np.asarray(timbre, dtype=np.float32)
    first_derivative = _slopes(coefficients.astype(np.float64))
    second_derivative = _slopes(first_derivative)
    return np.hstack([coefficients, first_derivative, second_derivative], dtype=np.float32)


def _band_levels(samples: NDArray[np.float32]) -> Matrix:
    """Return the levels of mel bands in decibels, (n_frames, 64).

    Frame t is centred on sample 256 t, so there are 1 + n_samples // 256 of them; beyond the ends
    the clip is silent.
    """
    window, band_weights = _window_and_bands()
    mean = np.float32(samples.mean(dtype=np.float64))
    centred = samples - mean
    margin = np.zeros(FRAME // 2, dtype=np.float32)
    padded = np.concatenate([margin, centred, margin])
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    n_frames = len(frames)
    power = np.empty((n_frames, N_BANDS), dtype=np.float32)
    for start in range(0, n_frames, _BLOCK):
        block = slice(start, start + _BLOCK)
        windowed = frames[block] * window
        # Complex numbers seen as pairs (real, imaginary), as the columns of `band_weights` are.
        pairs = rfft(windowed, axis=1).view(np.float32)
        pairs *= pairs
        power[block] = (band_weights @ pairs.T).T
    loudest = float(power.max())
    floor = max(_SILENT_POWER, _LEAST_POWER_SHARE * loudest)
    np.maximum(power, np.float32(floor), out=power)
    np.log10(power, out=power)
    power *= np.float32(10)
    return power


def _segment_starts(levels: Matrix) -> NDArray[np.int64]:
    """Return the frames at which segments of 7 to 86 frames start, ascending from 0.

    `levels` are those of `_band_levels`, (n_frames, 64). A clip of fewer than 14 frames is one
    segment, however short.
    """
    n_frames = len(levels)
    rises = np.zeros(n_frames)
    changes = levels[_RISE_FRAMES:] - levels[:-_RISE_FRAMES]
    # Falling bands count as zero, so that one note's end does not hide another's beginning.
    np.maximum(changes, 0, out=changes)
    rises[_RISE_FRAMES:] = changes.mean(axis=1, dtype=np.float64)
    starts = [0]
    for onset in _onsets(rises):
        frames_before = onset - starts[-1]
        frames_after = n_frames - onset
        if min(frames_before, frames_after) >= SHORTEST:
            starts.append(onset)
    ends = [*starts[1:], n_frames]
    # Longer stretches are cut into equal segments.
    segment_starts: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        length = end - start
        n_segments = -(-length // LONGEST)
        for segment in range(n_segments):
            offset = length * segment // n_segments
            segment_starts.append(start + offset)
    return np.array(segment_starts, dtype=np.int64)


def _onsets(rises: NDArray[np.float64]) -> list[int]:
    """Return the frames where sound sets in, ascending: where the rise to each peak begins.

    `rises` (n_frames,) are decibels.
    """
    peak_width = 2 * (SHORTEST - 1) + 1
    average_width = 2 * _AVERAGED_FRAMES_EACH_SIDE + 1
    largest = maximum_filter1d(rises, peak_width, mode="nearest")
    average = uniform_filter1d(rises, average_width, mode="nearest")
    is_largest = rises == largest
    is_large = rises > average + _LEAST_EXCESS_RISE
    peaks = np.flatnonzero(is_largest & is_large)
    # From the peak back to the last frame that did not rise more than the one before it.
    changes = np.diff(rises, prepend=np.inf)
    resting_frames = np.flatnonzero(changes <= 0)
    places = np.searchsorted(resting_frames, peaks, side="left")
    onsets: list[int] = resting_frames[places - 1].tolist()
    return onsets


def _slopes(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slopes of the columns of a series (n_segments, d) along its rows, same shape.

    With x of -2 … 2 the regression slope is sum(x y) / sum(x²), whose denominator is 10.
    """
    if not len(series):
        return series
    padded = np.pad(series, ((2, 2), (0, 0)), mode="edge")
    near = padded[3:-1] - padded[1:-3]
    far = padded[4:] - padded[:-4]
    slopes: NDArray[np.float64] = (near + 2 * far) / 10
    return slopes


def hann_window(length: int) -> Matrix:
    """Return a periodic Hann window, (length,)."""
    angles = 2 * np.pi * np.arange(length) / length
    window = 0.5 - 0.5 * np.cos(angles)
    return window.astype(np.float32)


@lru_cache(maxsize=1)
def _window_and_bands() -> tuple[Matrix, sp.csr_matrix]:
    """Return a Hann window (1024,) and the weights of bands, sparse (64, 2 * 513).

    A spectrum's squared real and imaginary parts alternate, so each weight stands twice. Both are
    shared by all callers, who must not change them.
    """
    window = hann_window(FRAME)
    triangles = mel_triangles(N_BANDS, LOWEST, HIGHEST, FRAME, RATE)
    pair_weights = np.repeat(triangles, 2, axis=1)
    return window, sp.csr_matrix(pair_weights.astype(np.float32))


def mel_triangles(
    n_bands: int, lowest: float, highest: float, frame: int, rate: int
) -> NDArray[np.float64]:
    """Return triangular weights of area 1, evenly spaced on the mel scale.

    Parameters
    ----------
    n_bands : int
        Triangles, from the lowest frequency to the highest, each reaching to the peaks beside it.
    lowest, highest : float
        In hertz: where the first triangle begins, at most 1,000, and where the last one ends, more
        than 1,000.
    frame : int
        Samples that a spectrum is taken of.
    rate : int
        Samples a second.

    Returns
    -------
    ndarray of shape (n_bands, frame // 2 + 1)
        Weights of the frequencies of a real spectrum, from 0 to half the rate.
    """
    corner_mel = _CORNER_HERTZ * _MELS_PER_HERTZ
    lowest_mel = lowest * _MELS_PER_HERTZ
    folds = np.log(highest / _CORNER_HERTZ)
    highest_mel = corner_mel + _MELS_PER_FOLD * folds
    mels = np.linspace(lowest_mel, highest_mel, n_bands + 2)[:, None]
    folds_above = np.maximum(mels - corner_mel, 0) / _MELS_PER_FOLD
    hertz_below = mels / _MELS_PER_HERTZ
    hertz_above = _CORNER_HERTZ * np.exp(folds_above)
    corners = np.where(mels < corner_mel, hertz_below, hertz_above)
    left = corners[:-2]
    centre = corners[1:-1]
    right = corners[2:]
    frequencies = np.arange(frame // 2 + 1) * rate / frame
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    triangles = np.minimum(rising, falling)
    heights = np.clip(triangles, 0, None)
    weights: NDArray[np.float64] = heights * 2 / (right - left)
    return weights
