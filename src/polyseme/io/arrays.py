"""Read files of arrays: `.npy`, `.npz` and `.safetensors`, never with pickled objects.

In: feature matrices, or documents as a 0/1 matrix with the label names. Out: a `Table`. An archive
of documents has `labels` (unicode array, one name per column) and either `data`, `indices`,
`indptr` and `shape` (the parts of a CSR matrix) or a dense `indicator`. These names are fixed:
people's files have them.

Terms: an *archive* is a file of several arrays (`.npz`, `.safetensors`); `arrays` are those of one
by their names, from which readers take what they have used.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.text import error_text
from polyseme.base.validation import FloatArray, InputError
from polyseme.io import ReadOptions, Table, check_unpacked

_CSR_KEYS = ("data", "indices", "indptr", "shape")
# Indices in all formats of `scipy.sparse.save_npz`; scipy would cut the digits of fractions off.
_INDEX_KEYS = {"indices", "indptr", "shape", "row", "col", "offsets"}
# The names of an archive's features, the first present one.
_FEATURE_KEYS = ("features", "embeddings", "embedding")
# Rows or columns that a sparse matrix may have for each of its values. A few bytes can state a
# billion rows, for which CSR would need gigabytes of row pointers.
_MAX_SIZE_PER_VALUE = 100_000


def read_table(path: Path, options: ReadOptions) -> Table:
    """Read a matrix of features, or a 0/1 matrix with label names, with ids where there are any.

    An `.npz` file holds `ids` (optional), `columns` (optional, names of the features), documents
    as above, and one more array for the features, or what `scipy.sparse.save_npz` writes. Single
    and double precision are kept; half precision becomes single, all else double.
    """
    if path.name.lower().endswith(".npz"):
        arrays = _load_npz(path)
    else:
        arrays = _load_safetensors(path)
    fields: dict[str, Any] = {"ids": _take_names(arrays, "ids", path)}
    labels = arrays.pop("labels", None)
    # A file that is read for all it has may have features alone.
    needs_documents = labels is not None or options.features != "all"
    if options.tags and needs_documents:
        fields |= _read_indicator(arrays, labels, path)
    if options.features == "all":
        fields |= _read_features(arrays, path, options.features_column)
    table = Table(**fields)
    if table.ids is None:
        return table
    n_ids = len(table.ids)
    for name in ("indicator", "features"):
        matrix = getattr(table, name)
        if matrix is not None and matrix.shape[0] != n_ids:
            raise InputError(f"{path.name} has {n_ids} ids for {matrix.shape[0]} rows of {name}.")
    return table


def _read_indicator(
    arrays: dict[str, NDArray[Any]], labels: NDArray[Any] | None, path: Path
) -> dict[str, Any]:
    """Return the fields `indicator` and `labels` of a table, from an archive that has documents.

    That the matrix holds 0 and 1 alone is left to `LabelCorpus.from_indicator`.
    """
    has_csr = all(key in arrays for key in _CSR_KEYS)
    has_matrix = has_csr or "indicator" in arrays
    if labels is None or not has_matrix:
        present_arrays = arrays if labels is None else arrays | {"labels": labels}
        raise InputError(
            f"{path.name} must hold `labels` with `indicator` or with `data`, `indices`, `indptr` "
            f"and `shape`; got {_list_names(present_arrays)}."
        )
    if labels.ndim != 1 or (labels.dtype.kind != "U" and labels.size):
        raise InputError(f"`labels` in {path.name} must be a list of strings; got {labels.dtype}.")
    matrix: Any = arrays.get("indicator")
    if matrix is None:
        with refusing_damage(path):
            csr_arrays = (arrays["data"], arrays["indices"], arrays["indptr"])
            shape = tuple(arrays["shape"].tolist())
            unchecked = sp.csr_matrix(csr_arrays, shape=shape)
            matrix = _check_sparse(unchecked, path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "buif":
        raise InputError(
            f"The 0/1 matrix in {path.name} must hold numbers in two dimensions; got "
            f"{matrix.dtype} in {matrix.ndim}."
        )
    label_names = labels.tolist()
    n_columns = matrix.shape[1]
    n_distinct = len(set(label_names))
    if len(label_names) != n_columns or n_distinct < n_columns:
        raise InputError(
            f"`labels` in {path.name} must name each of the {n_columns} columns of the matrix; got "
            f"{n_distinct} different names in {len(label_names)}."
        )
    return {"indicator": sp.csr_matrix(matrix), "labels": label_names}


def _read_features(
    arrays: dict[str, NDArray[Any]], path: Path, wanted_key: str | None
) -> dict[str, Any]:
    """Return the fields `features` and `columns` of a table, from an archive.

    `wanted_key` names the array of the features, where a user has named one.
    """
    columns = _take_names(arrays, "columns", path)
    matrix: Any
    if "format" in arrays:  # as `scipy.sparse.save_npz` writes
        arrays.clear()  # scipy reads them again
        with refusing_damage(path):
            sparse = _check_sparse(sp.load_npz(path), path)
            matrix = as_features(sp.csr_matrix(sparse), path.name)
    else:
        array = _find_features(arrays, path, wanted_key)
        # Small whole numbers become floats, which take more memory than the file says.
        n_bytes = array.size * _float_type(array.dtype).itemsize
        check_unpacked(path, n_bytes)
        matrix = as_features(array, path.name)
    if columns is None:
        return {"features": matrix, "columns": None}
    if len(set(columns)) != matrix.shape[1]:
        raise InputError(f"`columns` in {path.name} must name each of {matrix.shape[1]} columns.")
    return {"features": matrix, "columns": tuple(columns)}


def _find_features(
    arrays: dict[str, NDArray[Any]], path: Path, wanted_key: str | None
) -> NDArray[Any]:
    """Return the array of the features: the one named, one with a usual name, or the only one."""
    candidates = dict(arrays)
    candidates.pop("indicator", None)
    keys = _FEATURE_KEYS if wanted_key is None else (wanted_key,)
    for key in keys:
        if key in candidates:
            return candidates[key]
    if wanted_key is not None or len(candidates) != 1:
        raise InputError(
            f"{path.name} must hold a single array, one named `{keys[0]}`, or a matrix "
            "saved by scipy.sparse.save_npz, beside `ids`; got "
            f"{_list_names(candidates)}: name one by `features_column` (--features-column)."
        )
    (array,) = candidates.values()
    return array


def _take_names(arrays: dict[str, NDArray[Any]], key: str, path: Path) -> list[str] | None:
    """Remove the names of rows or columns from an archive's arrays; return them, None without any.

    `key` is "ids" or "columns". Whole numbers become texts.
    """
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
    """Raise one sentence for whatever numpy and scipy raise about a damaged file.

    `kind` completes "x.npy is not readable as …".
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # they raise a dozen kinds, down to SystemError
        raise InputError(
            f"{path.name} is not readable as {kind} ({error_text(error)}); save plain arrays again."
        ) from error


class NumpyFile:
    """An `.npy` file mapped into memory, which checks the stated shape against its size.

    It is read as an `ArrowFile` is, and has no columns by name.

    Attributes
    ----------
    path : Path
    kinds : dict
        Empty: the kinds of an `ArrowFile` are by column.
    n_rows : int
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kinds: dict[str, str] = {}
        with refusing_damage(path):
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(self._array, np.ndarray):
            raise InputError(f"{path.name} is an archive of arrays; rename it to end in .npz.")
        no_rows = self._array[:0] if self._array.ndim else self._array
        as_features(no_rows, path.name)  # checks the type and the dimensions
        self.n_rows = len(self._array)

    def blocks(self, roles: object, n_rows: int = 2**62) -> Iterator[FloatArray]:
        """Yield blocks (n_rows, n_features), the last one shorter; one at least, if it is empty.

        Blocks are copies in memory. There are no roles; the parameter is that of `ArrowFile`.
        """
        starts = range(0, max(1, self.n_rows), n_rows)
        for start in starts:
            stop = start + n_rows
            rows = np.array(self._array[start:stop])
            block: Any = as_features(rows, self.path.name)
            yield block


def as_features(matrix: Any, name: str) -> FloatArray | sp.csr_matrix:
    """Return a matrix (n, n_features) as floats, or raise where it cannot be features.

    Single precision stays, half becomes single, all else double. `name` is the file, for errors.
    """
    n_dimensions = matrix.ndim
    if n_dimensions != 2:
        raise InputError(
            f"Features in {name} must have two dimensions (instances, features); "
            f"got {n_dimensions}."
        )
    dtype = matrix.dtype
    if dtype.kind not in "buif":
        raise InputError(f"Features in {name} must be numbers; got the type {dtype}.")
    float_type = _float_type(dtype)
    features: FloatArray | sp.csr_matrix = matrix.astype(float_type, copy=False)
    return features


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the float type that features of a type become; see `as_features`."""
    is_float = dtype.kind == "f"
    if is_float and dtype.itemsize <= 4:
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def check_archive(path: Path) -> None:
    """Raise for an archive that would unpack to more than is allowed, before it is unpacked."""
    n_bytes = 0
    with refusing_damage(path), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            n_bytes += member.file_size
    check_unpacked(path, n_bytes)


def check_letters(array: NDArray[Any], path: Path) -> None:
    """Raise for an array of text with code points beyond Unicode, which numpy does not check."""
    if array.dtype.kind != "U" or not array.size:
        return
    byte_order = array.dtype.byteorder
    number_type = f"{byte_order}u4"  # numpy stores a letter as its code point, in 4 bytes
    contiguous = np.ascontiguousarray(array)
    code_points = contiguous.view(number_type)
    highest = code_points.max(initial=0)
    if highest > sys.maxunicode:
        raise InputError(f"{path.name} holds invalid text; save plain arrays again.")


def _load_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Load all arrays of a safetensors file."""
    from safetensors.numpy import load_file

    with refusing_damage(path, "a safetensors file of numbers that numpy knows"):
        arrays = load_file(path)
        return dict(arrays)


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Load all arrays of an `.npz` archive, its size checked before it is unpacked."""
    with refusing_damage(path):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path.name} is a single array; rename it to end in .npy.")
        check_archive(path)
        with archive:
            arrays: dict[str, NDArray[Any]] = {}
            for key in archive.files:
                arrays[key] = np.asarray(archive[key])
    for array in arrays.values():
        check_letters(array, path)
    for key in _INDEX_KEYS & arrays.keys():
        kind = arrays[key].dtype.kind
        if kind not in "iu":
            raise InputError(f"`{key}` in {path.name} must be whole numbers; save it again.")
    return arrays


def _check_sparse(matrix: Any, path: Path) -> Any:
    """Return a sparse matrix as it is, or raise unless its indices and its size are plausible."""
    # Compiled scipy code trusts the indices: a wrong one would read foreign memory. The formats
    # without this method check theirs when they are built.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    n_values = matrix.nnz
    max_size = _MAX_SIZE_PER_VALUE * max(1, n_values)
    if max(matrix.shape) > max_size:
        raise InputError(
            f"{path.name} states {matrix.shape[0]} rows and {matrix.shape[1]} columns for "
            f"{n_values} values; leave out what is empty."
        )
    return matrix


def _list_names(arrays: dict[str, NDArray[Any]]) -> str:
    """Return the names of the arrays of an archive in words."""
    return ", ".join(sorted(arrays)) or "no arrays"
