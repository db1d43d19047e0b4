"""Shards: a feature table cut into files, `.npy` or `.parquet`, read a block of rows at a time.

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
from polyseme.io import parquet
from polyseme.io.arrays import _as_features, _refusing_damage

FORMS = (".npy", ".parquet")


@dataclass(frozen=True)
class Shard:
    """One file of a table.

    Attributes
    ----------
    path : Path
    first : int
        The number of its first row among the rows of all shards.
    n_rows, n_columns : int
    """

    path: Path
    first: int
    n_rows: int
    n_columns: int


@dataclass(frozen=True)
class Shards:
    """The files of a table, in order.

    Attributes
    ----------
    shards : tuple of Shard
    others : tuple of str
        Names of files in the folder that are no shards.
    """

    shards: tuple[Shard, ...]
    others: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Shard]:
        return iter(self.shards)

    @property
    def n_rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.n_rows for shard in self.shards)


def is_sharded(place: Path) -> bool:
    """Say whether a path is a file in a form of shards, or a folder that holds some."""
    if place.is_dir():
        return any(_form(path) for path in place.iterdir())
    return place.exists() and _form(place) is not None


def find_shards(place: Path) -> Shards:
    """Look for the shards of a table and read their headers.

    Parameters
    ----------
    place : Path
        A folder, whose `.npy` or `.parquet` files are taken in the order of their names, letter by
        letter, or a single such file. Names that begin with `_` or `.` are passed over.

    Returns
    -------
    Shards
        All with the same number of columns, at least one; a shard may be without rows.
    """
    if not place.exists():
        raise InputError(f"There is no file or folder '{place}'; check the path.")
    listed = sorted(place.iterdir()) if place.is_dir() else [place]
    paths = [path for path in listed if path.is_file() and _form(path)]
    if not paths:
        raise InputError(f"There is no shard in '{place}'; names must end in {' or '.join(FORMS)}.")
    forms = {_form(path): path.name for path in reversed(paths)}
    if len(forms) > 1:
        named = " and ".join(f"'{name}'" for name in sorted(forms.values()))
        raise InputError(f"'{place}' mixes .npy and .parquet shards ({named}); keep one kind.")
    stems = {path.stem.lower(): path for path in paths}
    if len(stems) < len(paths):
        twice = next(path for path in paths if stems[path.stem.lower()] != path)
        raise InputError(f"Two shards of '{place}' are named '{twice.stem}'; rename one.")
    shards: list[Shard] = []
    first = 0
    for path in paths:
        n_rows, n_columns = _shape(path)
        if shards and n_columns != shards[0].n_columns:
            raise InputError(
                f"'{path.name}' has {n_columns} columns but '{shards[0].path.name}' has "
                f"{shards[0].n_columns}; all shards need the same."
            )
        shards.append(Shard(path, first, n_rows, n_columns))
        first += n_rows
    if first == 0 or shards[0].n_columns == 0:
        raise InputError(
            f"'{place}' holds features of shape ({first}, {shards[0].n_columns}); give at least "
            "one row and one column."
        )
    used = set(paths)
    others = [path.name for path in listed if path not in used and path.name[:1] not in "._"]
    return Shards(tuple(shards), tuple(others))


def read_blocks(shard: Shard, n_rows: int) -> Iterator[tuple[int, FloatArray]]:
    """Read a shard some rows at a time, so that memory is bounded whatever its size.

    Parameters
    ----------
    shard : Shard
    n_rows : int
        Rows a block; the last one may be shorter.

    Yields
    ------
    start : int
        The block's first row within the shard.
    features : float array, shape (n_rows, n_columns)
        Single and double precision are kept; half precision becomes single, all else double.
    """
    check_number("n_rows", n_rows, owner="read_blocks", low=1, whole=True)
    start = 0
    for block in _blocks(shard.path, n_rows):
        gaps = np.flatnonzero(~np.isfinite(block).all(axis=1)) if _has_gaps(block) else ()
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
    table: NDArray[Any], folder: str | Path, n_rows: int = 100_000, form: str = "npy"
) -> list[Path]:
    """Cut a feature matrix into shards part-00000, part-00001 and so on.

    Parameters
    ----------
    table : array, shape (n, n_features)
        May be mapped from a file (`numpy.load(path, mmap_mode="r")`).
    folder : str or Path
        Made if it is not there.
    n_rows : int
        Rows a shard.
    form : {"npy", "parquet"}

    Returns
    -------
    list of Path
    """
    check_number("n_rows", n_rows, owner="write_shards", low=1, whole=True)
    check_option("form", form, ("npy", "parquet"), owner="write_shards")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for number, start in enumerate(range(0, len(table), n_rows)):
        path = target / f"part-{number:05d}.{form}"
        if form == "npy":
            np.save(path, table[start : start + n_rows], allow_pickle=False)
        else:
            parquet.write_features(path, np.asarray(table[start : start + n_rows]))
        written.append(path)
    return written


def _form(path: Path) -> str | None:
    """Give the form of a file by its name; None for one that is no shard."""
    suffix = path.suffix.lower()
    return suffix if suffix in FORMS and path.name[:1] not in "._" else None


def _shape(path: Path) -> tuple[int, int]:
    """Read rows and columns of a shard from its header."""
    if _form(path) == ".parquet":
        return parquet.table_shape(path)
    table = _mapped(path)
    return int(table.shape[0]), int(table.shape[1])


def _mapped(path: Path) -> NDArray[Any]:
    """Map a numpy file into memory; nothing is read yet."""
    with _refusing_damage(path):
        # A table without a row or a column leaves nothing to map.
        with path.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0)):
                raise InputError(f"{path.name} has format {version} of numpy; save it again.")
            read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
            shape, _, kind = read(stream)
        if 0 in shape and kind.kind in "buif":
            table: NDArray[Any] = np.empty(shape, dtype=kind)
        else:
            table = np.load(path, mmap_mode="r", allow_pickle=False)
    if table.ndim != 2:
        raise InputError(
            f"Features in {path.name} must have two dimensions (instances, features); got "
            f"{table.ndim}."
        )
    _as_features(table[:0], path.name)
    return table


def _blocks(path: Path, n_rows: int) -> Iterator[FloatArray]:
    """Yield blocks of a shard's rows as floats."""
    if _form(path) == ".parquet":
        yield from parquet.read_blocks(path, n_rows)
        return
    table = _mapped(path)
    for start in range(0, len(table), n_rows):
        block: Any = _as_features(np.array(table[start : start + n_rows]), path.name)
        yield block


def _has_gaps(block: FloatArray) -> bool:
    """Say whether a block may hold NaN or infinity; a finite sum is proof that it does not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return not np.isfinite(np.sum(block))
