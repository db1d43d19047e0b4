"""A folder of odd and broken sound files, and what is to become of each."""

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
    """A quiet chord with a little noise, (n_samples, n_channels), the same at every call."""
    time = np.arange(round(seconds * rate)) / rate
    chord = sum(np.sin(2 * np.pi * pitch * time) for pitch in (220.0, 277.0, 330.0))
    noise = np.random.default_rng(0).normal(scale=0.005, size=len(time))
    return np.stack([(0.2 * chord + noise) / (1 + channel) for channel in range(n_channels)], 1)


def encoded(samples: NDArray[Any], rate: int, **options: str) -> bytes:
    """The bytes of a sound file."""
    buffer = BytesIO()
    soundfile.write(buffer, samples, rate, **options)
    return buffer.getvalue()


def wav(samples: NDArray[Any], rate: int = 22050, subtype: str = "PCM_16") -> bytes:
    """The bytes of a WAV file."""
    return encoded(samples, rate, format="WAV", subtype=subtype)


def raw_wav(
    data: bytes, *, channels: int = 1, rate: int = 22050, claimed: int | None = None
) -> bytes:
    """A 16-bit WAV file byte by byte, whose header may say what is not so."""
    size = len(data) if claimed is None else claimed
    width = min(2 * channels, 65535)
    form = struct.pack("<HHIIHH", 1, channels, rate, (rate * width) & 0xFFFFFFFF, width, 16)
    riff = struct.pack("<4sI4s", b"RIFF", min(size + 36, 0xFFFFFFFF), b"WAVE")
    return (
        riff + struct.pack("<4sI", b"fmt ", 16) + form + struct.pack("<4sI", b"data", size) + data
    )


def id3(body: bytes) -> bytes:
    """An ID3v2 tag with any body, as it stands in front of an MP3 stream."""
    size = bytes((len(body) >> shift) & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x03\x00\x00" + size + body


def with_bad_samples(value: float, at: int = 4000) -> Signal:
    """A tone in which one sample is no number."""
    samples = tone()
    samples[at] = value
    return samples


def make_odd_sounds(folder: Path) -> dict[str, str]:
    """Write the files into a folder that exists.

    Returns
    -------
    dict of str to str
        For each file name "good" (must be read), "broken" (has the suffix of a sound but must be
        skipped with a reason) or "other" (is not to be looked at).
    """
    sounds: dict[str, str] = {}
    for make in (_odd_waves, _compressed, _broken):
        for name, (content, verdict) in make().items():
            (folder / name).write_bytes(content)
            sounds[name] = verdict
    return sounds


def _odd_waves() -> dict[str, tuple[bytes, str]]:
    """Uncompressed files that are unusual but right."""
    one, stereo, silence = tone(), tone(n_channels=2), np.zeros((11025, 1))
    loud = np.clip(8 * tone(), -1, 1)
    whole = wav(one)
    good: dict[str, bytes] = {
        "8bit.wav": wav(one, subtype="PCM_U8"),
        "24bit.wav": wav(one, subtype="PCM_24"),
        "32bit.wav": wav(one, subtype="PCM_32"),
        "float.wav": wav(one, subtype="FLOAT"),
        "double.wav": wav(one, subtype="DOUBLE"),
        "beyond full scale.wav": wav(one * 5, subtype="FLOAT"),
        "ulaw.wav": wav(one, rate=8000, subtype="ULAW"),
        "adpcm.wav": wav(one, subtype="IMA_ADPCM"),
        "stereo.aiff": encoded(stereo, 44100, format="AIFF"),
        "six channels.wav": wav(tone(n_channels=6), rate=48000),
        "7777 Hz.wav": wav(one, rate=7777),
        "8000 Hz.wav": wav(one, rate=8000),
        "96000 Hz.wav": wav(one, rate=96000),
        "one sample.wav": wav(np.full((1, 1), 0.5)),
        "shorter than a frame.wav": wav(one[:100]),
        "silence.wav": wav(silence),
        "constant.wav": wav(silence + 0.25),
        "clipped.wav": wav(loud),
        "UPPER.WAV": whole,
        "many.dots.and größe.wave": whole,
        "cut in the data.wav": whole[: len(whole) // 2],
        "claims too much.wav": raw_wav(whole[44:], claimed=0xFFFFFFF0),
        "wav named.mp3": whole,
    }
    return {name: (content, "good") for name, content in good.items()}


def _compressed() -> dict[str, tuple[bytes, str]]:
    """Compressed files, whole, cut off and with junk around them."""
    long = tone(3.0)
    mp3 = encoded(long, 22050, format="MP3")
    flac = encoded(long, 22050, format="FLAC")
    vorbis = encoded(long, 22050, format="OGG", subtype="VORBIS")
    comment = b"COMM\x00\x00\x00\x03\x00\x00\x00aa" + bytes(30)
    good: dict[str, bytes] = {
        "plain.mp3": mp3,
        "tag in front.mp3": id3(b"TIT2\x00\x00\x00\x06\x00\x00\x00title" + bytes(200)) + mp3,
        "odd tag in front.mp3": id3(comment) + mp3,
        "zeros in front.mp3": bytes(3000) + mp3,
        "tag behind.mp3": mp3 + b"TAG" + b"x" * 125,
        "cut off.mp3": mp3[: len(mp3) // 2],
        "damaged halfway.mp3": mp3[:5000] + _noise(700) + mp3[5700:],
        "plain.flac": flac,
        "tag in front.flac": id3(bytes(500)) + flac,
        "cut off.flac": flac[: len(flac) * 3 // 4],
        "vorbis.ogg": vorbis,
        "cut off.ogg": vorbis[: len(vorbis) * 3 // 4],
        "opus.opus": encoded(tone(rate=48000), 48000, format="OGG", subtype="OPUS"),
    }
    return {name: (content, "good") for name, content in good.items()}


def _broken() -> dict[str, tuple[bytes, str]]:
    """Files with a sound's name that hold none, and files with another name."""
    whole = wav(tone())
    flac = encoded(tone(3.0), 22050, format="FLAC")
    data = whole[44:4044]
    # A NaN that makes arithmetic complain, which writing samples would turn into a quiet one.
    floats = wav(tone(), subtype="FLOAT")
    signalling = floats[:-400] + struct.pack("<I", 0x7FA00000) + floats[-396:]
    broken: dict[str, bytes] = {
        "empty.wav": b"",
        "empty.mp3": b"",
        "text.flac": b"this is not a sound\n" * 50,
        "page.mp3": b"<!doctype html><title>404</title>" * 40,
        "random.mp3": _noise(30_000),
        "random after sync.mp3": b"\xff\xfb\x90\x64" + _noise(30_000),
        "tag of absurd size.mp3": b"ID3\x03\x00\x00\x7f\x7f\x7f\x7f" + bytes(100),
        "zero samples.wav": wav(np.zeros((0, 1))),
        "header only.wav": whole[:44],
        "cut in the header.wav": whole[:30],
        "cut in the header.flac": flac[:30],
        "no frame left.flac": flac[:200],
        "cut in the header.ogg": encoded(tone(), 22050, format="OGG")[:200],
        "no channels.wav": raw_wav(data, channels=0),
        "40 channels.wav": raw_wav(data, channels=40),
        "60000 channels.wav": raw_wav(data, channels=60_000),
        "1 Hz.wav": raw_wav(data, rate=1),
        "4 GHz.wav": raw_wav(data, rate=4_000_000_000),
        "NaN.wav": wav(with_bad_samples(np.nan), subtype="FLOAT"),
        "signalling NaN.wav": signalling,
        "infinite.wav": wav(with_bad_samples(-np.inf), subtype="FLOAT"),
        "huge.wav": wav(with_bad_samples(1e30), subtype="FLOAT"),
        "huge double.wav": wav(with_bad_samples(1e300), subtype="DOUBLE"),
        "picture.wav": b"\x89PNG\r\n\x1a\n" + _noise(400),
    }
    others = {"notes.txt": b"a text", "cover.jpg": b"\xff\xd8\xff\xe0", "wav": whole}
    return {name: (content, "broken") for name, content in broken.items()} | {
        name: (content, "other") for name, content in others.items()
    }


def _noise(n_bytes: int) -> bytes:
    """Random bytes, the same at every call."""
    return np.random.default_rng(1).bytes(n_bytes)
