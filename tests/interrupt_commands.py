"""Ctrl-C at random instants of commands, from their first line to their last.

In: a number of tries and a seed. Out: how many ended with one line and exit code 130, how many had
ended before, and every one that did anything else: a traceback, silence, another exit code.

    python tests/interrupt_commands.py --tries 200
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

# Until the interpreter has come to the first lines of ours, nobody can catch anything.
_RUN = """
import sys
from polyseme.__main__ import main
from polyseme import _interrupts
_interrupts.heed()
try:
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    main()
except KeyboardInterrupt:
    _interrupts.leave()
"""


def surroundings() -> dict[str, str]:
    """Let commands use the package that is used here, whatever folder they run in."""
    import polyseme

    assert polyseme.__file__ is not None
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(Path(polyseme.__file__).parents[1]), *map(os.path.abspath, filter(None, before))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


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
        env=surroundings(),
    )


def commands(number: int) -> list[list[str]]:
    """Give the commands that are interrupted."""
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
        env=surroundings(),
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    ended = process.poll() is not None
    if not ended:
        os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    lines = [line for line in said.splitlines() if "interrupted" in line]
    if process.returncode == 0:
        # It may have ended while the signal was on its way.
        return ("had ended" if not lines else "said so and went on"), said
    if process.returncode == 130 and len(lines) == 1 and "Traceback" not in said:
        return "interrupted", said
    return f"exit code {process.returncode}", said


def main() -> int:
    """Interrupt commands as often as asked for, and print what became of them."""
    parser = argparse.ArgumentParser(description="Press Ctrl-C at random instants.")
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng, counts, wrong = random.Random(asked.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_files(folder)
        for number in range(asked.tries):
            words = rng.choice(commands(number))
            longest = rng.choice([0.05, 0.3, 1.0, 4.0 if words[0] == "fit" else 1.5])
            outcome, said = interrupt(folder, words, rng.uniform(0, longest))
            counts[outcome] += 1
            if outcome not in ("interrupted", "had ended"):
                wrong += 1
                print(number, words, outcome, said[-600:], sep="\n")
    print(asked.tries, "interrupts:", dict(counts.most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
