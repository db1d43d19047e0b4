"""Odd and broken sound files, and how each must be treated."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

Signal = NDArray[np.float64]


def tone(seconds: float = 0.5, rate: int = 22050, n_channels: int = 1) -> Signal:
    """Return a quiet chord with a little noise, (n_samples, n_channels), always the same."""
    time = np.arange(round(seconds * rate)) / rate
    signal = np.random.default_rng(0).normal(scale=0.005, size=len(time))
    for pitch in (220.0, 277.0, 330.0):
        signal += 0.2 * np.sin(2 * np.pi * pitch * time)
    loudness = 1 / np.arange(1, n_channels + 1)
    return np.outer(signal, loudness)


def encoded(samples: NDArray[Any], rate: int, **options: str) -> bytes:
    """Return the bytes of a sound file."""
    buffer = BytesIO()
    soundfile.write(buffer, samples, rate, **options)
    return buffer.getvalue()


def wav(samples: NDArray[Any], rate: int = 22050, subtype: str = "PCM_16") -> bytes:
    """Return the bytes of a WAV file."""
    return encoded(samples, rate, format="WAV", subtype=subtype)


def raw_wav(
    data: bytes, *, channels: int = 1, rate: int = 22050, claimed: int | None = None
) -> bytes:
    """Return a 16-bit WAV file byte by byte, whose header may be wrong."""
    size = len(data) if claimed is None else claimed
    width = min(2 * channels, 65535)
    bytes_per_second = (rate * width) & 0xFFFFFFFF
    content = struct.pack("<4sI4s", b"RIFF", min(size + 36, 0xFFFFFFFF), b"WAVE")
    content += struct.pack("<4sI", b"fmt ", 16)
    content += struct.pack("<HHIIHH", 1, channels, rate, bytes_per_second, width, 16)
    content += struct.pack("<4sI", b"data", size)
    return content + data


def id3(body: bytes) -> bytes:
    """Return an ID3v2 tag with any body, as it stands in front of an MP3 stream."""
    size = bytes((len(body) >> shift) & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x03\x00\x00" + size + body


def make_odd_sounds(folder: Path) -> dict[str, str]:
    """Write the files, one of each family of oddity, into a folder that exists.

    Returns for each file name "good" (must be read), "broken" (has the suffix of a sound but must
    be skipped with a reason) or "other" (is not to be looked at).
    """
    no_sounds = {"notes.txt": b"a text", "wav": wav(tone())}
    kinds = {}
    for kind, files in (("good", _good()), ("broken", _broken()), ("other", no_sounds)):
        for name, content in files.items():
            (folder / name).write_bytes(content)
            kinds[name] = kind
    return kinds


def _good() -> dict[str, bytes]:
    """Return unusual but readable files: encodings, rates, lengths, and damage near the end."""
    short = tone()
    long = tone(3.0)
    whole = wav(short)
    mp3 = encoded(long, 22050, format="MP3")
    flac = encoded(long, 22050, format="FLAC")
    vorbis = encoded(long, 22050, format="OGG")
    return {
        "8bit.wav": wav(short, subtype="PCM_U8"),
        "24bit.wav": wav(short, subtype="PCM_24"),
        "beyond full scale.wav": wav(short * 5, subtype="FLOAT"),
        "adpcm.wav": wav(short, subtype="IMA_ADPCM"),
        "stereo.aiff": encoded(tone(n_channels=2), 44100, format="AIFF"),
        "six channels.wav": wav(tone(n_channels=6), rate=48000),
        "7777 Hz.wav": wav(short, rate=7777),
        "one sample.wav": wav(np.full((1, 1), 0.5), rate=768_000),
        "silence.wav": wav(np.zeros((11025, 1))),
        "many.dots and größe.WAVE": whole,
        "cut in the data.wav": whole[: len(whole) // 2],
        "claims too much.wav": raw_wav(whole[44:], claimed=0xFFFFFFF0),
        "wav named.mp3": whole,
        "tag in front.mp3": id3(b"TIT2\x00\x00\x00\x06\x00\x00\x00title" + bytes(200)) + mp3,
        "zeros in front.mp3": bytes(3000) + mp3,
        "tag behind.mp3": mp3 + b"TAG" + b"x" * 125,
        "damaged halfway.mp3": mp3[:5000] + _noise(700) + mp3[5700:],
        "tag in front.flac": id3(bytes(500)) + flac,
        "cut off.flac": flac[: len(flac) * 3 // 4],
        "cut off.ogg": vorbis[: len(vorbis) * 3 // 4],
        "opus.opus": encoded(tone(rate=48000), 48000, format="OGG", subtype="OPUS"),
    }


def _broken() -> dict[str, bytes]:
    """Return files with a sound's name that hold none."""
    whole = wav(tone())
    flac = encoded(tone(3.0), 22050, format="FLAC")
    return {
        "NaN.wav": _with_sample(0x7FA00000),  # a NaN that makes arithmetic complain
        "infinite.wav": _with_sample(0x7F800000),
        "huge.wav": _with_sample(0x7149F2CA),  # 1e30
        "empty.wav": b"",
        "page.mp3": b"<!doctype html><title>404</title>" * 40,
        "random.mp3": _noise(30_000),
        "random after sync.mp3": b"\xff\xfb\x90\x64" + _noise(30_000),
        "tag of absurd size.mp3": b"ID3\x03\x00\x00\x7f\x7f\x7f\x7f" + bytes(100),
        "zero samples.wav": wav(np.zeros((0, 1))),
        "cut in the header.wav": whole[:30],
        "no frame left.flac": flac[:200],
        "cut in the header.ogg": encoded(tone(), 22050, format="OGG")[:200],
        "no channels.wav": raw_wav(whole[44:4044], channels=0),
        "40 channels.wav": raw_wav(whole[44:4044], channels=40),
        "1 Hz.wav": raw_wav(whole[44:4044], rate=1),
        "4 GHz.wav": raw_wav(whole[44:4044], rate=4_000_000_000),
    }


def _with_sample(bits: int) -> bytes:
    """Return a WAV file of floats with one sample written bit by bit."""
    content = wav(tone(), subtype="FLOAT")
    return content[:-400] + struct.pack("<I", bits) + content[-396:]


def _noise(n_bytes: int) -> bytes:
    """Return random bytes, the same at every call."""
    return np.random.default_rng(1).bytes(n_bytes)
