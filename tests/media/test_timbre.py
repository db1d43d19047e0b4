"""Segments and their timbre."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from polyseme.media import timbre as module
from polyseme.media.timbre import FRAME, HOP, N_BANDS, RATE, segment_timbre, with_derivatives

Signal = NDArray[np.float32]


def notes(starts: list[float], seconds: float) -> Signal:
    """Plucked notes at given times over a faint hum."""
    time = np.arange(round(seconds * RATE)) / RATE
    signal = np.zeros(len(time))
    for number, start in enumerate(starts):
        since = np.clip(time - start, 0, None)
        loudness = 0.2 * np.exp(-4 * since) * (time >= start)
        semitones = number * 5 % 12
        pitch = 220.0 * 2 ** (semitones / 12)
        for overtone in range(1, 8):
            wave = np.sin(2 * np.pi * pitch * overtone * since)
            signal += loudness * wave / overtone
    for overtone in range(1, 90):
        frequency = 97.3 * overtone
        signal += 1e-4 * np.sin(2 * np.pi * frequency * time + overtone**2)
    return signal.astype(np.float32)


def noise(n_samples: int) -> Signal:
    return (0.1 * np.random.default_rng(0).normal(size=n_samples)).astype(np.float32)


def band_corners() -> NDArray[np.float64]:
    """Return the frequencies where the bands of equal width in mel begin, peak and end."""
    hertz = np.concatenate([np.arange(0, 1000, 0.5), np.arange(1000, 10500, 0.5)])
    octaves = np.log(np.maximum(hertz, 1) / 1000)
    mel_above = 15 + 27 * octaves / np.log(6.4)
    mel_below = hertz * 3 / 200
    mel = np.where(hertz < 1000, mel_below, mel_above)
    low, high = np.interp([module.LOWEST, module.HIGHEST], hertz, mel)
    corners = np.linspace(low, high, N_BANDS + 2)
    return np.interp(corners, mel, hertz)


def test_levels_are_those_of_a_plain_loop() -> None:
    samples = noise(3000)
    levels = module._band_levels(samples)
    assert levels.shape == (1 + 3000 // HOP, N_BANDS)
    corners = band_corners()
    centred = samples.astype(float) - samples.astype(float).mean()
    padded = np.pad(centred, FRAME // 2)
    phase = 2 * np.pi * np.arange(FRAME) / FRAME
    window = 0.5 - 0.5 * np.cos(phase)
    frequencies = np.fft.rfftfreq(FRAME, 1 / RATE)
    for frame in (0, 5, len(levels) - 1):
        start = frame * HOP
        spectrum = np.fft.rfft(padded[start : start + FRAME] * window)
        powers = np.abs(spectrum) ** 2
        for band in (0, 1, 20, 63):
            left, middle, right = corners[band : band + 3]
            rising = (frequencies - left) / (middle - left)
            falling = (right - frequencies) / (right - middle)
            triangle = np.clip(np.minimum(rising, falling), 0, None)
            power = triangle @ powers * 2 / (right - left)
            expected = 10 * np.log10(power)
            assert levels[frame, band] == pytest.approx(expected, abs=2e-3)


def test_timbre_is_the_cosine_transform_of_a_segments_average_levels() -> None:
    from scipy.fft import dct

    samples = notes([0.4, 0.9, 1.3], 2.0)
    levels = module._band_levels(samples)
    starts = module._segment_starts(levels).tolist()
    timbre = segment_timbre(samples)
    assert len(timbre) == len(starts)
    assert len(starts) > 3
    for row, (start, end) in enumerate(pairwise([*starts, len(levels)])):
        transforms = dct(levels[start:end].astype(float), norm="ortho")
        expected = transforms[:, :12].mean(axis=0)
        assert_allclose(timbre[row], expected, atol=1e-3)


def test_segments_start_where_notes_do() -> None:
    note_starts = np.array([0.5, 0.9, 1.45, 2.2, 2.6])
    levels = module._band_levels(notes(note_starts.tolist(), 3.2))
    starts = module._segment_starts(levels) * HOP / RATE
    gaps = np.abs(starts[:, None] - note_starts)
    assert gaps.min(axis=0).max() < 0.06, f"no segment starts near a note: {starts}"
    away_from_notes = gaps[1:].min(axis=1) > 0.06
    assert np.count_nonzero(away_from_notes) <= 2


def test_steady_sound_is_cut_into_equal_segments() -> None:
    time = np.arange(5 * RATE) / RATE
    steady = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    starts = module._segment_starts(module._band_levels(steady))
    lengths = np.diff(starts)
    assert len(lengths) >= 4
    assert lengths.max() - lengths.min() <= 1


@settings(deadline=None, max_examples=60)
@given(
    n_frames=st.integers(1, 400),
    seed=st.integers(0, 1000),
    loudness=st.sampled_from([0.0, 1.0, 30.0]),
)
def test_segments_cover_the_clip_within_their_bounds(n_frames, seed, loudness) -> None:
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(n_frames, N_BANDS))
    levels = loudness * noise.astype(np.float32)
    starts = module._segment_starts(levels)
    assert starts[0] == 0
    lengths = np.diff(starts, append=n_frames)
    assert lengths.max() <= module.LONGEST
    is_short = n_frames < 2 * module.SHORTEST
    if not (is_short and len(starts) == 1):
        assert lengths.min() >= module.SHORTEST


@pytest.mark.parametrize("level", [0.0, 0.5, -1.0])
@pytest.mark.parametrize("n_samples", [1, 500, 60_000])
def test_silence_and_a_constant_have_floor_values(level: float, n_samples: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        timbre = segment_timbre(np.full(n_samples, level, dtype=np.float32))
    assert_allclose(timbre[:, 0], -800, atol=1e-2)
    assert_allclose(timbre[:, 1:], 0, atol=1e-3)


def test_gain_moves_loudness_only_and_an_offset_nothing() -> None:
    samples = notes([0.5, 1.0, 1.6], 2.2)
    quiet = segment_timbre(samples / 10)
    loud = segment_timbre(samples)
    loudness_gain = loud[:, 0] - quiet[:, 0]
    assert_allclose(loudness_gain, 20 * 8, atol=0.05)
    expected = quiet[:, 1:]
    assert_allclose(loud[:, 1:], expected, atol=0.05)
    shifted = segment_timbre(samples + np.float32(0.25))
    assert_allclose(shifted, loud, atol=0.5)


@pytest.mark.parametrize("gain", [20, 3e4, 1e9])
def test_timbre_of_very_loud_sound_is_finite(gain: float) -> None:
    samples = np.float32(gain) * notes([0.5, 1.0, 1.6], 2.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        timbre = segment_timbre(samples)
    assert np.isfinite(timbre).all()


@pytest.mark.parametrize("n_segments", [0, 1, 2, 3, 4, 9])
def test_derivatives_are_those_of_a_plain_loop(n_segments: int) -> None:
    generator = np.random.default_rng(0)
    timbre = generator.normal(size=(n_segments, 12)).astype(np.float32)

    def slopes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.zeros_like(rows)
        last = len(rows) - 1
        for row in range(len(rows)):
            for step in (1, 2):
                following = rows[min(row + step, last)]
                preceding = rows[max(row - step, 0)]
                result[row] += step * (following - preceding) / 10
        return result

    first_derivatives = slopes(timbre.astype(float))
    second_derivatives = slopes(first_derivatives)
    features = with_derivatives(timbre)
    assert features.shape == (n_segments, 36)
    assert features.dtype == np.float32
    assert_array_equal(features[:, :12], timbre)
    assert_allclose(features[:, 12:24], first_derivatives, atol=1e-6)
    assert_allclose(features[:, 24:], second_derivatives, atol=1e-6)
