"""Compute the timbre of samples: a clip is cut into segments of 12 numbers each.

In: samples (n_samples,) of one channel. Out: timbre (n_segments, 12), in time order, and with
derivatives (n_segments, 36): what the paper's ENT features are to a track (section 4.2).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct, rfft
from scipy.ndimage import maximum_filter1d, uniform_filter1d

from polyseme.media.audio import RATE

N_COEFFICIENTS = 12
# Windows of 46 ms, every 12 ms.
FRAME = 1024
HOP = 256
N_BANDS = 64
# Below lies rumble, above the slope of the resampler: neither belongs to the sound.
LOWEST = 40.0
HIGHEST = 10_000.0
# In hops: segments last from 81 ms to 1 s.
SHORTEST = 7
LONGEST = 86
# Power below which nothing is heard (16-bit rounding lies near it), and how far below the
# loudest band of a clip its bands are told apart.
_SILENCE = 1e-10
_RANGE = 1e-8
# An onset is a rise over two hops, in decibels averaged over the bands, that is the largest
# around and exceeds the average rise around it by so much.
_RISE_HOPS = 2
_AROUND = 20
_THRESHOLD = 1.0
_BLOCK = 128
# The mel scale is linear up to 1,000 Hz: steps per hertz below, and per e-fold above.
_CORNER = 1000.0
_PER_HERTZ = 3 / 200
_PER_FOLD = 27 / np.log(6.4)

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
    sums = np.add.reduceat(levels, starts, axis=0, dtype=np.float64)
    averages = sums / lengths[:, None]
    coefficients = dct(averages, norm="ortho")[:, :N_COEFFICIENTS]
    timbre: Matrix = coefficients.astype(np.float32)
    return timbre


def with_derivatives(timbre: ArrayLike) -> Matrix:
    """Put first and second derivatives beside timbre (n_segments, d), (n_segments, 3 d).

    The derivative is the slope of the regression line through a segment and two neighbours on each
    side, where the first and the last one are repeated beyond the ends.
    """
    values = np.asarray(timbre, dtype=np.float32)
    first = _slopes(values.astype(np.float64))
    second = _slopes(first)
    return np.hstack([values, first, second], dtype=np.float32)


def _band_levels(samples: NDArray[np.float32]) -> Matrix:
    """Return levels of mel bands in decibels, (1 + n_samples // 256, 64), of frames about 256 t."""
    window, bands = _window_and_bands()
    margin = np.zeros(FRAME // 2, dtype=np.float32)
    mean = np.float32(samples.mean(dtype=np.float64))
    padded = np.concatenate([margin, samples - mean, margin])
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    power = np.empty((len(frames), N_BANDS), dtype=np.float32)
    for start in range(0, len(frames), _BLOCK):
        block = slice(start, start + _BLOCK)
        spectrum = rfft(frames[block] * window, axis=1).view(np.float32)
        spectrum *= spectrum
        power[block] = (bands @ spectrum.T).T
    loudest = float(power.max())
    floor = np.float32(max(_SILENCE, _RANGE * loudest))
    np.maximum(power, floor, out=power)
    np.log10(power, out=power)
    power *= np.float32(10)
    return power


def _segment_starts(levels: Matrix) -> NDArray[np.int64]:
    """Return the frames at which segments of 7 to 86 frames start, from levels (n_frames, 64)."""
    n_frames = len(levels)
    rises = np.zeros(n_frames)
    changes = levels[_RISE_HOPS:] - levels[:-_RISE_HOPS]
    # Falling bands count as zero, so that one note's end does not hide another's beginning.
    np.maximum(changes, 0, out=changes)
    rises[_RISE_HOPS:] = changes.mean(axis=1, dtype=np.float64)
    starts = [0]
    for onset in _onsets(rises):
        if onset - starts[-1] >= SHORTEST and n_frames - onset >= SHORTEST:
            starts.append(onset)
    ends = [*starts[1:], n_frames]
    cuts: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        length = end - start
        n_segments = -(-length // LONGEST)
        for number in range(n_segments):
            cuts.append(start + length * number // n_segments)
    return np.array(cuts, dtype=np.int64)


def _onsets(rises: NDArray[np.float64]) -> list[int]:
    """Return the frames where sound sets in, ascending: where the rise to each peak begins."""
    reach = 2 * (SHORTEST - 1) + 1
    largest = maximum_filter1d(rises, reach, mode="nearest")
    average = uniform_filter1d(rises, 2 * _AROUND + 1, mode="nearest")
    is_peak = (rises == largest) & (rises > average + _THRESHOLD)
    peaks = np.flatnonzero(is_peak)
    # From the peak back to the last frame that did not rise more than the one before it.
    changes = np.diff(rises, prepend=np.inf)
    resting = np.flatnonzero(changes <= 0)
    positions = np.searchsorted(resting, peaks, side="left") - 1
    onsets: list[int] = resting[positions].tolist()
    return onsets


def _slopes(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the regression slopes of rows over two neighbours on each side, ends repeated."""
    if not len(values):
        return values
    padded = np.pad(values, ((2, 2), (0, 0)), mode="edge")
    near = padded[3:-1] - padded[1:-3]
    far = padded[4:] - padded[:-4]
    slopes: NDArray[np.float64] = (near + 2 * far) / 10
    return slopes


@lru_cache(maxsize=1)
def _window_and_bands() -> tuple[Matrix, sp.csr_matrix]:
    """Return a Hann window, and mel triangles of area 1 over squared (re, im) pairs, sparse."""
    angles = 2 * np.pi * np.arange(FRAME) / FRAME
    window = (0.5 - 0.5 * np.cos(angles)).astype(np.float32)
    triangles = mel_triangles(N_BANDS, LOWEST, HIGHEST, FRAME, RATE)
    pair_weights = np.repeat(triangles, 2, axis=1).astype(np.float32)
    return window, sp.csr_matrix(pair_weights)


def mel_triangles(
    n_bands: int, lowest: float, highest: float, frame: int, rate: int
) -> NDArray[np.float64]:
    """Return mel triangles of area 1 over the spectrum of a frame, (n_bands, frame // 2 + 1)."""
    corner_mel = _CORNER * _PER_HERTZ
    low = lowest * _PER_HERTZ
    high = corner_mel + _PER_FOLD * np.log(highest / _CORNER)
    mels = np.linspace(low, high, n_bands + 2)[:, None]
    folds = np.maximum(mels - corner_mel, 0) / _PER_FOLD
    above = _CORNER * np.exp(folds)
    corners = np.where(mels < corner_mel, mels / _PER_HERTZ, above)
    left = corners[:-2]
    centre = corners[1:-1]
    right = corners[2:]
    frequencies = np.arange(frame // 2 + 1) * rate / frame
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    heights = np.clip(np.minimum(rising, falling), 0, None)
    weights: NDArray[np.float64] = heights * 2 / (right - left)
    return weights
