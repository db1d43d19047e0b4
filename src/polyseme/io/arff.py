"""Read MULAN files: an `.arff` table with an `.xml` file that lists the labels.

In: dense or sparse ARFF rows, gzipped or not. Out: a `Table` with the 0/1 matrix of the labels and
the matrix of all other attributes. Sparse rows stay sparse, and no line takes longer to read, or to
refuse, than its length justifies.
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

_STEM_ADDITION = re.compile(r"[-_.](train|test|sparse|orig)$", re.IGNORECASE)
# A quote opens where a value begins: an apostrophe in a word is a letter. The third group is empty
# where it is never closed.
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
    """Read labels or features: their names, a matrix (n, n_columns), whether rows are sparse."""
    label_names = _label_names(_label_file(path))
    lines = _meaningful_lines(path)
    kinds = _header(lines, path)
    missing = label_names - kinds.keys()
    if missing:
        raise InputError(
            f"{path.name} has no attribute '{min(missing)}', which its label file names."
        )
    names: list[str] = []
    column_by_attribute: dict[int, int] = {}
    for attribute, name in enumerate(kinds):
        if (name in label_names) == of_labels:
            column_by_attribute[attribute] = len(names)
            names.append(name)
    for name in names:
        if kinds[name] not in ("numeric", "real", "integer", "{0,1}", "{1,0}", "{0}", "{1}"):
            raise InputError(
                f"{'Label' if of_labels else 'Attribute'} '{name}' of {path.name} must be numeric "
                f"or {{0,1}}; got {reprlib.repr(kinds[name])}: drop or encode it."
            )
    inverted = next((name for name in names if kinds[name].startswith("{1")), None)
    values = array("d")
    columns = array("q")
    row_starts = array("q", [0])
    is_sparse = False
    for number, text in lines:
        in_braces = text.startswith("{")
        if len(row_starts) == 1:
            is_sparse = in_braces
        try:
            if inverted is not None and in_braces:
                raise ValueError(f"'{inverted}' is {{1,0}}, so leaving it out means 1; say {{0,1}}")
            for attribute, cell in _row(text, len(kinds)).items():
                if attribute not in column_by_attribute:
                    continue
                value = np.nan if cell == "?" else float(cell)
                if value != 0:
                    values.append(value)
                    columns.append(column_by_attribute[attribute])
        except ValueError as error:
            raise line_error(path, number, f"is no ARFF row: {error}.") from error
        row_starts.append(len(values))
    matrix = sp.csr_matrix(
        (np.array(values), np.array(columns), np.array(row_starts)),
        shape=(len(row_starts) - 1, len(names)),
        dtype=np.float64,
    )
    matrix.sort_indices()
    _check_binary(matrix, names, kinds, path, of_labels=of_labels)
    return names, matrix, is_sparse


def _meaningful_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file, stripped, without blank lines and comments."""
    for number, line in numbered_lines(path):
        text = line.strip()
        if text and not text.startswith("%"):
            yield number, text


def _check_binary(
    matrix: sp.csr_matrix, names: list[str], kinds: dict[str, str], path: Path, *, of_labels: bool
) -> None:
    """Raise unless labels, and attributes declared as binary, are 0 or 1; those may be missing."""
    is_binary = np.array([of_labels or kinds[name].startswith("{") for name in names], dtype=bool)
    is_missing = np.isnan(matrix.data)
    is_wrong = is_binary[matrix.indices] & (matrix.data != 1)
    if not of_labels:
        is_wrong &= ~is_missing
    if not is_wrong.any():
        return
    entry = int(is_wrong.argmax())
    name = names[matrix.indices[entry]]
    value = "?" if is_missing[entry] else f"{matrix.data[entry]:g}"
    raise InputError(f"{path.name} must have 0 or 1 for '{name}'; got {value}.")


def _header(lines: Iterator[tuple[int, str]], path: Path) -> dict[str, str]:
    """Read up to the `@data` line and return the attributes' types, in small letters, by name."""
    kinds: dict[str, str] = {}
    for number, text in lines:
        keyword, _, declaration = text.replace("\t", " ").partition(" ")
        keyword = keyword.lower()
        if keyword == "@data":
            return kinds
        if keyword == "@relation":
            continue
        words: list[str] = []
        if keyword == "@attribute":
            with suppress(ValueError):
                words = _split(declaration, None, 1)
        if len(words) != 2 or words[0] in kinds:
            problem = (
                "must be an @attribute with a name of its own and a type, or @data; "
                f"got {reprlib.repr(text)}."
            )
            raise line_error(path, number, problem)
        name, kind = words
        kinds[name] = re.sub(r"\s", "", kind).lower()
    raise InputError(f"{path.name} has no @data line; it is not a complete ARFF file.")


def _split(text: str, separator: str | None, most: int = -1) -> list[str]:
    """Return the pieces of a line, cut outside quotes, without quotes, comment and white space."""
    quoted_texts: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        if match[3] is None:
            raise ValueError("a quote is not closed")
        quoted_texts.append(re.sub(r"\\(.)", r"\1", match[2]))
        return "\0"

    marked = _QUOTED.sub(put_aside, text.replace("\0", " "))
    bare, _, _ = marked.partition("%")
    pieces = [piece.strip() for piece in bare.strip().split(separator, most)]
    if not quoted_texts:
        return pieces
    quotes = iter(quoted_texts)
    return [re.sub("\0", lambda _: next(quotes), piece) for piece in pieces]


def _row(text: str, n_attributes: int) -> dict[int, str]:
    """Return a row's cells by attribute number; a sparse row has only some of them."""
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
        words = [*cell.split(None, 1), "", ""]
        index, value = words[:2]
        attribute = int(index) if index.isdecimal() and value else -1
        if not 0 <= attribute < n_attributes or attribute in row:
            raise ValueError(
                f"{reprlib.repr(cell)} is not the number of another attribute, below "
                f"{n_attributes}, and a value"
            )
        row[attribute] = value.strip()
    return row


def _label_file(path: Path) -> Path:
    """Return the label file that belongs to an ARFF file."""
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
        if len(text) > MAX_LINE_BYTES:
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
