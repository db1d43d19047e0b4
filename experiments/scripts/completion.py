r"""Compare completion of tag sets with what recommenders do: EASE, ALS, cosine of tags, popularity.

    pip install implicit
    python experiments/scripts/completion.py --out completion.json

In: tag sets of corpora in `$POLYSEME_DATA`; labels on fewer than ten documents, equal tag sets and
those of fewer than three tags are left out. A draw holds out a fifth of the documents and hides one
tag of each; all labels but those that are given are ranked. Out: hit rate and NDCG at 10 and mean
reciprocal rank of the hidden tag, in percent, mean and standard error over draws. Settings of EASE
and ALS are chosen on a tenth of the training documents; seconds include that search. No method
sees features.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme import LabelCorpus, ZeroShotTagger
from polyseme.base.validation import PolysemeWarning

Floats = NDArray[np.float64]
Score = Callable[[sp.csr_matrix], Floats]  # of given tags (n, n_labels): scores of all labels

CORPORA = ("hetrec-lastfm", "delicious", "genius", "tate")
N_DRAWS = 3
LEAST_USES, LEAST_TAGS = 10, 3
MOST_DOCUMENTS = 15_000
EASE_PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# Factors, penalty, and the weight of a tag that is there.
ALS_SETTINGS = tuple(product((32, 64, 128, 256), (0.01, 1.0, 10.0), (3.0, 10.0, 40.0)))


class Queries(NamedTuple):
    """Documents with one tag hidden."""

    tags: sp.csr_matrix  # those that are given, (n, n_labels)
    hidden: NDArray[np.int64]  # column of the hidden tag of each, (n,)


def load(name: str, seed: int) -> sp.csr_matrix:
    """Return different tag sets of a corpus, (n_documents, n_labels), in random order."""
    path = Path(os.environ["POLYSEME_DATA"], name, "documents.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        documents = [tuple(sorted(set(json.loads(line)["labels"]))) for line in lines]
    uses = Counter(label for document in documents for label in document)
    frequent = {label for label, count in uses.items() if count >= LEAST_USES}
    tag_sets = set()
    for document in documents:
        tags = tuple(label for label in document if label in frequent)
        if len(tags) >= LEAST_TAGS:
            tag_sets.add(tags)
    ordered = sorted(tag_sets)
    rows = np.random.default_rng(seed).permutation(len(ordered))[:MOST_DOCUMENTS]
    corpus = LabelCorpus.from_documents([ordered[row] for row in rows], normalize=False)
    return sp.csr_matrix(corpus.matrix, dtype=np.float64)


def hide_one(documents: sp.csr_matrix, seed: int) -> Queries:
    """Hide one tag of each document."""
    generator = np.random.default_rng(seed)
    given_tags = documents.tolil(copy=True)
    hidden = np.empty(documents.shape[0], dtype=np.int64)
    for row in range(documents.shape[0]):
        columns = documents[row].indices
        hidden[row] = generator.choice(columns)
        given_tags[row, hidden[row]] = 0
    return Queries(given_tags.tocsr(), hidden)


def ranks_of_hidden(score: Score, queries: Queries) -> NDArray[np.int64]:
    """Return the rank of each hidden tag among all tags but the given ones, from 1; ties last."""
    ranks = []
    for start in range(0, len(queries.hidden), 1000):
        rows = slice(start, start + 1000)
        given_tags = queries.tags[rows]
        scores = np.array(score(given_tags), dtype=np.float64)
        is_given = given_tags.toarray() > 0
        hidden = queries.hidden[rows]
        hidden_scores = scores[np.arange(len(hidden)), hidden]
        ranks.append(((scores >= hidden_scores[:, None]) & ~is_given).sum(axis=1))
    return np.concatenate(ranks)


def quality(ranks: NDArray[np.int64]) -> dict[str, float]:
    """Return the measures of ranks, in percent."""
    is_hit = ranks <= 10
    gains = np.where(is_hit, 1 / np.log2(ranks + 1), 0)
    return {
        "hit rate at 10": 100 * float(is_hit.mean()),
        "NDCG at 10": 100 * float(gains.mean()),
        "reciprocal rank": 100 * float((1 / ranks).mean()),
    }


def popularity(documents: sp.csr_matrix, _seed: int) -> Score:
    """Rank by frequency."""
    counts = np.asarray(documents.sum(axis=0)).ravel()
    return lambda given_tags: np.tile(counts, (given_tags.shape[0], 1))


def tag_cosine(documents: sp.csr_matrix, _seed: int) -> Score:
    """Rank by the sum of cosines to the given tags."""
    lengths = np.sqrt(np.asarray(documents.sum(axis=0)).ravel())
    scaled = documents @ sp.diags(1 / np.maximum(lengths, 1))
    cosines = (scaled.T @ scaled).toarray()
    np.fill_diagonal(cosines, 0)
    return lambda given_tags: np.asarray(given_tags @ cosines)


def ease(documents: sp.csr_matrix, penalty: float) -> Score:
    """Rank by EASE (Steck, 2019): ridge regression of each tag on all others, in closed form."""
    gram = (documents.T @ documents).toarray()
    gram[np.diag_indices_from(gram)] += penalty
    inverse = np.linalg.inv(gram)
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return lambda given_tags: np.asarray(given_tags @ weights)


def als(documents: sp.csr_matrix, setting: tuple[int, float, float], seed: int) -> Score:
    """Rank by weighted matrix factorisation (Hu, Koren and Volinsky, 2008) of `implicit`."""
    from implicit.cpu.als import AlternatingLeastSquares

    factors, penalty, weight = setting
    model = AlternatingLeastSquares(
        factors=factors,
        regularization=penalty,
        alpha=weight,
        iterations=15,
        random_state=seed,
        num_threads=1,
    )
    model.fit(sp.csr_matrix(documents, dtype=np.float32), show_progress=False)

    def score(given_tags: sp.csr_matrix) -> Floats:
        rows = np.arange(given_tags.shape[0])
        users = model.recalculate_user(rows, sp.csr_matrix(given_tags, dtype=np.float32))
        return np.asarray(users @ model.item_factors.T)

    return score


def tuned(
    fit: Callable[[sp.csr_matrix, Any, int], Score], settings: Sequence[Any]
) -> Callable[[sp.csr_matrix, int], Score]:
    """Return a method that chooses its setting on a tenth of the training documents."""

    def fit_best(documents: sp.csr_matrix, seed: int) -> Score:
        n_validation = documents.shape[0] // 10
        queries = hide_one(documents[:n_validation], seed + 1)
        remaining = documents[n_validation:]
        qualities = []
        for setting in settings:
            score = fit(remaining, setting, seed)
            qualities.append(quality(ranks_of_hidden(score, queries))["NDCG at 10"])
        return fit(documents, settings[int(np.argmax(qualities))], seed)

    return fit_best


def polyseme(documents: sp.csr_matrix, seed: int) -> Score:
    """Rank by the default tagger, fitted to tag sets alone."""
    labels = [f"{column:05}" for column in range(documents.shape[1])]
    tag_sets = [[labels[column] for column in row.indices] for row in documents]
    tagger = ZeroShotTagger(random_state=seed, device="cpu")
    tagger.fit(None, tag_sets)
    columns = np.array([int(label) for label in tagger.classes_])

    def score(given_tags: sp.csr_matrix) -> Floats:
        tags = [[labels[column] for column in row.indices] for row in given_tags]
        scores = np.full(given_tags.shape, -np.inf)  # of labels that no training document holds
        scores[:, columns] = tagger.decision_function(None, tags)
        return scores

    return score


METHODS: dict[str, Callable[[sp.csr_matrix, int], Score]] = {
    "popularity": popularity,
    "cosine of tags": tag_cosine,
    "EASE": tuned(lambda documents, setting, _seed: ease(documents, setting), EASE_PENALTIES),
    "ALS": tuned(als, ALS_SETTINGS),
    "polyseme": polyseme,
}


def main() -> None:
    """Run all methods on all corpora and print their means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--corpora", nargs="+", default=CORPORA)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PolysemeWarning)
    results: list[dict[str, Any]] = []
    for name in arguments.corpora:
        for seed in range(N_DRAWS):
            documents = load(name, seed)
            n_test = documents.shape[0] // 5
            queries = hide_one(documents[:n_test], seed)
            for method in arguments.methods:
                start = time.process_time()
                score = METHODS[method](documents[n_test:], seed)
                seconds = time.process_time() - start
                measures = quality(ranks_of_hidden(score, queries))
                head = {"corpus": name, "seed": seed, "method": method, "seconds": seconds}
                results.append(head | measures)
                arguments.out.write_text(json.dumps(results, indent=1))
        print(f"\n## {name}: {documents.shape[0]:,} tag sets, {documents.shape[1]:,} labels\n")
        for method in arguments.methods:
            print(line_of(results, name, method), flush=True)


def line_of(results: Sequence[dict[str, Any]], name: str, method: str) -> str:
    """Return the means of a method on a corpus, with standard errors, as a line of a table."""
    cells = []
    for title in ("hit rate at 10", "NDCG at 10", "reciprocal rank", "seconds"):
        values = []
        for result in results:
            if result["corpus"] == name and result["method"] == method:
                values.append(result[title])
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        cells.append(f"{np.mean(values):.1f} ± {error:.1f}")
    return f"| {method} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
