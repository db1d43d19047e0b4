"""Workers of a test's own Ray cluster, for the tests that kill one."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_one(kind: str) -> bool:
    """Kill one worker of a kind, of this test's own cluster; return whether there was one."""
    parents: dict[int, int] = {}
    workers = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name)
            state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[pid] = int(parent)
            command = (folder / "cmdline").read_bytes()
            if kind.encode() in command and state != "Z":
                workers.append(pid)
    for worker in workers:
        if os.getpid() in ancestors(worker, parents):
            os.kill(worker, signal.SIGKILL)
            return True
    return False


def ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    """Return the processes that a process descends from."""
    chain = []
    while pid in parents:
        pid = parents[pid]
        chain.append(pid)
    return chain
