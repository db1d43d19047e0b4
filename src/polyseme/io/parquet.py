"""Parquet files piece by piece, by pyarrow: features in, rankings out.

In come tables too large for memory, read a block of rows at a time; out go their rankings, a row
group after the other. A whole table that fits into memory is read by `polyseme.io.tables`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError

# Rows a row group of what is written; a reader holds at least one of them.
GROUP_ROWS = 16_384


def table_shape(path: Path) -> tuple[int, int]:
    """Read how many rows and feature columns a file has, from its last bytes only.

    Parameters
    ----------
    path : Path
        An existing `.parquet` file.

    Returns
    -------
    n_rows, n_columns : int
        A column `id` is left out.
    """
    with _opened(path) as file:
        return int(file.metadata.num_rows), len(_features(file, path))


def read_blocks(path: Path, n_rows: int) -> Iterator[NDArray[np.float64]]:
    """Read the numeric columns some rows at a time; an `id` column is left out, empty is NaN.

    Parameters
    ----------
    path : Path
        An existing `.parquet` file.
    n_rows : int
        Rows a block; the last one may be shorter.

    Yields
    ------
    float64 array, shape (n_rows, n_features)
    """
    with _opened(path) as file:
        names = _features(file, path)
        held = np.empty((0, len(names)))
        for batch in file.iter_batches(batch_size=n_rows, columns=names, use_threads=False):
            # A file cuts batches where its row groups end; blocks are cut at fixed places.
            held = np.concatenate([held, _numbers(batch, names)])
            while len(held) >= n_rows:
                yield held[:n_rows]
                held = held[n_rows:]
        if len(held):
            yield held


def write_features(path: Path, table: NDArray[Any]) -> None:
    """Write a feature matrix with columns x0, x1 and so on.

    Parameters
    ----------
    path : Path
        The file to write.
    table : array, shape (n, n_features)
    """
    arrow, parquet = _libraries()
    names = [f"x{column}" for column in range(table.shape[1])]
    columns = [arrow.array(np.ascontiguousarray(column)) for column in table.T]
    parquet.write_table(arrow.table(columns, names=names), path, row_group_size=GROUP_ROWS)


def write_rankings(records: Iterable[Mapping[str, Any]], stream: BinaryIO) -> None:
    """Write rankings with the columns `row`, `labels`, `kinds` and `scores`.

    Parameters
    ----------
    records : iterable of dict
        Taken as they come; only one row group of them is held.
    stream : binary stream
        Where the file goes.
    """
    arrow, parquet = _libraries()
    texts = arrow.list_(arrow.string())
    kinds = [
        *(("row", arrow.int64()), ("labels", texts), ("kinds", texts)),
        ("scores", arrow.list_(arrow.float64())),
    ]
    schema = arrow.schema(kinds)
    waiting = iter(records)
    with parquet.ParquetWriter(stream, schema) as writer:
        while some := [dict(one) for one in itertools.islice(waiting, GROUP_ROWS)]:
            writer.write_table(arrow.Table.from_pylist(some, schema=schema))


def _libraries() -> tuple[Any, Any]:
    """Import pyarrow, or say how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet shards need the extra `parquet`; pip install 'polyseme[parquet]'."
        ) from None
    return pyarrow, pyarrow.parquet


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file and turn whatever is wrong with it into one sentence."""
    arrow, parquet = _libraries()
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"{path.name} is not readable as Parquet ({reason}); write it again."
        ) from error


def _features(file: Any, path: Path) -> list[str]:
    """Name the columns that hold features."""
    arrow, _ = _libraries()
    found = []
    for field in file.schema_arrow:
        if field.name == "id":
            continue
        kinds = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean)
        if not any(is_kind(field.type) for is_kind in kinds):
            raise InputError(
                f"Column '{field.name}' of {path.name} must hold numbers; got {field.type}: drop "
                "or encode it."
            )
        found.append(field.name)
    return found


def _numbers(batch: Any, names: list[str]) -> NDArray[np.float64]:
    """Turn a batch of columns into one matrix."""
    table = np.empty((batch.num_rows, len(names)))
    for place, name in enumerate(names):
        table[:, place] = batch.column(name).cast("float64").to_numpy(zero_copy_only=False)
    return table
