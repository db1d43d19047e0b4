"""How long the whole default tagger takes to fit, on the processor or on a GPU.

Beside the seconds stands what the tagger is worth on the held-out items of the split, a development
one that no table reports; tuned COSTA on the same split is what a user would otherwise run, and the
former default (of a checkout that $POLYSEME_FORMER names) what it took before. $POLYSEME_DATA names
the folder of the corpora.

    python benchmarks/bench_fit.py --out benchmarks
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from typing import Any

from _reporting import Ratio, Report, Table, command_line

SEED = 0
CORPORA = {"hsun": "HSUN", "corel5k": "Corel5K", "msd-subset": "MSD subset"}
COLUMNS = {"training": "seen", "zsl-only": "unseen"}
MEASURES = ("E-MAP", "C-MAP")
# At most so many times the former default's seconds.
TARGET = 0.6
MOST_THREADS = 4
TEXT = """\
The whole of `ZeroShotTagger().fit` beside tuned COSTA and the former default on the same split; \
what each is worth on the split's test items, on seen and on unseen labels, stands beside its \
seconds. The split (seed 0) is none that a table reports."""


def measure(size: str) -> Report:
    """Fit the default tagger and tuned COSTA; on a GPU where there is one."""
    import torch

    data = os.environ.get("POLYSEME_DATA")
    if size == "full" and not data:
        sys.exit("POLYSEME_DATA names no folder; the full size needs the corpora.")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)))
    rows: list[dict[str, Any]] = []
    for corpus in CORPORA if size == "full" else list(CORPORA)[:1]:
        rows += corpus_rows(corpus, data if size == "full" else None, device, threads)
    return report_of(rows, threads)


def report_of(rows: list[dict[str, Any]], threads: int) -> Report:
    """Arrange the rows: one table for each corpus."""
    report = Report("fit", "The default tagger, fitted whole", TEXT)
    marks = [f"{measure} {kind}" for kind in COLUMNS.values() for measure in MEASURES]
    for corpus in dict.fromkeys(row["corpus"] for row in rows):
        mine = [row for row in rows if row["corpus"] == corpus]
        sizes = f"{mine[0]['documents']:,} documents, {mine[0]['instances']:,} instances"
        cells = [
            [one["what"], one["device"], one["seconds"]["all"], *one["quality"].values()]
            for one in mine
        ]
        columns = ["way", "device", "seconds", *marks]
        title = f"{CORPORA[corpus]}: {sizes}"
        report.tables.append(Table(title, "the tagger", columns, cells, bars=["seconds"]))
        by_way = {one["what"]: one["seconds"]["all"] for one in mine}
        former = by_way.get("former default (experts)")
        if former:
            ratio = by_way["polyseme, default"] / former
            name = f"{CORPORA[corpus]}: whole fit, of the former default's seconds"
            report.ratios.append(Ratio(name, round(ratio, 3), TARGET, at_least=False))
    report.tables[-1].note = f"{threads} threads of torch and BLAS."
    return report


def corpus_rows(corpus: str, data: str | None, device: str, threads: int) -> list[dict[str, Any]]:
    """Fit tuned COSTA and the default; without a data folder on a sample, and briefly."""
    import torch
    from threadpoolctl import threadpool_limits

    from polyseme.baselines import TunedCosta
    from polyseme_experiments.sampling import RunConfig
    from polyseme_experiments.settings import get_setting
    from polyseme_experiments.trials import Trial

    torch.set_num_threads(threads)
    conditions = RunConfig(data=data, seed=SEED, quick=data is None)
    trial = Trial(get_setting(corpus), 0, conditions)
    given = (trial.train_features, trial.train_documents, trial.known_documents)
    with threadpool_limits(limits=threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        costa = TunedCosta(random_state=SEED).fit(*given)
        seconds = {"all": time.perf_counter() - start}
        rows = [row(trial, corpus, "tuned COSTA", "cpu", costa, seconds)]
        if device != "cpu":
            torch.zeros(1, device=device)  # the first use of a device is not ours to count
        tagger, seconds = fitted(given, device, conditions.quick)
        rows.append(row(trial, corpus, "polyseme, default", device, tagger, seconds))
    former = None if data is None else former_row(corpus, data, threads)
    if former is not None:
        rows.insert(1, former)
    return rows


def former_row(corpus: str, data: str, threads: int) -> dict[str, Any] | None:
    """Fit the former default, of the checkout that $POLYSEME_FORMER names, in its own process."""
    folder = os.environ.get("POLYSEME_FORMER")
    if not folder:
        return None
    command = [sys.executable, "-c", FORMER, corpus, data, str(threads)]
    environment = os.environ | {"PYTHONPATH": f"{folder}/src:{folder}/benchmarks"}
    # In its own folder, so that its own files are found first.
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"what": "former default (experts)"}


FORMER = """
import json, sys
import bench_fit
rows = bench_fit.corpus_rows(sys.argv[1], sys.argv[2], "cpu", int(sys.argv[3]))
print(json.dumps(rows[-1]))
"""


def fitted(given: tuple[Any, Any, Any], device: str, quick: bool) -> tuple[Any, dict[str, float]]:
    """Fit the default tagger."""
    from polyseme import ConceptSpace, ZeroShotTagger

    space = ConceptSpace(n_folds=2, members_per_fold=1, n_steps=10) if quick else None
    start = time.perf_counter()
    tagger = ZeroShotTagger(space=space, device=device, random_state=SEED).fit(*given)
    return tagger, {"all": time.perf_counter() - start}


def row(
    trial: Any, corpus: str, what: str, device: str, ranker: Any, seconds: dict[str, float]
) -> dict[str, Any]:
    """Give seconds and quality of one fitted ranker."""
    score = getattr(ranker, "predict_proba", ranker.decision_function)
    scores = score(trial.features(trial.split.test))
    found = trial.measure(scores, ranker.classes_)
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


if __name__ == "__main__":
    command_line(measure)
