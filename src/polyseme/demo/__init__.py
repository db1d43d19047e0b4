"""The demo: train on the embedded emoji with tags hidden, and write a page that shows the outcome.

In: a file name and a seed. Out: one self-contained HTML page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from polyseme._validation import InputError
from polyseme.datasets import load_emoji

__all__ = ["run_demo"]


def run_demo(out: str | Path, *, seed: int = 0, say: Callable[[str], None]) -> None:
    """Run the demo and write its page.

    Parameters
    ----------
    out : str or Path
        The HTML file to write.
    seed : int
        Seeds the split, the training and the choice of examples. Same seed, same page, but for
        the footer's seconds.
    say : callable
        Takes progress lines.
    """
    from polyseme.demo.experiment import run_experiment
    from polyseme.demo.page import build_page
    from polyseme.demo.thumbnails import Thumbnails

    path = Path(out)
    if path.is_dir():
        raise InputError(f"`out` must be a file, but '{path}' is a folder; add a file name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    emoji = load_emoji()
    # Before the training, so that a missing extra is told at once.
    pictures = Thumbnails(emoji)
    results = run_experiment(emoji, seed=seed, say=say)
    page = build_page(results, pictures)
    path.write_text(page, encoding="utf-8")
    say(f"page written: {len(page.encode()) / 1e6:.1f} MB")
