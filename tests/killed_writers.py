"""Processes that are killed while they write a file."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def killed_while_writing(path: Path) -> None:
    """Have a process killed between the first and the last byte of a file."""
    code = (
        "import os, signal, sys; from pathlib import Path; from polyseme.storage.atomic_files import replacing\n"
        "with replacing(Path(sys.argv[1])) as stream:\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
