"""The service: a fitted tagger answers by REST, and a studio in the browser shows it.

In: folders of models, and items that people review. Out: an ASGI application. `host` keeps a model
and its versions, `batching` scores what is asked at once, `app` and `routes` speak HTTP; `annif`,
`label_studio` and `photoprism` are interfaces that other programs know; `static` is the studio.
"""

from __future__ import annotations

from importlib.util import find_spec

from polyseme.base.validation import InputError


def needs_extra() -> None:
    """Raise where the libraries of the service are not installed."""
    for name in ("fastapi", "uvicorn", "prometheus_client", "multipart"):
        if find_spec(name) is None:
            raise InputError(
                "The service needs the extra `serve`; pip install '.[serve]' in a checkout."
            )
