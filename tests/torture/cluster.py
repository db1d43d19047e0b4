"""Workers and the head of a Ray cluster that are killed while commands work on it.

Either the command leaves what an undisturbed one leaves, or it ends with one sentence; run again,
it goes on to the same end. Ray takes its time: a try is a minute or two.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path

import numpy as np

from ray_workers import kill_one
from torture import Tried, UnavailableError, environment
from torture.commands import State, workshop
from torture.faults import Ended

_ON_RAY = ["--engine", "ray", "--workers", "2"]
_FIT = ["fit", "new", "-d", "d.jsonl", "-x", "x.npy", "--validations", "0"]
_RANK = ["rank", "model", "many", "--out", "new"]
_MOST_SECONDS = 300.0
# A part of the names of processes: of workers, and of what holds the cluster together.
_RAYLET, _HEAD = "raylet/raylet", "gcs_server"
_TRIES = [
    ("rank", "MapWorker"),
    ("fit", "RayTrainWorker"),
    ("rank", _HEAD),
    ("rank", _RAYLET),
    ("fit", _HEAD),
    ("fit", _RAYLET),
]


def _inputs(folder: Path) -> None:
    """Write shards that take a while."""
    rng = np.random.default_rng(1)
    (folder / "many").mkdir()
    for number in range(5):
        np.save(folder / "many" / f"part-{number}.npy", rng.normal(size=(2000, 5)))


def _run(folder: Path, words: list[str], disturb: Callable[[], bool]) -> tuple[Ended, bool]:
    """Run a command; disturb it until that has worked."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "polyseme", *words],
            cwd=folder,
            stdout=out,
            stderr=err,
            env=environment() | {"OMP_NUM_THREADS": "1"},
        )
        disturbed = False
        give_up = time.monotonic() + _MOST_SECONDS
        while process.poll() is None and time.monotonic() < give_up:
            disturbed = disturbed or disturb()
            time.sleep(0.02)
        process.kill()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        return Ended(process.wait(), *texts, ()), disturbed


@cache
def _undisturbed(name: str) -> State:
    """Return what a command leaves that runs in one process."""
    words = _FIT if name == "fit" else _RANK
    with workshop().copy(words) as folder:
        _inputs(folder)
        ended, _ = _run(folder, words, lambda: False)
        if ended.code:
            raise RuntimeError(f"{name}: {ended}")
        return State.of(folder)


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Kill workers and heads of clusters in turn."""
    if find_spec("ray") is None:
        raise UnavailableError("the extra `ray` is not installed")
    work = workshop()
    for name, kind in cycle(_TRIES):
        expected = _undisturbed(name)
        words = [*(_FIT if name == "fit" else _RANK), *_ON_RAY]
        description = f"{name}, {kind} killed"
        with work.copy(words) as folder:
            _inputs(folder)

            def disturb(folder: Path = folder, name: str = name, kind: str = kind) -> bool:
                begun = "new/part-*" if name == "rank" else "new.ray/**/worker-*"
                return any(folder.glob(begun)) and kill_one(kind)

            ended, killed = _run(folder, words, disturb)
            outcome = "the same" if ended.code == 0 else "one sentence, then the same"
            if ended.code and not ended.sentence():
                yield Tried(description, f"exit code {ended.code}", False, ended.err[-1500:])
                continue
            if ended.code:
                ended, _ = _run(folder, words, lambda: False)
            differences = State.of(folder).differences(expected)
            if ended.code or differences:
                yield Tried(
                    description, "harm", False, f"{ended.code} {differences} {ended.err[-800:]}"
                )
            else:
                victim = "head" if kind in (_RAYLET, _HEAD) else "worker"
                yield Tried(
                    description, f"{name}, {victim}: {outcome}" if killed else "had ended", True
                )
