"""Read sound files and arrays as samples.

In: a file that libsndfile reads, M4A or AAC, which ffmpeg's libraries read, or an array
(n_samples,) or (n_samples, n_channels). Out: one channel of float32 samples (n_samples,) at one
rate, or a `MediaError` with the reason why not.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError, check_number
from polyseme.media.audio import RATE
from polyseme.media.base import MediaError, check_file, needs

try:
    import soundfile
    import soxr
except (ImportError, OSError) as error:  # OSError: soundfile is there, libsndfile is not
    raise needs("audio", "Reading sounds") from error

LOWEST_RATE = 1_000
HIGHEST_RATE = 768_000
MOST_CHANNELS = 32
AAC_FORMATS = {".m4a": "mov", ".m4b": "mov", ".aac": "aac"}  # ffmpeg's names of their forms
_DAMAGED = "is damaged or not a sound file"
_BLOCK = 1 << 14  # frames read at a time; a file is used up to the block that is broken
_LARGEST = 1e10  # far above any scale in use (16-bit numbers as floats: 3e4); squares stay finite
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")

Samples = NDArray[np.float32]


class _ForwardOnly(soundfile.SoundFile):  # type: ignore[misc]  # untyped
    """A reader without the seek after every read, which loses the end of a truncated FLAC."""

    def seekable(self) -> bool:
        return False


def read_sound(path: Path, *, max_seconds: float = 600.0, wanted_rate: int = RATE) -> Samples:
    """Read a sound file as one channel at a rate, (n_samples,), at least one sample.

    Full scale is 1; floating-point files may exceed it. Channels are averaged. Of a file that is
    shorter than its header says or damaged further on, what precedes the damage is used. Memory is
    bounded by `max_seconds`, whatever a header claims. The MP3 decoder writes remarks on damaged
    files past Python; see `quiet_decoders`.
    """
    check_file(path)
    if path.suffix.lower() in AAC_FORMATS:
        return _check_samples(_read_aac(path, max_seconds, wanted_rate))
    # On Windows names are text; elsewhere they are bytes, which need not be valid UTF-8.
    name = str(path) if os.name == "nt" else os.fsencode(path)
    try:
        with _ForwardOnly(name) as file:
            rate = int(file.samplerate)
            n_wanted = _wanted(rate, int(file.channels), max_seconds)
            blocks = map(_one_channel, _blocks(file, n_wanted))
            samples = _resample(blocks, rate, wanted_rate)
    except (OSError, RuntimeError, TypeError, UnicodeError) as error:
        raise MediaError(_DAMAGED) from error
    return _check_samples(samples)


def _wanted(rate: int, n_channels: int, max_seconds: float) -> int:
    """Return how many samples are read of each channel; raise beyond the limits."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise MediaError(
            f"has {rate:,} samples per second; {LOWEST_RATE:,} to {HIGHEST_RATE:,} are read"
        )
    if not 1 <= n_channels <= MOST_CHANNELS:
        raise MediaError(f"has {n_channels} channels; up to {MOST_CHANNELS} are read")
    n_samples = min(max_seconds * rate, 2.0**62)
    return math.ceil(n_samples)


def _check_samples(samples: Samples) -> Samples:
    """Return the samples of a sound; raise where there are none."""
    if not samples.size:
        raise MediaError("holds no samples")
    return samples


def _read_aac(path: Path, max_seconds: float, wanted_rate: int) -> Samples:
    """Read a file of Apple's or of plain AAC as one channel at a rate, (n_samples,)."""
    try:
        import av
    except ImportError as error:
        raise needs("aac", "Reading M4A and AAC sounds") from error
    try:
        # An open file of a known form: ffmpeg follows no path or address that stands in it.
        form = AAC_FORMATS[path.suffix.lower()]
        with path.open("rb") as file, av.open(file, "r", format=form) as container:
            if not container.streams.audio:
                raise MediaError("holds no sound")
            stream = container.streams.audio[0]
            rate = int(stream.rate or 0)
            n_wanted = _wanted(rate, len(stream.layout.channels), max_seconds)
            resampler = av.AudioResampler("fltp", stream.layout, rate)
            frames = _until_damage(container.decode(stream), av.FFmpegError)
            float_frames = itertools.chain.from_iterable(map(resampler.resample, frames))
            all_blocks: Iterator[Any] = (frame.to_ndarray().T for frame in float_frames)
            blocks = map(_one_channel, _first(all_blocks, n_wanted))
            return _resample(blocks, rate, wanted_rate)
    except MediaError:
        raise
    except Exception as error:  # it raises nearly everything on broken files
        raise MediaError(_DAMAGED) from error


def _until_damage(frames: Iterator[Any], damage: type[Exception]) -> Iterator[Any]:
    """Yield decoded frames up to the first damage; damage at the very beginning is an error."""
    n_read = 0
    while True:
        try:
            frame = next(frames)
        except StopIteration:
            return
        except damage:
            if n_read:
                return
            raise
        n_read += 1
        yield frame


def _first(blocks: Iterable[Samples], n_wanted: int) -> Iterator[Samples]:
    """Yield blocks (n, n_channels), up to a number of samples."""
    n_missing = n_wanted
    for block in blocks:
        if len(block):
            yield block[:n_missing]
        n_missing -= len(block)
        if n_missing <= 0:
            return


def sound_from_array(array: object, rate: int, wanted_rate: int = RATE) -> Samples:
    """Return samples (n_samples,) or (n_samples, n_channels) as one channel at a rate.

    Floats are taken as they are; whole numbers of 8, 16 or 32 bits are scaled to -1..1, unsigned
    ones from their middle.
    """
    check_number(
        "rate", rate, owner="sound_from_array", low=LOWEST_RATE, high=HIGHEST_RATE, whole=True
    )
    name = "`array` of `sound_from_array`"
    values = np.asarray(array)
    channels = values[:, None] if values.ndim == 1 else values
    has_type = values.dtype.kind == "f" or values.dtype.name in _INTEGERS
    has_shape = channels.ndim == 2 and channels.shape[1] <= MOST_CHANNELS
    if not (has_type and has_shape and values.size):
        raise InputError(
            f"{name} must hold floats or whole numbers of 8, 16 or 32 bits, of the shape "
            f"(n_samples,) or (n_samples, n_channels) with at most {MOST_CHANNELS} channels; got "
            f"{values.dtype} of the shape {values.shape}."
        )
    starts = range(0, len(channels), _BLOCK)
    blocks = (_one_channel(_scale(channels[start : start + _BLOCK])) for start in starts)
    try:
        return _resample(blocks, rate, wanted_rate)
    except MediaError as error:
        raise InputError(f"{name} {error}.") from error


def _blocks(file: _ForwardOnly, n_wanted: int) -> Iterator[Samples]:
    """Yield blocks (n, n_channels) up to the first damage; each is overwritten by the next one."""
    buffer = np.empty((_BLOCK, file.channels), dtype=np.float32)
    for n_read in range(0, n_wanted, _BLOCK):
        n_frames = min(_BLOCK, n_wanted - n_read)
        try:
            block: Samples = file.read(frames=n_frames, out=buffer)
        except soundfile.LibsndfileError:
            if n_read:
                return
            raise
        if len(block):
            yield block
        if len(block) < n_frames:
            return


def _one_channel(block: Samples) -> Samples:
    """Return the mean of the channels of a block (n, n_channels); raise for other samples."""
    n_channels = block.shape[1]
    mixed = block[:, 0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for channel in range(1, n_channels):
            mixed += block[:, channel]
        mixed *= np.float32(1 / n_channels)
    largest = max(-mixed.min(), mixed.max())
    # A comparison with NaN is false, so one test finds NaN, infinity and absurd sizes.
    if not largest <= _LARGEST:
        is_finite = np.isfinite(mixed).all()
        problem = "far out of range" if is_finite else "not finite"
        raise MediaError(f"holds samples that are {problem}")
    return mixed


def _resample(blocks: Iterable[Samples], rate: int, wanted_rate: int) -> Samples:
    """Return blocks (n,) of one channel joined at a rate; without blocks an empty array."""
    no_samples = np.empty(0, dtype=np.float32)
    if rate == wanted_rate:
        return np.concatenate([no_samples, *blocks])
    stream = soxr.ResampleStream(rate, wanted_rate, 1, dtype="float32", quality="HQ")
    chunks: list[Samples] = []
    first_sample = no_samples
    for block in blocks:
        if not first_sample.size:
            first_sample = block[:1]
        chunks.append(stream.resample_chunk(block))
    chunks.append(stream.resample_chunk(no_samples, last=True))
    samples: Samples = np.concatenate(chunks)
    # So few samples that none is left at the lower rate are still a sound.
    return samples if samples.size else first_sample


def _scale(block: NDArray[Any]) -> Samples:
    """Return samples as float32, whole numbers scaled to -1..1."""
    if block.dtype.kind == "f":
        with np.errstate(over="ignore"):  # infinite samples are refused with a reason
            return block.astype(np.float32)
    n_bits = 8 * block.dtype.itemsize
    half = 2.0 ** (n_bits - 1)
    middle = half if block.dtype.kind == "u" else 0.0
    centred = block.astype(np.float64) - middle
    return (centred / half).astype(np.float32)
