"""Workers of a test's own Ray cluster, for the tests that kill one."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_one(kind: str) -> bool:
    """Kill one worker of a kind, of this test's own cluster; say whether there was one."""
    parents, found = {}, []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            if kind.encode() in (folder / "cmdline").read_bytes() and fields[0] != "Z":
                found.append(int(folder.name))
    for pid in found:
        ancestor = pid
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            os.kill(pid, signal.SIGKILL)
            return True
    return False
