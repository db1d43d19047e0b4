"""Files of arrays: `.npy`, `.npz` and `.safetensors`, never with pickled objects.

In come feature matrices, or documents as a 0/1 matrix with the label names; out goes a `Table`. An
archive of documents has `labels` (unicode array, one name per column) and either `data`, `indices`,
`indptr` and `shape` (the parts of a CSR matrix) or a dense `indicator`.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._text import said
from polyseme._validation import FloatArray, InputError
from polyseme.io import Table, Wanted, check_unpacked

_CSR_KEYS = ("data", "indices", "indptr", "shape")
_INDICES = {"indices", "indptr", "shape", "row", "col", "offsets"}  # scipy would cut digits off
# A few bytes can state a billion rows, for which CSR would need gigabytes of row pointers.
_MAX_SIZE_PER_VALUE = 100_000


def read_table(path: Path, wanted: Wanted) -> Table:
    """Read a matrix of features, or a 0/1 matrix with label names, with ids where there are any.

    An `.npz` file holds `ids` (optional), `columns` (optional, names of the features), documents
    as above, and one more array for the features, or what `scipy.sparse.save_npz` writes. Single
    and double precision are kept; half precision becomes single, all else double.
    """
    packed = path.name.lower().endswith(".npz")
    arrays = _load_npz(path) if packed else _load_safetensors(path)
    table = Table(ids=_names(arrays, "ids", path))
    labels = arrays.pop("labels", None)
    if wanted.tags and (labels is not None or wanted.features != "all"):
        table = replace(table, **_indicator(arrays, labels, path))
    if wanted.features == "all":
        table = replace(table, **_features(arrays, path, wanted.features_column))
    for what, values in (("indicator", table.indicator), ("features", table.features)):
        if table.ids is not None and values is not None and len(table.ids) != values.shape[0]:
            raise InputError(
                f"{path.name} has {len(table.ids)} ids for {values.shape[0]} rows of {what}."
            )
    return table


def _indicator(
    arrays: dict[str, NDArray[Any]], labels: NDArray[Any] | None, path: Path
) -> dict[str, Any]:
    """Return the 0/1 matrix of documents, and the names of its columns."""
    in_parts = all(key in arrays for key in _CSR_KEYS)
    if labels is None or not (in_parts or "indicator" in arrays):
        listed = _listed(arrays | ({} if labels is None else {"labels": labels}))
        raise InputError(
            f"{path.name} must hold `labels` with `indicator` or with `data`, `indices`, `indptr` "
            f"and `shape`; got {listed}."
        )
    if labels.ndim != 1 or (labels.dtype.kind != "U" and labels.size):
        raise InputError(f"`labels` in {path.name} must be a list of strings; got {labels.dtype}.")
    values: Any = arrays.get("indicator")
    with refusing_damage(path):
        if values is None:
            parts = (arrays["data"], arrays["indices"], arrays["indptr"])
            values = _checked(sp.csr_matrix(parts, shape=tuple(arrays["shape"].tolist())), path)
    if values.ndim != 2 or values.dtype.kind not in "buif":
        raise InputError(
            f"The 0/1 matrix in {path.name} must hold numbers in two dimensions; got "
            f"{values.dtype} in {values.ndim}."
        )
    names, n_columns = labels.tolist(), values.shape[1]
    if len(names) != n_columns or len(set(names)) < n_columns:
        raise InputError(
            f"`labels` in {path.name} must name each of the {n_columns} columns of the matrix; got "
            f"{len(set(names))} different names in {len(names)}."
        )
    return {"indicator": sp.csr_matrix(values), "labels": names}


def _features(arrays: dict[str, NDArray[Any]], path: Path, asked: str | None) -> dict[str, Any]:
    """Return the features of an archive, and the names of their columns where it has them."""
    columns = _names(arrays, "columns", path)
    if "format" in arrays:
        arrays.clear()  # they are read anew
        with refusing_damage(path):
            matrix: Any = as_features(sp.csr_matrix(_checked(sp.load_npz(path), path)), path.name)
    else:
        left = {name: values for name, values in arrays.items() if name != "indicator"}
        called = ("features", "embeddings", "embedding") if asked is None else (asked,)
        chosen = [name for name in called if name in left]
        if not chosen and (len(left) != 1 or asked is not None):
            raise InputError(
                f"{path.name} must hold a single array, one named `{called[0]}`, or a matrix saved "
                f"by scipy.sparse.save_npz, beside `ids`; got {_listed(left)}: name one by "
                "`features_column` (--features-column)."
            )
        values = left[chosen[0] if chosen else next(iter(left))]
        # Small whole numbers grow, too.
        check_unpacked(path, values.size * _as_floats(values.dtype).itemsize)
        matrix = as_features(values, path.name)
    if columns is not None and len(set(columns)) != matrix.shape[1]:
        raise InputError(f"`columns` in {path.name} must name each of {matrix.shape[1]} columns.")
    return {"features": matrix, "columns": None if columns is None else tuple(columns)}


def _names(arrays: dict[str, NDArray[Any]], key: str, path: Path) -> list[str] | None:
    """Take the names of rows or columns out of an archive's arrays; None where there are none."""
    names = arrays.pop(key, None)
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind not in "Uiu":
        raise InputError(f"`{key}` in {path.name} must be strings or whole numbers in one row.")
    return [str(name) for name in names.tolist()]


@contextmanager
def refusing_damage(
    path: Path, kind: str = "a numpy file without pickled objects"
) -> Iterator[None]:
    """Turn whatever numpy and scipy raise for a damaged file into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # they raise a dozen kinds, down to SystemError
        raise InputError(
            f"{path.name} is not readable as {kind} ({said(error)}); save plain arrays again."
        ) from error


class NumpyFile:
    """An `.npy` file mapped into memory, which checks the stated shape against its size.

    It is read as an `ArrowFile` is, and has no columns by name.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.kinds = path, dict[str, str]()
        with refusing_damage(path):
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(self._array, np.ndarray):
            raise InputError(f"{path.name} is an archive of arrays; rename it to end in .npz.")
        as_features(self._array[:0] if self._array.ndim else self._array, path.name)
        self.n_rows = len(self._array)

    def blocks(self, roles: object, n_rows: int = 2**62) -> Iterator[FloatArray]:
        """Yield blocks (n_rows, n_features), one at least."""
        for start in range(0, max(1, self.n_rows), n_rows):
            block: Any = as_features(np.array(self._array[start : start + n_rows]), self.path.name)
            yield block


def as_features(values: Any, name: str) -> FloatArray | sp.csr_matrix:
    """Return features (n, n_features) a float type, or refuse them; see `read_features`."""
    if values.ndim != 2:
        raise InputError(
            f"Features in {name} must have two dimensions (instances, features); got {values.ndim}."
        )
    if values.dtype.kind not in "buif":
        raise InputError(f"Features in {name} must be numbers; got the type {values.dtype}.")
    features: FloatArray | sp.csr_matrix = values.astype(_as_floats(values.dtype), copy=False)
    return features


def _as_floats(kind: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that features of a type are kept in."""
    single = kind.kind == "f" and kind.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)


def check_archive(path: Path) -> None:
    """Refuse an archive that would unpack to more than is allowed, before it is unpacked."""
    with refusing_damage(path), zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    check_unpacked(path, size)


def check_letters(values: NDArray[Any], path: Path) -> None:
    """Refuse text whose numbers are those of no letters; numpy hands them on as they are."""
    if values.dtype.kind == "U" and values.size:
        codes = np.ascontiguousarray(values).view(f"{values.dtype.byteorder}u4")
        if codes.max(initial=0) > sys.maxunicode:
            raise InputError(f"{path.name} holds text that is none; save plain arrays again.")


def _load_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Load all arrays of a safetensors file."""
    from safetensors.numpy import load_file

    with refusing_damage(path, "a safetensors file of numbers that numpy knows"):
        return dict(load_file(path))


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Load all arrays of an archive."""
    with refusing_damage(path):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path.name} is a single array; rename it to end in .npy.")
        check_archive(path)
        with archive:
            arrays = {key: np.asarray(archive[key]) for key in archive.files}
    for values in arrays.values():
        check_letters(values, path)
    for key in _INDICES & arrays.keys():
        if arrays[key].dtype.kind not in "iu":
            raise InputError(f"`{key}` in {path.name} must be whole numbers; save it again.")
    return arrays


def _checked(matrix: Any, path: Path) -> Any:
    """Refuse a sparse matrix with wrong indices or of an absurd size."""
    # Compiled scipy code trusts the indices: a wrong one would read foreign memory. The formats
    # without this method check theirs when they are built.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    if max(matrix.shape) > _MAX_SIZE_PER_VALUE * max(1, matrix.nnz):
        raise InputError(
            f"{path.name} states {matrix.shape[0]} rows and {matrix.shape[1]} columns for "
            f"{matrix.nnz} values; leave out what is empty."
        )
    return matrix


def _listed(arrays: dict[str, NDArray[Any]]) -> str:
    """List the names of the arrays of an archive."""
    return ", ".join(sorted(arrays)) or "no arrays"
