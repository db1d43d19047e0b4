"""MULAN files in: an `.arff` table with an `.xml` file that says which attributes are labels.

In come dense or sparse ARFF rows, gzipped or not, read by liac-arff; out go `RawDocuments` with
the 0/1 matrix of the labels, or the matrix of all other attributes. Sparse rows stay sparse.
"""

from __future__ import annotations

import re
import reprlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.io import RawDocuments, numbered_lines, parse_xml

_STEM_ADDITION = re.compile(r"[-_.](train|test|sparse|orig)$", re.IGNORECASE)
_NUMERIC = ("NUMERIC", "REAL", "INTEGER")


def read_documents(path: Path) -> RawDocuments:
    """Read the label attributes, in the order of the file; see `polyseme.io.read_documents`.

    The label file has the name of the ARFF file, with or without the additions `-train`, `-test`,
    `-sparse` and `.orig`, and ends in `.xml` or `.xml.gz`.
    """
    names, matrix, _ = _read(path, of_labels=True)
    wrong = matrix.data[matrix.data != 1]
    if len(wrong):
        got = "?" if np.isnan(wrong[0]) else f"{wrong[0]:g}"
        raise InputError(f"{path.name} must have 0 or 1 for every label; got {got}.")
    return RawDocuments(indicator=matrix.astype(np.int64), labels=names)


def read_features(path: Path) -> NDArray[np.float64] | sp.csr_matrix:
    """Read the attributes that are no labels; see `polyseme.io.read_features`.

    The matrix is sparse where the first row of the file is; missing values (`?`) are NaN.
    """
    _, matrix, is_sparse = _read(path, of_labels=False)
    return matrix if is_sparse else matrix.toarray()


def _read(path: Path, *, of_labels: bool) -> tuple[list[str], sp.csr_matrix, bool]:
    """Read labels or features: their names, a matrix (n, n_columns), whether rows are sparse."""
    try:
        import arff
    except ImportError as error:
        raise InputError(
            f"{path.name} needs the extra `arff`; run pip install '.[arff]' in a checkout."
        ) from error
    label_names = _label_names(_label_file(path))
    is_sparse = any(text.startswith("{") for text in _first_row(path))
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, text in numbered_lines(path):  # noqa: B007
            # The library knows only spaces after its keywords.
            yield text.replace("\t", " ") if text.lstrip().startswith("@") else text

    try:
        rows = arff.LOD_GEN if is_sparse else arff.DENSE_GEN
        table = arff.load(lines(), return_type=rows)
        every = table["attributes"]
        if missing := label_names.difference(name for name, _ in every):
            raise InputError(
                f"{path.name} has no attribute '{min(missing)}', which its label file names."
            )
        columns = [at for at, (name, _) in enumerate(every) if (name in label_names) == of_labels]
        attributes = [every[at] for at in columns]
        _check_types(attributes, is_sparse, of_labels, path)
        matrix = _matrix(table["data"], columns)
    except InputError:
        raise
    except (arff.ArffException, ValueError) as error:
        error.line = number  # type: ignore[union-attr]  # lazy reading leaves it unset
        raise InputError(
            f"{path.name} is not readable as ARFF up to line {number} ({error}); correct the file."
        ) from error
    return [name for name, _ in attributes], matrix, is_sparse


def _first_row(path: Path) -> Iterator[str]:
    """Yield the first row after the `@data` line, stripped."""
    in_data = False
    for _, line in numbered_lines(path):
        text = line.strip()
        if in_data and text and not text.startswith("%"):
            yield text
            return
        in_data = in_data or text.lower().startswith("@data")


def _matrix(rows: Iterable[Any], columns: Sequence[int]) -> sp.csr_matrix:
    """Build the matrix (n, n_columns) of some attributes from rows as lists or dicts."""
    place = {at: column for column, at in enumerate(columns)}
    values, indices, starts = array("d"), array("q"), array("q", [0])
    for row in rows:
        for at, cell in row.items() if isinstance(row, dict) else enumerate(row):
            if at in place and (value := np.nan if cell is None else float(cell)) != 0:
                values.append(value)
                indices.append(place[at])
        starts.append(len(values))
    parts = (np.array(values), np.array(indices), np.array(starts))
    matrix = sp.csr_matrix(parts, shape=(len(starts) - 1, len(columns)), dtype=np.float64)
    matrix.sort_indices()
    return matrix


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
    text = "".join(line for _, line in numbered_lines(path))
    elements = parse_xml(text.encode(), path.name, "utf-8").iter("{*}label")
    names = [element.get("name", "") for element in elements]
    if not names or "" in names:
        raise InputError(f'{path.name} must list labels as <label name="…"> elements.')
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path.name} must name each label once; got '{repeated}' twice.")
    return set(names)


def _check_types(attributes: Sequence[Any], is_sparse: bool, of_labels: bool, path: Path) -> None:
    """Refuse attributes that hold no numbers; a type is a word, or a list of nominal values."""
    for name, kind in attributes:
        if kind not in _NUMERIC and not (isinstance(kind, list) and set(kind) <= {"0", "1"}):
            got = reprlib.repr(kind)
            raise InputError(
                f"{'Label' if of_labels else 'Attribute'} '{name}' of {path.name} must be numeric "
                f"or {{0,1}}; got {got}: drop or encode it."
            )
        if is_sparse and kind[0] == "1":
            raise InputError(
                f"'{name}' of {path.name} is declared {{1,0}}, so that leaving it out of a sparse "
                "row means 1; declare it as {0,1}."
            )
