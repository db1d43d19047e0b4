"""Commands in processes where the file system fails on purpose, by the library of `faults.c`.

In: a folder, the words of commands that run in it at once, and what goes wrong for each. Out: how
they ended, what they said, and every instant at which they changed a file. One process has loaded
everything and is forked for each command, so that a try takes as long as the command's own work.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torture import UnavailableError, environment

# Kinds of instants, and what may happen at one of them; as in `faults.c`.
MAKE, WRITE, SYNC, NAME, REMOVE = 1, 2, 4, 8, 16
EVERY = MAKE | WRITE | SYNC | NAME | REMOVE
_NONE, _KILL, _FAIL_ONCE, _FAIL_ON, _SHORT, _SLOW = range(6)
_KINDS = {"open": MAKE, "link": MAKE, "linkat": MAKE, "mkdir": MAKE, "mkdirat": MAKE}
_KINDS |= {"write": WRITE, "truncate": WRITE, "half": WRITE, "sync": SYNC, "rename": NAME}
_KINDS |= {"renameat": NAME, "unlink": REMOVE, "unlinkat": REMOVE, "rmdir": REMOVE}
_MOST_SECONDS = 120


@dataclass(frozen=True)
class Fault:
    """What goes wrong: at the n-th instant of some kinds, or by the clock."""

    name: str = "nothing"
    kind: int = _NONE
    mask: int = 0
    at: int = 0
    number: int = 0  # the error's, or milliseconds
    clock: float = 0.0  # seconds by which the clock on the wall is set forth or back
    seconds: float | None = None  # after which the process is killed

    def placed(self, position: int) -> Fault:
        """Return the same fault at another instant."""
        return replace(self, at=position)


NOTHING = Fault()
KILL = Fault("kill", _KILL, EVERY)
FULL = Fault("full disk", _FAIL_ON, MAKE | WRITE, 1, errno.ENOSPC)
READ_ONLY = Fault("read-only", _FAIL_ON, MAKE | WRITE | NAME | REMOVE, 1, errno.EROFS)
UNSYNCED = Fault("failing fsync", _FAIL_ONCE, SYNC, 1, errno.EIO)
SHORT = Fault("short writes", _SHORT, WRITE)
SLOW = Fault("slow disk", _SLOW, EVERY, number=3)


class Ended(NamedTuple):
    """How a command ended; a negative code is the signal that ended it."""

    code: int
    out: str
    err: str
    instants: tuple[str, ...]

    def count(self, fault: Fault) -> int:
        """Return at how many instants a fault can come."""
        n_instants = 0
        for instant in self.instants:
            kind = instant.partition(" ")[0]
            if kind == "half" and fault.kind != _KILL:
                continue
            if _KINDS[kind] & fault.mask:
                n_instants += 1
        return n_instants

    def sentence(self) -> str:
        """Return the one sentence with which a command was refused; empty where it said none."""
        sentences = [line for line in self.err.splitlines() if line.startswith("polyseme: ")]
        errors = [line for line in sentences if not line.startswith("polyseme: note: ")]
        if len(errors) != 1 or "Traceback" in self.err:
            return ""
        (error,) = errors
        return "" if "unexpected" in error else error


def library(place: Path) -> Path:
    """Compile the library into a folder."""
    compiler = shutil.which("cc")
    built = place / "faults.so"
    if compiler is None or sys.platform != "linux":
        raise UnavailableError("faults of the file system need Linux and a C compiler")
    source = Path(__file__).with_name("faults.c")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", built, source, "-ldl"], check=True)
    return built


class Host:
    """A process that has everything loaded and is forked for each command."""

    def __init__(self, place: Path) -> None:
        library_file = library(place)
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment() | {"LD_PRELOAD": str(library_file), "OMP_NUM_THREADS": "1"},
            text=True,
        )

    def run(self, folder: Path, *words: str, fault: Fault = NOTHING) -> Ended:
        """Run one command in a folder."""
        runs = [(list(words), fault)]
        return self.together(folder, runs)[0]

    def together(self, folder: Path, runs: list[tuple[list[str], Fault]]) -> list[Ended]:
        """Run several commands in a folder at once."""
        started = [(self.start(folder, *words, fault=fault), fault) for words, fault in runs]
        return [self.wait(child, fault.seconds) for child, fault in started]

    def start(self, folder: Path, *words: str, fault: Fault = NOTHING) -> int:
        """Start a command in a folder; give the number of its process."""
        request = {"folder": str(folder.resolve()), "words": words, "fault": asdict(fault)}
        return int(self._ask(request))

    def wait(self, child: int, seconds: float | None = None) -> Ended:
        """Wait for a command to end; kill it after so many seconds."""
        code, out, err, seen = self._ask({"child": child, "seconds": seconds})
        return Ended(code, out, err, tuple(seen))

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The process that runs commands ended: {self.process.wait()}.")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# ---------------------------------------------------------------------- in the process


def _child(folder: str, words: list[str], fault: Fault, notes: Path) -> None:
    """Be a command: never returns."""
    code = 70
    try:
        os.chdir(folder)
        for stream, number in (("in", 0), ("out", 1), ("err", 2)):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(notes / stream, flags), number)
        faults = ctypes.CDLL(None)
        faults.faults_clock(ctypes.c_double(fault.clock))
        instants_file = str(notes / "instants").encode()
        position = ctypes.c_long(fault.at)
        signal.alarm(_MOST_SECONDS)
        faults.faults_arm(
            folder.encode(), fault.kind, fault.mask, position, fault.number, instants_file
        )
        if words[0].startswith("@"):
            from torture import commands

            commands.ACTIONS[words[0][1:]](*words[1:])
            code = 0
        else:
            from polyseme.cli import main

            sys.argv = ["polyseme", *words]
            main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException as error:
        # As the command itself would say it; anything but a sentence is a fault.
        expected = isinstance(error, (ValueError, OSError)) and words[0].startswith("@")
        start = "polyseme: " if expected else f"Traceback: {type(error).__name__} "
        os.write(2, f"{start}{error}\n".encode())
        code = 1
    try:
        sys.stdout.flush()
    finally:
        os._exit(code)


def _ended(status: int, notes: Path) -> tuple[int, str, str, list[str]]:
    """Return how a process ended and what it left."""
    texts = []
    for name in ("out", "err", "instants"):
        note_file = notes / name
        texts.append(note_file.read_text(errors="replace") if note_file.exists() else "")
    return os.waitstatus_to_exitcode(status), texts[0], texts[1], texts[2].splitlines()


def _work() -> None:
    """Answer lines of commands until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from torture import commands

    commands.load_everything()
    with tempfile.TemporaryDirectory(prefix="told-") as place:
        for line in sys.stdin:
            answer = _answer(Path(place), json.loads(line))
            print(json.dumps(answer), file=answers, flush=True)


def _answer(place: Path, request: dict[str, Any]) -> Any:
    """Start a command, or wait for one."""
    if "child" in request:
        if request["seconds"] is not None:
            time.sleep(request["seconds"])
            os.kill(request["child"], signal.SIGKILL)
        notes = place / str(request["child"])
        status = os.waitpid(request["child"], 0)[1]
        ended = _ended(status, notes)
        shutil.rmtree(notes, ignore_errors=True)  # it may not have come so far
        return ended
    child = os.fork()
    if child == 0:
        notes = place / str(os.getpid())
        notes.mkdir(exist_ok=True)
        _child(request["folder"], request["words"], Fault(**request["fault"]), notes)
    return child


if __name__ == "__main__":
    _work()
