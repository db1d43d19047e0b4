"""Segments and their timbre."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("soundfile", reason="needs the extra `audio`")


from polyseme._validation import InputError
from polyseme.features.sound import RATE, sound_from_array
from polyseme.features.timbre import (
    FRAME,
    HIGHEST,
    HOP,
    LONGEST,
    LOWEST,
    N_BANDS,
    SHORTEST,
    _onsets,
    band_levels,
    segment_starts,
    segment_timbre,
    with_derivatives,
)

Signal = NDArray[np.float32]


def notes(starts: list[float], seconds: float, rate: int = RATE) -> Signal:
    """Plucked notes at given times over faint noise that is the same at every rate."""
    time = np.arange(round(seconds * rate)) / rate
    signal = np.zeros(len(time))
    for number, start in enumerate(starts):
        since = np.clip(time - start, 0, None)
        pitch = 220.0 * 2 ** (number * 5 % 12 / 12)
        sound = sum(np.sin(2 * np.pi * pitch * part * since) / part for part in range(1, 8))
        signal += 0.2 * np.exp(-4 * since) * sound * (time >= start)
    hum = sum(np.sin(2 * np.pi * (97.3 * k) * time + k * k) for k in range(1, 90))
    return (signal + 1e-4 * hum).astype(np.float32)


def noise(n_samples: int, seed: int = 0) -> Signal:
    return (0.1 * np.random.default_rng(seed).normal(size=n_samples)).astype(np.float32)


# ------------------------------------------------------------------------------- levels


def test_levels_are_those_of_a_plain_loop() -> None:
    samples = noise(3000)
    levels = band_levels(samples)
    assert levels.shape == (1 + 3000 // HOP, N_BANDS)
    mel_of = np.concatenate([np.arange(0, 1000, 0.5) * 3 / 200, 15 + 27 * np.log(
        np.arange(1000, 10500, 0.5) / 1000) / np.log(6.4)])  # fmt: skip
    hertz_of = np.concatenate([np.arange(0, 1000, 0.5), np.arange(1000, 10500, 0.5)])
    low, high = np.interp([LOWEST, HIGHEST], hertz_of, mel_of)
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


def test_levels_agree_with_librosa() -> None:
    librosa = pytest.importorskip("librosa", reason="the other implementation is not installed")
    samples = noise(RATE)
    samples -= samples.mean()
    power = librosa.feature.melspectrogram(
        y=samples, sr=RATE, n_fft=FRAME, hop_length=HOP, n_mels=N_BANDS, fmin=LOWEST, fmax=HIGHEST
    )
    expected = librosa.power_to_db(power, amin=1e-10, top_db=80)
    np.testing.assert_allclose(band_levels(samples), expected.T, atol=2e-3)


def test_timbre_is_the_cosine_transform_of_a_segments_average_levels() -> None:
    from scipy.fft import dct

    samples = notes([0.4, 0.9, 1.3], 2.0)
    levels = band_levels(samples)
    starts = [*segment_starts(levels).tolist(), len(levels)]
    timbre = segment_timbre(samples)
    assert len(timbre) == len(starts) - 1 > 3
    for row, (start, end) in enumerate(pairwise(starts)):
        frames = [dct(frame.astype(float), norm="ortho")[:12] for frame in levels[start:end]]
        np.testing.assert_allclose(timbre[row], sum(frames) / len(frames), atol=1e-3)


# ------------------------------------------------------------------------------- segments


def test_segments_start_where_notes_do() -> None:
    true = [0.5, 0.9, 1.45, 2.2, 2.6]
    found = segment_starts(band_levels(notes(true, 3.2))) * HOP / RATE
    for start in true:
        assert np.abs(found - start).min() < 0.06, f"no segment starts near {start} s: {found}"
    away = [one for one in found[1:] if min(abs(one - start) for start in true) > 0.06]
    assert len(away) <= 2


def test_an_onset_is_where_the_rise_to_a_peak_begins() -> None:
    rises = np.zeros(120)
    rises[30:36] = [0.5, 1, 2, 4, 6, 3]
    rises[80:83] = [0.3, 0.9, 0.2]  # too small
    rises[100:103] = [2, 5, 1]
    assert _onsets(rises) == [29, 99]


def test_steady_sound_is_cut_too() -> None:
    time = np.arange(5 * RATE) / RATE
    starts = segment_starts(band_levels(np.sin(2 * np.pi * 440 * time).astype(np.float32)))
    lengths = np.diff(starts)
    assert len(starts) >= 5 and lengths.max() - lengths.min() <= 1


@settings(deadline=None, max_examples=60)
@given(
    n_frames=st.integers(1, 400),
    seed=st.integers(0, 1000),
    loudness=st.sampled_from([0.0, 1.0, 30.0]),
)
def test_segments_cover_the_clip_within_their_bounds(
    n_frames: int, seed: int, loudness: float
) -> None:
    generator = np.random.default_rng(seed)
    levels = loudness * generator.normal(size=(n_frames, N_BANDS)).astype(np.float32)
    starts = segment_starts(levels)
    lengths = np.diff(starts, append=n_frames)
    assert starts[0] == 0
    assert lengths.max() <= LONGEST
    assert lengths.min() >= SHORTEST or (len(starts) == 1 and n_frames < 2 * SHORTEST)


@pytest.mark.parametrize("n_samples", [1, 2, 100, 255, 256, 1023, 1024, 1791])
def test_a_clip_shorter_than_a_segment_is_one(n_samples: int) -> None:
    timbre = segment_timbre(noise(n_samples))
    assert timbre.shape == (1, 12) and np.isfinite(timbre).all()


@pytest.mark.parametrize("level", [0.0, 0.5, -1.0])
@pytest.mark.parametrize("n_samples", [1, 500, 60_000])
def test_silence_and_a_constant_have_floor_values(level: float, n_samples: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        timbre = segment_timbre(np.full(n_samples, level, dtype=np.float32))
    np.testing.assert_allclose(timbre[:, 0], -800, atol=1e-2)
    np.testing.assert_allclose(timbre[:, 1:], 0, atol=1e-3)


def test_gain_moves_loudness_only() -> None:
    samples = notes([0.5, 1.0, 1.6], 2.2)
    quiet, loud = segment_timbre(samples / 10), segment_timbre(samples)
    assert len(quiet) == len(loud)
    np.testing.assert_allclose(loud[:, 0] - quiet[:, 0], 20 * 8, atol=0.05)
    np.testing.assert_allclose(loud[:, 1:], quiet[:, 1:], atol=0.05)


def test_a_constant_offset_changes_nothing() -> None:
    samples = notes([0.5, 1.0, 1.6], 2.2)
    np.testing.assert_allclose(
        segment_timbre(samples + np.float32(0.25)), segment_timbre(samples), atol=0.5
    )


@pytest.mark.parametrize("n_samples", [1, 40, 128])
def test_a_slight_delay_gives_nearly_the_same_segments(n_samples: int) -> None:
    samples = notes([0.5, 1.0, 1.6], 2.2)
    delayed = np.concatenate([np.zeros(n_samples, dtype=np.float32), samples[:-n_samples]])
    first, second = segment_timbre(samples), segment_timbre(delayed)
    assert len(first) == len(second)
    # The spread over this clip is about 100; the delay moves sound across the frames' borders.
    assert np.abs(first - second).mean() < 5


@pytest.mark.parametrize("rate", [44100, 48000])
def test_the_rate_a_sound_was_rendered_at_hardly_matters(rate: int) -> None:
    starts = [0.5, 1.0, 1.6]
    expected = segment_timbre(notes(starts, 2.2))
    found = segment_timbre(notes(starts, 2.2, rate), rate)
    assert found.shape == expected.shape
    # Notes set in abruptly, which has no exact form at any rate.
    assert np.abs(found - expected).mean() < 1.0
    same = segment_timbre(sound_from_array(notes(starts, 2.2, rate), rate))
    np.testing.assert_array_equal(found, same)


def test_different_sounds_have_different_timbre() -> None:
    time = np.arange(RATE) / RATE
    low, high = (np.sin(2 * np.pi * pitch * time).astype(np.float32) for pitch in (150, 4000))
    means = [segment_timbre(one)[:, 1:].mean(axis=0) for one in (low, high, noise(RATE))]
    for first in range(3):
        for second in range(first):
            assert np.linalg.norm(means[first] - means[second]) > 50


def test_timbre_is_the_same_every_time() -> None:
    samples = notes([0.5, 1.0], 2.0)
    np.testing.assert_array_equal(segment_timbre(samples), segment_timbre(samples.copy()))


def test_clipped_and_very_loud_sound_stays_finite() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for gain in (20, 3e4, 1e9):
            assert np.isfinite(segment_timbre(np.float32(gain) * noise(20_000))).all()
        assert np.isfinite(segment_timbre(np.clip(50 * noise(20_000), -1, 1))).all()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((10, 2), dtype=np.float32), "must have one dimension"),
        (np.zeros(0, dtype=np.float32), "holds no samples"),
        (np.array([0, np.nan], dtype=np.float32), "not finite"),
        (np.array([0, np.inf], dtype=np.float32), "not finite"),
    ],
)
def test_what_is_no_clip_is_refused(samples: Signal, message: str) -> None:
    with pytest.raises(InputError, match=message):
        segment_timbre(samples)


# ------------------------------------------------------------------------------- derivatives


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
    assert found.shape == (n_segments, 36) and found.dtype == np.float32
    np.testing.assert_array_equal(found[:, :12], timbre)
    np.testing.assert_allclose(found[:, 12:24], np.reshape(first, (-1, 12)), atol=1e-6)
    np.testing.assert_allclose(found[:, 24:], np.reshape(slopes(first), (-1, 12)), atol=1e-6)


def test_a_straight_line_has_its_slope_as_derivative() -> None:
    line = np.outer(np.arange(20), np.arange(12)).astype(np.float32)
    found = with_derivatives(line)
    np.testing.assert_allclose(found[2:-2, 12:24], np.tile(np.arange(12), (16, 1)), atol=1e-5)
    np.testing.assert_allclose(found[4:-4, 24:], 0, atol=1e-5)


def test_one_segment_has_derivatives_of_zero() -> None:
    found = with_derivatives(np.ones((1, 12)))
    np.testing.assert_array_equal(found, np.concatenate([np.ones(12), np.zeros(24)])[None])


def test_derivatives_of_a_vector_are_refused() -> None:
    with pytest.raises(InputError, match=r"must have two dimensions .* got 1"):
        with_derivatives(np.ones(12))
