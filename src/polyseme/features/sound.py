"""Sound files and arrays become samples.

In: a file libsndfile reads, or an array (n_samples,) or (n_samples, n_channels). Out: one channel
of float32 samples (n_samples,) at one rate, or a `MediaError` with the reason why not.
"""

from __future__ import annotations

import io
import math
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, check_number
from polyseme.features.media import MediaError, needs

SUFFIXES = frozenset({".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"})
RATE = 22050
LOWEST_RATE = 1_000
HIGHEST_RATE = 768_000
MOST_CHANNELS = 32

# Frames read at a time; of a file that breaks off, what precedes the broken block is used.
_BLOCK = 1 << 14
# Far above any scale in use (16-bit numbers stored as floats reach 3e4); squares stay finite.
_LARGEST = 1e10
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")

Samples = NDArray[np.float32]


def read_sound(path: Path, *, rate: int = RATE, max_seconds: float = 600.0) -> Samples:
    """Read a sound file as one channel at a given rate.

    Channels are averaged. Of a file that is shorter than its header says or damaged further on,
    what precedes the damage is used (whole blocks of 16,384 frames where the decoder reports an
    error). Memory is bounded by `max_seconds`, whatever the file's header claims.

    Parameters
    ----------
    path : Path
        A regular file in a format of `SUFFIXES`; the content decides, not the name. Rates from
        1,000 to 768,000 Hz and up to 32 channels are read.
    rate : int
        Samples per second of what is returned.
    max_seconds : float
        Only so much of the beginning is used.

    Returns
    -------
    float32 array, shape (n_samples,)
        At least one sample; full scale is 1, floating-point files may exceed it.

    Raises
    ------
    MediaError
        When the file cannot be used, whatever the cause.

    Notes
    -----
    The decoder of MP3 files writes remarks on damaged ones to the process's error stream, past
    Python; see `quiet_decoders`.
    """
    _check_rate(rate, owner="read_sound")
    check_number("max_seconds", max_seconds, owner="read_sound", low=0, above=True)
    soundfile, soxr = _libraries()
    _check_file(path)
    # On Windows names are text; elsewhere they are bytes, which need not be valid UTF-8.
    name = str(path) if os.name == "nt" else os.fsencode(path)
    try:
        with _forward_only(soundfile)(name) as file:
            rate_in, n_channels = int(file.samplerate), int(file.channels)
            _check_header(rate_in, n_channels)
            wanted = math.ceil(min(max_seconds * rate_in, 2.0**62))
            blocks = _blocks(file, soundfile.LibsndfileError, wanted)
            samples = _resampled(soxr, (_one_channel(one) for one in blocks), rate_in, rate)
    except (OSError, RuntimeError, TypeError, UnicodeError) as error:
        raise MediaError("is damaged or not a sound file") from error
    if not samples.size:
        raise MediaError("holds no samples")
    return samples


def sound_from_array(array: object, rate_in: int, rate: int = RATE) -> Samples:
    """Turn samples in memory into one channel at a given rate.

    Parameters
    ----------
    array : array-like, shape (n_samples,) or (n_samples, n_channels)
        As the soundfile library gives it: time runs down. Floats are taken as they are; whole
        numbers of 8, 16 or 32 bits are scaled to -1..1, unsigned ones from their middle.
    rate_in : int
        Samples per second of the array.
    rate : int
        Samples per second of what is returned.

    Returns
    -------
    float32 array, shape (n_samples,)

    Raises
    ------
    InputError
        When the array is not such an array.
    """
    _check_rate(rate_in, owner="sound_from_array", name="rate_in")
    _check_rate(rate, owner="sound_from_array")
    _, soxr = _libraries()
    channels = _as_channels(array)
    starts = range(0, len(channels), _BLOCK)
    try:
        blocks = (_one_channel(_scaled(channels[one : one + _BLOCK])) for one in starts)
        return _resampled(soxr, blocks, rate_in, rate)
    except MediaError as error:
        raise InputError(f"`array` of `sound_from_array` {error}.") from error


@contextmanager
def quiet_decoders() -> Iterator[None]:
    """Keep what C libraries write to the error stream from the screen.

    The MP3 decoder comments on damaged files there and offers no switch. This points the
    process's error stream elsewhere and gives Python's own `sys.stderr` another way to where it
    went before, so that warnings and progress still show. It concerns the whole process: enter it
    once around a run over many files, from one thread, not around each file.
    """
    try:
        kept = os.dup(2)
    except OSError:  # a process without an error stream has nothing to keep quiet
        yield
        return
    before, replaced = sys.stderr, None
    if _writes_to(before, 2):
        before.flush()
        raw = os.fdopen(kept, "wb", buffering=0, closefd=False)
        encoding = getattr(before, "encoding", None)
        replaced = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace",
                                    write_through=True)  # fmt: skip
        sys.stderr = replaced
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        if replaced is not None:
            sys.stderr = before
        os.close(kept)


def _writes_to(stream: Any, descriptor: int) -> bool:
    """Tell whether a stream of Python's ends in a file descriptor."""
    try:
        return bool(stream.fileno() == descriptor)
    except (AttributeError, OSError, ValueError):
        return False


def _libraries() -> tuple[ModuleType, ModuleType]:
    """Import the decoder and the resampler, or say which extra brings them."""
    try:
        import soundfile
        import soxr
    except (ImportError, OSError) as error:  # OSError: soundfile is there, libsndfile is not
        raise needs("audio", "Reading sounds") from error
    return soundfile, soxr


def _forward_only(soundfile: ModuleType) -> Any:
    """Give soundfile's class without the seek it makes after every read.

    A seek fails at the end of a truncated FLAC file, which loses what was read, and makes the MP3
    decoder start again.
    """

    class ForwardOnly(soundfile.SoundFile):  # type: ignore[name-defined,misc]  # a value to mypy
        def seekable(self) -> bool:
            return False

    return ForwardOnly


def _check_rate(rate: object, *, owner: str, name: str = "rate") -> None:
    """Raise unless a rate asked for is a whole number in the accepted range."""
    check_number(name, rate, owner=owner, low=LOWEST_RATE, high=HIGHEST_RATE, whole=True)


def _check_file(path: Path) -> None:
    """Raise unless the path leads to a regular file that is not empty and may be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise MediaError("is not a regular file")
        if not found.st_size:
            raise MediaError("is empty")
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        raise MediaError("is not there") from error
    except PermissionError as error:
        raise MediaError("may not be read (permission denied)") from error
    except OSError as error:
        raise MediaError(
            f"cannot be read ({(error.strerror or 'no reason given').lower()})"
        ) from error
    except ValueError as error:
        if isinstance(error, MediaError):
            raise
        raise MediaError("has a name no file can have") from error


def _check_header(rate_in: int, n_channels: int) -> None:
    """Raise when a file has a rate or more channels than are read."""
    if not LOWEST_RATE <= rate_in <= HIGHEST_RATE:
        raise MediaError(
            f"has {rate_in:,} samples per second; {LOWEST_RATE:,} to {HIGHEST_RATE:,} are read"
        )
    if not 1 <= n_channels <= MOST_CHANNELS:
        raise MediaError(f"has {n_channels} channels; up to {MOST_CHANNELS} are read")


def _blocks(file: Any, decoding_error: type[Exception], wanted: int) -> Iterator[Samples]:
    """Yield blocks (n, n_channels) of an open file, up to the first damage or `wanted` frames.

    A block is overwritten by the next one.
    """
    buffer = np.empty((_BLOCK, file.channels), dtype=np.float32)
    n_read = 0
    while n_read < wanted:
        asked = min(_BLOCK, wanted - n_read)
        try:
            block: Samples = file.read(frames=asked, out=buffer)
        except decoding_error:
            if n_read:
                return
            raise
        if len(block):
            yield block
        n_read += len(block)
        if len(block) < asked:
            return


def _one_channel(block: Samples) -> Samples:
    """Average the channels of a block (n, n_channels) and refuse what is no sound."""
    mixed = block[:, 0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for channel in range(1, block.shape[1]):
            mixed += block[:, channel]
        mixed *= np.float32(1 / block.shape[1])
    # A comparison with NaN is false, so one test finds NaN, infinity and absurd sizes.
    if not max(-mixed.min(), mixed.max()) <= _LARGEST:
        whole = np.isfinite(mixed).all()
        raise MediaError(f"holds samples that are {'far out of range' if whole else 'not finite'}")
    return mixed


def _resampled(soxr: ModuleType, blocks: Iterable[Samples], rate_in: int, rate: int) -> Samples:
    """Join blocks (n,) of one channel and bring them to another rate; none give an empty array."""
    if rate_in == rate:
        parts = list(blocks)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
    stream = soxr.ResampleStream(rate_in, rate, 1, dtype="float32", quality="HQ")
    parts, first = [], np.empty(0, dtype=np.float32)
    for block in blocks:
        first = first if first.size else block[:1]
        parts.append(stream.resample_chunk(block))
    parts.append(stream.resample_chunk(np.empty(0, dtype=np.float32), last=True))
    samples: Samples = np.concatenate(parts)
    # So few samples that none is left at the lower rate are still a sound.
    return samples if samples.size else first


def _as_channels(array: object) -> NDArray[Any]:
    """Check samples in memory and give them as (n_samples, n_channels), not yet scaled."""
    given = np.asarray(array)
    if given.ndim not in (1, 2):
        raise InputError(
            "`array` of `sound_from_array` must have the shape (n_samples,) or (n_samples, "
            f"n_channels); got {given.ndim} dimensions."
        )
    if given.dtype.kind != "f" and given.dtype.name not in _INTEGERS:
        raise InputError(
            "`array` of `sound_from_array` must hold floats or whole numbers of 8, 16 or 32 bits; "
            f"got {given.dtype}."
        )
    channels = given[:, None] if given.ndim == 1 else given
    if not channels.size:
        raise InputError("`array` of `sound_from_array` holds no samples.")
    if channels.shape[1] > MOST_CHANNELS:
        raise InputError(
            f"`array` of `sound_from_array` has {channels.shape[1]} channels; at most "
            f"{MOST_CHANNELS} are read, so transpose it if time runs along its rows."
        )
    return channels


def _scaled(block: NDArray[Any]) -> Samples:
    """Give samples as float32, whole numbers scaled to -1..1."""
    if block.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what becomes infinite is refused with a reason
            return block.astype(np.float32)
    half = 2.0 ** (8 * block.dtype.itemsize - 1)
    middle = half if block.dtype.kind == "u" else 0.0
    return ((block.astype(np.float64) - middle) / half).astype(np.float32)
