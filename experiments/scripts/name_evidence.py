r"""Compare the default with and without names of labels, on five label splits of each corpus.

    pip install '.[use]'
    python experiments/scripts/name_evidence.py --out names.json

In: `$POLYSEME_DATA`. Out: for each corpus E-MAP and C-MAP of seen labels, of all and of unseen
ones, and the calibration error of each kind, in percent; means and paired differences with standard
errors. A quarter of the labels is unseen; items that carry one are tested. Features and names of
texts come from `TextFeatures`, fitted to the training texts of each split: of titles and mediums of
3,500 artworks of Tate (drawn by `prepare_tate.py`) with the Universal Sentence Encoder, of Annif's
questions, in Finnish, without a network. All other corpora have features of their own and names
from GloVe. Beside it stand the cosine of item and name alone, and ESZSL (Romera-Paredes and Torr,
2015) with these names as attributes.

Where names are comparable, all unseen labels are also left out of the documents and added by name.
The calibration error is that on tested items, which all carry an unseen label.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from prepare_tate import FEWEST_USES, draw_artworks
from sklearn.preprocessing import normalize

from polyseme import LabelCorpus, TextFeatures, WordVectors, ZeroShotTagger
from polyseme.base.extractors import fitted_copy
from polyseme.base.validation import PolysemeWarning
from polyseme.media import Extracted
from polyseme.metrics import concept_map, example_map, expected_calibration_error
from polyseme_experiments.datasets import load_dataset
from polyseme_experiments.splits import (
    LabelSplit,
    ZeroShotSplit,
    evaluation_columns,
    measure,
    random_labels,
    within_corpus,
)

Floats = NDArray[np.float64]

N_SPLITS = 5
FIRST_SHARE = 2 / 3
CORPORA = ("tate", "annif", "hsun", "corel5k", "msd-subset")
# Labels of texts on fewer items than this are left out.
LEAST_USES = 10
# ESZSL's two penalties, chosen on labels made unseen.
PENALTIES = tuple(10.0**exponent for exponent in range(-2, 4))


class Data(NamedTuple):
    """Items with their labels, and names of labels."""

    X: Any  # (n, n_features), or texts
    corpus: LabelCorpus
    label_names: Any  # as `fit` takes them; None where an extractor reads them
    extractor: TextFeatures | None = None  # of texts, and of names
    name_by_label: dict[str, str] = {}  # where a label is no name itself  # noqa: RUF012
    items: Any = None  # texts as raw numbers, where they are encoded
    n_item_columns: int | None = None  # of the columns of X that describe items; None for all
    first_name_column: int = 0  # of the columns of X by which items and names are compared
    detectors: tuple[str, ...] = ()  # the label that each column of X was trained on

    @property
    def is_comparable(self) -> bool:
        """Whether items and names come from one encoder."""
        return self.extractor is not None

    def encoded(self, train_rows: Any) -> Data:
        """Return it with features in place of texts, by an extractor that training rows fitted."""
        if self.extractor is None:
            return self
        raw = self.extractor.raw(self.X)
        train_items = [raw[row] for row in train_rows]
        extractor, _ = fitted_copy(self.extractor, self.extracted(train_items), seed=0)

        def encode(labels: Sequence[str]) -> Any:
            return extractor.encode_names(
                [self.name_by_label.get(label, label) for label in labels]
            )

        first_name_column = extractor.name_columns_[0].first
        return self._replace(
            X=extractor.transform_raw(raw).astype(np.float64),
            items=self.extracted(raw),
            label_names=encode,
            first_name_column=first_name_column,
            n_item_columns=extractor.n_item_columns_,
        )

    def extracted(self, raw: Sequence[Any]) -> Extracted:
        """Return raw numbers of texts as a tagger takes them."""
        assert self.extractor is not None
        ids = tuple(str(row) for row in range(len(raw)))
        return Extracted("text", self.extractor.preprocessing(), ids, raw)

    def training(self, rows: Any, *, with_names: bool) -> tuple[Any, Any]:
        """Return a tagger that is not fitted, and items for it.

        With names, a tagger of texts has the extractor; without, it takes the same numbers.
        """
        if self.items is None or not with_names:
            X = (
                self.X
                if self.n_item_columns is None
                else self.X[:, : self.n_item_columns].toarray()
            )
            return None, X[rows]
        return self.extractor, self.items[rows]


def load_tate() -> Data:
    """Load titles and mediums of some artworks; those without a frequent subject are left out."""
    artworks = draw_artworks(Path(os.environ["POLYSEME_DATA"], "tate", "documents.jsonl.gz"))
    uses = Counter(label for artwork in artworks for label in artwork["labels"])
    texts = []
    tags = []
    for artwork in artworks:
        frequent = [label for label in artwork["labels"] if uses[label] >= FEWEST_USES]
        if frequent:
            texts.append(f"{artwork['title']}. {artwork['medium']}")
            tags.append(frequent)
    extractor = TextFeatures(network="use", random_state=0)
    return Data(texts, LabelCorpus.from_documents(tags), None, extractor)


def load_annif() -> Data:
    """Load Annif's questions to librarians; labels are identifiers and have names."""
    folder = Path(os.environ["POLYSEME_DATA"], "annif-kirjastonhoitaja")
    with gzip.open(folder / "documents.jsonl.gz", "rt", encoding="utf-8") as lines:
        questions = [json.loads(line) for line in lines]
    uses: dict[str, int] = {}
    name_by_label: dict[str, str] = {}
    for question in questions:
        for label, name in zip(question["labels"], question["names"], strict=True):
            uses[label] = uses.get(label, 0) + 1
            name_by_label[label] = name
    texts = []
    tags = []
    for question in questions:
        frequent = [label for label in question["labels"] if uses[label] >= LEAST_USES]
        if frequent:
            texts.append(question["text"])
            tags.append(frequent)
    corpus = LabelCorpus.from_documents(tags, normalize=False)
    return Data(texts, corpus, None, TextFeatures(random_state=0), name_by_label)


def load_other(name: str) -> Data:
    """Load a corpus with features of another encoder than its names, which are GloVe's."""
    dataset = load_dataset(name)
    names = WordVectors.find(labels=dataset.corpus.labels)
    assert dataset.X is not None
    detectors = tuple(dataset.feature_names or ()) if dataset.spec.detectors else ()
    X = dataset.X.astype(np.float64)
    return Data(X, dataset.corpus, names, detectors=detectors)


def name_table(data: Data, labels: Sequence[str]) -> Any:
    """Return the vectors of labels' names, (n_labels, n_features)."""
    if callable(data.label_names):
        return data.label_names(list(labels))
    return data.label_names.label_vectors(list(labels))[0]


def draw_split(corpus: LabelCorpus, seed: int) -> tuple[LabelSplit, ZeroShotSplit]:
    """Draw unseen labels, and two thirds of the documents as the first part.

    Items of the second part without an unseen label are trained with as well; see `within_corpus`.
    """
    labels = random_labels(corpus, unseen_share=0.25, random_state=seed)
    split = within_corpus(corpus, labels, first=FIRST_SHARE, validation=0, random_state=seed)
    return labels, split


def compared(data: Data, vectors: Any) -> Any:
    """Return the columns of items' or names' vectors by which both are compared, at length 1.

    Of texts these are a network's vectors, of length 1, and letter groups, of length 1.
    """
    return normalize(vectors[:, data.first_name_column :])


def cosines(data: Data, split: ZeroShotSplit, labels: Sequence[str]) -> Floats:
    """Score test items by the cosine of their features and labels' names."""
    names = compared(data, name_table(data, labels))
    items = compared(data, data.X[split.test])
    scores: Any = items @ names.T
    return np.asarray(scores.toarray() if sp.issparse(scores) else scores)


def eszsl(data: Data, split: ZeroShotSplit, labels: LabelSplit, seed: int) -> Floats:
    """Score test items by a bilinear map from features to names, in closed form."""
    X = compared(data, data.X)
    rows = np.union1d(split.train, split.validation)
    train = X[rows]
    table = data.corpus.align(labels.seen)[0][rows][:, : len(labels.seen)]
    carried = table.toarray().astype(np.float64)
    # Centred: with targets of 1 and -1 a map without intercepts mostly learns that tags are rare.
    targets = carried - carried.mean(axis=0)
    seen_names = compared(data, name_table(data, labels.seen))
    n_hidden = len(labels.seen) // 5
    hidden = np.random.default_rng(seed).permutation(len(labels.seen))[:n_hidden]
    is_hidden = np.isin(np.arange(len(labels.seen)), hidden)
    is_shown_item = ~carried[:, is_hidden].any(axis=1)
    truth = carried[~is_shown_item][:, is_hidden] > 0

    def fit(items: Any, targets: Floats, names: Any, penalties: tuple[float, float]) -> Any:
        # Dual form on both sides, whatever there is less of: items or features, labels or names.
        gram = items @ items.T
        gram = gram.toarray() if sp.issparse(gram) else gram
        name_gram = names @ names.T
        name_gram = name_gram.toarray() if sp.issparse(name_gram) else name_gram
        weights = np.linalg.solve(gram + penalties[0] * np.eye(len(gram)), targets)
        weights = np.linalg.solve(name_gram + penalties[1] * np.eye(len(name_gram)), weights.T).T
        return lambda others, other_names: np.asarray(
            _dense(others @ items.T) @ weights @ _dense(names @ other_names.T)
        )

    best, best_quality = (1.0, 1.0), -1.0
    for item_penalty in PENALTIES:
        for name_penalty in PENALTIES:
            penalties = (item_penalty, name_penalty)
            shown_targets = targets[is_shown_item][:, ~is_hidden]
            score = fit(train[is_shown_item], shown_targets, seen_names[~is_hidden], penalties)
            scores = score(train[~is_shown_item], seen_names[is_hidden])
            quality = example_map(truth, scores) + concept_map(truth, scores)
            if quality > best_quality:
                best, best_quality = penalties, quality
    score = fit(train, targets, seen_names, best)
    vocabulary = labels.vocabulary
    return np.asarray(score(X[split.test], compared(data, name_table(data, vocabulary))))


def _dense(table: Any) -> Any:
    """Return a table as an array."""
    return table.toarray() if sp.issparse(table) else table


def load(name: str) -> Data:
    """Load a corpus by its name."""
    if name == "tate":
        return load_tate()
    return load_annif() if name == "annif" else load_other(name)


def figures(
    split: ZeroShotSplit, labels: LabelSplit, scores: Floats, scored: Sequence[str]
) -> dict[str, float]:
    """Return E-MAP and C-MAP of each set of labels."""
    columns = evaluation_columns(labels)
    truth = split.instances("test")
    values: dict[str, float] = {}
    for column, measures in measure(truth, scores, scored, columns).items():
        for title in ("E-MAP", "C-MAP"):
            values[f"{column} {title}"] = measures[title]
    return values


def calibration(
    split: ZeroShotSplit, labels: LabelSplit, probabilities: Floats, scored: Sequence[str]
) -> dict[str, float]:
    """Return the expected calibration error of seen and of unseen labels, in percent."""
    truth_corpus = split.instances("test")
    column_by_label = {str(label): column for column, label in enumerate(scored)}
    errors: dict[str, float] = {}
    for kind, kind_labels in (("training", labels.seen), ("zsl-only", labels.unseen)):
        names = [label for label in kind_labels if label in column_by_label]
        columns = [column_by_label[name] for name in names]
        truth = truth_corpus.align(names)[0][:, : len(names)].toarray().astype(bool)
        error = expected_calibration_error(truth, probabilities[:, columns])
        errors[f"{kind} calibration error"] = 100 * error
    return errors


def run_split(task: tuple[str, int]) -> dict[str, Any]:
    """Fit and measure all methods on one split of one corpus."""
    import torch

    torch.set_num_threads(1)
    name, seed = task
    warnings.simplefilter("ignore", PolysemeWarning)
    data = load(name)
    labels, split = draw_split(data.corpus, seed)
    if data.detectors:
        # Detectors of unseen labels have seen items that carry these.
        is_usable = [label not in labels.unseen for label in data.detectors]
        data = data._replace(X=data.X[:, is_usable])
    rows = np.union1d(split.train, split.validation)
    data = data.encoded(rows)
    documents = (data.corpus.select(rows), split.known())
    results: dict[str, Any] = {"corpus": name, "seed": seed}
    for method in ("without names", "with names"):
        with_names = method == "with names"
        tagger, X_test = fit_tagger(data, split, documents, seed, with_names=with_names)
        scores = tagger.decision_function(X_test)
        probabilities = tagger.predict_proba(X_test)
        classes = tagger.classes_.tolist()
        results[method] = figures(split, labels, scores, classes) | calibration(
            split, labels, probabilities, classes
        )
        if tagger.names_ is not None:
            results["weights"] = tagger.names_.weights.to_list()
        results["name share"] = tagger.name_share_
    if data.is_comparable:
        vocabulary = labels.vocabulary
        results["cosine alone"] = figures(
            split, labels, cosines(data, split, vocabulary), vocabulary
        )
        results["ESZSL"] = figures(split, labels, eszsl(data, split, labels, seed), vocabulary)
        results |= by_name_alone(data, split, labels, seed)
    return results


def fit_tagger(
    data: Data, split: ZeroShotSplit, documents: tuple[Any, Any], seed: int, *, with_names: bool
) -> tuple[ZeroShotTagger, Any]:
    """Fit a tagger to all items that are not tested; return it and the test items for it."""
    rows = np.union1d(split.train, split.validation)
    extractor, X = data.training(rows, with_names=with_names)
    _, X_test = data.training(split.test, with_names=with_names)
    tagger = ZeroShotTagger(
        features=extractor, random_state=seed, normalize_labels=False, device="cpu"
    )
    options = {"label_names": data.label_names} if with_names else {}
    tagger.fit(X, *documents, label_sets_only=True, **options)
    return tagger, X_test


def item_part_of_names(data: Data) -> Callable[[Sequence[str]], Any]:
    """Return what encodes names by the columns that describe items."""
    return lambda labels: data.label_names(labels)[:, : data.n_item_columns].toarray()


def by_name_alone(
    data: Data, split: ZeroShotSplit, labels: LabelSplit, seed: int
) -> dict[str, Any]:
    """Measure unseen labels that no document holds, added to a tagger by their names."""
    rows = np.union1d(split.train, split.validation)
    documents = (data.corpus.select(rows), split.known().restrict(labels.seen))
    truth_table = split.instances("test").align(labels.unseen)[0][:, : len(labels.unseen)]
    truth = truth_table.toarray().astype(bool)
    tagger, X_test = fit_tagger(data, split, documents, seed, with_names=True)
    tagger.add_labels(labels.unseen, data.label_names)
    qualities = {"by name, chance": 100 * float(truth.mean(axis=0)[truth.any(axis=0)].mean())}
    qualities["by name, C-MAP"] = _concept_map(concept_map, tagger, X_test, truth, labels.unseen)
    scores = cosines(data, split, labels.unseen)
    qualities["by name, cosine C-MAP"] = 100 * concept_map(truth, scores)
    # What names were worth before they were evidence: the readouts of like labels.
    plain, X_test = fit_tagger(data, split, documents, seed, with_names=False)
    plain.add_labels(labels.unseen, item_part_of_names(data))
    quality = _concept_map(concept_map, plain, X_test, truth, labels.unseen)
    qualities["by name, like labels' readouts C-MAP"] = quality
    return {"only names": qualities}


def _concept_map(
    metric: Callable[..., float], tagger: Any, X: Any, truth: Any, labels: Sequence[str]
) -> float:
    """Return the C-MAP of some labels, in percent."""
    column_by_label = {str(label): column for column, label in enumerate(tagger.classes_)}
    columns = [column_by_label[label] for label in labels]
    scores = tagger.decision_function(X)[:, columns]
    return 100 * metric(truth, scores)


def main() -> None:
    """Run all splits and print means and paired differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--corpora", nargs="+", default=CORPORA, choices=CORPORA)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    tasks = []
    for seed in range(N_SPLITS):
        tasks += [(name, seed) for name in arguments.corpora]
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(run_split, tasks))
    arguments.out.write_text(json.dumps(results, indent=1))
    for name in arguments.corpora:
        print(f"\n## {name}\n")
        print_table([result for result in results if result["corpus"] == name])


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """Print the means over splits, and the paired differences with their standard errors."""
    for method in ("without names", "with names", "cosine alone", "ESZSL", "only names"):
        if method in results[0]:
            titles = results[0][method]
            means = [f"{t} {np.mean([r[method][t] for r in results]):.1f}" for t in titles]
            print(f"{method}: {'; '.join(means)}")
    differences = []
    for title in results[0]["with names"]:
        gains = [r["with names"][title] - r["without names"][title] for r in results]
        error = np.std(gains, ddof=1) / np.sqrt(len(gains))
        differences.append(f"{title} {np.mean(gains):+.2f} ± {error:.2f}")
    print(f"difference: {'; '.join(differences)}")
    print("weights:", [np.round(r.get("weights", []), 2).tolist() for r in results])


if __name__ == "__main__":
    main()
