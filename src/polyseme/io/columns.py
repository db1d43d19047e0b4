"""Find the columns of a table that hold ids, tags or features.

In: the names and kinds of columns, and the parts to read. Out: the role of each column, and the
`Table` of cells and features.

Terms: the *kind* of a column is what its cells hold, one of the texts below or the name of another
type. Its *role* is what it is read as: a field of the `Table` (ids, groups, splits), the tags, or
features. `place_of` is a function that names a row in errors: 2 gives "Line 3 of tags.csv".
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from polyseme.base.text import in_words
from polyseme.base.validation import InputError, first_few
from polyseme.io import ReadOptions, Table
from polyseme.io.tag_cells import parse_tag_cells

# Kinds of columns, as errors name them: numbers, lists of numbers, texts, lists of texts.
NUMBER_KIND = "numbers"
VECTOR_KIND = "vectors"
TEXT_KIND = "text"
LIST_KIND = "lists"
# Names of columns that describe a row, each with its field of a `Table`; never features.
FIELD_BY_COLUMN = {"id": "ids", "file": "ids", "group": "groups", "split": "splits"}
# Names of the column of tags, and of the column of vectors where there are several.
TAG_COLUMNS = ("tags", "labels")
_USUAL_VECTOR_COLUMNS = ("embedding", "embeddings", "vector", "features")
# As pandas writes an index into Parquet, and calls it when it comes back from CSV.
_INDEX_COLUMN = re.compile(r"__index_level_\d+__")
_UNNAMED_COLUMN = re.compile(r"(Unnamed: \d+)?")
# Limits, so that a crafted file cannot take all memory.
MAX_COLUMNS = 100_000
MAX_NAME = 200  # letters of a column's name
MAX_NUMBERS = 2**31  # of features, 16 GiB; few bytes of a packed file can state more


class ColumnRoles(NamedTuple):
    """The names of the columns that are read, each by what it is read as.

    Attributes
    ----------
    field_by_column : dict of str to str
        The field of a `Table` of each column that describes rows: {"file": "ids"}.
    tags_column : str or None
    vector_column : str or None
        The one column of vectors that is the features.
    number_columns : tuple of str
        The columns of numbers that are the features, in order, where no vector is.
    unused_columns : tuple of str
        Columns of numbers that could be features and are not.
    """

    field_by_column: dict[str, str]
    tags_column: str | None
    vector_column: str | None
    number_columns: tuple[str, ...]
    unused_columns: tuple[str, ...]

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns that are features."""
        if self.vector_column is None:
            return self.number_columns
        return (self.vector_column,)


def find_fields(columns: Collection[str], text_column: str | None = None) -> dict[str, str]:
    """Return the columns that describe a row, with their fields of a `Table`.

    `file` is the id of a row where there is no `id`; `text_column` is that of its text.
    """
    field_by_column: dict[str, str] = {}
    for column, field in FIELD_BY_COLUMN.items():
        if column in columns:
            field_by_column[column] = field
    if "id" in field_by_column:
        field_by_column.pop("file", None)
    if text_column is not None and text_column in columns:
        field_by_column[text_column] = "texts"
    return field_by_column


def find_roles(kind_by_column: Mapping[str, str], options: ReadOptions, file: str) -> ColumnRoles:
    """Return the role of each column of a file; raise where a needed one is missing.

    Parameters
    ----------
    kind_by_column : mapping of str to str
        All columns, in the order of the file.
    options : ReadOptions
        What to read.
    file : str
        What errors call the file.
    """
    n_columns = len(kind_by_column)
    if n_columns > MAX_COLUMNS:
        raise InputError(f"{file} has {n_columns:,} columns; {MAX_COLUMNS:,} are the most.")
    longest = max(map(len, kind_by_column), default=0)
    if longest > MAX_NAME:
        raise InputError(
            f"{file} has a column whose name has {longest:,} letters; {MAX_NAME} are the most."
        )
    tags_column = _tags_column(kind_by_column, options, file)
    other_columns = [column for column in kind_by_column if column != tags_column]
    fields = find_fields(other_columns, options.text_column)
    if options.text_column is not None and options.text_column not in fields:
        raise InputError(
            f"{file} has no column '{options.text_column}' of texts; name it by `text_column` "
            f"(--text-column), one of: {_listed(kind_by_column)}."
        )
    if options.features == "none":
        return ColumnRoles(fields, tags_column, None, (), ())

    candidates = _feature_candidates(kind_by_column, tags_column, options)
    vector_column = _vector_column(candidates, options, file)
    number_columns = tuple(column for column, kind in candidates.items() if kind == NUMBER_KIND)
    if vector_column is not None or options.features == "vectors":
        return ColumnRoles(fields, tags_column, vector_column, (), number_columns)
    for column, kind in candidates.items():
        if kind != NUMBER_KIND:
            remedy = "drop or encode it"
            if kind in (TEXT_KIND, LIST_KIND) and tags_column is None:
                remedy += ", or name it `tags` if it holds tags"
            raise InputError(
                f"Column '{column}' of {file} must hold numbers; got {kind}: {remedy}."
            )
        if _UNNAMED_COLUMN.fullmatch(column):
            position = list(kind_by_column).index(column) + 1
            raise InputError(
                f"Column {position} of {file} has no name; name it (`id` if it numbers the rows) "
                "or leave it out."
            )
    return ColumnRoles(fields, tags_column, None, number_columns, ())


def _feature_candidates(
    kind_by_column: Mapping[str, str], tags_column: str | None, options: ReadOptions
) -> dict[str, str]:
    """Return the columns, with their kinds, that may be features.

    The usual columns of tags, `tags` and `labels`, are none even where tags are not read; where
    `options.tags_column` names another one, they are columns like any other.
    """
    tag_columns: Sequence[str] = TAG_COLUMNS
    if options.tags_column is not None:
        tag_columns = [options.tags_column]
    reserved_columns = {*FIELD_BY_COLUMN, *tag_columns, tags_column}
    candidates: dict[str, str] = {}
    for column, kind in kind_by_column.items():
        is_index = _INDEX_COLUMN.fullmatch(column)
        if is_index or column in reserved_columns:
            continue
        candidates[column] = kind
    return candidates


def build_table(
    roles: ColumnRoles,
    cells_by_column: Mapping[str, Sequence[Any]],
    options: ReadOptions,
    place_of: Callable[[int], str],
    features: Any = None,
) -> Table:
    """Return the table of a file's rows.

    Parameters
    ----------
    roles : ColumnRoles
    cells_by_column : mapping of str to sequence, length n
        The cells of the tags and of the columns that describe rows.
    options : ReadOptions
    place_of : callable
        Names a row in errors.
    features : float array or csr_matrix, shape (n, n_features), optional
    """
    fields: dict[str, Any] = {}
    fields["features"] = features
    fields["columns"] = roles.number_columns or None
    fields["unused"] = roles.unused_columns
    for column, field in roles.field_by_column.items():
        cells = cells_by_column[column]
        fields[field] = as_texts(cells, column, place_of)
    tags_column = roles.tags_column
    if tags_column is not None:
        tag_cells = cells_by_column[tags_column]
        label_sets = parse_tag_cells(tag_cells, options.delimiter, tags_column, place_of)
        fields["label_sets"] = label_sets
    return Table(**fields)


def as_texts(cells: Sequence[Any], column: str, place_of: Callable[[int], str]) -> list[str] | None:
    """Return the cells of a column of ids, groups or splits as texts; None where all are empty."""
    # An empty cell of a column of numbers is NaN, which differs from itself.
    is_empty = [cell is None or cell != cell for cell in cells]
    if all(is_empty):
        return None
    if any(is_empty):
        row = is_empty.index(True)
        raise InputError(
            f"{place_of(row)} lacks '{column}', which others have; give it to all or none."
        )
    for row, cell in enumerate(cells):
        is_text_or_whole = isinstance(cell, (str, int)) and not isinstance(cell, bool)
        if not is_text_or_whole:
            raise InputError(
                f"{place_of(row)} must have text or a whole number as '{column}'; got "
                f"{reprlib.repr(cell)}."
            )
    return [str(cell) for cell in cells]


def check_size(n_rows: int, n_columns: int, file: str) -> None:
    """Raise for features of a shape that would take too much memory."""
    n_numbers = n_rows * n_columns
    if n_numbers > MAX_NUMBERS:
        raise InputError(
            f"{file} holds {n_rows:,} rows of {n_columns:,} numbers, more than {MAX_NUMBERS:,} in "
            "all; cut it into shards for `polyseme rank --out`."
        )


def _vector_column(
    kind_by_column: Mapping[str, str], options: ReadOptions, file: str
) -> str | None:
    """Return the column of vectors that is the features; None where there are no vectors.

    It is the one that was asked for, or the one with a usual name, or the only one.
    """
    vector_columns = [column for column, kind in kind_by_column.items() if kind == VECTOR_KIND]
    wanted_column = options.features_column
    if wanted_column is not None:
        if wanted_column not in vector_columns:
            raise InputError(
                f"{file} has no column '{wanted_column}' of vectors, which `features_column` "
                f"(--features-column) names; it has {first_few(vector_columns) or 'none'}."
            )
        return wanted_column
    usual_columns = [column for column in vector_columns if column in _USUAL_VECTOR_COLUMNS]
    if len(usual_columns) == 1:
        return usual_columns[0]
    if len(vector_columns) > 1:
        raise InputError(
            f"{file} has several columns of vectors ({first_few(vector_columns)}); name one by "
            "`features_column` (--features-column)."
        )
    return vector_columns[0] if vector_columns else None


def _tags_column(kind_by_column: Mapping[str, str], options: ReadOptions, file: str) -> str | None:
    """Return the column of tags; None where none are wanted, or a file has features alone."""
    if not options.tags:
        return None
    wanted_column = options.tags_column
    possible_columns = TAG_COLUMNS if wanted_column is None else (wanted_column,)
    present_columns = [column for column in possible_columns if column in kind_by_column]
    if len(present_columns) == 1:
        return present_columns[0]
    has_other_use = options.features == "all" or options.text_column is not None
    may_lack_tags = wanted_column is None and has_other_use
    if may_lack_tags and not present_columns:
        return None
    if wanted_column is not None:
        problem = f"no column '{wanted_column}'"
    elif present_columns:
        problem = "both a column 'tags' and 'labels'"
    else:
        problem = "neither a column 'tags' nor 'labels'"
    raise InputError(
        f"{file} has {problem}; name it by `tags_column` (--tags-column), one of: "
        f"{_listed(kind_by_column)}."
    )


def _listed(columns: Collection[str]) -> str:
    """Return the names of columns for an error: the first of them, cut where they are long."""
    readable_names = [in_words(column, 40) for column in columns]
    return first_few(readable_names, most=20)
