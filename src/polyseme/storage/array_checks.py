"""What saved models may hold: every value and every array, with its type, its size and its range.

In: values and arrays as a file has them, and what they should be. Out: nothing, or one sentence
that names what is wrong. A stranger's file may be wrong, never unsafe: nothing in it is used
before it was checked here, and what is not declared is refused.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.text import is_text, shown
from polyseme.base.validation import InputError, check_compressed
from polyseme.storage.model_file import Arrays, ModelFileError

# Larger numbers are found in no model, and their products are finite in single precision.
WEIGHT_LIMIT = 1e6
# Codes are hyperbolic tangents, axes and points have the length 1, all up to rounding.
UNIT_LIMIT = 1.001


@contextmanager
def name_folder_in_errors(path: str | Path, kind: str = "model") -> Iterator[None]:
    """Name the folder in an error about its content."""
    try:
        yield
    except _ContentError as error:
        raise ModelFileError(f"The {kind} at '{path}' cannot be used: {error}") from error


@contextmanager
def name_part_in_errors(name: str) -> Iterator[None]:
    """Name the part of a state in an error about its content."""
    try:
        yield
    except _ContentError as error:
        raise _ContentError(f"{name}.{error.name}", error.wanted) from error


class _ContentError(ModelFileError):
    """Something in a saved state is not as it was declared."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"'{name}' must be {wanted}.")
        self.name = name
        self.wanted = wanted


def refuse(name: str, wanted: str, got: object = None) -> ModelFileError:
    """Build the error for something that is not as declared."""
    return _ContentError(name, wanted if got is None else f"{wanted}; got {got}")


def require(condition: object, name: str, wanted: str) -> None:
    """Raise unless parts of a state fit each other."""
    if not condition:
        raise refuse(name, wanted)


# ---------------------------------------------------------------------- values


class Kind:
    """What a value must be, in words and as a test."""

    def __init__(self, wanted: str, accepts: Callable[[Any], bool]) -> None:
        self.wanted = wanted
        self.accepts = accepts

    def check(self, value: Any, name: str = "config") -> None:
        """Raise unless a value is of this kind."""
        if not self.accepts(value):
            raise refuse(name, self.wanted, shown(value))


def _is_finite(value: object) -> bool:
    """Return whether a value is a finite number, of any size."""
    if type(value) is int:
        return abs(value) < 2**1023
    return type(value) is float and math.isfinite(value)


def _is_plain(value: object) -> bool:
    """Return whether a value is text, a finite number, nothing, or a list or table of such."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, Mapping):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, str):
            if not is_text(item):
                return False
        elif not (item is None or isinstance(item, (bool, int)) or _is_finite(item)):
            return False
    return True


Flag = partial(Kind, "true or false", lambda value: type(value) is bool)
Text = partial(
    Kind,
    "text without NUL and without half characters",
    lambda value: isinstance(value, str) and is_text(value),
)
# Anything that is only shown or compared, and anything that a part checks by itself.
Plain = partial(Kind, "plain values with finite numbers and whole text", _is_plain)
Anything = partial(Kind, "anything", lambda value: True)


class Whole(Kind):
    """A whole number, by default one of 64 bits."""

    def __init__(self, low: int = -(2**63), high: int = 2**63 - 1) -> None:
        wanted = f"a whole number from {low:g} to {high:g}"
        super().__init__(wanted, lambda value: type(value) is int and low <= value <= high)


class Number(Kind):
    """A finite number."""

    def __init__(self, low: float = -math.inf, high: float = math.inf) -> None:
        wanted = f"a finite number from {low:g} to {high:g}"
        super().__init__(wanted, lambda value: _is_finite(value) and low <= value <= high)


class Choice(Kind):
    """One of some words."""

    def __init__(self, options: Collection[str]) -> None:
        wanted = f"one of {', '.join(options)}"
        super().__init__(wanted, lambda value: isinstance(value, str) and value in options)


class Either(Kind):
    """A value of one of some kinds without inner values."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        wanted = " or ".join(kind.wanted for kind in kinds)
        super().__init__(wanted, lambda value: any(kind.accepts(value) for kind in kinds))


@dataclass(frozen=True)
class Maybe(Kind):
    """Nothing, or a value of some kind."""

    kind: Kind

    def check(self, value: Any, name: str = "config") -> None:
        """See `Kind.check`."""
        if value is not None:
            self.kind.check(value, name)


@dataclass(frozen=True)
class ListOf(Kind):
    """A list of values of one kind, of a length or a least one, all different."""

    kind: Kind
    length: int | None = None
    distinct: bool = False
    least: int = 0

    def check(self, value: Any, name: str = "config") -> None:
        """See `Kind.check`."""
        if not isinstance(value, (list, tuple)):
            raise refuse(name, "a list", shown(value))
        if self.length is not None and len(value) != self.length:
            raise refuse(name, f"a list of {self.length}", len(value))
        if len(value) < self.least:
            raise refuse(name, f"a list of {self.least} at the least", len(value))
        for item in value:
            self.kind.check(item, name)
        if self.distinct and len(set(value)) < len(value):
            raise refuse(name, "a list of different values")


@dataclass(frozen=True)
class MappingOf(Kind):
    """Values of one kind by any names."""

    kind: Kind

    def check(self, value: Any, name: str = "config") -> None:
        """See `Kind.check`."""
        if not isinstance(value, Mapping):
            raise refuse(name, "a table", shown(value))
        for key, item in value.items():
            Text().check(key, name)
            self.kind.check(item, f"{name}.{key:.40}")


@dataclass(frozen=True)
class Fields(Kind):
    """Values by declared names; those that are optional may be missing, and no other is there."""

    kinds: Mapping[str, Kind]
    optional: Collection[str] = ()

    def check(self, value: Any, name: str = "config") -> None:
        """See `Kind.check`."""
        if not isinstance(value, Mapping):
            raise refuse(name, "a table", shown(value))
        _check_names(value, self.kinds, self.optional, name)
        is_outermost = name == "config"
        for key, item in value.items():
            path = key if is_outermost else f"{name}.{key}"
            self.kinds[key].check(item, path)


_KINDS_BY_TYPE: dict[str, Kind] = {
    "int": Whole(),
    "float": Number(),
    "bool": Flag(),
    "str": Text(),
    "Path": Text(),
    # A seed may be a number of any size.
    "RandomState": Maybe(Whole(0, 2**1000)),
}


def declare_parameters(owner: type, *names: str) -> Fields:
    """Declare parameters of a constructor, all or some, by the annotations of their types."""
    signature = inspect.signature(owner).parameters
    kinds = {}
    for name in names or signature:
        annotation = str(signature[name].annotation)
        kinds[name] = _kind_of(annotation)
    return Fields(kinds)


def _kind_of(annotation: str) -> Kind:
    """Return the kind of an annotation such as "int | None" or "tuple[float, float]"."""
    if annotation.startswith("tuple["):
        types = annotation.removeprefix("tuple[").removesuffix("]").split(", ")
        return ListOf(_kind_of(types[0]), len(types))
    types = annotation.split(" | ")
    kinds = [_KINDS_BY_TYPE[name] for name in types if name != "None"]
    kind = kinds[0] if len(kinds) == 1 else Either(kinds)
    return Maybe(kind) if "None" in types else kind


# ---------------------------------------------------------------------- arrays


@dataclass(frozen=True)
class Array:
    """What an array must be: its type, its shape, and where its numbers lie; all are finite.

    `dtype` names one or more types. `shape` holds lengths and names of sizes, such as "n_labels",
    "n_labels+1" or "n_members*code"; the first array that names a size says what it is. Numbers are
    smaller than the size `below`; rows are at most `longest` long. An array that is `or_empty` may
    have no columns where it has no rows.
    """

    dtype: str
    shape: tuple[int | str, ...]
    low: float = -WEIGHT_LIMIT
    high: float = WEIGHT_LIMIT
    below: str | None = None
    distinct: bool = False
    longest: float | None = None
    or_empty: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Csr:
    """What three arrays of a sparse matrix must be: `data`, `indices` and `indptr` below a name.

    Without a dtype there are no data: a matrix of 0 and 1.
    """

    shape: tuple[str, str]
    dtype: str | None = None
    low: float = -WEIGHT_LIMIT
    high: float = WEIGHT_LIMIT


def check_arrays(
    arrays: Arrays, declared: Mapping[str, Array | Csr], **sizes: int
) -> dict[str, int]:
    """Raise unless arrays are as declared; return all sizes, those that were given and met.

    A `Csr` is declared by the name in front of "data", "indices" and "indptr", or by "".
    """
    dense: dict[str, Array] = {}
    for name, declaration in declared.items():
        if isinstance(declaration, Csr):
            dense |= _csr_parts(name, declaration)
        else:
            dense[name] = declaration
    optional = [name for name, declaration in dense.items() if declaration.optional]
    _check_names(arrays, dense, optional, "arrays")
    for name, declaration in dense.items():
        if name in arrays:
            _check_array(arrays[name], declaration, name, sizes)
    for name, declaration in declared.items():
        if isinstance(declaration, Csr):
            n_rows, n_columns = (_length(size, sizes) for size in declaration.shape)
            _check_rows(arrays, name, n_rows, n_columns)
    return sizes


def check_parts(
    arrays: Arrays,
    config: Mapping[str, Any],
    part_names: Collection[str],
    array_names: Collection[str],
) -> None:
    """Refuse arrays that are neither a state's own nor those of a part that its values have."""
    for name in arrays:
        prefix, dot, _ = name.partition(".")
        is_of_part = bool(dot) and prefix in part_names and prefix in config
        if name not in array_names and not is_of_part:
            raise refuse("arrays", f"without {shown(name)}, which no model has")


def matrix_of(arrays: Arrays, shape: tuple[int, int], name: str = "") -> sp.csr_matrix:
    """Return the sparse matrix of three arrays that were checked; see `Csr`."""
    prefix = f"{name}." if name else ""
    indices = arrays[f"{prefix}indices"]
    indptr = arrays[f"{prefix}indptr"]
    data = arrays.get(f"{prefix}data")
    if data is None:
        data = np.ones(len(indices), dtype=bool)
    return sp.csr_matrix((data, indices, indptr), shape=shape, copy=True)


def declare_like(state: Mapping[str, NDArray[Any]], squares: str = "square") -> dict[str, Array]:
    """Declare arrays as those of a state of the same form; moments of squares are not negative."""
    declared = {}
    for name, array in state.items():
        low = 0 if squares in name else -1e15
        declared[name] = Array(array.dtype.name, array.shape, low, 1e15)
    return declared


def _csr_parts(name: str, declared: Csr) -> dict[str, Array]:
    """Declare the arrays of a sparse matrix."""
    prefix = f"{name}." if name else ""
    n_stored = f"{name}_stored"
    n_rows, n_columns = declared.shape
    declarations = {
        f"{prefix}indices": Array("int32 int64", (n_stored,), 0, below=n_columns),
        f"{prefix}indptr": Array("int32 int64", (f"{n_rows}+1",), 0, math.inf),
    }
    if declared.dtype is not None:
        data = Array(declared.dtype, (n_stored,), declared.low, declared.high)
        declarations[f"{prefix}data"] = data
    return declarations


def _check_array(array: NDArray[Any], declared: Array, name: str, sizes: dict[str, int]) -> None:
    """Check one array, and learn sizes that it is the first to have."""
    if array.dtype.name not in declared.dtype.split():
        dtypes = declared.dtype.replace(" ", " or ")
        raise refuse(name, f"an array of {dtypes}", array.dtype.name)
    n_dimensions = len(declared.shape)
    if array.ndim != n_dimensions:
        raise refuse(name, f"an array of {n_dimensions} dimension(s)", array.ndim)
    shape = declared.shape
    if declared.or_empty and not any(array.shape):
        shape = (shape[0], *(0,) * (n_dimensions - 1))
    for length, size in zip(array.shape, shape, strict=True):
        if isinstance(size, str) and size.isidentifier():
            sizes.setdefault(size, length)
    expected = tuple(_length(size, sizes) for size in shape)
    if array.shape != expected:
        raise refuse(name, f"an array of shape {expected}", array.shape)
    if array.size:
        _check_numbers(array, declared, name, sizes)


def _check_numbers(
    array: NDArray[Any], declared: Array, name: str, sizes: Mapping[str, int]
) -> None:
    """Check the numbers of an array that is not empty."""
    if array.dtype.kind == "b":
        if array.view(np.uint8).max() > 1:
            raise refuse(name, "an array of truth values")
        return
    least = array.min()
    largest = array.max()
    high = math.inf if declared.below is not None else declared.high
    # With NaN every comparison is false.
    if not (declared.low <= least and largest <= high and np.isfinite(largest)):
        wanted = f"finite numbers from {declared.low:g} to {high:g}"
        raise refuse(name, wanted, f"{least:g} to {largest:g}")
    if declared.below is not None and largest >= _length(declared.below, sizes):
        raise refuse(name, f"numbers below {_length(declared.below, sizes)}", f"{largest:g}")
    if declared.distinct and len(np.unique(array)) < array.size:
        raise refuse(name, "an array of different numbers")
    if declared.longest is not None:
        rows = array.reshape(len(array), -1)
        squared_lengths = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        if squared_lengths.max() > declared.longest**2:
            raise refuse(name, f"rows of a length of {declared.longest:g} at the most")


def _check_rows(arrays: Arrays, name: str, n_rows: int, n_columns: int) -> None:
    """Check that row pointers and columns belong together; each was looked at by itself."""
    prefix = f"{name}." if name else ""
    indices = arrays[f"{prefix}indices"]
    indptr = arrays[f"{prefix}indptr"]
    try:
        check_compressed(indices, indptr, n_rows, n_columns, "it")
    except InputError as error:
        reason = str(error).rstrip(".")
        raise refuse(f"{prefix}indptr", "row pointers that fit", reason) from error


def _length(size: int | str, sizes: Mapping[str, int]) -> int:
    """Return a size, a product of sizes, or one more than a size."""
    if isinstance(size, int):
        return size
    if size.endswith("+1"):
        return _length(size.removesuffix("+1"), sizes) + 1
    return math.prod(sizes[factor] for factor in size.split("*"))


def check_derived(numbers: NDArray[Any], expected: NDArray[Any], name: str) -> None:
    """Raise unless numbers that follow from others are what follows from them."""
    if not np.array_equal(numbers, expected):
        raise refuse(name, "what follows from the documents")


# ---------------------------------------------------------------------- words


def _check_names(
    names: Collection[str], declared: Collection[str], optional: Collection[str], name: str
) -> None:
    """Refuse what is missing, and what nobody declared."""
    missing = [key for key in declared if key not in names and key not in optional]
    if missing:
        raise refuse(name, f"whole: there is no '{missing[0]}'")
    unknown = [key for key in names if key not in declared]
    if unknown:
        raise refuse(name, f"without {shown(unknown[0])}, which no model has")
