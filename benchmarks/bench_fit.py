"""How long the whole default tagger takes to fit, validation included, beside tuned COSTA.

Each fit runs in a process of its own, on one thread, and its processor time is measured; with a GPU
the default is also fitted there, and its seconds are measured. Beside the time stands what the
tagger is worth on the held-out items of the split, a development one that no table reports. Tuned
COSTA on the same split is what a user would otherwise run; a former default, of the checkout that
$POLYSEME_FORMER names, is what it took before. $POLYSEME_DATA names the folder of the corpora.

    python benchmarks/bench_fit.py --out benchmarks
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _reporting import Ratio, Report, Table, command_line

SEED = 0
CORPORA = {"hsun": "HSUN", "corel5k": "Corel5K", "msd-subset": "MSD subset", "emoji": "Emoji"}
COLUMNS = {"training": "seen", "zsl-only": "unseen"}
MEASURES = ("E-MAP", "C-MAP")
COSTA, DEFAULT, FORMER = "tuned COSTA", "polyseme, default", "former default"
# At most so many times the processor time of the former default, and of tuned COSTA in the mean.
MOST_OF_FORMER, MOST_OF_COSTA = 0.3, 6.0
TEXT = """\
The whole of `ZeroShotTagger().fit`, validation included, beside tuned COSTA and a former default \
on the same split, in processor time of one thread; what each is worth on the split's test items, \
on seen and on unseen labels, stands beside it. The split (seed 0) is none that a table reports."""

# Runs with the code of any version: `inputs.npz` in, scores and the time out.
FIT = """
import inspect, json, sys, time, warnings
import numpy as np
import torch
from polyseme import LabelCorpus, ZeroShotTagger

warnings.simplefilter("ignore")
torch.set_num_threads(1)
inputs, what, device, outputs = sys.argv[1:]
arrays = np.load(inputs)
def corpus(name):
    documents = [json.loads(str(text)) for text in arrays[name]]
    return LabelCorpus.from_documents(documents, ids=[str(i) for i in arrays[name + "_ids"]])
if what == "tuned COSTA":
    from polyseme_experiments.baselines import TunedCosta

    ranker = TunedCosta(random_state=0)
else:
    ranker = ZeroShotTagger(device=device, random_state=0)
given = arrays["X"], corpus("documents"), corpus("label_sets")
alone = "label_sets_only" in inspect.signature(ranker.fit).parameters
if device != "cpu":
    torch.zeros(1, device=device)  # the first use of a device is not ours to count
clock = time.process_time if device == "cpu" else time.perf_counter
start = clock()
ranker.fit(*given, **({"label_sets_only": True} if alone else {}))
seconds = clock() - start
scores = getattr(ranker, "predict_proba", ranker.decision_function)(arrays["X_test"])
labels = [str(label) for label in ranker.classes_]
np.savez(outputs, scores=scores, labels=np.array(labels), seconds=seconds)
"""


def measure(size: str) -> Report:
    """Fit tuned COSTA, the default and, where a checkout is named, a former default."""
    import torch

    data = os.environ.get("POLYSEME_DATA")
    is_full = size == "full"
    if is_full and not data:
        sys.exit("POLYSEME_DATA names no folder; the full size needs the corpora.")
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices.append("cuda")
    corpora = list(CORPORA)
    if not is_full:
        data = None
        corpora = corpora[:1]
    rows: list[dict[str, Any]] = []
    for corpus in corpora:
        rows += corpus_rows(corpus, data, devices)
    return report_of(rows)


def corpus_rows(corpus: str, data: str | None, devices: list[str]) -> list[dict[str, Any]]:
    """Fit every way on one split; without a data folder on a sample."""
    from polyseme_experiments.sampling import RunConfig
    from polyseme_experiments.settings import get_setting
    from polyseme_experiments.trials import Trial

    setting = get_setting(corpus)
    config = RunConfig(data=data, seed=SEED, quick=data is None)
    trial = Trial(setting, 0, config)
    former = os.environ.get("POLYSEME_FORMER")
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        save_inputs(inputs, trial)
        rows = [fitted(trial, corpus, COSTA, "cpu", inputs)]
        if former and data:
            checkout = Path(former)
            rows.append(fitted(trial, corpus, FORMER, "cpu", inputs, checkout))
        for device in devices:
            rows.append(fitted(trial, corpus, DEFAULT, device, inputs))
    return rows


def save_inputs(path: Path, trial: Any) -> None:
    """Write what a fit learns from, and the features of the test items."""
    split = trial.split
    arrays = {"X": trial.train_features, "X_test": trial.features(split.test)}
    corpora = {"documents": trial.train_documents, "label_sets": trial.known_documents}
    for name, documents in corpora.items():
        texts = []
        for labels in documents:
            names = [str(label) for label in labels]
            texts.append(json.dumps(names))
        arrays[name] = np.array(texts)
        arrays[f"{name}_ids"] = np.array(documents.ids)
    np.savez(path, **arrays)


def fitted(
    trial: Any, corpus: str, way: str, device: str, inputs: Path, checkout: Path | None = None
) -> dict[str, Any]:
    """Fit in a process of its own, by this code or by that of another checkout."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout / "src")
    outputs = inputs.with_name("outputs.npz")
    subprocess.run(
        [sys.executable, "-c", FIT, str(inputs), way, device, str(outputs)],
        env=environment,
        cwd=inputs.parent,
        check=True,
    )
    results = np.load(outputs)
    measured = trial.measure(results["scores"], tuple(results["labels"].tolist()))
    return {
        "corpus": corpus,
        "documents": len(trial.known_documents),
        "instances": len(trial.train_documents),
        "what": way,
        "device": device,
        "seconds": round(float(results["seconds"]), 2),
        "quality": {
            f"{measure} {kind}": round(measured[column][measure], 2)
            for column, kind in COLUMNS.items()
            for measure in MEASURES
        },
    }


def report_of(rows: list[dict[str, Any]]) -> Report:
    """Arrange the rows: one table for each corpus."""
    report = Report("fit", "The default tagger, fitted whole", TEXT)
    marks = [f"{measure} {kind}" for kind in COLUMNS.values() for measure in MEASURES]
    times_of_costa = []
    for corpus in dict.fromkeys(row["corpus"] for row in rows):
        of_corpus = [row for row in rows if row["corpus"] == corpus]
        sizes = "{documents:,} documents, {instances:,} instances".format(**of_corpus[0])
        cells = [
            [row["what"], row["device"], row["seconds"], *row["quality"].values()]
            for row in of_corpus
        ]
        columns = ["way", "device", "seconds", *marks]
        title = f"{CORPORA[corpus]}: {sizes}"
        report.tables.append(Table(title, "the tagger", columns, cells, bars=["seconds"]))

        seconds = {row["what"]: row["seconds"] for row in of_corpus if row["device"] == "cpu"}
        times_of_costa.append(seconds[DEFAULT] / seconds[COSTA])
        if FORMER in seconds:
            name = f"{CORPORA[corpus]}: whole fit, of the former default's processor time"
            ratio = round(seconds[DEFAULT] / seconds[FORMER], 3)
            report.ratios.append(Ratio(name, ratio, MOST_OF_FORMER, at_least=False))
    mean = round(float(np.mean(times_of_costa)), 2)
    name = "whole fit, of tuned COSTA's processor time, mean of the corpora"
    report.ratios.append(Ratio(name, mean, MOST_OF_COSTA, at_least=False))
    report.tables[-1].note = "Seconds on cpu are processor time of one thread."
    return report


if __name__ == "__main__":
    command_line(measure)
