r"""Compare the default with simple rankers and tuned COSTA where features are rich.

    python experiments/scripts/prepare_tate.py --out tate
    python experiments/scripts/rich_features.py tate --hidden 0.25

    python experiments/scripts/prepare_icons.py --packages . --out icons
    polyseme extract image icons --out numbers
    python experiments/scripts/rich_features.py numbers --tags icons/tags.jsonl \\
        --hidden 15 --pool 0.2

In: a folder with `features.npy` and, there or elsewhere, `tags.jsonl`, in the same order unless
`files.jsonl` says otherwise. A draw holds out a fifth of the items and hides tags: items that carry
a hidden one teach only by their tag sets. Out: E-MAP and precision at 5 over all tags and all
held-out items, C-MAP of seen and of hidden tags on them, in percent, a line for each method and
draw, and their means.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme import LabelCorpus, ZeroShotTagger
from polyseme.metrics import concept_map, example_map
from polyseme_experiments.baselines import Popularity, TunedCosta

Floats = NDArray[np.float64]

TEST_SHARE = 0.2
# Of frequent tags so many may be hidden; of a share of all tags, those on at least so many items.
FREQUENT, LEAST_ITEMS = 150, 10
# Hidden tags may be on this share of the items at most.
MOST_CARRYING = 0.45
PENALTIES = (100.0, 300.0, 1000.0, 3000.0)
NEIGHBOURS = 15


class Draw(NamedTuple):
    """What is learned from and what is held out in one draw."""

    X: Floats
    documents: LabelCorpus
    label_sets: LabelCorpus
    X_test: Floats
    truth: NDArray[np.bool_]  # (n_test, n_labels)
    labels: tuple[str, ...]
    hidden: NDArray[np.bool_]  # (n_labels,)


class Ranker(Protocol):
    """Returns scores (n_test, n_labels) of the held-out items of a draw."""

    def __call__(self, draw: Draw, seed: int) -> Floats:
        """Learn and score."""


def draw_split(X: Floats, corpus: LabelCorpus, hidden: float, pool: float, seed: int) -> Draw:
    """Draw which items are held out, and which tags are hidden."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(corpus))
    n_test = round(TEST_SHARE * len(corpus))
    test, remaining = order[:n_test], order[n_test + round(pool * len(corpus)) :]
    table = np.asarray(corpus.matrix.toarray(), dtype=bool)
    counts = table[remaining].sum(axis=0)
    if hidden >= 1:
        candidates = np.argsort(-counts, kind="stable")[:FREQUENT]
        chosen = generator.permutation(candidates)[: int(hidden)]
    else:
        candidates = np.flatnonzero(counts >= LEAST_ITEMS)
        chosen = generator.permutation(candidates)[: round(hidden * table.shape[1])]
        carrying = np.logical_or.accumulate(table[remaining][:, chosen], axis=1).mean(axis=0)
        chosen = chosen[carrying <= MOST_CARRYING]
    is_hidden = np.zeros(table.shape[1], dtype=bool)
    is_hidden[chosen] = True
    remaining = np.sort(remaining[table[remaining].any(axis=1)])
    trained = remaining[~table[remaining][:, chosen].any(axis=1)]
    label_sets = corpus.select(remaining).without_unused()
    columns = [corpus.labels.index(label) for label in label_sets.labels]
    return Draw(
        X[trained],
        corpus.select(trained),
        label_sets,
        X[test],
        table[test][:, columns],
        label_sets.labels,
        is_hidden[columns],
    )


def in_order(classes: NDArray[np.object_], scores: Floats, labels: Sequence[str]) -> Floats:
    """Return scores with columns in the order of some labels."""
    column_of = {str(label): column for column, label in enumerate(classes)}
    return np.asarray(scores[:, [column_of[label] for label in labels]])


def default(draw: Draw, seed: int) -> Floats:
    """Score by the default tagger."""
    tagger = ZeroShotTagger(n_validations=0, random_state=seed)
    tagger.fit(draw.X, draw.documents, draw.label_sets, label_sets_only=True)
    return in_order(tagger.classes_, tagger.predict_proba(draw.X_test), draw.labels)


def tuned_costa(draw: Draw, seed: int) -> Floats:
    """Score by tuned COSTA: kernel ridge regression, and ridge regression to unseen labels."""
    costa = TunedCosta(random_state=seed)
    costa.fit(draw.X, draw.documents, draw.label_sets, label_sets_only=True)
    return in_order(costa.classes_, costa.decision_function(draw.X_test), draw.labels)


def popularity(draw: Draw, seed: int) -> Floats:
    """Score by how frequent tags are."""
    ranker = Popularity().fit(draw.X, draw.documents, draw.label_sets, label_sets_only=True)
    return in_order(ranker.classes_, ranker.decision_function(draw.X_test), draw.labels)


def standardised(draw: Draw) -> tuple[Floats, Floats]:
    """Return the features of training and of held-out items, standardised by the former."""
    centre, spread = draw.X.mean(axis=0), draw.X.std(axis=0) + 1e-6
    return (draw.X - centre) / spread, (draw.X_test - centre) / spread


def seen_truth(draw: Draw) -> Floats:
    """Return which seen labels training items carry, (n, n_seen)."""
    table = draw.documents.align(draw.labels)[0][:, : len(draw.labels)].toarray()
    return np.asarray(table[:, ~draw.hidden], dtype=np.float64)


def with_hidden(draw: Draw, seen_scores: Floats, spreads: Floats) -> Floats:
    """Return scores of all labels: hidden ones by the seen labels that they occur with."""
    sets = sp.csr_matrix(draw.label_sets.align(draw.labels)[0], dtype=np.float64)
    together = np.asarray((sets.T @ sets)[draw.hidden][:, ~draw.hidden].toarray())
    weights = together / np.maximum(together.sum(axis=1, keepdims=True), 1)
    frequencies = np.asarray(sets.mean(axis=0)).ravel()
    deviations = (seen_scores - seen_scores.mean(axis=0)) / spreads
    scores = np.empty((len(seen_scores), len(draw.labels)))
    scores[:, ~draw.hidden] = seen_scores
    prior = frequencies[draw.hidden]
    spread = np.median(spreads / np.sqrt(np.maximum(frequencies[~draw.hidden], 1e-4)))
    scores[:, draw.hidden] = prior + deviations @ weights.T * spread * np.sqrt(prior)
    return scores


def ridge(draw: Draw, seed: int, penalty: float) -> Floats:
    """Score by ridge regression with co-occurrence."""
    train, test = standardised(draw)
    truth = seen_truth(draw)
    centred = truth - truth.mean(axis=0)
    scatter = train.T @ train + penalty * np.eye(train.shape[1])
    coefficients = np.linalg.solve(scatter, train.T @ centred)
    spreads = (train @ coefficients).std(axis=0) + 1e-9
    return with_hidden(draw, test @ coefficients + truth.mean(axis=0), spreads)


def kernel_ridge(draw: Draw, seed: int, penalty: float = 1.0) -> Floats:
    """Score by kernel ridge regression (Gaussian kernel, median distance) with co-occurrence."""
    from sklearn.metrics.pairwise import rbf_kernel

    train, test = standardised(draw)
    truth = seen_truth(draw)
    sample = train[:: max(len(train) // 500, 1)]
    squares = (sample**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * sample @ sample.T
    gamma = 1 / np.median(distances[distances > 1e-6])
    kernel = rbf_kernel(train, gamma=gamma)
    centred = truth - truth.mean(axis=0)
    weights = np.linalg.solve(kernel + penalty * np.eye(len(kernel)), centred)
    spreads = (kernel @ weights).std(axis=0) + 1e-9
    scores = rbf_kernel(test, train, gamma=gamma) @ weights + truth.mean(axis=0)
    return with_hidden(draw, scores, spreads)


def neighbours(draw: Draw, seed: int) -> Floats:
    """Score by the nearest items, weighted by their cosine, with co-occurrence."""
    train, test = standardised(draw)
    train /= np.linalg.norm(train, axis=1, keepdims=True) + 1e-9
    test /= np.linalg.norm(test, axis=1, keepdims=True) + 1e-9
    truth = seen_truth(draw)
    cosines = test @ train.T
    nearest = np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    weights = np.maximum(np.take_along_axis(cosines, nearest, axis=1), 0)
    weights /= weights.sum(axis=1, keepdims=True) + 1e-9
    scores = np.einsum("nk,nkl->nl", weights, truth[nearest]) + 1e-3 * truth.mean(axis=0)
    return with_hidden(draw, scores, scores.std(axis=0) + 1e-6)


METHODS: dict[str, Ranker] = {
    "polyseme, default": default,
    "tuned COSTA": tuned_costa,
    "nearest neighbours": neighbours,
    "kernel ridge": kernel_ridge,
    "popularity": popularity,
}
for _penalty in PENALTIES:
    METHODS[f"ridge, penalty {_penalty:g}"] = lambda draw, seed, penalty=_penalty: ridge(
        draw, seed, penalty
    )


def measure(draw: Draw, scores: Floats) -> dict[str, float]:
    """Return what scores of the held-out items are worth, in percent."""
    tagged = draw.truth.any(axis=1)
    truth, scores = draw.truth[tagged], scores[tagged]
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    with_hidden_tag = truth[:, draw.hidden].any(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "E-MAP": 100 * float(example_map(truth, scores)),
            "P@5": 100 * float(np.take_along_axis(truth, best, axis=1).mean()),
            "E-MAP, some hidden": 100
            * float(example_map(truth[with_hidden_tag], scores[with_hidden_tag])),
            "C-MAP seen": 100 * float(concept_map(truth[:, ~draw.hidden], scores[:, ~draw.hidden])),
            "C-MAP hidden": 100 * float(concept_map(truth[:, draw.hidden], scores[:, draw.hidden])),
        }


def compare(
    X: Floats, corpus: LabelCorpus, arguments: argparse.Namespace
) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield the figures of every method in every draw."""
    for seed in arguments.seeds:
        draw = draw_split(X, corpus, arguments.hidden, arguments.pool, seed)
        for name in arguments.methods or METHODS:
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                figures = measure(draw, METHODS[name](draw, seed))
            yield name, seed, figures | {"seconds": time.process_time() - start}


def main() -> None:
    """Print a line for each method and draw, then the means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="has features.npy")
    parser.add_argument("--tags", type=Path, help="tags.jsonl, where it is elsewhere")
    parser.add_argument(
        "--hidden", type=float, default=0.25, help="a share of the tags, or how many"
    )
    parser.add_argument("--pool", type=float, default=0.0, help="a share of items to leave out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    arguments = parser.parse_args()

    X, corpus = read_collection(arguments.folder, arguments.tags)
    figures: dict[str, list[dict[str, float]]] = {}
    for name, seed, values in compare(X, corpus, arguments):
        figures.setdefault(name, []).append(values)
        print(json.dumps({"method": name, "seed": seed, **values}), flush=True)
    for name, draws in figures.items():
        means = {key: np.mean([values[key] for values in draws]) for key in draws[0]}
        print(f"{name:22s}", *(f"{key} {value:.1f}" for key, value in means.items()), sep="  ")


def read_collection(folder: Path, tags: Path | None) -> tuple[Floats, LabelCorpus]:
    """Read features and the tags of the same items; `files.jsonl` of an extraction says which."""
    X = np.asarray(np.load(folder / "features.npy"), dtype=np.float64)
    lines = (tags or folder / "tags.jsonl").read_text("utf-8").splitlines()
    documents = {item["id"]: item["tags"] for item in map(json.loads, lines)}
    files = folder / "files.jsonl"
    if files.exists():
        entries = [json.loads(line) for line in files.read_text("utf-8").splitlines()]
        placed = {entry["row"]: entry["file"] for entry in entries if entry.get("row") is not None}
        ids = [placed[row] for row in range(len(X))]
    else:
        ids = list(documents)
    return X, LabelCorpus.from_documents([documents[name] for name in ids], ids=ids)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
