"""What saved models may hold: every value and every array, with its type, its size and its range.

In: values and arrays as a file has them, and what they should be. Out: nothing, or one sentence
that names what is wrong. A stranger's file may be wrong, never unsafe: nothing in it is used
before it was checked here, and what is not declared is refused.

Terms: a *state* is what an object is saved as: its *config*, nested plain values as JSON has them,
and its arrays by name. A *kind* says what one value of the config must be, a *declaration* (`Array`
or `Csr`) what one array must be. A *size* is a length that arrays share, such as "n_labels"; the
first array that has it says how large it is. A *part* is an object that is saved within another:
its values lie under its name, and its arrays are called `part.name`.

Declarations fix the format of models on disk: whoever narrows one refuses models that were saved
before.
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

# The largest number that an array may hold, unless its declaration says otherwise: larger ones are
# in no model, and products of such numbers are finite in single precision.
WEIGHT_LIMIT = 1e6
# The largest number where all lie between -1 and 1, and the greatest length of rows that have the
# length 1, with room for rounding: codes are hyperbolic tangents, directions have the length 1.
UNIT_LIMIT = 1.001
# The largest number in the state of an optimizer: gradients and their squares may be large.
_OPTIMIZER_LIMIT = 1e15
# Whole numbers of a smaller size are finite as floats, too.
_INTEGER_LIMIT = 2**1023


@contextmanager
def name_folder_in_errors(path: str | Path, kind: str = "model") -> Iterator[None]:
    """Raise errors about the content of a file again, with its folder and kind in the sentence."""
    try:
        yield
    except _ContentError as error:
        raise ModelFileError(f"The {kind} at '{path}' cannot be used: {error}") from error


@contextmanager
def name_part_in_errors(name: str) -> Iterator[None]:
    """Raise errors about a part of a state again, with its name: "space.x" in place of "x"."""
    try:
        yield
    except _ContentError as error:
        full_name = f"{name}.{error.name}"
        raise _ContentError(full_name, error.wanted) from error


class _ContentError(ModelFileError):
    """Something in a saved state is not as it was declared.

    Attributes
    ----------
    name : str
        The value or array, after the parts that it is in, such as "space.plan.hidden".
    wanted : str
        What it must be, in words that follow "must be".
    """

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"'{name}' must be {wanted}.")
        self.name = name
        self.wanted = wanted


def refuse(name: str, wanted: str, got: object = None) -> ModelFileError:
    """Return the error for something that is not as declared; the caller raises it.

    Parameters
    ----------
    name : str
        The value or array.
    wanted : str
        What it must be, in words that follow "must be".
    got : object, optional
        What it is instead, as the message shows it.
    """
    if got is not None:
        wanted = f"{wanted}; got {got}"
    return _ContentError(name, wanted)


def require(condition: object, name: str, wanted: str) -> None:
    """Raise `refuse(name, wanted)` unless a condition holds, such as that two parts fit."""
    if not condition:
        raise refuse(name, wanted)


# ---------------------------------------------------------------------- values


_OUTERMOST = "config"  # what errors call the config itself, whose values are named without it


class Kind:
    """What a value of the config must be, in words and as a test.

    Attributes
    ----------
    wanted : str
        What it must be, in words that follow "must be".
    accepts : callable
        Whether a value is of this kind, without a word about why not; never raises.
    """

    def __init__(self, wanted: str, accepts: Callable[[Any], bool]) -> None:
        self.wanted = wanted
        self.accepts = accepts

    def check(self, value: Any, name: str = _OUTERMOST) -> None:
        """Raise unless a value is of this kind.

        Parameters
        ----------
        value : object
            As JSON has it.
        name : str
            Its place in the config, such as "plan.hidden", for the error.
        """
        if not self.accepts(value):
            raise refuse(name, self.wanted, shown(value))


def _is_finite(value: object) -> bool:
    """Return whether a value is an int or float, and neither a bool nor too large for a float."""
    if type(value) is int:
        return abs(value) < _INTEGER_LIMIT
    if type(value) is not float:
        return False
    return math.isfinite(value)


def _is_plain(value: object) -> bool:
    """Return whether a value is text, a finite number, None, or a list or mapping of such.

    By a loop, not by recursion: values of a file may be nested deeply.
    """
    unchecked = [value]
    while unchecked:
        item = unchecked.pop()
        if isinstance(item, (list, tuple)):
            unchecked.extend(item)
        elif isinstance(item, Mapping):
            unchecked.extend(item.keys())
            unchecked.extend(item.values())
        elif not _is_plain_scalar(item):
            return False
    return True


def _is_plain_scalar(value: object) -> bool:
    """Return whether a value is text, a number (whole ones of any size), a bool or None."""
    if isinstance(value, str):
        return is_text(value)
    if value is None or isinstance(value, (bool, int)):
        return True
    return _is_finite(value)


# `Flag()`, `Text()`, `Plain()` and `Anything()` are kinds like the classes below.
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
    """A whole number from `low` to `high`, both included; by default one of 64 bits."""

    def __init__(self, low: int = -(2**63), high: int = 2**63 - 1) -> None:
        wanted = f"a whole number from {low:g} to {high:g}"
        super().__init__(wanted, lambda value: type(value) is int and low <= value <= high)


class Number(Kind):
    """A finite number from `low` to `high`, both included; whole numbers are numbers."""

    def __init__(self, low: float = -math.inf, high: float = math.inf) -> None:
        wanted = f"a finite number from {low:g} to {high:g}"
        super().__init__(wanted, lambda value: _is_finite(value) and low <= value <= high)


class Choice(Kind):
    """One of some texts."""

    def __init__(self, options: Collection[str]) -> None:
        wanted = f"one of {', '.join(options)}"
        super().__init__(wanted, lambda value: isinstance(value, str) and value in options)


class Either(Kind):
    """A value of one of some kinds, which must be kinds without inner values such as `Whole`."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        wanted = " or ".join(kind.wanted for kind in kinds)
        super().__init__(wanted, lambda value: any(kind.accepts(value) for kind in kinds))


@dataclass(frozen=True)
class Maybe(Kind):
    """None, or a value of some kind."""

    kind: Kind

    def check(self, value: Any, name: str = _OUTERMOST) -> None:
        """See `Kind.check`."""
        if value is not None:
            self.kind.check(value, name)


@dataclass(frozen=True)
class ListOf(Kind):
    """A list (or tuple) of values of one kind."""

    kind: Kind  # of each value
    length: int | None = None  # how many values; None for any number
    distinct: bool = False  # whether no value may stand twice
    least: int = 0  # how many values at the least

    def check(self, value: Any, name: str = _OUTERMOST) -> None:
        """See `Kind.check`."""
        if not isinstance(value, (list, tuple)):
            raise refuse(name, "a list", shown(value))
        n_items = len(value)
        if self.length is not None and n_items != self.length:
            raise refuse(name, f"a list of {self.length}", n_items)
        if n_items < self.least:
            raise refuse(name, f"a list of {self.least} at the least", n_items)
        for item in value:
            self.kind.check(item, name)
        # After the items: what is of its kind can be hashed.
        if self.distinct and len(set(value)) < n_items:
            raise refuse(name, "a list of different values")


@dataclass(frozen=True)
class MappingOf(Kind):
    """A mapping of any texts to values of one kind."""

    kind: Kind  # of each value

    def check(self, value: Any, name: str = _OUTERMOST) -> None:
        """See `Kind.check`."""
        if not isinstance(value, Mapping):
            raise refuse(name, "a table", shown(value))
        for key, item in value.items():
            Text().check(key, name)
            item_name = f"{name}.{key:.40}"
            self.kind.check(item, item_name)


@dataclass(frozen=True)
class Fields(Kind):
    """A mapping with declared keys alone; those that are optional may be missing."""

    kinds: Mapping[str, Kind]  # of each value, by its key
    optional: Collection[str] = ()  # keys

    def check(self, value: Any, name: str = _OUTERMOST) -> None:
        """See `Kind.check`."""
        if not isinstance(value, Mapping):
            raise refuse(name, "a table", shown(value))
        _check_keys(value, self.kinds, self.optional, name)
        is_outermost = name == _OUTERMOST
        for key, item in value.items():
            item_name = key if is_outermost else f"{name}.{key}"
            self.kinds[key].check(item, item_name)


# The types that annotations of parameters name, each with the kind of its saved values.
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
    """Return the kinds of a constructor's parameters, by the annotations of their types.

    Parameters
    ----------
    owner : type
        A class from a module that has `from __future__ import annotations`, so that annotations are
        texts, and whose types are those of `_KINDS_BY_TYPE`.
    *names : str
        Its parameters; all of them by default.
    """
    signature = inspect.signature(owner).parameters
    kinds = {}
    for name in names or signature:
        annotation = str(signature[name].annotation)
        kinds[name] = _kind_of_annotation(annotation)
    return Fields(kinds)


def _kind_of_annotation(annotation: str) -> Kind:
    """Return the kind of an annotation such as "int | None" or "tuple[float, float]"."""
    if annotation.startswith("tuple["):
        item_text = annotation.removeprefix("tuple[").removesuffix("]")
        item_types = item_text.split(", ")  # all the same
        item_kind = _kind_of_annotation(item_types[0])
        return ListOf(item_kind, len(item_types))
    type_names = annotation.split(" | ")
    kinds = [_KINDS_BY_TYPE[name] for name in type_names if name != "None"]
    kind = kinds[0]
    if len(kinds) > 1:
        kind = Either(kinds)
    if "None" in type_names:
        return Maybe(kind)
    return kind


# ---------------------------------------------------------------------- arrays


@dataclass(frozen=True)
class Array:
    """What an array must be: its type, its shape, and where its numbers lie; all are finite.

    Attributes
    ----------
    dtype : str
        One or more names of types, with blanks between them: "int32 int64".
    shape : tuple of int and str
        Lengths, and names of sizes: "n_labels", one more, "n_labels+1", or a product,
        "n_members*code". The first array that names a size says how large it is.
    low, high : float
        The smallest and the largest number.
    below : str, optional
        A size that all numbers are smaller than, in place of `high`: for numbers of rows or
        columns.
    distinct : bool
        Whether no number may stand twice.
    longest : float, optional
        The greatest Euclidean length of a row.
    or_empty : bool
        Whether an array without rows may also have no columns.
    optional : bool
        Whether it may be missing.
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
    """What a sparse matrix must be, whose three CSR arrays lie below its name.

    That of `m` is saved as `m.indices`, `m.indptr` and `m.data`.
    """

    shape: tuple[str, str]  # the names of two sizes
    dtype: str | None = None  # of `data`; None where there are no data: a matrix of 0 and 1
    low: float = -WEIGHT_LIMIT  # the smallest and the largest number of `data`
    high: float = WEIGHT_LIMIT


def check_arrays(
    arrays: Arrays, declared: Mapping[str, Array | Csr], **sizes: int
) -> dict[str, int]:
    """Raise unless arrays are as declared.

    Parameters
    ----------
    arrays : mapping of str to array
        Of one state, without those of its parts.
    declared : mapping of str to Array or Csr
        By the names of the arrays; a `Csr` by the name in front of ".indices", or by "" where its
        arrays have no name in front. The order counts: the first that names a size sets it.
    **sizes : int
        Sizes that are known already.

    Returns
    -------
    dict of str to int
        All sizes by name: those that were passed, and those that arrays set.
    """
    declared_arrays: dict[str, Array] = {}
    for name, declaration in declared.items():
        if isinstance(declaration, Csr):
            declared_arrays |= _declare_csr_arrays(name, declaration)
        else:
            declared_arrays[name] = declaration
    optional_names = [name for name, array in declared_arrays.items() if array.optional]
    _check_keys(arrays, declared_arrays, optional_names, "arrays")

    for name, declaration in declared_arrays.items():
        if name in arrays:
            _check_array(arrays[name], declaration, name, sizes)
    for name, declaration in declared.items():
        if isinstance(declaration, Csr):
            rows_size, columns_size = declaration.shape
            n_rows = _length(rows_size, sizes)
            n_columns = _length(columns_size, sizes)
            _check_csr_structure(arrays, name, n_rows, n_columns)
    return sizes


def check_parts(
    arrays: Arrays,
    config: Mapping[str, Any],
    part_names: Collection[str],
    array_names: Collection[str],
) -> None:
    """Raise where a state has arrays that are neither its own nor those of one of its parts.

    Parameters
    ----------
    arrays, config : mapping
        The state, with the arrays of its parts as `part.name`.
    part_names : collection of str
        Parts that it may have; one that is not in `config` may have no arrays either.
    array_names : collection of str
        Arrays of its own.
    """
    for name in arrays:
        prefix, dot, _ = name.partition(".")
        is_own = name in array_names
        is_part_present = prefix in part_names and prefix in config
        is_of_part = bool(dot) and is_part_present
        if not (is_own or is_of_part):
            raise refuse("arrays", f"without {shown(name)}, which no model has")


def matrix_of(arrays: Arrays, shape: tuple[int, int], name: str = "") -> sp.csr_matrix:
    """Return the sparse matrix of arrays that `check_arrays` passed as a `Csr` of that name.

    The arrays are copied, so that the matrix may be changed.
    """
    prefix = _csr_prefix(name)
    indices = arrays[f"{prefix}indices"]
    indptr = arrays[f"{prefix}indptr"]
    data = arrays.get(f"{prefix}data")
    if data is None:
        data = np.ones(len(indices), dtype=bool)
    return sp.csr_matrix((data, indices, indptr), shape=shape, copy=True)


def declare_like(example: Arrays, squares: str = "square") -> dict[str, Array]:
    """Return declarations of arrays with the types and shapes of an example.

    Parameters
    ----------
    example : mapping of str to array
        The state of an optimizer, such as a new trainer has it.
    squares : str
        What the names of moments of squares hold: these are not negative.
    """
    declarations = {}
    for name, array in example.items():
        low = 0 if squares in name else -_OPTIMIZER_LIMIT
        declarations[name] = Array(array.dtype.name, array.shape, low, _OPTIMIZER_LIMIT)
    return declarations


def _csr_prefix(name: str) -> str:
    """Return what stands before "indices", "indptr" and "data" in the names of CSR arrays."""
    return f"{name}." if name else ""


def _declare_csr_arrays(name: str, declared: Csr) -> dict[str, Array]:
    """Return declarations of the arrays of a sparse matrix, each by itself."""
    prefix = _csr_prefix(name)
    stored_size = f"{name}_stored"  # a size that no other array names
    rows_size, columns_size = declared.shape
    declarations = {
        f"{prefix}indices": Array("int32 int64", (stored_size,), 0, below=columns_size),
        f"{prefix}indptr": Array("int32 int64", (f"{rows_size}+1",), 0, math.inf),
    }
    if declared.dtype is not None:
        data = Array(declared.dtype, (stored_size,), declared.low, declared.high)
        declarations[f"{prefix}data"] = data
    return declarations


def _check_array(array: NDArray[Any], declared: Array, name: str, sizes: dict[str, int]) -> None:
    """Raise unless one array is as declared; add the sizes that it is the first to name."""
    if array.dtype.name not in declared.dtype.split():
        dtypes = declared.dtype.replace(" ", " or ")
        raise refuse(name, f"an array of {dtypes}", array.dtype.name)
    n_dimensions = len(declared.shape)
    if array.ndim != n_dimensions:
        raise refuse(name, f"an array of {n_dimensions} dimension(s)", array.ndim)
    declared_shape = declared.shape
    if declared.or_empty and not any(array.shape):
        no_columns = (0,) * (n_dimensions - 1)
        declared_shape = (declared_shape[0], *no_columns)
    for length, size in zip(array.shape, declared_shape, strict=True):
        # Lengths such as "n+1" and "n*m" set no size.
        if isinstance(size, str) and size.isidentifier():
            sizes.setdefault(size, length)
    expected_shape = tuple(_length(size, sizes) for size in declared_shape)
    if array.shape != expected_shape:
        raise refuse(name, f"an array of shape {expected_shape}", array.shape)
    if array.size:
        _check_numbers(array, declared, name, sizes)


def _check_numbers(
    array: NDArray[Any], declared: Array, name: str, sizes: Mapping[str, int]
) -> None:
    """Raise unless the numbers of an array, which is not empty, are as declared."""
    if array.dtype.kind == "b":
        # numpy takes any byte of a file for a bool, and compiled code counts on 0 and 1.
        bytes_of_bools = array.view(np.uint8)
        if bytes_of_bools.max() > 1:
            raise refuse(name, "an array of truth values")
        return
    least = array.min()
    largest = array.max()
    high = math.inf if declared.below is not None else declared.high
    # With NaN every comparison is false.
    in_range = declared.low <= least and largest <= high
    if not (in_range and np.isfinite(largest)):
        wanted = f"finite numbers from {declared.low:g} to {high:g}"
        raise refuse(name, wanted, f"{least:g} to {largest:g}")
    if declared.below is not None:
        limit = _length(declared.below, sizes)
        if largest >= limit:
            raise refuse(name, f"numbers below {limit}", f"{largest:g}")
    if declared.distinct:
        n_distinct = len(np.unique(array))
        if n_distinct < array.size:
            raise refuse(name, "an array of different numbers")
    if declared.longest is not None:
        rows = array.reshape(len(array), -1)
        squared_lengths = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        if squared_lengths.max() > declared.longest**2:
            raise refuse(name, f"rows of a length of {declared.longest:g} at the most")


def _check_csr_structure(arrays: Arrays, name: str, n_rows: int, n_columns: int) -> None:
    """Raise unless row pointers and column indices, each checked by itself, fit together.

    Compiled code trusts them: wrong ones would read foreign memory.
    """
    prefix = _csr_prefix(name)
    indices = arrays[f"{prefix}indices"]
    indptr = arrays[f"{prefix}indptr"]
    try:
        check_compressed(indices, indptr, n_rows, n_columns, "it")
    except InputError as error:
        reason = str(error).rstrip(".")
        raise refuse(f"{prefix}indptr", "row pointers that fit", reason) from error


def _length(size: int | str, sizes: Mapping[str, int]) -> int:
    """Return the length that a declared shape names: a number, "n", "n+1" or "n*m"."""
    if isinstance(size, int):
        return size
    if size.endswith("+1"):
        return _length(size.removesuffix("+1"), sizes) + 1
    factors = [sizes[factor] for factor in size.split("*")]
    return math.prod(factors)


def check_derived(array: NDArray[Any], expected: NDArray[Any], name: str) -> None:
    """Raise unless a saved array that can be computed from the documents is what that gives."""
    if not np.array_equal(array, expected):
        raise refuse(name, "what follows from the documents")


# ---------------------------------------------------------------------- keys


def _check_keys(
    keys: Collection[str], declared: Collection[str], optional: Collection[str], owner: str
) -> None:
    """Raise where a declared key is missing, unless it is optional, or one is not declared.

    `owner` is what has the keys, as errors name it: a value of the config, or "arrays".
    """
    required_keys = [key for key in declared if key not in optional]
    missing_keys = [key for key in required_keys if key not in keys]
    if missing_keys:
        raise refuse(owner, f"whole: there is no '{missing_keys[0]}'")
    unknown_keys = [key for key in keys if key not in declared]
    if unknown_keys:
        raise refuse(owner, f"without {shown(unknown_keys[0])}, which no model has")
