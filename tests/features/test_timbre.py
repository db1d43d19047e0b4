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

from polyseme.features import timbre as module
from polyseme.features.timbre import FRAME, HOP, N_BANDS, RATE, segment_timbre, with_derivatives

Signal = NDArray[np.float32]


def notes(starts: list[float], seconds: float) -> Signal:
    """Plucked notes at given times over a faint hum."""
    time = np.arange(round(seconds * RATE)) / RATE
    signal = np.zeros(len(time))
    for number, start in enumerate(starts):
        since = np.clip(time - start, 0, None)
        pitch = 220.0 * 2 ** (number * 5 % 12 / 12)
        sound = sum(np.sin(2 * np.pi * pitch * part * since) / part for part in range(1, 8))
        signal += 0.2 * np.exp(-4 * since) * sound * (time >= start)
    hum = sum(np.sin(2 * np.pi * (97.3 * k) * time + k * k) for k in range(1, 90))
    return (signal + 1e-4 * hum).astype(np.float32)


def noise(n_samples: int) -> Signal:
    return (0.1 * np.random.default_rng(0).normal(size=n_samples)).astype(np.float32)


def test_levels_are_those_of_a_plain_loop() -> None:
    samples = noise(3000)
    levels = module._band_levels(samples)
    assert levels.shape == (1 + 3000 // HOP, N_BANDS)
    hertz_of = np.concatenate([np.arange(0, 1000, 0.5), np.arange(1000, 10500, 0.5)])
    above = 15 + 27 * np.log(np.maximum(hertz_of, 1) / 1000) / np.log(6.4)
    mel_of = np.where(hertz_of < 1000, hertz_of * 3 / 200, above)
    low, high = np.interp([module.LOWEST, module.HIGHEST], hertz_of, mel_of)
    corners = np.interp(np.linspace(low, high, N_BANDS + 2), mel_of, hertz_of)
    centred = samples.astype(float) - samples.astype(float).mean()
    padded = np.concatenate([np.zeros(FRAME // 2), centred, np.zeros(FRAME // 2)])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)
    for frame in (0, 5, len(levels) - 1):
        spectrum = np.fft.rfft(padded[frame * HOP : frame * HOP + FRAME] * window)
        for band in (0, 1, 20, 63):
            left, middle, right = corners[band : band + 3]
            power = 0.0
            for number, value in enumerate(spectrum):
                frequency = number * RATE / FRAME
                if left < frequency < right:
                    up = (frequency - left) / (middle - left)
                    down = (right - frequency) / (right - middle)
                    power += min(up, down) * 2 / (right - left) * abs(value) ** 2
            assert levels[frame, band] == pytest.approx(10 * np.log10(power), abs=2e-3)


def test_timbre_is_the_cosine_transform_of_a_segments_average_levels() -> None:
    from scipy.fft import dct

    samples = notes([0.4, 0.9, 1.3], 2.0)
    levels = module._band_levels(samples)
    starts = [*module._segment_starts(levels).tolist(), len(levels)]
    timbre = segment_timbre(samples)
    assert len(timbre) == len(starts) - 1 > 3
    for row, (start, end) in enumerate(pairwise(starts)):
        frames = [dct(frame.astype(float), norm="ortho")[:12] for frame in levels[start:end]]
        assert_allclose(timbre[row], sum(frames) / len(frames), atol=1e-3)


def test_segments_start_where_notes_do_and_steady_sound_is_cut_too() -> None:
    true = [0.5, 0.9, 1.45, 2.2, 2.6]
    starts = module._segment_starts(module._band_levels(notes(true, 3.2))) * HOP / RATE
    for start in true:
        assert np.abs(starts - start).min() < 0.06, f"no segment starts near {start} s: {starts}"
    away = [one for one in starts[1:] if min(abs(one - start) for start in true) > 0.06]
    assert len(away) <= 2
    steady = np.sin(2 * np.pi * 440 * np.arange(5 * RATE) / RATE).astype(np.float32)
    lengths = np.diff(module._segment_starts(module._band_levels(steady)))
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
    levels = loudness * generator.normal(size=(n_frames, N_BANDS)).astype(np.float32)
    starts = module._segment_starts(levels)
    lengths = np.diff(starts, append=n_frames)
    assert starts[0] == 0
    short = n_frames < 2 * module.SHORTEST and len(starts) == 1
    assert lengths.max() <= module.LONGEST
    assert lengths.min() >= module.SHORTEST or short


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
    assert_allclose(loud[:, 0] - quiet[:, 0], 20 * 8, atol=0.05)
    assert_allclose(loud[:, 1:], quiet[:, 1:], atol=0.05)
    assert_allclose(segment_timbre(samples + np.float32(0.25)), loud, atol=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for gain in (20, 3e4, 1e9):
            assert np.isfinite(segment_timbre(np.float32(gain) * samples)).all()


@pytest.mark.parametrize("n_segments", [0, 1, 2, 3, 4, 9])
def test_derivatives_are_those_of_a_plain_loop(n_segments: int) -> None:
    timbre = np.random.default_rng(0).normal(size=(n_segments, 12)).astype(np.float32)

    def slopes(rows: list[list[float]]) -> list[list[float]]:
        def at(row: int, column: int) -> float:
            return rows[min(max(row, 0), len(rows) - 1)][column]

        return [
            [
                sum(step * (at(row + step, c) - at(row - step, c)) for step in (1, 2)) / 10
                for c in range(12)
            ]
            for row in range(len(rows))
        ]

    first = slopes(timbre.tolist())
    found = with_derivatives(timbre)
    assert found.shape == (n_segments, 36)
    assert found.dtype == np.float32
    assert_array_equal(found[:, :12], timbre)
    assert_allclose(found[:, 12:24], np.reshape(first, (-1, 12)), atol=1e-6)
    assert_allclose(found[:, 24:], np.reshape(slopes(first), (-1, 12)), atol=1e-6)
