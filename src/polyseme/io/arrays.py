"""Read files of arrays: `.npy`, `.npz` and `.safetensors`, never with pickled objects.

In: feature matrices, or documents as a 0/1 matrix with the label names. Out: a `Table`. An archive
of documents has `labels` (unicode array, one name per column) and either `data`, `indices`,
`indptr` and `shape` (the parts of a CSR matrix) or a dense `indicator`.
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
_INDICES = {"indices", "indptr", "shape", "row", "col", "offsets"}  # scipy would cut digits off
# A few bytes can state a billion rows, for which CSR would need gigabytes of row pointers.
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
    fields: dict[str, Any] = {"ids": _names(arrays, "ids", path)}
    labels = arrays.pop("labels", None)
    has_documents = labels is not None or options.features != "all"
    if options.tags and has_documents:
        fields |= _indicator(arrays, labels, path)
    if options.features == "all":
        fields |= _features(arrays, path, options.features_column)
    table = Table(**fields)
    if table.ids is None:
        return table
    n_ids = len(table.ids)
    for name in ("indicator", "features"):
        matrix = getattr(table, name)
        if matrix is not None and matrix.shape[0] != n_ids:
            raise InputError(f"{path.name} has {n_ids} ids for {matrix.shape[0]} rows of {name}.")
    return table


def _indicator(
    arrays: dict[str, NDArray[Any]], labels: NDArray[Any] | None, path: Path
) -> dict[str, Any]:
    """Return the 0/1 matrix of documents, and the names of its columns."""
    is_sparse = all(key in arrays for key in _CSR_KEYS)
    if labels is None or not (is_sparse or "indicator" in arrays):
        present = arrays if labels is None else arrays | {"labels": labels}
        raise InputError(
            f"{path.name} must hold `labels` with `indicator` or with `data`, `indices`, `indptr` "
            f"and `shape`; got {_listed(present)}."
        )
    if labels.ndim != 1 or (labels.dtype.kind != "U" and labels.size):
        raise InputError(f"`labels` in {path.name} must be a list of strings; got {labels.dtype}.")
    matrix: Any = arrays.get("indicator")
    if matrix is None:
        with refusing_damage(path):
            csr_arrays = (arrays["data"], arrays["indices"], arrays["indptr"])
            shape = tuple(arrays["shape"].tolist())
            matrix = _checked(sp.csr_matrix(csr_arrays, shape=shape), path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "buif":
        raise InputError(
            f"The 0/1 matrix in {path.name} must hold numbers in two dimensions; got "
            f"{matrix.dtype} in {matrix.ndim}."
        )
    names = labels.tolist()
    n_columns = matrix.shape[1]
    n_distinct = len(set(names))
    if len(names) != n_columns or n_distinct < n_columns:
        raise InputError(
            f"`labels` in {path.name} must name each of the {n_columns} columns of the matrix; got "
            f"{n_distinct} different names in {len(names)}."
        )
    return {"indicator": sp.csr_matrix(matrix), "labels": names}


def _features(
    arrays: dict[str, NDArray[Any]], path: Path, wanted_name: str | None
) -> dict[str, Any]:
    """Return the features of an archive, and the names of their columns where it has them."""
    columns = _names(arrays, "columns", path)
    matrix: Any
    if "format" in arrays:
        arrays.clear()  # scipy reads them again
        with refusing_damage(path):
            sparse = _checked(sp.load_npz(path), path)
            matrix = as_features(sp.csr_matrix(sparse), path.name)
    else:
        array = _features_array(arrays, path, wanted_name)
        # Small whole numbers grow, too.
        check_unpacked(path, array.size * _as_floats(array.dtype).itemsize)
        matrix = as_features(array, path.name)
    if columns is None:
        return {"features": matrix, "columns": None}
    if len(set(columns)) != matrix.shape[1]:
        raise InputError(f"`columns` in {path.name} must name each of {matrix.shape[1]} columns.")
    return {"features": matrix, "columns": tuple(columns)}


def _features_array(
    arrays: dict[str, NDArray[Any]], path: Path, wanted_name: str | None
) -> NDArray[Any]:
    """Return the array that holds the features: the named one, a usual name, or the only one."""
    candidates = dict(arrays)
    candidates.pop("indicator", None)
    usual_names: tuple[str, ...] = ("features", "embeddings", "embedding")
    if wanted_name is not None:
        usual_names = (wanted_name,)
    for name in usual_names:
        if name in candidates:
            return candidates[name]
    if wanted_name is not None or len(candidates) != 1:
        raise InputError(
            f"{path.name} must hold a single array, one named `{usual_names[0]}`, or a matrix "
            "saved by scipy.sparse.save_npz, beside `ids`; got "
            f"{_listed(candidates)}: name one by `features_column` (--features-column)."
        )
    (array,) = candidates.values()
    return array


def _names(arrays: dict[str, NDArray[Any]], key: str, path: Path) -> list[str] | None:
    """Return the names of rows or columns, removed from an archive's arrays; None without any."""
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
    """Raise one sentence for whatever numpy and scipy raise about a damaged file."""
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
        """Yield blocks (n_rows, n_features), one at least."""
        n_at_least_one = max(1, self.n_rows)
        for start in range(0, n_at_least_one, n_rows):
            stop = start + n_rows
            rows = np.array(self._array[start:stop])
            block: Any = as_features(rows, self.path.name)
            yield block


def as_features(values: Any, name: str) -> FloatArray | sp.csr_matrix:
    """Return features (n, n_features) as floats, or raise; see `read_features`."""
    if values.ndim != 2:
        raise InputError(
            f"Features in {name} must have two dimensions (instances, features); got {values.ndim}."
        )
    if values.dtype.kind not in "buif":
        raise InputError(f"Features in {name} must be numbers; got the type {values.dtype}.")
    float_type = _as_floats(values.dtype)
    features: FloatArray | sp.csr_matrix = values.astype(float_type, copy=False)
    return features


def _as_floats(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the float type that features of a type are stored in."""
    is_single = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if is_single else np.float64)


def check_archive(path: Path) -> None:
    """Raise for an archive that would unpack to more than is allowed, before it is unpacked."""
    n_bytes = 0
    with refusing_damage(path), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            n_bytes += member.file_size
    check_unpacked(path, n_bytes)


def check_letters(values: NDArray[Any], path: Path) -> None:
    """Raise for text with code points that no letter has; numpy passes them on as they are."""
    if values.dtype.kind != "U" or not values.size:
        return
    number_type = f"{values.dtype.byteorder}u4"
    code_points = np.ascontiguousarray(values).view(number_type)
    if code_points.max(initial=0) > sys.maxunicode:
        raise InputError(f"{path.name} holds invalid text; save plain arrays again.")


def _load_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Load all arrays of a safetensors file."""
    from safetensors.numpy import load_file

    with refusing_damage(path, "a safetensors file of numbers that numpy knows"):
        arrays = load_file(path)
        return dict(arrays)


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
    """Check that a sparse matrix has valid indices and a plausible size, and return it."""
    # Compiled scipy code trusts the indices: a wrong one would read foreign memory. The formats
    # without this method check theirs when they are built.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    largest_size = _MAX_SIZE_PER_VALUE * max(1, matrix.nnz)
    if max(matrix.shape) > largest_size:
        raise InputError(
            f"{path.name} states {matrix.shape[0]} rows and {matrix.shape[1]} columns for "
            f"{matrix.nnz} values; leave out what is empty."
        )
    return matrix


def _listed(arrays: dict[str, NDArray[Any]]) -> str:
    """Return the names of the arrays of an archive in words."""
    return ", ".join(sorted(arrays)) or "no arrays"
