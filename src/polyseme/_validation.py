"""Shared input checks, randomness handling and the wording of errors.

Every function here takes what a user passed and returns what the rest of the package works on,
or raises an `InputError` whose message is one sentence that says what to do.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import exceptions

from polyseme._text import error_text, in_words, printable, shown

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.int64]
RandomState: TypeAlias = int | np.random.Generator | None

# The largest numbers that parameters may have, and the largest features: their squares are finite.
MOST_WHOLE = 2**31 - 1
MOST_NUMBER = 1e300
MOST_FEATURE = 1e100
# What file systems take, in bytes.
_LONGEST_NAME = 255
_LONGEST_PATH = 4095


class InputError(ValueError):
    """What the user passed cannot be used; the message says why and what to do.

    It is one line that can be printed, whatever of a stranger's file stands in it.
    """

    def __init__(self, *words: object) -> None:
        super().__init__(*(printable(one) if isinstance(one, str) else one for one in words))


class NotFittedError(InputError, exceptions.NotFittedError):  # type: ignore[misc]  # no types
    """A method that needs learned state was called before `fit`."""


class RowError(InputError, IndexError):
    """A row was asked for that is not there."""


class PolysemeWarning(UserWarning):
    """The input is usable but something about it should be known."""


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Turn the one `random_state` of an estimator into the generator that is passed down."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31 - 1))
    if random_state is not None and not isinstance(
        random_state, (int, np.integer, np.random.Generator)
    ):
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


def unknown_name(kind: str, name: object, known: Iterable[str]) -> InputError:
    """Build the error for a name that is not among the known ones, closest match first."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return InputError(f"Unknown {kind} '{name}'; known: {', '.join(names)}{hint or '.'}")


def check_option(name: str, value: object, allowed: Iterable[str], *, owner: str) -> None:
    """Raise unless a string parameter is one of the allowed words."""
    options = list(allowed)
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise InputError(f"`{name}` of `{owner}` must be one of {listed}; got {shown(value)}.")


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

    Both ends are included; with `above`, `low` itself is refused.
    """
    kinds: tuple[type, ...] = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    right_kind = isinstance(value, kinds) and not isinstance(value, bool)
    given: Any = value.item() if isinstance(value, np.generic) else value
    # Whole numbers have any size in Python, but not in the libraries that they are handed to.
    high = min(high, MOST_WHOLE if whole else MOST_NUMBER)
    if right_kind and low <= given <= high and not (above and given == low):
        return
    wanted = "a whole number" if whole else "a number"
    bounds = []
    if low > -np.inf:
        bounds.append(f"{'above' if above else 'at least'} {low:g}")
    if high < MOST_WHOLE or (right_kind and high < given < math.inf):
        bounds.append(f"at most {high:.10g}")
    words = " ".join([wanted, " and ".join(bounds)]).strip()
    raise InputError(f"`{name}` of `{owner}` must be {words}; got {shown(value)}.")


def check_kind(name: str, value: object, wanted: type, *, owner: str) -> None:
    """Raise unless a component is None or of its class."""
    if value is not None and not isinstance(value, wanted):
        raise InputError(
            f"`{name}` of `{owner}` must be a {wanted.__name__} or None; got {shown(value)}."
        )


def check_path(path: object, *, what: str) -> Path:
    """Return the path of a file or folder, or raise unless the system could have such a name."""
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise InputError(f"{what} is named by a path; got {shown(path)}.")
    place = Path(path)
    wrong = None
    if "\0" in str(place):
        wrong = "holds a NUL"
    else:
        try:
            encoded = os.fsencode(place)
        except UnicodeEncodeError:
            wrong = "holds half of a character"
        else:
            longest = max(map(len, encoded.split(b"/")))
            if longest > _LONGEST_NAME or len(encoded) > _LONGEST_PATH:
                wrong = f"is too long: a name has {_LONGEST_NAME} bytes at the most"
    if wrong is not None:
        raise InputError(f"The path {shown(str(place), 60)} {wrong}; choose another.")
    return place


def check_iterable(values: object, what: str) -> None:
    """Raise unless something holds one thing after another, and is no text or table."""
    single = isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) == 0
    if single or not isinstance(values, Iterable):
        raise InputError(f"Give {what} as a list; got {shown(values)}.")


def as_names(names: object, what: str) -> list[str]:
    """Return names, or a single one, as a list, or raise unless they are texts."""
    given = [names] if isinstance(names, str) else names
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise InputError(f"Give {what} as a list of texts; got {shown(names)}.")
    listed = list(given)
    for name in listed:
        if not isinstance(name, str):
            raise InputError(f"Give {what} as texts; got {shown(name)} among them.")
    return listed


def check_ranges(estimator: object, ranges: Mapping[str, Mapping[str, Any]]) -> None:
    """Check parameters of an estimator by `check_number`; None passes where it is the default."""
    parameters = inspect.signature(type(estimator)).parameters
    for name, bounds in ranges.items():
        value = getattr(estimator, name)
        if value is not None or parameters[name].default is not None:
            check_number(name, value, owner=type(estimator).__name__, **bounds)


def first_few(names: Sequence[object], *, most: int = 5) -> str:
    """Name the first few of many things, and say how many more there are."""
    named = ", ".join(map(in_words, names[:most]))
    if len(names) > most:
        return f"{named} and {len(names) - most} more"
    return named


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
    if not hasattr(estimator, attribute):
        name = type(estimator).__name__
        raise NotFittedError(f"This {name} is not fitted yet; call `fit` first.")


def check_features(
    X: object, *, owner: str, n_features: int | None = None, keep_single: bool = False
) -> NDArray[np.float64] | sp.csr_matrix:
    """Check features (n, n_features), an array-like, a frame, or sparse, which stays sparse.

    A column of vectors, as frames have them, becomes a matrix. Numbers become float64; with
    `keep_single` float32 stays, for callers that widen block by block.
    """
    given: Any = X
    if hasattr(given, "column_names") and not is_pandas(given):  # a table of pyarrow
        given = given.to_pandas()
    given = given.to_numpy() if hasattr(given, "to_numpy") else given
    matrix: Any = None
    if isinstance(given, np.ma.MaskedArray):
        raise InputError(
            f"`X` of `{owner}` is a masked array, of which it is not said what masked numbers "
            "stand for; fill them first, as by `X.filled(0)`."
        )
    if sp.issparse(given):
        given = check_sparse(given, "X", owner=owner)
    try:
        given = given if sp.issparse(given) else np.asarray(given)
        if given.dtype.kind in "mM":
            raise InputError(
                f"`X` of `{owner}` holds times; turn them into numbers first, such as seconds "
                "since a day."
            )
        if given.dtype == object and given.ndim == 1 and len(given) and np.ndim(given[0]):
            given = np.stack([np.asarray(vector) for vector in given])
        dtype = np.float32 if keep_single and given.dtype == np.float32 else np.float64
        if not np.iscomplexobj(given):
            matrix = (sp.csr_matrix if sp.issparse(given) else np.asarray)(given, dtype=dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"`X` of `{owner}` must hold numbers only; {error_text(error)}. Encode text columns "
            "first."
        ) from error
    if matrix is None:
        raise InputError(f"Complex data not supported by `{owner}`; pass real numbers.")
    if matrix.ndim != 2:
        raise InputError(
            f"`X` must have two dimensions (instances, features) for `{owner}`; "
            f"got {matrix.ndim}. Reshape your data: one row per instance."
        )
    if matrix.shape[1] == 0:
        found = f"0 feature(s) (shape={matrix.shape})"
        raise InputError(f"`X` has {found} while a minimum of 1 is required by `{owner}`.")
    if n_features is not None and matrix.shape[1] != n_features:
        wanted = f"{owner} is expecting {n_features} features as input"
        raise InputError(f"X has {matrix.shape[1]} features, but {wanted}.")
    _refuse_non_finite(matrix, owner=owner)
    checked: NDArray[np.float64] | sp.csr_matrix = matrix
    return checked


def is_pandas(X: object) -> bool:
    """Return whether something is a frame or a column of pandas, whose cells are attributes too."""
    return any(made.__module__.partition(".")[0] == "pandas" for made in type(X).__mro__)


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns (pandas, polars, pyarrow); None where it has none."""
    if isinstance(X, np.ndarray):  # the usual case, and the fastest to tell
        return None
    if is_pandas(X):
        names = X.columns if X.ndim == 2 else None
    else:
        names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return tuple(str(name) for name in names)


def without_ids(X: Any) -> tuple[Any, list[str] | None]:
    """Return a frame's features and its column `id`, None where it names no rows.

    Features are the column of vectors where there is one, and else all columns but `id`.
    """
    if isinstance(X, np.ndarray):  # a masked one has `ids` that are none
        return X, None
    names = column_names(X) or ()
    if not names or (hasattr(X, "ids") and not is_pandas(X)):
        own = None if is_pandas(X) else getattr(X, "ids", None)
        return X, None if own is None else [str(name) for name in own]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise InputError(f"X names column(s) twice: {first_few(twice)}; rename one.")
    ids = [str(name) for name in _listed(X["id"])] if "id" in names else None
    vectors = [name for name in names if _holds_vectors(_listed(X[name][:1]))]
    if len(vectors) > 1:
        raise InputError(
            f"X has several columns of vectors ({first_few(vectors)}); pass one of them, such as "
            f"X['{vectors[0]}']."
        )
    if vectors:
        return X[vectors[0]], ids
    if ids is None:
        return X, None
    return (X.drop(columns="id") if hasattr(X, "loc") else X.drop(["id"])), ids


def _listed(column: Any) -> list[Any]:
    """Return a column of pandas, polars or pyarrow as a list."""
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column.to_list())


def _holds_vectors(cells: list[Any]) -> bool:
    """Return whether the first of some cells is a list of numbers."""
    return bool(cells) and np.ndim(cells[0]) == 1 and np.asarray(cells[0]).dtype.kind in "biuf"


def in_order(X: Any, names: Sequence[str] | None, *, owner: str) -> Any:
    """Return a frame with its columns in the order that a model was fitted with.

    Parameters
    ----------
    X : object
        What is no frame, or has no names, is given back as it is.
    names : sequence of str or None
        The columns of the fit; None where they had no names.
    owner : str
        What they belong to.
    """
    present = column_names(X)
    if present is None or names is None or present == tuple(names):
        return X
    for what, some in (
        ("lacks the column(s)", [name for name in names if name not in set(present)]),
        ("has column(s) that are unknown:", [n for n in present if n not in set(names)]),
        ("names column(s) twice:", [n for n in set(present) if present.count(n) > 1]),
    ):
        if some:
            raise InputError(
                f"A frame {what} {first_few(some)}; `{owner}` has {len(names)} columns: "
                f"{first_few(names)}."
            )
    if hasattr(X, "loc"):
        return X[list(names)]
    return X.select(list(names))


def as_row(x: Any) -> Any:
    """Return the features of one instance, with one or two dimensions, as a matrix of one row.

    What has columns with names keeps them.
    """
    if column_names(x) is not None and len(getattr(x, "shape", ())) == 2:
        return x
    if hasattr(x, "to_numpy"):
        x = x.to_numpy()
    if not sp.issparse(x):
        masked = isinstance(x, np.ma.MaskedArray)  # which is refused where it is looked at
        try:
            return np.atleast_2d(x if masked else np.asarray(x))
        except (TypeError, ValueError, RuntimeError) as error:
            reason = in_words(" ".join(str(error).split()).rstrip("."), 200)
            raise InputError(f"One item is a row of numbers; {reason}.") from error
    sparse: Any = x
    if sparse.ndim == 1:
        return sparse.reshape(1, -1)
    return sparse


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
    # Of what is not a number every comparison is false; numbers of half the size end earlier.
    single = values.dtype.kind == "f" and values.dtype.itemsize < 8
    most = np.finfo(values.dtype).max if single else MOST_FEATURE
    if max(values.max(initial=0), -values.min(initial=0)) <= most:
        return
    good = np.abs(values) <= most
    if sp.issparse(matrix):
        rows = np.unique(matrix.tocoo().row[~good])
    else:
        rows = np.flatnonzero(~good.all(axis=1))
    if np.isfinite(values).all():
        raise InputError(
            f"`X` of `{owner}` contains numbers beyond {MOST_FEATURE:g} in row(s) "
            f"{first_few(rows.tolist())}; scale them first."
        )
    raise InputError(
        f"`X` of `{owner}` contains NaN or infinity in row(s) {first_few(rows.tolist())}; "
        "impute or drop them first."
    )


def _dtype_of(X: Any) -> object:
    """Return the type of an array's numbers; None of anything else."""
    return getattr(X, "dtype", None)


def check_sparse(matrix: Any, name: str, *, owner: str) -> sp.csr_matrix:
    """Return a sparse matrix that somebody passed as CSR, or raise where its structure is wrong.

    Compiled code trusts indices and row pointers: wrong ones read and write foreign memory.
    """
    if getattr(matrix, "ndim", 2) != 2:
        raise InputError(
            f"`{name}` must have two dimensions for `{owner}`; got {matrix.ndim}. Reshape your "
            "data: one row per instance."
        )
    what = f"`{name}` of `{owner}`"
    n_rows, n_columns = matrix.shape
    try:
        if matrix.format in ("csr", "csc"):
            by_rows = matrix.format == "csr"
            parts = (np.asarray(matrix.data), np.asarray(matrix.indices), np.asarray(matrix.indptr))
            lengths = (n_rows, n_columns) if by_rows else (n_columns, n_rows)
            check_compressed(*parts[1:], *lengths, what)
            if parts[0].shape != parts[1].shape:
                raise InputError(
                    f"{what} has {parts[0].size} values for {parts[1].size} places; build it anew."
                )
            made = sp.csr_matrix if by_rows else sp.csc_matrix
            return sp.csr_matrix(made(parts, shape=matrix.shape))
        if matrix.format == "bsr":
            matrix.check_format(full_check=True)
        elif matrix.format == "lil":
            lengths_of = [[len(row) for row in part] for part in (matrix.rows, matrix.data)]
            if lengths_of[0] != lengths_of[1] or len(lengths_of[0]) != n_rows:
                raise InputError(f"{what} has rows with other places than values; build it anew.")
        elif matrix.format == "dia" and len(matrix.data) != len(matrix.offsets):
            raise InputError(f"{what} has diagonals without a place; build it anew.")
        # The other formats are put together by numpy, which checks: once more, what came of it.
        triples = matrix.tocoo()
        for places, length in zip((triples.row, triples.col), matrix.shape, strict=True):
            if len(places) and not (places.min() >= 0 and places.max() < length):
                raise InputError(f"{what} has places outside its {matrix.shape}; build it anew.")
        return sp.csr_matrix(triples)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        told = f"{what} is no sound sparse matrix ({error_text(error)}); build it anew."
        raise InputError(told) from error


def check_compressed(
    indices: NDArray[Any], indptr: NDArray[Any], n_rows: int, n_columns: int, what: str
) -> None:
    """Raise unless indices and row pointers are those of n_rows rows of n_columns columns."""
    wrong = None
    if indices.dtype.kind != "i" or indptr.dtype.kind != "i":
        wrong = "indices or row pointers that are no whole numbers"
    elif indices.ndim != 1 or indptr.ndim != 1 or len(indptr) != n_rows + 1:
        wrong = f"row pointers for {indptr.size - 1} rows in place of {n_rows}"
    elif indptr[0] != 0 or indptr[-1] > len(indices) or (indptr[1:] < indptr[:-1]).any():
        wrong = "row pointers that do not rise from 0 to the number of its indices"
    elif len(indices) and not (indices.min() >= 0 and indices.max() < n_columns):
        wrong = f"indices outside its {n_columns} columns"
    if wrong is not None:
        raise InputError(f"{what} has {wrong}; build it anew.")


def check_device(device: object, *, owner: str) -> str:
    """Return the name of a torch device, or raise unless it is there; None: a GPU, if any."""
    if isinstance(device, str) and device == "cpu":
        return "cpu"
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=torch.device(str(device))).item()
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        # torch says the same thing in several ways, one of them an assertion.
        raise InputError(
            f"`device` of `{owner}` is {shown(device)}, which torch cannot use here; 'cpu' "
            "(--device cpu) always works."
        ) from error
    return str(device)
