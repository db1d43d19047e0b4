"""Read tables of one or several files of numpy or Arrow, whole or a block of rows at a time.

In: a folder of such files, one that `save_to_disk` of Hugging Face datasets wrote, or a single
file. Out: a `Table`, or sizes from the headers and blocks of rows. Rows are numbered through all
shards in the order of the files' names.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import FloatArray, InputError, check_number, check_option, first_few
from polyseme.io import FEATURES_ONLY, ReadOptions, Table, check_file_or_folder
from polyseme.io.arrays import NumpyFile
from polyseme.io.arrow_tables import SUFFIXES, ArrowFile, import_pyarrow
from polyseme.io.columns import ColumnRoles, as_texts, build_table, check_size, find_roles
from polyseme.storage.atomic_files import own_folder, replacing

_WRITTEN = re.compile(r"part-\d{5,}\.(?:npy|parquet)")  # as `write_shards` names them
# File names of Hugging Face datasets.
_STATE = "state.json"
_SPLITS = "dataset_dict.json"


@dataclass(frozen=True)
class Shard:
    """One file of a table."""

    path: Path  # absolute
    first: int  # the number of its first row among the rows of all shards
    n_rows: int
    roles: ColumnRoles  # columns in the order of the first shard

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the features; None of a matrix or of vectors."""
        return self.roles.number_columns or None

    def ids(self) -> list[str] | None:
        """Read the names of its rows; None where they have none."""
        names = [name for name, field in self.roles.field_by_column.items() if field == "ids"]
        if not names:
            return None
        id_column = names[0]
        cells = ArrowFile(self.path).cells(id_column)
        place_of = f"Row {{}} of {self.path.name}".format
        return as_texts(cells, id_column, place_of)


def is_sharded(place: Path) -> bool:
    """Whether a path is a file in a format of shards, or a folder that holds some."""
    if not place.exists():
        return False
    if not place.is_dir():
        return _is_part(place)
    if (place / _SPLITS).is_file():
        return True
    return any(_is_part(path) for path in place.iterdir())


def read_table(place: Path, options: ReadOptions) -> Table:
    """Read a file or a folder of them; see `polyseme.io.read_table`."""
    is_folder = place.is_dir()
    files = _files_of(place)[0] if is_folder else [place]
    cells: dict[str, list[Any]] = defaultdict(list)
    blocks: list[FloatArray] = []
    n_rows = 0
    for source, roles, width in _sources(files, options):
        n_rows += source.n_rows
        check_size(n_rows, width, place.name)
        folder = source.path.parent
        if is_folder and folder != place and "split" not in roles.field_by_column:
            roles = roles._replace(field_by_column=roles.field_by_column | {"split": "splits"})
            cells["split"] += [folder.name] * source.n_rows
        read_columns = {*roles.field_by_column, roles.tags_column}
        for name in source.kinds.keys() & read_columns:
            cells[name] += source.cells(name)
        if width:
            blocks += source.blocks(roles)
    matrix = np.concatenate(blocks) if blocks else None
    place_of = f"Row {{}} of {place.name}".format
    return build_table(roles, cells, options, place_of, matrix)


def find_shards(place: Path, options: ReadOptions = FEATURES_ONLY) -> tuple[list[Shard], list[str]]:
    """Find the shards of a table, in a folder or a single file, and the names of other files.

    A folder's `.npy`, `.parquet` or `.arrow` files are taken in the order of their names, letter by
    letter; names that begin with `_` or `.` are passed over. All have the same columns, at least
    one, in any order; a shard may be without rows. Columns of tags are no features, nor are `id`,
    `file`, `group` and `split`.
    """
    if not place.exists():
        raise InputError(f"There is no file or folder '{place}'; check the path.")
    paths = [place]
    ignored_names: list[str] = []
    if place.is_dir():
        paths, ignored_names = _files_of(place)
    if not all(map(_is_part, paths)):
        raise InputError(f"There is no shard in '{place}'; names must end in .npy or .parquet.")
    for path in paths:
        check_file_or_folder(path)
    shards: list[Shard] = []
    n_rows = 0
    n_columns = 0
    for source, roles, width in _sources(paths, options):
        shards.append(Shard(source.path.absolute(), n_rows, source.n_rows, roles))
        n_rows += source.n_rows
        n_columns = width
    shape = (n_rows, n_columns)
    if 0 in shape:
        raise InputError(
            f"'{place}' holds features of shape {shape}; give at least one row and one column."
        )
    return shards, ignored_names


def read_blocks(
    shard: Shard, n_rows: int, columns: tuple[str, ...] | None = None
) -> Iterator[tuple[int, FloatArray]]:
    """Yield blocks of rows (n_rows, n_columns) with each one's first row within the shard.

    Columns come in the order of `columns`, by default that of the first shard.

    Memory is bounded whatever the shard's size. Numbers are as `polyseme.io.read_features` gives
    them; NaN and infinity are refused.
    """
    roles = shard.roles
    if columns is not None:
        roles = roles._replace(number_columns=columns)
    start = 0
    for block in _open(shard.path).blocks(roles, n_rows):
        _check_finite(block, start, shard.path.name)
        if len(block):
            yield start, block
        start += len(block)
    if start != shard.n_rows:
        raise InputError(f"'{shard.path.name}' was changed while it was read; run again.")


def _check_finite(block: FloatArray, start: int, file: str) -> None:
    """Raise for NaN and infinity in a block of rows, whose first one has the number `start`."""
    # A finite sum is proof that all is finite, in half the time.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(block)):
            return
    is_finite = np.isfinite(block).all(axis=1)
    rows = [start + row for row in np.flatnonzero(~is_finite)]
    if rows:
        listed = ", ".join(str(row) for row in rows[:5])
        raise InputError(
            f"'{file}' contains NaN or infinity in row(s) {listed}; impute or drop them first."
        )


def write_shards(
    table: NDArray[Any], folder: str | Path, n_rows: int = 100_000, file_format: str = "npy"
) -> list[Path]:
    """Cut a feature matrix (n, n_features) into shards part-00000, part-00001 and so on.

    The table may be mapped from a file (`numpy.load(path, mmap_mode="r")`); the folder is new,
    empty, or one that shards were written to before, which are replaced. `n_rows` are the rows of a
    shard, as "npy" or "parquet".
    """
    check_number("n_rows", n_rows, owner="write_shards", low=1, whole=True)
    check_option("file_format", file_format, ("npy", "parquet"), owner="write_shards")
    place = Path(folder)
    paths: list[Path] = []
    with own_folder(place, "shards"):
        for number, start in enumerate(range(0, len(table), n_rows)):
            path = place / f"part-{number:05d}.{file_format}"
            paths.append(path)
            rows = np.asarray(table[start : start + n_rows])
            with replacing(path) as stream:
                if file_format == "npy":
                    np.save(stream, rows, allow_pickle=False)
                else:
                    _write_parquet(rows, stream)
        former_paths = [path for path in place.iterdir() if _WRITTEN.fullmatch(path.name)]
        for path in former_paths:
            if path not in paths:
                path.unlink()
    return paths


def _sources(paths: Sequence[Path], options: ReadOptions) -> Iterator[tuple[Any, ColumnRoles, int]]:
    """Yield opened files, with roles in the first one's order and the number of features."""
    first_roles: ColumnRoles | None = None
    first_width = 0
    for path in paths:
        source = _open(path)
        if not source.kinds and options.features != "all":
            raise InputError(
                f"{path.name} holds numbers only; tags need a file of another form, such as .jsonl."
            )
        roles = find_roles(source.kinds, options, path.name)
        width = len(roles.number_columns)
        if roles.vector_column or not source.kinds:
            first_block = next(source.blocks(roles, 1))
            width = first_block.shape[1]
        if first_roles is None:
            first_roles = roles
            first_width = width
        if width != first_width and (source.n_rows or roles.number_columns):
            raise InputError(
                f"'{path.name}' has {width} columns but '{paths[0].name}' has {first_width}; all "
                "files need the same."
            )
        columns = {*roles.feature_columns, *roles.field_by_column}
        first_columns = {*first_roles.feature_columns, *first_roles.field_by_column}
        if columns != first_columns:
            raise InputError(
                f"'{path.name}' has other columns than '{paths[0].name}'; all files need the same."
            )
        yield source, first_roles, first_width


def _open(path: Path) -> Any:
    """Return a file of either kind, opened."""
    if path.suffix.lower() == ".npy":
        return NumpyFile(path)
    return ArrowFile(path)


def _write_parquet(rows: NDArray[Any], stream: BinaryIO) -> None:
    """Write rows of features as a Parquet file with the columns x0, x1 and so on."""
    arrow = import_pyarrow()
    columns: dict[str, NDArray[Any]] = {}
    for number, values in enumerate(rows.T):
        name = f"x{number}"
        columns[name] = np.ascontiguousarray(values)
    table = arrow.table(columns)
    arrow.parquet.write_table(table, stream)


def _is_part(path: Path) -> bool:
    """Whether a file's name is that of a part of a table."""
    is_visible = path.name[:1] not in "._"
    return is_visible and path.suffix.lower() in (".npy", *SUFFIXES)


def _files_of(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a table in a folder, in order, and the names of other files.

    A Hugging Face dataset names them itself, split by split; else they are the `.npy` files, or
    those of Arrow, in the order of their names.
    """
    splits = folder / _SPLITS
    state = folder / _STATE
    if splits.is_file():
        split_files: list[Path] = []
        for split in _read_parts(splits, "splits"):
            files, _ = _files_of(folder / split)
            split_files += files
        return split_files, []
    if state.is_file():
        names = _read_parts(state, "_data_files")
        return [folder / name for name in names], []
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [path for path in entries if path.is_file() and _is_part(path)]
    if not files:
        suffixes = " or ".join((".npy", *SUFFIXES))
        raise InputError(f"There is no shard in '{folder}'; names must end in {suffixes}.")
    kinds = {path.suffix.lower() for path in files}
    if len(kinds) > 1:
        raise InputError(f"'{folder}' mixes .npy, .parquet or .arrow shards; keep one kind.")
    shards = set(files)
    ignored_names: list[str] = []
    for path in entries:
        if path not in shards and path.name[:1] not in "._":
            ignored_names.append(path.name)
    return files, ignored_names


def _read_parts(path: Path, key: str) -> list[str]:
    """Return the names of the files or folders that a Hugging Face dataset is made of."""
    try:
        state = json.loads(path.read_bytes())
        entries = state[key]
        if key == "_data_files":
            entries = [entry["filename"] for entry in entries]
        names = [Path(str(entry)).name for entry in entries]
        selection = state.get("_indices_data_files")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"'{path}' does not name the parts of a Hugging Face dataset; save the dataset again."
        ) from error
    if selection:
        raise InputError(
            f"'{path.parent}' holds a selection of rows; save `dataset.flatten_indices()` instead."
        )
    # Only names in this folder: others may lead out of the folder, or back to it.
    present = {entry.name for entry in path.parent.iterdir()}
    missing = [name for name in names if name not in present]
    if missing or not names:
        listed = first_few(missing, most=1) if missing else "data"
        raise InputError(f"'{path.parent}' lacks {listed}; copy it whole.")
    return names
