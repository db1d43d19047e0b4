"""Saved models and checkpoints: one safetensors file in a folder, no pickle.

In: a kind, plain values and named arrays. Out: `model.safetensors`, which is replaced as a whole or
not at all, and on reading the same values and arrays, or one sentence that says why not.

The format of the file is fixed: whoever changes it counts `FORMAT_NUMBER` up, and files of other
numbers are refused. It is that of safetensors: 8 bytes with the length of the header, the header
(JSON), and the bytes of the arrays one behind the other. The header's metadata has one key,
`polyseme`, with a text that is JSON again: `format`, `kind`, `sha256`, `polyseme` (the version of
the package) and `config`, in this order, so that the first bytes of a file tell what it is. The
`sha256` is that of the whole file with 64 zeros in its own place.

Terms: a *state* is what an object is saved as, its *config* (plain values) and its arrays. A *part*
is an object that is saved within another: its values lie in the config under its name, and its
arrays are called `part.name`. The *kind* of a file says what object it holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError
from polyseme.storage.atomic_files import (
    check_not_dangling,
    check_regular,
    check_writable,
    create_folder,
    is_temporary,
    locked,
    replacing,
    sync_folder,
    temporary_of,
)

# The types of what is saved. Plain values are those that JSON has.
JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None
Config: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
# (config, arrays by name)
State: TypeAlias = tuple[dict[str, Any], dict[str, NDArray[Any]]]

MODEL_FILE = "model.safetensors"
# What people said about the model's answers; it lies beside the model, and no save touches it.
VERDICTS_FILE = "verdicts.sqlite"
_VERDICT_FILES = re.compile(rf"{re.escape(VERDICTS_FILE)}(?:-wal|-shm|-journal)?")

# Kinds of files, fixed on disk: a fitted tagger, and the checkpoints of a training that was
# interrupted, of the default method ("training") and of the published one ("checkpoint").
_TAGGER_KIND = "tagger"
_CHECKPOINT_KINDS = ("training", "checkpoint")

FORMAT_NUMBER = 2
# Every file begins like this, with the length of the header in the first 8 bytes.
_LENGTH_BYTES = 8
_FILE_START = re.compile(
    rb'(?s:.{8})\{"__metadata__":\{"polyseme":"\{\\"format\\":(?P<format>[0-9]+),'
    rb'\\"kind\\":\\"(?P<kind>[a-z]+)\\",\\"sha256\\":\\"(?P<digest>[0-9a-f]{64})\\",'
)
_MOST_START_BYTES = 256  # that the beginning of a file takes, digest included
# The types of arrays that may be saved: the names of safetensors, and those of numpy.
_DTYPES = {"BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64"}
_DTYPES |= {"U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64"}
_DTYPES |= {"F16": "float16", "F32": "float32", "F64": "float64"}
# What parsing raises where a file does not hold what it should.
_PARSE_ERRORS = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
_LOCK_SECONDS = 60.0  # how long to wait for another process that saves into the same folder


class ModelFileError(InputError):
    """A model cannot be written or read; the message says which file and why."""


class DamagedModelError(ModelFileError):
    """A file of ours, and of the kind that is wanted, is not as it was written."""


class SavedFile(NamedTuple):
    """What a file holds: a state, and the digest that stands in the file."""

    config: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    digest: str  # 64 hexadecimal digits


def part_arrays(arrays: Arrays, part_name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part by its own names for them: `m.weights` of "m" is `weights`."""
    prefix = f"{part_name}."
    arrays_of_part = {}
    for name, array in arrays.items():
        if name.startswith(prefix):
            own_name = name.removeprefix(prefix)
            arrays_of_part[own_name] = array
    return arrays_of_part


def join_states(state_by_part: Mapping[str, State]) -> State:
    """Return the states of parts as one state, which the caller may add to; see `part_arrays`."""
    joined_config: dict[str, Any] = {}
    joined_arrays: dict[str, NDArray[Any]] = {}
    for part_name, (config, arrays) in state_by_part.items():
        joined_config[part_name] = config
        for name, array in arrays.items():
            joined_arrays[f"{part_name}.{name}"] = array
    return joined_config, joined_arrays


def as_python_value(value: Any) -> Any:
    """Return a number of numpy, such as a grid search sets, as Python's; all else as it is."""
    return value.item() if isinstance(value, np.generic) else value


@cache
def package_version() -> str:
    """Return the installed version, looked up once: checkpoints are written often."""
    try:
        return version("polyseme")
    except PackageNotFoundError:
        return "unknown"


# ---------------------------------------------------------------------- writing


def write_model(
    path: str | os.PathLike[str],
    kind: str,
    config: Config,
    arrays: Arrays,
    replaces: str | None = None,
) -> str:
    """Write a model and return its digest; a kill at any instant leaves the old one or the new one.

    Parameters
    ----------
    path : str or path-like
        The folder: absent, empty or one that holds a polyseme model. Other files in it stay.
    kind : str
        What is stored, such as "tagger" or "checkpoint".
    config : mapping
        Nested plain values; tuples come back as lists. NaN and infinity are refused.
    arrays : mapping of str to array
        Bool, whole-number or floating arrays of any shape, 0-d and empty ones included.
    replaces : str, optional
        The digest of the only model that may be replaced, such as `read_digest` gave it when the
        caller loaded it; by default any may be.

    Returns
    -------
    str
        The digest of the new file.
    """
    folder = Path(path)
    chunks, digest = _encode(kind, config, arrays)
    try:
        _make_model_folder(folder)
        # `replacing` has a lock of its own, for the write; this one is for the comparison as well,
        # so that of two processes that save at once the second sees what the first wrote.
        with locked(folder, _LOCK_SECONDS, ModelFileError):
            _check_ours(folder)
            file = folder / MODEL_FILE
            is_guarded = replaces is not None and file.exists()
            if is_guarded and read_digest(folder) != replaces:
                raise ModelFileError(
                    f"The model at '{folder}' was changed since it was loaded, and saving would "
                    "undo that; load it again and repeat your change."
                )
            with replacing(file) as stream:
                stream.writelines(chunks)
            sync_folder(folder)
    except OSError as error:
        raise ModelFileError(
            f"Could not write the model to '{folder}': {error.strerror or error}; "
            "what is there is whole."
        ) from error
    return digest


class SavedEstimator:
    """An estimator that saves itself, but not over changes that others made since it was loaded.

    Attributes
    ----------
    _digests : mapping of str to str
        The digest of each file that it was loaded from or saved to, by the folder's real path.
        Replaced, never changed in place: copies of the estimator share it.
    """

    _digests: Mapping[str, str] = MappingProxyType({})

    def _write(self, path: str | os.PathLike[str], state: State) -> None:
        """Write a state to a folder, unless the model there was changed since it was loaded."""
        folder = os.path.realpath(path)
        known_digest = self._digests.get(folder)
        config, arrays = state
        digest = write_model(path, _TAGGER_KIND, config, arrays, replaces=known_digest)
        self._digests = {**self._digests, folder: digest}


def check_destination(path: str | os.PathLike[str]) -> None:
    """Raise unless a model can be written to a path, before the work of making it is done."""
    folder = Path(path)
    check_not_dangling(folder)
    if folder.is_dir():
        _check_ours(folder)
    lineage = (folder, *folder.absolute().parents)
    existing = next(place for place in lineage if place.exists())
    _check_folder(folder, existing)
    check_writable(existing)


def _make_model_folder(folder: Path) -> None:
    """Create a model's folder and its parents where they are missing; may raise OSError."""
    _check_folder(folder, folder)
    create_folder(folder)


def _check_folder(folder: Path, place: Path) -> None:
    """Raise where `place`, a model's folder or one above it, is a file."""
    if place.exists() and not place.is_dir():
        raise ModelFileError(
            f"Refusing to write a model to '{folder}': '{place}' is a file; choose another path."
        )


def _check_ours(folder: Path) -> None:
    """Raise unless a folder holds a model of ours, or nothing that a user may have put there.

    Verdicts may be there before a model is, and so may a temporary that a kill left.
    """
    if os.path.lexists(folder / MODEL_FILE):
        if _identify(folder / MODEL_FILE) is not None:
            return
        content = f"its {MODEL_FILE} is not one of polyseme's"
    else:
        names = sorted(entry.name for entry in folder.iterdir())
        foreign_names = []
        for name in names:
            is_ours = is_temporary(name) or _VERDICT_FILES.fullmatch(name)
            if not is_ours:
                foreign_names.append(name)
        if not foreign_names:
            return
        content = f"it holds '{foreign_names[0]}' and no {MODEL_FILE}"
    raise ModelFileError(
        f"Refusing to write a model to '{folder}': the folder is neither empty nor a polyseme "
        f"model ({content}); choose another path."
    )


def _encode(kind: str, config: Config, arrays: Arrays) -> tuple[list[bytes | memoryview], str]:
    """Return the bytes of a file, in chunks to be written one after the other, and their digest."""
    from safetensors.numpy import save

    # The library writes an array's memory as it lies: other orders would be read as other numbers.
    native: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES.values():
            raise ModelFileError(
                f"Array '{name}' of a model must hold bools, whole numbers or floats of at most "
                f"64 bits; got dtype {array.dtype}."
            )
        native_type = array.dtype.newbyteorder("=")
        native[name] = np.asarray(array, dtype=native_type, order="C")
    values = {
        "format": FORMAT_NUMBER,
        "kind": kind,
        "sha256": "0" * 64,
        "polyseme": package_version(),
        "config": config,
    }
    try:
        text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = save(native, {"polyseme": text})
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelFileError(f"`config` of a model cannot be written as JSON: {error}.") from error
    identity = _FILE_START.match(data)
    assert identity is not None
    digest = _compute_digest(data, identity)
    start, stop = identity.span("digest")
    view = memoryview(data)  # slices of it are no copies of a large model
    return [view[:start], digest.encode(), view[stop:]], digest


def _compute_digest(data: bytes, identity: re.Match[bytes]) -> str:
    """Return the SHA-256 of a file's bytes, with zeros in the place of the digest itself.

    `identity` is the match of `_FILE_START`, which says where that place is.
    """
    start, stop = identity.span("digest")
    zeros = b"0" * (stop - start)
    digest = hashlib.sha256(data[:start])
    digest.update(zeros)
    digest.update(memoryview(data)[stop:])
    return digest.hexdigest()


def remove_model(path: str | os.PathLike[str]) -> None:
    """Remove a model's file, and its folder if that leaves it empty; what is not ours stays."""
    folder = Path(path)
    file = folder / MODEL_FILE
    try:
        if file.exists() and _identify(file) is None:
            return
        file.unlink(missing_ok=True)
        temporary_of(file).unlink(missing_ok=True)
        with suppress(OSError):  # it holds other files, is a mount point or reached by a link
            folder.rmdir()
    except NotADirectoryError:
        return
    except OSError as error:
        raise ModelFileError(
            f"Could not remove the model at '{folder}': {error.strerror or error}; "
            "remove it by hand."
        ) from error


# ---------------------------------------------------------------------- reading


def read_model(path: str | os.PathLike[str], kind: str = _TAGGER_KIND) -> State:
    """Read the state of the model, or the checkpoint, in a folder; see `read_file`."""
    saved = read_file(find_model_file(path), kind)
    return saved.config, saved.arrays


def find_model_file(path: str | os.PathLike[str]) -> Path:
    """Return the file of the model in a folder; raise where there is none."""
    folder = Path(path)
    if not folder.is_dir():
        reason = "this is a file, not a folder" if folder.exists() else "no such folder"
        raise ModelFileError(f"There is no polyseme model at '{folder}': {reason}.")
    if not os.path.lexists(folder / MODEL_FILE):
        raise ModelFileError(f"'{folder}' is not a polyseme model: it has no {MODEL_FILE}.")
    return folder / MODEL_FILE


def read_digest(path: str | os.PathLike[str]) -> str:
    """Return the digest that stands in the model of a folder, without reading all of it."""
    file = find_model_file(path)
    identity = _identify(file)
    if identity is None:
        raise ModelFileError(f"'{file}' is not a polyseme model.")
    return identity["digest"].decode()


def read_file(file: Path, kind: str) -> SavedFile:
    """Read a file of values and arrays, after checking its format, its kind and its digest.

    Nothing that is read is ever executed. The digest finds damage and careless edits; it does not
    prove who wrote the model: what the values and arrays hold is for the caller to check, by
    `polyseme.storage.array_checks`. The arrays are the caller's own, and may be written to.

    Raises
    ------
    DamagedModelError
        When the file is of this kind and not as it was written.
    ModelFileError
        When it is missing, of another kind or of another format.
    InputError
        When it does not fit into memory.
    """
    identity = _identify(file)
    if identity is None:
        raise ModelFileError(f"'{file}' is not a polyseme model.")
    if int(identity["format"]) != FORMAT_NUMBER:
        raise ModelFileError(
            f"'{file}' was written by another version of polyseme; use that one, or fit the model "
            "anew."
        )
    stated_kind = identity["kind"].decode()
    if kind == _TAGGER_KIND and stated_kind in _CHECKPOINT_KINDS:
        raise ModelFileError(
            f"'{file.parent}' holds a training that was interrupted; run `polyseme fit` again to "
            "end it."
        )
    if stated_kind != kind:
        raise ModelFileError(f"'{file}' is a '{stated_kind}', but a '{kind}' is wanted.")
    data = _read_bytes(file)
    try:
        return _parse(data, kind)
    except _PARSE_ERRORS as error:
        raise DamagedModelError(
            f"'{file}' is damaged or was changed after it was saved; copy or save it again."
        ) from error


def _identify(file: Path) -> re.Match[bytes] | None:
    """Return format, kind and digest of a file, the groups of `_FILE_START`; None if not ours."""
    start = _read_bytes(file, _MOST_START_BYTES)
    return _FILE_START.match(start)


def _read_bytes(file: Path, n_bytes: int | None = None) -> bytes:
    """Return the first bytes of a regular file, by default all of them where they fit in memory."""
    check_regular(file, ModelFileError)
    from polyseme.base.machine import check_memory

    try:
        with file.open("rb", buffering=0) as stream:  # which reads it in one go
            if n_bytes is not None:
                return stream.read(n_bytes)
            size = os.fstat(stream.fileno()).st_size
            # Its bytes, and the copies of its arrays.
            check_memory(2 * size, f"Reading '{file}'", "read it on a larger one")
            return stream.read()
    except OSError as error:
        raise ModelFileError(f"'{file}' cannot be read: {error.strerror or error}.") from error


def _parse(data: bytes, kind: str) -> SavedFile:
    """Parse the bytes of a file; raise one of `_PARSE_ERRORS` where anything in it is wrong."""
    identity = _FILE_START.match(data)
    if identity is None or identity["kind"].decode() != kind:
        raise ValueError("another file has taken its place")
    digest = identity["digest"].decode()
    if _compute_digest(data, identity) != digest:
        raise ValueError("the digest is another one")

    header_length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    header_end = _LENGTH_BYTES + header_length
    header = json.loads(data[_LENGTH_BYTES:header_end])
    metadata = header.pop("__metadata__")  # all else in the header are arrays
    values = json.loads(metadata["polyseme"])
    config = values["config"]
    if not isinstance(config, dict):
        raise TypeError("the configuration is no object")
    array_bytes = memoryview(data)[header_end:]
    arrays = _parse_arrays(header, array_bytes)
    return SavedFile(config, arrays, digest)


def _parse_arrays(
    entry_by_name: Mapping[str, Any], array_bytes: memoryview
) -> dict[str, NDArray[Any]]:
    """Return copies of arrays, which lie one behind the other without gaps; see `_parse`.

    It stands for the library's reader, which refuses headers of more than 100 MB: a model of ten
    million documents has one.

    Parameters
    ----------
    entry_by_name : mapping of str to mapping
        As safetensors has it: `dtype`, `shape` and `data_offsets`, the first byte of the array and
        the one after its last. A stranger may have written anything.
    array_bytes : memoryview
        The file after its header, where offsets begin.
    """
    arrays: dict[str, NDArray[Any]] = {}
    entries = sorted(entry_by_name.items(), key=lambda item: item[1]["data_offsets"])
    previous_stop = 0
    for name, entry in entries:
        start, stop = entry["data_offsets"]
        shape = entry["shape"]
        is_negative = min(shape, default=0) < 0
        if start != previous_stop or stop < start or is_negative:
            raise ValueError("arrays overlap, leave a gap or have no shape")
        buffer = bytearray(array_bytes[start:stop])  # a copy that can be written to
        numbers = np.frombuffer(buffer, _DTYPES[entry["dtype"]])
        arrays[name] = numbers.reshape(shape)
        previous_stop = stop
    if previous_stop != len(array_bytes):
        raise ValueError("the arrays have another size than the file")
    return arrays
