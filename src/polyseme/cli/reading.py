"""What commands read: documents, features, extracted folders, and which belong together.

In: paths and options of a command. Out: corpora and items, or one sentence about what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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


class Reading(NamedTuple):
    """How files of documents are read."""

    tags_column: str | None  # both of tables only
    delimiter: str | None
    normalize: bool

    def corpus(self, path: Path) -> LabelCorpus:
        """Read documents."""
        if any(ending in path.name.lower() for ending in (".csv", ".tsv")):
            return LabelCorpus.read(path, **self._asdict())
        return LabelCorpus.read(path, normalize=self.normalize)


class Items(NamedTuple):
    """Items with their documents."""

    X: Any  # (n, n_features), extracted files, or None
    documents: LabelCorpus  # of the items
    everything: LabelCorpus | None = None  # all documents in use, also of no item


def read_items(
    features: Path | None, documents: Path | None, split: str | None, reading: Reading
) -> Items:
    """Read features, or an extracted folder, with the documents of all items or of a split."""
    extracted = features is not None and features.is_dir()
    if documents is None:
        if features is None or not extracted:
            raise InputError("Give the tags of each item with --documents.")
        if split is not None:
            raise InputError("`--split` chooses among documents; give them with --documents.")
        return _tagged_items(read_extraction(features), reading.normalize)
    corpus = reading.corpus(documents)
    rows = np.ones(len(corpus), dtype=bool)
    if split is not None:
        known = sorted(set(corpus.splits or ()))
        if split not in known:
            listed = ", ".join(known) if known else "none; the documents have no `split` field"
            raise InputError(f"Unknown split '{split}' in '{documents}'; known: {listed}.")
        rows = np.array([name == split for name in corpus.splits or ()])
    chosen = corpus if rows.all() else corpus.select(rows)
    if features is None:
        return Items(None, chosen)
    if extracted:
        return _matched_items(read_extraction(features), chosen)
    table = read_features(features)
    if table.shape[0] != len(corpus):
        raise InputError(
            f"'{features}' has {table.shape[0]} rows but there are {len(corpus)} documents in "
            f"'{documents}'; give one document per row."
        )
    return Items(table if rows.all() else table[rows], chosen)


def _tagged_items(extraction: Extracted, normalize: bool) -> Items:
    """Give the extracted files that have keywords, with these."""
    rows = [row for row, tags in enumerate(extraction.tags) if tags]
    if not rows:
        raise InputError(
            "No file has keywords, inside or in a sidecar; give the tags of each file with "
            "--documents."
        )
    if len(rows) < len(extraction):
        say(f"{len(rows):,} of {len(extraction):,} extracted files have keywords")
    corpus = LabelCorpus.from_documents(
        [extraction.tags[row] for row in rows],
        ids=[extraction.ids[row] for row in rows],
        normalize=normalize,
    )
    return Items(extraction[rows], corpus, corpus)


def _matched_items(extraction: Extracted, corpus: LabelCorpus) -> Items:
    """Bring extracted files and documents named after them together."""
    files, documents = match_documents(extraction.ids, corpus.ids)
    without = sorted(set(range(len(extraction))) - set(files.tolist()))
    if without:
        names = first_few([extraction.ids[row] for row in without], most=3)
        say(f"extracted files that no document in use names are left out ({len(without)}): {names}")
    unused = sorted(set(range(len(corpus))) - set(documents.tolist()))
    if unused:
        names = first_few([corpus.ids[row] for row in unused], most=3)
        say(f"documents without a file teach meaning only ({len(unused)}): {names}")
    return Items(extraction[files.tolist()], corpus.select(documents), corpus)


def extractor_of(items: Any, n_words: int | None) -> MediaFeatures | None:
    """Make the unfitted feature extractor that continues an extraction; None for numbers."""
    if not isinstance(items, Extracted):
        if n_words is not None:
            raise InputError("`--words` is for folders that `extract` wrote, not for numbers.")
        return None
    kind = extractor_class(items.kind)
    known = kind().get_params()
    # Before parameters were kept, the preprocessing had all of them, and no network had a choice.
    parameters = dict(items.parameters) or {
        name: value
        for name, value in items.preprocessing.items()
        if name in known and name != "network"
    }
    if n_words is None:
        return kind(**parameters)
    if "n_words" not in known or parameters.get("network") is not None:
        whose = f"{items.kind} files" + (" of a network" if "n_words" in known else "")
        raise InputError(f"`--words` does not apply to {whose}, and these were extracted.")
    return kind(**parameters | {"n_words": n_words})


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


def read_item(path: Path, name: str) -> tuple[Any, dict[str, Any]]:
    """Read one item, a row by number or an extracted file by name, and what names it."""
    table: Any = read_extraction(path) if path.is_dir() else read_features(path)
    names = list(table.ids) if path.is_dir() else []
    n_items = len(names) or table.shape[0]
    if name not in names and not name.isdecimal():
        raise InputError(f"There is no '{name}' in '{path}'; give a row's number or a file's name.")
    row = names.index(name) if name in names else int(name)
    if row >= n_items:
        raise InputError(f"There is no row {row}: '{path}' has {n_items} rows.")
    if names:
        return table[[row]], {"file": names[row]}
    return table[row : row + 1], {"row": row}
