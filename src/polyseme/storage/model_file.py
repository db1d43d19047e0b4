"""Saved models and checkpoints: one safetensors file in a folder, no pickle.

In: a kind, plain values and named arrays. Out: `model.safetensors`, which is replaced as a whole or
not at all, and on reading the same values and arrays, or one sentence that says why not. The values
lie as JSON in the metadata of the file, beside a SHA-256 of everything in it.
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
    check_link,
    check_regular,
    check_writable,
    create_folder,
    is_temporary,
    locked,
    replacing,
    sync_folder,
    temporary_of,
)

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None
Config: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
# What a fitted object is saved as: JSON values, and arrays by name (those of a part: `part.name`).
State: TypeAlias = tuple[dict[str, Any], dict[str, NDArray[Any]]]

MODEL_FILE = "model.safetensors"
# What people said about the model's answers; it lies beside the model, and no save touches it.
VERDICTS_FILE = "verdicts.sqlite"
_BESIDE = re.compile(rf"{re.escape(VERDICTS_FILE)}(?:-wal|-shm|-journal)?")

# Every file begins like this; its digest is that of the file with zeros in the digest's place.
_FORMAT = 1
_START = re.compile(
    rb'(?s:.{8})\{"__metadata__":\{"polyseme":"\{\\"format\\":(?P<format>[0-9]+),'
    rb'\\"kind\\":\\"(?P<kind>[a-z]+)\\",\\"sha256\\":\\"(?P<digest>[0-9a-f]{64})\\",'
)
_MOST_START = 256
_DTYPES = {"BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64"}
_DTYPES |= {"U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64"}
_DTYPES |= {"F16": "float16", "F32": "float32", "F64": "float64"}
# What parsing raises where a file does not hold what it should.
_INVALID = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
_LOCK_SECONDS = 60.0


class ModelFileError(InputError):
    """A model cannot be written or read; the message says which file and why."""


class DamagedModelError(ModelFileError):
    """A file of ours is not as it was written."""


class Saved(NamedTuple):
    """What a file holds."""

    config: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    digest: str


def part_arrays(arrays: Arrays, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part, such as "mapper.weights", by their own names."""
    start = f"{prefix}."
    state_arrays = {}
    for name, array in arrays.items():
        if name.startswith(start):
            state_arrays[name.removeprefix(start)] = array
    return state_arrays


def join_states(states: Mapping[str, State]) -> State:
    """Return the states of parts as one: values by part, arrays as `part.name`; see `within`."""
    configs: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for prefix, (config, state_arrays) in states.items():
        configs[prefix] = config
        for name, array in state_arrays.items():
            arrays[f"{prefix}.{name}"] = array
    return configs, arrays


def as_python_value(value: Any) -> Any:
    """Return a numpy number, as a grid search makes them, as a number; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


@cache
def package_version() -> str:
    """Look up the installed version, once: checkpoints are written often."""
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
        The digest of the model that may be replaced; by default any may be.
    """
    folder = Path(path)
    chunks, digest = _encode(kind, config, arrays)
    try:
        make_folder(folder)
        with locked(folder, _LOCK_SECONDS, ModelFileError):
            _check_ours(folder)
            file = folder / MODEL_FILE
            if replaces is not None and file.exists() and read_digest(folder) != replaces:
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
    """An estimator that knows the digests of its files, by folder: see `write_model`."""

    _digests: Mapping[str, str] = MappingProxyType({})

    def _write(self, path: str | os.PathLike[str], state: State) -> None:
        """Write its state to a folder, unless the model there was changed since it was loaded."""
        folder = os.path.realpath(path)
        replaces = self._digests.get(folder)
        config, arrays = state
        digest = write_model(path, "tagger", config, arrays, replaces=replaces)
        self._digests = {**self._digests, folder: digest}


def check_destination(path: str | os.PathLike[str]) -> None:
    """Raise unless a model can be written to a path, before the work of making it is done."""
    folder = Path(path)
    check_link(folder)
    if folder.is_dir():
        _check_ours(folder)
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    _check_folder(folder, existing)
    check_writable(existing)


def make_folder(folder: Path) -> None:
    """Create a model's folder and its parents where they are not there."""
    _check_folder(folder, folder)
    create_folder(folder)


def _check_folder(folder: Path, place: Path) -> None:
    """Raise where a file is in the place of a model's folder, or of one above it."""
    if place.exists() and not place.is_dir():
        raise ModelFileError(
            f"Refusing to write a model to '{folder}': '{place}' is a file; choose another path."
        )


def _check_ours(folder: Path) -> None:
    """Raise unless a folder holds a model of ours, or nothing but what lies beside one."""
    if os.path.lexists(folder / MODEL_FILE):
        if _identify(folder / MODEL_FILE) is not None:
            return
        content = f"its {MODEL_FILE} is not one of polyseme's"
    else:
        names = sorted(entry.name for entry in folder.iterdir())
        foreign = [name for name in names if not (is_temporary(name) or _BESIDE.fullmatch(name))]
        if not foreign:
            return
        content = f"it holds '{foreign[0]}' and no {MODEL_FILE}"
    raise ModelFileError(
        f"Refusing to write a model to '{folder}': the folder is neither empty nor a polyseme "
        f"model ({content}); choose another path."
    )


def _encode(kind: str, config: Config, arrays: Arrays) -> tuple[list[bytes | memoryview], str]:
    """Return the bytes of a file, in parts, and their digest."""
    from safetensors.numpy import save

    native: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES.values():
            raise ModelFileError(
                f"Array '{name}' of a model must hold bools, whole numbers or floats of at most "
                f"64 bits; got dtype {array.dtype}."
            )
        native[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    values = {
        "format": _FORMAT,
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
    identity = _START.match(data)
    assert identity is not None
    digest = _digest(data, identity)
    start, stop = identity.span("digest")
    view = memoryview(data)
    return [view[:start], digest.encode(), view[stop:]], digest


def _digest(data: bytes, identity: re.Match[bytes]) -> str:
    """Return the SHA-256 of a file's bytes, with zeros in the place of the digest itself."""
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


def read_model(path: str | os.PathLike[str], kind: str = "tagger") -> State:
    """Read the values and arrays of the model in a folder; see `read_file`."""
    saved = read_file(model_file(path), kind)
    return saved.config, saved.arrays


def model_file(path: str | os.PathLike[str]) -> Path:
    """Return the file of the model in a folder; raise where there is none."""
    folder = Path(path)
    if not folder.is_dir():
        reason = "this is a file, not a folder" if folder.exists() else "no such folder"
        raise ModelFileError(f"There is no polyseme model at '{folder}': {reason}.")
    if not os.path.lexists(folder / MODEL_FILE):
        raise ModelFileError(f"'{folder}' is not a polyseme model: it has no {MODEL_FILE}.")
    return folder / MODEL_FILE


def read_digest(path: str | os.PathLike[str]) -> str:
    """Return the digest that the model in a folder states, without reading all of it."""
    file = model_file(path)
    identity = _identify(file)
    if identity is None:
        raise ModelFileError(f"'{file}' is not a polyseme model.")
    return identity["digest"].decode()


def read_file(file: Path, kind: str) -> Saved:
    """Read a file of values and arrays, after checking its format, its kind and its digest.

    Nothing that is read is ever executed. The digest finds damage and careless edits; it does not
    prove who wrote the model: what the arrays hold is for the caller to check.

    Raises
    ------
    DamagedModelError
        When the file is of this kind and not as it was written.
    ModelFileError
        When it is missing, of another kind or of another format.
    """
    identity = _identify(file)
    if identity is None:
        raise ModelFileError(f"'{file}' is not a polyseme model.")
    if int(identity["format"]) != _FORMAT:
        raise ModelFileError(
            f"'{file}' was written by another version of polyseme; use that one, or fit the model "
            "anew."
        )
    stated = identity["kind"].decode()
    if kind == "tagger" and stated in ("training", "checkpoint"):
        raise ModelFileError(
            f"'{file.parent}' holds a training that was interrupted; run `polyseme fit` again to "
            "end it."
        )
    if stated != kind:
        raise ModelFileError(f"'{file}' is a '{stated}', but a '{kind}' is wanted.")
    data = _read_bytes(file)
    try:
        return _parse(data, kind)
    except _INVALID as error:
        raise DamagedModelError(
            f"'{file}' is damaged or was changed after it was saved; copy or save it again."
        ) from error


def _identify(file: Path) -> re.Match[bytes] | None:
    """Return format, kind and digest from the beginning of a file; None where it is not ours."""
    return _START.match(_read_bytes(file, _MOST_START))


def _read_bytes(file: Path, most: int = -1) -> bytes:
    """Return the bytes of a regular file, or the first of them."""
    check_regular(file, ModelFileError)
    from polyseme.base.machine import check_memory

    try:
        with file.open("rb", buffering=0) as stream:  # which reads it in one go
            if most < 0:
                n_bytes = os.fstat(stream.fileno()).st_size
                check_memory(2 * n_bytes, f"Reading '{file}'", "read it on a larger one")
            return stream.read(most)
    except OSError as error:
        raise ModelFileError(f"'{file}' cannot be read: {error.strerror or error}.") from error


def _parse(data: bytes, kind: str) -> Saved:
    """Parse the bytes of a file; raise one of `_INVALID` where anything in it is wrong."""
    identity = _START.match(data)
    if identity is None or identity["kind"].decode() != kind:
        raise ValueError("another file has taken its place")
    if _digest(data, identity) != identity["digest"].decode():
        raise ValueError("the digest is another one")
    header_end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:header_end])
    values = json.loads(header.pop("__metadata__")["polyseme"])
    if not isinstance(values["config"], dict):
        raise TypeError("the configuration is no object")
    arrays = _parse_arrays(header, memoryview(data)[header_end:])
    return Saved(values["config"], arrays, identity["digest"].decode())


def _parse_arrays(header: Mapping[str, Any], data: memoryview) -> dict[str, NDArray[Any]]:
    """Return copies of arrays, which lie one behind the other; see `_parse`.

    The library refuses headers of more than 100 MB: a model of ten million documents has one.
    """
    arrays: dict[str, NDArray[Any]] = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        if start != end or stop < start or min(entry["shape"], default=0) < 0:
            raise ValueError("arrays overlap, leave a gap or have no shape")
        buffer = bytearray(data[start:stop])  # which can be written to
        numbers = np.frombuffer(buffer, _DTYPES[entry["dtype"]])
        arrays[name] = numbers.reshape(entry["shape"])
        end = stop
    if end != len(data):
        raise ValueError("the arrays have another size than the file")
    return arrays
