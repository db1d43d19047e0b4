"""Run a worker script over one file of a stranger, in a process of its own that can be killed.

In: a script of this folder, which starts at once since it imports neither `site` nor polyseme, and
the content of a file. Out: what it wrote to standard output, and how it ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_worker(
    script: str, content: bytes, *arguments: object, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a script of this folder, by its name; raise `subprocess.TimeoutExpired` if it hangs."""
    worker = Path(__file__).with_name(script)
    # The path is our own, less the current folder, whose files may be a stranger's.
    import_path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-S", "-P", str(worker), *map(str, arguments)],
        input=content,
        capture_output=True,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": import_path},
        check=False,
    )
