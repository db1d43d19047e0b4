"""MULAN files: an `.arff` table with an `.xml` file that says which of its attributes are labels.

In come dense or sparse ARFF rows, gzipped or not; out go `RawDocuments` with the 0/1 matrix of
the labels, or the matrix of all other attributes. Sparse rows are never made dense.
"""

from __future__ import annotations

import re
import reprlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from xml.parsers import expat

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.io import MAX_LINE_BYTES, RawDocuments, line_error, numbered_lines

_STEM_ADDITION = re.compile(r"[-_.](train|test|sparse|orig)$", re.IGNORECASE)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class _Attribute:
    """One `@attribute` line; `omitted` is what a sparse row means by leaving it out."""

    name: str
    kind: Literal["number", "binary", "other"]
    declared: str
    omitted: str = "0"


@dataclass
class _Rows:
    """The wanted columns of all rows, in the parts of a CSR matrix."""

    sparse: bool = False
    line_numbers: list[int] = field(default_factory=list)
    columns: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    starts: array[int] = field(default_factory=lambda: array("q", [0]))


def read_documents(
    path: Path, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read the label attributes of an ARFF file.

    Parameters
    ----------
    path : Path
        An existing `.arff` or `.arff.gz` file with its label file (`.xml` or `.xml.gz`) beside it.
        The label file has the same name, with or without the additions `-train`, `-test`,
        `-sparse` and `.orig`.
    tags_column, delimiter : None
        Not used by this form.

    Returns
    -------
    RawDocuments
        With `indicator` and `labels`, in the order of the ARFF file.
    """
    names = _label_names(_label_file(path))
    lines = numbered_lines(path)
    attributes = _read_header(lines, path)
    wanted = _label_columns(attributes, names, path)
    rows = _read_rows(lines, attributes, wanted, path)
    matrix = _to_csr(rows, len(wanted))
    chosen = [attributes[at] for at in wanted]
    _refuse_other_than_0_1(matrix, rows, chosen, np.ones(len(wanted), dtype=bool), path)
    return RawDocuments(
        ids=None,
        label_sets=None,
        indicator=matrix.astype(np.int64),
        labels=[attribute.name for attribute in chosen],
        groups=None,
        splits=None,
    )


def read_features(path: Path) -> NDArray[np.float64] | sp.csr_matrix:
    """Read all attributes of an ARFF file that are no labels.

    Parameters
    ----------
    path : Path
        As for `read_documents`.

    Returns
    -------
    float64 array or csr_matrix, shape (n, n_features)
        Sparse where the first row of the file is; missing values (`?`) are NaN.
    """
    names = _label_names(_label_file(path))
    lines = numbered_lines(path)
    attributes = _read_header(lines, path)
    # Also checks the label file: one of another corpus would leave labels among the features.
    labels = set(_label_columns(attributes, names, path))
    wanted = [at for at in range(len(attributes)) if at not in labels]
    chosen = [attributes[at] for at in wanted]
    for attribute in chosen:
        if attribute.kind == "other":
            raise InputError(
                f"Attribute '{attribute.name}' of {path.name} must be numeric or {{0,1}} to be a "
                f"feature; got {reprlib.repr(attribute.declared)}: drop or encode it."
            )
    rows = _read_rows(lines, attributes, wanted, path)
    matrix = _to_csr(rows, len(wanted))
    binary = np.array([attribute.kind == "binary" for attribute in chosen], dtype=bool)
    _refuse_other_than_0_1(matrix, rows, chosen, binary, path, allow_missing=True)
    return matrix if rows.sparse else matrix.toarray()


def _label_file(path: Path) -> Path:
    """Find the label file that belongs to an ARFF file."""
    stem = re.sub(r"\.arff(\.gz)?$", "", path.name, flags=re.IGNORECASE)
    stems = [stem]
    while _STEM_ADDITION.search(stems[-1]):
        stems.append(_STEM_ADDITION.sub("", stems[-1]))
    tried = [f"{stem}{suffix}" for stem in stems for suffix in (".xml", ".xml.gz")]
    for name in tried:
        if path.with_name(name).is_file():
            return path.with_name(name)
    raise InputError(
        f"Label file of {path.name} not found at {path.parent}; put one of these beside it: "
        f"{', '.join(tried)}."
    )


def _label_names(path: Path) -> list[str]:
    """Read the label names of a label file, nested ones included."""
    lines: list[str] = []
    length = 0
    for _, line in numbered_lines(path):
        lines.append(line)
        length += len(line)
        if length > MAX_LINE_BYTES:
            raise InputError(f"{path.name} is longer than any label file should be; check it.")
    names = _parse_label_names("".join(lines), path)
    if not names or "" in names:
        raise InputError(f'{path.name} must list labels as <label name="…"> elements.')
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path.name} must name each label once; got '{repeated}' twice.")
    return names


def _parse_label_names(text: str, path: Path) -> list[str]:
    """Return the `name` of every `label` element, empty where it has none."""
    names: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(":")[2] == "label":
            names.append(attributes.get("name", ""))

    def refuse(*_: object) -> None:
        raise InputError(f"{path.name} must not have a DOCTYPE or ENTITY; delete it.")

    # Entities can expand to gigabytes, and a label file needs none.
    if re.search(r"<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        refuse()
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = start
    # The search misses a DOCTYPE in UTF-16, which the parser recognises whatever it is told.
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{path.name} is not valid XML ({error}); check the label file.") from None
    return names


def _label_columns(attributes: Sequence[_Attribute], names: Sequence[str], path: Path) -> list[int]:
    """Return which attributes are labels; each label must be exactly one 0/1 attribute."""
    known = set(names)
    wanted = [at for at, attribute in enumerate(attributes) if attribute.name in known]
    missing = known.difference(attributes[at].name for at in wanted)
    if missing:
        raise InputError(
            f"{path.name} has no attribute '{min(missing)}', which its label file names."
        )
    if len(wanted) > len(known):
        raise InputError(f"{path.name} has a label attribute twice; name each attribute once.")
    for at in wanted:
        if attributes[at].kind == "other":
            raise InputError(
                f"Label '{attributes[at].name}' of {path.name} must be declared as {{0,1}}; "
                f"got {reprlib.repr(attributes[at].declared)}."
            )
    return wanted


def _read_header(lines: _Lines, path: Path) -> list[_Attribute]:
    """Read up to and including the `@data` line."""
    attributes: list[_Attribute] = []
    for number, raw in lines:
        text = raw.strip()
        if not text or text.startswith("%"):
            continue
        keyword = text.split(None, 1)[0]
        if keyword.lower() == "@data":
            return attributes
        if keyword.lower() == "@attribute":
            try:
                attributes.append(_attribute(text[len(keyword) :].strip()))
            except ValueError as error:
                raise line_error(path, number, f"is no ARFF attribute: {error}.") from error
        elif keyword.lower() != "@relation":
            raise line_error(
                path,
                number,
                f"must be an @attribute or the @data line; got {reprlib.repr(text)}.",
            )
    raise InputError(f"{path.name} has no @data line; it is not a complete ARFF file.")


def _attribute(declaration: str) -> _Attribute:
    """Parse what follows `@attribute`: a name, quoted or not, and a type."""
    if declaration[:1] in ("'", '"'):
        name, end = _quoted(declaration, 0)
        declared = declaration[end:].strip()
    else:
        name, declared = [*declaration.split(None, 1), "", ""][:2]
    if declared.startswith("{"):
        values = _unbraced(_cells(declared))
        if values and set(values) <= {"0", "1"}:
            return _Attribute(name, "binary", declared, omitted=values[0])
        return _Attribute(name, "other", declared)
    if not declared or declared.startswith("%"):
        raise ValueError(f"'{name}' has no type")
    word = re.split(r"[\s%]", declared, maxsplit=1)[0].lower()
    numeric = word in ("numeric", "real", "integer")
    return _Attribute(name, "number" if numeric else "other", declared)


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Read the quoted string that opens at `start`; return it and where the rest begins."""
    at = start + 1
    read: list[str] = []
    while at < len(text):
        if text[at] == text[start]:
            return "".join(read), at + 1
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            read.append(_ESCAPES.get(text[at], text[at]))
        else:
            read.append(text[at])
        at += 1
    raise ValueError("a quote is not closed")


def _cells(text: str) -> list[str]:
    """Split at commas outside quotes, drop the quotes and what follows a `%`, and strip."""
    if "'" not in text and '"' not in text:
        return [cell.strip() for cell in text.partition("%")[0].split(",")]
    cells = [""]
    at = 0
    while at < len(text) and text[at] != "%":
        # A quote opens a string only where a value begins: an apostrophe in a word is a letter.
        if text[at] in "'\"" and (at == 0 or text[at - 1] in " \t,{"):
            value, at = _quoted(text, at)
            cells[-1] += value
            continue
        if text[at] == ",":
            cells.append("")
        else:
            cells[-1] += text[at]
        at += 1
    return [cell.strip() for cell in cells]


def _unbraced(cells: list[str]) -> list[str]:
    """Take the braces off the first and the last cell."""
    if not cells[-1].endswith("}"):
        raise ValueError("a brace is not closed")
    cells[0] = cells[0][1:]
    cells[-1] = cells[-1][:-1]
    stripped = [cell.strip() for cell in cells]
    return [] if stripped == [""] else stripped


def _read_rows(
    lines: _Lines, attributes: Sequence[_Attribute], wanted: Sequence[int], path: Path
) -> _Rows:
    """Read the wanted columns of all data rows; zeros are not kept."""
    rows = _Rows()
    place = {at: column for column, at in enumerate(wanted)}
    inverted = [attributes[at] for at in wanted if attributes[at].omitted == "1"]
    for number, raw in lines:
        text = raw.strip()
        if not text or text.startswith("%"):
            continue
        if not rows.line_numbers and text.startswith("{"):
            rows.sparse = True
        try:
            if text.startswith("{"):
                _refuse_omitted_ones(inverted)
                given = _sparse_row(text, len(attributes), place)
            else:
                given = _dense_row(text, len(attributes), wanted)
            for column, cell in given:
                value = np.nan if cell == "?" else float(cell)
                if value != 0:
                    rows.columns.append(column)
                    rows.values.append(value)
        except ValueError as error:
            raise line_error(path, number, f"is no ARFF row: {error}.") from error
        rows.line_numbers.append(number)
        rows.starts.append(len(rows.values))
    return rows


def _dense_row(text: str, n_attributes: int, wanted: Sequence[int]) -> list[tuple[int, str]]:
    """Return (column, cell) for the wanted columns of a dense row."""
    cells = _cells(text)
    if len(cells) != n_attributes:
        raise ValueError(f"it has {len(cells)} values for {n_attributes} attributes")
    return [(column, cells[at]) for column, at in enumerate(wanted)]


def _sparse_row(text: str, n_attributes: int, place: dict[int, int]) -> list[tuple[int, str]]:
    """Return (column, cell) for the wanted columns that a sparse row gives."""
    given: dict[int, str] = {}
    for cell in _unbraced(_cells(text)):
        index, value = [*cell.split(None, 1), "", ""][:2]
        if not (index.isdecimal() and value):
            raise ValueError(f"'{cell}' is not an attribute number and a value")
        at = int(index)
        if at >= n_attributes:
            raise ValueError(f"attribute number {at} is not below {n_attributes}")
        if at in given:
            raise ValueError(f"attribute number {at} is given twice")
        given[at] = value
    return [(place[at], value) for at, value in given.items() if at in place]


def _refuse_omitted_ones(inverted: Sequence[_Attribute]) -> None:
    """Raise for a sparse row when leaving an attribute out means 1, as under {1,0}."""
    if inverted:
        raise ValueError(
            f"'{inverted[0].name}' is declared {inverted[0].declared}, so that leaving it out "
            "means 1; declare it as {0,1}"
        )


def _to_csr(rows: _Rows, n_columns: int) -> sp.csr_matrix:
    """Build the matrix of the wanted columns."""
    parts = (
        np.array(rows.values, dtype=np.float64),
        np.array(rows.columns, dtype=np.int64),
        np.array(rows.starts, dtype=np.int64),
    )
    matrix = sp.csr_matrix(parts, shape=(len(rows.line_numbers), n_columns))
    matrix.sort_indices()
    return matrix


def _refuse_other_than_0_1(
    matrix: sp.csr_matrix,
    rows: _Rows,
    chosen: Sequence[_Attribute],
    binary: NDArray[np.bool_],
    path: Path,
    *,
    allow_missing: bool = False,
) -> None:
    """Raise when a column that must hold 0 and 1 holds something else."""
    wrong = binary[matrix.indices] & (matrix.data != 1)
    if allow_missing:
        wrong &= ~np.isnan(matrix.data)
    if not wrong.any():
        return
    entry = int(np.argmax(wrong))
    row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    name = chosen[int(matrix.indices[entry])].name
    got = "?" if np.isnan(matrix.data[entry]) else f"{matrix.data[entry]:g}"
    raise line_error(path, rows.line_numbers[row], f"must have 0 or 1 for '{name}'; got {got}.")
