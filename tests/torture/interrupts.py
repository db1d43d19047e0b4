"""Ctrl-C at random instants of commands, from their first line to their last.

Each ends with one line and exit code 130, or had ended before; a traceback, silence or another
exit code is a fault.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

from torture import Tried, environment

# Until the interpreter has come to the first lines of ours, nobody can catch anything.
_RUN = """
import sys
from polyseme.__main__ import main
from polyseme.base import interrupts
interrupts.heed()
try:
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    main()
except KeyboardInterrupt:
    interrupts.leave()
"""


def make_files(folder: Path) -> None:
    """Write what commands take: features, documents and a model."""
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(60, 8)))
    labels = [f"tag{number}" for number in range(12)]
    rows = ({"labels": rng.choice(labels, 4, replace=False).tolist()} for _ in range(60))
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    subprocess.run(
        [sys.executable, "-m", "polyseme", "fit", "model", "-d", "d.jsonl", "-x", "x.npy"],
        cwd=folder,
        check=True,
        capture_output=True,
        env=environment(),
    )


def commands(number: int) -> list[list[str]]:
    """Return the commands that are interrupted."""
    fit = ["fit", f"model{number}", "-d", "d.jsonl", "-x", "x.npy"]
    return [
        fit,
        ["rank", "model", "x.npy"],
        ["complete", "model", "tag1"],
        ["info", "model"],
        ["rank", "model", "x.npy", "--out", f"ranked{number}"],
        ["--version"],
    ]


def interrupt(folder: Path, words: list[str], seconds: float) -> tuple[str, str]:
    """Interrupt a command after so many seconds; say what became of it, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    ended = process.poll() is not None
    if not ended:
        os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    lines = [line for line in stderr.splitlines() if "interrupted" in line]
    if process.returncode == 0:
        # It may have ended while the signal was on its way.
        return ("had ended" if not lines else "said so and went on"), stderr
    if process.returncode == 130 and len(lines) == 1 and "Traceback" not in stderr:
        return "interrupted", stderr
    return f"exit code {process.returncode}", stderr


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Interrupt one command after another."""
    make_files(place)
    for number in count():
        words = rng.choice(commands(number))
        longest = rng.choice([0.05, 0.3, 1.0, 4.0 if words[0] == "fit" else 1.5])
        outcome, stderr = interrupt(place, words, rng.uniform(0, longest))
        as_promised = outcome in ("interrupted", "had ended")
        yield Tried(" ".join(words), outcome, as_promised, "" if as_promised else stderr[-600:])
