"""Run the service in one process: uvicorn with our limits, our log, and a clean shutdown.

In: the application. Out: nothing; it serves until the process is told to stop.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from polyseme.base.machine import one_blas_thread

# Seconds that a thread may hold Python's lock while another waits for it: with the usual 5 ms the
# thread that scores waits so long after every product, where HTTP keeps the other one busy.
_SWITCH_SECONDS = 0.0002
# glibc keeps freed memory, for each thread by itself: models that are replaced leave holes
# that nothing fits into. One place for all threads, tidied up every so often, stays small.
_M_ARENA_MAX = -8  # number of the option in glibc's malloc.h
_TRIM_SECONDS = 60.0
# Seconds until the head of a request has arrived; the rest has the deadline of a request.
_HEAD_SECONDS = 30.0


def impatient(seconds: float) -> type[Any]:
    """Return uvicorn's protocol, that closes connections on which no request begins.

    Parameters
    ----------
    seconds : float
        How long somebody may take to send the head of a request; at the most twice as long on a
        connection that was used before.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    protocol: Any = AutoHTTPProtocol

    class Impatient(protocol):  # type: ignore[misc]  # one of two classes, whichever is there
        """A connection that is checked at regular intervals."""

        def connection_made(self, transport: Any) -> None:
            """Start the checks of this connection."""
            super().connection_made(transport)
            # The request (uvicorn's cycle) that was the last one at the last check.
            self._last_cycle: Any = None
            self._next_check = self.loop.call_later(seconds, self._check)

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop the checks of this connection."""
            self._next_check.cancel()
            super().connection_lost(exc)

        def _check(self) -> None:
            """Close the connection if no request is under way or came since the last check."""
            is_idle = self.cycle is None or self.cycle.response_complete
            if is_idle and self.cycle is self._last_cycle:
                self.transport.close()
                return
            self._last_cycle = self.cycle
            self._next_check = self.loop.call_later(seconds, self._check)

    return Impatient


def run(app: Any, host: str, port: int, *, json_log: bool = False) -> None:
    """Serve an application until the process is told to stop.

    Parameters
    ----------
    app : ASGI application
    host : str
        The address to listen on.
    port : int
    json_log : bool
        Whether each request is logged, as a line of JSON on standard error.
    """
    import uvicorn

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("polyseme.studio")
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.INFO if json_log else logging.WARNING)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _give_memory_back()
    # One thread scores and another speaks HTTP: more would only wait for each other.
    with one_blas_thread():
        uvicorn.run(
            app,
            host=host,
            port=port,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=512,  # connections that wait to be accepted
            h11_max_incomplete_event_size=2**16,  # bytes of the head of a request
            http=impatient(_HEAD_SECONDS),
            timeout_keep_alive=15,
            timeout_graceful_shutdown=15,
        )


def _give_memory_back() -> None:
    """Let glibc keep freed memory in one place, and return it to the system every minute."""
    with suppress(AttributeError, OSError):  # other systems have other allocators
        library = ctypes.CDLL(None)
        trim = library.malloc_trim
        library.mallopt(_M_ARENA_MAX, 1)

        def tidy() -> None:
            while True:
                time.sleep(_TRIM_SECONDS)
                trim(0)

        threading.Thread(target=tidy, name="tidying", daemon=True).start()
