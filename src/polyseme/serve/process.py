"""One process that serves: uvicorn with our limits, our log, and an end in order."""

from __future__ import annotations

import ctypes
import logging
import sys
from contextlib import suppress
from typing import Any

from polyseme._threads import one_blas_thread

# Seconds that a thread may hold Python's lock while another waits for it: with the usual 5 ms the
# thread that scores waits so long after every product, where HTTP keeps the other one busy.
_SWITCH = 0.0002
# Bytes from which on an array is given back to the system as soon as it is freed. glibc raises its
# own bound to 32 MiB by and by: models that are replaced then leave holes that nothing fits into.
_M_MMAP_THRESHOLD, _GIVEN_BACK = -3, 2**20


def run(app: Any, host: str, port: int, *, json_log: bool = False) -> None:
    """Serve an application until the process is told to stop.

    Parameters
    ----------
    app : ASGI application
    host : str
    port : int
    json_log : bool
        Whether each request is logged, as a line of JSON on standard error.
    """
    import uvicorn

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("polyseme.serve")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO if json_log else logging.WARNING)
    sys.setswitchinterval(_SWITCH)
    with suppress(AttributeError, OSError):  # other systems have other allocators
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _GIVEN_BACK)
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
            backlog=512,
            h11_max_incomplete_event_size=2**16,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=15,
        )
