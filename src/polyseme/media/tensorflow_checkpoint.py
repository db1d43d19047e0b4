"""Read checkpoints of TensorFlow as arrays, without TensorFlow.

In: the index of a checkpoint and its data, as bytes. Out: its tensors of 32-bit floats by name. The
index is a table of sorted keys (the LevelDB form) whose values say where a tensor lies.

Terms: a *block* is a run of entries, that is of keys with values; a *handle* names a block by its
start and its length; a *varint* is a number of seven bits a byte; a *message* is a protocol buffer:
fields with a number each. TensorFlow fixes all of it: `BundleEntryProto` and `TensorShapeProto` are
the messages that are read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError

# The last bytes of an index: two handles, padding, and the number by which the format is known.
_FOOTER_BYTES = 48
_MAGIC = bytes.fromhex("57fb808b247547db")
# Behind each block: how it is compressed, where 0 is not at all.
_NOT_COMPRESSED = 0
# Numbers of the fields of `BundleEntryProto` that are read, and the data type of 32-bit floats.
_DATA_TYPE = 1
_SHAPE = 2
_SHARD = 3
_OFFSET = 4
_FLOAT32 = 1
# Numbers of the field of `TensorShapeProto.Dim` that holds the size.
_DIMENSION_SIZE = 1
# How a field's value is written, the lowest three bits of its key.
_VARINT = 0
_BYTES_OF_FIXED = {1: 8, 5: 4}


def read_checkpoint(index: bytes, data: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a checkpoint of one shard by their names.

    `index` and `data` are whole files, which the tensors may be views of: nobody may change them.
    """
    if not index.endswith(_MAGIC):
        raise InputError("The index is not that of a TensorFlow checkpoint.")
    try:
        return dict(_tensors(index, data))
    except (IndexError, ValueError, struct.error) as error:
        raise InputError(f"The TensorFlow checkpoint is damaged ({error}).") from error


def _tensors(index: bytes, data: bytes) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield names and tensors, in the order of the names."""
    footer = index[-_FOOTER_BYTES:]
    # The first handle names a block of metadata, which is not needed; the second one the block
    # whose values are the handles of all others.
    _, position = _varint(footer, 0)
    _, position = _varint(footer, position)
    handle_of_handles = footer[position:]
    for _, handle in _entries(index, handle_of_handles):
        for key, message in _entries(index, handle):
            if not key:  # the first entry is the header
                continue
            name = key.decode()
            fields = dict(_fields(message))
            yield name, _tensor(name, fields, data)


def _tensor(name: str, fields: dict[int, Any], data: bytes) -> NDArray[np.float32]:
    """Return the tensor that the fields of an entry describe, by their numbers.

    Fields with the value zero are left out of a message.
    """
    shape: list[int] = []
    for _, message in _fields(fields.get(_SHAPE, b"")):
        dimension = dict(_fields(message))
        shape.append(dimension.get(_DIMENSION_SIZE, 0))
    data_type = fields.get(_DATA_TYPE)
    shard = fields.get(_SHARD, 0)
    if data_type != _FLOAT32 or shard != 0:
        raise ValueError(f"'{name}' is no 32-bit float of the first shard")
    start = fields.get(_OFFSET, 0)
    end = start + 4 * math.prod(shape)
    tensor = np.frombuffer(data[start:end], "<f4")
    return tensor.reshape(shape)


def _entries(index: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of the block that a handle names, in the order of the keys.

    A key is written without the bytes that it shares with the one before. At the end of a block
    stand the positions of keys that are written whole, and their number; they are not needed to
    read it from the start.
    """
    start, position = _varint(handle, 0)
    length, _ = _varint(handle, position)
    end = start + length
    block = index[start:end]
    if index[end] != _NOT_COMPRESSED:
        raise ValueError("its index is compressed")
    (n_whole_keys,) = struct.unpack("<I", block[-4:])
    entries_end = length - 4 - 4 * n_whole_keys
    key = b""
    position = 0
    while position < entries_end:
        n_shared_bytes, position = _varint(block, position)
        n_new_bytes, position = _varint(block, position)
        n_value_bytes, position = _varint(block, position)
        value_start = position + n_new_bytes
        value_end = value_start + n_value_bytes
        shared = key[:n_shared_bytes]
        key = shared + block[position:value_start]
        yield key, block[value_start:value_end]
        position = value_end


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield numbers and values of the fields of a protocol buffer's message.

    A varint is an int, every other value bytes.
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        field_number = key >> 3
        wire_type = key & 7
        if wire_type == _VARINT:
            number, position = _varint(message, position)
            yield field_number, number
            continue
        n_bytes = _BYTES_OF_FIXED.get(wire_type)
        if n_bytes is None:
            n_bytes, position = _varint(message, position)
        end = position + n_bytes
        yield field_number, message[position:end]
        position = end


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the varint at a position, lowest bits first, and the position behind it."""
    number = 0
    shift = 0
    while message[position] >= 128:  # the highest bit says that another byte follows
        low_bits = message[position] & 127
        number |= low_bits << shift
        shift += 7
        position += 1
    number |= message[position] << shift
    return number, position + 1
