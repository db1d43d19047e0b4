"""What a worker does: a job says how to begin, and what becomes of one piece of the work.

In: a job, which is small and travels to every worker, and its pieces. Out: what each piece gives,
or one sentence about why it gives nothing. A worker begins a job once, however many pieces it does.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Hashable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from polyseme._validation import InputError
from polyseme.persistence import read_manifest


class Job(Hashable, Protocol):
    """Work that falls into pieces; jobs are equal when they begin alike."""

    def start(self) -> Callable[[Any], Any]:
        """Load what the work needs; give the function that does one piece."""

    def name_of(self, piece: Any) -> str:
        """Name a piece for people."""


def work(job: Job, piece: Any, of_version: str) -> tuple[str, Any]:
    """Do one piece on a worker.

    Parameters
    ----------
    job : Job
    piece : object
        One of its pieces.
    of_version : str
        The version of polyseme that asks.

    Returns
    -------
    outcome : {"done", "refused"}
    found : object
        What the piece gives, or the sentence about why it gives nothing.
    """
    if of_version != own_version():
        return "refused", (
            f"The machine '{socket.gethostname()}' has polyseme {own_version()} in place of "
            f"{of_version}; install the same version on all machines."
        )
    try:
        return "done", _started(job)(piece)
    except InputError as error:
        return "refused", str(error)
    except OSError as error:
        host = socket.gethostname()
        return "refused", f"The machine '{host}' cannot go on with {job.name_of(piece)}: {error}."


@lru_cache(maxsize=1)
def _started(job: Job) -> Callable[[Any], Any]:
    """Begin a job once for the whole process."""
    return job.start()


@lru_cache(maxsize=1)
def own_version() -> str:
    """Give the version of polyseme that is installed here."""
    try:
        return version("polyseme")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def digest_of(model: Path) -> str:
    """Give a name of a saved model that changes whenever any of its files does."""
    return hashlib.sha256(read_manifest(model)).hexdigest()


def load_same(model: str, digest: str) -> Any:
    """Load a saved tagger, and make sure that it is the one that is meant.

    Parameters
    ----------
    model : str
        Its folder, as all machines see it.
    digest : str
        What `digest_of` gave where the work was handed out.

    Returns
    -------
    ZeroShotTagger or PublishedTagger
    """
    from polyseme.tagger import load

    check_seen(model)
    if digest_of(Path(model)) != digest:
        raise InputError(
            f"The model at '{model}' on the machine '{socket.gethostname()}' is another one; use a "
            "folder that all machines share, and do not replace it during the work."
        )
    return load(model)


def check_seen(*places: str) -> None:
    """Raise unless this machine sees files or folders."""
    for place in places:
        if not Path(place).exists():
            raise unseen(socket.gethostname(), place)


def unseen(host: str, place: str) -> InputError:
    """Build the error for a machine that lacks a file which others have."""
    return InputError(
        f"The machine '{host}' cannot see '{place}'; on a cluster, models and files must lie where "
        "all machines see them under the same path."
    )
