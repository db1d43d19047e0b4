"""TensorFlow checkpoints are read without TensorFlow."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from polyseme.base.validation import InputError
from polyseme.media.tensorflow_checkpoint import read_checkpoint


def number(value: int) -> bytes:
    """Seven bits a byte, the last without the eighth."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)


def field(key: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(key << 3) + number(value)
    head = number(key << 3 | 2)
    return head + number(len(value)) + value


def shared_length(first: bytes, second: bytes) -> int:
    """Return how many bytes two keys have in common at their beginning."""
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return place
    return min(len(first), len(second))


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Sorted keys, each without what it shares with the one before, and where they begin anew."""
    content = b""
    previous_key = b""
    for key, value in entries:
        n_shared = shared_length(key, previous_key)
        suffix = key[n_shared:]
        content += number(n_shared)
        content += number(len(suffix))
        content += number(len(value))
        content += suffix + value
        previous_key = key
    return content + struct.pack("<II", 0, 1)


def checkpoint(tensors: dict[str, np.ndarray], *, dtype: int = 1, compressed: int = 0):
    """Write an index of two blocks, and the data."""
    data = b""
    entries = [(b"", field(1, 1))]
    for name, tensor in sorted(tensors.items()):
        sizes = [field(2, field(1, size)) for size in tensor.shape]
        checksum = number(6 << 3 | 5) + b"\1\2\3\4"
        entry = field(1, dtype)
        entry += field(2, b"".join(sizes))
        entry += field(4, len(data))
        entry += field(5, tensor.nbytes)
        entries.append((name.encode(), entry + checksum))
        data += tensor.astype("<f4").tobytes()

    index = b""
    handles = []
    for block_entries in (entries[:2], entries[2:]):
        content = block(block_entries)
        last_key, _ = block_entries[-1]
        handle = number(len(index)) + number(len(content))
        handles.append((last_key, handle))
        index += content + bytes([compressed]) + b"sums"
    block_of_handles = block(handles)
    footer = number(0) + number(0)
    footer += number(len(index))
    footer += number(len(block_of_handles))
    index += block_of_handles + b"\0sums"
    magic = bytes.fromhex("57fb808b247547db")
    return index + footer.ljust(40, b"\0") + magic, data


TENSORS = {
    "dense/bias": np.arange(3, dtype=np.float32),
    "dense/kernel": np.arange(600, dtype=np.float32).reshape(200, 3),
    "power": np.float32(0.5).reshape(()),
}


def test_tensors_come_back_by_name_in_their_shapes():
    read = read_checkpoint(*checkpoint(TENSORS))
    assert read.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert_array_equal(read[name], tensor, strict=True)


@pytest.mark.parametrize(
    ("index", "data", "complaint"),
    [
        (b"", b"", "not that of a TensorFlow checkpoint"),
        (checkpoint(TENSORS)[0], b"", "is damaged"),
        (checkpoint(TENSORS)[0][40:], checkpoint(TENSORS)[1], "is damaged"),
        (*checkpoint(TENSORS, dtype=2), "'dense/bias' is no 32-bit float"),
        (*checkpoint(TENSORS, compressed=1), "its index is compressed"),
    ],
)
def test_other_files_are_refused(index, data, complaint):
    with pytest.raises(InputError, match=complaint):
        read_checkpoint(index, data)
