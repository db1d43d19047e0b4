"""The application: models behind HTTP, with limits on everything that a client can send.

In: hosts of models, and settings. Out: an ASGI application. Routes are in `routes`, `annif`,
`label_studio` and `photoprism`; this module has what all of them share: access, limits of size and
time, the form of errors, metrics and logs.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import logging
import re
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from polyseme.base.validation import InputError, NotFittedError
from polyseme.feedback.verdict_log import ConflictError, Verdict
from polyseme.storage.model_file import ModelFileError, package_version
from polyseme.studio.access import Caller, Tokens
from polyseme.studio.batching import QueueFullError
from polyseme.studio.collection import UnknownItemError
from polyseme.studio.host import ModelHost, UnknownLabelError
from polyseme.studio.http import UnsupportedError
from polyseme.studio.refit import RefitRunningError
from polyseme.studio.schemas import StandingOut

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]

STATIC = Path(__file__).with_name("static")
_LEFT = 499  # nginx's status for a client that closed the connection
_ID = re.compile(r"[\w.:-]{1,64}")
_LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_PUBLIC = ("/health/", "/static/")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
        b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
]
# FastAPI would ask for OpenTelemetry's providers at every request.
_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False}
_log = logging.getLogger("polyseme.studio")


@dataclass(frozen=True)
class Settings:
    """Limits and habits of a service.

    Attributes
    ----------
    tokens : Tokens or None
        Who may ask; without any, everybody on this machine may do everything.
    max_body : int
        Bytes that a request may send.
    deadline : float
        Seconds that a request may take.
    threads : int
        How many requests that are not scored together are worked on at once.
    watch : float
        Seconds between two looks at the models' folders; 0 looks never.
    """

    tokens: Tokens | None = None
    max_body: int = 32 * 2**20
    deadline: float = 30.0
    threads: int = 4
    watch: float = 2.0


class Metrics:
    """What is counted, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "polyseme_requests", "Requests by route and status.", ["route", "status"], **options
        )
        self.seconds = Histogram(
            "polyseme_request_seconds", "Seconds of a request.", ["route"], **options
        )
        self.batch = Histogram(
            "polyseme_batch_rows",
            "Rows that were scored together.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            **options,
        )
        self.waiting = Gauge("polyseme_waiting_rows", "Rows that wait.", ["model"], **options)
        self.verdicts = Counter(
            "polyseme_verdicts", "Answers by the kind of the label.", ["kind", "answer"], **options
        )
        self.model = Gauge(
            "polyseme_model_labels", "Labels of a model's version.", ["model", "version"], **options
        )


def create_app(hosts: Sequence[ModelHost], settings: Settings | None = None) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    hosts : sequence of ModelHost
        The models, each under a name of its own.
    settings : Settings, optional
    """
    from polyseme.studio import annif, label_studio, photoprism, routes
    from polyseme.studio.routes import suggestions

    # Interfaces that other programs know: a module with a `router` each.
    interfaces = (annif, label_studio, photoprism)

    names = [host.name for host in hosts]
    if not names or len(set(names)) < len(names):
        raise InputError(f"Models need different names; got {', '.join(names) or 'none'}.")
    settings = Settings() if settings is None else settings
    app = FastAPI(
        title="polyseme",
        version=package_version(),
        summary="Ranked tags for items: seen, unseen and new ones.",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        telemetry=_NO_TELEMETRY,
    )
    app.state.hosts = {host.name: host for host in hosts}
    app.state.settings = settings
    app.state.metrics = Metrics()
    app.state.ready = False
    for host in hosts:
        host.scoring.observe_size = app.state.metrics.batch.observe
    # Before the routers: the most frequent request goes without FastAPI's dependencies, which cost
    # more than the scoring. The router's `suggest` describes it.
    app.add_route(
        suggestions.SUGGEST, suggestions.answer_suggest, methods=["POST"], include_in_schema=False
    )
    _add_care(app)
    for module in (*routes.MODULES, *interfaces):
        app.include_router(module.router)
    _add_errors(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]  # FastAPI's own way
    app.add_middleware(Frame, settings=settings, metrics=app.state.metrics)
    return app


def _schema(app: FastAPI) -> dict[str, Any]:
    """Describe the API, with bodies that have several forms, and with tokens where they count."""
    if app.openapi_schema is None:
        from polyseme.studio.routes import BODIES

        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        template = "#/components/schemas/{model}"
        _, definitions = models_json_schema(
            [(body, "validation") for body in BODIES], ref_template=template
        )
        components = schema.setdefault("components", {})
        components["schemas"] = definitions["$defs"] | components.get("schemas", {})
        if app.state.settings.tokens is not None:
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
        app.openapi_schema = schema
    return app.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Warm the models up, look after them, and end in order."""
    current_default_thread_limiter().total_tokens = app.state.settings.threads
    hosts = list(app.state.hosts.values())
    tasks = [asyncio.create_task(_warm(app, hosts))]
    tasks.append(asyncio.create_task(_watch(hosts, app.state.settings.watch)))
    # SIGHUP asks for a refresh, as in other services; only where this is a process of its own.
    with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
        loop = asyncio.get_running_loop()

        def refresh_soon() -> None:
            tasks.append(loop.create_task(_refresh(hosts)))

        loop.add_signal_handler(signal.SIGHUP, refresh_soon)
    try:
        yield
    finally:
        app.state.ready = False
        for task in tasks:
            task.cancel()
        for host in hosts:
            await host.close()


async def _warm(app: FastAPI, hosts: Sequence[ModelHost]) -> None:
    """Load what every model needs, mark the service as ready, then lay out the maps."""
    try:
        for host in hosts:
            await asyncio.to_thread(host.warm)
        app.state.ready = True
        for host in hosts:
            await asyncio.to_thread(host.lay_out)
    except Exception:
        _log.exception("the models could not be made ready")


async def _watch(hosts: Sequence[ModelHost], seconds: float) -> None:
    """Load what others write to the models' folders, at regular intervals."""
    while seconds > 0:
        await asyncio.sleep(seconds)
        await _refresh(hosts)


async def _refresh(hosts: Sequence[ModelHost]) -> None:
    """Load what others have written to the models' folders; log each trouble once."""
    for host in hosts:
        before = host.notices.reload_error
        try:
            await asyncio.to_thread(host.refresh)
        except InputError as error:
            host.notices.reload_error = str(error)
            if host.notices.reload_error != before:
                _log.warning("%s: %s", host.name, error)
        except Exception:
            _log.exception("%s: the model's folder could not be looked at", host.name)


# ---------------------------------------------------------------------- errors


def problem(
    status: int, detail: str, request_id: str | None = None, **members: Any
) -> JSONResponse:
    """Return an error in one sentence, as RFC 9457 has it.

    Parameters
    ----------
    status : int
    detail : str
    request_id : str, optional
    **members
        What a program may need to know beside the sentence.
    """
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "request_id": request_id,
    } | members
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return JSONResponse(body, status, headers, media_type="application/problem+json")


# The first that fits.
_STATUS: list[tuple[type[Exception], int]] = [
    (QueueFullError, 429),
    (UnknownLabelError, 404),
    (UnknownItemError, 404),
    (ConflictError, 409),
    (RefitRunningError, 409),
    (UnsupportedError, 415),
    (ModelFileError, 503),
    (NotFittedError, 503),
    (InputError, 422),
]


def _add_errors(app: FastAPI) -> None:
    """Answer all errors in one form."""

    async def refused(request: Request, error: Exception) -> Response:
        status = next(code for kind, code in _STATUS if isinstance(error, kind))
        detail = str(error) or "Too much is waiting; try again in a second."
        members = {}
        if isinstance(error, ConflictError):
            members["standing"] = [_standing(verdict) for verdict in error.standing]
        return problem(status, detail, request.scope.get("request_id"), **members)

    async def malformed(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        message = str(first["msg"])
        steps = [str(step) for step in first["loc"][1:5]]
        place = ".".join(steps)
        detail = f"{message}."
        if place:
            detail = f"`{place[:100]}`: {message[:200]}."
        return problem(422, detail, request.scope.get("request_id"))

    async def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = problem(error.status_code, str(error.detail), request.scope.get("request_id"))
        response.headers.update(error.headers or {})
        return response

    app.add_exception_handler(InputError, refused)
    app.add_exception_handler(QueueFullError, refused)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(HTTPException, plain)


def _standing(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict that stands as JSON."""
    return {name: getattr(verdict, name) for name in StandingOut.model_fields}


# ---------------------------------------------------------------------- looking after it


def _add_care(app: FastAPI) -> None:
    """Add health, metrics and the studio's page."""
    no_store = {"Cache-Control": "no-cache"}

    @app.get("/", include_in_schema=False)
    async def studio() -> Response:
        return FileResponse(STATIC / "index.html", headers=no_store)

    @app.get("/health/live", tags=["care"], summary="Whether the process answers")
    async def live() -> Response:
        return JSONResponse({"status": "live"})

    @app.get(
        "/health/ready",
        tags=["care"],
        summary="Whether the models answer",
        responses={503: {"description": "Not yet, or not any more."}},
    )
    async def ready(request: Request) -> Response:
        if not app.state.ready:
            return problem(503, "The models are being loaded.", request.scope.get("request_id"))
        return JSONResponse({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["care"],
        summary="Counts for Prometheus",
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        counted: Metrics = app.state.metrics
        counted.model.clear()
        for host in app.state.hosts.values():
            counted.waiting.labels(host.name).set(host.scoring.n_waiting)
            snapshot = host.snapshot
            counted.model.labels(host.name, snapshot.version).set(len(snapshot.tagger.classes_))
        return Response(
            generate_latest(counted.registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )


class TooLargeError(HTTPException):
    """More was sent than is allowed."""


class Frame:
    """What every request goes through: a name, a caller, limits, a deadline, headers, a log line.

    It is ASGI itself, because nothing between a socket and a batch may cost much.
    """

    def __init__(self, app: Any, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self._start = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def _name(self) -> str:
        """Return a name for a request that no other has, here or after a new start."""
        return f"{self._start}-{next(self._numbers):x}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        sent_id = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = sent_id if sent_id and _ID.fullmatch(sent_id) else self._name()
        scope["request_id"] = request_id
        start = time.perf_counter()
        answered = [0]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered[0] = message["status"]
                raw = message.setdefault("headers", [])
                raw.append((b"x-request-id", request_id.encode()))
                raw += _HEADERS
            await send(message)

        try:
            refusal = self._refusal(scope, headers)
            if refusal is not None:
                await refusal(scope, receive, sending)
            else:
                limited = self._limited(receive)
                async with asyncio.timeout(self.settings.deadline):
                    await self.app(scope, limited, sending)
        except TimeoutError:
            detail = f"This took longer than the {self.settings.deadline:g} s that are allowed."
            await self._fail(scope, receive, sending, answered, 503, detail)
        except ClientDisconnect:
            answered[0] = answered[0] or _LEFT  # the client has gone
        except Exception:
            _log.exception("request %s failed", request_id)
            detail = f"Something went wrong here; the log has it under {request_id}."
            await self._fail(scope, receive, sending, answered, 500, detail)
        finally:
            self._count(scope, answered[0], time.perf_counter() - start)

    async def _fail(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        answered: list[int],
        status: int,
        detail: str,
    ) -> None:
        """Answer an error, unless an answer is under way already."""
        if not answered[0]:
            await problem(status, detail, scope["request_id"])(scope, receive, send)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Return why a caller is refused; None, and the caller noted, where they are let in."""
        path = scope["path"]
        name = scope["request_id"]
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            return problem(403, "Pages of other origins may not ask.", name)
        tokens = self.settings.tokens
        if tokens is None:
            # A page elsewhere can let its own name point to this machine.
            if not _LOCAL.fullmatch(host):
                return problem(403, "Without tokens only this machine may ask.", name)
            scope["caller"] = Caller(None, "admin")
        elif path == "/" or path.startswith(_PUBLIC):
            scope["caller"] = Caller(None, "read")
        else:
            caller = tokens.caller(_token(headers.get(b"authorization", b"")))
            if caller is None:
                response = problem(401, "Send a token: Authorization: Bearer …", name)
                response.headers["WWW-Authenticate"] = "Bearer"
                return response
            scope["caller"] = caller
        if int(_digits(headers.get(b"content-length", b"0"))) > self.settings.max_body:
            return problem(413, self._too_large(), name)
        return None

    def _too_large(self) -> str:
        """Return how much may be sent."""
        return f"A request may send {self.settings.max_body / 2**20:g} MiB at the most."

    def _limited(self, receive: Receive) -> Receive:
        """Count the bytes that arrive, whatever the declared length."""
        left = self.settings.max_body

        async def receiving() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLargeError(413, self._too_large())
            return message

        return receiving

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log an answer."""
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        if _log.isEnabledFor(logging.INFO):
            caller = scope.get("caller")
            entry = {
                "request": scope["request_id"],
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(1000 * seconds, 1),
                "who": caller.name if caller else None,
            }
            _log.info(json.dumps(entry, ensure_ascii=True))


def _token(header: bytes) -> str:
    """Return the token that a header holds: a bearer's, or the password of a name and password."""
    kind, _, sent = header.decode("latin-1").partition(" ")
    if kind.lower() == "bearer":
        return sent.strip()
    if kind.lower() == "basic":
        with suppress(ValueError):
            name_and_password = base64.b64decode(sent, validate=True).decode("latin-1")
            return name_and_password.partition(":")[2]
    return ""


def _digits(value: bytes) -> bytes:
    """Return a length that is one, else 0."""
    if value.isdigit() and len(value) < 16:
        return value
    return b"0"
