"""Directory persistence of every model and checkpoint: JSON, safetensors and a manifest, no pickle.

In come a kind, nested plain values and named arrays; out comes a directory that is replaced as a
whole or not at all, and on reading the same values and arrays, or one sentence that says why not.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyseme._folder import (
    FORMAT_NAME,
    MANIFEST,
    PAYLOAD,
    ModelFileError,
    check_folder,
    fault,
    named_files,
    parse_object,
    read_file,
    read_manifest,
    remove_files,
    replace_files,
)

__all__ = [
    "FORMAT_VERSION",
    "JSON",
    "ModelFileError",
    "plain",
    "read_model",
    "remove_model",
    "within",
    "write_model",
]

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None
AnyArray: TypeAlias = NDArray[Any]
# What a fitted object is saved as: JSON values, and arrays by name (those of a part: `part.name`).
State: TypeAlias = tuple[dict[str, Any], dict[str, AnyArray]]

FORMAT_VERSION = 1

_READ_ATTEMPTS = 20
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_DTYPES = frozenset(np.dtype(code).name for code in "?bhiqBHIQefd")


def plain(value: Any) -> Any:
    """Give a numpy number, as a grid search makes them, as a number; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def within(arrays: Mapping[str, AnyArray], part: str) -> dict[str, AnyArray]:
    """Give the arrays that are named after a part, such as "mapper.weights", by their own names."""
    start = f"{part}."
    return {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}


def joined(parts: Mapping[str, State]) -> State:
    """Give the states of parts as one: values by part, arrays as `part.name`; see `within`."""
    arrays = {f"{part}.{name}": a for part, (_, held) in parts.items() for name, a in held.items()}
    return {part: config for part, (config, _) in parts.items()}, arrays


def write_model(
    path: str | os.PathLike[str],
    kind: str,
    config: Mapping[str, JSON],
    arrays: Mapping[str, AnyArray],
) -> None:
    """Write a model directory; a kill at any instant leaves the old model or the new one, whole.

    Payload files carry the hash of their content in their name, so new ones never overwrite
    different old ones. They reach the disk first; then one atomic rename puts the new manifest
    in place; only then are the files removed that the manifest does not name.

    Parameters
    ----------
    path : str or path-like
        The model directory: absent, empty or a polyseme model. Parents are created, and files
        in it that polyseme did not write are left alone.
    kind : str
        What is stored, such as "tagger", "embedding" or "checkpoint".
    config : mapping
        Nested plain values; tuples come back as lists. NaN and infinity are refused.
    arrays : mapping of str to array
        Bool, whole-number or floating arrays of any shape, 0-d and empty ones included.

    Raises
    ------
    ModelFileError
        When the values cannot be stored or the directory cannot be written.

    Notes
    -----
    The same state written by the same version gives the same bytes. Writers wait for each other
    by a lock on the directory; the last one wins. Where the system has no such lock, clean-up
    spares what another writer may be preparing: it removes only files of the replaced manifest.
    """
    directory = Path(path)
    if not _KIND.fullmatch(kind):
        raise ModelFileError(f"`kind` of a model must be a lower-case word; got {kind!r}.")
    payloads = {
        f"{role}-{hashlib.sha256(data).hexdigest()[:12]}.{suffix}": data
        for role, suffix, data in (
            ("config", "json", _encode_config(config)),
            ("arrays", "safetensors", _encode_arrays(arrays)),
        )
    }
    manifest = _encode_manifest(_describe(kind, payloads))
    replace_files(directory, payloads, manifest)


def read_model(
    path: str | os.PathLike[str], kind: str | None = None
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Read a model directory after checking format, version, kind, sizes and checksums.

    Nothing that is read is ever executed. The checksums find damage and careless edits; they do
    not prove who wrote the model.

    Parameters
    ----------
    path : str or path-like
        The directory that `write_model` wrote.
    kind : str, optional
        The kind it must have; None accepts any.

    Returns
    -------
    config : dict
        The nested values.
    arrays : dict of str to array
        The arrays by name, writable, with the dtype and shape they were written with.

    Raises
    ------
    ModelFileError
        When the model is missing, damaged, changed, of another kind or of a newer format.
    """
    directory = Path(path)
    raw = read_manifest(directory)
    for _ in range(_READ_ATTEMPTS):
        try:
            return _load(directory, raw, kind)
        except ModelFileError:
            # A writer may have replaced the model between the manifest and the payload.
            latest = read_manifest(directory)
            if latest == raw:
                raise
            raw = latest
    raise ModelFileError(
        f"The model at '{directory}' was replaced {_READ_ATTEMPTS} times while it was being read; "
        "read it again when it is written less often."
    )


def check_destination(path: str | os.PathLike[str]) -> None:
    """Raise unless a model may be written to a path, before the work of making it is done.

    Parameters
    ----------
    path : str or path-like
        A folder that is absent, empty or a polyseme model's.
    """
    check_folder(Path(path))


def remove_model(path: str | os.PathLike[str]) -> None:
    """Remove a model directory's own files, and the directory if that leaves it empty.

    The manifest goes first, so a kill at any instant leaves the whole model or none. Files that
    polyseme did not write stay, and so does everything in a directory that is no polyseme model.

    Parameters
    ----------
    path : str or path-like
        The directory that `write_model` wrote; it may be missing.

    Raises
    ------
    ModelFileError
        When a file cannot be removed.
    """
    remove_files(Path(path))


def _encode_config(config: Mapping[str, JSON]) -> bytes:
    """Turn nested plain values into the bytes of the config file."""
    try:
        return _dump_json(_plain(config, "config"))
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"`config` of a model cannot be written as JSON: {error}.") from error


def _dump_json(value: object) -> bytes:
    """Write JSON in the one form that makes equal values equal bytes."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=1)
    return f"{text}\n".encode()


def _plain(value: object, where: str) -> object:
    """Copy nested values into dicts and lists, refusing what JSON would change or lose."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ModelFileError(f"`{where}` of a model must be finite; got {value}.")
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ModelFileError(f"Keys in `{where}` of a model must be strings; got {key!r}.")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    raise ModelFileError(
        f"`{where}` of a model must be None, a bool, a number, a string, a list or a dict; "
        f"got {type(value).__name__}."
    )


def _encode_arrays(arrays: Mapping[str, AnyArray]) -> bytes:
    """Turn named arrays into the bytes of a safetensors file, in the order of their names."""
    from safetensors.numpy import save

    ready: dict[str, AnyArray] = {}
    for name in sorted(arrays, key=str):
        # safetensors keeps "__metadata__" for itself and then cannot read the file back.
        if not isinstance(name, str) or name in ("", "__metadata__") or not name.isprintable():
            raise ModelFileError(f"{name!r} cannot be the name of an array in a model; rename it.")
        array = np.asarray(arrays[name])
        if array.dtype.name not in _DTYPES:
            raise ModelFileError(
                f"Array '{name}' of a model must hold bools, whole numbers or floats of at most "
                f"64 bits; got dtype {array.dtype}."
            )
        # safetensors copies memory as it lies; ascontiguousarray would turn 0-d into 1-d.
        ready[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    return save(ready)


def _summary(data: bytes) -> dict[str, str | int]:
    """Build a manifest's entry for one payload file."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


@cache
def _package_version() -> str:
    """Look up the installed version, once: checkpoints are written often."""
    try:
        return metadata.version("polyseme")
    except metadata.PackageNotFoundError:
        return "unknown"


def _describe(kind: str, payloads: Mapping[str, bytes]) -> dict[str, Any]:
    """Build the manifest's content, apart from its own checksum."""
    return {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "polyseme_version": _package_version(),
        "kind": kind,
        "files": {name: _summary(data) for name, data in payloads.items()},
    }


def _encode_manifest(content: Mapping[str, Any]) -> bytes:
    """Write the manifest with a checksum over its own content."""
    digest = hashlib.sha256(_dump_json(content)).hexdigest()
    return _dump_json({**content, "manifest_sha256": digest})


def _load(
    directory: Path, raw: bytes, kind: str | None
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Check the manifest and the payload it names, then parse the payload."""
    content = _check_manifest(directory, raw)
    found = content.get("kind")
    if kind is not None and found != kind:
        unfinished = found in ("training", "checkpoint")
        raise ModelFileError(
            f"'{directory}' holds a training that was interrupted; run `polyseme fit` again to end "
            "it."
            if unfinished
            else f"The model at '{directory}' is a '{found}', but a '{kind}' is wanted."
        )
    names = sorted(named_files(content) or ())
    for name in names:
        if not PAYLOAD.fullmatch(name):
            what = f"names {name!r}, which is not the plain name of a file inside the model"
            raise fault(directory, MANIFEST, what)
    if [name.partition("-")[0] for name in names] != ["arrays", "config"]:
        raise fault(directory, MANIFEST, "must name one arrays file and one config file")
    data = [_read_payload(directory, name, content["files"][name]) for name in names]
    arrays, config = _parse_arrays(data[0]), parse_object(data[1])
    if arrays is None:
        raise fault(directory, names[0], "is not valid safetensors data")
    if config is None:
        raise fault(directory, names[1], "is not a valid JSON object")
    return config, arrays


def _check_manifest(directory: Path, raw: bytes) -> dict[str, Any]:
    """Parse the manifest, checking format, version and its own checksum."""
    content = parse_object(raw)
    if content is None:
        raise fault(directory, MANIFEST, "is not a valid JSON object; it is truncated or damaged")
    found, version = content.get("format"), content.get("format_version")
    if found != FORMAT_NAME:
        raise ModelFileError(
            f"'{directory}' is not a polyseme model: the format in its {MANIFEST} is {found!r}."
        )
    if type(version) is not int or version < 1:
        raise fault(directory, MANIFEST, f"holds the invalid format version {version!r}")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"The model at '{directory}' was written by a newer polyseme (format {version}; this "
            f"version reads up to {FORMAT_VERSION}); upgrade polyseme."
        )
    body = {key: value for key, value in content.items() if key != "manifest_sha256"}
    rewritten = b""
    with suppress(ValueError, RecursionError):
        rewritten = _encode_manifest(body)
    # Comparing bytes, not values, also finds edits that leave the values as they were.
    if raw != rewritten:
        what = "does not match its own checksum; it was damaged or changed after it was saved"
        raise fault(directory, MANIFEST, what)
    return content


def _read_payload(directory: Path, name: str, entry: object) -> bytes:
    """Read one payload file and check its size and checksum against the manifest's entry."""
    size = entry.get("bytes") if isinstance(entry, dict) else None
    if type(size) is not int:
        raise fault(directory, MANIFEST, f"holds no valid size and checksum for '{name}'")
    data = read_file(directory, name, size)
    if _summary(data) != entry:
        what = "does not match its checksum; it was damaged or changed after it was saved"
        raise fault(directory, name, what)
    return data


def _parse_arrays(data: bytes) -> dict[str, AnyArray] | None:
    """Parse safetensors bytes; None when they are malformed or hold a dtype we never write."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays: dict[str, AnyArray] = load(data)
    except (SafetensorError, KeyError, TypeError, ValueError):
        return None
    return arrays if all(array.dtype.name in _DTYPES for array in arrays.values()) else None
