"""Compare the results of cases with the recorded ones, or record them anew.

PYTHONPATH=tests python -m golden [--write] [GROUP ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from golden import GROUPS, changes, compute, record

parser = argparse.ArgumentParser(prog="python -m golden", description=__doc__)
parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
parser.add_argument("--write", action="store_true", help="record the results anew")
arguments = parser.parse_args()

n_differences = 0
for group in arguments.groups or GROUPS:
    start = time.process_time()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        results = compute(group, Path(folder))
    seconds = time.process_time() - start
    if arguments.write:
        path = record(group, results)
        size = path.stat().st_size
        print(f"{group}: {len(results)} cases in {seconds:.1f} s, {size:,} bytes")
    else:
        lines = list(chain.from_iterable(changes(group, results).values()))
        n_differences += len(lines)
        print(*lines, f"{group}: {len(lines)} differences in {seconds:.1f} s", sep="\n")
sys.exit(n_differences > 0)
