r"""Compare the default with Annif on questions to librarians: Annif's own corpus and split.

    pip install 'annif[omikuji,nn]==1.4.3'       # in an environment of its own, ANNIF
    PATH=$PATH:ANNIF/bin python experiments/scripts/annif_questions.py --out annif.json

In: `annif-kirjastonhoitaja` and `annif-yso-labelsets` in `$POLYSEME_DATA`. Out: F1 and precision
of the five best labels, NDCG of the ten best, and F1 with a limit and a threshold, in percent, mean
and standard error over three seeds; seconds of the processor for the fit and for all test
questions. Those of Annif include the start of each of its commands, 2 to 6 s. Where `annif` is not
on the PATH, only ours is measured.

Everybody learns from the training part. Limits, thresholds and weights of the ensemble are chosen
on the validation part, which also trains the neural ensemble. Annif's vocabulary has the names of
all labels; true labels that a method does not know count against it. Annif needs NLTK's `punkt_tab`
and downloads it where it can.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme import TextFeatures, ZeroShotTagger
from polyseme.base.validation import PolysemeWarning

N_SEEDS = 3
MOST_LABELS = 10  # of a question, Annif's default
# What `annif optimize` tries.
LIMITS = range(1, 16)
THRESHOLDS = tuple(step / 20 for step in range(20))

MEASURES = ("F1@5", "precision@5", "NDCG", "F1, tuned", "seconds, fit", "seconds, test")
PARTS = ("train", "validate", "test")
PREFIX = "http://www.yso.fi/onto/yso/"
ENGLISH_SOURCE = "jyu-theses/eng"
# Of simple, snowball(finnish), simplemma(fi) and voikko(fi) it has the highest sum of NDCG of all
# projects on the validation part. `min_df` of bonsai is the best of 1, 2 and 5 there; word pairs,
# and what `annif hyperopt` found for mllm, brought nothing.
COMMON = {"language": "fi", "vocab": "yso", "analyzer": "simplemma(fi)", "limit": "100"}
BONSAI = {"cluster_balanced": "False", "cluster_k": "100", "max_depth": "3", "min_df": "2"}
SOURCES = "tfidf,bonsai,mllm"
PROJECTS: dict[str, dict[str, str]] = {
    "tfidf": {"backend": "tfidf"},
    "parabel": {"backend": "omikuji"},
    "bonsai": {"backend": "omikuji", **BONSAI},
    "mllm": {"backend": "mllm"},
    "ensemble": {"backend": "ensemble", "sources": SOURCES},
    "weighted": {"backend": "ensemble", "sources": SOURCES},
    "neural": {"backend": "nn_ensemble", "sources": SOURCES, "epochs": "10"},
}
N_TRIALS = 100  # of the weights


class Setting(NamedTuple):
    """What our tagger is given."""

    title: str
    n_topics: int = 256  # of a text, the default
    has_names: bool = True
    has_sets: bool = False  # tag sets without questions
    has_vocabulary: bool = False  # names of all labels, as Annif has them


OURS = {
    "plain": Setting("polyseme, without names", has_names=False),
    "names": Setting("polyseme"),
    "vocabulary": Setting("polyseme, names of all labels", has_vocabulary=True),
    "sets": Setting("polyseme, label sets", has_sets=True),
    # Of 256, 512 and 1,024 topics the best on the validation part.
    "topics": Setting("polyseme, 1,024 topics", 1024),
    "topics-sets": Setting("polyseme, 1,024 topics, label sets", 1024, has_sets=True),
}
TITLES = {
    "tfidf": "Annif, tfidf",
    "parabel": "Annif, omikuji (Parabel)",
    "bonsai": "Annif, omikuji (Bonsai)",
    "mllm": "Annif, mllm",
    "ensemble": "Annif, ensemble of tfidf, Bonsai and mllm",
    "weighted": "the same, weights by `hyperopt`",
    "neural": "the same, neural ensemble",
    **{name: setting.title for name, setting in OURS.items()},
}


class Questions(NamedTuple):
    """Questions of one part of the split."""

    texts: list[str]
    labels: list[set[str]]  # identifiers


class Corpus(NamedTuple):
    """Questions, label sets without questions, and names of all labels."""

    splits: dict[str, Questions]
    label_sets: list[list[str]]
    name_by_label: dict[str, str]


class Ranking(NamedTuple):
    """The best labels of a question, best first."""

    labels: list[str]
    scores: list[float]

    def cut(self, limit: int, threshold: float) -> Ranking:
        """Return the first labels whose scores reach a threshold."""
        n_likely = sum(score >= threshold for score in self.scores)
        n_labels = min(limit, n_likely)
        return Ranking(self.labels[:n_labels], self.scores[:n_labels])


def load_corpus() -> Corpus:
    """Load questions and label sets. Names are Finnish where a Finnish source has the label.

    One tag of the label sets is of another vocabulary, and left out.
    """
    questions = read_documents("annif-kirjastonhoitaja")
    label_sets = read_documents("annif-yso-labelsets")
    label_sets.sort(key=lambda document: document["source"] != ENGLISH_SOURCE)
    name_by_label: dict[str, str] = {}
    for document in [*label_sets, *questions]:  # later names replace earlier ones
        name_by_label.update(zip(document["labels"], document["names"], strict=True))
    splits = {}
    for name in PARTS:
        chosen = [question for question in questions if question["split"] == name]
        texts = [question["text"] for question in chosen]
        labels = [set(question["labels"]) for question in chosen]
        splits[name] = Questions(texts, labels)
    name_by_label = {label: name for label, name in name_by_label.items() if is_own(label)}
    sets = [list(filter(is_own, document["labels"])) for document in label_sets]
    return Corpus(splits, sets, name_by_label)


def is_own(label: str) -> bool:
    """Return whether a label is of the general Finnish ontology: p and a number."""
    return label.startswith("p")


def read_documents(name: str) -> list[dict[str, Any]]:
    """Read the documents of a dataset."""
    path = Path(os.environ["POLYSEME_DATA"], name, "documents.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# ------------------------------------------------------------------ measures, as `annif eval` has


def f1_score(rankings: Sequence[Ranking], questions: Questions) -> float:
    """Return the mean F1 of the suggestions of each question, in percent."""
    values = []
    for ranking, true_labels in zip(rankings, questions.labels, strict=True):
        n_hits = len(true_labels.intersection(ranking.labels))
        values.append(2 * n_hits / (len(ranking.labels) + len(true_labels)))
    return 100 * float(np.mean(values))


def precision(rankings: Sequence[Ranking], questions: Questions) -> float:
    """Return the mean share of true labels among the suggestions of each question, in percent."""
    values = []
    for ranking, true_labels in zip(rankings, questions.labels, strict=True):
        n_hits = len(true_labels.intersection(ranking.labels))
        values.append(n_hits / max(len(ranking.labels), 1))
    return 100 * float(np.mean(values))


def ndcg(rankings: Sequence[Ranking], questions: Questions) -> float:
    """Return the mean normalised discounted cumulative gain, in percent.

    The ideal ranking holds all true labels, however few suggestions there are.
    """
    values = []
    for ranking, true_labels in zip(rankings, questions.labels, strict=True):
        is_hit = [label in true_labels for label in ranking.labels]
        gain = is_hit / np.log2(np.arange(len(is_hit)) + 2)
        ideal = 1 / np.log2(np.arange(len(true_labels)) + 2)
        values.append(gain.sum() / ideal.sum())
    return 100 * float(np.mean(values))


def best_cut(rankings: Sequence[Ranking], questions: Questions) -> tuple[int, float]:
    """Return the limit and the threshold with the highest F1, as `annif optimize` finds them."""
    best = (MOST_LABELS, 0.0)
    best_score = -1.0
    for limit in LIMITS:
        for threshold in THRESHOLDS:
            cut_rankings = [ranking.cut(limit, threshold) for ranking in rankings]
            score = f1_score(cut_rankings, questions)
            if score > best_score:
                best = (limit, threshold)
                best_score = score
    return best


# ------------------------------------------------------------------ polyseme


def measure_ours(corpus: Corpus, setting: Setting, seed: int) -> dict[str, float]:
    """Fit the default tagger to the training part, and measure it on the test part."""
    start = time.process_time()
    extractor = TextFeatures(setting.n_topics, n_jobs=1, random_state=seed)
    train = corpus.splits["train"]
    X = extractor.fit_transform(train.texts)

    def encode(labels: Sequence[str]) -> NDArray[np.floating[Any]]:
        names = [corpus.name_by_label[label] for label in labels]
        return extractor.encode_names(names)

    tagger = ZeroShotTagger(random_state=seed, normalize_labels=False, device="cpu")
    tagger.fit(
        X,
        [sorted(labels) for labels in train.labels],
        label_sets=corpus.label_sets if setting.has_sets else None,
        label_names=encode if setting.has_names else None,
    )
    if setting.has_vocabulary:
        vocabulary = sorted(corpus.name_by_label)
        is_readable = encode(vocabulary).any(axis=1)
        tagger.add_labels(list(compress(vocabulary, is_readable)), encode)
    fitted = time.process_time()
    test = corpus.splits["test"]
    rankings = rank(tagger, extractor.transform(test.texts))
    ranked = time.process_time()
    validate = corpus.splits["validate"]
    cut = best_cut(rank(tagger, extractor.transform(validate.texts)), validate)
    best_five = [ranking.cut(5, 0) for ranking in rankings]
    return {
        "F1@5": f1_score(best_five, test),
        "precision@5": precision(best_five, test),
        "NDCG": ndcg([ranking.cut(MOST_LABELS, 0) for ranking in rankings], test),
        "F1, tuned": f1_score([ranking.cut(*cut) for ranking in rankings], test),
        "seconds, fit": fitted - start,
        "seconds, test": ranked - fitted,
    }


def rank(tagger: ZeroShotTagger, X: NDArray[Any]) -> list[Ranking]:
    """Return the best labels of items, with their probabilities."""
    labels, probabilities = tagger.rank(X, k=max(LIMITS))
    rankings = []
    for item_labels, item_probabilities in zip(labels, probabilities, strict=True):
        rankings.append(Ranking(item_labels.tolist(), item_probabilities.tolist()))
    return rankings


# ------------------------------------------------------------------ Annif


class Annif:
    """Annif's command in a folder of its own."""

    def __init__(self, program: str, folder: Path, corpus: Corpus) -> None:
        self.program = program
        self.folder = folder
        self.projects = {name: {**COMMON, **options} for name, options in PROJECTS.items()}
        self.seconds = 0.0  # of the processor, for all commands so far
        self.fit_seconds: dict[str, float] = {}  # by project, with those of an ensemble's sources
        self._write_projects()
        with (folder / "yso.tsv").open("w", encoding="utf-8") as lines:
            for label, name in sorted(corpus.name_by_label.items()):
                lines.write(f"<{PREFIX}{label}>\t{name}\n")
        for split, questions in corpus.splits.items():
            self._write_questions(split, questions)
        self.run("load-vocab", "--language", "fi", "yso", "yso.tsv")

    def _write_projects(self) -> None:
        """Write the configuration of all projects."""
        lines = []
        for name, options in self.projects.items():
            lines += [f"[{name}]", f"name = {name}"]
            lines += [f"{key} = {value}" for key, value in options.items()]
        (self.folder / "projects.cfg").write_text("\n".join(lines), encoding="utf-8")

    def _write_questions(self, split: str, questions: Questions) -> None:
        """Write questions as Annif reads them."""
        with (self.folder / f"{split}.jsonl").open("w", encoding="utf-8") as lines:
            for text, labels in zip(questions.texts, questions.labels, strict=True):
                subjects = [{"uri": PREFIX + label} for label in sorted(labels)]
                lines.write(json.dumps({"text": text, "subjects": subjects}) + "\n")

    def run(self, *arguments: str) -> str:
        """Run a command of Annif on one thread and return what it prints."""
        one_thread = dict.fromkeys(
            ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.folder,
            env={**os.environ, **one_thread},
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if done.returncode:
            raise SystemExit(f"annif {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
        return done.stdout

    def train(self, project: str) -> None:
        """Train a project; those that an ensemble is made of have to be trained before."""
        start = self.seconds
        if project == "weighted":
            self.projects[project]["sources"] = SOURCES
            self._write_projects()
            trials = ("--trials", str(N_TRIALS), "--jobs", "1")
            printed = self.run("hyperopt", project, "validate.jsonl", *trials)
            weights = re.search(r"^sources=(\S+)$", printed, re.MULTILINE)
            assert weights is not None, printed
            self.projects[project]["sources"] = weights[1]
            self._write_projects()
        elif project == "neural":
            self.run("train", project, "validate.jsonl", "--jobs", "1")
        elif project != "ensemble":
            self.run("train", project, "train.jsonl", "--jobs", "1")
        seconds = self.seconds - start
        if "sources" in PROJECTS[project]:
            seconds += sum(self.fit_seconds[source] for source in SOURCES.split(","))
        self.fit_seconds[project] = seconds

    def evaluate(self, project: str, *options: str) -> dict[str, float]:
        """Return what `annif eval` measures on the test part, in percent."""
        self.run("eval", project, "test.jsonl", "--metrics-file", "measures.json", *options)
        measures = json.loads((self.folder / "measures.json").read_text())
        return {name: 100 * value for name, value in measures.items()}

    def best_cut(self, project: str) -> tuple[str, str]:
        """Return the limit and the threshold that `annif optimize` finds on the validation part."""
        printed = self.run("optimize", project, "validate.jsonl")
        match = re.search(r"F1 score \(doc avg\):.*Limit:\s*(\d+)\s*Threshold:\s*(\S+)", printed)
        assert match is not None, printed
        return match[1], match[2]


def measure_annif(annif: Annif, project: str) -> dict[str, float]:
    """Train a project of Annif and measure it on the test part."""
    annif.train(project)
    start = annif.seconds
    measures = annif.evaluate(project)
    test_seconds = annif.seconds - start
    limit, threshold = annif.best_cut(project)
    tuned = annif.evaluate(project, "--limit", limit, "--threshold", threshold)
    return {
        "F1@5": measures["F1@5"],
        "precision@5": measures["Precision@5"],
        "NDCG": measures["NDCG"],
        "F1, tuned": tuned["F1_score_doc_avg"],
        "seconds, fit": annif.fit_seconds[project],
        "seconds, test": test_seconds,
    }


# ------------------------------------------------------------------ all


def main() -> None:
    """Run all methods with all seeds, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--methods", nargs="+", default=list(TITLES), choices=list(TITLES))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PolysemeWarning)
    corpus = load_corpus()
    methods = arguments.methods
    program = shutil.which("annif")
    if program is None:
        methods = [method for method in methods if method in OURS]
        print("`annif` is not on the PATH: only polyseme is measured.\n")
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        annif = None if program is None else Annif(program, Path(folder), corpus)
        for seed in range(N_SEEDS):
            for method in methods:
                if method in OURS:
                    measures = measure_ours(corpus, OURS[method], seed)
                else:
                    assert annif is not None
                    measures = measure_annif(annif, method)
                results.append({"method": method, "seed": seed, **measures})
                arguments.out.write_text(json.dumps(results, indent=1))
    print(f"| | {' | '.join(MEASURES)} |")
    print(f"|---|{'---:|' * len(MEASURES)}")
    for method in methods:
        print(line_of(results, method))


def line_of(results: Sequence[dict[str, Any]], method: str) -> str:
    """Return the means of a method, with standard errors, as a line of a table."""
    cells = []
    for title in MEASURES:
        values = [result[title] for result in results if result["method"] == method]
        mean = float(np.mean(values))
        if title.startswith("seconds"):
            cells.append(f"{mean:.1f}" if mean < 10 else f"{mean:.0f}")
            continue
        error = float(np.std(values, ddof=1)) / len(values) ** 0.5
        cells.append(f"{mean:.1f} ± {error:.1f}")
    return f"| {TITLES[method]} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
