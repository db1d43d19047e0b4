r"""Compare the senses of a label with the paths that Tate's own subject index has for it.

    python experiments/scripts/senses_against_paths.py --out senses.json

In: tag sets of the corpus `tate` in `$POLYSEME_DATA`, leaves of the index alone. Subjects on fewer
than ten artworks are left out. Tested are leaves with at least 20 artworks on two or more paths
each, such as *skull* (people|body, nature|animals: features). The tagger never sees a path.

Out: the adjusted Rand index of groups and paths, over artworks that hold the leaf on exactly one of
these paths: mean over leaves and seeds, with the standard error over leaves (of each leaf's mean
over seeds). The rivals split the same artworks, up to 1,000 a leaf: k-means on their other tags
(0/1 or TF-IDF, rows of length 1) and on their codes, with as many groups as `senses` found and with
as many as there are paths; and the senses in random order. As a bound, a logistic regression on
codes that is told the paths of four fifths of the artworks predicts those of the rest.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import normalize

from polyseme import ZeroShotTagger, load
from polyseme.base.validation import IntArray, PolysemeWarning
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.scoring.senses import label_senses

LEAST_USES = 10  # artworks of a subject
N_SEEDS = 5
SUPERVISED = "logistic regression on codes"


class Artwork(NamedTuple):
    """The subjects of an artwork: leaves, and the paths that they are on."""

    tags: list[str]
    paths_by_leaf: dict[str, list[str]]


class Leaf(NamedTuple):
    """A leaf with several paths, and the number of its path by row of the artworks."""

    name: str
    n_paths: int
    path_by_row: dict[int, int]


class Task(NamedTuple):
    """The artworks to split: where they lie, and their tags other than the leaf."""

    points: NDArray[np.float32]  # (n, n_axes)
    other_tags: sp.csr_matrix  # (n, n_labels)
    frequencies: sp.csr_matrix  # TF-IDF of other_tags, (n, n_labels)


def load_artworks() -> list[Artwork]:
    """Load the tagged artworks of Tate, without rare subjects."""
    path = Path(os.environ["POLYSEME_DATA"], "tate", "documents.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    uses = Counter(label for record in records for label in set(record["labels"]))
    artworks = []
    for record in records:
        tags = [label for label in record["labels"] if uses[label] >= LEAST_USES]
        if not tags:
            continue
        paths_by_leaf = defaultdict(list)
        for path_text in record["hierarchical"]:
            paths_by_leaf[path_text.split("|")[-1]].append(path_text)
        artworks.append(Artwork(tags, paths_by_leaf))
    return artworks


def leaves_with_paths(artworks: Sequence[Artwork], fewest: int, most: int | None) -> list[Leaf]:
    """Return leaves with `fewest` artworks on each of two paths, and on no second path over `most`.

    Artworks that hold a leaf on several paths, or on a path of fewer artworks, have no path.
    """
    rows_by_path: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, artwork in enumerate(artworks):
        for leaf, paths in artwork.paths_by_leaf.items():
            if len(paths) == 1:
                rows_by_path[leaf][paths[0]].append(row)
    leaves = []
    for name, rows_of in sorted(rows_by_path.items()):
        frequent = [path for path in sorted(rows_of) if len(rows_of[path]) >= fewest]
        sizes = sorted(len(rows_of[path]) for path in frequent)
        if len(frequent) < 2 or (most is not None and sizes[-2] > most):
            continue
        path_by_row = {row: number for number, path in enumerate(frequent) for row in rows_of[path]}
        leaves.append(Leaf(name, len(frequent), path_by_row))
    return leaves


def k_means(rows: Any, n_groups: int, seed: int) -> IntArray:
    """Split rows into groups."""
    groups = KMeans(n_groups, n_init=3, random_state=seed).fit_predict(rows)
    return np.asarray(groups, dtype=np.int64)


def split_codes(task: Task, n_groups: int, seed: int) -> IntArray:
    """Split artworks by where they lie in the concept space."""
    return k_means(task.points.astype(np.float64), n_groups, seed)


def split_tags(task: Task, n_groups: int, seed: int) -> IntArray:
    """Split artworks by their other tags."""
    return k_means(normalize(task.other_tags), n_groups, seed)


def split_frequencies(task: Task, n_groups: int, seed: int) -> IntArray:
    """Split artworks by the TF-IDF of their other tags."""
    return k_means(task.frequencies, n_groups, seed)


RIVALS: dict[str, Callable[[Task, int, int], IntArray]] = {
    "k-means on codes": split_codes,
    "k-means on TF-IDF of other tags": split_frequencies,
    "k-means on other tags": split_tags,
}


def predict_paths(points: NDArray[np.float32], paths: IntArray, seed: int) -> IntArray:
    """Predict the path of each artwork from those of other_columns."""
    classifier = LogisticRegression(C=10.0, class_weight="balanced", max_iter=1000)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return np.asarray(cross_val_predict(classifier, points, paths, cv=folds), dtype=np.int64)


def measure_leaf(
    store: KnownDocuments, frequencies: sp.csr_matrix, leaf: Leaf, seed: int
) -> dict[str, Any]:
    """Return the agreement of each method with the paths of a leaf."""
    sense_map = label_senses(store, leaf.name, seed, normalize=False)
    column = store.labels.index(leaf.name)
    rows = np.flatnonzero(store.matrix[:, [column]].toarray()).astype(np.int64)
    senses = np.zeros(len(rows), dtype=np.int64)
    if sense_map is not None:
        rows, senses = sense_map.documents, sense_map.senses
    artwork_rows = [int(store.ids[row]) for row in rows]
    paths = np.array([leaf.path_by_row.get(row, -1) for row in artwork_rows])
    has_path = paths >= 0

    def agreement(groups: IntArray) -> float:
        return float(adjusted_rand_score(paths[has_path], groups[has_path]))

    other_columns = sp.diags_array(np.arange(len(store.labels)) != column, dtype=np.float64)
    task = Task(
        store.points[store.sets[rows]],
        sp.csr_matrix(store.matrix[rows] @ other_columns),
        normalize(sp.csr_matrix(frequencies[rows] @ other_columns)),
    )
    n_senses = int(senses.max()) + 1
    shuffled = np.random.default_rng(seed).permutation(senses)
    at_senses = {"senses": agreement(senses), "chance": agreement(shuffled)}
    predicted_paths = predict_paths(task.points[has_path], paths[has_path], seed)
    at_paths = {SUPERVISED: float(adjusted_rand_score(paths[has_path], predicted_paths))}
    for name, split in RIVALS.items():
        at_senses[name] = agreement(split(task, n_senses, seed))
        at_paths[name] = agreement(split(task, leaf.n_paths, seed))
    return {
        "leaf": leaf.name,
        "seed": seed,
        "paths": leaf.n_paths,
        "senses": n_senses,
        "as many groups as senses": at_senses,
        "as many groups as paths": at_paths,
    }


def main() -> None:
    """Fit a tagger for each seed, and print how well senses agree with paths."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--fewest", type=int, default=20, help="artworks on each of two paths")
    parser.add_argument("--most", type=int, help="artworks on the second path (to choose settings)")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(N_SEEDS)))
    parser.add_argument("--models", type=Path, help="where to keep the fitted models")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PolysemeWarning)
    artworks = load_artworks()
    leaves = leaves_with_paths(artworks, arguments.fewest, arguments.most)
    results = []
    for seed in arguments.seeds:
        store = fitted_tagger(artworks, seed, arguments.models).store_
        frequencies = TfidfTransformer().fit_transform(store.matrix)
        for leaf in leaves:
            results.append(measure_leaf(store, frequencies, leaf, seed))
        arguments.out.write_text(json.dumps(results, indent=1))
    print_table(results)


def fitted_tagger(artworks: Sequence[Artwork], seed: int, models: Path | None) -> ZeroShotTagger:
    """Fit a tagger to the artworks' leaves alone, or load it where it was kept."""
    folder = None if models is None else models / f"seed-{seed}"
    if folder is not None and folder.exists():
        return load(folder)
    tagger = ZeroShotTagger(random_state=seed, device="cpu", normalize_labels=False)
    tagger.fit(None, [artwork.tags for artwork in artworks])
    if folder is not None:
        tagger.save(folder)
    return tagger


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """Print the means over leaves, with standard errors."""
    leaves = sorted({result["leaf"] for result in results})
    n_paths = np.mean([result["paths"] for result in results])
    n_senses = Counter(result["senses"] for result in results)
    is_right = np.mean([result["senses"] == result["paths"] for result in results])
    print(f"{len(leaves)} leaves with {n_paths:.2f} paths; senses found: {dict(n_senses)}")
    print(f"as many senses as paths: {100 * is_right:.0f} % of leaves and seeds\n")
    counts = ("as many groups as senses", "as many groups as paths")
    for method in ("senses", *RIVALS, "chance", SUPERVISED):
        cells = []
        for count in counts:
            means = []
            for leaf in leaves:
                own_results = [result for result in results if result["leaf"] == leaf]
                values = [result[count].get(method, np.nan) for result in own_results]
                means.append(np.mean(values))
            error = np.std(means, ddof=1) / np.sqrt(len(means))
            is_measured = not np.isnan(means).any()
            cells.append(f"{np.mean(means):.3f} ± {error:.3f}" if is_measured else "")
        print(f"| {method} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
