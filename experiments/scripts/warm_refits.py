"""Compare refits that start from a former model with new fits: processor time and quality.

Run: python experiments/scripts/warm_refits.py [--corpora hsun corel5k] [--seeds 0 1 …] [--data …]

Three ways in which a collection grows, on each split: 5 % new items; one new label on 20 items;
30 answers for each of ten labels. Both fits learn from the same data with the same plan, without
validations (those of a warm refit are carried over, which would make it look better), and are
measured on the split's test items. Lines are JSON as they come; the table is their mean.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme import ZeroShotTagger
from polyseme.documents.corpus import LabelCorpus
from polyseme.feedback.verdict_log import Verdict
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.settings import get_setting
from polyseme_experiments.trials import Trial

NEW_ITEMS, LABELLED, ANSWERED, ANSWERS = 0.05, 20, 10, 30


class Data(NamedTuple):
    """What a fit learns from."""

    X: NDArray[np.float32]
    documents: LabelCorpus
    label_sets: LabelCorpus
    verdicts: tuple[Verdict, ...] = ()


class Growth(NamedTuple):
    """A collection before and after, and the labels that the change is about, if any."""

    name: str
    before: Data
    after: Data
    labels: tuple[str, ...] = ()


def growths(trial: Trial, generator: np.random.Generator) -> Iterator[Growth]:
    """Yield the ways in which the training items of a trial grow."""
    whole = Data(trial.train_features, trial.train_documents, trial.known_documents)
    tested = frozenset(trial.split.target.select(trial.split.test).without_unused().labels)
    yield _new_items(whole, generator)
    yield _new_label(whole, tested, generator)
    yield _answers(whole, tested, generator)


def _new_items(whole: Data, generator: np.random.Generator) -> Growth:
    """Return a collection that gets its last items, and their documents, only now."""
    n = len(whole.documents)
    rows = np.sort(generator.permutation(n)[: round(n * (1 - NEW_ITEMS))])
    left_out = set(whole.documents.ids) - {whole.documents.ids[row] for row in rows}
    known_rows = [row for row, name in enumerate(whole.label_sets.ids) if name not in left_out]
    before = Data(
        whole.X[rows], whole.documents.select(rows), whole.label_sets.select(np.array(known_rows))
    )
    return Growth("5 % new items", before, whole)


def _common(documents: LabelCorpus, least: int, tested: frozenset[str]) -> NDArray[np.int64]:
    """Return the columns of labels that so many items carry, and some test item."""
    counts = np.asarray(documents.matrix.sum(axis=0)).ravel()
    is_tested = np.array([label in tested for label in documents.labels])
    return np.flatnonzero((counts >= least) & is_tested)


def _new_label(whole: Data, tested: frozenset[str], generator: np.random.Generator) -> Growth:
    """Return a collection in which a seen label was unheard of, and is said of 20 items now."""
    column = int(generator.choice(_common(whole.documents, LABELLED, tested)))
    label = whole.documents.labels[column]
    carrying = np.flatnonzero(whole.documents.matrix[:, [column]].toarray().ravel())
    labelled = {whole.documents.ids[row] for row in generator.permutation(carrying)[:LABELLED]}

    def with_label(corpus: LabelCorpus, labelled_names: set[str]) -> LabelCorpus:
        documents = [
            tags if name in labelled_names else [tag for tag in tags if tag != label]
            for name, tags in zip(corpus.ids, corpus, strict=True)
        ]
        return LabelCorpus.from_documents(documents, ids=corpus.ids, normalize=corpus.normalize)

    before, after = (
        Data(
            whole.X,
            with_label(whole.documents, labelled_names),
            with_label(whole.label_sets, labelled_names),
        )
        for labelled_names in (set[str](), labelled)
    )
    return Growth("one new label", before, after, (label,))


def _answers(whole: Data, tested: frozenset[str], generator: np.random.Generator) -> Growth:
    """Return a collection for which 30 yes or no are given on each of ten labels.

    A half of the items that carry such a label have lost it, and half of the answers are on these.
    """
    columns = generator.permutation(_common(whole.documents, ANSWERS, tested))[:ANSWERED]
    truth = whole.documents.matrix.toarray()
    lost_labels: dict[str, set[str]] = {}
    verdicts = []
    for column in columns.tolist():
        label, carrying = whole.documents.labels[column], np.flatnonzero(truth[:, column])
        forgotten = generator.permutation(carrying)[: len(carrying) // 2]
        negatives = generator.permutation(np.flatnonzero(~truth[:, column]))
        for row in forgotten.tolist():
            lost_labels.setdefault(whole.documents.ids[row], set()).add(label)
        queried = [
            *forgotten[: ANSWERS // 2].tolist(),
            *negatives[: ANSWERS - ANSWERS // 2].tolist(),
        ]
        ids = whole.documents.ids
        verdicts += [Verdict(ids[row], label, bool(truth[row, column])) for row in queried]

    def without(corpus: LabelCorpus) -> LabelCorpus:
        documents = [
            [tag for tag in tags if tag not in lost_labels.get(name, ())]
            for name, tags in zip(corpus.ids, corpus, strict=True)
        ]
        return LabelCorpus.from_documents(documents, ids=corpus.ids, normalize=corpus.normalize)

    before = Data(whole.X, without(whole.documents), without(whole.label_sets))
    labels = tuple(whole.documents.labels[column] for column in columns.tolist())
    return Growth("300 answers", before, before._replace(verdicts=tuple(verdicts)), labels)


def fitted(
    data: Data, seed: int, former: ZeroShotTagger | None = None
) -> tuple[ZeroShotTagger, float]:
    """Return a fitted tagger and the seconds of the processor that it took."""
    tagger = ZeroShotTagger(n_validations=0, device="cpu", random_state=seed)
    start = time.process_time()
    tagger.fit(
        data.X,
        data.documents,
        data.label_sets,
        verdicts=data.verdicts,
        label_sets_only=True,
        warm_start_from=former,
    )
    return tagger, time.process_time() - start


def measured(trial: Trial, tagger: ZeroShotTagger, labels: tuple[str, ...]) -> dict[str, float]:
    """Return E-MAP and C-MAP in percent: of all labels, seen ones, unseen ones and some."""
    scores = tagger.decision_function(trial.features(trial.split.test))
    metrics = trial.measure(scores, tuple(tagger.classes_.tolist()))
    names = {"all": "zsl", "seen": "training", "unseen": "zsl-only"}
    figures = {
        f"{measure} {name}": metrics[key][f"{measure}-MAP"]
        for name, key in names.items()
        if key in metrics
        for measure in "EC"
    }
    if labels:
        figures["AP of these labels"] = _mean_precision(trial, tagger, scores, labels)
    return figures


def _mean_precision(
    trial: Trial, tagger: ZeroShotTagger, scores: NDArray[np.float64], labels: tuple[str, ...]
) -> float:
    """Return the mean average precision of some labels on the test items, in percent."""
    from polyseme.metrics import concept_map

    tested = trial.split.target.select(trial.split.test)
    truth = tested.align(labels)[0][:, : len(labels)].toarray()
    classes = tagger.classes_.tolist()
    columns = [classes.index(label) for label in labels]
    return 100 * float(concept_map(truth, scores[:, columns]))


def compare(corpus: str, seed: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield a record for each growth of one split."""
    trial = Trial(get_setting(corpus), 0, RunConfig(data=data, seed=seed))
    for growth in growths(trial, np.random.default_rng(seed)):
        former, _ = fitted(growth.before, seed)
        new, new_seconds = fitted(growth.after, seed + 1)
        warm, warm_seconds = fitted(growth.after, seed + 1, former)
        figures = {
            name: measured(trial, tagger, growth.labels)
            for name, tagger in (("new", new), ("warm", warm))
        }
        yield {
            "corpus": corpus,
            "seed": seed,
            "growth": growth.name,
            "time ratio": warm_seconds / new_seconds,
            "seconds": new_seconds,
            "new": figures["new"],
            "difference": {
                name: figures["warm"][name] - value for name, value in figures["new"].items()
            },
        }


def table(records: list[dict[str, Any]]) -> str:
    """Return the means over splits with their standard errors, as Markdown."""
    names = list(
        dict.fromkeys(name for record_of_run in records for name in record_of_run["difference"])
    )
    lines = ["| | splits | time | " + " | ".join(names) + " |", "|---" * (3 + len(names)) + "|"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["corpus"], record["growth"]), []).append(record)
    for (corpus, growth), several in groups.items():
        ratios = [record["time ratio"] for record in several]
        cells = [f"{np.mean(ratios):.3f} (at most {max(ratios):.3f})"]
        for name in names:
            values = [record["difference"].get(name, np.nan) for record in several]
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            is_measured = not np.isnan(values).any()
            cells.append(f"{np.mean(values):+.2f} ± {error:.2f}" if is_measured else "")
        lines.append(f"| {corpus}, {growth} | {len(several)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print a line for each refit, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", nargs="+", default=["hsun", "corel5k"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYSEME_DATA", "data")))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    records = []
    for corpus in arguments.corpora:
        for seed in arguments.seeds:
            for record in compare(corpus, seed, arguments.data):
                records.append(record)
                print(json.dumps(record), flush=True)
    print(table(records))


if __name__ == "__main__":
    main()
