"""Find the columns of a table that hold ids, tags or features.

In: the names and kinds of columns, and the parts to read. Out: the role of each column, and the
`Table` of cells and features.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from polyseme.base.text import in_words
from polyseme.base.validation import InputError, first_few
from polyseme.io import ReadOptions, Table
from polyseme.io.tag_cells import label_sets

# What a column holds; anything else is the name of a type that is neither.
NUMBER = "numbers"
VECTOR = "vectors"
TEXT = "text"
LIST = "lists"
# Column -> where a `Table` has it; none of them is ever a feature.
FIELDS = {"id": "ids", "file": "ids", "group": "groups", "split": "splits"}
TAGS = ("tags", "labels")
_VECTORS = ("embedding", "embeddings", "vector", "features")
# As pandas writes an index into Parquet, and calls it when it comes back from CSV.
_INDEX = re.compile(r"__index_level_\d+__")
_NAMELESS = re.compile(r"(Unnamed: \d+)?")
MAX_COLUMNS = 100_000
MAX_NAME = 200
MAX_NUMBERS = 2**31  # of features, 16 GiB; few bytes of a packed file can state more


class Roles(NamedTuple):
    """The names of the columns that are read."""

    fields: dict[str, str]  # column -> where a `Table` has it
    tags: str | None
    vector: str | None  # the one column of vectors, or
    numbers: tuple[str, ...]  # all columns of numbers
    unused: tuple[str, ...]  # could be features and are not

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that are features."""
        if self.vector is None:
            return self.numbers
        return (self.vector,)


def fields_of(names: Collection[str]) -> dict[str, str]:
    """Return the columns that describe a row; `file` is its id where there is no `id`."""
    fields = {name: field for name, field in FIELDS.items() if name in names}
    if "id" in fields:
        fields.pop("file", None)
    return fields


def find_roles(kinds: Mapping[str, str], options: ReadOptions, file: str) -> Roles:
    """Return the role of each column of a file; raise where a needed one is missing."""
    if len(kinds) > MAX_COLUMNS:
        raise InputError(f"{file} has {len(kinds):,} columns; {MAX_COLUMNS:,} are the most.")
    longest = max(map(len, kinds), default=0)
    if longest > MAX_NAME:
        raise InputError(
            f"{file} has a column whose name has {longest:,} letters; {MAX_NAME} are the most."
        )
    tags = _tags_column(kinds, options, file)
    other_names = [name for name in kinds if name != tags]
    fields = fields_of(other_names)
    if options.features == "none":
        return Roles(fields, tags, None, (), ())
    candidates = _feature_candidates(kinds, tags, options)
    vector = _vector_column(candidates, options, file)
    numbers = tuple(name for name, kind in candidates.items() if kind == NUMBER)
    if vector is not None or options.features == "vectors":
        return Roles(fields, tags, vector, (), numbers)
    for name, kind in candidates.items():
        if kind != NUMBER:
            remedy = "drop or encode it"
            if kind in (TEXT, LIST) and tags is None:
                remedy += ", or name it `tags` if it holds tags"
            raise InputError(f"Column '{name}' of {file} must hold numbers; got {kind}: {remedy}.")
        if _NAMELESS.fullmatch(name):
            position = list(kinds).index(name) + 1
            raise InputError(
                f"Column {position} of {file} has no name; name it (`id` if it numbers the rows) "
                "or leave it out."
            )
    return Roles(fields, tags, None, numbers, ())


def _feature_candidates(
    kinds: Mapping[str, str], tags: str | None, options: ReadOptions
) -> dict[str, str]:
    """Return the columns, with their kinds, that may be features."""
    tag_names = TAGS if options.tags_column is None else (options.tags_column,)
    reserved = {*FIELDS, *tag_names, tags}
    candidates: dict[str, str] = {}
    for name, kind in kinds.items():
        if name not in reserved and not _INDEX.fullmatch(name):
            candidates[name] = kind
    return candidates


def table_of(
    roles: Roles,
    cells: Mapping[str, Sequence[Any]],
    options: ReadOptions,
    where: Callable[[int], str],
    features: Any = None,
) -> Table:
    """Return a table of columns of cells, by name, and of features.

    `where` returns the words for a row's place in errors.
    """
    columns = roles.numbers or None
    contents: dict[str, Any] = {"features": features, "columns": columns, "unused": roles.unused}
    for column, field in roles.fields.items():
        contents[field] = texts(cells[column], column, where)
    if roles.tags is not None:
        tag_cells = cells[roles.tags]
        contents["label_sets"] = label_sets(tag_cells, options.delimiter, roles.tags, where)
    return Table(**contents)


def texts(cells: Sequence[Any], column: str, where: Callable[[int], str]) -> list[str] | None:
    """Return a column of names as text; None where every cell is empty."""
    is_empty = [cell is None or cell != cell for cell in cells]
    if all(is_empty):
        return None
    if any(is_empty):
        row = is_empty.index(True)
        raise InputError(
            f"{where(row)} lacks '{column}', which others have; give it to all or none."
        )
    for row, cell in enumerate(cells):
        is_name = isinstance(cell, (str, int)) and not isinstance(cell, bool)
        if not is_name:
            raise InputError(
                f"{where(row)} must have text or a whole number as '{column}'; got "
                f"{reprlib.repr(cell)}."
            )
    return [str(cell) for cell in cells]


def check_size(n_rows: int, n_columns: int, file: str) -> None:
    """Raise for features that would take too much memory."""
    n_numbers = n_rows * n_columns
    if n_numbers > MAX_NUMBERS:
        raise InputError(
            f"{file} holds {n_rows:,} rows of {n_columns:,} numbers, more than {MAX_NUMBERS:,} in "
            "all; cut it into shards for `polyseme rank --out`."
        )


def _vector_column(kinds: Mapping[str, str], options: ReadOptions, file: str) -> str | None:
    """Return the column of vectors: the one that was asked for, or the only one."""
    vectors = [name for name in kinds if kinds[name] == VECTOR]
    wanted_name = options.features_column
    if wanted_name is not None:
        if wanted_name not in vectors:
            raise InputError(
                f"{file} has no column '{wanted_name}' of vectors, which `features_column` "
                f"(--features-column) names; it has {first_few(vectors) or 'none'}."
            )
        return wanted_name
    familiar = [name for name in vectors if name in _VECTORS]
    if len(familiar) == 1:
        return familiar[0]
    if len(vectors) > 1:
        raise InputError(
            f"{file} has several columns of vectors ({first_few(vectors)}); name one by "
            "`features_column` (--features-column)."
        )
    return vectors[0] if vectors else None


def _tags_column(kinds: Mapping[str, str], options: ReadOptions, file: str) -> str | None:
    """Return the column that holds the tags; None where none are wanted, or only features are."""
    if not options.tags:
        return None
    names = TAGS if options.tags_column is None else (options.tags_column,)
    present = [name for name in names if name in kinds]
    if len(present) == 1:
        return present[0]
    if not present and options.tags_column is None and options.features == "all":
        return None  # features alone
    if options.tags_column is not None:
        problem = f"no column '{options.tags_column}'"
    elif present:
        problem = "both a column 'tags' and 'labels'"
    else:
        problem = "neither a column 'tags' nor 'labels'"
    readable_names = [in_words(name, 40) for name in kinds]
    listed = first_few(readable_names, most=20)
    raise InputError(
        f"{file} has {problem}; name it by `tags_column` (--tags-column), one of: {listed}."
    )
