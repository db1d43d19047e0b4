"""Read tables of one or several files of numpy or Arrow, whole or a block of rows at a time.

In: a folder of such files, one that `save_to_disk` of Hugging Face datasets wrote, or a single
file. Out: a `Table`, or sizes from the headers and blocks of rows. Rows are numbered through all
shards in the order of the files' names.

Terms: a *shard* is one file of a table that is cut into several. A *source* is a file that was
opened, a `NumpyFile` or an `ArrowFile`: it has `path`, `kinds` (by column; empty where columns have
no names), `n_rows` and `blocks`. A *block* is some rows of features, (n_rows, n_features).
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

# As `write_shards` names files, fixed: what it wrote before is found by it, and replaced.
_WRITTEN_SHARD = re.compile(r"part-\d{5,}\.(?:npy|parquet)")
# Files of Hugging Face datasets: of a table, and of a folder with a table for each split.
_STATE_FILE = "state.json"
_SPLITS_FILE = "dataset_dict.json"
_NUMPY_SUFFIX = ".npy"


@dataclass(frozen=True)
class Shard:
    """One file of a table.

    Attributes
    ----------
    path : Path
        Absolute.
    first : int
        The number of its first row among the rows of all shards.
    n_rows : int
    roles : ColumnRoles
        Those of the first shard, whose order of columns all blocks have.
    """

    path: Path
    first: int
    n_rows: int
    roles: ColumnRoles

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the features; None of a matrix or of vectors."""
        return self.roles.number_columns or None

    def ids(self) -> list[str] | None:
        """Read the ids of its rows; None where they have none."""
        field_by_column = self.roles.field_by_column
        id_columns = [column for column, field in field_by_column.items() if field == "ids"]
        if not id_columns:
            return None
        id_column = id_columns[0]
        cells = ArrowFile(self.path).cells(id_column)
        place_of = f"Row {{}} of {self.path.name}".format
        return as_texts(cells, id_column, place_of)


def is_sharded(place: Path) -> bool:
    """Return whether a path is a file in a format of shards, or a folder that holds some."""
    if not place.exists():
        return False
    if not place.is_dir():
        return _has_shard_name(place)
    if (place / _SPLITS_FILE).is_file():
        return True
    return any(_has_shard_name(path) for path in place.iterdir())


def read_table(place: Path, options: ReadOptions) -> Table:
    """Read a file or a folder of them; see `polyseme.io.read_table`."""
    is_folder = place.is_dir()
    files = [place]
    if is_folder:
        files, _ = _find_files(place)
    cells_by_column: dict[str, list[Any]] = defaultdict(list)
    blocks: list[FloatArray] = []
    n_rows = 0
    for source, roles, n_features in _open_sources(files, options):
        n_rows += source.n_rows
        check_size(n_rows, n_features, place.name)
        # A folder with a folder for each split names the splits of its rows.
        folder = source.path.parent
        names_split = is_folder and folder != place
        if names_split and "split" not in roles.field_by_column:
            fields = roles.field_by_column | {"split": "splits"}
            roles = roles._replace(field_by_column=fields)
            cells_by_column["split"] += [folder.name] * source.n_rows
        read_columns = {*roles.field_by_column, roles.tags_column}
        for column in source.kinds.keys() & read_columns:
            cells_by_column[column] += source.cells(column)
        if n_features:
            blocks += source.blocks(roles)
    features = np.concatenate(blocks) if blocks else None
    place_of = f"Row {{}} of {place.name}".format
    return build_table(roles, cells_by_column, options, place_of, features)


def find_shards(place: Path, options: ReadOptions = FEATURES_ONLY) -> tuple[list[Shard], list[str]]:
    """Find the shards of a table, in a folder or a single file, and the names of other files.

    A folder's `.npy`, `.parquet` or `.arrow` files are taken in the order of their names, letter by
    letter; names that begin with `_` or `.` are passed over. All have the same columns, at least
    one, in any order; a shard may be without rows. Columns of tags are no features, nor are `id`,
    `file`, `group` and `split`.

    Only headers are read, and the first row of vectors.
    """
    if not place.exists():
        raise InputError(f"There is no file or folder '{place}'; check the path.")
    paths = [place]
    ignored_names: list[str] = []
    if place.is_dir():
        paths, ignored_names = _find_files(place)
    if not all(map(_has_shard_name, paths)):
        raise InputError(f"There is no shard in '{place}'; names must end in .npy or .parquet.")
    for path in paths:
        check_file_or_folder(path)
    shards: list[Shard] = []
    n_rows = 0
    n_columns = 0
    for source, roles, n_features in _open_sources(paths, options):
        path = source.path.absolute()
        shard = Shard(path, n_rows, source.n_rows, roles)
        shards.append(shard)
        n_rows += source.n_rows
        n_columns = n_features
    shape = (n_rows, n_columns)
    if 0 in shape:
        raise InputError(
            f"'{place}' holds features of shape {shape}; give at least one row and one column."
        )
    return shards, ignored_names


def read_blocks(
    shard: Shard, n_rows: int, columns: tuple[str, ...] | None = None
) -> Iterator[tuple[int, FloatArray]]:
    """Yield (the number of its first row within the shard, block) for blocks of features.

    Memory is bounded whatever the shard's size. Numbers are as `polyseme.io.read_features` gives
    them; NaN and infinity are refused.

    Parameters
    ----------
    shard : Shard
    n_rows : int
        Rows of a block; the last one may have fewer.
    columns : tuple of str, optional
        The columns of numbers, in the order in which blocks have them; by default that of the first
        shard.
    """
    roles = shard.roles
    if columns is not None:
        roles = roles._replace(number_columns=columns)
    source = _open(shard.path)
    start = 0
    for block in source.blocks(roles, n_rows):
        _check_finite(block, start, shard.path.name)
        if len(block):
            yield start, block
        start += len(block)
    if start != shard.n_rows:
        raise InputError(f"'{shard.path.name}' was changed while it was read; run again.")


def _check_finite(block: FloatArray, start: int, file: str) -> None:
    """Raise for NaN and infinity in a block, whose first row has the number `start`."""
    # A finite sum is proof that all is finite, in half the time; a sum that is not may overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.sum(block)
    if np.isfinite(total):
        return
    is_finite = np.isfinite(block).all(axis=1)
    wrong_rows = start + np.flatnonzero(~is_finite)
    if len(wrong_rows):
        listed = ", ".join(str(row) for row in wrong_rows[:5])
        raise InputError(
            f"'{file}' contains NaN or infinity in row(s) {listed}; impute or drop them first."
        )


def write_shards(
    table: NDArray[Any], folder: str | Path, n_rows: int = 100_000, file_format: str = "npy"
) -> list[Path]:
    """Cut a feature matrix (n, n_features) into shards part-00000, part-00001 and so on.

    A kill leaves shards that are whole each, and old ones beside new ones: write again.

    Parameters
    ----------
    table : array, shape (n, n_features)
        May be mapped from a file (`numpy.load(path, mmap_mode="r")`).
    folder : str or Path
        New, empty, or one that shards were written to before, which are replaced.
    n_rows : int
        Rows of a shard; the last one may have fewer.
    file_format : {"npy", "parquet"}

    Returns
    -------
    list of Path
        The shards, in order.
    """
    check_number("n_rows", n_rows, owner="write_shards", low=1, whole=True)
    check_option("file_format", file_format, ("npy", "parquet"), owner="write_shards")
    place = Path(folder)
    paths: list[Path] = []
    starts = range(0, len(table), n_rows)
    # The lock of the folder keeps another run from removing what this one writes; each file has one
    # of its own while it is written.
    with own_folder(place, "shards"):
        for number, start in enumerate(starts):
            path = place / f"part-{number:05d}.{file_format}"
            paths.append(path)
            stop = start + n_rows
            rows = np.asarray(table[start:stop])
            with replacing(path) as stream:
                if file_format == "npy":
                    np.save(stream, rows, allow_pickle=False)
                else:
                    _write_parquet(rows, stream)
        written_paths = [path for path in place.iterdir() if _WRITTEN_SHARD.fullmatch(path.name)]
        for path in written_paths:
            if path not in paths:
                path.unlink()  # of a former table, which had more rows or another format
    return paths


def _open_sources(
    paths: Sequence[Path], options: ReadOptions
) -> Iterator[tuple[Any, ColumnRoles, int]]:
    """Yield (source, roles, number of features) of each file, after checking that all are alike.

    The roles are those of the first file, whose order of columns counts for all.
    """
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
        # Of vectors and matrices only the numbers themselves say how many features there are.
        if roles.vector_column or not source.kinds:
            first_block = next(source.blocks(roles, 1))
            width = first_block.shape[1]
        if first_roles is None:
            first_roles = roles
            first_width = width
        # A file without vectors has no width.
        states_width = bool(source.n_rows or roles.number_columns)
        if width != first_width and states_width:
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
    """Return the source of a file, by its suffix."""
    if path.suffix.lower() == _NUMPY_SUFFIX:
        return NumpyFile(path)
    return ArrowFile(path)


def _write_parquet(rows: NDArray[Any], stream: BinaryIO) -> None:
    """Write rows of features, (n_rows, n_features), as Parquet with the columns x0, x1, ….

    The names are fixed: models remember those of the features that they were fitted with.
    """
    arrow = import_pyarrow()
    column_by_name: dict[str, NDArray[Any]] = {}
    for number, column in enumerate(rows.T):
        name = f"x{number}"
        column_by_name[name] = np.ascontiguousarray(column)
    table = arrow.table(column_by_name)
    arrow.parquet.write_table(table, stream)


def _is_hidden(path: Path) -> bool:
    """Return whether a file is passed over, as other programs do with such names."""
    return path.name[:1] in "._"


def _has_shard_name(path: Path) -> bool:
    """Return whether a file's name is that of a shard."""
    has_suffix = path.suffix.lower() in (_NUMPY_SUFFIX, *SUFFIXES)
    return has_suffix and not _is_hidden(path)


def _find_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a table in a folder, in order, and the names of other files.

    A Hugging Face dataset names them itself, split by split; else they are the `.npy` files, or
    those of Arrow, in the order of their names.
    """
    splits_file = folder / _SPLITS_FILE
    state_file = folder / _STATE_FILE
    if splits_file.is_file():
        files_of_splits: list[Path] = []
        for split in _read_file_names(splits_file, "splits"):
            files, _ = _find_files(folder / split)
            files_of_splits += files
        return files_of_splits, []
    if state_file.is_file():
        names = _read_file_names(state_file, "_data_files")
        return [folder / name for name in names], []
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [path for path in entries if path.is_file() and _has_shard_name(path)]
    if not files:
        suffixes = " or ".join((_NUMPY_SUFFIX, *SUFFIXES))
        raise InputError(f"There is no shard in '{folder}'; names must end in {suffixes}.")
    suffixes_there = {path.suffix.lower() for path in files}
    if len(suffixes_there) > 1:
        raise InputError(f"'{folder}' mixes .npy, .parquet or .arrow shards; keep one kind.")
    shards = set(files)
    ignored_names: list[str] = []
    for path in entries:
        if path not in shards and not _is_hidden(path):
            ignored_names.append(path.name)
    return files, ignored_names


def _read_file_names(path: Path, key: str) -> list[str]:
    """Return the names of the files or folders that a Hugging Face dataset is made of.

    Parameters
    ----------
    path : Path
        `state.json` or `dataset_dict.json`, which a stranger may have written.
    key : {"_data_files", "splits"}
        Where it names them.
    """
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
