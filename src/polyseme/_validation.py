"""Shared input checks, randomness handling and the wording of errors.

Every function here takes what a user passed and returns what the rest of the package works on,
or raises an `InputError` whose message is one sentence that says what to do.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import exceptions

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.int64]
RandomState: TypeAlias = int | np.random.Generator | None


class InputError(ValueError):
    """What the user passed cannot be used; the message says why and what to do."""


class NotFittedError(InputError, exceptions.NotFittedError):  # type: ignore[misc]  # no types
    """A method that needs learned state was called before `fit`."""


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
            f"got {random_state!r}."
        )
    if isinstance(random_state, (int, np.integer)) and random_state < 0:
        raise InputError(f"`random_state` must not be negative; got {random_state}.")
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
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise InputError(f"`{name}` of `{owner}` must be one of {listed}; got {value!r}.")


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
    given: Any = value
    inside = right_kind and np.isfinite(given) and low <= given <= high
    if inside and not (above and given == low):
        return
    wanted = "a whole number" if whole else "a number"
    bounds = []
    if low > -np.inf:
        bounds.append(f"{'above' if above else 'at least'} {low:g}")
    if high < np.inf:
        bounds.append(f"at most {high:g}")
    words = " ".join([wanted, " and ".join(bounds)]).strip()
    raise InputError(f"`{name}` of `{owner}` must be {words}; got {value!r}.")


def check_ranges(estimator: object, ranges: Mapping[str, Mapping[str, Any]]) -> None:
    """Check parameters of an estimator by `check_number`; None passes where it is the default."""
    parameters = inspect.signature(type(estimator)).parameters
    for name, bounds in ranges.items():
        value = getattr(estimator, name)
        if value is not None or parameters[name].default is not None:
            check_number(name, value, owner=type(estimator).__name__, **bounds)


def first_few(names: Sequence[object], *, most: int = 5) -> str:
    """Name the first few of many things, and say how many more there are."""
    named = ", ".join(str(name) for name in names[:most])
    return f"{named} and {len(names) - most} more" if len(names) > most else named


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
    if hasattr(given, "column_names"):  # a table of pyarrow
        given = given.to_pandas()
    given = given.to_numpy() if hasattr(given, "to_numpy") else given
    matrix: Any = None
    try:
        given = given if sp.issparse(given) else np.asarray(given)
        if given.dtype == object and given.ndim == 1 and len(given) and np.ndim(given[0]):
            given = np.stack([np.asarray(vector) for vector in given])
        dtype = np.float32 if keep_single and given.dtype == np.float32 else np.float64
        if not np.iscomplexobj(given):
            matrix = (sp.csr_matrix if sp.issparse(given) else np.asarray)(given, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`X` of `{owner}` must hold numbers only; {error}. Encode text columns first."
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


def column_names(X: object) -> tuple[str, ...] | None:
    """Give the names of a frame's columns (pandas, polars, pyarrow); None where it has none."""
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return tuple(str(name) for name in names)


def without_ids(X: Any) -> tuple[Any, list[str] | None]:
    """Give a frame's features and its column `id`, None where it names no rows.

    Features are the column of vectors where there is one, and else all columns but `id`.
    """
    names = column_names(X) or ()
    if not names or hasattr(X, "ids"):
        return X, [str(name) for name in X.ids] if getattr(X, "ids", None) is not None else None
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
    """Give a column of pandas, polars or pyarrow as a list."""
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column.to_list())


def _holds_vectors(cells: list[Any]) -> bool:
    """Say whether the first of some cells is a list of numbers."""
    return bool(cells) and np.ndim(cells[0]) == 1 and np.asarray(cells[0]).dtype.kind in "biuf"


def in_order(X: Any, names: Sequence[str] | None, *, owner: str) -> Any:
    """Give a frame with its columns in the order that a model was fitted with.

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
    return X[list(names)] if hasattr(X, "loc") else X.select(list(names))


def as_row(x: Any) -> Any:
    """Give the features of one instance, with one or two dimensions, as a matrix of one row.

    What has columns with names keeps them.
    """
    if column_names(x) is not None and len(getattr(x, "shape", ())) == 2:
        return x
    if hasattr(x, "to_numpy"):
        x = x.to_numpy()
    if not sp.issparse(x):
        return np.atleast_2d(np.asarray(x))
    sparse: Any = x
    return sparse.reshape(1, -1) if sparse.ndim == 1 else sparse


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
    # A finite sum is proof without a temporary array; a sum that overflows says nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.sum(values)
    if np.isfinite(total) or np.isfinite(values).all():
        return
    if sp.issparse(matrix):
        rows = np.unique(matrix.tocoo().row[~np.isfinite(values)])
    else:
        rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    raise InputError(
        f"`X` of `{owner}` contains NaN or infinity in row(s) {first_few(rows.tolist())}; "
        "impute or drop them first."
    )


def check_device(device: object, *, owner: str) -> str:
    """Give the name of a torch device, or raise unless it is there; None: a GPU if there is one."""
    if device == "cpu":
        return "cpu"
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=torch.device(str(device))).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        # torch says the same thing in several ways, one of them an assertion.
        raise InputError(
            f"`device` of `{owner}` is {device!r}, which torch cannot use here; 'cpu' "
            "(--device cpu) always works."
        ) from error
    return str(device)
