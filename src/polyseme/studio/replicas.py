"""Many processes that serve, on one machine or many: Ray Serve runs the same application.

In: the arguments of the application, with folders that all machines see. Out: an HTTP address
behind which replicas answer; one that dies is replaced. A verdict reaches one replica, is on disk
when it is acknowledged, and the other replicas load it at their next refresh.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from polyseme.base.validation import InputError
from polyseme.batch import open_engine

APPLICATION = "polyseme"  # its name in Ray Serve
# The application refuses excess requests with a sentence; Ray Serve's own limit is higher.
_MOST_ONGOING = 2048  # requests of a replica
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception): ")
_HEALTH_CHECK_SECONDS = 2.0
_SHUTDOWN_SECONDS = 15.0  # for requests that are under way

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


@contextmanager
def replicas(
    make_app: Callable[..., Any],
    plan: Mapping[str, Any],
    host: str,
    port: int,
    n: int,
    address: str | None = None,
) -> Iterator[None]:
    """Serve by several replicas for as long as the context lasts.

    Where it is opened by the main thread, SIGTERM ends it as Ctrl-C does.

    Parameters
    ----------
    make_app : callable
        Makes the application; an importable function.
    plan : mapping
        Its parameters by name. Paths must mean the same on all machines.
    host : str
        The address to listen on.
    port : int
    n : int
        How many replicas.
    address : str, optional
        Of a Ray cluster that runs; by default one is started on this machine.
    """
    serve = _ray_serve()
    plan = dict(plan)
    for name, value in plan.items():
        if isinstance(value, Path):
            plan[name] = value.resolve()  # replicas have other working directories
    # Built once here, so that errors are reported and files are extracted by one process only.
    make_app(**plan)
    with open_engine("ray", address, workers=n):
        if threading.current_thread() is threading.main_thread():
            # Only now: Ray has set a way of its own.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        for name in ("ray", "ray.serve"):
            logging.getLogger(name).setLevel(logging.ERROR)
        # Ray Serve keeps its address for as long as it runs; a cluster of our own ends anyway.
        is_shared = address not in (None, "local")
        must_shut_down = is_shared and not serve.status().applications
        try:
            _start(serve, make_app, plan, {"host": host, "port": port}, n)
            yield
        finally:
            serve.delete(APPLICATION)
            if must_shut_down:
                serve.shutdown()


def _start(
    serve: Any,
    make_app: Callable[..., Any],
    plan: Mapping[str, Any],
    http: Mapping[str, Any],
    n: int,
) -> None:
    """Start n replicas with Ray Serve, and return when they answer.

    `http` holds `host` and `port`, as Ray Serve names them; for the rest see `replicas`.
    """
    quiet_logging = {"log_level": "ERROR", "enable_access_log": False}

    def build() -> Replica:
        replica_id = serve.get_replica_context().replica_id
        return Replica(make_app(**plan), replica_id.unique_id)

    deployment = serve.deployment(
        serve.ingress(build)(),
        name=APPLICATION,
        num_replicas=n,
        max_ongoing_requests=_MOST_ONGOING,
        ray_actor_options={"num_cpus": 1},  # to which Ray also keeps the numerical libraries
        health_check_period_s=_HEALTH_CHECK_SECONDS,
        graceful_shutdown_timeout_s=_SHUTDOWN_SECONDS,
        logging_config=quiet_logging,
    )
    try:
        serve.start(
            proxy_location="EveryNode", http_options=dict(http), logging_config=quiet_logging
        )
        serve.run(deployment.bind(), name=APPLICATION, route_prefix="/")
    except Exception as error:  # Ray raises a dozen kinds
        raise InputError(f"The replicas cannot be started: {_reason(serve, error)}") from error


def _reason(serve: Any, error: Exception) -> str:
    """Return the reason of a failed start: the last line that names an error, else the first."""
    text = str(error) or type(error).__name__
    with suppress(Exception):  # there may be no application yet
        application = serve.status().applications[APPLICATION]
        text += "\n" + application.deployments[APPLICATION].message
    stripped_lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in stripped_lines if line]
    for line in reversed(lines):
        if _ERROR_LINE.match(line):
            return line
    return lines[0]


class Replica:
    """The application in a process of Ray Serve's, whose name goes with every answer.

    Parameters
    ----------
    app : ASGI application
    name : str
        Sent as the header `X-Replica`.
    """

    def __init__(self, app: Any, name: str) -> None:
        self.app = app
        self._header = (b"x-replica", name.encode())

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request; Ray's proxy has named it, and sends that name itself."""

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                headers = [header for header in headers if header[0] != b"x-request-id"]
                message["headers"] = [*headers, self._header]
            await send(message)

        await self.app(scope, receive, send_named)


def _ray_serve() -> Any:
    """Return Ray Serve's module, or raise an `InputError` that says how it is installed."""
    try:
        return import_module("ray.serve")
    except ImportError:
        raise InputError(
            "Replicas need the extra `ray-serve`; pip install '.[ray-serve]' in a checkout."
        ) from None
