"""Connect to a Ray cluster, and map a function over pieces of work with its workers (Ray Data).

In: a function and pieces of work. Out: the result for each piece, in order. Pieces of a worker that
dies are done again by another.

Terms: the *driver* is this process; a *worker* is a process of the cluster, maybe on another
machine; the *head* is the cluster's process that all others are registered with.
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

from polyseme.base.machine import n_cores
from polyseme.base.validation import InputError, check_number, check_option

RETRIES = 3  # how often a piece is tried again after the worker that had it died
_REACH_SECONDS = 10.0  # that a head may take to answer
_LOOK_SECONDS = 5.0  # between two looks at whether the head is there
# Only pieces under way lie in the store of objects; more than this would be memory for nothing.
_STORE_BYTES = 128 * 2**20
# Of `ray.init`: workers' messages stay in Ray's files; what matters we report ourselves.
_INIT_OPTIONS: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
# What a client of HTTP/2 begins with: the preface and a frame of settings (type 4) without any.
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
_HTTP2_HEADER_BYTES = 9
_HTTP2_SETTINGS = b"\4"  # the fourth byte of a frame's header


class _Worker:
    """A worker process for Ray Data's `map_batches`: it applies a function to pieces of work.

    Parameters
    ----------
    function : callable
    pieces : ray.ObjectRef
        Of the list of all pieces, in Ray's store.
    driver_version : str
        polyseme's version where the work comes from.
    """

    def __init__(self, function: Callable[[Any], Any], pieces: Any, driver_version: str) -> None:
        import ray

        self.function = function
        self.pieces = ray.get(pieces)
        self.driver_version = driver_version

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Apply the function to the piece whose number is all that a batch has, as "piece".

        Return, as "outcome", a pair in an array: the result and an empty text, or None and an error
        message. A text, since Ray would bury an error's own words.
        """
        outcomes = np.empty(1, dtype=object)  # or numpy would make a table of the tuple
        host = socket.gethostname()
        worker_version = own_version()
        try:
            if self.driver_version != worker_version:
                raise InputError(
                    f"The machine '{host}' has polyseme {worker_version} in place of "
                    f"{self.driver_version}; install the same version on all machines."
                )
            number = int(batch["piece"][0])
            result = self.function(self.pieces[number])
            outcomes[0] = result, ""
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
        """Apply a function to pieces; yield its results in the order of the pieces.

        The function travels to the workers, with all that it holds, and so do pieces and results.
        """
        if not pieces:
            return
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # we report failures ourselves
        # Pieces lie in the store once; Ray Data distributes their numbers.
        n_pieces = len(pieces)
        stored_pieces = self.ray.put(list(pieces))
        numbers = [{"piece": number} for number in range(n_pieces)]
        data = ray.data.from_items(numbers, override_num_blocks=n_pieces)
        data.context.enable_progress_bars = False
        data.context.execution_options.preserve_order = True
        n_processors = int(self.ray.cluster_resources().get("CPU", 1))
        n_workers = self.workers or max(1, n_processors)
        n_workers = min(n_workers, n_pieces)
        with warnings.catch_warnings():
            # That retries are bounded in this way is to change; there is no other way yet.
            warnings.simplefilter("ignore", DeprecationWarning)
            outcomes = data.map_batches(
                _Worker,
                fn_constructor_args=(function, stored_pieces, own_version()),
                batch_size=1,
                num_cpus=1,
                compute=ray.data.ActorPoolStrategy(
                    min_size=1,
                    max_size=n_workers,
                    initial_size=n_workers,
                ),
                ray_remote_args_fn=lambda: {"max_task_retries": RETRIES},
            )
        n_done = 0
        batches = iter(outcomes.iter_batches(batch_size=None, prefetch_batches=0))
        try:
            for batch in batches:
                for result, message in batch["outcome"]:
                    if message:
                        raise InputError(message)
                    n_done += 1
                    yield result
        except self.ray.exceptions.RayError as error:
            missing_module = re.search(r"No module named '([^']*)'", str(error))
            if missing_module:
                raise InputError(
                    f"A worker lacks the module '{missing_module[1]}'; install polyseme with the "
                    "same extras on all machines."
                ) from error
            raise InputError(
                f"Workers died again and again, at {_describe_piece(pieces[n_done])} or soon after "
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
    was_connected = ray.is_initialized()
    if not was_connected and address in (None, "local"):
        n_workers = workers or n_cores()
        if log is not None:
            log(f"starting Ray on this machine with {n_workers} workers, until the work is done")
        options = _INIT_OPTIONS | {"num_cpus": n_workers, "include_dashboard": False}
        ray.init(address="local", object_store_memory=_STORE_BYTES, **options)
    elif not was_connected:
        _connect(ray, str(address))
    try:
        head_address = ray.get_runtime_context().gcs_address
        with _watch_head(head_address):
            yield RayEngine(ray, workers)
    finally:
        if not was_connected:
            ray.shutdown()


@contextmanager
def _watch_head(head_address: str) -> Iterator[None]:
    """Warn when the head of the cluster is gone: Ray ends the process then, without a word."""
    is_over = threading.Event()

    def watch() -> None:
        endpoint = _endpoint_of(head_address)
        while not is_over.wait(_LOOK_SECONDS):
            try:
                connection = socket.create_connection(endpoint, _REACH_SECONDS)
                connection.close()
            except OSError:
                if not is_over.is_set() and sys.stderr is not None:
                    sys.stderr.write(
                        f"polyseme: The head of the Ray cluster at {head_address} is gone, and Ray "
                        "ends this process unless it is back within a minute; what is finished is "
                        "kept: run the same command again.\n"
                    )
                    sys.stderr.flush()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _endpoint_of(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, as `socket` takes them; IPv6 hosts are in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster that runs."""
    if address != "auto":
        _check_reachable(address)
    try:
        ray.init(address=address, **_INIT_OPTIONS)
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
    endpoint = _endpoint_of(address)
    try:
        with socket.create_connection(endpoint, _REACH_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                # Ray speaks HTTP/2: to a greeting with empty settings it answers with its own.
                connection.sendall(_HTTP2_GREETING)
                header = connection.recv(_HTTP2_HEADER_BYTES)
                if header[3:4] != _HTTP2_SETTINGS:
                    raise ConnectionError("what answers is not Ray")
    except (OSError, OverflowError) as error:
        raise InputError(
            f"No Ray cluster answers at '{address}' within {_REACH_SECONDS:.0f} seconds ({error}); "
            "check the address that `ray start --head` printed."
        ) from error


def _describe_piece(piece: object) -> str:
    """Return the name of a piece of work: its file where it has one; 200 letters at most."""
    name = getattr(piece, "path", piece)
    return f"{name!s:.200}"


def _first_line(error: Exception) -> str:
    """Return the first sentence of a library's error message, or the error's type without one."""
    for line in str(error).splitlines():
        text = line.strip()
        if text:
            sentence, _, _ = text.partition(". ")
            return sentence.rstrip(".")
    return type(error).__name__


def own_version() -> str:
    """Return the version of polyseme that is installed here."""
    try:
        return version("polyseme")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
