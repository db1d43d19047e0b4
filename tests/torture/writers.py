"""Several processes that write the same thing at once, on disks that are slow, with wrong clocks.

What they leave is what one order of them leaves, one after the other; or one of them ends with one
sentence, and what is left is that of the others. Clocks that are set back or forth, also between
two commands, and files from the future change nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import cycle, permutations
from pathlib import Path

from torture import Tried
from torture.commands import COMMANDS, State, Workshop, workshop
from torture.faults import SLOW, Ended

_OTHERS = {
    "learn other": ["learn", "model", "7", "8", "--no", "tag4", "-x", "x.npy"],
    "learn third": ["learn", "model", "9", "--yes", "tag5", "-x", "x.npy"],
    "first other": ["learn", "plain", "7", "8", "--no", "tag4", "-x", "x.npy"],
    "block": ["block", "model", "tag6"],
    "remove": ["remove", "model", "tag8"],
    "served rename": ["@rename", "served", "tag5", "fifth"],
    "plain rename": ["rename", "served", "tag6", "sixth"],
    "other token": ["token", "tokens.json", "eve"],
}
_WORDS = COMMANDS | _OTHERS
_TOGETHER = [
    ("add", "rename"),
    ("learn", "learn other", "learn third"),
    ("extract", "extract"),
    ("rank", "rank"),
    ("restore", "served rename"),
    ("token", "other token"),
    ("add", "block", "remove"),
    ("rename", "fit again"),
    ("first learn", "first other"),
    ("extract again", "extract again"),
    ("rank again", "rank again"),
    ("fit", "fit"),
    ("served rename", "plain rename"),
    ("tag", "tag"),
    ("learn", "fit again"),
    ("undo", "undo"),
    ("fit --update", "learn other"),
]
_YEAR = 365 * 86400.0
_CLOCKS = (0.0, -_YEAR, 20 * _YEAR, -60.0)
_TIMES = (None, 4102444800, 0)  # of files: as they are, in 2100, in 1970

Order = tuple[int, ...]


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Let several write at once, again and again."""
    work = workshop()
    for names in cycle(_TOGETHER):
        yield _at_once(work, names, rng)


@cache
def _in_order(names: tuple[str, ...], order: Order) -> tuple[tuple[bool, ...], State]:
    """Return which commands end well, some of them one after the other, and what they leave."""
    words = [_WORDS[name] for name in names]
    done = [False] * len(names)
    work = workshop()
    with work.copy(*words) as folder:
        for number in order:
            done[number] = not work.host.run(folder, *words[number]).code
        return tuple(done), State.of(folder)


def _orders(done: tuple[bool, ...]) -> Iterator[Order]:
    """Yield all orders of all commands, and where some were refused those of the others."""
    yield from permutations(range(len(done)))
    if not all(done):
        yield from permutations([number for number, well in enumerate(done) if well])


def _at_once(work: Workshop, names: tuple[str, ...], rng: random.Random) -> Tried:
    """Run commands at once, and compare what they leave with what there may be."""
    words = [_WORDS[name] for name in names]
    times = rng.choice(_TIMES)
    with work.copy(*words) as folder:
        for file in folder.rglob("*") if times is not None else ():
            os.utime(file, (times, times))
        faults = [replace(SLOW, number=rng.randint(0, 4), clock=rng.choice(_CLOCKS)) for _ in names]
        runs = list(zip(words, faults, strict=True))
        ended = work.host.together(folder, runs)
        description = (
            f"{' and '.join(names)}, clocks {[fault.clock for fault in faults]}, files {times}"
        )
        left = State.of(folder)
    if wrong := _wrong(names, ended, left):
        return Tried(description, "harm", False, wrong)
    n_refused = sum(bool(command.code) for command in ended)
    return Tried(
        description, "all done" if not n_refused else f"{n_refused} with one sentence", True
    )


def _wrong(names: tuple[str, ...], ended: list[Ended], left: State) -> str:
    """Return what is wrong with how commands ended and with what they left; empty: nothing."""
    for command in ended:
        if command.code and not command.sentence():
            return f"exit code {command.code}: {command.err[-600:]}"
    done = tuple(not command.code for command in ended)
    for order in _orders(done):
        done_in_order, state = _in_order(names, order)
        if done_in_order == done and left == state:
            return ""
    errors = " | ".join(command.err.strip()[-150:] for command in ended)
    given_order = tuple(range(len(names)))
    _, expected_state = _in_order(names, given_order)
    differences = left.differences(expected_state)
    return f"left as by no order ({done}): {differences}; {errors}"
