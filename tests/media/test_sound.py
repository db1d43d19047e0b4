"""Sound files and arrays: what is read, what is refused and why."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

pytest.importorskip("soundfile", reason="needs the extra `audio`")

from polyseme.base.validation import InputError
from polyseme.media.base import MediaError, quiet_decoders
from polyseme.media.sound import RATE, read_sound, sound_from_array
from sound_files import encoded, make_odd_sounds, raw_wav, tone, wav


def written(folder: Path, content: bytes, name: str = "clip.wav") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def sine(rate: int, seconds: float = 1.0, pitch: float = 440.0) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("odd")
    return folder, make_odd_sounds(folder)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty.wav", "is empty"),
        ("zero samples.wav", "holds no samples"),
        ("NaN.wav", "holds samples that are not finite"),
        ("huge.wav", "holds samples that are far out of range"),
        ("40 channels.wav", "has 40 channels; up to 32 are read"),
        ("1 Hz.wav", "has 1 samples per second; 1,000 to 768,000 are read"),
        ("random.mp3", "is damaged or not a sound file"),
        ("no frame left.flac", "is damaged or not a sound file"),
        ("nothing.wav", "cannot be opened (no such file or directory)"),
        (".", "is not a regular file"),
    ],
)
def test_a_refusal_says_why(odd, name: str, reason: str) -> None:
    with pytest.raises(MediaError) as caught:
        read_sound(odd[0] / name)
    assert str(caught.value) == reason


def test_channels_are_averaged_like_in_a_plain_loop(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    samples = generator.uniform(-0.5, 0.5, size=(3000, 5))
    path = written(tmp_path, wav(samples, subtype="DOUBLE"))
    expected = samples.mean(axis=1)
    assert_allclose(read_sound(path), expected, atol=1e-6)


@pytest.mark.parametrize("rate", [1000, 7777, 8000, 44100, 48000, 768_000])
def test_a_tone_stays_the_same_tone_at_another_rate(tmp_path: Path, rate: int) -> None:
    tone_at_rate = sine(rate, pitch=220.0)
    path = written(tmp_path, wav(tone_at_rate, rate=rate, subtype="FLOAT"))
    samples = read_sound(path)
    assert len(samples) == pytest.approx(RATE, abs=1)
    expected = sine(RATE, pitch=220.0)
    middle = slice(2000, 20000)  # the filter rings at both ends
    assert_allclose(samples[middle], expected[middle], atol=2e-3)


@pytest.mark.parametrize("rate", [22050, 44100])
def test_only_the_first_seconds_are_used(tmp_path: Path, rate: int) -> None:
    path = written(tmp_path, wav(sine(rate, seconds=3), rate=rate))
    samples = read_sound(path)
    first_samples = read_sound(path, max_seconds=1.5)
    assert len(first_samples) == round(1.5 * RATE)
    assert_allclose(first_samples[:30000], samples[:30000], atol=1e-6)


def test_reading_in_blocks_equals_reading_at_once(tmp_path: Path) -> None:
    import soxr

    generator = np.random.default_rng(0)
    samples = generator.normal(scale=0.1, size=(100_001, 2)).astype(np.float32)
    path = written(tmp_path, wav(samples, rate=44100, subtype="FLOAT"))
    expected = soxr.resample(samples.mean(axis=1), 44100, RATE, quality="HQ")
    assert_allclose(read_sound(path), expected, atol=1e-6)


def test_what_a_header_claims_takes_no_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = written(tmp_path, raw_wav(b"\x01\x00" * 3000, channels=30, claimed=0xFFFFFFF0))
    read_sound(path)
    tracemalloc.start()
    assert len(read_sound(path)) == 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


@pytest.mark.parametrize(("kind", "least"), [("FLAC", 0.8), ("OGG", 0.6), ("MP3", 0.8)])
def test_what_precedes_the_end_of_a_cut_file_is_used(tmp_path: Path, kind, least) -> None:
    content = encoded(tone(8.0), 22050, format=kind)
    complete = read_sound(written(tmp_path, content, "whole.wav"))
    cut = content[: len(content) * 9 // 10]
    with quiet_decoders():
        samples = read_sound(written(tmp_path, cut))
    share = len(samples) / len(complete)
    assert least < share < 0.95
    assert_allclose(samples[:100_000], complete[:100_000], atol=1e-4)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are text here")
def test_a_name_that_is_not_text_is_no_hindrance(tmp_path: Path) -> None:
    path = written(tmp_path, wav(tone()), os.fsdecode(b"caf\xe9.wav"))
    assert len(read_sound(path)) == 11025


def test_a_missing_extra_gets_one_sentence(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    monkeypatch.delitem(sys.modules, "polyseme.media.sound")
    with pytest.raises(InputError, match=r"^Reading sounds needs the extra `audio`; pip") as caught:
        importlib.import_module("polyseme.media.sound")
    assert not isinstance(caught.value, MediaError)


def test_decoders_are_quiet_and_python_is_not(tmp_path: Path) -> None:
    path = tmp_path / "random.mp3"
    generator = np.random.default_rng(1)
    path.write_bytes(generator.bytes(30_000))
    code = """
import os, sys
from pathlib import Path
from polyseme.media.base import MediaError, quiet_decoders
assert not {'soundfile', 'soxr', 'h5py', 'librosa', 'torch'} & set(sys.modules)
from polyseme.media.sound import read_sound
def read():
    try:
        read_sound(Path(sys.argv[1]))
    except MediaError as error:
        sys.stderr.write(f"python: {error}\\n")
before = sys.stderr
with quiet_decoders():
    read()
    os.write(2, b"unheard\\n")
assert sys.stderr is before
os.write(2, b"heard again\\n")
"""
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = ["python: is damaged or not a sound file", "heard again"]
    assert done.returncode == 0
    assert done.stderr.splitlines() == expected


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([-32768, 0, 16384], np.int16, [-1.0, 0.0, 0.5]),
        ([-128, 0, 64], np.int8, [-1.0, 0.0, 0.5]),
        ([0, 128, 192], np.uint8, [-1.0, 0.0, 0.5]),
        ([-(2**31), 0, 2**30], np.int32, [-1.0, 0.0, 0.5]),
        ([-1.5, 0.0, 0.5], np.float64, [-1.5, 0.0, 0.5]),
        ([-1.5, 0.0, 0.5], np.float16, [-1.5, 0.0, 0.5]),
    ],
)
def test_whole_numbers_are_scaled_and_floats_are_not(values, kind, expected) -> None:
    samples = sound_from_array(np.array(values, dtype=kind), RATE)
    assert samples.dtype == np.float32
    assert_array_equal(samples, np.float32(expected))


def test_an_array_reads_as_its_file_does_and_is_not_changed(tmp_path: Path) -> None:
    samples = tone(2.0, rate=44100, n_channels=2).astype(np.float32)
    before = samples.copy()
    path = written(tmp_path, wav(samples, rate=44100, subtype="FLOAT"))
    assert_array_equal(sound_from_array(samples, 44100), read_sound(path))
    sound_from_array(samples, RATE)[:] = 0
    assert_array_equal(samples, before)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 2)), r"got float64 of the shape \(0, 2\)"),
        (np.zeros((2, 2, 2)), r"the shape \(n_samples,\) .* got float64 of the shape \(2, 2, 2\)"),
        (np.zeros((2, 44100)), r"at most 32 channels; got float64 of the shape \(2, 44100\)"),
        (np.zeros(5, dtype=np.int64), "8, 16 or 32 bits.* got int64"),
        (np.array([0.0, np.nan]), "holds samples that are not finite"),
        (np.array([0.0, 1e20]), "holds samples that are far out of range"),
    ],
)
def test_an_array_that_is_no_sound_is_refused(array: NDArray[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sound_from_array(array, 44100)
    with pytest.raises(InputError, match="`rate` of `sound_from_array` must be a whole number"):
        sound_from_array(array, 10)
