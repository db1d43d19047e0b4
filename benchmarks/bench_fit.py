"""How long the whole default tagger takes to fit, part by part, on the processor and on a GPU.

The parts are what `ZeroShotTagger().fit` does: the concept space, the way into it, and the
experts, ensembles included. Beside the seconds stands what the tagger is worth on the held-out
instances of the split, a development one that no table reports; tuned COSTA on the same split is
what a user would otherwise run.

    python benchmarks/bench_fit.py --device cpu --device cuda --out benchmarks/fit.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

SEED = 0
CORPORA = ("hsun", "corel5k", "msd-subset")
COLUMNS = ("training", "zsl-only")
MEASURES = ("E-MAP", "C-MAP")


def main() -> None:
    """Fit everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("POLYSEME_DATA"), help="corpora")
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="which (default: all)")
    parser.add_argument("--device", action="append", help="cpu, cuda (default: cpu)")
    parser.add_argument("--threads", type=int, default=2, help="of torch and BLAS")
    parser.add_argument("--out", type=Path, help="a JSON file to write the figures to")
    options = parser.parse_args()
    if options.data is None:
        parser.error("name the folder of the corpora with --data or $POLYSEME_DATA")
    rows: list[dict[str, Any]] = []
    for corpus in options.corpus or CORPORA:
        rows += corpus_rows(corpus, options.data, options.device or ["cpu"], options.threads)
    show(rows)
    if options.out:
        facts = {"machine": machine(), "threads": options.threads, "rows": rows}
        options.out.write_text(json.dumps(facts, indent=2) + "\n", "utf-8")


def corpus_rows(corpus: str, data: str, devices: list[str], threads: int) -> list[dict[str, Any]]:
    """Fit tuned COSTA, and the default on every device."""
    import torch
    from threadpoolctl import threadpool_limits

    from polyseme.baselines import TunedCosta
    from polyseme.experiments.draws import Conditions
    from polyseme.experiments.settings import get_setting
    from polyseme.experiments.trials import Trial

    torch.set_num_threads(threads)
    trial = Trial(get_setting(corpus), 0, Conditions(data=data, seed=SEED))
    given = (trial.train_features, trial.train_documents, trial.known_documents)
    rows = []
    with threadpool_limits(limits=threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        costa = TunedCosta(random_state=SEED).fit(*given)
        seconds = {"all": time.perf_counter() - start}
        rows.append(row(trial, corpus, "tuned COSTA", "cpu", costa, seconds))
        for device in devices:
            if device != "cpu":
                torch.zeros(1, device=device)  # the first use of a device is not ours to count
            tagger, seconds = fitted(given, device)
            rows.append(row(trial, corpus, "default", device, tagger, seconds))
    return rows


def fitted(given: tuple[Any, Any, Any], device: str) -> tuple[Any, dict[str, float]]:
    """Fit the default tagger and time its parts."""
    from polyseme import ConceptEmbedding, LabelExperts, ZeroShotTagger

    seconds: dict[str, float] = {}

    def timed(kind: type[Any], name: str) -> Any:
        plain = kind.fit

        def fit(self: Any, *arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            found = plain(self, *arguments, **named)
            seconds[name] = time.perf_counter() - start
            return found

        kind.fit = fit
        return plain

    parts = ((ConceptEmbedding, "concept space"), (LabelExperts, "experts"))
    plain = {kind: timed(kind, name) for kind, name in parts}
    try:
        start = time.perf_counter()
        tagger = ZeroShotTagger(device=device, random_state=SEED).fit(*given)
        seconds["all"] = time.perf_counter() - start
    finally:
        for kind, fit in plain.items():
            kind.fit = fit
    return tagger, seconds


def row(
    trial: Any, corpus: str, what: str, device: str, ranker: Any, seconds: dict[str, float]
) -> dict[str, Any]:
    """Give seconds and quality of one fitted ranker."""
    scores = ranker.score_labels(trial.features(trial.split.test))
    found = trial.measure(scores, ranker.labels_)
    return {
        "corpus": corpus,
        "documents": len(trial.known_documents),
        "instances": len(trial.train_documents),
        "what": what,
        "device": device,
        "seconds": {name: round(one, 2) for name, one in seconds.items()},
        "quality": {
            f"{measure} {column}": round(found[column][measure], 2)
            for column in COLUMNS
            for measure in MEASURES
        },
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table."""
    print("corpus      what         device  space  experts  all s | E/C-MAP seen, unseen")
    for one in rows:
        seconds = one["seconds"]
        quality = " ".join(f"{value:5.1f}" for value in one["quality"].values())
        print(
            f"{one['corpus']:11} {one['what']:12} {one['device']:6} "
            f"{seconds.get('concept space', np.nan):6.1f} {seconds.get('experts', np.nan):8.1f} "
            f"{seconds['all']:6.1f} | {quality}"
        )


def machine() -> dict[str, Any]:
    """Name the machine."""
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu": card,
    }


if __name__ == "__main__":
    main()
