"""numpy files: `.npy` and `.npz`, never with pickled objects.

In come feature matrices, or documents as a 0/1 matrix with the label names; out go float matrices
or `RawDocuments`. An `.npz` of documents has `labels` (unicode array, one name per column) and
either `data`, `indices`, `indptr` and `shape` (the parts of a CSR matrix) or a dense `indicator`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import FloatArray, InputError
from polyseme.io import RawDocuments

_CSR_KEYS = ("data", "indices", "indptr", "shape")
_INDICES = {"indices", "indptr", "shape", "row", "col", "offsets"}  # scipy would cut digits off
# A few bytes can state a billion rows, for which CSR would need gigabytes of row pointers.
_MAX_SIZE_PER_VALUE = 100_000


def read_documents(path: Path) -> RawDocuments:
    """Read documents from a 0/1 matrix with label names; see `polyseme.io.read_documents`."""
    arrays = _load_npz(path)
    in_parts = all(key in arrays for key in _CSR_KEYS)
    if "labels" not in arrays or not (in_parts or "indicator" in arrays):
        raise InputError(
            f"{path.name} must hold `labels` with `indicator` or with `data`, `indices`, `indptr` "
            f"and `shape`; got {_listed(arrays)}."
        )
    labels = arrays["labels"]
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
    return RawDocuments(indicator=sp.csr_matrix(values), labels=names)


def read_features(path: Path) -> FloatArray | sp.csr_matrix:
    """Read a feature matrix, shape (n, n_features); see `polyseme.io.read_features`.

    An `.npz` file holds a single array, or what `scipy.sparse.save_npz` writes. Single and double
    precision are kept; half precision becomes single, all else double.
    """
    if path.name.lower().endswith(".npy"):
        return as_features(np.array(map_npy(path)), path.name)
    arrays = _load_npz(path)
    if "format" in arrays:
        with refusing_damage(path):
            return as_features(sp.csr_matrix(_checked(sp.load_npz(path), path)), path.name)
    if len(arrays) != 1:
        raise InputError(
            f"{path.name} must hold a single array or a matrix saved by scipy.sparse.save_npz; "
            f"got {_listed(arrays)}."
        )
    return as_features(next(iter(arrays.values())), path.name)


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Turn whatever numpy and scipy raise for a damaged file into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # they raise a dozen kinds, down to SystemError
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(
            f"{path.name} is not readable as a numpy file without pickled objects ({reason}); "
            "save plain arrays again."
        ) from error


def map_npy(path: Path) -> NDArray[Any]:
    """Map an `.npy` file into memory, which checks the stated shape against the file's size."""
    with refusing_damage(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise InputError(f"{path.name} is an archive of arrays; rename it to end in .npz.")
        return array


def as_features(values: Any, name: str) -> FloatArray | sp.csr_matrix:
    """Give features (n, n_features) a float type, or refuse them; see `read_features`."""
    if values.ndim != 2:
        raise InputError(
            f"Features in {name} must have two dimensions (instances, features); got {values.ndim}."
        )
    if values.dtype.kind not in "buif":
        raise InputError(f"Features in {name} must be numbers; got the type {values.dtype}.")
    single = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    features: FloatArray | sp.csr_matrix = values.astype(np.float32 if single else np.float64)
    return features


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Load all arrays of an archive."""
    with refusing_damage(path):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path.name} is a single array; rename it to end in .npy.")
        with archive:
            arrays = {key: np.asarray(archive[key]) for key in archive.files}
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
