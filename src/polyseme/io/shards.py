"""Shards: a feature table cut into files of numpy or Arrow, read a block of rows at a time.

In comes a folder of such files (or a single one); out go their sizes, known from the headers, and
blocks of rows. Rows are numbered through all shards in the order of the files' names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import FloatArray, InputError, check_number, check_option
from polyseme.io import Wanted
from polyseme.io.arrays import as_features, map_npy
from polyseme.io.arrow_tables import (
    SPLITS,
    blocks,
    files_of,
    import_pyarrow,
    is_part,
    opened,
    read_ids,
)
from polyseme.io.columns import Roles, find_roles


@dataclass(frozen=True)
class Shard:
    """One file of a table."""

    path: Path  # absolute
    first: int  # the number of its first row among the rows of all shards
    n_rows: int
    columns: tuple[str, ...] | None = None  # in the order of the first shard; None of a matrix
    vector: str | None = None  # the column of vectors, where there is one

    def ids(self) -> list[str] | None:
        """Read the names of its rows; None where they have none."""
        return None if self.path.suffix.lower() == ".npy" else read_ids(self.path)


def is_sharded(place: Path) -> bool:
    """Say whether a path is a file in a format of shards, or a folder that holds some."""
    if place.is_dir():
        return (place / SPLITS).is_file() or any(map(is_part, place.iterdir()))
    return place.exists() and is_part(place)


def find_shards(place: Path, tags_column: str | None = None) -> tuple[list[Shard], list[str]]:
    """Find the shards of a table, in a folder or a single file, and the names of other files.

    A folder's `.npy`, `.parquet` or `.arrow` files are taken in the order of their names, letter by
    letter; names that begin with `_` or `.` are passed over. All have the same columns, at least
    one, in any order; a shard may be without rows. `tags_column` is no feature, nor are `tags`,
    `labels`, `id`, `file`, `group` and `split`.
    """
    wanted = Wanted(features="all", tags_column=tags_column)
    if not place.exists():
        raise InputError(f"There is no file or folder '{place}'; check the path.")
    paths, others = files_of(place) if place.is_dir() else ([place], [])
    if not all(map(is_part, paths)):
        raise InputError(f"There is no shard in '{place}'; names must end in .npy or .parquet.")
    stems = [path.stem.lower() for path in paths]
    if len(set(stems)) < len(stems):
        repeated = next(stem for stem in stems if stems.count(stem) > 1)
        raise InputError(f"Two shards of '{place}' are named '{repeated}'; rename one.")
    shards: list[Shard] = []
    n_rows, width = 0, None
    columns: tuple[str, ...] | None = None
    for path in paths:
        size, n_columns, names, vector = _head(path, wanted)
        if width is None:
            width, columns = n_columns, names
        if n_columns != width and (size or names):
            raise InputError(
                f"'{path.name}' has {n_columns} columns but '{paths[0].name}' has {width}; all "
                "shards need the same."
            )
        if {*(names or ())} != {*(columns or ())}:
            raise InputError(
                f"'{path.name}' has other columns than '{paths[0].name}'; all shards need the same."
            )
        shards.append(Shard(path.absolute(), n_rows, size, columns, vector))
        n_rows += size
    if 0 in (n_rows, width):
        raise InputError(
            f"'{place}' holds features of shape ({n_rows}, {width}); give at least one row and one "
            "column."
        )
    return shards, others


def read_blocks(
    shard: Shard, n_rows: int, columns: tuple[str, ...] | None = None
) -> Iterator[tuple[int, FloatArray]]:
    """Yield blocks of rows (n_rows, n_columns) with each one's first row within the shard.

    Columns come in the order of `columns`, by default that of the first shard.

    Memory is bounded whatever the shard's size. Numbers are as `polyseme.io.read_features` gives
    them; NaN and infinity are refused.
    """
    start = 0
    for block in _blocks(shard, n_rows, columns or shard.columns):
        # A finite sum is proof that all is finite, in half the time.
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = () if np.isfinite(np.sum(block)) else np.flatnonzero(~np.isfinite(block).all(1))
        if len(gaps):
            raise InputError(
                f"'{shard.path.name}' contains NaN or infinity in row(s) "
                f"{', '.join(str(start + row) for row in gaps[:5])}; impute or drop them first."
            )
        yield start, block
        start += len(block)
    if start != shard.n_rows:
        raise InputError(f"'{shard.path.name}' was changed while it was read; run again.")


def write_shards(
    table: NDArray[Any], folder: str | Path, n_rows: int = 100_000, file_format: str = "npy"
) -> list[Path]:
    """Cut a feature matrix (n, n_features) into shards part-00000, part-00001 and so on.

    The table may be mapped from a file (`numpy.load(path, mmap_mode="r")`), the folder is made if
    it is not there; `n_rows` are the rows of a shard, as "npy" or "parquet".
    """
    check_number("n_rows", n_rows, owner="write_shards", low=1, whole=True)
    check_option("file_format", file_format, ("npy", "parquet"), owner="write_shards")
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = []
    for number, start in enumerate(range(0, len(table), n_rows)):
        paths.append(Path(folder) / f"part-{number:05d}.{file_format}")
        rows = np.asarray(table[start : start + n_rows])
        if file_format == "npy":
            np.save(paths[-1], rows, allow_pickle=False)
        else:
            arrow = import_pyarrow()
            columns = {f"x{at}": np.ascontiguousarray(column) for at, column in enumerate(rows.T)}
            arrow.parquet.write_table(arrow.table(columns), paths[-1])
    return paths


def _head(path: Path, wanted: Wanted) -> tuple[int, int, tuple[str, ...] | None, str | None]:
    """Read rows, columns and their names, or the column of vectors, from the head of a shard."""
    if path.suffix.lower() == ".npy":
        table = map_npy(path)
        as_features(table[:0], path.name)
        return table.shape[0], table.shape[1], None, None
    with opened(path) as source:
        roles = find_roles(source.kinds, wanted, path.name)
        if roles.vector is None:
            return source.n_rows, len(roles.numbers), roles.numbers, None
        first = next(blocks(source, roles, 1), np.empty((0, 0)))
        return source.n_rows, first.shape[1], None, roles.vector


def _blocks(shard: Shard, n_rows: int, columns: tuple[str, ...] | None) -> Iterator[FloatArray]:
    """Yield blocks (n_rows, n_columns) of a shard as floats."""
    path = shard.path
    if path.suffix.lower() == ".npy":
        table = map_npy(path)
        for start in range(0, len(table), n_rows):
            block: Any = as_features(np.array(table[start : start + n_rows]), path.name)
            yield block
        return
    with opened(path) as source:
        roles = Roles(None, shard.vector, columns or (), ())
        rows: FloatArray | None = None
        for batch in blocks(source, roles, n_rows):
            # A file cuts batches where its row groups end; blocks are cut at fixed places.
            rows = batch if rows is None else np.concatenate([rows, batch])
            while len(rows) >= n_rows:
                yield rows[:n_rows]
                rows = rows[n_rows:]
        if rows is not None and len(rows):
            yield rows
