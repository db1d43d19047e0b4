"""Fits of growing sizes: what they really take beside what `polyseme.fitting.cost` foretells.

    python experiments/scripts/growth_of_fits.py            # the grid, a table
    python experiments/scripts/growth_of_fits.py --records  # what constants are calibrated by
    python experiments/scripts/growth_of_fits.py --labels   # all else beside steps, in labels

The last one prints how time grows with labels alone, from 1,000 to 20,000 of them: a tiny space in
four steps, so that what is left is what a fit and the care for labels do beside training. The
exponent is that from 5,000 to 20,000 labels: 1 doubles time with labels, 2 makes it four times.

Seconds are those of the processor, of one thread, so that a busy machine changes little; every fit
is a process of its own, whose highest memory is measured.
"""

from __future__ import annotations

import argparse
import json
import math
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
from polyseme.fitting.cost import cost_of_fit
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

# Labels of 3 documents each and 4 labels of a document, on half as many items as labels.
LABELS = (1000, 5000, 20_000)

_CARE = """
import json, sys, tempfile, time, warnings
from pathlib import Path
import numpy as np
warnings.simplefilter("ignore")
n = int(sys.argv[1])
rng = np.random.default_rng(0)
numbers = rng.integers(n, size=(3 * n, 4))
numbers[:n, 0] = np.arange(n)
documents = [[f"label {number}" for number in row] for row in numbers.tolist()]
X = rng.normal(size=(n // 2, 32))
from polyseme import ConceptSpace, SpacePlan, ZeroShotTagger, load
from polyseme.metrics import evaluate_tagger
from polyseme.documents.vocabulary import similar_labels
import torch
torch.set_num_threads(1)
plan = SpacePlan(
    n_folds=2, members_per_fold=1, n_steps=4, round_steps=2, document_batch=32, item_batch=16,
    probable_batch=8, hidden=16, code=16,
)
space = ConceptSpace(plan=plan, device="cpu")
tagger = ZeroShotTagger(space=space, n_validations=1, random_state=0)
several = [f"label {number}" for number in range(20, 20 + n // 10)]
others = [f"label {number}" for number in range(n // 2, n // 2 + n // 10)]
with tempfile.TemporaryDirectory() as folder:
    model = Path(folder) / "model"
    stages = {
        "fit": lambda: tagger.fit(X, documents[: len(X)], documents),
        "rank": lambda: tagger.rank(X[:1]),
        "complete": lambda: tagger.complete(["label 9"]),
        "explain": lambda: tagger.explain(X[0], "label 9"),
        "evaluate": lambda: evaluate_tagger(tagger, X[:100], documents[:100]),
        "add_documents": lambda: tagger.add_documents([["label 1", "new 1"], ["label 2", "new 2"]]),
        "rename": lambda: tagger.rename("label 5", "other 5"),
        "merge": lambda: tagger.merge("label 7", "label 8"),
        "block": lambda: tagger.block(several),
        "learn": lambda: tagger.learn([("0", "label 9", True)], X),
        "remove_labels": lambda: tagger.remove_labels(others),
        "similar_labels": lambda: similar_labels(tagger.store_.matrix, tagger.store_.labels),
        "save": lambda: tagger.save(model),
        "load": lambda: load(model),
    }
    seconds = {}
    for name, stage in stages.items():
        start = time.process_time()
        stage()
        seconds[name] = time.process_time() - start
print(json.dumps(seconds))
"""


def measure(script: str, *sizes: int) -> dict[str, Any]:
    """Run one of the scripts for some sizes in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, sizes)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def print_growth_in_labels() -> None:
    """Measure growth with the number of labels and print it as a table."""
    by_size = [measure(_CARE, n_labels) for n_labels in LABELS]
    header = " | ".join(f"{n_labels:,} labels" for n_labels in LABELS)
    print(f"| seconds | {header} | exponent |")
    print(f"|---|{'---|' * len(LABELS)}---|")
    growth = math.log(LABELS[-1] / LABELS[-2])
    for stage in by_size[0]:
        seconds = [seconds_by_stage[stage] for seconds_by_stage in by_size]
        exponent = math.log(seconds[-1] / seconds[-2]) / growth
        cells = " | ".join(f"{duration:.3f}" for duration in seconds)
        print(f"| {stage} | {cells} | {exponent:.2f} |")


def main() -> None:
    """Measure the grid, or growth with the number of labels."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--only", type=int, nargs=4)
    arguments = parser.parse_args()
    if arguments.labels:
        print_growth_in_labels()
        return
    if not arguments.records:
        print("| items | labels | features | documents | seconds, foretold | GB, foretold |")
        print("|---|---|---|---|---|---|")
    for sizes in [tuple(arguments.only)] if arguments.only else GRID:
        record = measure(_ONE, *sizes)
        if arguments.records:
            print(json.dumps(record), flush=True)
            continue
        sizes_text = (
            f"{record['items']:,} | {record['labels']:,} | {record['features']:,} | "
            f"{record['documents']:,}"
        )
        seconds = f"{record['seconds']:.0f}, {record['foretold_seconds']:.0f}"
        memory = f"{record['bytes'] / 1e9:.2f}, {record['foretold_bytes'] / 1e9:.2f}"
        print(f"| {sizes_text} | {seconds} | {memory} |", flush=True)


if __name__ == "__main__":
    main()
