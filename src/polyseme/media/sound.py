"""Read sound files and arrays as samples.

In: a file that libsndfile reads, M4A or AAC, which ffmpeg's libraries read, or an array
(n_samples,) or (n_samples, n_channels). Out: one channel of float32 samples (n_samples,) at one
rate, or a `MediaError` with the reason why not. Whatever changes samples changes features: then
`VERSION` of `media.audio` has to be raised.
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

# What is read: samples a second, and channels.
LOWEST_RATE = 1_000
HIGHEST_RATE = 768_000
MOST_CHANNELS = 32
AAC_FORMATS = {".m4a": "mov", ".m4b": "mov", ".aac": "aac"}  # ffmpeg's names of their formats
_DAMAGED = "is damaged or not a sound file"
_BLOCK = 1 << 14  # samples of each channel read at a time; a file is used up to a broken block
_LARGEST = 1e10  # far above any scale in use (16-bit numbers as floats: 3e4); squares stay finite
_INTEGER_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32")  # of arrays

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
            n_channels = int(file.channels)
            most_samples = _most_samples(rate, n_channels, max_seconds)
            blocks = map(_mix, _blocks(file, most_samples))
            samples = _resample(blocks, rate, wanted_rate)
    except (OSError, RuntimeError, TypeError, UnicodeError) as error:
        raise MediaError(_DAMAGED) from error
    return _check_samples(samples)


def _most_samples(rate: int, n_channels: int, max_seconds: float) -> int:
    """Return how many samples of each channel are read at most; raise for odd rates and channels.

    `rate` is in samples a second.
    """
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise MediaError(
            f"has {rate:,} samples per second; {LOWEST_RATE:,} to {HIGHEST_RATE:,} are read"
        )
    if not 1 <= n_channels <= MOST_CHANNELS:
        raise MediaError(f"has {n_channels} channels; up to {MOST_CHANNELS} are read")
    n_samples = min(max_seconds * rate, 2.0**62)  # fits a 64-bit number also without a limit
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
        # An open file of a known format: ffmpeg follows no path or address that stands in it.
        format_name = AAC_FORMATS[path.suffix.lower()]
        with path.open("rb") as file, av.open(file, "r", format=format_name) as container:
            if not container.streams.audio:
                raise MediaError("holds no sound")
            stream = container.streams.audio[0]
            rate = int(stream.rate or 0)
            n_channels = len(stream.layout.channels)
            most_samples = _most_samples(rate, n_channels, max_seconds)
            # "fltp": 32-bit floats, channel by channel; the rate stays.
            converter = av.AudioResampler("fltp", stream.layout, rate)
            frames = _until_damage(container.decode(stream), av.FFmpegError)
            float_frames = itertools.chain.from_iterable(map(converter.resample, frames))
            all_blocks: Iterator[Any] = (frame.to_ndarray().T for frame in float_frames)
            blocks = map(_mix, _first_samples(all_blocks, most_samples))
            return _resample(blocks, rate, wanted_rate)
    except MediaError:
        raise
    except Exception as error:  # it raises nearly everything on broken files
        raise MediaError(_DAMAGED) from error


def _until_damage(frames: Iterator[Any], damage: type[Exception]) -> Iterator[Any]:
    """Yield frames of a decoder up to the first error of the type `damage`.

    At the very beginning, it is raised.
    """
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


def _first_samples(blocks: Iterable[Samples], most_samples: int) -> Iterator[Samples]:
    """Yield blocks (n_samples, n_channels), up to a number of samples of each channel."""
    n_missing = most_samples
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
    dtype = values.dtype
    channels = values  # (n_samples, n_channels)
    if values.ndim == 1:
        channels = values[:, None]
    has_type = dtype.kind == "f" or dtype.name in _INTEGER_TYPES
    has_shape = channels.ndim == 2 and channels.shape[1] <= MOST_CHANNELS
    if not (has_type and has_shape and values.size):
        raise InputError(
            f"{name} must hold floats or whole numbers of 8, 16 or 32 bits, of the shape "
            f"(n_samples,) or (n_samples, n_channels) with at most {MOST_CHANNELS} channels; got "
            f"{dtype} of the shape {values.shape}."
        )
    starts = range(0, len(channels), _BLOCK)
    array_blocks = (channels[start : start + _BLOCK] for start in starts)
    blocks = map(_mix, map(_scale, array_blocks))
    try:
        return _resample(blocks, rate, wanted_rate)
    except MediaError as error:
        raise InputError(f"{name} {error}.") from error


def _blocks(file: _ForwardOnly, most_samples: int) -> Iterator[Samples]:
    """Yield blocks (n_samples, n_channels) up to the first damage, or to a number of samples.

    Each is overwritten by the next one. Damage at the very beginning is raised.
    """
    buffer = np.empty((_BLOCK, file.channels), dtype=np.float32)
    for n_read in range(0, most_samples, _BLOCK):
        n_samples = min(_BLOCK, most_samples - n_read)
        try:
            block: Samples = file.read(frames=n_samples, out=buffer)
        except soundfile.LibsndfileError:
            if n_read:
                return
            raise
        if len(block):
            yield block
        if len(block) < n_samples:
            return


def _mix(block: Samples) -> Samples:
    """Return the mean of the channels of a block (n_samples, n_channels), a new array (n_samples,).

    Raises for samples that are not finite or far out of range.
    """
    n_channels = block.shape[1]
    # In single precision, channel by channel; `mean` rounds otherwise.
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
    """Return blocks of one channel, each (n_samples,), joined and brought to another rate.

    Rates are in samples a second. Without blocks, an empty array.
    """
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
    if samples.size:
        return samples
    # So few samples that none is left at the lower rate are still a sound.
    return first_sample


def _scale(block: NDArray[Any]) -> Samples:
    """Return samples of any type of `sound_from_array` as float32, whole numbers within -1..1."""
    if block.dtype.kind == "f":
        with np.errstate(over="ignore"):  # infinite samples are refused with a reason
            return block.astype(np.float32)
    n_bits = 8 * block.dtype.itemsize
    half = 2.0 ** (n_bits - 1)
    middle = half if block.dtype.kind == "u" else 0.0
    centred = block.astype(np.float64) - middle
    return (centred / half).astype(np.float32)
