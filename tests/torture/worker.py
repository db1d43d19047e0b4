"""A process of its own for what may end one: jobs go in, what came of each comes out.

Memory and time are limited there, so that a signal, a job without end or one that takes all memory
is noticed and costs one job. A module that has such jobs calls `work` when it is run, and asks a
`Worker` of itself.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torture import Tried, environment

# What a job may take, before it counts as a fault: memory beyond the libraries, and time.
_MOST_BYTES, _MOST_SECONDS = 6 * 2**30, 60
HELD = ("works", "refused")


class Outcome(NamedTuple):
    """What came of one job: it works, it was refused with one sentence, or what went wrong."""

    outcome: str
    detail: str = ""


def sentence(error: object) -> str:
    """Return what an error says, where that is one sentence."""
    text = str(error)
    if not text.endswith((".", "?")):
        raise AssertionError(f"no sentence: {text!r:.300}")
    return phrase(text)


def phrase(text: str) -> str:
    """Return a text of one line that can be printed."""
    from polyseme.base.text import printable

    if not text.strip() or len(text) > 1000 or printable(text) != text:
        raise AssertionError(f"no sentence: {text!r:.300}")
    return text


def judged(use: Callable[[], str]) -> Outcome:
    """Do one job, whose words say what came of it, and say whether it worked."""
    from polyseme.base.validation import InputError

    try:
        try:
            return Outcome("works", use())
        except InputError as error:
            return Outcome("refused", sentence(error))
    except Exception as error:  # whatever it is, it is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"({Path(last.filename).name}:{last.lineno})"
        outcome = f"raw {type(error).__name__}"
        detail = f"{error!s:.200} {place}"
        return Outcome(outcome, detail)


def work(judge: Callable[[Any], Outcome]) -> None:
    """Answer jobs from standard input, one line each, with as much memory and time as allowed."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + _MOST_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        signal.alarm(_MOST_SECONDS)
        judgement = judge(json.loads(line))
        signal.alarm(0)
        print(json.dumps(judgement), file=answers, flush=True)


class Worker:
    """A process that does jobs; begun anew when one of them has ended it.

    Parameters
    ----------
    command : str
        What follows the interpreter's name, such as "-m" and a module that calls `work`.
    """

    def __init__(self, *command: str) -> None:
        self.command = command
        self.process: subprocess.Popen[str] | None = None
        self.works = False
        # What it says of its end: where it was.
        self.said = tempfile.TemporaryFile("ab+")  # noqa: SIM115  # as long as it is

    def ask(self, job: object) -> Outcome:
        """Have one job done."""
        self.said.truncate(0)
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.said,
                env=environment() | {"PYTHONFAULTHANDLER": "1"},
                text=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            self.works = True
            return Outcome(*json.loads(line))
        code = self.process.wait()
        self.process = None
        self.said.seek(0)
        stderr = self.said.read().decode(errors="replace").strip("\0")[-3000:]
        if not self.works:
            raise RuntimeError(f"A process for attacks cannot begin ({code}): {stderr}")
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Outcome("no end in time" if code == -signal.SIGALRM else why, stderr)

    def close(self) -> None:
        """Let the process go."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()
        self.said.close()


def spoiled(
    worker: Worker, sound: Iterable[str], wrong: Iterable[str], rng: random.Random
) -> Iterator[Tried]:
    """Have things used as they are, which must work, and then made wrong, in turn, without end.

    Those that were at fault once may be refused as they are.
    """
    try:
        for name in sound:
            judgement = worker.ask([name, -1])
            good = HELD if "/fault-" in name else ("works",)
            yield Tried(name, judgement.outcome, judgement.outcome in good, judgement.detail)
        for name in itertools.cycle(wrong):
            number = rng.randrange(2**40)
            judgement = worker.ask([name, number])
            yield Tried(
                f"{name}:{number}", judgement.outcome, judgement.outcome in HELD, judgement.detail
            )
    finally:
        worker.close()
