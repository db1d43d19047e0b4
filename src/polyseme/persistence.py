"""Saved models and checkpoints: a folder of JSON and safetensors with a manifest, no pickle.

In: a kind, plain values and named arrays. Out: a folder that is replaced as a whole or not at all,
and on reading the same values and arrays, or one sentence that says why not.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.io import locked, replacing
from polyseme.io.folders import check_link, check_writable, is_drawn, summary_of, sweep

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None
Config: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
# What a fitted object is saved as: JSON values, and arrays by name (those of a part: `part.name`).
State: TypeAlias = tuple[dict[str, Any], dict[str, NDArray[Any]]]

FORMAT_NAME = "polyseme"
FORMAT_VERSION = 4
MANIFEST = "manifest.json"
# What people said about the model's answers; it lies beside the payload, and no save touches it.
VERDICTS = "verdicts.sqlite"
# What was learned from that; it can always be learned again.
CORRECTIONS = "corrections.cache"
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_PAYLOAD = re.compile(r"config-[0-9a-f]{12}\.json|arrays-[0-9a-f]{12}\.safetensors")
_TEMPORARY = re.compile(rf"(?:{re.escape(MANIFEST)}|{_PAYLOAD.pattern})\.[0-9a-f]{{16}}\.tmp")
_BESIDE = re.compile(rf"{re.escape(VERDICTS)}(?:-wal|-shm|-journal)?|{re.escape(CORRECTIONS)}")
_DTYPES = frozenset(np.dtype(code).name for code in "?bhiqBHIQefd")
_MANIFEST_LIMIT = 1 << 20
_LOCK_SECONDS = 120.0
_READ_ATTEMPTS = 20


class ModelFileError(InputError):
    """A model folder cannot be written or read; the message says which file and why."""


def within(arrays: Arrays, part: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part, such as "mapper.weights", by their own names."""
    start = f"{part}."
    return {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}


def joined(parts: Mapping[str, State]) -> State:
    """Return the states of parts as one: values by part, arrays as `part.name`; see `within`."""
    arrays = {f"{part}.{name}": a for part, (_, held) in parts.items() for name, a in held.items()}
    return {part: config for part, (config, _) in parts.items()}, arrays


def plain(value: Any) -> Any:
    """Return a numpy number, as a grid search makes them, as a number; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


# ---------------------------------------------------------------------- writing


def write_model(path: str | os.PathLike[str], kind: str, config: Config, arrays: Arrays) -> None:
    """Write a model folder; a kill at any instant leaves the old model or the new one, whole.

    Payload files carry the hash of their content in their name, so new ones never overwrite
    different old ones. They reach the disk first; then one atomic rename puts the new manifest
    in place; only then are the files removed that the manifest does not name.

    Parameters
    ----------
    path : str or path-like
        The folder: absent, empty or a polyseme model. Parents are created, and files in it that
        polyseme did not write are left alone.
    kind : str
        What is stored, such as "tagger" or "checkpoint".
    config : mapping
        Nested plain values; tuples come back as lists. NaN and infinity are refused.
    arrays : mapping of str to array
        Bool, whole-number or floating arrays of any shape, 0-d and empty ones included.

    Raises
    ------
    ModelFileError
        When the values cannot be stored or the folder cannot be written.

    Notes
    -----
    The same state written by the same version gives the same bytes. Writers wait for each other
    by a lock on the folder; the last one wins. Where the system has no such lock, clean-up spares
    what another writer may be preparing: it removes only files of the replaced manifest.
    """
    folder = Path(path)
    if not _KIND.fullmatch(kind):
        raise ModelFileError(f"`kind` of a model must be a lower-case word; got {kind!r}.")
    payloads = {
        f"{role}-{hashlib.sha256(data).hexdigest()[:12]}.{suffix}": data
        for role, suffix, data in (
            ("config", "json", _encode_config(config)),
            ("arrays", "safetensors", _encode_arrays(arrays)),
        )
    }
    manifest = _encode_manifest(
        {
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "polyseme_version": package_version(),
            "kind": kind,
            "files": {name: _summary(data) for name, data in payloads.items()},
        }
    )
    try:
        make_folder(folder)
        with _write_lock(folder) as locked:
            replaced = _files_to_replace(folder)
            _publish(folder, payloads, manifest, replaced, alone=locked)
    except OSError as error:
        raise ModelFileError(
            f"Could not write the model to '{folder}': {error.strerror or error}; "
            "a model that was there before is unchanged."
        ) from error


def _encode_config(config: Config) -> bytes:
    """Turn nested plain values into the bytes of the config file."""
    try:
        return _dump_json(_plain(config, "config"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
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


def _encode_arrays(arrays: Arrays) -> bytes:
    """Turn named arrays into the bytes of a safetensors file, in the order of their names."""
    from safetensors.numpy import save

    ready: dict[str, NDArray[Any]] = {}
    for name in sorted(arrays, key=str):
        if not isinstance(name, str) or name in ("", "__metadata__") or not name.isprintable():
            raise ModelFileError(f"{name!r} cannot be the name of an array in a model; rename it.")
        array = np.asarray(arrays[name])
        if array.dtype.name not in _DTYPES:
            raise ModelFileError(
                f"Array '{name}' of a model must hold bools, whole numbers or floats of at most "
                f"64 bits; got dtype {array.dtype}."
            )
        ready[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    return save(ready)


def _summary(data: bytes) -> dict[str, str | int]:
    """Build a manifest's entry for one payload file."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


@cache
def package_version() -> str:
    """Look up the installed version, once: checkpoints are written often."""
    try:
        return metadata.version("polyseme")
    except metadata.PackageNotFoundError:
        return "unknown"


def _encode_manifest(content: Mapping[str, Any]) -> bytes:
    """Write the manifest with a checksum over its own content."""
    digest = hashlib.sha256(_dump_json(content)).hexdigest()
    return _dump_json({**content, "manifest_sha256": digest})


def make_folder(folder: Path) -> None:
    """Create a model folder and its parents, and make the new entries durable.

    Parameters
    ----------
    folder : Path
        It may be there already.
    """
    if folder.exists() and not folder.is_dir():
        raise ModelFileError(
            f"Cannot write a model to '{folder}': a model is a folder, and this is a file; "
            "choose another path."
        )
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        _sync_folder(place.parent)


def _write_lock(folder: Path) -> AbstractContextManager[bool]:
    """Hold the folder's write lock, which a kill releases; False where there is none."""
    return locked(folder, _LOCK_SECONDS, ModelFileError)


@contextmanager
def changing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a model from reading it to saving it; others that change it wait for their turn.

    Parameters
    ----------
    path : str or path-like
        The model's folder, which need not be there; the one above it is locked.

    Notes
    -----
    Without it the last one to save would undo what somebody else has saved since it read the model.
    """
    above = Path(path).resolve().parent
    if not os.access(above, os.R_OK):
        yield  # there is nothing to lock
        return
    with locked(above, _LOCK_SECONDS, ModelFileError):
        yield


def _files_to_replace(folder: Path) -> frozenset[str]:
    """Refuse a folder that is not ours; return the file names its manifest holds."""
    names = [entry.name for entry in folder.iterdir() if not is_drawn(entry.name)]
    foreign = sorted(name for name in names if not (_is_ours(name) or _BESIDE.fullmatch(name)))
    if MANIFEST in foreign:
        content = _parse_object(read_manifest(folder)) or {}
        if content.get("format") == FORMAT_NAME:
            return _named_files(content) or frozenset()
        found = f"its {MANIFEST} is not one of polyseme's"
    elif foreign:
        found = f"it holds '{foreign[0]}' and no {MANIFEST}"
    else:
        return frozenset()
    raise ModelFileError(
        f"Refusing to write a model to '{folder}': the folder is neither empty nor a polyseme "
        f"model ({found}); choose another path."
    )


def check_destination(path: str | os.PathLike[str]) -> None:
    """Raise unless a model can be written to a path, before the work of making it is done."""
    folder = Path(path)
    check_link(folder)
    if folder.is_dir():
        _files_to_replace(folder)
    elif folder.exists():
        raise ModelFileError(
            f"Refusing to write a model to '{folder}': it is a file; choose another path."
        )
    there = next((place for place in (folder, *folder.absolute().parents) if place.exists()), None)
    if there is not None and not there.is_dir():
        raise ModelFileError(
            f"Refusing to write a model to '{folder}': '{there}' is a file; choose another path."
        )
    if there is not None:
        check_writable(there)


def _publish(
    folder: Path,
    payloads: Mapping[str, bytes],
    manifest: bytes,
    replaced: frozenset[str],
    *,
    alone: bool,
) -> None:
    """Put payloads, then the manifest, on disk, and remove what it replaces.

    `alone` says that nobody else writes, so that all leftovers may go.
    """
    try:
        for name, data in payloads.items():
            _put(folder, name, data)
        _sync_folder(folder)
        _put(folder, MANIFEST, manifest)
    except OSError:
        _remove_stale(folder, replaced, alone=alone)
        raise
    try:
        _sync_folder(folder)
    except OSError as error:
        # The old payload stays: after a power failure the old manifest may be back.
        raise ModelFileError(
            f"The model at '{folder}' was replaced, but the file system could not confirm that "
            f"it is on disk ({error.strerror or error}); write it again."
        ) from error
    _remove_stale(folder, replaced, alone=alone)


def _put(folder: Path, name: str, data: bytes) -> None:
    """Write one file under a temporary name, force it to disk and rename it."""
    temporary = folder / f"{name}.{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(folder / name)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Force the folder's entries to disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no folders; on POSIX a parent may be writable but unreadable.
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _remove_stale(folder: Path, replaced: frozenset[str], *, alone: bool) -> None:
    """Remove files of ours that the manifest on disk does not name; leftovers do no harm."""
    sweep(folder)
    with suppress(OSError, ModelFileError):
        entries = [entry.name for entry in folder.iterdir()]
        kept: frozenset[str] | None = frozenset()
        if MANIFEST in entries:
            kept = _named_files(_parse_object(read_manifest(folder)) or {})
        for name in entries:
            if kept is None or name in kept or not _is_ours(name):
                continue
            if name in replaced or (alone and _was_written(folder / name)):
                with suppress(OSError):
                    (folder / name).unlink()


def _was_written(file: Path) -> bool:
    """Return whether a file with a name as ours are is one that we wrote: it has its own digest."""
    if _TEMPORARY.fullmatch(file.name):
        return True
    digest = str((summary_of(file) or {}).get("sha256"))
    return file.stem.partition("-")[2] == digest[:12] and not file.is_symlink()


def _is_ours(name: str) -> bool:
    """Return whether a file name is that of a payload or of an abandoned temporary file."""
    return bool(_PAYLOAD.fullmatch(name) or _TEMPORARY.fullmatch(name))


def remove_model(path: str | os.PathLike[str]) -> None:
    """Remove a model folder's own files, and the folder if that leaves it empty.

    The manifest goes first, so a kill at any instant leaves the whole model or none. Files that
    polyseme did not write stay, and so does everything in a folder that is no polyseme model.

    Parameters
    ----------
    path : str or path-like
        The folder that `write_model` wrote; it may be missing.

    Raises
    ------
    ModelFileError
        When it is locked for too long or a file cannot be removed.
    """
    folder = Path(path)
    try:
        if not folder.is_dir():
            return
        with _write_lock(folder):
            try:
                replaced = _files_to_replace(folder)
            except ModelFileError:
                return
            # Without a manifest there is no model, so a kill from here on leaves none by halves.
            (folder / MANIFEST).unlink(missing_ok=True)
            _sync_folder(folder)
            sweep(folder)
            for entry in list(folder.iterdir()):
                ours = _is_ours(entry.name) and entry.is_file() and not entry.is_symlink()
                if ours and (entry.name in replaced or _was_written(entry)):
                    entry.unlink(missing_ok=True)
            # It may hold other files, be a mount point or be reached by a link: then it stays.
            with suppress(OSError):
                folder.rmdir()
    except FileNotFoundError:
        return  # somebody else removed it meanwhile
    except OSError as error:
        raise ModelFileError(
            f"Could not remove the model at '{folder}': {error.strerror or error}; "
            "remove it by hand."
        ) from error


# ---------------------------------------------------------------------- reading


def read_model(path: str | os.PathLike[str], kind: str | None = None) -> State:
    """Read a model folder after checking format, version, kind, sizes and checksums.

    Nothing that is read is ever executed. The checksums find damage and careless edits; they do
    not prove who wrote the model.

    Parameters
    ----------
    path : str or path-like
        The folder that `write_model` wrote.
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
        When the model is missing, damaged, changed, of another kind or of another format.
    """
    folder = Path(path)
    raw = read_manifest(folder)
    for _ in range(_READ_ATTEMPTS):
        try:
            return _parse_model(folder, raw, kind)
        except ModelFileError:
            latest = read_manifest(folder)
            if latest == raw:
                raise
            raw = latest
    raise ModelFileError(
        f"The model at '{folder}' was replaced {_READ_ATTEMPTS} times while it was being read; "
        "read it again when it is written less often."
    )


def read_manifest(folder: Path) -> bytes:
    """Read the manifest's bytes, after checking that there is one and that it is small."""
    if not folder.is_dir():
        what = "this is a file, not a folder" if folder.exists() else "no such folder"
        raise ModelFileError(f"There is no polyseme model at '{folder}': {what}.")
    if not os.path.lexists(folder / MANIFEST):
        raise ModelFileError(f"'{folder}' is not a polyseme model: it has no {MANIFEST}.")
    return _read_file(folder, MANIFEST, None)


def manifest_kind(path: str | os.PathLike[str]) -> str | None:
    """Return the kind that a model's manifest names; None where there is none, or a damaged one."""
    try:
        return str(_check_manifest(Path(path), read_manifest(Path(path))).get("kind"))
    except ModelFileError:
        return None


def values_under_damage(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the values of a model whose manifest alone is damaged; None of any other."""
    folder = Path(path)
    with suppress(ModelFileError, OSError):
        raw, rewritten = read_manifest(folder), b""
        with suppress(ValueError, TypeError, RecursionError):
            body = dict(_parse_object(raw) or {})
            body.pop("manifest_sha256", None)
            rewritten = _encode_manifest(body)
        names = [entry.name for entry in folder.iterdir() if _PAYLOAD.fullmatch(entry.name)]
        configs = [folder / name for name in names if name.startswith("config-")]
        if raw != rewritten and len(configs) == 1 and _was_written(configs[0]):
            return _parse_object(configs[0].read_bytes())
    return None


def _parse_model(folder: Path, raw: bytes, kind: str | None) -> State:
    """Check the manifest and the payload it names, then parse the payload."""
    content = _check_manifest(folder, raw)
    found = content.get("kind")
    if kind is not None and found != kind:
        unfinished = found in ("training", "checkpoint")
        raise ModelFileError(
            f"'{folder}' holds a training that was interrupted; run `polyseme fit` again to end it."
            if unfinished
            else f"The model at '{folder}' is a '{found}', but a '{kind}' is wanted."
        )
    names = sorted(_named_files(content) or ())
    for name in names:
        if not _PAYLOAD.fullmatch(name):
            what = f"names {name!r}, which is not the plain name of a file inside the model"
            raise _fault(folder, MANIFEST, what)
    if [name.partition("-")[0] for name in names] != ["arrays", "config"]:
        raise _fault(folder, MANIFEST, "must name one arrays file and one config file")
    data = [_read_payload(folder, name, content["files"][name]) for name in names]
    arrays, config = _parse_arrays(data[0]), _parse_object(data[1])
    if arrays is None:
        raise _fault(folder, names[0], "is not valid safetensors data")
    if config is None:
        raise _fault(folder, names[1], "is not a valid JSON object")
    return config, arrays


def _check_manifest(folder: Path, raw: bytes) -> dict[str, Any]:
    """Parse the manifest, checking format, version and its own checksum."""
    content = _parse_object(raw)
    if content is None:
        raise _fault(folder, MANIFEST, "is not a valid JSON object; it is truncated or damaged")
    found, version = content.get("format"), content.get("format_version")
    if found != FORMAT_NAME:
        raise ModelFileError(
            f"'{folder}' is not a polyseme model: the format in its {MANIFEST} is {found!r}."
        )
    if type(version) is not int or version < 1:
        raise _fault(folder, MANIFEST, f"holds the invalid format version {version!r}")
    if version != FORMAT_VERSION:
        mend = "upgrade polyseme" if version > FORMAT_VERSION else "fit it anew"
        raise ModelFileError(
            f"The model at '{folder}' has the format {version}, and this version of polyseme reads "
            f"{FORMAT_VERSION}; {mend}."
        )
    body = {key: value for key, value in content.items() if key != "manifest_sha256"}
    rewritten = b""
    with suppress(ValueError, RecursionError):
        rewritten = _encode_manifest(body)
    if raw != rewritten:
        what = "does not match its own checksum; it was damaged or changed after it was saved"
        raise _fault(folder, MANIFEST, what)
    return content


def _read_payload(folder: Path, name: str, entry: object) -> bytes:
    """Read one payload file and check its size and checksum against the manifest's entry."""
    size = entry.get("bytes") if isinstance(entry, dict) else None
    if type(size) is not int:
        raise _fault(folder, MANIFEST, f"holds no valid size and checksum for '{name}'")
    data = _read_file(folder, name, size)
    if _summary(data) != entry:
        what = "does not match its checksum; it was damaged or changed after it was saved"
        raise _fault(folder, name, what)
    return data


def _read_file(folder: Path, name: str, expected: int | None) -> bytes:
    """Read a regular file whose size was checked first (None: any size a manifest may have)."""
    try:
        info = (folder / name).lstat()
        size = info.st_size
        if stat.S_ISLNK(info.st_mode):
            raise _fault(folder, name, "is a symbolic link; put the file itself in its place")
        if not stat.S_ISREG(info.st_mode):
            raise _fault(folder, name, "is not a regular file")
        if expected is None and size > _MANIFEST_LIMIT:
            raise _fault(folder, name, f"is too large ({size} bytes) to be a manifest")
        if expected is not None and size != expected:
            what = "is truncated" if size < expected else "is too long"
            what += f" ({size} bytes instead of {expected}); copy or save the model again"
            raise _fault(folder, name, what)
        with (folder / name).open("rb") as stream:
            return stream.read(size)
    except FileNotFoundError as error:
        raise _fault(folder, name, "is missing; copy or save the model again") from error
    except OSError as error:
        raise _fault(folder, name, f"cannot be read: {error.strerror or error}") from error


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    """Parse bytes as one JSON object; None when they are anything else."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        content = json.loads(raw.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _parse_arrays(data: bytes) -> dict[str, NDArray[Any]] | None:
    """Parse safetensors bytes; None when they are malformed or hold a dtype we never write."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as parse

    try:
        arrays: dict[str, NDArray[Any]] = parse(data)
    except (SafetensorError, KeyError, TypeError, ValueError):
        return None
    return arrays if all(array.dtype.name in _DTYPES for array in arrays.values()) else None


def _named_files(content: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the file names a manifest holds, or None when it holds no such table."""
    files = content.get("files")
    return frozenset(files) if isinstance(files, dict) else None


def _fault(folder: Path, name: str, what: str) -> ModelFileError:
    """Build the error about one file of a model."""
    return ModelFileError(f"File '{name}' of the model at '{folder}' {what}.")


# ---------------------------------------------------------------------- what can be made again


def write_cache(file: Path, arrays: Arrays) -> None:
    """Put arrays that can be made again into a file, as a whole or, where that fails, not at all.

    Parameters
    ----------
    file : Path
        It is replaced, where it is there.
    arrays : mapping of str to array
        As for `write_model`.
    """
    data = _encode_arrays(arrays)
    sweep(file.parent)  # what a kill has left of one that was being written
    with suppress(OSError, InputError), replacing(file) as stream:
        stream.write(hashlib.sha256(data).digest() + data)


def read_cache(file: Path) -> dict[str, NDArray[Any]]:
    """Read what `write_cache` wrote; nothing where it is missing, damaged or anything else.

    Parameters
    ----------
    file : Path

    Returns
    -------
    dict of str to array
        What they hold is for the caller to check.
    """
    with suppress(OSError, ModelFileError):
        data = _read_file(file.parent, file.name, file.lstat().st_size)
        if data[:32] == hashlib.sha256(data[32:]).digest():
            return _parse_arrays(data[32:]) or {}
    return {}
