"""Kills at every instant at which a command changes a file, and at random moments.

What was there is whole, old or new; nothing that was told as done is lost; files of others are
untouched; run again, the command leaves what an undisturbed one does, and nothing else of ours. A
second kill may come while the command is run again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from torture import Tried
from torture.commands import BEGUN, COMMANDS, DONE, Reference, Workshop, workshop
from torture.faults import KILL, Fault


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Kill the commands in turn, each at all its instants; at random moments from then on."""
    work = workshop()
    left: dict[str, list[int]] = {}
    for name in cycle(COMMANDS):
        reference = work.reference(name)
        if name not in left:
            left[name] = list(range(1, reference.ended[0].count(KILL) + 1))
            rng.shuffle(left[name])
        seconds = rng.uniform(0, 1.2 * reference.seconds)
        fault = Fault("kill", seconds=seconds)
        if left[name]:
            fault = KILL.placed(left[name].pop())
        yield killed(work, reference, fault, rng)


def killed(work: Workshop, reference: Reference, fault: Fault, rng: random.Random) -> Tried:
    """Kill one command, perhaps twice, and run it again."""
    name = reference.name
    words = reference.words
    with work.copy(words) as folder:
        ended = work.host.run(folder, *words, fault=fault)
        when = ended.instants[-1] if fault.at and ended.instants else f"{fault.seconds} s"
        description = f"{name}, killed at {fault.at}, {when.replace(str(folder), '')}"
        outcome = "killed" if ended.code == -9 else "had ended"
        if ended.code not in (-9, 0):
            detail = ended.err[-600:]
            return Tried(description, f"exit code {ended.code}", False, detail)
        if harm := reference.harm(folder, DONE if ended.out else BEGUN):
            return Tried(description, "harm", False, harm)
        if ended.code == -9 and reference.is_repeatable and rng.random() < 0.3:
            second = KILL.placed(rng.randint(1, reference.ended[0].count(KILL)))
            more = work.host.run(folder, *words, fault=second)
            description += (
                f", and again at {second.at}, {more.instants[-1] if more.instants else ''}"
            )
            outcome = "killed twice" if more.code == -9 else outcome
            if harm := reference.harm(folder, BEGUN):
                return Tried(description, "harm", False, harm)
        rerun = work.host.run(folder, *words)
        if harm := reference.harm_after(folder, rerun):
            return Tried(description, "harm after it was run again", False, harm)
        return Tried(description, outcome, True)
