"""Make the embedded clips of `polyseme_experiments.datasets`: short pieces of music with tags.

In: the hand-written `music.json`, the synthesiser `fluidsynth` and the sound font Fluid R3; the
pieces are composed in `clips_music.py`. Out: `clips.zip`, documents, the licence text and
checksums in `experiments/polyseme_experiments/datasets/clips_data/`.

It needs, on Debian or Ubuntu, `apt install fluidsynth fluid-soundfont-gm`, and the packages numpy
and soundfile, which the extra `audio` of polyseme brings::

    python experiments/scripts/prepare_clips.py           # about two minutes
    python experiments/scripts/prepare_clips.py --check   # makes them again elsewhere and compares

About seven designs of these data were tried before this one, judged on label splits of seeds 0 to
4; the data's README tells what figures on them can show, and what not.

Two runs give the same documents, and with the versions that the data's README names on one
machine the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import shutil
import struct
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from clips_music import SECONDS, TABLES, Clip, plan_clips
from numpy.typing import NDArray

OUT = Path(__file__).parents[1] / "polyseme_experiments" / "datasets" / "clips_data"
SOUND_FONT = Path("/usr/share/sounds/sf2/FluidR3_GM.sf2")
SOUND_FONT_SHA256 = "74594e8f4250680adf590507a306655a299935343583256f3b722c48a1bc1cb0"
COPYRIGHT = Path("/usr/share/doc/fluid-soundfont-gm/copyright")
PACKAGES = "fluidsynth fluid-soundfont-gm"
DATA_FILES = ("clips.zip", "documents.jsonl.gz", "music.json")

RATE, FADE = 22_050, 0.25
TICKS = 480  # of a beat
DRUM_CHANNEL = 9


def midi_file(clip: Clip, reverb: int) -> bytes:
    """Write the notes of a clip as a standard MIDI file with one track."""
    tempo = round(60_000_000 / clip.manner.bpm)
    events: list[tuple[int, int, bytes]] = [(0, 0, b"\xff\x51\x03" + tempo.to_bytes(3, "big"))]
    channels = []
    for part_number, (_, role) in enumerate(clip.piece.parts):
        channel = DRUM_CHANNEL if role == "drums" else part_number
        channels.append(channel)
        program = clip.row["programs"][part_number]
        events.append((0, 0, bytes((0xC0 | channel, program))))
        events.append((0, 0, bytes((0xB0 | channel, 91, reverb))))
    for note in clip.notes:
        channel, start = channels[note.part], round(TICKS * note.start)
        end = start + max(1, round(TICKS * note.length))
        events.append((start, 2, bytes((0x90 | channel, note.pitch, note.velocity))))
        events.append((end, 1, bytes((0x80 | channel, note.pitch, 0))))
    # At one tick notes end before others begin, or a repeated pitch would be cut off.
    events.sort()
    events.append((max(event[0] for event in events) + 4 * TICKS, 3, b"\xff\x2f\x00"))
    track, now = b"", 0
    for tick, _, data in events:
        # Times take seven bits a byte, the high bit on all but the last.
        bits = [(tick - now) >> shift & 0x7F for shift in (21, 14, 7, 0)]
        first = next((place for place, seven in enumerate(bits[:3]) if seven), 3)
        track += bytes([0x80 | seven for seven in bits[first:3]] + bits[3:]) + data
        now = tick
    head = b"MThd" + struct.pack(">IHHH", 6, 0, 1, TICKS)
    return head + b"MTrk" + struct.pack(">I", len(track)) + track


def require(exists: object, problem: str) -> None:
    """Stop and say what is missing, and how to get it."""
    if not exists:
        raise SystemExit(f"{problem}; on Debian or Ubuntu, run apt install {PACKAGES}.")


def render(command: str | None, font: Path, midi: bytes, work: Path) -> NDArray[np.float64]:
    """Play a MIDI file into samples, one channel, as long as a clip."""
    score, wave = work / "clip.mid", work / "clip.wav"
    score.write_bytes(midi)
    settings = []
    for name, value in TABLES["synthesiser"].items():
        settings += ["-o", f"{name}={value}"]
    files = ["-F", str(wave), "-T", "wav", "-O", "float", "-r", str(RATE), "-g", "0.6"]
    call = [command or "", "-niq", *settings, *files, str(font), str(score)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode or not wave.is_file():
        raise SystemExit(f"fluidsynth failed: {done.stderr.strip() or done.stdout.strip()}")
    samples, _ = soundfile.read(wave, always_2d=True)
    wave.unlink()
    return np.asarray(samples.mean(axis=1)[: round(SECONDS * RATE)])


def finish(samples: NDArray[np.float64], dynamics: str) -> NDArray[np.float64]:
    """Fade the end out, and bring loud, plain and soft clips to their level."""
    fade = round(FADE * RATE)
    faded = samples.copy()
    faded[-fade:] *= np.cos(np.linspace(0, np.pi / 2, fade))
    loud = faded * 10 ** ((TABLES["levels"][dynamics] - level(faded)) / 20)
    # Single strokes may stand out of full scale: bent, they keep their place under it.
    over = np.abs(loud) > 0.5
    loud[over] = np.sign(loud[over]) * (0.5 + 0.25 * np.tanh((np.abs(loud[over]) - 0.5) / 0.25))
    return loud


def level(samples: NDArray[np.float64]) -> float:
    """Return the root mean square in dB of full scale."""
    return float(10 * np.log10(np.mean(samples**2)))


def crc_step(value: int) -> int:
    """Move a byte through the checksum that Ogg pages carry."""
    for _ in range(8):
        value = (value << 1 ^ (0x04C11DB7 if value >> 31 else 0)) & 0xFFFFFFFF
    return value


CRC_TABLE = [crc_step(byte << 24) for byte in range(256)]


def numbered(ogg: bytes) -> tuple[bytes, bytes]:
    """Return a stream with number 1 in place of the encoder's clock, its head apart from sound.

    The pages of the head, which stand at time 0, hold the code books: 3 kB that are the same for
    all clips once the number is.
    """
    data, start, head = bytearray(ogg), 0, 0
    while start < len(data):
        n_segments = data[start + 26]
        end = start + 27 + n_segments + sum(data[start + 27 : start + 27 + n_segments])
        data[start + 14 : start + 18] = (1).to_bytes(4, "little")
        data[start + 22 : start + 26] = bytes(4)
        crc = 0
        for byte in data[start:end]:
            crc = crc << 8 & 0xFFFFFFFF ^ CRC_TABLE[crc >> 24 ^ byte]
        data[start + 22 : start + 26] = crc.to_bytes(4, "little")
        if data[start + 6 : start + 14] == bytes(8):
            head = end
        start = end
    return bytes(data[:head]), bytes(data[head:])


def encode(samples: NDArray[np.float64]) -> tuple[bytes, bytes, float]:
    """Encode samples as Ogg Vorbis at the lowest quality; give head, sound and decoded level.

    The second of two passes need not code what the first one has dropped: a fifth is saved.
    """
    for _ in range(2):
        stream = io.BytesIO()
        soundfile.write(
            stream, samples, RATE, format="OGG", subtype="VORBIS", compression_level=1.0
        )
        stream.seek(0)
        samples, _rate = soundfile.read(stream)
    return *numbered(stream.getvalue()), level(samples)


def sha256(path: Path) -> str:
    """Digest a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_clips(clips: list[Clip], music: dict[str, Any], font: Path, out: Path) -> None:
    """Play and store every clip, and note how loud it came out."""
    command = shutil.which("fluidsynth")
    require(command, "The synthesiser fluidsynth is not installed")
    is_right = font.is_file() and sha256(font) == SOUND_FONT_SHA256
    require(is_right, f"{font} is not the sound font Fluid R3 that the clips are made with")
    members: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as work:
        for number, clip in enumerate(clips, start=1):
            midi = midi_file(clip, music["styles"][clip.piece.style]["reverb"])
            samples = finish(render(command, font, midi, Path(work)), clip.manner.dynamics)
            head, members[f"{number:04d}"], loudness = encode(samples)
            clip.row["level"] = round(loudness, 1)
            if members.setdefault("head", head) != head:
                raise SystemExit("The encoder did not give all clips the same head.")
    with zipfile.ZipFile(out / "clips.zip", "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # else it names the system of whoever runs this
            archive.writestr(member, members[name])


def write_licence(out: Path) -> None:
    """Copy what the sound font's package says of author, contributors and licence."""
    require(COPYRIGHT.is_file(), f"The licence text {COPYRIGHT} is not there")
    text = COPYRIGHT.read_text("utf-8")
    excerpt = text[text.index("Upstream Author:") : text.index("The Debian packaging is")].strip()
    lines = "\n".join(line.rstrip() for line in excerpt.splitlines())
    (out / "licences").mkdir(exist_ok=True)
    path = out / "licences" / "fluid-r3-MIT.txt"
    path.write_text(f"Fluid (R3) SoundFont\n\n{lines}\n", "utf-8")


def prepare(out: Path, font: Path) -> None:
    """Make every file but `music.json` and the README."""
    music = json.loads((out / "music.json").read_text("utf-8"))
    clips = plan_clips(music)
    write_clips(clips, music, font, out)
    rows = [{"id": f"{number:04d}.ogg", **clip.row} for number, clip in enumerate(clips, start=1)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (out / "documents.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    write_licence(out)
    sums = {name: sha256(out / name) for name in DATA_FILES}
    (out / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n", "utf-8")


def check(out: Path, font: Path) -> bool:
    """Make everything again in another folder and say which files differ."""
    with tempfile.TemporaryDirectory() as temporary:
        remade = Path(temporary)
        shutil.copy(out / "music.json", remade)
        prepare(remade, font)
        changed = []
        for name in (*DATA_FILES, "checksums.json", "licences/fluid-r3-MIT.txt"):
            new = remade / name
            former = out / name
            if new.read_bytes() != former.read_bytes():
                changed.append(name)
    listed = ", ".join(changed) or "none"
    print(f"Made again, these differ: {listed}.")
    return not changed


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Make the embedded clips.")
    parser.add_argument("--out", type=Path, default=OUT, help="output folder, with music.json")
    parser.add_argument("--font", type=Path, default=SOUND_FONT, help="the sound font Fluid R3")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    if options.check:
        raise SystemExit(0 if check(options.out, options.font) else 1)
    prepare(options.out, options.font)


if __name__ == "__main__":
    main()
