"""Tables that are ranked where they are read: a file, an extracted folder, or shards.

In: a path. Out: the names of its items and blocks of them, so that no more than a few blocks of a
large table are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from polyseme._validation import check_features
from polyseme.features import Extracted, read_extraction
from polyseme.features.extraction import is_extraction
from polyseme.io import read_features
from polyseme.io.shards import Shards, find_shards, is_sharded, read_blocks

Tags = Sequence[Any]


class Table(Protocol):
    """Items in order."""

    def names(self) -> Iterator[dict[str, Any]]:
        """Yield what the record of each item begins with: a row number, or a file."""

    def blocks(self, n_rows: int, tags: Tags | None) -> Iterator[tuple[Any, Any]]:
        """Yield features of some items, with the tags that they have already or None."""


def table_of(path: Path) -> Table:
    """Open what holds features.

    Parameters
    ----------
    path : Path
        A file of features, a folder that `polyseme extract` wrote, or a folder of shards.

    Returns
    -------
    Table
    """
    if path.is_dir() and (is_extraction(path) or not is_sharded(path)):
        return ExtractedTable(read_extraction(path))
    if is_sharded(path) and (path.is_dir() or path.suffix.lower() == ".npy" or _has_pyarrow()):
        return ShardedTable(find_shards(path))
    return WholeTable(read_features(path))


class WholeTable:
    """A table in memory.

    Parameters
    ----------
    features : array or csr_matrix, shape (n, n_features)
    """

    def __init__(self, features: Any) -> None:
        self.features = features

    def names(self) -> Iterator[dict[str, Any]]:
        """Yield row numbers; see `Table.names`."""
        return ({"row": row} for row in range(self.features.shape[0]))

    def blocks(self, n_rows: int, tags: Tags | None) -> Iterator[tuple[Any, Any]]:
        """Yield blocks of rows; see `Table.blocks`."""
        # Found here, rows have the numbers that the file gives them.
        check_features(self.features, owner="rank")
        for start in range(0, self.features.shape[0], n_rows):
            rows = slice(start, start + n_rows)
            yield self.features[rows], None if tags is None else tags[rows]


class ExtractedTable:
    """What `polyseme extract` wrote.

    Parameters
    ----------
    extraction : Extracted
    """

    def __init__(self, extraction: Extracted) -> None:
        self.extraction = extraction

    def names(self) -> Iterator[dict[str, Any]]:
        """Yield files; see `Table.names`."""
        return ({"file": name} for name in self.extraction.ids)

    def blocks(self, n_rows: int, tags: Tags | None) -> Iterator[tuple[Any, Any]]:
        """Yield blocks of files; see `Table.blocks`."""
        all_of = self.extraction
        for start in range(0, len(all_of), n_rows):
            rows = slice(start, start + n_rows)
            # Copies: what is mapped from a file does not travel.
            raw = [np.array(one) for one in all_of.raw[rows]]
            some = Extracted(all_of.kind, all_of.preprocessing, all_of.ids[rows], raw)
            yield some, None if tags is None else tags[rows]


class ShardedTable:
    """Shards, one after the other; see `polyseme.io.shards`.

    Parameters
    ----------
    shards : Shards
    """

    def __init__(self, shards: Shards) -> None:
        self.shards = shards

    def names(self) -> Iterator[dict[str, Any]]:
        """Yield row numbers; see `Table.names`."""
        return ({"row": row} for row in range(self.shards.n_rows))

    def blocks(self, n_rows: int, tags: Tags | None) -> Iterator[tuple[Any, Any]]:
        """Yield blocks of rows, none of which reaches into two shards; see `Table.blocks`."""
        for shard in self.shards:
            for start, block in read_blocks(shard, n_rows):
                rows = slice(shard.first + start, shard.first + start + len(block))
                yield block, None if tags is None else tags[rows]


def _has_pyarrow() -> bool:
    """Say whether Parquet files can be read piece by piece."""
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None
