"""What saved models may hold: every value and every array, with its type, its size and its range.

In: values and arrays as a file has them, and what they should be. Out: nothing, or one sentence
that names what is wrong. A stranger's file may be wrong, never unsafe: nothing in it is used
before it was checked here, and what is not declared is refused.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._text import is_text, shown
from polyseme._validation import InputError, check_compressed
from polyseme.persistence import Arrays, ModelFileError

# Larger numbers are found in no model, and their products are finite in single precision.
WEIGHT = 1e6
# Codes are hyperbolic tangents, axes and points have the length 1, all up to rounding.
UNIT = 1.001


@contextmanager
def reading(path: str | Path, what: str = "model") -> Iterator[None]:
    """Return which folder it is whose content is refused."""
    try:
        yield
    except _ContentError as error:
        raise ModelFileError(f"The {what} at '{path}' cannot be used: {error}") from error


@contextmanager
def part(name: str) -> Iterator[None]:
    """Return which part of a state it is whose content is refused."""
    try:
        yield
    except _ContentError as error:
        raise _ContentError(f"{name}.{error.name}", error.wanted) from error


class _ContentError(ModelFileError):
    """Something in a saved state is not as it was declared."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"'{name}' must be {wanted}.")
        self.name, self.wanted = name, wanted


def refuse(name: str, wanted: str, got: object = None) -> ModelFileError:
    """Build the error for something that is not as declared."""
    return _ContentError(name, wanted if got is None else f"{wanted}; got {got}")


def require(condition: object, name: str, wanted: str) -> None:
    """Raise unless parts of a state fit each other."""
    if not condition:
        raise refuse(name, wanted)


# ---------------------------------------------------------------------- values


class Kind(ABC):
    """What a value must be."""

    @abstractmethod
    def check(self, value: Any, name: str) -> None:
        """Raise unless a value is of this kind."""


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number, by default one of 64 bits."""

    low: int = -(2**63)
    high: int = 2**63 - 1

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if type(value) is not int or not self.low <= value <= self.high:
            wanted = f"a whole number from {_short(self.low)} to {_short(self.high)}"
            raise refuse(name, wanted, shown(value))


@dataclass(frozen=True)
class Number(Kind):
    """A finite number."""

    low: float = -math.inf
    high: float = math.inf

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if not _is_finite(value) or not self.low <= value <= self.high:
            raise refuse(name, f"a finite number{_range(self.low, self.high)}", shown(value))


class Flag(Kind):
    """True or false."""

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if type(value) is not bool:
            raise refuse(name, "true or false", shown(value))


class Text(Kind):
    """Text that can be written anywhere."""

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if not isinstance(value, str) or not is_text(value):
            raise refuse(name, "text without NUL and without half characters", shown(value))


@dataclass(frozen=True)
class Choice(Kind):
    """One of some words."""

    options: Collection[str]

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if not isinstance(value, str) or value not in self.options:
            raise refuse(name, f"one of {', '.join(self.options)}", shown(value))


class Plain(Kind):
    """Anything that is only told or compared: text, finite numbers, lists and tables of them."""

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, (list, tuple)):
                waiting += one
            elif isinstance(one, Mapping):
                waiting += [*one, *one.values()]
            elif isinstance(one, str):
                Text().check(one, name)
            elif one is not None and not isinstance(one, (bool, int)) and not _is_finite(one):
                raise refuse(name, "plain values with finite numbers", shown(one))


class Anything(Kind):
    """What a part checks by itself."""

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""


@dataclass(frozen=True)
class Maybe(Kind):
    """Nothing, or a value of some kind."""

    kind: Kind

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if value is not None:
            self.kind.check(value, name)


@dataclass(frozen=True)
class Either(Kind):
    """A value of one of some kinds."""

    kinds: tuple[Kind, ...]

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        refused: list[ModelFileError] = []
        for kind in self.kinds:
            try:
                kind.check(value, name)
            except ModelFileError as error:
                refused.append(error)
            else:
                return
        raise refused[-1]


@dataclass(frozen=True)
class Several(Kind):
    """A list of values of one kind, of a length or a least one, all different."""

    kind: Kind
    length: int | None = None
    distinct: bool = False
    least: int = 0

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if not isinstance(value, (list, tuple)):
            raise refuse(name, "a list", shown(value))
        if self.length is not None and len(value) != self.length:
            raise refuse(name, f"a list of {self.length}", f"{len(value)}")
        if len(value) < self.least:
            raise refuse(name, f"a list of {self.least} at the least", f"{len(value)}")
        for one in value:
            self.kind.check(one, name)
        if self.distinct and len(set(value)) < len(value):
            raise refuse(name, "a list of different values")


@dataclass(frozen=True)
class Table(Kind):
    """Values of one kind by any names."""

    kind: Kind

    def check(self, value: Any, name: str) -> None:
        """See `Kind.check`."""
        if not isinstance(value, Mapping):
            raise refuse(name, "a table", shown(value))
        for key, one in value.items():
            Text().check(key, name)
            self.kind.check(one, f"{name}.{key:.40}")


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
        for key, one in value.items():
            self.kinds[key].check(one, key if name == "config" else f"{name}.{key}")


_NAMED_KINDS: dict[str, Kind] = {
    "int": Whole(),
    "float": Number(),
    "bool": Flag(),
    "str": Text(),
    "Path": Text(),
    # A seed may be a number of any size.
    "RandomState": Maybe(Whole(0, 2**4096)),
}


def parameters(made: type, *names: str) -> Fields:
    """Declare parameters of a constructor, all or some, by what it says of their types."""
    signature = inspect.signature(made).parameters
    kinds = {name: _kind_of(str(signature[name].annotation)) for name in names or signature}
    return Fields(kinds)


def _kind_of(annotation: str) -> Kind:
    """Return the kind of an annotation such as "int | None" or "tuple[float, float]"."""
    if annotation.startswith("tuple["):
        inner = annotation.removeprefix("tuple[").removesuffix("]").split(", ")
        return Several(_kind_of(inner[0]), len(inner))
    words = annotation.split(" | ")
    kinds = tuple(_NAMED_KINDS[word] for word in words if word != "None")
    kind = kinds[0] if len(kinds) == 1 else Either(kinds)
    return Maybe(kind) if "None" in words else kind


# ---------------------------------------------------------------------- arrays


@dataclass(frozen=True)
class Array:
    """What an array must be: its type, its shape, and where its numbers lie; all are finite.

    Attributes
    ----------
    dtype : str
        Names of types, such as "float32" or "float32 float64".
    shape : tuple of int or str
        Lengths, or names of sizes such as "n_labels" and products such as "n_members*code". A size
        that has not been met is what the first array that names it says.
    low, high : float
        The least and the largest number.
    below : str, optional
        A size that numbers are smaller than: places in something of that size.
    distinct : bool
        Whether all numbers differ.
    longest : float, optional
        The length of a row at the most.
    or_empty : bool
        Whether it may have no numbers at all, (0, 0), in place of rows of its width.
    optional : bool
        Whether it may be missing.
    """

    dtype: str
    shape: tuple[int | str, ...]
    low: float = -WEIGHT
    high: float = WEIGHT
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
    low: float = -WEIGHT
    high: float = WEIGHT


def check_arrays(
    arrays: Arrays, declared: Mapping[str, Array | Csr], **sizes: int
) -> dict[str, int]:
    """Raise unless arrays are as they were declared.

    Parameters
    ----------
    arrays : mapping of str to array
        By name.
    declared : mapping of str to Array or Csr
        By name; a `Csr` by the name in front of "data", "indices" and "indptr", or by "".
    **sizes : int
        Those that are known from elsewhere.

    Returns
    -------
    dict of str to int
        All sizes.
    """
    flat: dict[str, Array] = {}
    for name, one in declared.items():
        flat |= {name: one} if isinstance(one, Array) else _csr_parts(name, one)
    optional = [name for name, one in flat.items() if one.optional]
    _check_names(arrays, flat, optional, "arrays")
    for name, one in flat.items():
        if name in arrays:
            _check_array(arrays[name], one, name, sizes)
    for name, one in declared.items():
        if isinstance(one, Csr):
            _check_rows(arrays, name, *(_length(size, sizes) for size in one.shape))
    return sizes


def check_parts(
    arrays: Arrays, config: Mapping[str, Any], parts: Collection[str], own: Collection[str]
) -> None:
    """Refuse arrays that are neither a state's own nor those of a part that its values have."""
    for name in arrays:
        start = name.partition(".")[0]
        if name not in own and not (start != name and start in parts and start in config):
            raise refuse("arrays", f"without {shown(name)}, which no model has")


def matrix_of(arrays: Arrays, shape: tuple[int, int], name: str = "") -> sp.csr_matrix:
    """Return the sparse matrix of three arrays that were checked; see `Csr`."""
    start = f"{name}." if name else ""
    indices, indptr = arrays[f"{start}indices"], arrays[f"{start}indptr"]
    data = arrays.get(f"{start}data")
    ones: NDArray[Any] = np.ones(len(indices), dtype=bool)
    parts = (ones if data is None else data, indices, indptr)
    return sp.csr_matrix(parts, shape=shape, copy=True)


def same_as(state: Mapping[str, NDArray[Any]], squares: str = "square") -> dict[str, Array]:
    """Declare arrays as those of a state of the same form; moments of squares are not negative."""
    return {
        name: Array(
            array.dtype.name,
            array.shape,
            low=0 if squares in name else -1e15,
            high=1e15,
        )
        for name, array in state.items()
    }


def _csr_parts(name: str, one: Csr) -> dict[str, Array]:
    """Declare the arrays of a sparse matrix."""
    start = f"{name}." if name else ""
    stored, (rows, columns) = f"{name}_stored", one.shape
    parts = {
        f"{start}indices": Array("int32 int64", (stored,), 0, below=columns),
        f"{start}indptr": Array("int32 int64", (f"{rows}+1",), 0, math.inf),
    }
    if one.dtype is not None:
        parts[f"{start}data"] = Array(one.dtype, (stored,), one.low, one.high)
    return parts


def _check_array(array: NDArray[Any], one: Array, name: str, sizes: dict[str, int]) -> None:
    """Check one array, and learn sizes that it is the first to have."""
    if array.dtype.name not in one.dtype.split():
        raise refuse(name, f"an array of {one.dtype.replace(' ', ' or ')}", array.dtype.name)
    empty = one.or_empty and array.shape == (0,) * len(one.shape)
    wanted = (one.shape[0], *(0,) * (len(one.shape) - 1)) if empty else one.shape
    if array.ndim != len(wanted):
        raise refuse(name, f"an array of {len(wanted)} dimension(s)", f"{array.ndim}")
    for length, size in zip(array.shape, wanted, strict=True):
        if isinstance(size, str) and size.isidentifier() and size not in sizes:
            sizes[size] = length
    expected = tuple(_length(size, sizes) for size in wanted)
    if array.shape != expected:
        raise refuse(name, f"an array of shape {expected}", f"{array.shape}")
    if not array.size or array.dtype.kind == "b":
        return
    # Of numbers that are none every comparison is false.
    least, largest = array.min(), array.max()
    high = math.inf if one.below is not None else one.high
    if not (one.low <= least and largest <= high and np.isfinite(largest)):
        raise refuse(name, f"finite numbers{_range(one.low, high)}", f"{least:g} to {largest:g}")
    if one.below is not None and largest >= _length(one.below, sizes):
        raise refuse(name, f"numbers below {_length(one.below, sizes)}", f"{largest:g}")
    if one.distinct and len(np.unique(array)) < array.size:
        raise refuse(name, "an array of different numbers")
    if one.longest is not None:
        rows = array.reshape(len(array), -1)
        if np.einsum("ij,ij->i", rows, rows, dtype=np.float64).max() > one.longest**2:
            raise refuse(name, f"rows of a length of {one.longest:g} at the most")


def _check_rows(arrays: Arrays, name: str, n_rows: int, n_columns: int) -> None:
    """Check that row pointers and columns belong together; each was looked at by itself."""
    start = f"{name}." if name else ""
    try:
        check_compressed(
            arrays[f"{start}indices"], arrays[f"{start}indptr"], n_rows, n_columns, "it"
        )
    except InputError as error:
        raise refuse(f"{start}indptr", "row pointers that fit", str(error).rstrip(".")) from error


def _length(size: int | str, sizes: Mapping[str, int]) -> int:
    """Return a size, a product of sizes, or one more than a size."""
    if isinstance(size, int):
        return size
    if size.endswith("+1"):
        return _length(size.removesuffix("+1"), sizes) + 1
    return math.prod(sizes[part] for part in size.split("*"))


def check_places(numbers: NDArray[Any], expected: NDArray[Any], name: str) -> None:
    """Raise unless numbers that follow from others are what follows from them."""
    if not np.array_equal(numbers, expected):
        raise refuse(name, "what follows from the documents")


# ---------------------------------------------------------------------- words


def _check_names(
    given: Collection[str], declared: Collection[str], optional: Collection[str], name: str
) -> None:
    """Refuse what is missing, and what nobody declared."""
    missing = [key for key in declared if key not in given and key not in optional]
    if missing:
        raise refuse(name, f"whole: there is no '{missing[0]}'")
    unknown = [key for key in given if key not in declared]
    if unknown:
        raise refuse(name, f"without {shown(unknown[0])}, which no model has")


def _is_finite(value: object) -> bool:
    """Return whether a value is a finite number, of any size."""
    if type(value) is int:
        return abs(value) < 2**1023
    return type(value) is float and math.isfinite(value)


def _short(number: int) -> str:
    """Return a bound, as a power of two where it is long."""
    if abs(number) < 10**9:
        return str(number)
    return f"{'-' if number < 0 else ''}2^{(abs(number) - 1).bit_length()}"


def _range(low: float, high: float) -> str:
    """Return a range in words, where there is one."""
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high):
        return f", at least {low:g}"
    return f" from {low:g} to {high:g}"
