"""Fits of growing sizes: what they really take beside what `polyseme.growth` foretells.

    python experiments/scripts/growth_of_fits.py            # the grid, a table
    python experiments/scripts/growth_of_fits.py --records  # what constants are calibrated by

Seconds are those of the processor, of one thread, so that a busy machine changes little; every fit
is a process of its own, whose highest memory is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

# Items, labels, features and documents beside those of items.
GRID = [
    (200, 20, 16, 0),
    (1000, 50, 64, 0),
    (1000, 300, 64, 0),
    (3000, 100, 256, 0),
    (3000, 300, 64, 3000),
    (3000, 993, 64, 0),
    (8000, 200, 32, 0),
    (2000, 2000, 32, 2000),
    (2000, 100, 2000, 0),
    (20000, 100, 32, 0),
]

_ONE = """
import json, resource, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
n, n_labels, n_features, n_others = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
shares = 1 / np.arange(1, n_labels + 1) ** 0.7
shares /= shares.sum()
def tag_sets(count):
    drawn = rng.choice(n_labels, size=(count, 6), p=shares)
    return [[f"label {one}" for one in set(row)] for row in drawn.tolist()]
X, documents, others = rng.normal(size=(n, n_features)), tag_sets(n), tag_sets(n_others)
from polyseme import ZeroShotTagger
from polyseme.growth import cost_of_fit
import torch
torch.set_num_threads(1)
tagger = ZeroShotTagger(random_state=0)
before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tagger.fit(X, documents, documents + others if others else None)
after = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
plan = tagger.space_.plan_
foretold = cost_of_fit(plan, n + n_others, n_labels, n, n_features, 2)
print(json.dumps({
    "items": n, "labels": n_labels, "features": n_features, "documents": n + n_others,
    "seconds": after[0] - before[0], "bytes": 1024 * after[1],
    "foretold_seconds": foretold.seconds, "foretold_bytes": foretold.bytes,
}))
"""


def measure(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Fit a tagger of some sizes in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _ONE, *map(str, sizes)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def main() -> None:
    """Measure the grid."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--only", type=int, nargs=4)
    asked = parser.parse_args()
    if not asked.records:
        print("| items | labels | features | documents | seconds, foretold | GB, foretold |")
        print("|---|---|---|---|---|---|")
    for sizes in [tuple(asked.only)] if asked.only else GRID:
        one = measure(sizes)
        if asked.records:
            print(json.dumps(one), flush=True)
            continue
        print(
            f"| {one['items']:,} | {one['labels']:,} | {one['features']:,} | "
            f"{one['documents']:,} | {one['seconds']:.0f}, {one['foretold_seconds']:.0f} | "
            f"{one['bytes'] / 1e9:.2f}, {one['foretold_bytes'] / 1e9:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
