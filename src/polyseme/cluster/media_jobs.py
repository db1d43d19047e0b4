"""The jobs that look at media files: content hashes, raw numbers, tags.

In: paths of files that all machines see, some at a time. Out: for each file what was found, or why
there is nothing. A file that only one machine lacks is an error, never a skipped file.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme._threads import one_thread
from polyseme._validation import InputError
from polyseme.cluster.jobs import check_seen, load_same, unseen
from polyseme.cluster.suggestions import Suggestions
from polyseme.features import Extracted, MediaError, MediaFeatures, extractor_class
from polyseme.features.extraction import state_of
from polyseme.features.sound import quiet_decoders

Paths = Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What a worker found of one file.

    Attributes
    ----------
    found : object
        Its raw numbers, or the record of its tags; None when there are none.
    reason : str
        Why there are none.
    missing_on : str
        The machine that does not see the file at all; empty elsewhere.
    """

    found: Any = None
    reason: str = ""
    missing_on: str = ""

    def given(self, path: Path) -> Any:
        """Give what was found, or the reason as a `MediaError`; see `MediaFeatures.extract`."""
        if not self.reason:
            return self.found
        if self.missing_on and path.exists():
            raise unseen(self.missing_on, str(path))
        return MediaError(self.reason)


@dataclass(frozen=True)
class HashFiles:
    """The job of reading files for their content hashes.

    Attributes
    ----------
    folder : str
        Where the files lie, as all machines see it.
    """

    folder: str

    def start(self) -> Callable[[Paths], list[tuple[str, bytes] | None]]:
        """Make sure that the folder is there; see `Job.start`."""
        check_seen(self.folder)
        return lambda paths: [_state_and_content(Path(path)) for path in paths]

    def name_of(self, piece: Paths) -> str:
        """Name some files; see `Job.name_of`."""
        return _named(piece)


@dataclass(frozen=True)
class ExtractFiles:
    """The job of turning files into raw numbers.

    Attributes
    ----------
    kind, parameters : str
        Which feature extractor, and its parameters as JSON.
    digest : str
        What `MediaFeatures.digest` gives for it.
    folder : str
        Where the files lie, as all machines see it.
    """

    kind: str
    parameters: str
    digest: str
    folder: str

    @classmethod
    def of(cls, extractor: MediaFeatures, folder: Path) -> ExtractFiles:
        """Describe a feature extractor for workers, who use one thread each."""
        seeds = {"random_state": None} if "random_state" in extractor.get_params() else {}
        parameters = extractor.get_params() | {"n_jobs": 1} | seeds
        told = json.dumps(parameters, sort_keys=True)
        return cls(extractor.kind, told, extractor.digest(), str(folder.absolute()))

    def start(self) -> Callable[[Paths], list[Outcome]]:
        """Make the feature extractor; see `Job.start`."""
        check_seen(self.folder)
        extractor = extractor_class(self.kind)(**json.loads(self.parameters))
        if extractor.digest() != self.digest:
            raise InputError(
                f"The machine '{socket.gethostname()}' would make other numbers of {self.kind} "
                "files; install the same versions on all machines."
            )
        return lambda paths: [_outcome(path, raw) for path, raw in _extract(extractor, paths)]

    def name_of(self, piece: Paths) -> str:
        """Name some files; see `Job.name_of`."""
        return _named(piece)


@dataclass(frozen=True)
class TagFiles:
    """The job of tagging files.

    Attributes
    ----------
    model, digest : str
        The model's folder as all machines see it, and what `digest_of` gives for it.
    k : int
        The most tags a file.
    precision : float or None
    """

    model: str
    digest: str
    k: int
    precision: float | None

    def start(self) -> Callable[[Paths], list[Outcome]]:
        """Load the model with its feature extractor; see `Job.start`."""
        tagger = load_same(self.model, self.digest)
        suggestions = Suggestions(tagger, self.k, self.precision)
        extractor = tagger.features_.set_params(n_jobs=1)

        def tag(paths: Paths) -> list[Outcome]:
            found = [_outcome(path, raw) for path, raw in _extract(extractor, paths)]
            usable = [(path, one) for path, one in zip(paths, found, strict=True) if not one.reason]
            ids = [path for path, _ in usable]
            records = rank_raw(suggestions, extractor, ids, [one.found for _, one in usable])
            return [one if one.reason else Outcome(next(records)) for one in found]

        return tag

    def name_of(self, piece: Paths) -> str:
        """Name some files; see `Job.name_of`."""
        return _named(piece)


def rank_raw(
    suggestions: Suggestions, extractor: MediaFeatures, ids: Sequence[str], raw: Sequence[Any]
) -> Any:
    """Rank tags for raw numbers of some files.

    Parameters
    ----------
    suggestions : Suggestions
    extractor : MediaFeatures
        The tagger's.
    ids : sequence of str
        Names of the files.
    raw : sequence of float32 arrays
        Of the same length.

    Returns
    -------
    iterator of dict
        A record for each file; see `Suggestions.records`.
    """
    if not ids:
        return iter(())
    items = Extracted(extractor.kind, extractor.preprocessing(), tuple(ids), list(raw))
    with one_thread():
        return iter(list(suggestions.records(items)))


def _extract(extractor: MediaFeatures, paths: Paths) -> Any:
    """Pair paths with their raw numbers or errors."""
    with quiet_decoders():
        found = list(extractor.extract(Path(path) for path in paths))
    return zip(paths, found, strict=True)


def _outcome(path: str, raw: Any) -> Outcome:
    """Tell what a feature extractor gave for a file."""
    if not isinstance(raw, MediaError):
        return Outcome(raw)
    return Outcome(None, str(raw), "" if os.path.lexists(path) else socket.gethostname())


def _state_and_content(path: Path) -> tuple[str, bytes] | None:
    """Give a file's state and content hash; None when it cannot be read here."""
    try:
        state = state_of(path)
        with path.open("rb") as stream:
            return state, hashlib.file_digest(stream, "sha256").digest()
    except OSError:  # who asked finds out by itself
        return None


def _named(paths: Paths) -> str:
    """Name some files by the first and the last."""
    return f"the files from '{paths[0]}' to '{paths[-1]}'"
