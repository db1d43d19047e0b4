"""Faults on purpose: kills, disks, strangers' files, and everything else that goes wrong.

Each module here is one kind of attack, with a function `attack`: it takes an empty folder and a
source of random numbers, and yields what came of one try after another, without end. Who asks
decides how many tries there are or how long they take:

    make torture MINUTES=10 ONLY="models interrupts"

The same attacks are part of the tests, a few tries each (`test_torture.py`). A new kind of attack
is one file and one line of `ATTACKS`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import polyseme


class Tried(NamedTuple):
    """One try: what was done, what came of it in a word or two, and whether that may be."""

    what: str
    outcome: str
    held: bool
    detail: str = ""


class UnavailableError(Exception):
    """An attack cannot be made here; the message says what is missing."""


Attack = Callable[[Path, random.Random], Iterator[Tried]]

# What is tried, by module, and how many tries the tests make; those that make none take minutes
# each, and have tests of their own.
ATTACKS: dict[str, tuple[str, int]] = {
    "models": ("models with crafted arrays and values under checksums that fit them", 60),
    "readers": ("files and folders made wrong, read by every reader", 120),
    "life": ("lives of a tagger beside a plain model of it", 8),
    "interrupts": ("Ctrl-C at random instants of commands", 8),
    "kills": ("kills at every instant at which a command changes a file", 17),
    "disks": ("disks that are full, read-only, slow or do not sync", 17),
    "writers": ("several processes that write the same at once, with wrong clocks", 6),
    "cluster": ("workers and heads of Ray clusters that are killed", 0),
    "service": ("the service ended, killed, and with a disk, a model or a log that fails", 7),
}


def attack(name: str) -> Attack:
    """Return one attack by its name."""
    function: Attack = import_module(f"{__name__}.{name}").attack
    return function


def environment() -> dict[str, str]:
    """Let processes use the package and the attacks that are used here, in whatever folder."""
    former_names = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    former_folders = map(os.path.abspath, filter(None, former_names))
    package = Path(str(polyseme.__file__)).parents[1]
    attacks = Path(__file__).parents[1]
    folders = [str(package), str(attacks), *former_folders]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
