"""Input checks, random generators and errors, shared by the whole package.

Each check takes what a user passed and returns what the rest of the package works on, or raises an
`InputError` whose message is one sentence that says what to do.

Terms: `owner` is the class or function that a message names as the one that was called, `subject`
the beginning of a message's sentence, `description` what a list holds, in the plural. Users and
tests rely on the wording of messages.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import exceptions

from polyseme.base.text import error_text, in_words, printable, shown

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.int64]
RandomState: TypeAlias = int | np.random.Generator | None

# The largest numbers that parameters may have, and the largest features: their squares are finite.
# Saved models are checked against them, too.
MOST_WHOLE = 2**31 - 1
MOST_NUMBER = 1e300
MOST_FEATURE = 1e100
# What file systems take, in bytes: a name, and a whole path.
_LONGEST_NAME = 255
_LONGEST_PATH = 4095


class InputError(ValueError):
    """The user's input cannot be used; the message says why and what to do.

    It is one line that is safe to print, whatever it quotes from a file.
    """

    def __init__(self, *messages: object) -> None:
        arguments: list[object] = []
        for message in messages:
            argument = message
            if isinstance(message, str):
                argument = printable(message)
            arguments.append(argument)
        super().__init__(*arguments)


class NotFittedError(InputError, exceptions.NotFittedError):  # type: ignore[misc]  # no types
    """A method that needs learned state was called before `fit`."""


class RowError(InputError, IndexError):
    """There is no such row."""


class PolysemeWarning(UserWarning):
    """The input is usable but something about it should be known."""


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return the generator that an estimator passes down, from its one `random_state`.

    A Generator is returned itself, so that draws change it; None is seeded by the system.
    """
    if isinstance(random_state, np.random.RandomState):
        seed = random_state.randint(0, 2**31 - 1)
        return np.random.default_rng(seed)
    is_seed = isinstance(random_state, (int, np.integer))
    if random_state is not None and not is_seed:
        if isinstance(random_state, np.random.Generator):
            return random_state
        raise InputError(
            "`random_state` must be a whole number, a numpy Generator or None; "
            f"got {shown(random_state)}."
        )
    if isinstance(random_state, (int, np.integer)) and random_state < 0:
        raise InputError(f"`random_state` must not be negative; got {shown(random_state)}.")
    return np.random.default_rng(random_state)


def draw_seed(generator: np.random.Generator) -> int:
    """Draw one integer seed for a library that takes no numpy generator."""
    return int(generator.integers(0, 2**31 - 1))


def unknown_name(kind: str, name: object, known_names: Iterable[str]) -> InputError:
    """Build the error for a name that is not among the known ones, closest match first."""
    names = sorted(known_names)
    listed = ", ".join(names)
    matches = difflib.get_close_matches(str(name), names, n=1)
    hint = "."
    if matches:
        hint = f"; did you mean '{matches[0]}'?"
    return InputError(f"Unknown {kind} '{name}'; known: {listed}{hint}")


def check_option(name: str, value: object, allowed: Iterable[str], *, owner: str) -> None:
    """Raise unless a string parameter is one of the allowed words."""
    options = list(allowed)
    is_text = isinstance(value, str)
    if is_text and value in options:
        return
    names = map(repr, options)
    listed = ", ".join(names)
    got = shown(value)
    raise InputError(f"`{name}` of `{owner}` must be one of {listed}; got {got}.")


def check_number(
    name: str,
    value: object,
    *,
    owner: str,
    low: float = -np.inf,
    high: float = np.inf,
    above: bool = False,
    whole: bool = False,
) -> None:
    """Raise unless a parameter of `owner` is a finite (or whole) number from low to high.

    Parameters
    ----------
    name, value, owner
        The parameter's name and value, and the class that has it.
    low, high : float
        Both are included. Without `high`, a number must be small enough for the libraries that
        take it.
    above : bool
        Whether `low` itself is refused.
    whole : bool
        Whether fractions are refused, also 2.0.
    """
    types: tuple[type, ...] = (int, np.integer)
    if not whole:
        types = (int, float, np.integer, np.floating)
    is_bool = isinstance(value, bool)  # a whole number for Python
    is_number = isinstance(value, types) and not is_bool
    number: Any = value
    if isinstance(value, np.generic):
        number = value.item()
    # Python's whole numbers have any size, but those of the libraries below do not.
    if high == np.inf:
        high = MOST_WHOLE if whole else MOST_NUMBER
    is_excluded = above and number == low
    if is_number and low <= number <= high and not is_excluded:
        return

    bounds = []
    if low > -np.inf:
        relation = "above" if above else "at least"
        bounds.append(f"{relation} {low:g}")
    is_too_large = is_number and high < number < math.inf
    if high < MOST_WHOLE or is_too_large:
        bounds.append(f"at most {high:.10g}")
    expected = "a whole number" if whole else "a number"
    if bounds:
        listed_bounds = " and ".join(bounds)
        expected = f"{expected} {listed_bounds}"
    got = shown(value)
    raise InputError(f"`{name}` of `{owner}` must be {expected}; got {got}.")


def check_kind(name: str, value: object, expected: type, *, owner: str) -> None:
    """Raise unless a component is None or of its class."""
    if value is None:
        return
    if not isinstance(value, expected):
        kind = expected.__name__
        got = shown(value)
        raise InputError(f"`{name}` of `{owner}` must be a {kind} or None; got {got}.")


def check_path(path: object, *, subject: str) -> Path:
    """Return the path of a file or folder, or raise unless the system could have such a name."""
    got = shown(path)
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"{subject} is named by a path; got {got}.")
    if isinstance(os.fspath(path), bytes):
        raise InputError(f"{subject} is named by a path; got {got}.")
    checked = Path(path)
    text = str(checked)
    problem = _path_problem(text)
    if problem is not None:
        name = shown(text, most=60)
        raise InputError(f"The path {name} {problem}; choose another.")
    return checked


def _path_problem(path: str) -> str | None:
    """Return why the system cannot have a path, as the end of a sentence; None where it can."""
    if "\0" in path:
        return "holds a NUL"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "holds half of a character"
    name_lengths = map(len, encoded.split(b"/"))
    longest_name = max(name_lengths)
    if longest_name > _LONGEST_NAME or len(encoded) > _LONGEST_PATH:
        return f"is too long: a name has {_LONGEST_NAME} bytes at the most"
    return None


def check_iterable(values: object, description: str) -> None:
    """Raise unless the values are an iterable that is neither a text nor a table."""
    is_mapping_or_text = isinstance(values, (str, bytes, Mapping))
    n_dimensions = getattr(values, "ndim", 1)
    is_scalar = n_dimensions == 0  # an array without dimensions passes for an iterable
    is_iterable = isinstance(values, Iterable)
    if is_mapping_or_text or is_scalar or not is_iterable:
        got = shown(values)
        raise InputError(f"Give {description} as a list; got {got}.")


def as_names(names: object, description: str) -> list[str]:
    """Return names, or a single one, as a list, or raise unless they are texts."""
    if isinstance(names, str):
        return [names]
    is_refused = isinstance(names, (bytes, Mapping))
    if is_refused or not isinstance(names, Iterable):
        got = shown(names)
        raise InputError(f"Give {description} as a list of texts; got {got}.")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            got = shown(name)
            raise InputError(f"Give {description} as texts; got {got} among them.")
    return listed


def check_ranges(estimator: object, ranges: Mapping[str, Mapping[str, Any]]) -> None:
    """Check parameters of an estimator by `check_number`; None passes where it is the default.

    `ranges` has the named arguments of `check_number` by the parameter's name. The baselines of
    the experiments are checked by it.
    """
    owner = type(estimator)
    owner_name = owner.__name__
    parameters = inspect.signature(owner).parameters
    for name, bounds in ranges.items():
        value = getattr(estimator, name)
        may_be_none = parameters[name].default is None
        if value is None and may_be_none:
            continue
        check_number(name, value, owner=owner_name, **bounds)


def first_few(names: Sequence[object], *, most: int = 5) -> str:
    """Return the first few of many names in words, and how many more there are."""
    first_names = map(in_words, names[:most])
    listed = ", ".join(first_names)
    n_more = len(names) - most
    if n_more > 0:
        return f"{listed} and {n_more} more"
    return listed


def warn_dropped(names: Sequence[str], n_documents: int) -> None:
    """Warn about documents that cannot be embedded, naming the first ones; silent without any."""
    if names:
        warnings.warn(
            f"{len(names)} of {n_documents} documents hold no label of the vocabulary and cannot "
            f"be embedded: {first_few(names)}.",
            PolysemeWarning,
            stacklevel=4,
        )


def check_fitted(estimator: object, attribute: str) -> None:
    """Raise `NotFittedError` unless the estimator has the learned attribute."""
    is_fitted = hasattr(estimator, attribute)
    if not is_fitted:
        name = type(estimator).__name__
        raise NotFittedError(f"This {name} is not fitted yet; call `fit` first.")


def check_features(
    X: object, *, owner: str, n_features: int | None = None, keep_single: bool = False
) -> NDArray[np.float64] | sp.csr_matrix:
    """Return features from outside, checked: two dimensions, finite numbers.

    This is not scikit-learn's `check_array`, which loads pandas (half a second of a command) and
    names no rows.

    Parameters
    ----------
    X : array-like, frame or sparse matrix, shape (n_items, n_features)
        A column of vectors, as frames have them, becomes a matrix.
    owner : str
        The class that a message names.
    n_features : int, optional
        How many there must be; by default one at least.
    keep_single : bool
        Whether float32 stays, for callers that widen block by block.

    Returns
    -------
    float64 array or csr_matrix, shape (n_items, n_features)
        The caller's own array, where it was as wanted: it must not be changed.
    """
    array = _as_array(X, owner=owner)
    if np.iscomplexobj(array):
        raise InputError(f"Complex data not supported by `{owner}`; pass real numbers.")
    is_single = keep_single and array.dtype == np.float32
    dtype: Any = np.float32 if is_single else np.float64
    matrix: Any
    try:
        if sp.issparse(array):
            sparse: Any = array
            matrix = sp.csr_matrix(sparse, dtype=dtype)
        else:
            matrix = np.asarray(array, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_numbers(error, owner) from error
    if matrix.ndim != 2:
        raise InputError(
            f"`X` must have two dimensions (instances, features) for `{owner}`; "
            f"got {matrix.ndim}. Reshape your data: one row per instance."
        )
    n_columns = matrix.shape[1]
    if n_columns == 0:
        raise InputError(
            f"`X` has 0 feature(s) (shape={matrix.shape}) while a minimum of 1 is required by "
            f"`{owner}`."
        )
    if n_features is not None and n_columns != n_features:
        raise InputError(
            f"X has {n_columns} features, but {owner} is expecting {n_features} features as input."
        )
    _refuse_non_finite(matrix, owner=owner)
    checked: NDArray[np.float64] | sp.csr_matrix = matrix
    return checked


def _as_array(X: Any, *, owner: str) -> Any:
    """Return the features of any form as an array or as a sound CSR matrix."""
    has_column_names = hasattr(X, "column_names")
    if has_column_names and not is_pandas(X):  # a table of pyarrow
        X = X.to_pandas()
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if isinstance(X, np.ma.MaskedArray):
        raise InputError(
            f"`X` of `{owner}` is a masked array, and its masked numbers have no defined "
            "value; fill them first, as by `X.filled(0)`."
        )
    if sp.issparse(X):
        return check_sparse(X, "X", owner=owner)
    try:
        array = np.asarray(X)
        is_column = array.dtype == object and array.ndim == 1
        if is_column and len(array) and np.ndim(array[0]):  # a column of vectors
            vectors = [np.asarray(vector) for vector in array]
            array = np.stack(vectors)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise _not_numbers(error, owner) from error
    if array.dtype.kind in "mM":
        raise InputError(
            f"`X` of `{owner}` holds times; turn them into numbers first, such as seconds since a "
            "day."
        )
    return array


def _not_numbers(error: Exception, owner: str) -> InputError:
    """Build the error for features that numpy cannot turn into numbers."""
    reason = error_text(error)
    return InputError(
        f"`X` of `{owner}` must hold numbers only; {reason}. Encode text columns first."
    )


def is_pandas(X: object) -> bool:
    """Return whether X is a frame or a column of pandas, whose cells are attributes too."""
    for ancestor in type(X).__mro__:
        package = ancestor.__module__.partition(".")[0]
        if package == "pandas":
            return True
    return False


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns (pandas, polars, pyarrow); None where it has none."""
    if isinstance(X, np.ndarray):  # the usual case, and the fastest to tell
        return None
    names = None
    if is_pandas(X):
        if X.ndim == 2:
            names = X.columns
    elif hasattr(X, "column_names"):
        names = X.column_names
    else:
        names = getattr(X, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return tuple(map(str, names))


def repeated(names: Sequence[str]) -> list[str]:
    """Return the names that stand more than once."""
    counts = Counter(names)
    return [name for name, count in counts.items() if count > 1]


def in_order(X: Any, names: Sequence[str] | None, *, owner: str) -> Any:
    """Return a frame with its columns in the order that a model was fitted with.

    Parameters
    ----------
    X : object
        Returned as it is, where it is no frame or its columns have no names.
    names : sequence of str or None
        The columns of the fit; None where they had no names.
    owner : str
        Whose columns they are.
    """
    present = column_names(X)
    if present is None or names is None:
        return X
    if present == tuple(names):
        return X
    present_names = set(present)
    fitted_names = set(names)
    problems = {
        "lacks the column(s)": [name for name in names if name not in present_names],
        "has column(s) that are unknown:": [name for name in present if name not in fitted_names],
        "names column(s) twice:": repeated(present),
    }
    for problem, columns in problems.items():
        if columns:
            listed = first_few(columns)
            raise InputError(
                f"A frame {problem} {listed}; `{owner}` has {len(names)} columns: "
                f"{first_few(names)}."
            )
    if hasattr(X, "loc"):
        return X[list(names)]
    return X.select(list(names))


def as_row(x: Any) -> Any:
    """Return the features of one instance, with one or two dimensions, as a matrix of one row.

    A frame keeps the names of its columns.
    """
    shape = getattr(x, "shape", ())
    is_table = len(shape) == 2
    if is_table and column_names(x) is not None:
        return x
    if hasattr(x, "to_numpy"):
        x = x.to_numpy()
    if sp.issparse(x):
        sparse: Any = x
        if sparse.ndim == 1:
            return sparse.reshape(1, -1)
        return sparse
    try:
        # A masked array stays one: `check_features` refuses it.
        array = x
        if not isinstance(x, np.ma.MaskedArray):
            array = np.asarray(x)
        return np.atleast_2d(array)
    except (TypeError, ValueError, RuntimeError) as error:
        words = str(error).split()
        message = " ".join(words).rstrip(".")
        reason = in_words(message, most=200)
        raise InputError(f"One item is a row of numbers; {reason}.") from error


def check_instances(
    X: object, n_documents: int, *, owner: str
) -> NDArray[np.float64] | sp.csr_matrix:
    """Check features and that there is one document for each row; see `check_features`."""
    features = check_features(X, owner=owner)
    if features.shape[0] != n_documents:
        raise InputError(
            f"`X` has {features.shape[0]} rows but there are {n_documents} documents; give one "
            "document per row."
        )
    return features


def _refuse_non_finite(matrix: NDArray[np.float64] | sp.csr_matrix, *, owner: str) -> None:
    """Raise when a feature is NaN or infinite, naming the first rows that hold one."""
    values = matrix.data if sp.issparse(matrix) else matrix
    dtype = values.dtype
    limit = MOST_FEATURE
    if dtype.kind == "f" and dtype.itemsize < 8:  # single precision ends before that
        limit = np.finfo(dtype).max
    largest = values.max(initial=0)
    smallest = values.min(initial=0)
    # Every comparison with NaN is false.
    if max(largest, -smallest) <= limit:
        return
    in_range = np.abs(values) <= limit
    if sp.issparse(matrix):
        entry_rows = matrix.tocoo().row
        wrong_rows = entry_rows[~in_range]
        rows = np.unique(wrong_rows)
    else:
        is_row_in_range = in_range.all(axis=1)
        rows = np.flatnonzero(~is_row_in_range)
    listed = first_few(rows.tolist())
    if np.isfinite(values).all():
        raise InputError(
            f"`X` of `{owner}` contains numbers beyond {MOST_FEATURE:g} in row(s) {listed}; scale "
            "them first."
        )
    raise InputError(
        f"`X` of `{owner}` contains NaN or infinity in row(s) {listed}; impute or drop them first."
    )


def check_sparse(matrix: Any, name: str, *, owner: str) -> sp.csr_matrix:
    """Return a sparse matrix from outside as CSR, or raise where its structure is wrong.

    The arrays may be the caller's own: they must not be changed. Compiled code trusts indices and
    row pointers: wrong ones read and write foreign memory.
    """
    if getattr(matrix, "ndim", 2) != 2:
        raise InputError(
            f"`{name}` must have two dimensions for `{owner}`; got {matrix.ndim}. Reshape your "
            "data: one row per instance."
        )
    subject = f"`{name}` of `{owner}`"
    try:
        if matrix.format in ("csr", "csc"):
            return _checked_compressed(matrix, subject)
        return _checked_triples(matrix, subject)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{subject} is no sound sparse matrix ({error_text(error)}); build it anew."
        ) from error


def _checked_compressed(matrix: Any, subject: str) -> sp.csr_matrix:
    """Return a CSR or CSC matrix as CSR, or raise where its structure is wrong."""
    n_rows, n_columns = matrix.shape
    data = np.asarray(matrix.data)
    indices = np.asarray(matrix.indices)
    indptr = np.asarray(matrix.indptr)
    constructor: Any = sp.csr_matrix
    if matrix.format == "csc":  # rows and columns change their roles
        constructor = sp.csc_matrix
        n_rows, n_columns = n_columns, n_rows
    check_compressed(indices, indptr, n_rows, n_columns, subject)
    if data.shape != indices.shape:
        raise InputError(
            f"{subject} has {data.size} values for {indices.size} places; build it anew."
        )
    compressed = constructor((data, indices, indptr), shape=matrix.shape)
    return sp.csr_matrix(compressed)


def _checked_triples(matrix: Any, subject: str) -> sp.csr_matrix:
    """Return a matrix of any other format as CSR, or raise where its structure is wrong.

    Triples are row, column and value of each stored number, scipy's COO format.
    """
    problem = None
    n_rows, n_columns = matrix.shape
    if matrix.format == "bsr":
        # scipy may drop unused places at the end of the caller's arrays; no value changes.
        matrix.check_format(full_check=True)
    elif matrix.format == "lil":
        n_places = [len(columns) for columns in matrix.rows]
        n_values = [len(values) for values in matrix.data]
        if n_places != n_values or len(n_places) != n_rows:
            problem = "rows with other places than values"
    elif matrix.format == "dia":
        n_diagonals = len(matrix.data)
        if n_diagonals != len(matrix.offsets):
            problem = "diagonals without a place"
    if problem is None:
        triples = matrix.tocoo()
        rows_in_range = _are_below(triples.row, n_rows)
        columns_in_range = _are_below(triples.col, n_columns)
        if rows_in_range and columns_in_range:
            return sp.csr_matrix(triples)
        problem = f"places outside its {matrix.shape}"
    raise InputError(f"{subject} has {problem}; build it anew.")


def _are_below(indices: NDArray[Any], limit: int) -> bool:
    """Return whether all indices are 0 or more, and below a limit; True without any."""
    if not len(indices):
        return True
    lowest = indices.min()
    highest = indices.max()
    return bool(lowest >= 0 and highest < limit)


def check_compressed(
    indices: NDArray[Any], indptr: NDArray[Any], n_rows: int, n_columns: int, subject: str
) -> None:
    """Raise unless indices and row pointers are those of a CSR matrix.

    Parameters
    ----------
    indices : array, shape (n_stored,)
        The column of each stored number, row after row.
    indptr : array, shape (n_rows + 1,)
        Where each row begins in `indices`, and where the last one ends.
    n_rows, n_columns : int
    subject : str
        What a message names.
    """
    problem = None
    are_whole = indices.dtype.kind == "i" and indptr.dtype.kind == "i"
    are_flat = indices.ndim == 1 and indptr.ndim == 1
    if not are_whole:
        problem = "indices or row pointers that are no whole numbers"
    elif not are_flat or len(indptr) != n_rows + 1:
        n_pointed = indptr.size - 1
        problem = f"row pointers for {n_pointed} rows in place of {n_rows}"
    elif not _rises(indptr, len(indices)):
        problem = "row pointers that do not rise from 0 to the number of its indices"
    elif not _are_below(indices, n_columns):
        problem = f"indices outside its {n_columns} columns"
    if problem is not None:
        raise InputError(f"{subject} has {problem}; build it anew.")


def _rises(indptr: NDArray[Any], n_indices: int) -> bool:
    """Return whether row pointers, one at least, rise from 0 to the number of indices or less."""
    if indptr[0] != 0 or indptr[-1] > n_indices:
        return False
    starts = indptr[:-1]
    stops = indptr[1:]
    falls = stops < starts
    return not bool(falls.any())


def check_device(device: object, *, owner: str) -> str:
    """Return the name of a torch device, or raise where there is none; None means a GPU, if any."""
    if isinstance(device, str) and device == "cpu":
        return "cpu"
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=torch.device(str(device))).item()
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        # torch raises several kinds for the same problem.
        raise InputError(
            f"`device` of `{owner}` is {shown(device)}, which torch cannot use here; 'cpu' "
            "(--device cpu) always works."
        ) from error
    return str(device)
