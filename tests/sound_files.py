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


def make_odd_sounds(folder: Path) -> dict[str, str]:
    """Write the files, one of each family of oddity, into a folder that exists.

    Returns for each file name "good" (must be read), "broken" (has the suffix of a sound but must
    be skipped with a reason) or "other" (is not to be looked at).
    """
    others = {"notes.txt": b"a text", "wav": wav(tone())}
    verdicts = {}
    for verdict, files in (("good", _good()), ("broken", _broken()), ("other", others)):
        for name, content in files.items():
            (folder / name).write_bytes(content)
            verdicts[name] = verdict
    return verdicts


def _good() -> dict[str, bytes]:
    """Unusual but right: ways to store samples, rates, lengths, cut and damaged further on."""
    one, long = tone(), tone(3.0)
    whole, mp3 = wav(one), encoded(long, 22050, format="MP3")
    flac, vorbis = (encoded(long, 22050, format=kind) for kind in ("FLAC", "OGG"))
    return {
        "8bit.wav": wav(one, subtype="PCM_U8"),
        "24bit.wav": wav(one, subtype="PCM_24"),
        "beyond full scale.wav": wav(one * 5, subtype="FLOAT"),
        "adpcm.wav": wav(one, subtype="IMA_ADPCM"),
        "stereo.aiff": encoded(tone(n_channels=2), 44100, format="AIFF"),
        "six channels.wav": wav(tone(n_channels=6), rate=48000),
        "7777 Hz.wav": wav(one, rate=7777),
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
    """Files with a sound's name that hold none."""
    whole, floats = wav(tone()), wav(tone(), subtype="FLOAT")
    flac = encoded(tone(3.0), 22050, format="FLAC")
    # Written byte by byte: a NaN that makes arithmetic complain, infinity, and 1e30.
    odd = {"NaN": 0x7FA00000, "infinite": 0x7F800000, "huge": 0x7149F2CA}
    samples = {
        f"{name}.wav": floats[:-400] + struct.pack("<I", bits) + floats[-396:]
        for name, bits in odd.items()
    }
    return samples | {
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


def _noise(n_bytes: int) -> bytes:
    """Random bytes, the same at every call."""
    return np.random.default_rng(1).bytes(n_bytes)
