"""Samples become timbre: a clip is cut into segments, and each is described by 12 numbers.

In: samples (n_samples,) of one channel. Out: timbre (n_segments, 12), in time order, and with
derivatives (n_segments, 36): what the paper's ENT features are to a track (section 4.2).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError
from polyseme.features.sound import RATE, sound_from_array

N_COEFFICIENTS = 12

# Windows of 46 ms, every 12 ms.
FRAME = 1024
HOP = 256
N_BANDS = 64
# Below lies rumble, above the slope of the resampler: neither says anything about the sound.
LOWEST, HIGHEST = 40.0, 10_000.0
# Segments last from 81 ms to 1 s, in hops.
SHORTEST, LONGEST = 7, 86

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

Matrix = NDArray[np.float32]


def segment_timbre(samples: ArrayLike, rate: int = RATE) -> Matrix:
    """Cut a clip into segments and describe the timbre of each.

    Cuts are made where sound sets in and, in steady sound, after at most one second; the first
    segment starts with the clip and the last one ends with it. A clip of less than 162 ms is one
    segment; missing samples are taken as silence.

    Parameters
    ----------
    samples : array-like, shape (n_samples,)
        One channel; a constant offset is taken out first.
    rate : int
        Its samples per second; another rate than 22,050 is converted.

    Returns
    -------
    float32 array, shape (n_segments, 12)
        Cepstral coefficients: the cosine transform of the levels, in decibels, of 64 bands evenly
        spaced on the mel scale, averaged over the segment. The first is loudness and moves by 8
        for each decibel of gain; the other 11 and the cuts do not depend on gain, as long as the
        clip is well above silence. Silence gives -800 and eleven zeros.

    Raises
    ------
    InputError
        When there are no samples, or samples that are not finite.
    """
    levels = band_levels(_one_channel(samples, rate))
    starts = segment_starts(levels)
    lengths = np.diff(starts, append=len(levels))
    # The transform of an average is the average of the transforms, and cheaper.
    averages = np.add.reduceat(levels, starts, axis=0, dtype=np.float64) / lengths[:, None]
    timbre: Matrix = (averages @ _cosines().T).astype(np.float32)
    return timbre


def with_derivatives(timbre: ArrayLike) -> Matrix:
    """Put first and second derivatives beside the timbre of segments.

    The derivative at a segment is the slope of the regression line through it and two neighbours
    on each side, (x[+1] - x[-1] + 2 (x[+2] - x[-2])) / 10 per segment, where the first and the
    last segment are repeated beyond the ends; the second is the derivative of the first. A single
    segment has derivatives of zero.

    Parameters
    ----------
    timbre : array-like, shape (n_segments, n_coefficients)
        In time order; there may be no segments.

    Returns
    -------
    float32 array, shape (n_segments, 3 * n_coefficients)
        The timbre, its first derivatives, its second derivatives.
    """
    values = np.asarray(timbre, dtype=np.float32)
    if values.ndim != 2:
        raise InputError(
            "`timbre` of `with_derivatives` must have two dimensions (segments, coefficients); "
            f"got {values.ndim}."
        )
    first = _slopes(values.astype(np.float64))
    return np.hstack([values, first, _slopes(first)], dtype=np.float32)


def band_levels(samples: NDArray[np.float32]) -> Matrix:
    """Give the levels of mel bands in decibels, frame by frame.

    Frame t is centred on sample 256 t, with silence beyond both ends. Levels are cut off 80 dB
    below the loudest one of the clip and at -100 dB.

    Parameters
    ----------
    samples : float32 array, shape (n_samples,)
        One channel at 22,050 Hz.

    Returns
    -------
    float32 array, shape (1 + n_samples // 256, 64)
    """
    from scipy.fft import rfft

    window, bands = _window(), _bands()
    margin = np.zeros(FRAME // 2, dtype=np.float32)
    centred = samples - np.float32(samples.mean(dtype=np.float64))
    padded = np.concatenate([margin, centred, margin])
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    power = np.empty((len(frames), N_BANDS), dtype=np.float32)
    for start in range(0, len(frames), _BLOCK):
        spectrum = rfft(frames[start : start + _BLOCK] * window, axis=1).view(np.float32)
        spectrum *= spectrum
        power[start : start + _BLOCK] = (bands @ spectrum.T).T
    floor = np.float32(max(_SILENCE, _RANGE * float(power.max())))
    np.maximum(power, floor, out=power)
    np.log10(power, out=power)
    power *= np.float32(10)
    return power


def segment_starts(levels: Matrix) -> NDArray[np.int64]:
    """Find the frames at which segments start.

    Parameters
    ----------
    levels : float32 array, shape (n_frames, n_bands)
        Of `band_levels`.

    Returns
    -------
    int64 array, shape (n_segments,)
        Ascending, the first is 0; distances from each other and from the end lie between 7 and
        86 frames, unless there are fewer than 14 frames.
    """
    n_frames = len(levels)
    starts = [0]
    for onset in _onsets(_rises(levels)):
        if onset - starts[-1] >= SHORTEST and n_frames - onset >= SHORTEST:
            starts.append(onset)
    ends = [*starts[1:], n_frames]
    cut: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        n_parts = -(-(end - start) // LONGEST)
        cut += [start + (end - start) * part // n_parts for part in range(n_parts)]
    return np.array(cut, dtype=np.int64)


def _one_channel(samples: ArrayLike, rate: int) -> NDArray[np.float32]:
    """Check samples and bring them to our rate."""
    values = np.asarray(samples)
    if values.ndim != 1:
        raise InputError(
            "`samples` of `segment_timbre` must have one dimension (one channel); got "
            f"{values.ndim}."
        )
    if rate == RATE and values.dtype == np.float32 and values.size and _bounded(values):
        return values
    return sound_from_array(values, rate)


def _bounded(values: NDArray[np.float32]) -> bool:
    """Tell whether samples are finite and their squares stay so."""
    return bool(max(-values.min(), values.max()) <= 1e10)


def _rises(levels: Matrix) -> NDArray[np.float64]:
    """Give the rise of each frame's levels over an earlier frame, averaged over bands, (n_frames,).

    Falling bands count as zero, so that one note's end does not hide another's beginning.
    """
    rises = np.zeros(len(levels))
    if len(levels) > _RISE_HOPS:
        change = levels[_RISE_HOPS:] - levels[:-_RISE_HOPS]
        rises[_RISE_HOPS:] = np.maximum(change, 0, out=change).mean(axis=1, dtype=np.float64)
    return rises


def _onsets(rises: NDArray[np.float64]) -> list[int]:
    """Pick the frames where sound sets in, ascending: where the rise to each peak begins."""
    from scipy.ndimage import maximum_filter1d, uniform_filter1d

    reach = 2 * (SHORTEST - 1) + 1
    largest = maximum_filter1d(rises, reach, mode="nearest")
    average = uniform_filter1d(rises, 2 * _AROUND + 1, mode="nearest")
    peaks = np.flatnonzero((rises == largest) & (rises > average + _THRESHOLD))
    # From the peak back to the last frame that did not rise more than the one before it.
    resting = np.flatnonzero(np.diff(rises, prepend=np.inf) <= 0)
    before = resting[np.searchsorted(resting, peaks, side="left") - 1]
    onsets: list[int] = before.tolist()
    return onsets


def _slopes(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the regression slopes of rows over two neighbours on each side, ends repeated."""
    if not len(values):
        return values
    padded = np.pad(values, ((2, 2), (0, 0)), mode="edge")
    slopes: NDArray[np.float64] = (
        padded[3:-1] - padded[1:-3] + 2 * (padded[4:] - padded[:-4])
    ) / 10
    return slopes


@lru_cache(maxsize=1)
def _window() -> NDArray[np.float32]:
    """Give the periodic Hann window of a frame."""
    phase = 2 * np.pi * np.arange(FRAME) / FRAME
    return (0.5 - 0.5 * np.cos(phase)).astype(np.float32)


@lru_cache(maxsize=1)
def _bands() -> sp.csr_matrix:
    """Give the weights of squared real and imaginary parts of a spectrum in each mel band.

    Triangles of area 1 with equally spaced corners on the mel scale, which is linear up to
    1,000 Hz and logarithmic above. Shape (n_bands, 2 * (frame // 2 + 1)); stored sparsely, as
    each frequency lies in two bands at most.
    """
    corners = _frequency(np.linspace(_mel(LOWEST), _mel(HIGHEST), N_BANDS + 2))[:, None]
    frequencies = np.arange(FRAME // 2 + 1) * RATE / FRAME
    rising = (frequencies - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - frequencies) / (corners[2:] - corners[1:-1])
    weights = np.clip(np.minimum(rising, falling), 0, None) * 2 / (corners[2:] - corners[:-2])
    return sp.csr_matrix(np.repeat(weights, 2, axis=1).astype(np.float32))


# Steps on the mel scale per hertz below its corner, and per e-fold above it.
_CORNER, _PER_HERTZ, _PER_FOLD = 1000.0, 3 / 200, 27 / np.log(6.4)


def _mel(frequency: float) -> float:
    """Give a frequency's place on the mel scale."""
    if frequency < _CORNER:
        return frequency * _PER_HERTZ
    return float(_CORNER * _PER_HERTZ + _PER_FOLD * np.log(frequency / _CORNER))


def _frequency(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the frequencies at places on the mel scale."""
    corner = _CORNER * _PER_HERTZ
    above = _CORNER * np.exp(np.maximum(mel - corner, 0) / _PER_FOLD)
    frequencies: NDArray[np.float64] = np.where(mel < corner, mel / _PER_HERTZ, above)
    return frequencies


@lru_cache(maxsize=1)
def _cosines() -> NDArray[np.float64]:
    """Give the orthonormal cosine transform's first rows, (n_coefficients, n_bands)."""
    order, band = np.arange(N_COEFFICIENTS)[:, None], np.arange(N_BANDS)
    rows: NDArray[np.float64] = np.cos(np.pi * order * (2 * band + 1) / (2 * N_BANDS)) * np.sqrt(
        2 / N_BANDS
    )
    rows[0] /= np.sqrt(2)
    return rows
