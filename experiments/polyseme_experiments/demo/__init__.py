"""The demo: train on the embedded emoji with tags hidden, and write a page that shows the outcome.

In: a file name and a seed. Out: one self-contained HTML page.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from polyseme.storage.atomic_files import check_file, make_folder, replacing
from polyseme_experiments.datasets import EmojiCorpus, load_emoji

__all__ = ["run_demo"]


def run_demo(
    out: str | Path, *, seed: int = 0, from_pictures: bool = False, log: Callable[[str], None]
) -> None:
    """Run the demo and write its page to a file; `log` takes progress lines.

    The seed decides the split, the training and the choice of examples: same seed, same page, but
    for the footer's seconds. From pictures, features are extracted from the drawings as PNG files
    in place of the stored ones, which needs the extra `image`.
    """
    from polyseme_experiments.demo.experiment import run_experiment
    from polyseme_experiments.demo.page import build_page, thumbnails

    make_folder(Path(out).parent)
    path = check_file(Path(out))
    emoji = load_emoji()
    if from_pictures:
        emoji = _with_new_features(emoji, log)
    page = build_page(run_experiment(emoji, seed=seed, log=log), thumbnails(emoji)).encode()
    with replacing(path) as file:
        file.write(page)
    log(f"page written: {len(page) / 1e6:.1f} MB")


def _with_new_features(emoji: EmojiCorpus, log: Callable[[str], None]) -> EmojiCorpus:
    """Write all drawings as files, extract their features, and say how these compare."""
    from polyseme.media import ImageFeatures

    log(f"extracting features of {2 * len(emoji.ids):,} picture files")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        paths = emoji.write(folder)
        features = np.asarray(ImageFeatures(size=192).fit_transform(paths), dtype=np.float32)
    largest = float(np.abs(features - emoji.features).max())
    log(
        f"  {time.perf_counter() - start:.0f} s; largest difference from the stored features "
        f"{largest:.4f}, of {float(emoji.features.max()):.1f}"
    )
    return replace(emoji, features=features)
