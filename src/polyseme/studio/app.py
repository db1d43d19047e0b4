"""The application: models behind HTTP, with limits on everything that a client can send.

In: hosts of models, and settings. Out: an ASGI application. Routes are in `routes`, `annif`,
`label_studio` and `photoprism`; this module has what all of them share: access, limits of size and
time, the form of errors, metrics and logs.

Terms, as ASGI has them: the *scope* of a request is a dict that goes with it (not a token's scope);
`receive` yields the messages of its body, and `send` takes those of the response. We add to the
scope: `request_id`, a text, and `caller`, a `Caller`.
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

STATIC = Path(__file__).with_name("static")  # the studio's page and scripts
_CLIENT_CLOSED = 499  # nginx's status for a client that closed the connection
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}")
_LOCAL_HOST = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_PUBLIC_PATHS = ("/health/", "/static/")  # no token is needed for what begins so
# Of every response, for browsers.
_SECURITY_HEADERS = [
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
    """What is counted, for Prometheus; `docs/serve.md` lists the names."""

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
        suggestions.SUGGEST_PATH,
        suggestions.answer_suggest,
        methods=["POST"],
        include_in_schema=False,
    )
    _add_care_routes(app)
    for module in (*routes.MODULES, *interfaces):
        app.include_router(module.router)
    _add_error_handlers(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.openapi = lambda: _describe_api(app)  # type: ignore[method-assign]  # FastAPI's own way
    app.add_middleware(Frame, settings=settings, metrics=app.state.metrics)
    return app


def _describe_api(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description: FastAPI's, with what it cannot know.

    These are the schemas of bodies that routes read themselves, and tokens where they are needed.
    """
    if app.openapi_schema is None:
        from polyseme.studio.routes import BODIES

        description = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        template = "#/components/schemas/{model}"
        _, definitions = models_json_schema(
            [(body, "validation") for body in BODIES], ref_template=template
        )
        components = description.setdefault("components", {})
        components["schemas"] = definitions["$defs"] | components.get("schemas", {})
        if app.state.settings.tokens is not None:
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            description["security"] = [{"token": []}]
        app.openapi_schema = description
    return app.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Warm the models up, refresh them at intervals, and end in order."""
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
    """Load what every model needs, mark the service as ready, then lay out the maps.

    An error is logged; the service then goes on without being ready.
    """
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
        former_error = host.notices.reload_error
        try:
            await asyncio.to_thread(host.refresh)
        except InputError as error:
            host.notices.reload_error = str(error)
            if host.notices.reload_error != former_error:
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
        Of HTTP.
    detail : str
        The sentence, for people.
    request_id : str, optional
        By which the log has the request.
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


# Of an error the first that fits: the last one is the class of all.
_STATUS_BY_ERROR: list[tuple[type[Exception], int]] = [
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


def _add_error_handlers(app: FastAPI) -> None:
    """Answer all errors in one form."""

    async def answer_refusal(request: Request, error: Exception) -> Response:
        statuses = (code for kind, code in _STATUS_BY_ERROR if isinstance(error, kind))
        status = next(statuses)
        detail = str(error) or "Too much is waiting; try again in a second."
        members = {}
        if isinstance(error, ConflictError):
            members["standing"] = [_standing_record(verdict) for verdict in error.standing]
        return problem(status, detail, request.scope.get("request_id"), **members)

    async def answer_malformed(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        message = str(first["msg"])
        # After "body", "query" or "path".
        steps = [str(step) for step in first["loc"][1:5]]
        field = ".".join(steps)
        detail = f"{message}."
        if field:
            detail = f"`{field[:100]}`: {message[:200]}."
        return problem(422, detail, request.scope.get("request_id"))

    async def answer_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        request_id = request.scope.get("request_id")
        response = problem(error.status_code, str(error.detail), request_id)
        response.headers.update(error.headers or {})
        return response

    app.add_exception_handler(InputError, answer_refusal)
    app.add_exception_handler(QueueFullError, answer_refusal)
    app.add_exception_handler(RequestValidationError, answer_malformed)
    app.add_exception_handler(HTTPException, answer_http_error)


def _standing_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict that stands with the fields of `StandingOut`."""
    return {name: getattr(verdict, name) for name in StandingOut.model_fields}


# ---------------------------------------------------------------------- looking after it


def _add_care_routes(app: FastAPI) -> None:
    """Add the routes of health, metrics and the studio's page."""
    no_cache = {"Cache-Control": "no-cache"}  # after an update browsers fetch the page anew

    @app.get("/", include_in_schema=False)
    async def studio() -> Response:
        return FileResponse(STATIC / "index.html", headers=no_cache)

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
        counters: Metrics = app.state.metrics
        counters.model.clear()  # of versions that do not answer any more
        for host in app.state.hosts.values():
            counters.waiting.labels(host.name).set(host.scoring.n_waiting)
            snapshot = host.snapshot
            n_labels = len(snapshot.tagger.classes_)
            counters.model.labels(host.name, snapshot.version).set(n_labels)
        content = generate_latest(counters.registry)
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


class TooLargeError(HTTPException):
    """More was sent than is allowed."""


class Frame:
    """What every request goes through: a name, a caller, limits, a deadline, headers, a log line.

    It is ASGI itself, because nothing between a socket and a batch may cost much.

    Parameters
    ----------
    app : ASGI application
        What answers.
    settings : Settings
    metrics : Metrics
        What is counted goes here.
    """

    def __init__(self, app: Any, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self._process_id = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def _new_request_id(self) -> str:
        """Return an id that no other request has, here or after a new start."""
        return f"{self._process_id}-{next(self._numbers):x}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI calls an application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        sent_id = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = sent_id if _REQUEST_ID.fullmatch(sent_id) else self._new_request_id()
        scope["request_id"] = request_id
        start = time.perf_counter()
        status = 0  # 0 until the response has begun

        async def send_framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                response_headers = message.setdefault("headers", [])
                response_headers.append((b"x-request-id", request_id.encode()))
                response_headers += _SECURITY_HEADERS
            await send(message)

        async def fail(code: int, detail: str) -> None:
            if not status:  # else a response is under way already
                await problem(code, detail, request_id)(scope, receive, send_framed)

        try:
            refusal = self._refuse(scope, headers)
            if refusal is not None:
                await refusal(scope, receive, send_framed)
            else:
                limited_receive = self._limit_body(receive)
                async with asyncio.timeout(self.settings.deadline):
                    await self.app(scope, limited_receive, send_framed)
        except TimeoutError:
            await fail(
                503, f"This took longer than the {self.settings.deadline:g} s that are allowed."
            )
        except ClientDisconnect:
            status = status or _CLIENT_CLOSED
        except Exception:
            _log.exception("request %s failed", request_id)
            await fail(500, f"Something went wrong here; the log has it under {request_id}.")
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _refuse(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Return the response to a caller who is refused; note any other caller in the scope."""
        path = scope["path"]
        request_id = scope["request_id"]
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            return problem(403, "Pages of other origins may not ask.", request_id)
        tokens = self.settings.tokens
        if tokens is None:
            # A page elsewhere can let its own name point to this machine.
            if not _LOCAL_HOST.fullmatch(host):
                return problem(403, "Without tokens only this machine may ask.", request_id)
            scope["caller"] = Caller(None, "admin")
        elif path == "/" or path.startswith(_PUBLIC_PATHS):
            scope["caller"] = Caller(None, "read")
        else:
            token = _token_of(headers.get(b"authorization", b""))
            caller = tokens.caller(token)
            if caller is None:
                response = problem(401, "Send a token: Authorization: Bearer …", request_id)
                response.headers["WWW-Authenticate"] = "Bearer"
                return response
            scope["caller"] = caller
        n_bytes = _declared_length(headers.get(b"content-length", b"0"))
        if n_bytes > self.settings.max_body:
            return problem(413, self._size_sentence(), request_id)
        return None

    def _size_sentence(self) -> str:
        """Return how much may be sent, in a sentence."""
        return f"A request may send {self.settings.max_body / 2**20:g} MiB at the most."

    def _limit_body(self, receive: Receive) -> Receive:
        """Return a `receive` that raises when more arrives than is allowed, declared or not."""
        n_bytes_left = self.settings.max_body

        async def receive_limited() -> Message:
            nonlocal n_bytes_left
            message = await receive()
            n_bytes_left -= len(message.get("body", b""))
            if n_bytes_left < 0:
                raise TooLargeError(413, self._size_sentence())
            return message

        return receive_limited

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log an answer, by its status and the seconds it took."""
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


def _token_of(header: bytes) -> str:
    """Return the token of an `Authorization` header: a bearer's, or the password of Basic.

    Programs such as Label Studio can send a name and a password only. Empty where there is none.
    """
    kind, _, sent = header.decode("latin-1").partition(" ")
    if kind.lower() == "bearer":
        return sent.strip()
    if kind.lower() == "basic":
        with suppress(ValueError):
            name_and_password = base64.b64decode(sent, validate=True).decode("latin-1")
            return name_and_password.partition(":")[2]
    return ""


def _declared_length(header: bytes) -> int:
    """Return the bytes that a `Content-Length` header declares; 0 for what is no such number."""
    if header.isdigit() and len(header) < 16:
        return int(header)
    return 0
