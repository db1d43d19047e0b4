"""MULAN files in: an `.arff` table with an `.xml` file that says which attributes are labels.

In come dense or sparse ARFF rows, gzipped or not; out goes a `Table` with the 0/1 matrix of the
labels and the matrix of all other attributes. Sparse rows stay sparse, and no line takes longer to
read, or to refuse, than its length justifies.
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

from polyseme._validation import InputError
from polyseme.io import MAX_LINE_BYTES, Table, Wanted, line_error, numbered_lines, parse_xml

_STEM_ADDITION = re.compile(r"[-_.](train|test|sparse|orig)$", re.IGNORECASE)
# A quote opens where a value begins: an apostrophe in a word is a letter. The third group is empty
# where it is never closed.
_QUOTED = re.compile(r"""(?<![^\s,{])(['"])((?:(?!\1)[^\\]|\\.)*+)(\1)?""")


def read_table(path: Path, wanted: Wanted) -> Table:
    """Read labels and other attributes, in the order of the file; see `polyseme.io.read_table`.

    The label file has the name of the ARFF file, with or without the additions `-train`, `-test`,
    `-sparse` and `.orig`, and ends in `.xml` or `.xml.gz`. Features are sparse where the first row
    of the file is; missing values (`?`) are NaN.
    """
    table = Table()
    if wanted.tags:
        names, matrix, _ = _read(path, of_labels=True)
        table = replace(table, indicator=matrix.astype(np.int64), labels=names)
    if wanted.features == "all":
        names, matrix, is_sparse = _read(path, of_labels=False)
        features = matrix if is_sparse else matrix.toarray()
        table = replace(table, features=features, columns=tuple(names))
    return table


def _read(path: Path, *, of_labels: bool) -> tuple[list[str], sp.csr_matrix, bool]:
    """Read labels or features: their names, a matrix (n, n_columns), whether rows are sparse."""
    label_names = _label_names(_label_file(path))
    stripped = ((number, line.strip()) for number, line in numbered_lines(path))
    lines = ((number, text) for number, text in stripped if text and not text.startswith("%"))
    kinds = _header(lines, path)
    if missing := label_names - kinds.keys():
        raise InputError(
            f"{path.name} has no attribute '{min(missing)}', which its label file names."
        )
    chosen = [(at, name) for at, name in enumerate(kinds) if (name in label_names) == of_labels]
    place, names = (
        {at: column for column, (at, _) in enumerate(chosen)},
        [name for _, name in chosen],
    )
    for name in names:
        if kinds[name] not in ("numeric", "real", "integer", "{0,1}", "{1,0}", "{0}", "{1}"):
            raise InputError(
                f"{'Label' if of_labels else 'Attribute'} '{name}' of {path.name} must be numeric "
                f"or {{0,1}}; got {reprlib.repr(kinds[name])}: drop or encode it."
            )
    inverted = next((name for name in names if kinds[name].startswith("{1")), None)
    values, indices, starts, is_sparse = array("d"), array("q"), array("q", [0]), False
    for number, text in lines:
        is_sparse = is_sparse or (len(starts) == 1 and text.startswith("{"))
        try:
            if inverted is not None and text.startswith("{"):
                raise ValueError(f"'{inverted}' is {{1,0}}, so leaving it out means 1; say {{0,1}}")
            for at, cell in _row(text, len(kinds)).items():
                if at in place and (value := np.nan if cell == "?" else float(cell)) != 0:
                    values.append(value)
                    indices.append(place[at])
        except ValueError as error:
            raise line_error(path, number, f"is no ARFF row: {error}.") from error
        starts.append(len(values))
    parts = (np.array(values), np.array(indices), np.array(starts))
    matrix = sp.csr_matrix(parts, shape=(len(starts) - 1, len(names)), dtype=np.float64)
    matrix.sort_indices()
    binary = np.array([of_labels or kinds[name].startswith("{") for name in names], dtype=bool)
    wrong = binary[matrix.indices] & (matrix.data != 1) & (of_labels | ~np.isnan(matrix.data))
    for entry in np.flatnonzero(wrong)[:1]:
        name, value = names[matrix.indices[entry]], matrix.data[entry]
        got = "?" if np.isnan(value) else f"{value:g}"
        raise InputError(f"{path.name} must have 0 or 1 for '{name}'; got {got}.")
    return names, matrix, is_sparse


def _header(lines: Iterator[tuple[int, str]], path: Path) -> dict[str, str]:
    """Read up to the `@data` line; give the attributes' types, in small letters, by their names."""
    kinds: dict[str, str] = {}
    for number, text in lines:
        keyword, _, rest = text.replace("\t", " ").partition(" ")
        if keyword.lower() == "@data":
            return kinds
        if keyword.lower() == "@relation":
            continue
        words: list[str] = []
        with suppress(ValueError):
            words = _split(rest, None, 1) if keyword.lower() == "@attribute" else []
        if len(words) != 2 or words[0] in kinds:
            got = reprlib.repr(text)
            what = f"must be an @attribute with a name of its own and a type, or @data; got {got}."
            raise line_error(path, number, what)
        kinds[words[0]] = re.sub(r"\s", "", words[1]).lower()
    raise InputError(f"{path.name} has no @data line; it is not a complete ARFF file.")


def _split(text: str, separator: str | None, most: int = -1) -> list[str]:
    """Split a line outside quotes; drop quotes, comment and white space around the parts."""
    quoted: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        if match[3] is None:
            raise ValueError("a quote is not closed")
        quoted.append(re.sub(r"\\(.)", r"\1", match[2]))
        return "\0"

    bare = _QUOTED.sub(put_aside, text.replace("\0", " ")).partition("%")[0].strip()
    parts, values = [part.strip() for part in bare.split(separator, most)], iter(quoted)
    return [re.sub("\0", lambda _: next(values), part) for part in parts] if quoted else parts


def _row(text: str, n_attributes: int) -> dict[int, str]:
    """Return a row's cells by their attributes' numbers; of a sparse row, those it has."""
    cells = _split(text, ",")
    if not text.startswith("{"):
        if len(cells) != n_attributes:
            raise ValueError(f"it has {len(cells)} values for {n_attributes} attributes")
        return dict(enumerate(cells))
    if not cells[-1].endswith("}"):
        raise ValueError("a brace is not closed")
    cells[0], row = cells[0].removeprefix("{"), {}
    cells[-1] = cells[-1].removesuffix("}")
    for cell in cells if cells != [""] else ():
        index, value = [*cell.split(None, 1), "", ""][:2]
        at = int(index) if index.isdecimal() and value else -1
        if not 0 <= at < n_attributes or at in row:
            raise ValueError(
                f"{reprlib.repr(cell)} is not the number of another attribute, below "
                f"{n_attributes}, and a value"
            )
        row[at] = value.strip()
    return row


def _label_file(path: Path) -> Path:
    """Find the label file that belongs to an ARFF file."""
    stems = [re.sub(r"\.arff(\.gz)?$", "", path.name, flags=re.IGNORECASE)]
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


def _label_names(path: Path) -> set[str]:
    """Read the label names of a label file, nested ones included."""
    text = ""
    for _, line in numbered_lines(path):
        text += line
        if len(text) > MAX_LINE_BYTES:
            raise InputError(f"{path.name} is longer than any label file should be; check it.")
    elements = parse_xml(text.encode(), path.name, "utf-8").iter("{*}label")
    names = [element.get("name", "") for element in elements]
    if not names or "" in names:
        raise InputError(f'{path.name} must list labels as <label name="…"> elements.')
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path.name} must name each label once; got '{repeated}' twice.")
    return set(names)
