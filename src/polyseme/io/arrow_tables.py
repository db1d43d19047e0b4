"""Arrow tables: Parquet and Arrow files, folders of them, and Hugging Face datasets on disk.

In: a `.parquet`, `.arrow` or `.feather` file, a folder of shards, or what `save_to_disk` wrote.
Out: a `Table`, or batches of some columns. pyarrow reads all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from polyseme._validation import FloatArray, InputError
from polyseme.io import Table, Wanted
from polyseme.io.arrays import as_features, map_npy
from polyseme.io.columns import (
    FIELDS,
    FILE,
    LIST,
    NUMBER,
    TEXT,
    VECTOR,
    Roles,
    check_size,
    find_roles,
)
from polyseme.io.tag_cells import CellError, label_sets

SUFFIXES = (".parquet", ".arrow", ".feather")
_STATE, SPLITS = "state.json", "dataset_dict.json"  # as Hugging Face datasets name them
_BATCH_ROWS = 8192


def read_table(place: Path, wanted: Wanted) -> Table:
    """Read a file or a folder of them; see `polyseme.io.read_table`."""
    files = files_of(place)[0] if place.is_dir() else [place]
    if files[0].suffix.lower() == ".npy":
        rows: list[Any] = [as_features(np.array(map_npy(file)), file.name) for file in files]
        if len({part.shape[1] for part in rows}) > 1:
            raise InputError(f"The files of '{place}' have different numbers of columns.")
        return Table(features=np.concatenate(rows))
    parts = []
    first: Roles | None = None
    for file in files:
        with opened(file) as source:
            roles = find_roles(source.kinds, wanted, file.name)
            # Columns are read by name, in the order of the first file.
            if first is not None and {*roles.features} != {*first.features}:
                raise InputError(f"'{file.name}' has other columns than '{files[0].name}'.")
            first = first or roles
            parts.append(_read_file(source, first))
    table = parts[0] if len(parts) == 1 else _stacked(parts, place)
    if table.label_sets is None or first is None or first.tags is None:
        return table
    try:
        sets = label_sets(table.label_sets, wanted.delimiter, first.tags)
    except CellError as error:
        raise InputError(f"Row {error.place} of {place.name} {error}") from error
    return replace(table, label_sets=sets)


def files_of(folder: Path) -> tuple[list[Path], list[str]]:
    """Find the files of a table in a folder, in order, and the names of others.

    A Hugging Face dataset says itself which they are; else they are the `.npy` files, or those of
    Arrow, in the order of their names; names that begin with `_` or `.` are passed over.
    """
    if (folder / SPLITS).is_file():
        parts = sorted(path.parent.name for path in folder.glob(f"*/{_STATE}"))
        raise InputError(
            f"'{folder}' is a Hugging Face dataset of several splits; name one of its folders: "
            f"{', '.join(parts)}."
        )
    if (folder / _STATE).is_file():
        return _dataset_files(folder), []
    met = sorted(folder.iterdir())
    files = [path for path in met if path.is_file() and is_part(path)]
    if not files:
        known = " or ".join((".npy", *SUFFIXES))
        raise InputError(f"There is no shard in '{folder}'; names must end in {known}.")
    if len({path.suffix.lower() for path in files}) > 1:
        raise InputError(f"'{folder}' mixes .npy, .parquet or .arrow shards; keep one kind.")
    others = [path.name for path in met if path not in {*files} and path.name[:1] not in "._"]
    return files, others


def is_part(path: Path) -> bool:
    """Say whether a file's name is that of a part of a table."""
    return path.suffix.lower() in (".npy", *SUFFIXES) and path.name[:1] not in "._"


def _dataset_files(folder: Path) -> list[Path]:
    """Give the files that a Hugging Face dataset is made of."""
    try:
        state = json.loads((folder / _STATE).read_bytes())
        names = [Path(str(file["filename"])).name for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"'{folder / _STATE}' does not name the files of a Hugging Face dataset; save the "
            "dataset again."
        ) from error
    if state.get("_indices_data_files"):
        raise InputError(
            f"'{folder}' holds a selection of rows; save `dataset.flatten_indices()` instead."
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise InputError(f"'{folder}' lacks {missing[0] if missing else 'data'}; copy it whole.")
    return [folder / name for name in names]


# ---------------------------------------------------------------------- one file


@dataclass(frozen=True)
class Source:
    """An open file: what its columns hold, and a way to read some of them."""

    path: Path
    kinds: dict[str, str]
    n_rows: int
    file: Any  # a ParquetFile, or the record batches of an Arrow file

    def batches(self, names: Sequence[str], n_rows: int = _BATCH_ROWS) -> Iterator[Any]:
        """Yield record batches of at most so many rows with these columns, in this order."""
        if self.path.suffix.lower() == ".parquet":
            options = {"batch_size": n_rows, "columns": list(names), "use_threads": False}
            for batch in self.file.iter_batches(**options):
                yield batch.select(list(names))
            return
        for batch in self.file:
            for start in range(0, batch.num_rows, n_rows):
                yield batch.select(list(names)).slice(start, n_rows)


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open a Parquet or Arrow file; whatever is wrong with it is told in one sentence."""
    arrow = import_pyarrow()
    parquet = path.suffix.lower() == ".parquet"
    try:
        if parquet:
            with arrow.parquet.ParquetFile(path) as file:
                kinds = _kinds(file.schema_arrow, arrow, path.name)
                yield Source(path, kinds, file.metadata.num_rows, file)
            return
        with arrow.memory_map(str(path)) as mapped:
            schema, batches = _arrow_batches(mapped, arrow)
            n_rows = sum(batch.num_rows for batch in batches)
            yield Source(path, _kinds(schema, arrow, path.name), n_rows, batches)
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        what = "Parquet" if parquet else "Arrow"
        raise InputError(
            f"{path.name} is not readable as {what} ({reason}); write it again."
        ) from error


def import_pyarrow() -> Any:
    """Import pyarrow with its Parquet part, or say how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "Parquet and Arrow files need the extra `parquet`; run pip install '.[parquet]' in a "
            "checkout."
        ) from error
    return pyarrow


def _arrow_batches(mapped: Any, arrow: Any) -> tuple[Any, list[Any]]:
    """Give schema and record batches of an Arrow file, in the form of files or of streams."""
    try:
        reader = arrow.ipc.open_file(mapped)
        return reader.schema, [reader.get_batch(at) for at in range(reader.num_record_batches)]
    except arrow.ArrowInvalid:
        mapped.seek(0)
        reader = arrow.ipc.open_stream(mapped)
        return reader.schema, list(reader)


def _kinds(schema: Any, arrow: Any, file: str) -> dict[str, str]:
    """Say what each column holds; the name of its type where it is nothing that we read."""
    kinds: dict[str, str] = {}
    for field in schema:
        if field.name in kinds:
            raise InputError(f"{file} has two columns '{field.name}'; rename one.")
        kinds[field.name] = _kind(field.type, arrow.types)
    return kinds


def _kind(kind: Any, types: Any) -> str:
    """Say what a type of pyarrow is for us."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return NUMBER
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return TEXT
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _kind(kind.value_type, types)
        return {NUMBER: VECTOR, TEXT: LIST}.get(inner, str(kind))
    return str(kind)


def _read_file(source: Source, roles: Roles) -> Table:
    """Read all rows of a file, cells of tags as they are."""
    file, table = source.path.name, Table(unused=roles.unused)
    fields = {name: where for name, where in FIELDS.items() if name in source.kinds}
    if "id" not in fields and FILE in source.kinds:
        fields[FILE] = FIELDS["id"]
    given: dict[str, Any] = {where: _texts(source, name) for name, where in fields.items()}
    table = replace(table, **given)
    if roles.tags is not None:
        if source.kinds[roles.tags] not in (TEXT, LIST):
            raise InputError(
                f"Column '{roles.tags}' of {file} must hold lists of strings, or text; got "
                f"{source.kinds[roles.tags]}: name another by `tags_column` (--tags-column)."
            )
        table = replace(table, label_sets=_cells(source, roles.tags))
    if roles.features:
        check_size(source.n_rows, len(roles.features), file)
        width = len(roles.numbers)
        matrix = np.concatenate([*blocks(source, roles)] or [np.empty((0, width))])
        names = roles.numbers if roles.vector is None else None
        table = replace(table, features=matrix, columns=names)
    return table


def blocks(source: Source, roles: Roles, n_rows: int = _BATCH_ROWS) -> Iterator[FloatArray]:
    """Yield the features of a file in blocks of at most so many rows; empty cells are NaN."""
    width, start = None, 0
    for batch in source.batches(roles.features, n_rows):
        if roles.vector is None:
            matrix = np.empty((batch.num_rows, batch.num_columns))
            for place, column in enumerate(batch.columns):
                matrix[:, place] = column.cast("float64").to_numpy(zero_copy_only=False)
            yield matrix
            continue
        vectors = _vectors(batch[0], source.path.name, start, width)
        width = vectors.shape[1] if width is None else width
        check_size(source.n_rows, width, source.path.name)
        yield vectors
        start += batch.num_rows


def _vectors(column: Any, file: str, start: int, width: int | None) -> FloatArray:
    """Turn a column of lists of numbers into a matrix, all as long as the first."""
    lengths = column.value_lengths().to_pylist()
    sizes = np.array([size or 0 for size in lengths], dtype=np.int64)
    width = int(sizes[0]) if width is None and len(sizes) else (width or 0)
    if wrong := np.flatnonzero(sizes != width).tolist():
        raise InputError(
            f"Row {start + wrong[0]} of {file} has a vector of {sizes[wrong[0]]} numbers where "
            f"others have {width}; all need the same length."
        )
    values = column.flatten()
    single = str(values.type) in ("float", "halffloat")
    numbers = values.cast("float32" if single else "float64").to_numpy(zero_copy_only=False)
    matrix: FloatArray = numbers.reshape(len(sizes), width)
    return matrix


def _cells(source: Source, name: str) -> list[Any]:
    """Read a column as plain Python."""
    return [cell for batch in source.batches([name]) for cell in batch.column(0).to_pylist()]


def _texts(source: Source, name: str) -> list[str] | None:
    """Read a column of names; None where every cell is empty."""
    cells = _cells(source, name)
    if source.kinds[name] not in (TEXT, NUMBER) or any(isinstance(cell, float) for cell in cells):
        raise InputError(
            f"Column '{name}' of {source.path.name} must hold text or whole numbers; got "
            f"{source.kinds[name]}."
        )
    empty = [row for row, cell in enumerate(cells) if cell is None]
    if empty and len(empty) < len(cells):
        raise InputError(
            f"Row {empty[0]} of {source.path.name} lacks '{name}', which others have; give it to "
            "all or none."
        )
    return None if empty else [str(cell) for cell in cells]


def read_ids(path: Path) -> list[str] | None:
    """Read the names of a file's rows; None where it has none."""
    with opened(path) as source:
        name = next((name for name in ("id", FILE) if name in source.kinds), None)
        return None if name is None else _texts(source, name)


def _stacked(parts: Sequence[Table], place: Path) -> Table:
    """Put the tables of a folder's files one below the other."""

    def joined(name: str) -> list[Any] | None:
        columns = [getattr(part, name) for part in parts]
        held = [column for column in columns if column is not None]
        if held and len(held) < len(columns):
            raise InputError(
                f"Some files of '{place}' have {name} and others none; write all alike."
            )
        return [cell for column in held for cell in column] if held else None

    features: list[Any] = [part.features for part in parts if part.features is not None]
    if len({part.shape[1] for part in parts}) > 1:
        raise InputError(f"The files of '{place}' have vectors of different lengths.")
    lists = {name: joined(name) for name in ("label_sets", "ids", "groups", "splits")}
    matrix: Any = np.concatenate(features) if features else None
    columns, unused = parts[0].columns, parts[0].unused
    return Table(features=matrix, columns=columns, unused=unused, **lists)  # type: ignore[arg-type]
