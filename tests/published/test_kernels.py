"""Blocks of rows: each row comes once, within memory, and what fails in a thread is raised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme.published.kernels import in_blocks, row_blocks


@given(n=st.integers(0, 50), row=st.integers(1, 30), memory=st.integers(0, 300))
@settings(deadline=None, max_examples=50)
def test_row_blocks_cover_all_rows_within_memory(n, row, memory):
    blocks = list(row_blocks(n, row, memory))
    most = max(memory, row)
    rows = []
    for block in blocks:
        rows += range(n)[block]
        n_rows = block.stop - block.start
        assert n_rows * row <= most
    assert rows == list(range(n))


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 200_000), (700, 700)])
def test_blocks_cover_every_row_once_and_failures_are_raised(shape):
    array = np.zeros(shape, dtype=np.int8)

    def count(rows):
        array[rows] += 1

    def fail(rows):
        raise ValueError("in a block")

    in_blocks(count, array)
    assert (array == 1).all()
    if len(array):
        with pytest.raises(ValueError, match="in a block"):
            in_blocks(fail, array)
