"""How long the whole default tagger takes to fit, part by part, on the processor or on a GPU.

The parts are what `ZeroShotTagger().fit` does: the concept space, the way into it, and the
experts, ensembles included. Beside the seconds stands what the tagger is worth on the held-out
instances of the split, a development one that no table reports; tuned COSTA on the same split is
what a user would otherwise run. $POLYSEME_DATA names the folder of the corpora.

    python benchmarks/bench_fit.py --out benchmarks
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

from _reporting import Report, Table, command_line

SEED = 0
CORPORA = {"hsun": "HSUN", "corel5k": "Corel5K", "msd-subset": "MSD subset"}
COLUMNS = {"training": "seen", "zsl-only": "unseen"}
MEASURES = ("E-MAP", "C-MAP")
PARTS = ("concept space", "experts", "all")
MOST_THREADS = 4
TEXT = """\
The whole of `ZeroShotTagger().fit`, ensembles included, part by part, beside tuned COSTA \
on the same split; what each is worth on the split's test items, on seen and on unseen labels, \
stands beside its seconds. The split (seed 0) is none that a table reports."""


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
            [one["what"], one["device"], *map(one["seconds"].get, PARTS), *one["quality"].values()]
            for one in mine
        ]
        columns = ["way", "device", *(f"{part}, s" for part in PARTS), *marks]
        title = f"{CORPORA[corpus]}: {sizes}"
        report.tables.append(Table(title, "the tagger", columns, cells, bars=["all, s"]))
    report.tables[-1].note = f"{threads} threads of torch and BLAS."
    return report


def corpus_rows(corpus: str, data: str | None, device: str, threads: int) -> list[dict[str, Any]]:
    """Fit tuned COSTA and the default; without a data folder on a sample, and briefly."""
    import torch
    from threadpoolctl import threadpool_limits

    from polyseme.baselines import TunedCosta
    from polyseme.experiments.draws import Conditions
    from polyseme.experiments.settings import get_setting
    from polyseme.experiments.trials import Trial

    torch.set_num_threads(threads)
    conditions = Conditions(data=data, seed=SEED, quick=data is None)
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
        tagger, seconds = fitted(given, device, small_parts(conditions))
        rows.append(row(trial, corpus, "polyseme, default", device, tagger, seconds))
    return rows


def small_parts(conditions: Any) -> dict[str, Any]:
    """Give the parts that make a fit brief; none for the real thing."""
    from polyseme import LabelExperts
    from polyseme.experiments.spaces import make_embedding

    if not conditions.quick:
        return {}
    experts = LabelExperts(n_folds=2, nets_per_fold=1, document_steps=10, instance_steps=10)
    return {"embedding": make_embedding(8, conditions), "experts": experts}


def fitted(
    given: tuple[Any, Any, Any], device: str, parts: dict[str, Any]
) -> tuple[Any, dict[str, float]]:
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

    kinds = ((ConceptEmbedding, "concept space"), (LabelExperts, "experts"))
    plain = {kind: timed(kind, name) for kind, name in kinds}
    try:
        start = time.perf_counter()
        tagger = ZeroShotTagger(device=device, random_state=SEED, **parts).fit(*given)
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


if __name__ == "__main__":
    command_line(measure)
