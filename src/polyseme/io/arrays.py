"""numpy files: `.npy` and `.npz`, never with pickled objects.

In come feature matrices, or documents as a 0/1 matrix with the label names; out go float matrices
or `RawDocuments`. An `.npz` of documents has `labels` (unicode array, one name per column) and
either `data`, `indices`, `indptr` and `shape` (the parts of a CSR matrix) or a dense `indicator`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import FloatArray, InputError
from polyseme.io import RawDocuments

_CSR_KEYS = ("data", "indices", "indptr", "shape")
# A few bytes can state a billion rows, for which CSR would need gigabytes of row pointers.
_MAX_EMPTY_ROWS = 100_000


def read_documents(
    path: Path, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read documents from a 0/1 matrix with label names (keys: see the module).

    Parameters
    ----------
    path : Path
        An existing `.npz` file.
    tags_column, delimiter : None
        Not used by this form.

    Returns
    -------
    RawDocuments
        With `indicator` and `labels`.
    """
    held = _load_npz(path)
    sparse = all(key in held for key in _CSR_KEYS)
    if "labels" not in held or not (sparse or "indicator" in held):
        raise InputError(
            f"{path.name} must hold `labels` with `indicator` or with `data`, `indices`, `indptr` "
            f"and `shape`; got {_listed(held)}."
        )
    with _refusing_damage(path):
        values = held["indicator"] if "indicator" in held else _csr_of_parts(held, path.name)
        matrix = _indicator(values, path.name)
        labels = _check_labels(held["labels"], matrix.shape[1], path.name)
    return RawDocuments(
        ids=None, label_sets=None, indicator=matrix, labels=labels, groups=None, splits=None
    )


def read_features(path: Path) -> FloatArray | sp.csr_matrix:
    """Read a feature matrix from a numpy file.

    Single and double precision are kept; half precision becomes single, all else double.

    Parameters
    ----------
    path : Path
        An existing `.npy` file, or an `.npz` file with a single array or with what
        `scipy.sparse.save_npz` writes.

    Returns
    -------
    float array or csr_matrix, shape (n, n_features)
    """
    if path.name.lower().endswith(".npy"):
        return _as_features(_load_npy(path), path.name)
    held = _load_npz(path)
    if "format" in held:
        return _as_features(_load_scipy(path), path.name)
    if len(held) != 1:
        raise InputError(
            f"{path.name} must hold a single array or a matrix saved by scipy.sparse.save_npz; "
            f"got {_listed(held)}."
        )
    return _as_features(next(iter(held.values())), path.name)


def write_indicator(path: Path, matrix: object, labels: Sequence[str]) -> None:
    """Write documents as a sparse 0/1 matrix with label names.

    Parameters
    ----------
    path : Path
        The `.npz` file to write.
    matrix : array-like or scipy sparse, shape (n, n_labels)
        1 where the document carries the label, 0 elsewhere.
    labels : sequence of str
        The distinct names of the columns.
    """
    if path.suffix.lower() != ".npz":
        raise InputError(f"`path` of `write_indicator` must end in .npz; got {path.name}.")
    # The stubs know no type for "any scipy sparse matrix".
    source: Any = matrix if sp.issparse(matrix) else np.asarray(matrix)
    csr = _indicator(source, "`write_indicator`")
    names = list(labels)
    if not all(isinstance(name, str) for name in names):
        raise InputError("`labels` of `write_indicator` must be strings; convert them first.")
    stored = np.array(names, dtype=np.str_)
    if stored.tolist() != names:
        raise InputError("`labels` of `write_indicator` must not end in a NUL character.")
    _check_labels(stored, csr.shape[1], "`write_indicator`")
    parts: dict[str, Any] = {"indices": csr.indices, "indptr": csr.indptr, "shape": csr.shape}
    np.savez_compressed(path, data=csr.data.astype(np.int8), labels=stored, **parts)


@contextmanager
def _refusing_damage(path: Path) -> Iterator[None]:
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


def _load_npy(path: Path) -> NDArray[Any]:
    """Load one array; mapping it first checks the stated shape against the file's size."""
    with _refusing_damage(path):
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(mapped, np.ndarray):
            raise InputError(f"{path.name} is an archive of arrays; rename it to end in .npz.")
        return np.array(mapped)


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Load all arrays of an archive."""
    with _refusing_damage(path):
        held = np.load(path, allow_pickle=False)
        if isinstance(held, np.ndarray):
            raise InputError(f"{path.name} is a single array; rename it to end in .npy.")
        with held:
            arrays = {key: held[key] for key in held.files}
        if not all(isinstance(value, np.ndarray) for value in arrays.values()):
            raise InputError(f"{path.name} must hold arrays only; got other files in the archive.")
        return arrays


def _load_scipy(path: Path) -> sp.csr_matrix:
    """Load what `scipy.sparse.save_npz` wrote, with its indices checked."""
    with _refusing_damage(path):
        matrix = sp.load_npz(path)
        # Compiled scipy code trusts the indices, so a wrong one would read foreign memory; the
        # forms without this method check theirs when they are built.
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        if matrix.shape[0] > max(_MAX_EMPTY_ROWS, _MAX_EMPTY_ROWS * matrix.nnz):
            raise InputError(
                f"{path.name} states {matrix.shape[0]} rows for {matrix.nnz} values; "
                "leave out the empty rows."
            )
        return sp.csr_matrix(matrix)


def _as_features(values: Any, name: str) -> FloatArray | sp.csr_matrix:
    """Check that a matrix can be features and give it a float type."""
    if values.ndim != 2:
        raise InputError(
            f"Features in {name} must have two dimensions (instances, features); got {values.ndim}."
        )
    if values.dtype.kind not in "buif":
        raise InputError(f"Features in {name} must be numbers; got the type {values.dtype}.")
    wanted: type[np.floating[Any]] = np.float64
    if values.dtype.kind == "f" and values.dtype.itemsize <= 4:
        wanted = np.float32
    result: FloatArray | sp.csr_matrix = values.astype(wanted)
    return result


def _csr_of_parts(held: dict[str, NDArray[Any]], name: str) -> sp.csr_matrix:
    """Build a CSR matrix from its parts, with its indices checked."""
    n, n_labels = (int(size) for size in held["shape"])
    if any(held[key].dtype.kind not in "iu" for key in ("indices", "indptr")):
        raise InputError(f"`indices` and `indptr` in {name} must be whole numbers.")
    parts = (held["data"], held["indices"], held["indptr"])
    matrix = sp.csr_matrix(parts, shape=(n, n_labels))
    matrix.check_format(full_check=True)
    return matrix


def _indicator(values: Any, where: str) -> sp.csr_matrix:
    """Build the 0/1 matrix from a dense or sparse one."""
    if values.ndim != 2:
        raise InputError(f"The 0/1 matrix in {where} must have two dimensions; got {values.ndim}.")
    if values.dtype.kind not in "buif":
        raise InputError(f"The 0/1 matrix in {where} must hold numbers; got {values.dtype}.")
    return _binary(sp.csr_matrix(values), where)


def _binary(matrix: sp.csr_matrix, where: str) -> sp.csr_matrix:
    """Check that a matrix holds 0 and 1 only; stored zeros and repeated entries are merged."""
    wrong = matrix.data[(matrix.data != 0) & (matrix.data != 1)]
    if len(wrong):
        raise InputError(f"The 0/1 matrix in {where} must hold 0 and 1 only; got {wrong[0]}.")
    parts = (matrix.data.astype(np.int64), matrix.indices, matrix.indptr)
    result = sp.csr_matrix(parts, shape=matrix.shape, copy=True)
    result.sum_duplicates()
    result.eliminate_zeros()
    result.data[:] = 1
    return result


def _check_labels(labels: NDArray[Any], n_labels: int, where: str) -> list[str]:
    """Return the label names after checking kind, number and distinctness."""
    if labels.ndim != 1 or (labels.dtype.kind != "U" and labels.size):
        raise InputError(f"`labels` in {where} must be a list of strings; got {labels.dtype}.")
    names: list[str] = labels.tolist()
    if len(names) != n_labels:
        raise InputError(
            f"`labels` in {where} has {len(names)} names but the matrix has {n_labels} columns."
        )
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"`labels` in {where} must be distinct; got '{repeated}' twice.")
    return names


def _listed(held: dict[str, NDArray[Any]]) -> str:
    """List the names of the arrays of an archive."""
    return ", ".join(sorted(held)) or "no arrays"
