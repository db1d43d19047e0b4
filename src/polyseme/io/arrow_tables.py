"""Read one Parquet or Arrow file with pyarrow: kinds of columns, cells, blocks of features.

In: a `.parquet`, `.arrow` or `.feather` file. Out: lists of cells, matrices of numbers. Kinds and
roles of columns are those of `polyseme.io.columns`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from polyseme.base.text import error_text, in_words
from polyseme.base.validation import FloatArray, InputError
from polyseme.io.columns import LIST_KIND, NUMBER_KIND, TEXT_KIND, VECTOR_KIND, ColumnRoles

SUFFIXES = (".parquet", ".arrow", ".feather")
_BATCH_ROWS = 8192  # read at once, which bounds the memory of a column of vectors


class ArrowFile:
    """An open file; whatever is wrong with it becomes an error of one sentence.

    Attributes
    ----------
    path : Path
    kinds : dict of str to str
        The kind of each column; the name of its Arrow type where it is nothing that we read.
    n_rows : int
    """

    def __init__(self, path: Path) -> None:
        arrow = import_pyarrow()
        self.path = path
        self._is_parquet = path.suffix.lower() == ".parquet"
        with self._explaining_damage():
            if self._is_parquet:
                self._file = arrow.parquet.ParquetFile(path)
                schema = self._file.schema_arrow
                self.n_rows = self._file.metadata.num_rows
            else:
                schema, self._file = _arrow_batches(arrow, path)
                self.n_rows = sum(batch.num_rows for batch in self._file)
        self._class_names = _class_names(schema.metadata or {})  # by column
        self.kinds: dict[str, str] = {}
        for field in schema:
            with self._explaining_damage():
                name = field.name
                kind = _kind(field.type, arrow.types)
            if name in self.kinds:
                raise InputError(
                    f"{path.name} has two columns '{in_words(name, 100)}'; rename one."
                )
            self.kinds[name] = LIST_KIND if name in self._class_names else kind

    def cells(self, name: str) -> list[Any]:
        """Read a column as plain Python; lists of label numbers become lists of names."""
        cells: list[Any] = []
        for batch in self.batches([name]):
            column = batch.column(0)
            cells += column.to_pylist()
        label_by_number = dict(enumerate(self._class_names.get(name, ())))
        if not label_by_number:
            return cells
        named_cells: list[Any] = []
        for cell in cells:
            numbers = cell or ()
            # A number without a name stays, and is refused as no text.
            labels = [label_by_number.get(number, number) for number in numbers]
            named_cells.append(labels)
        return named_cells

    def blocks(self, roles: ColumnRoles, n_rows: int = _BATCH_ROWS) -> Iterator[FloatArray]:
        """Yield features in blocks (n_rows, n_features), the last one shorter; empty cells are NaN.

        There is at least one, which is empty where the file is. The features are those columns that
        the roles name, in their order.
        """
        # Rows that were read and not yielded yet.
        rows: FloatArray = np.empty((0, len(roles.number_columns)))
        n_read = 0
        width = None
        for batch in self.batches(roles.feature_columns, n_rows):
            if roles.vector_column is None:
                block = _number_columns(batch)
            else:
                block = self._vectors(batch.column(0), n_read, width)
            n_read += len(block)
            width = block.shape[1]
            # A file cuts batches where its row groups end; blocks are cut at fixed places.
            rows = np.concatenate([rows, block]) if len(rows) else block
            while len(rows) >= n_rows:
                yield rows[:n_rows]
                rows = rows[n_rows:]
        if len(rows) or not n_read:
            yield rows

    def _vectors(self, column: Any, first_row: int, width: int | None) -> FloatArray:
        """Return a column of a record batch, lists of numbers, as a matrix (n_rows, width).

        Parameters
        ----------
        column : pyarrow array
        first_row : int
            The number of its first row in the file, for errors.
        width : int, optional
            How long all lists must be; by default as long as the first.
        """
        maybe_lengths = column.value_lengths().to_pylist()  # None of an empty cell
        lengths = np.array([length or 0 for length in maybe_lengths])
        if width is None:
            width = int(lengths[0])
        wrong_rows = np.flatnonzero(lengths != width).tolist()
        if wrong_rows:
            row = wrong_rows[0]
            raise InputError(
                f"Row {first_row + row} of {self.path.name} has a vector of {lengths[row]} "
                f"numbers where others have {width}; all need the same length."
            )
        values = column.flatten()
        is_single = str(values.type) in ("float", "halffloat")
        float_type = "float32" if is_single else "float64"
        numbers = values.cast(float_type).to_numpy(zero_copy_only=False)
        matrix: FloatArray = numbers.reshape(len(lengths), width)
        return matrix

    def batches(self, names: Sequence[str], n_rows: int = _BATCH_ROWS) -> Iterator[Any]:
        """Yield record batches of at most `n_rows` rows with these columns, in this order."""
        columns = list(names)
        with self._explaining_damage():
            if self._is_parquet:
                batches = self._file.iter_batches(
                    batch_size=n_rows, columns=columns, use_threads=False
                )
            else:
                batches = self._file
            for batch in batches:
                selected = batch.select(columns)
                # Compiled code trusts offsets and indices: wrong ones would read foreign memory.
                selected.validate(full=True)
                for start in range(0, batch.num_rows, n_rows):
                    yield selected.slice(start, n_rows)

    @contextmanager
    def _explaining_damage(self) -> Iterator[None]:
        """Turn pyarrow's errors about a damaged file into one sentence."""
        errors = (import_pyarrow().ArrowException, OSError, UnicodeDecodeError)
        try:
            yield
        except errors as error:
            kind = "Parquet" if self._is_parquet else "Arrow"
            raise InputError(
                f"{self.path.name} is not readable as {kind} ({error_text(error)}); write it again."
            ) from error


def import_pyarrow() -> Any:
    """Return pyarrow with its Parquet module, or raise where it is not installed."""
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
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except arrow.ArrowInvalid:
        mapped.seek(0)
        reader = arrow.ipc.open_stream(mapped)
        batches = list(reader)
    return reader.schema, batches


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of labels, by column, that Hugging Face datasets put into a file's metadata.

    Their columns hold lists of numbers, of type `ClassLabel`, which count these names from 0.
    """
    names_by_column: dict[str, list[str]] = {}
    # Other programs may write anything under this key.
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        content = json.loads(metadata[b"huggingface"])
        features = content["info"]["features"]
        for column, feature in features.items():
            label_type = feature.get("feature")
            if isinstance(label_type, dict) and label_type["_type"] == "ClassLabel":
                names = label_type["names"]
                names_by_column[column] = list(map(str, names))
    return names_by_column


def _kind(arrow_type: Any, types: Any) -> str:
    """Return the kind of a column of a pyarrow type; `types` is the module `pyarrow.types`."""
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    number_tests = (types.is_integer, types.is_floating, types.is_boolean)
    if any(is_type(arrow_type) for is_type in number_tests):
        return NUMBER_KIND
    text_tests = (types.is_string, types.is_large_string, types.is_string_view)
    if any(is_type(arrow_type) for is_type in text_tests):
        return TEXT_KIND
    list_tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if any(is_type(arrow_type) for is_type in list_tests):
        item_kind = _kind(arrow_type.value_type, types)
        list_kinds = {NUMBER_KIND: VECTOR_KIND, TEXT_KIND: LIST_KIND}
        return list_kinds.get(item_kind, str(arrow_type))
    return str(arrow_type)


def _number_columns(batch: Any) -> FloatArray:
    """Return the columns of numbers of a record batch side by side; empty cells are NaN."""
    columns = [column.cast("float64") for column in batch.columns]
    arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
    matrix: FloatArray = np.column_stack(arrays)
    return matrix
