"""What commands read: documents, features, extracted folders, and which belong together.

In: paths and options of a command. Out: corpora and items, or one sentence about what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, IntArray, first_few
from polyseme.cli.output import say
from polyseme.corpus import LabelCorpus
from polyseme.features import (
    Extracted,
    MediaFeatures,
    extractor_class,
    match_documents,
    read_extraction,
)
from polyseme.features.extraction import is_extraction
from polyseme.io import Table, read_documents, read_table
from polyseme.io import read_items as read_features_of
from polyseme.io.shards import is_sharded


class Reading(NamedTuple):
    """How tables of documents are read, and what is said about them."""

    tags_column: str | None
    delimiter: str | None
    normalize: bool
    strict: bool = False  # refuse ids that do not fit, instead of telling of them

    def corpus(self, path: Path) -> LabelCorpus:
        """Read documents, and tell how they were understood."""
        return self.understood(read_documents(path, **self._cells(path)), path)

    def table(self, path: Path, features: Literal["vectors", "all"]) -> Table:
        """Read one table with tags and features."""
        return read_table(path, features=features, **self._cells(path))

    def understood(self, table: Table, path: Path) -> LabelCorpus:
        """Take the documents of a table; tell how many tags there are, and those of the first."""
        corpus = LabelCorpus.of_table(table, path.name, normalize=self.normalize)
        first = first_few(next(filter(None, corpus), ()), most=8)
        mean = corpus.lengths.mean()
        say(
            f"{path.name}: {_number(len(corpus.labels), 'tag')}, {mean:.1f} a document; "
            f"first document: {first or 'no tags'}"
        )
        return corpus

    def _cells(self, path: Path) -> dict[str, str | None]:
        """Give the options of tables that have cells of tags."""
        if path.name.lower().removesuffix(".gz").endswith((".npz", ".arff")):
            return {}
        return {"tags_column": self.tags_column, "delimiter": self.delimiter}

    def tell(self, joined: str, problems: Sequence[tuple[int, str, Sequence[str]]]) -> None:
        """Say in one line how rows were joined; refuse what does not fit where it is to be strict.

        Each problem is a number, what it counts, and names of which the first are given.
        """
        told = [
            f"{count:,} {what} ({first_few(names, most=3)})"
            for count, what, names in problems
            if count
        ]
        if told and self.strict:
            raise InputError(f"Ids do not fit: {'; '.join(told)}; mend them, or drop --strict.")
        say("; ".join([joined, *told]))


class Items(NamedTuple):
    """Items with their documents."""

    X: Any  # a table with features, extracted files, or None
    documents: LabelCorpus  # of the items
    everything: LabelCorpus | None = None  # all documents in use, also of no item


def read_items(
    features: Path | None, documents: Path | None, split: str | None, reading: Reading
) -> Items:
    """Read features, or an extracted folder, with the documents of all items or of a split.

    One table may hold both: it is then given as features alone, or, where it has a column of
    vectors, as documents alone.
    """
    extraction = None
    if features is not None and features.is_dir() and not is_table(features):
        extraction = read_extraction(features)
    if documents is None and extraction is not None:
        if split is not None:
            raise InputError("`--split` chooses among documents; give them with --documents.")
        return _tagged_items(extraction, reading.normalize)
    if documents is None or features is None or documents == features:
        place = features or documents
        if place is None:
            raise InputError("Give the tags of each item with --documents.")
        return _items_of_table(place, split, reading, features is not None)
    corpus = reading.corpus(documents)
    used = _rows_of_split(corpus, split, documents)
    chosen = corpus if used.all() else corpus.select(used)
    if extraction is not None:
        return _matched_items(extraction, chosen, reading)
    table = read_features_of(features, tags_column=reading.tags_column)
    rows, documents_of_rows = _joined(table.ids, corpus, reading, features, documents, len(table))
    kept = used[documents_of_rows]
    items = corpus.select(documents_of_rows[kept])
    everything = None if len(items) == len(chosen) else chosen
    return Items(table[rows[kept]], items, everything)


def is_table(folder: Path) -> bool:
    """Say whether a folder is a table in files, and none that `polyseme extract` wrote."""
    return not is_extraction(folder) and is_sharded(folder)


def _items_of_table(place: Path, split: str | None, reading: Reading, wide: bool) -> Items:
    """Read items with their documents from one table; `wide`: columns of numbers are features."""
    table = reading.table(place, "all" if wide else "vectors")
    if not table.has_tags:
        raise InputError(
            f"'{place}' has no column of tags; name it with --tags-column, or give the tags of "
            "each item with --documents."
        )
    repeated = _repeated(table.ids or [])
    if repeated:
        rows = "rows are known by their numbers, for ids stand more than once"
        reading.tell(rows, [(len(repeated), "repeated ids", repeated)])
        table = replace(table, ids=None)
    corpus = reading.understood(table, place)
    used = _rows_of_split(corpus, split, place)
    if table.features is None and table.unused:
        say(
            f"columns of numbers in '{place}' are not used ({first_few(table.unused, most=3)}); "
            "--features with the same table makes them features"
        )
    X = None if table.features is None else table[np.flatnonzero(used)]
    if X is not None and not wide:
        say(f"features: {X.shape[1]} numbers of the column of vectors")
    return Items(X, corpus if used.all() else corpus.select(used))


def _rows_of_split(corpus: LabelCorpus, split: str | None, place: Path) -> NDArray[np.bool_]:
    """Say which documents are of a split; all where none is asked for."""
    if split is None:
        return np.ones(len(corpus), dtype=bool)
    known = sorted(set(corpus.splits or ()))
    if split not in known:
        listed = ", ".join(known) if known else "none; the documents have no `split` field"
        raise InputError(f"Unknown split '{split}' in '{place}'; known: {listed}.")
    return np.array([name == split for name in corpus.splits or ()])


def _joined(
    ids: Sequence[str] | None,
    corpus: LabelCorpus,
    reading: Reading,
    features: Path,
    documents: Path,
    n_rows: int,
) -> tuple[IntArray, IntArray]:
    """Bring rows and documents together by id, or in order where one side has no ids."""
    if ids is None or corpus.numbered:
        if n_rows != len(corpus):
            raise InputError(
                f"'{features}' has {n_rows} rows but there are {len(corpus)} documents in "
                f"'{documents}'; give one document per row, or ids in both."
            )
        lacking = [
            path.name
            for path, lacks in ((features, ids is None), (documents, corpus.numbered))
            if lacks
        ]
        say(f"rows and documents are paired in order: no ids in {' and '.join(lacking)}")
        return np.arange(n_rows), np.arange(n_rows)
    place = {name: row for row, name in enumerate(corpus.ids)}
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        first.setdefault(name, row)
    met = [(row, place[name]) for name, row in first.items() if name in place]
    if not met:
        raise InputError(
            f"No id of '{features}' ({first_few(ids, most=3)}) is among those of '{documents}' "
            f"({first_few(corpus.ids, most=3)}); mend the ids, or drop those of one file to pair "
            "rows in order."
        )
    repeated = _repeated(ids)
    without = [name for name in first if name not in place]
    unused = [name for name in corpus.ids if name not in first]
    reading.tell(
        f"joined by id: {_number(len(met), 'item')}",
        [
            (len(without), "ids of features without a document", without),
            (len(unused), "documents without features", unused),
            (len(repeated), "repeated ids of features, of which the first row is taken", repeated),
        ],
    )
    pairs = np.array(met, dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def _repeated(ids: Sequence[str]) -> list[str]:
    """Give the ids that stand more than once."""
    return [name for name, count in Counter(ids).items() if count > 1]


def _number(count: int, noun: str) -> str:
    """Give a number of things."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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


def _matched_items(extraction: Extracted, corpus: LabelCorpus, reading: Reading) -> Items:
    """Bring extracted files and documents named after them together."""
    n_tagged = sum(bool(tags) for tags in extraction.tags)
    if n_tagged:
        say(
            f"the keywords of {_number(n_tagged, 'file')} are not used, since --documents names "
            "their tags; leave it out to learn from them"
        )
    files, documents = match_documents(extraction.ids, corpus.ids)
    without = [extraction.ids[row] for row in _others(len(extraction), files)]
    unused = [corpus.ids[row] for row in _others(len(corpus), documents)]
    reading.tell(
        f"joined by name: {_number(len(files), 'file')}",
        [
            (len(without), "extracted files that no document in use names", without),
            (len(unused), "documents without a file, which teach meaning only", unused),
        ],
    )
    return Items(extraction[files.tolist()], corpus.select(documents), corpus)


def _others(n: int, rows: IntArray) -> list[int]:
    """Give the numbers below n that are not among some rows."""
    return sorted(set(range(n)) - set(rows.tolist()))


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
    corpus: LabelCorpus,
    items: Sequence[Mapping[str, Any]],
    tags: Path,
    features: Path,
    reading: Reading,
) -> list[tuple[str, ...]]:
    """Give the tags that each item has already: by file, by id, or in order where one has none."""
    documents = [tuple(document) for document in corpus]
    named = items and ("file" in items[0] or ("id" in items[0] and not corpus.numbered))
    if not named:
        if len(documents) != len(items):
            raise InputError(
                f"'{tags}' has {len(documents)} documents but '{features}' has {len(items)} items; "
                "give one document for each, an empty one where nothing is known, or ids in both."
            )
        say(f"items of {features.name} and documents of {tags.name} are paired in order: no ids")
        return documents
    known: list[tuple[str, ...]] = [()] * len(items)
    if "file" in items[0]:
        files, rows = match_documents([str(item["file"]) for item in items], corpus.ids)
        pairs = list(zip(files.tolist(), rows.tolist(), strict=True))
    else:
        place = {name: row for row, name in enumerate(corpus.ids)}
        pairs = [(at, place[item["id"]]) for at, item in enumerate(items) if item["id"] in place]
    for item, row in pairs:
        known[item] = documents[row]
    unused = [corpus.ids[row] for row in _others(len(corpus), np.array([row for _, row in pairs]))]
    reading.tell(
        f"tags by id for {len(pairs):,} of {_number(len(items), 'item')}",
        [(len(unused), "documents without an item", unused)],
    )
    return known


def read_item(path: Path, name: str) -> tuple[Any, dict[str, Any]]:
    """Read one item, a row by number or id or an extracted file by name, and what names it."""
    extracted = path.is_dir() and not is_table(path)
    table: Any = read_extraction(path) if extracted else read_features_of(path)
    names = list(table.ids or ())
    n_items = len(names) or table.shape[0]
    if name not in names and not name.isdecimal():
        raise InputError(
            f"There is no '{name}' in '{path}'; give a row's number, its id or a file's name."
        )
    row = names.index(name) if name in names else int(name)
    if row >= n_items:
        raise InputError(f"There is no row {row}: '{path}' has {n_items} rows.")
    if extracted:
        return table[[row]], {"file": names[row]}
    return table[row : row + 1], ({"id": names[row]} if names else {}) | {"row": row}
