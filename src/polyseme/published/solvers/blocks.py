"""Element-wise work on large arrays, cut into blocks that fit the cache and shared by threads.

In: a function of a block of rows. Out: nothing; the function writes where it must.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from polyseme._threads import n_cores

_BLOCK_SIZE = 2**17
# Less than this is done before another thread has woken up.
_SHARED_SIZE = 2**18


def in_blocks(function: Callable[[slice], object], n_rows: int, row_size: int) -> None:
    """Call a function for blocks of rows, in several threads where there is enough to do.

    Parameters
    ----------
    function : callable
        Takes a slice of rows; must not touch other rows.
    n_rows : int
    row_size : int
        Numbers in a row. A block holds about 131,000 numbers, or one row.
    """
    size = max(_BLOCK_SIZE // max(row_size, 1), 1)
    blocks = [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
    if n_rows * row_size < _SHARED_SIZE or n_cores() < 2:
        for block in blocks:
            function(block)
        return
    for _ in _pool().map(function, blocks):
        pass


@cache
def _pool() -> ThreadPoolExecutor:
    """Start the threads once."""
    return ThreadPoolExecutor(n_cores(), thread_name_prefix="polyseme-blocks")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay behind with the parent
