"""What commands read: documents, features, extracted folders, and which belong together.

In: paths and options of a command. Out: corpora and items, or one sentence about what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, first_few
from polyseme.cli.output import say
from polyseme.corpus import LabelCorpus
from polyseme.features import (
    Extracted,
    MediaFeatures,
    extractor_class,
    match_documents,
    read_extraction,
)
from polyseme.io import read_features

# Parameters of feature extractors, and the options of `fit` that set them.
OPTIONS = {"n_words": "--words"}


class TrainingData(NamedTuple):
    """What a tagger is fitted with."""

    X: Any
    documents: LabelCorpus  # of the items
    everything: LabelCorpus | None = None  # all documents, also of no item
    extractor: MediaFeatures | None = None


def read_corpus(path: Path, reading: Mapping[str, Any]) -> LabelCorpus:
    """Read documents; options of tables are for tables only."""
    table = any(ending in path.name for ending in (".csv", ".tsv"))
    return LabelCorpus.read(path, **{k: v for k, v in reading.items() if table or k == "normalize"})


def read_split(
    path: Path, split: str | None, reading: Mapping[str, Any]
) -> tuple[LabelCorpus, NDArray[np.bool_] | None]:
    """Read documents, all or those of a split; give also which rows they are."""
    corpus = read_corpus(path, reading)
    if split is None:
        return corpus, None
    known = sorted(set(corpus.splits or ()))
    if split not in known:
        listed = ", ".join(known) if known else "none; the documents have no `split` field"
        raise InputError(f"Unknown split '{split}' in '{path}'; known: {listed}.")
    rows = np.array([name == split for name in corpus.splits or ()])
    return corpus.select(rows), rows


def read_training(
    documents: Path | None,
    features: Path | None,
    split: str | None,
    media: Mapping[str, Any],
    reading: Mapping[str, Any],
) -> TrainingData:
    """Read what a tagger is fitted with, from files of numbers or from an extracted folder."""
    corpus, rows = None, None
    if documents is not None:
        corpus, rows = read_split(documents, split, reading)
    if features is not None and features.is_dir():
        if corpus is None and split is not None:
            raise InputError("`--split` chooses among documents; give them with --documents.")
        extraction = read_extraction(features)
        extractor = _extractor_of(extraction, media)
        items, kept, everything = match_items(extraction, corpus, normalize=reading["normalize"])
        return TrainingData(items, kept, everything, extractor)
    if corpus is None:
        raise InputError("Give the tags of each item with --documents.")
    for name in (name for name, value in media.items() if value is not None):
        raise InputError(
            f"`{OPTIONS[name]}` is for folders that `polyseme extract` wrote, not for numbers."
        )
    return TrainingData(None if features is None else read_rows(features, rows), corpus)


def read_rows(path: Path, rows: NDArray[np.bool_] | None) -> Any:
    """Read features, all rows or those that belong to the documents in use."""
    table = read_features(path)
    if rows is None:
        return table
    if table.shape[0] != len(rows):
        raise InputError(f"'{path}' has {table.shape[0]} rows but there are {len(rows)} documents.")
    return table[rows]


def match_items(
    extraction: Extracted, corpus: LabelCorpus | None, *, normalize: bool = True
) -> tuple[Extracted, LabelCorpus, LabelCorpus]:
    """Bring extracted files and documents named after them together.

    Gives items with a document, their documents in the same order, and all documents. Without a
    corpus the tags of the files' sidecars are taken.
    """
    if corpus is None:
        rows = [row for row, tags in enumerate(extraction.tags) if tags]
        if not rows:
            raise InputError(
                "No file has a sidecar with tags; give the tags of each file with --documents."
            )
        ids = [extraction.ids[row] for row in rows]
        sets = [extraction.tags[row] for row in rows]
        corpus = LabelCorpus.from_documents(sets, ids=ids, normalize=normalize)
        if len(rows) < len(extraction):
            say(f"{len(rows):,} of {len(extraction):,} extracted files have tags beside them")
        return extraction[rows], corpus, corpus
    files, documents = match_documents(extraction.ids, corpus.ids)
    without = sorted(set(range(len(extraction))) - set(files.tolist()))
    if without:
        names = first_few([extraction.ids[row] for row in without], most=3)
        say(f"extracted files that no document in use names are left out ({len(without)}): {names}")
    unused = sorted(set(range(len(corpus))) - set(documents.tolist()))
    if unused:
        names = first_few([corpus.ids[row] for row in unused], most=3)
        say(f"documents without a file teach meaning only ({len(unused)}): {names}")
    return extraction[files.tolist()], corpus.select(documents), corpus


def _extractor_of(extraction: Extracted, parameters: Mapping[str, Any]) -> MediaFeatures:
    """Make the unfitted feature extractor that continues an extraction."""
    made = extractor_class(extraction.kind)
    known = made().get_params()
    for name, value in parameters.items():
        if value is not None and name not in known:
            raise InputError(
                f"`{OPTIONS[name]}` does not apply to {extraction.kind} files, and these were "
                "extracted."
            )
    fitting = {k: v for k, v in extraction.preprocessing.items() if k in known}
    return made(**fitting, **{k: v for k, v in parameters.items() if v is not None})


def tags_of_items(
    corpus: LabelCorpus, items: Sequence[Mapping[str, Any]], tags: Path, features: Path
) -> list[tuple[str, ...]]:
    """Give the tags that each item has already: of files by their names, of rows in order."""
    documents = [tuple(document) for document in corpus]
    if items and "file" in items[0]:
        files, rows = match_documents([str(item["file"]) for item in items], corpus.ids)
        known: list[tuple[str, ...]] = [()] * len(items)
        for file, row in zip(files.tolist(), rows.tolist(), strict=True):
            known[file] = documents[row]
        return known
    if len(documents) != len(items):
        raise InputError(
            f"'{tags}' has {len(documents)} documents but '{features}' has {len(items)} items; "
            "give one document for each, an empty one where nothing is known."
        )
    return documents


def read_item(path: Path, asked: str) -> tuple[Any, dict[str, Any]]:
    """Read one item, a row by number or an extracted file by name, and what names it."""
    table: Any = read_extraction(path) if path.is_dir() else read_features(path)
    names = list(table.ids) if path.is_dir() else []
    n_items = len(names) or table.shape[0]
    if asked not in names and not asked.isdecimal():
        raise InputError(
            f"There is no '{asked}' in '{path}'; give a row's number or a file's name."
        )
    row = names.index(asked) if asked in names else int(asked)
    if row >= n_items:
        raise InputError(f"There is no row {row}: '{path}' has {n_items} rows.")
    if names:
        return table[[row]], {"file": names[row]}
    return table[row : row + 1], {"row": row}
