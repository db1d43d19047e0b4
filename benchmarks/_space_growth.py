"""One point of the growth of a concept space, in a process of its own: seconds, memory, quality.

Made-up documents and items of themes go the public way: `ZeroShotTagger.fit` with a twentieth of
the labels unseen, then ranks of held-out items; tuned COSTA on the same data where it still runs.
Prints one JSON object.

    python benchmarks/_space_growth.py '{"documents": 20000, "labels": 1000, "items": 10000}'
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _reporting import peak_mb
from _synthetic import as_label_corpus, make_themes, synthetic_features, synthetic_matrix

SEED = 0
TESTED = 1_000
UNSEEN = 0.05
# Kernel ridge regression holds items x items numbers.
COSTA_ITEMS = 10_000
_MOST_BYTES = 18 * 2**30


@dataclass(frozen=True)
class SpacePoint:
    """Where to measure.

    Attributes
    ----------
    documents, labels, items : int
        Items are the first documents that hold no unseen label.
    features : int
    device : str
    costa : bool
        Whether tuned COSTA is fitted too.
    n_steps : int, optional
        Steps of a brief check.
    """

    documents: int
    labels: int
    items: int
    features: int = 256
    device: str = "cpu"
    costa: bool = False
    n_steps: int | None = None


def measure_apart(point: SpacePoint) -> dict[str, Any]:
    """Measure a point in a process of its own."""
    command = [sys.executable, str(Path(__file__)), json.dumps(asdict(point))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(point: SpacePoint) -> dict[str, Any]:
    """Fit and test at a point."""
    from polyseme import ConceptSpace, ZeroShotTagger
    from polyseme_experiments.baselines import TunedCosta

    themes = make_themes(
        point.labels, SEED, n_themes=max(60, point.labels // 20), n_features=point.features
    )
    matrix = synthetic_matrix(point.documents + 4 * TESTED, themes, SEED)
    # Some of the rarest labels are on no document at all.
    used = np.flatnonzero(np.diff(matrix[: point.documents].tocsc().indptr))
    labels = matrix[:, used]
    generator = np.random.default_rng(SEED)
    hidden = np.zeros(len(used), dtype=bool)
    hidden[generator.permutation(len(used))[: max(1, int(UNSEEN * len(used)))]] = True
    holds = np.asarray(labels[:, hidden].sum(axis=1)).ravel() > 0
    rows = np.arange(matrix.shape[0])
    items = np.flatnonzero(~holds & (rows < point.documents))[: point.items]
    tested = np.flatnonzero(holds & (rows >= point.documents))[:TESTED]
    documents = replace(as_label_corpus(labels[: point.documents]), numbered=False)
    X = synthetic_features(matrix[items], themes, SEED)
    X_test = synthetic_features(matrix[tested], themes, SEED + 1)
    given = (X, documents.select(items), documents)
    found: dict[str, Any] = {"items": len(items)}
    space = ConceptSpace(n_steps=point.n_steps)
    tagger = ZeroShotTagger(space=space, device=point.device, random_state=SEED)
    start = time.perf_counter()
    tagger.fit(*given)
    found["seconds"] = time.perf_counter() - start
    start = time.perf_counter()
    scores = tagger.predict_proba(X_test)
    found["ranking"] = time.perf_counter() - start
    truth = labels[tested].toarray()
    found |= {f"space, {name}": value for name, value in _quality(truth, scores, hidden).items()}
    found["peak_mb"] = peak_mb()
    found["members"] = len(tagger.space_.members_)
    found["steps"] = tagger.space_.plan_.n_steps
    if point.costa and len(items) <= COSTA_ITEMS:
        start = time.perf_counter()
        costa = TunedCosta(random_state=SEED).fit(*given)
        found["COSTA, seconds"] = time.perf_counter() - start
        quality = _quality(truth, costa.decision_function(X_test), hidden)
        found |= {f"COSTA, {name}": value for name, value in quality.items()}
    return found


def _quality(truth: Any, scores: Any, hidden: Any) -> dict[str, float]:
    """Return E-MAP over all and over unseen labels, and C-MAP over unseen ones, in percent."""
    from polyseme.metrics import concept_map, example_map

    return {
        "E-MAP": 100 * example_map(truth, scores),
        "E-MAP unseen": 100 * example_map(truth[:, hidden], scores[:, hidden]),
        "C-MAP unseen": 100 * concept_map(truth[:, hidden], scores[:, hidden]),
    }


if __name__ == "__main__":
    asked = SpacePoint(**json.loads(sys.argv[1]))
    if asked.device == "cpu":
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(json.dumps(measure(asked)))
