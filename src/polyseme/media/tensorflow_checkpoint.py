"""Read checkpoints of TensorFlow as arrays, without TensorFlow.

In: the index of a checkpoint and its data, as bytes. Out: its tensors of 32-bit floats by name. The
index is a table of sorted keys (the LevelDB form) whose values say where a tensor lies.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError

_FOOTER = 48
_MAGIC = bytes.fromhex("57fb808b247547db")
_FLOAT32 = 1


def read_checkpoint(index: bytes, data: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a checkpoint of one shard by their names."""
    if not index.endswith(_MAGIC):
        raise InputError("The index is not that of a TensorFlow checkpoint.")
    try:
        return dict(_tensors(index, data))
    except (IndexError, ValueError, struct.error) as error:
        raise InputError(f"The TensorFlow checkpoint is damaged ({error}).") from error


def _tensors(index: bytes, data: bytes) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield names and tensors."""
    footer = index[-_FOOTER:]
    _, place = _number(footer, 0)  # where other tables of the file are: not needed
    _, place = _number(footer, place)
    for _, block in _entries(index, footer[place:]):
        for name, value in _entries(index, block):
            if name:  # the first entry is the header
                yield name.decode(), _tensor(name.decode(), dict(_fields(value)), data)


def _tensor(name: str, entry: dict[int, Any], data: bytes) -> NDArray[np.float32]:
    """Return the tensor that an entry of the index describes."""
    sizes: list[int] = []
    for _, dimension in _fields(entry.get(2, b"")):
        sizes.append(dict(_fields(dimension)).get(1, 0))
    kind = entry.get(1)
    shard = entry.get(3, 0)
    if kind != _FLOAT32 or shard != 0:
        raise ValueError(f"'{name}' is no 32-bit float of the first shard")
    start = entry.get(4, 0)
    end = start + 4 * math.prod(sizes)
    return np.frombuffer(data[start:end], "<f4").reshape(sizes)


def _entries(table: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of the block that a handle names; keys leave out what they share."""
    start, place = _number(handle, 0)
    length, _ = _number(handle, place)
    end = start + length
    block = table[start:end]
    if table[end] != 0:
        raise ValueError("its index is compressed")
    (n_restarts,) = struct.unpack("<I", block[-4:])
    entries_end = length - 4 - 4 * n_restarts
    key = b""
    place = 0
    while place < entries_end:
        n_shared, place = _number(block, place)
        n_own, place = _number(block, place)
        n_value, place = _number(block, place)
        value_start = place + n_own
        value_end = value_start + n_value
        key = key[:n_shared] + block[place:value_start]
        yield key, block[value_start:value_end]
        place = value_end


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield numbers and values of the fields of a protocol buffer's message."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        if key & 7 == 0:
            value, place = _number(message, place)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(key & 7)
        if length is None:
            length, place = _number(message, place)
        yield key >> 3, message[place : place + length]
        place += length


def _number(message: bytes, place: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and the place behind it."""
    value = 0
    shift = 0
    while message[place] >= 128:
        value |= (message[place] & 127) << shift
        shift += 7
        place += 1
    value |= message[place] << shift
    return value, place + 1
