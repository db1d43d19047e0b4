"""Disks that are full, read-only, slow, or fail to keep what they were given.

Each command succeeds, or ends with one sentence and an exit code that is not 0; what was there is
whole, and nothing is told as done that is not. With a disk that works again the same command leaves
what an undisturbed one does. A small disk of its own (tmpfs) is filled where mounting is allowed.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from torture import Tried
from torture.commands import BEGUN, COMMANDS, DONE, UNTOUCHED, Reference, Workshop, workshop
from torture.faults import FULL, NOTHING, READ_ONLY, SHORT, SLOW, UNSYNCED, Ended, Fault

_FAULTS = (FULL, UNSYNCED, READ_ONLY, SHORT, SLOW)
_SMALL = Fault("small disk")
_PAGE = 4096


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Let every disk fail under every command, at instants that are drawn."""
    work = workshop()
    small = _can_mount(work.place)
    faults = [*_FAULTS, _SMALL] if small else list(_FAULTS)
    # Command and fault go round together, so that a few tries meet all of both.
    for number, name in enumerate(cycle(COMMANDS)):
        reference = work.reference(name)
        fault = faults[(number + number // len(COMMANDS)) % len(faults)]
        most = reference.ended[0].count(fault)
        if fault in (FULL, UNSYNCED, READ_ONLY):
            if not most:
                continue
            # Read-only from the start is the common case; later it is a disk that gave up.
            first = fault is READ_ONLY and rng.random() < 0.5
            fault = fault.placed(1 if first else rng.randint(1, most))
        yield disturbed(work, reference, fault, rng)


def disturbed(work: Workshop, reference: Reference, fault: Fault, rng: random.Random) -> Tried:
    """Run one command on a disk that fails, and again on one that does not."""
    name = reference.name
    words = reference.words
    description = f"{name}, {fault.name} at {fault.at}"
    with work.copy(words) as folder, _disk(folder, fault, rng) as grow:
        ended = work.host.run(folder, *words, fault=fault if fault != _SMALL else NOTHING)
        grow()
        if wrong := judged(reference, folder, fault, ended):
            detail = f"{ended.instants[-8:]} {ended.err[-500:]}"
            return Tried(description, wrong, False, detail)
        rerun = work.host.run(folder, *words)
        if harm := reference.harm_after(folder, rerun):
            return Tried(description, "harm after it was run again", False, harm)
        outcome = "done" if ended.code == 0 else "one sentence"
        return Tried(description, f"{fault.name}: {outcome}", True)


def judged(reference: Reference, folder: Path, fault: Fault, ended: Ended) -> str:
    """Return what is wrong with how a command ended, and with what it left; empty: nothing."""
    if ended.code:
        if not ended.sentence():
            return f"exit code {ended.code} without one sentence"
        if fault in (SHORT, SLOW):
            return "refused, for no reason"
        return reference.harm(folder, UNTOUCHED if fault == READ_ONLY else BEGUN)
    unsynced = fault.placed(1) == UNSYNCED and _unsynced(ended, fault.at)
    return unsynced or reference.harm(folder, DONE)


def _unsynced(ended: Ended, position: int) -> str:
    """Return which file was used though it was not synced, by a command that said it was done.

    One that was thrown away does no harm; SQLite keeps its log until the database is synced.
    """
    instants = ended.instants
    syncs = [number for number, instant in enumerate(instants) if instant.startswith("sync ")]
    failed_sync = syncs[position - 1]
    file = Path(instants[failed_sync].removeprefix("sync "))
    for instant in instants[failed_sync:]:
        if instant.startswith("unlink ") and Path(instant).name == file.name:
            return ""
    # It syncs its folder after its log, and does not mind.
    previous_sync = syncs[max(position - 2, 0)]
    synced_name = instants[previous_sync] if file.is_dir() else file.name
    return "" if ".sqlite" in synced_name else f"done, and {file.name} was not synced"


@contextmanager
def _disk(folder: Path, fault: Fault, rng: random.Random) -> Iterator[Callable[[], None]]:
    """Put a folder on a small disk, where that is the fault; give what makes it larger."""
    if fault != _SMALL:
        yield lambda: None
        return
    beside = folder.with_name("beside")
    folder.rename(beside)
    folder.mkdir()
    _mount(folder, "size=64m")
    try:
        subprocess.run(["cp", "-a", f"{beside}/.", folder], check=True)
        used = sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))
        options = f"remount,size={used + rng.randint(0, 60) * _PAGE}"
        _mount(folder, options)
        yield lambda: _mount(folder, "remount,size=64m")
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
        beside.rename(folder)


def _mount(folder: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    subprocess.run(command, check=True, capture_output=True)


def _can_mount(place: Path) -> bool:
    """Return whether disks can be mounted here."""
    tried = place / "tried"
    tried.mkdir()
    try:
        _mount(tried, "size=1m")
        subprocess.run(["umount", tried], check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        tried.rmdir()
    return True
