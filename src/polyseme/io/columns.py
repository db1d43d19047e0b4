"""Columns: which column of a table names the rows, holds their tags, or is a feature.

In: the names of columns with what they hold, and what is wanted. Out: the part each one plays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from polyseme._validation import InputError, first_few
from polyseme.io import Wanted

# What a column holds; anything else is the name of a type that is neither.
NUMBER, VECTOR, TEXT, LIST = "numbers", "vectors", "text", "lists"
# Column -> where a `Table` has it; none of them is ever a feature, nor is `file`, which is an id.
FIELDS = {"id": "ids", "group": "groups", "split": "splits"}
FILE = "file"
TAGS = ("tags", "labels")
_VECTORS = ("embedding", "embeddings", "vector", "features")
MAX_COLUMNS = 100_000
MAX_NUMBERS = 2**31  # of features, 16 GiB; few bytes of a packed file can state more


class Roles(NamedTuple):
    """The names of the columns that are read."""

    tags: str | None
    vector: str | None  # the one column of vectors, or
    numbers: tuple[str, ...]  # all columns of numbers
    unused: tuple[str, ...]  # could be features and are not

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that are features."""
        return self.numbers if self.vector is None else (self.vector,)


def find_roles(kinds: Mapping[str, str], wanted: Wanted, file: str) -> Roles:
    """Decide what each column of a file is, or say in one sentence what is missing."""
    if len(kinds) > MAX_COLUMNS:
        raise InputError(f"{file} has {len(kinds):,} columns; {MAX_COLUMNS:,} are the most.")
    tags = _tags_column(kinds, wanted, file)
    set_apart = {*FIELDS, FILE, *TAGS, tags}
    if wanted.tags_column is not None:
        set_apart = (set_apart - {*TAGS}) | {tags, wanted.tags_column}
    others = [name for name in kinds if name not in set_apart]
    vectors = [name for name in others if kinds[name] == VECTOR]
    if len(vectors) > 1 and wanted.features != "none":
        called = [name for name in vectors if name in _VECTORS]
        if len(called) != 1:
            raise InputError(
                f"{file} has several columns of vectors ({first_few(vectors)}); leave out all but "
                "one, or name that one `embedding`."
            )
        vectors = called
    numbers = tuple(name for name in others if kinds[name] == NUMBER)
    if wanted.features == "none":
        return Roles(tags, None, (), ())
    if vectors or wanted.features == "vectors":
        return Roles(tags, vectors[0] if vectors else None, (), numbers)
    for name in others:
        if kinds[name] != NUMBER:
            remedy = "drop or encode it"
            if kinds[name] in (TEXT, LIST) and tags is None:
                remedy += ", or name it `tags` if it holds tags"
            raise InputError(
                f"Column '{name}' of {file} must hold numbers; got {kinds[name]}: {remedy}."
            )
    return Roles(tags, None, numbers, ())


def check_size(n_rows: int, n_columns: int, file: str) -> None:
    """Refuse features that no memory should be asked for."""
    if n_rows * n_columns > MAX_NUMBERS:
        raise InputError(
            f"{file} holds {n_rows:,} rows of {n_columns:,} numbers, more than {MAX_NUMBERS:,} in "
            "all; cut it into shards for `polyseme rank --out`."
        )


def _tags_column(kinds: Mapping[str, str], wanted: Wanted, file: str) -> str | None:
    """Find the column that holds the tags; None where none are wanted, or only features are."""
    if not wanted.tags:
        return None
    names = TAGS if wanted.tags_column is None else (wanted.tags_column,)
    present = [name for name in names if name in kinds]
    if len(present) == 1:
        return present[0]
    if not present and wanted.tags_column is None and wanted.features == "all":
        return None  # features alone
    problem = f"no column '{wanted.tags_column}'"
    if wanted.tags_column is None:
        both, nor = ("both a", "and") if present else ("neither a", "nor")
        problem = f"{both} column 'tags' {nor} 'labels'"
    listed = first_few(list(kinds), most=20)
    raise InputError(
        f"{file} has {problem}; name it by `tags_column` (--tags-column), one of: {listed}."
    )
