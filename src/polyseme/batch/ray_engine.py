"""Connect to a Ray cluster, and map a function over pieces of work with its workers (Ray Data).

In: a function and pieces of work. Out: the result for each piece, in order. Pieces of a worker that
dies are done again by another.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from polyseme.base.threads import n_cores
from polyseme.base.validation import InputError, check_number, check_option

RETRIES = 3  # how often a piece is tried again after the worker that had it died
_REACH_SECONDS = 10.0
_LOOK_SECONDS = 5.0  # between two looks at whether the head is there
# Only pieces under way lie in the store of objects; more than this would be memory for nothing.
_STORE_BYTES = 128 * 2**20
_OPTIONS: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


class _Worker:
    """A worker process for Ray Data's `map_batches`: it applies the function to pieces of work."""

    def __init__(self, function: Callable[[Any], Any], pieces: Any, of_version: str) -> None:
        import ray

        self.function = function
        self.pieces = ray.get(pieces)
        self.of_version = of_version

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Apply the function to the piece of a batch; return its result or an error message."""
        outcomes = np.empty(1, dtype=object)  # or numpy would make a table of the tuple
        host = socket.gethostname()
        ours = own_version()
        try:
            if self.of_version != ours:
                raise InputError(
                    f"The machine '{host}' has polyseme {ours} in place of {self.of_version}; "
                    "install the same version on all machines."
                )
            outcomes[0] = self.function(self.pieces[int(batch["piece"][0])]), ""
        except InputError as error:
            outcomes[0] = None, str(error)
        except OSError as error:
            outcomes[0] = None, f"The machine '{host}' cannot go on: {error}."
        return {"outcome": outcomes}


@dataclass(frozen=True)
class RayEngine:
    """Workers of a Ray cluster; made by `open_engine`."""

    ray: Any  # the module, connected to a cluster
    workers: int | None = None  # pieces done at a time; by default one for each processor

    def map(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterator[Any]:
        """Apply a function, which travels to the workers; yield its values in order of pieces."""
        if not pieces:
            return
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # we report failures ourselves
        # Pieces lie in the store once; Ray Data distributes their numbers.
        shared = self.ray.put(list(pieces))
        numbers = [{"piece": number} for number in range(len(pieces))]
        data = ray.data.from_items(numbers, override_num_blocks=len(numbers))
        data.context.enable_progress_bars = False
        data.context.execution_options.preserve_order = True
        n_processors = int(self.ray.cluster_resources().get("CPU", 1))
        most = min(self.workers or max(1, n_processors), len(pieces))
        with warnings.catch_warnings():
            # That retries are bounded in this way is to change; there is no other way yet.
            warnings.simplefilter("ignore", DeprecationWarning)
            outcomes = data.map_batches(
                _Worker,
                fn_constructor_args=(function, shared, own_version()),
                batch_size=1,
                num_cpus=1,
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most, initial_size=most),
                ray_remote_args_fn=lambda: {"max_task_retries": RETRIES},
            )
        done = 0
        batches = iter(outcomes.iter_batches(batch_size=None, prefetch_batches=0))
        try:
            for batch in batches:
                for value, sentence in batch["outcome"]:
                    if sentence:
                        raise InputError(sentence)
                    done += 1
                    yield value
        except self.ray.exceptions.RayError as error:
            if lacking := re.search(r"No module named '([^']*)'", str(error)):
                raise InputError(
                    f"A worker lacks the module '{lacking[1]}'; install polyseme with the same "
                    "extras on all machines."
                ) from error
            raise InputError(
                f"Workers died again and again, at {_describe_piece(pieces[done])} or soon after "
                f"({_first_line(error)}); what is finished is kept: look at that part, or use "
                "fewer workers, and run again."
            ) from error
        finally:
            del batches  # an iterator that is not exhausted would keep its workers


@contextmanager
def open_engine(
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    log: Callable[[str], None] | None = None,
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
    log : callable, optional
        Called with a sentence about what was started.

    Yields
    ------
    RayEngine or None
        None for the local engine.
    """
    check_option("engine", engine, ("local", "ray"), owner="open_engine")
    if workers is not None:
        check_number("workers", workers, owner="open_engine", low=1, whole=True)
    if engine == "local":
        if address is not None:
            raise InputError("`address` is that of a Ray cluster; it needs the engine 'ray'.")
        yield None
        return
    # By default Ray sends usage statistics, runs workers at a low priority (these are the ones that
    # the user waits for), and prints internal messages.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
    except ImportError:
        raise InputError(
            "The engine 'ray' needs the extra `ray`; pip install '.[ray]' in a checkout."
        ) from None
    connected = ray.is_initialized()
    if not connected and address in (None, "local"):
        n_workers = workers or n_cores()
        if log is not None:
            log(f"starting Ray on this machine with {n_workers} workers, until the work is done")
        options = _OPTIONS | {"num_cpus": n_workers, "include_dashboard": False}
        ray.init(address="local", object_store_memory=_STORE_BYTES, **options)
    elif not connected:
        _connect(ray, str(address))
    try:
        with _watch_head(ray.get_runtime_context().gcs_address):
            yield RayEngine(ray, workers)
    finally:
        if not connected:
            ray.shutdown()


@contextmanager
def _watch_head(head: str) -> Iterator[None]:
    """Warn when the head of the cluster is gone: Ray ends the process then, without a word."""
    done = threading.Event()
    host, _, port = head.rpartition(":")

    def watch() -> None:
        while not done.wait(_LOOK_SECONDS):
            try:
                socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
            except OSError:
                if not done.is_set() and sys.stderr is not None:
                    sys.stderr.write(
                        f"polyseme: The head of the Ray cluster at {head} is gone, and Ray ends "
                        "this process unless it is back within a minute; what is finished is kept: "
                        "run the same command again.\n"
                    )
                    sys.stderr.flush()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster that runs."""
    if address != "auto":
        _check_reachable(address)
    try:
        ray.init(address=address, **_OPTIONS)
    except Exception as error:  # Ray raises a dozen kinds
        raise InputError(
            f"The Ray cluster at '{address}' cannot be used ({_first_line(error)}); start one with "
            "`ray start --head`, let other machines join it, and run this on one of them."
        ) from error


def _check_reachable(address: str) -> None:
    """Raise within seconds when no Ray answers at an address; Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in address:
        raise InputError(
            "`address` must be 'auto', 'local' or HOST:PORT, such as 10.0.0.1:6379; got "
            f"'{address}'."
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS) as line:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                # Ray speaks HTTP/2: to a greeting with empty settings it answers with its own.
                line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                if line.recv(9)[3:4] != b"\4":
                    raise ConnectionError("what answers is not Ray")
    except (OSError, OverflowError) as error:
        raise InputError(
            f"No Ray cluster answers at '{address}' within {_REACH_SECONDS:.0f} seconds ({error}); "
            "check the address that `ray start --head` printed."
        ) from error


def _describe_piece(piece: object) -> str:
    """Name a piece of work, by its file where it has one."""
    return f"{getattr(piece, 'path', piece)!s:.200}"


def _first_line(error: Exception) -> str:
    """Return the first sentence of a library's error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines:
        return lines[0].partition(". ")[0].rstrip(".")
    return type(error).__name__


def own_version() -> str:
    """Return the version of polyseme that is installed here."""
    try:
        return version("polyseme")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
