"""One Parquet or Arrow file, read by pyarrow: what its columns hold, cells and blocks of features.

In: a `.parquet`, `.arrow` or `.feather` file. Out: lists of cells, matrices of numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from polyseme._text import in_words, said
from polyseme._validation import FloatArray, InputError
from polyseme.io.columns import LIST, NUMBER, TEXT, VECTOR, Roles

SUFFIXES = (".parquet", ".arrow", ".feather")
_BATCH_ROWS = 8192


class ArrowFile:
    """An open file; whatever is wrong with it is told in one sentence.

    Attributes
    ----------
    kinds : dict of str to str
        What each column holds; the name of its type where it is nothing that we read.
    n_rows : int
    """

    def __init__(self, path: Path) -> None:
        self.path, arrow = path, import_pyarrow()
        self._parquet = path.suffix.lower() == ".parquet"
        with self._readable():
            if self._parquet:
                self._file = arrow.parquet.ParquetFile(path)
                schema, self.n_rows = self._file.schema_arrow, self._file.metadata.num_rows
            else:
                schema, self._file = _arrow_batches(arrow, path)
                self.n_rows = sum(batch.num_rows for batch in self._file)
        self._names = _label_names(schema.metadata or {})
        self.kinds: dict[str, str] = {}
        for field in schema:
            if field.name in self.kinds:
                told = f"{path.name} has two columns '{in_words(field.name, 100)}'; rename one."
                raise InputError(told)
            kind = _kind(field.type, arrow.types)
            self.kinds[field.name] = LIST if field.name in self._names else kind

    def cells(self, name: str) -> list[Any]:
        """Read a column as plain Python; numbers of labels become their names."""
        cells = [cell for batch in self.batches([name]) for cell in batch.column(0).to_pylist()]
        names = dict(enumerate(self._names.get(name, ())))
        return [[names.get(n, n) for n in cell or ()] for cell in cells] if names else cells

    def blocks(self, roles: Roles, n_rows: int = _BATCH_ROWS) -> Iterator[FloatArray]:
        """Yield features in blocks of so many rows, one at least; empty cells are NaN."""
        rows: FloatArray = np.empty((0, len(roles.numbers)))
        start, width = 0, None
        for batch in self.batches(roles.features, n_rows):
            if roles.vector is None:
                columns = [c.cast("float64").to_numpy(zero_copy_only=False) for c in batch.columns]
                block: FloatArray = np.column_stack(columns)
            else:
                block = self._vectors(batch.column(0), start, width)
            start, width = start + len(block), block.shape[1]
            # A file cuts batches where its row groups end; blocks are cut at fixed places.
            rows = np.concatenate([rows, block]) if len(rows) else block
            while len(rows) >= n_rows:
                yield rows[:n_rows]
                rows = rows[n_rows:]
        if len(rows) or not start:
            yield rows

    def _vectors(self, column: Any, start: int, width: int | None) -> FloatArray:
        """Turn a column of lists of numbers into a matrix, all as long as the first."""
        sizes = np.array([size or 0 for size in column.value_lengths().to_pylist()])
        width = int(sizes[0]) if width is None else width
        if wrong := np.flatnonzero(sizes != width).tolist():
            raise InputError(
                f"Row {start + wrong[0]} of {self.path.name} has a vector of {sizes[wrong[0]]} "
                f"numbers where others have {width}; all need the same length."
            )
        values = column.flatten()
        single = str(values.type) in ("float", "halffloat")
        numbers = values.cast("float32" if single else "float64").to_numpy(zero_copy_only=False)
        matrix: FloatArray = numbers.reshape(len(sizes), width)
        return matrix

    def batches(self, names: Sequence[str], n_rows: int = _BATCH_ROWS) -> Iterator[Any]:
        """Yield record batches of at most so many rows with these columns, in this order."""
        options = {"batch_size": n_rows, "columns": list(names), "use_threads": False}
        with self._readable():
            for batch in self._file.iter_batches(**options) if self._parquet else self._file:
                chosen = batch.select(list(names))
                # Compiled code trusts offsets and indices: wrong ones would read foreign memory.
                chosen.validate(full=True)
                for start in range(0, batch.num_rows, n_rows):
                    yield chosen.slice(start, n_rows)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn what pyarrow raises for a damaged file into one sentence."""
        try:
            yield
        except (import_pyarrow().ArrowException, OSError) as error:
            kind = "Parquet" if self._parquet else "Arrow"
            raise InputError(
                f"{self.path.name} is not readable as {kind} ({said(error)}); write it again."
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


def _arrow_batches(arrow: Any, path: Path) -> tuple[Any, list[Any]]:
    """Return schema and record batches of an Arrow file, in the form of files or of streams."""
    mapped = arrow.memory_map(str(path))
    try:
        reader = arrow.ipc.open_file(mapped)
        return reader.schema, [reader.get_batch(at) for at in range(reader.num_record_batches)]
    except arrow.ArrowInvalid:
        mapped.seek(0)
        reader = arrow.ipc.open_stream(mapped)
        return reader.schema, list(reader)


def _label_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names that Hugging Face datasets keep for columns with lists of label numbers."""
    found: dict[str, list[str]] = {}
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # others may write anything
        for name, kind in json.loads(metadata[b"huggingface"])["info"]["features"].items():
            if isinstance(inner := kind.get("feature"), dict) and inner["_type"] == "ClassLabel":
                found[name] = [str(label) for label in inner["names"]]
    return found


def _kind(kind: Any, types: Any) -> str:
    """Return what a type of pyarrow is for us."""
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
