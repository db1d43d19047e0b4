"""Read MULAN files: an `.arff` table with an `.xml` file that lists the labels.

In: dense or sparse ARFF rows, gzipped or not. Out: a `Table` with the 0/1 matrix of the labels and
the matrix of all other attributes. Sparse rows stay sparse, and no line takes longer to read, or to
refuse, than its length justifies.

Terms: an *attribute* is a column of the file, a label or a feature; its *number* counts from 0 in
the order of the header. Its *type* is what the header declares, in small letters without blanks:
"numeric" or "{0,1}". A *column* is one of the matrix that is read, of labels or of features.
"""

from __future__ import annotations

import re
import reprlib
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from polyseme.base.validation import InputError
from polyseme.io import MAX_LINE_BYTES, ReadOptions, Table, line_error, numbered_lines, parse_xml

# What a file may be called beyond the name of its label file: see `read_table`.
_STEM_ADDITION = re.compile(r"[-_.](train|test|sparse|orig)$", re.IGNORECASE)
# Types of attributes that can be read.
_TYPES = ("numeric", "real", "integer", "{0,1}", "{1,0}", "{0}", "{1}")
# A quote opens where a value begins: an apostrophe in a word is a letter. Groups are the quote, the
# text inside, and the closing quote, which is empty where there is none.
_QUOTED = re.compile(r"""(?<![^\s,{])(['"])((?:(?!\1)[^\\]|\\.)*+)(\1)?""")


def read_table(path: Path, options: ReadOptions) -> Table:
    """Read labels and other attributes, in the order of the file; see `polyseme.io.read_table`.

    The label file has the name of the ARFF file, with or without the additions `-train`, `-test`,
    `-sparse` and `.orig`, and ends in `.xml` or `.xml.gz`. Features are sparse where the first row
    of the file is; missing values (`?`) are NaN.
    """
    table = Table()
    if options.tags:
        names, matrix, _ = _read(path, of_labels=True)
        table = replace(table, indicator=matrix.astype(np.int64), labels=names)
    if options.features == "all":
        names, matrix, is_sparse = _read(path, of_labels=False)
        features = matrix if is_sparse else matrix.toarray()
        table = replace(table, features=features, columns=tuple(names))
    return table


def _read(path: Path, *, of_labels: bool) -> tuple[list[str], sp.csr_matrix, bool]:
    """Read labels or features.

    Returns
    -------
    names : list of str
        Of the columns, in the order of the file.
    matrix : csr_matrix of float64, shape (n, n_columns)
        Missing values are NaN.
    is_sparse : bool
        Whether the rows of the file are.
    """
    label_names = _label_names(_label_file(path))
    lines = _meaningful_lines(path)
    type_by_name = _header(lines, path)
    missing_labels = label_names - type_by_name.keys()
    if missing_labels:
        raise InputError(
            f"{path.name} has no attribute '{min(missing_labels)}', which its label file names."
        )
    names: list[str] = []
    column_by_attribute: dict[int, int] = {}  # attributes that are not read have no column
    for attribute, name in enumerate(type_by_name):
        is_label = name in label_names
        if is_label == of_labels:
            column_by_attribute[attribute] = len(names)
            names.append(name)
    for name in names:
        if type_by_name[name] not in _TYPES:
            noun = "Label" if of_labels else "Attribute"
            raise InputError(
                f"{noun} '{name}' of {path.name} must be numeric "
                f"or {{0,1}}; got {reprlib.repr(type_by_name[name])}: drop or encode it."
            )
    inverted_names = [name for name in names if type_by_name[name].startswith("{1")]

    # The three arrays of a CSR matrix.
    values = array("d")
    columns = array("q")
    row_starts = array("q", [0])
    is_sparse = False
    for number, text in lines:
        in_braces = text.startswith("{")
        is_first_row = len(row_starts) == 1
        if is_first_row:
            is_sparse = in_braces
        try:
            if inverted_names and in_braces:
                # A sparse row leaves out the first value of a type, which is then no 0.
                raise ValueError(
                    f"'{inverted_names[0]}' is {{1,0}}, so leaving it out means 1; say {{0,1}}"
                )
            for attribute, cell in _row(text, len(type_by_name)).items():
                if attribute not in column_by_attribute:
                    continue
                value = np.nan if cell == "?" else float(cell)
                if value != 0:
                    values.append(value)
                    columns.append(column_by_attribute[attribute])
        except ValueError as error:
            raise line_error(path, number, f"is no ARFF row: {error}.") from error
        row_starts.append(len(values))
    entries = (np.array(values), np.array(columns), np.array(row_starts))
    shape = (len(row_starts) - 1, len(names))
    matrix = sp.csr_matrix(entries, shape=shape, dtype=np.float64)
    matrix.sort_indices()
    _check_binary(matrix, names, type_by_name, path, of_labels=of_labels)
    return names, matrix, is_sparse


def _meaningful_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file, stripped, without blank lines and comments."""
    for number, line in numbered_lines(path):
        text = line.strip()
        is_comment = text.startswith("%")
        if is_comment or not text:
            continue
        yield number, text


def _check_binary(
    matrix: sp.csr_matrix,
    names: list[str],
    type_by_name: dict[str, str],
    path: Path,
    *,
    of_labels: bool,
) -> None:
    """Raise unless labels are 0 or 1, and features declared as binary 0, 1 or missing."""
    values = matrix.data  # those that are not 0
    is_binary = np.ones(len(names), dtype=bool)
    if not of_labels:
        for column, name in enumerate(names):
            is_binary[column] = type_by_name[name].startswith("{")
    is_missing = np.isnan(values)
    is_wrong = is_binary[matrix.indices]
    is_wrong &= values != 1
    if not of_labels:
        is_wrong &= ~is_missing
    if not is_wrong.any():
        return
    entry = int(is_wrong.argmax())
    name = names[matrix.indices[entry]]
    value = "?" if is_missing[entry] else f"{values[entry]:g}"
    raise InputError(f"{path.name} must have 0 or 1 for '{name}'; got {value}.")


def _header(lines: Iterator[tuple[int, str]], path: Path) -> dict[str, str]:
    """Read the lines up to `@data`, and return the type of each attribute by its name, in order."""
    type_by_name: dict[str, str] = {}
    for number, text in lines:
        keyword, _, declaration = text.replace("\t", " ").partition(" ")
        keyword = keyword.lower()
        if keyword == "@data":
            return type_by_name
        if keyword == "@relation":
            continue
        words: list[str] = []
        if keyword == "@attribute":
            with suppress(ValueError):
                words = _split(declaration, None, 1)
        is_declaration = len(words) == 2 and words[0] not in type_by_name
        if not is_declaration:
            problem = (
                "must be an @attribute with a name of its own and a type, or @data; "
                f"got {reprlib.repr(text)}."
            )
            raise line_error(path, number, problem)
        name, written_type = words
        type_by_name[name] = re.sub(r"\s", "", written_type).lower()
    raise InputError(f"{path.name} has no @data line; it is not a complete ARFF file.")


def _split(text: str, separator: str | None, max_cuts: int = -1) -> list[str]:
    """Return the pieces of a line, cut outside quotes, without quotes, comment and white space.

    Separator and number of cuts are those of `str.split`. ValueError says that a quote is open.
    """
    # Quoted texts are put aside, each with a NUL in its place, until the rest is cut.
    quoted_texts: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        if match[3] is None:
            raise ValueError("a quote is not closed")
        quoted_texts.append(re.sub(r"\\(.)", r"\1", match[2]))
        return "\0"

    marked = _QUOTED.sub(put_aside, text.replace("\0", " "))
    bare, _, _ = marked.partition("%")
    pieces = [piece.strip() for piece in bare.strip().split(separator, max_cuts)]
    if not quoted_texts:
        return pieces
    next_quoted = iter(quoted_texts)
    return [re.sub("\0", lambda _: next(next_quoted), piece) for piece in pieces]


def _row(text: str, n_attributes: int) -> dict[int, str]:
    """Return a row's cells by attribute number; a sparse row, in braces, has only some of them.

    ValueError says what is wrong, in words that follow "is no ARFF row".
    """
    cells = _split(text, ",")
    if not text.startswith("{"):
        if len(cells) != n_attributes:
            raise ValueError(f"it has {len(cells)} values for {n_attributes} attributes")
        return dict(enumerate(cells))
    if not cells[-1].endswith("}"):
        raise ValueError("a brace is not closed")
    cells[0] = cells[0].removeprefix("{")
    cells[-1] = cells[-1].removesuffix("}")
    row: dict[int, str] = {}
    if cells == [""]:
        return row
    for cell in cells:
        words = [*cell.split(None, 1), "", ""]  # a number and a value, or too little
        attribute_text, value = words[:2]
        is_pair = attribute_text.isdecimal() and bool(value)
        attribute = int(attribute_text) if is_pair else -1
        is_known = 0 <= attribute < n_attributes
        if not is_known or attribute in row:
            raise ValueError(
                f"{reprlib.repr(cell)} is not the number of another attribute, below "
                f"{n_attributes}, and a value"
            )
        row[attribute] = value.strip()
    return row


def _label_file(path: Path) -> Path:
    """Return the label file that belongs to an ARFF file; see `read_table` for its name."""
    stem = re.sub(r"\.arff(\.gz)?$", "", path.name, flags=re.IGNORECASE)
    names = [f"{stem}.xml", f"{stem}.xml.gz"]
    while _STEM_ADDITION.search(stem):
        stem = _STEM_ADDITION.sub("", stem)
        names += [f"{stem}.xml", f"{stem}.xml.gz"]
    for name in names:
        file = path.with_name(name)
        if file.is_file():
            return file
    raise InputError(
        f"Label file of {path.name} not found at {path.parent}; put one of these beside it: "
        f"{', '.join(names)}."
    )


def _label_names(path: Path) -> set[str]:
    """Read the label names of a label file, nested ones included."""
    text = ""
    for _, line in numbered_lines(path):
        text += line
        if len(text) > MAX_LINE_BYTES:  # lines have limits, a file of lines has none
            raise InputError(f"{path.name} is longer than any label file should be; check it.")
    root = parse_xml(text.encode(), path.name, "utf-8")
    names = [element.get("name", "") for element in root.iter("{*}label")]
    if not names or "" in names:
        raise InputError(f'{path.name} must list labels as <label name="…"> elements.')
    distinct_names = set(names)
    if len(distinct_names) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path.name} must name each label once; got '{repeated}' twice.")
    return distinct_names
