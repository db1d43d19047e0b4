"""Shards: a feature table cut into files, `.npy` or `.parquet`, read a block of rows at a time.

In comes a folder of such files (or a single one); out go their sizes, known from the headers, and
blocks of rows. Rows are numbered through all shards in the order of the files' names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import FloatArray, InputError, check_number, check_option
from polyseme.io.arrays import as_features, map_npy
from polyseme.io.tables import ID

SUFFIXES = (".npy", ".parquet")


@dataclass(frozen=True)
class Shard:
    """One file of a table."""

    path: Path  # absolute
    first: int  # the number of its first row among the rows of all shards
    n_rows: int


def is_sharded(place: Path) -> bool:
    """Say whether a path is a file in a format of shards, or a folder that holds some."""
    if place.is_dir():
        return any(map(_is_shard, place.iterdir()))
    return place.exists() and _is_shard(place)


def find_shards(place: Path) -> tuple[list[Shard], list[str]]:
    """Find the shards of a table, in a folder or a single file, and the names of other files.

    A folder's `.npy` or `.parquet` files are taken in the order of their names, letter by letter;
    names that begin with `_` or `.` are passed over. All have the same number of columns, at least
    one; a shard may be without rows.
    """
    if not place.exists():
        raise InputError(f"There is no file or folder '{place}'; check the path.")
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    paths = [path for path in files if path.is_file() and _is_shard(path)]
    if not paths:
        known = " or ".join(SUFFIXES)
        raise InputError(f"There is no shard in '{place}'; names must end in {known}.")
    if len({path.suffix.lower() for path in paths}) > 1:
        raise InputError(f"'{place}' mixes .npy and .parquet shards; keep one kind.")
    stems = [path.stem.lower() for path in paths]
    if len(set(stems)) < len(stems):
        repeated = next(stem for stem in stems if stems.count(stem) > 1)
        raise InputError(f"Two shards of '{place}' are named '{repeated}'; rename one.")
    shards: list[Shard] = []
    n_rows, width = 0, None
    for path in paths:
        size, n_columns = _shape(path)
        width = n_columns if width is None else width
        if n_columns != width:
            raise InputError(
                f"'{path.name}' has {n_columns} columns but '{paths[0].name}' has {width}; all "
                "shards need the same."
            )
        shards.append(Shard(path.absolute(), n_rows, size))
        n_rows += size
    if 0 in (n_rows, width):
        raise InputError(
            f"'{place}' holds features of shape ({n_rows}, {width}); give at least one row and one "
            "column."
        )
    others = sorted({*files} - {*paths})
    return shards, [path.name for path in others if path.name[:1] not in "._"]


def read_blocks(shard: Shard, n_rows: int) -> Iterator[tuple[int, FloatArray]]:
    """Yield blocks of rows (n_rows, n_columns) with each one's first row within the shard.

    Memory is bounded whatever the shard's size. Numbers are as `polyseme.io.read_features` gives
    them; NaN and infinity are refused.
    """
    start = 0
    for block in _blocks(shard.path, n_rows):
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


def read_features(path: Path) -> NDArray[np.float64]:
    """Read a Parquet file's numeric columns but `id`; see `polyseme.io.read_features`."""
    with _parquet(path) as (file, names):
        return _numbers(file.read(columns=names))


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


def import_pyarrow() -> Any:
    """Import pyarrow with its Parquet part, or say how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "Parquet files need the extra `parquet`; run pip install '.[parquet]' in a checkout."
        ) from error
    return pyarrow


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, list[str]]]:
    """Open a Parquet file with its numeric columns but `id`; say in one sentence what is wrong."""
    arrow = import_pyarrow()
    kinds = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean)
    try:
        with arrow.parquet.ParquetFile(path) as file:
            fields = [field for field in file.schema_arrow if field.name != ID]
            for field in fields:
                if not any(is_kind(field.type) for is_kind in kinds):
                    raise InputError(
                        f"Column '{field.name}' of {path.name} must hold numbers; got "
                        f"{field.type}: drop or encode it."
                    )
            yield file, [field.name for field in fields]
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"{path.name} is not readable as Parquet ({reason}); write it again."
        ) from error


def _numbers(table: Any) -> NDArray[np.float64]:
    """Turn an Arrow table or batch of numbers into a matrix (n, n_columns); empty is NaN."""
    matrix = np.empty((table.num_rows, table.num_columns))
    for place, column in enumerate(table.columns):
        matrix[:, place] = column.cast("float64").to_numpy(zero_copy_only=False)
    return matrix


def _is_shard(path: Path) -> bool:
    """Say whether a file's name is that of a shard."""
    return path.suffix.lower() in SUFFIXES and path.name[:1] not in "._"


def _shape(path: Path) -> tuple[int, int]:
    """Read rows and columns of a shard from its header."""
    if path.suffix.lower() == ".parquet":
        with _parquet(path) as (file, names):
            return file.metadata.num_rows, len(names)
    table = map_npy(path)
    as_features(table[:0], path.name)
    return table.shape[0], table.shape[1]


def _blocks(path: Path, n_rows: int) -> Iterator[FloatArray]:
    """Yield blocks (n_rows, n_columns) of a shard as floats."""
    if path.suffix.lower() == ".npy":
        table = map_npy(path)
        for start in range(0, len(table), n_rows):
            block: Any = as_features(np.array(table[start : start + n_rows]), path.name)
            yield block
        return
    with _parquet(path) as (file, names):
        rows = np.empty((0, len(names)))
        for batch in file.iter_batches(batch_size=n_rows, columns=names, use_threads=False):
            # A file cuts batches where its row groups end; blocks are cut at fixed places.
            rows = np.concatenate([rows, _numbers(batch)])
            while len(rows) >= n_rows:
                yield rows[:n_rows]
                rows = rows[n_rows:]
        if len(rows):
            yield rows
