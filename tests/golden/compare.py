"""Results as plain JSON, and the differences between two of them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

DECIMALS = 7
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def plain(value: Any, decimals: int = DECIMALS) -> Any:
    """Return a result as JSON: lists, dicts, texts and rounded numbers."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.floating)):
        return _plain_float(float(value), decimals)
    if isinstance(value, np.generic):
        return plain(value.item(), decimals)
    if isinstance(value, np.ndarray):
        return [plain(element, decimals) for element in value.tolist()]
    if isinstance(value, Exact):
        return plain(value.result, decimals=17)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name), decimals) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(element, decimals) for key, element in value.items()}
    if isinstance(value, Set):
        return [plain(element, decimals) for element in sorted(value)]
    if isinstance(value, Path):
        return value.name
    return [plain(element, decimals) for element in value]


@dataclasses.dataclass(frozen=True)
class Exact:
    """A result whose numbers are recorded with all their digits."""

    result: Any


def _plain_float(number: float, decimals: int) -> float | str:
    """Return a rounded number; JSON has no name for those that are not finite."""
    if not math.isfinite(number):
        return str(number)
    return round(number, decimals) if decimals < 17 else number


def differences(expected: Any, actual: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Yield a line for each place where two results differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted(expected.keys() | actual.keys()):
            if name not in expected:
                yield f"{place}/{name}: was not there, is {actual[name]!r:.200}"
            elif name not in actual:
                yield f"{place}/{name}: was {expected[name]!r:.200}, is not there"
            else:
                yield from differences(expected[name], actual[name], tolerance, f"{place}/{name}")
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{place}: had {len(expected)} elements, has {len(actual)}"
            return
        for number, pair in enumerate(zip(expected, actual, strict=True)):
            yield from differences(*pair, tolerance, f"{place}/{number}")
    elif not _are_alike(expected, actual, tolerance):
        yield f"{place}: was {expected!r}, is {actual!r}"


def _are_alike(expected: Any, actual: Any, tolerance: float) -> bool:
    """Whether two values that hold no others are the same."""
    if isinstance(expected, str) and isinstance(actual, str):
        return _texts_are_alike(expected, actual, tolerance)
    numbers = (int, float)
    are_bools = isinstance(expected, bool) or isinstance(actual, bool)
    if isinstance(expected, numbers) and isinstance(actual, numbers) and not are_bools:
        return abs(expected - actual) <= tolerance
    return bool(expected == actual) and type(expected) is type(actual)


def _texts_are_alike(expected: str, actual: str, tolerance: float) -> bool:
    """Whether two texts are the same but for the last digit of numbers with a decimal point."""
    if _NUMBER.split(expected) != _NUMBER.split(actual):
        return False
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(actual), strict=True)
    for expected_number, actual_number in pairs:
        if expected_number == actual_number:
            continue
        _, _, digits = expected_number.partition(".")
        if not digits or "." not in actual_number:
            return False
        last_place = 10.0 ** -len(digits.lower().partition("e")[0])
        change = abs(float(expected_number) - float(actual_number))
        if change > tolerance + 1.01 * last_place:
            return False
    return True


# What differs from run to run and machine to machine.
_VOLATILE = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+\d\d:\d\d)?"), "TIME"),
    (
        re.compile(
            r"(?<![0-9a-zA-Z.])(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{12,64}(-\d+)?(?![0-9a-zA-Z])"
        ),
        "DIGEST",
    ),
    (re.compile(r"\b\d+(\.\d+)? (s|seconds|minutes|MB|GB)\b"), "COST"),
]
_PROGRESS = "\N{BOX DRAWINGS HEAVY HORIZONTAL}"


def without_volatile(text: str, folder: Path) -> str:
    """Return a text without progress, times, digests, costs and the name of a folder."""
    text = text.replace(f"{folder}/", "").replace(str(folder), "FOLDER")
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    lines = [line.rstrip() for line in text.splitlines() if _PROGRESS not in line]
    return "\n".join(lines)
