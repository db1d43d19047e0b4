"""Tables in one or several files of numpy or Arrow, read whole or a block of rows at a time.

In comes a folder of such files, what `save_to_disk` of Hugging Face datasets wrote, or a single
file; out goes a `Table`, or sizes, known from the headers, and blocks of rows. Rows are numbered
through all shards in the order of the files' names.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import FloatArray, InputError, check_number, check_option, first_few
from polyseme.io import FEATURES, Table, Wanted, check_plain
from polyseme.io.arrays import NumpyFile
from polyseme.io.arrow_tables import SUFFIXES, ArrowFile, import_pyarrow
from polyseme.io.columns import Roles, check_size, find_roles, table_of, texts
from polyseme.io.folders import own_folder, replacing

_WRITTEN = re.compile(r"part-\d{5,}\.(?:npy|parquet)")  # as `write_shards` names them
_STATE, _SPLITS = "state.json", "dataset_dict.json"  # as Hugging Face datasets name them


@dataclass(frozen=True)
class Shard:
    """One file of a table."""

    path: Path  # absolute
    first: int  # the number of its first row among the rows of all shards
    n_rows: int
    roles: Roles  # columns in the order of the first shard

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the features; None of a matrix or of vectors."""
        return self.roles.numbers or None

    def ids(self) -> list[str] | None:
        """Read the names of its rows; None where they have none."""
        name = next((name for name, where in self.roles.fields.items() if where == "ids"), None)
        if name is None:
            return None
        return texts(ArrowFile(self.path).cells(name), name, f"Row {{}} of {self.path.name}".format)


def is_sharded(place: Path) -> bool:
    """Return whether a path is a file in a format of shards, or a folder that holds some."""
    if place.is_dir():
        return (place / _SPLITS).is_file() or any(map(_is_part, place.iterdir()))
    return place.exists() and _is_part(place)


def read_table(place: Path, wanted: Wanted) -> Table:
    """Read a file or a folder of them; see `polyseme.io.read_table`."""
    files = _files_of(place)[0] if place.is_dir() else [place]
    cells: dict[str, list[Any]] = defaultdict(list)
    parts: list[FloatArray] = []
    n_rows = 0
    for source, roles, width in _sources(files, wanted):
        n_rows += source.n_rows
        check_size(n_rows, width, place.name)
        own_folder = place.is_dir() and source.path.parent != place
        if own_folder and "split" not in roles.fields:
            roles = roles._replace(fields=roles.fields | {"split": "splits"})
            cells["split"] += [source.path.parent.name] * source.n_rows
        for name in source.kinds.keys() & {*roles.fields, roles.tags}:
            cells[name] += source.cells(name)
        if width:
            parts += source.blocks(roles)
    matrix = np.concatenate(parts) if parts else None
    return table_of(roles, cells, wanted, f"Row {{}} of {place.name}".format, matrix)


def find_shards(place: Path, wanted: Wanted = FEATURES) -> tuple[list[Shard], list[str]]:
    """Find the shards of a table, in a folder or a single file, and the names of other files.

    A folder's `.npy`, `.parquet` or `.arrow` files are taken in the order of their names, letter by
    letter; names that begin with `_` or `.` are passed over. All have the same columns, at least
    one, in any order; a shard may be without rows. Columns of tags are no features, nor are `id`,
    `file`, `group` and `split`.
    """
    if not place.exists():
        raise InputError(f"There is no file or folder '{place}'; check the path.")
    paths, others = _files_of(place) if place.is_dir() else ([place], [])
    if not all(map(_is_part, paths)):
        raise InputError(f"There is no shard in '{place}'; names must end in .npy or .parquet.")
    for path in paths:
        check_plain(path)
    shards: list[Shard] = []
    shape = (0, 0)
    for source, roles, width in _sources(paths, wanted):
        shards.append(Shard(source.path.absolute(), shape[0], source.n_rows, roles))
        shape = (shape[0] + source.n_rows, width)
    if 0 in shape:
        raise InputError(
            f"'{place}' holds features of shape {shape}; give at least one row and one column."
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
    roles = shard.roles if columns is None else shard.roles._replace(numbers=columns)
    for block in _opened(shard.path).blocks(roles, n_rows):
        # A finite sum is proof that all is finite, in half the time.
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = () if np.isfinite(np.sum(block)) else np.flatnonzero(~np.isfinite(block).all(1))
        if len(gaps):
            raise InputError(
                f"'{shard.path.name}' contains NaN or infinity in row(s) "
                f"{', '.join(str(start + row) for row in gaps[:5])}; impute or drop them first."
            )
        if len(block):
            yield start, block
        start += len(block)
    if start != shard.n_rows:
        raise InputError(f"'{shard.path.name}' was changed while it was read; run again.")


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
    place, paths = Path(folder), []
    with own_folder(place, "shards"):
        for number, start in enumerate(range(0, len(table), n_rows)):
            paths.append(place / f"part-{number:05d}.{file_format}")
            rows = np.asarray(table[start : start + n_rows])
            with replacing(paths[-1]) as stream:
                if file_format == "npy":
                    np.save(stream, rows, allow_pickle=False)
                    continue
                arrow = import_pyarrow()
                names = {f"x{at}": np.ascontiguousarray(one) for at, one in enumerate(rows.T)}
                arrow.parquet.write_table(arrow.table(names), stream)
        for path in [one for one in place.iterdir() if _WRITTEN.fullmatch(one.name)]:
            if path not in paths:
                path.unlink()
    return paths


def _sources(paths: Sequence[Path], wanted: Wanted) -> Iterator[tuple[Any, Roles, int]]:
    """Open files one by one, with roles in the first one's order and the number of features."""
    first: Roles | None = None
    for path in paths:
        source = _opened(path)
        if not source.kinds and wanted.features != "all":
            raise InputError(
                f"{path.name} holds numbers only; tags need a file of another form, such as .jsonl."
            )
        roles = find_roles(source.kinds, wanted, path.name)
        width = len(roles.numbers)
        if roles.vector or not source.kinds:
            width = next(source.blocks(roles, 1)).shape[1]
        if first is None:
            first, wide = roles, width
        if width != wide and (source.n_rows or roles.numbers):
            raise InputError(
                f"'{path.name}' has {width} columns but '{paths[0].name}' has {wide}; all files "
                "need the same."
            )
        if {*roles.features, *roles.fields} != {*first.features, *first.fields}:
            raise InputError(
                f"'{path.name}' has other columns than '{paths[0].name}'; all files need the same."
            )
        yield source, first, wide


def _opened(path: Path) -> Any:
    """Open a file of either kind."""
    return NumpyFile(path) if path.suffix.lower() == ".npy" else ArrowFile(path)


def _is_part(path: Path) -> bool:
    """Return whether a file's name is that of a part of a table."""
    return path.suffix.lower() in (".npy", *SUFFIXES) and path.name[:1] not in "._"


def _files_of(folder: Path) -> tuple[list[Path], list[str]]:
    """Find the files of a table in a folder, in order, and the names of others.

    A Hugging Face dataset says itself which they are, split by split; else they are the `.npy`
    files, or those of Arrow, in the order of their names.
    """
    if (folder / _SPLITS).is_file():
        names = _stated(folder / _SPLITS, "splits")
        return [file for name in names for file in _files_of(folder / name)[0]], []
    if (folder / _STATE).is_file():
        return [folder / name for name in _stated(folder / _STATE, "_data_files")], []
    met = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [path for path in met if path.is_file() and _is_part(path)]
    if not files:
        known = " or ".join((".npy", *SUFFIXES))
        raise InputError(f"There is no shard in '{folder}'; names must end in {known}.")
    if len({path.suffix.lower() for path in files}) > 1:
        raise InputError(f"'{folder}' mixes .npy, .parquet or .arrow shards; keep one kind.")
    others = [path.name for path in met if path not in {*files} and path.name[:1] not in "._"]
    return files, others


def _stated(path: Path, key: str) -> list[str]:
    """Return the names of files or folders that a Hugging Face dataset says it is made of."""
    try:
        state = json.loads(path.read_bytes())
        entries = [entry["filename"] if key == "_data_files" else entry for entry in state[key]]
        names = [Path(str(entry)).name for entry in entries]
        selected = state.get("_indices_data_files")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"'{path}' does not name the parts of a Hugging Face dataset; save the dataset again."
        ) from error
    if selected:
        raise InputError(
            f"'{path.parent}' holds a selection of rows; save `dataset.flatten_indices()` instead."
        )
    # Only what lies there: a name may also be a way out of the folder, or back to itself.
    there = {one.name for one in path.parent.iterdir()}
    missing = [name for name in names if name not in there]
    if missing or not names:
        lacking = first_few(missing, most=1) if missing else "data"
        raise InputError(f"'{path.parent}' lacks {lacking}; copy it whole.")
    return names
