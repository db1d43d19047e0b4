"""Where the pieces of a job are done: in this process, or by the workers of a Ray cluster.

In: a job and its pieces. Out: what each piece gives, in the order of the pieces. Pieces of a worker
that dies are done again by another; no more pieces than workers can take are under way at a time.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from polyseme._threads import n_cores
from polyseme._validation import InputError, check_number, check_option
from polyseme.cluster.jobs import Job, own_version, work

ENGINES = ("local", "ray")
# How often a piece is tried again after the worker that had it died.
RETRIES = 3
_REACH_SECONDS = 10.0
_LOOK_SECONDS = 5.0
# Only pieces under way lie in the store of objects; more than this would be memory for nothing.
_STORE_BYTES = 128 * 2**20


class RayEngine:
    """Workers of a Ray cluster; see `open_engine`.

    Parameters
    ----------
    ray : module
        Connected to a cluster.
    workers : int, optional
        Pieces under way at a time; by default what the cluster's processors can take, counted anew
        every few seconds, so that machines may come and go.
    """

    def __init__(self, ray: Any, workers: int | None = None) -> None:
        self.ray = ray
        self.workers = workers
        self._looked, self._under_way = -_LOOK_SECONDS, 1

    def run(self, job: Job, pieces: Iterable[Any], ahead: int | None = None) -> Iterator[Any]:
        """Do the pieces of a job.

        Parameters
        ----------
        job : Job
        pieces : iterable
            Taken as workers become free.
        ahead : int, optional
            Finished pieces that may wait for a slow one before them, in multiples of the pieces
            under way; by default any number.

        Yields
        ------
        object
            What each piece gives, in the order of the pieces.
        """
        remote = self.ray.remote(num_cpus=1, max_retries=RETRIES)(work)
        shared = self.ray.put(job)
        waiting = enumerate(pieces)
        flying: dict[Any, tuple[int, str]] = {}
        done: dict[int, Any] = {}
        told, more = 0, True
        # Pieces under way when nobody asks any more are left to end: to cancel tasks that are just
        # ending has been seen to bring the whole process down (Ray 2.60).
        while more or flying:
            while more and self._has_room(len(flying), len(done), ahead):
                number, piece = next(waiting, (-1, None))
                more = number >= 0
                if more:
                    reference = remote.remote(shared, piece, own_version())
                    flying[reference] = number, job.name_of(piece)
            ready, _ = self.ray.wait(list(flying), timeout=_LOOK_SECONDS) if flying else ([], 0)
            for reference in ready:
                number, name = flying.pop(reference)
                done[number] = self._result(reference, name)
            while told in done:
                yield done.pop(told)
                told += 1

    def _has_room(self, n_flying: int, n_done: int, ahead: int | None) -> bool:
        """Say whether another piece may be handed out."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            # One more for each processor waits at the machines, so that none of them is idle.
            n_processors = int(self.ray.cluster_resources().get("CPU", 1))
            self._under_way = self.workers or 2 * max(1, n_processors)
        if ahead is not None and n_flying + n_done >= ahead * self._under_way:
            return False
        return n_flying < self._under_way

    def _result(self, reference: Any, name: str) -> Any:
        """Fetch what a piece gives, or say in one sentence why there is nothing."""
        errors = self.ray.exceptions
        try:
            outcome, found = self.ray.get(reference)
        except errors.RayTaskError as error:
            lacking = re.search(r"No module named '([^']*)'", str(error))
            if lacking is None:
                raise
            raise InputError(
                f"A worker lacks the module '{lacking[1]}'; install polyseme with the same extras "
                "on all machines."
            ) from error
        except errors.RayError as error:
            how = "ran out of memory" if isinstance(error, errors.OutOfMemoryError) else "died"
            raise InputError(
                f"The worker of {name} {how} again and again ({_first_line(error)}); what is "
                "finished is kept: look at that part, or use fewer workers, and run again."
            ) from error
        if outcome == "refused":
            raise InputError(found)
        return found


@contextmanager
def open_engine(
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[RayEngine | None]:
    """Connect to where work is to be done, and leave it at the end.

    Parameters
    ----------
    engine : {"local", "ray"}
        This process, or a Ray cluster.
    address : str, optional
        For Ray: "auto" or HOST:PORT for a cluster that runs, with this machine in it; "local", or
        nothing, starts workers on this machine for as long as the work lasts. Where Ray is
        connected already, that connection is used.
    workers : int, optional
        Pieces of work at a time.
    say : callable, optional
        Called with a sentence about what was started.

    Yields
    ------
    RayEngine or None
        None for the local engine.
    """
    check_option("engine", engine, ENGINES, owner="open_engine")
    if workers is not None:
        check_number("workers", workers, owner="open_engine", low=1, whole=True)
    if engine == "local":
        if address is not None:
            raise InputError("`address` is that of a Ray cluster; it needs the engine 'ray'.")
        yield None
        return
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, workers, say)
    started_here = ours and address in (None, "local")
    try:
        # A cluster of our own has as many processors as there are to be workers.
        yield RayEngine(ray, None if started_here else workers)
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def entered(
    engine: str | RayEngine | None, address: str | None = None, workers: int | None = None
) -> Iterator[RayEngine | None]:
    """Use an engine that is open already, or open one by its name; see `open_engine`."""
    if isinstance(engine, str):
        with open_engine(engine, address, workers) as opened:
            yield opened
    elif engine is not None and workers is not None:
        yield RayEngine(engine.ray, workers)
    else:
        yield engine


def _ray() -> Any:
    """Import Ray, or say how to get it."""
    # Ray would tell its makers about every start; nothing is sent from here.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise InputError(
            "The engine 'ray' needs the extra `ray`; pip install 'polyseme[ray]'."
        ) from None
    return ray


def _connect(
    ray: Any, address: str | None, workers: int | None, say: Callable[[str], None] | None
) -> None:
    """Connect to a cluster that runs, or start workers on this machine."""
    quietly = {"log_to_driver": False, "logging_level": "error"}
    if address is None or address == "local":
        n_workers = workers or n_cores()
        if say is not None:
            say(f"starting Ray on this machine with {n_workers} workers, until the work is done")
        # Ray lets workers stand back behind all else; these are what the user waits for.
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(
            address="local",
            num_cpus=n_workers,
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            **quietly,
        )
        return
    _check_reachable(address)
    try:
        ray.init(address=address, **quietly)
    except Exception as error:  # Ray raises a dozen kinds
        raise InputError(
            f"The Ray cluster at '{address}' cannot be used ({_first_line(error)}); start one with "
            "`ray start --head`, let other machines join it, and run this on one of them."
        ) from error


def _check_reachable(address: str) -> None:
    """Raise within seconds when nobody answers at an address; Ray would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in address:
        raise InputError(
            f"`address` must be 'auto', 'local' or HOST:PORT, such as 10.0.0.1:6379; got "
            f"'{address}'."
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS) as line:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                _check_speaks(line)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"No Ray cluster answers at '{address}' within {_REACH_SECONDS:.0f} seconds ({error}); "
            "check the address that `ray start --head` printed."
        ) from error


def _check_speaks(line: socket.socket) -> None:
    """Raise unless the other side speaks HTTP/2, as Ray does; it then sends its settings first."""
    no_settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + no_settings)
    answer = line.recv(9)
    if len(answer) < 4 or answer[3] != 4:
        raise ConnectionError("what answers is not Ray")


def _first_line(error: Exception) -> str:
    """Give the first sentence of what a library says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].partition(". ")[0].rstrip(".") if lines else type(error).__name__
