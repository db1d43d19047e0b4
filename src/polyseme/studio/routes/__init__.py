"""Routes of our own, under `/v1`: one module for each resource.

In: requests that `app` has let through. Out: answers of a `ModelHost`. What is scored waits in the
host's queue and is answered together; all else works in a thread.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from polyseme.studio.requests import whether
from polyseme.studio.routes import export, labels, models, review, space, suggestions
from polyseme.studio.routes.http import host_of
from polyseme.studio.schemas import BatchBody, ExplainBody, NeighboursBody, SuggestBody, Thing

MODULES = (models, suggestions, space, labels, review, export)
SUGGEST = "/v1/models/{model}/suggest"
# Bodies of routes that take several forms, for OpenAPI.
BODIES = (BatchBody, ExplainBody, NeighboursBody, SuggestBody, Thing)

_SUGGEST_ROUTE = next(
    route for route in suggestions.router.routes if getattr(route, "path", None) == SUGGEST
)


async def suggest_directly(request: Request) -> Response:
    """Answer as the route `suggest` does, without FastAPI's dependencies."""
    request.scope["route"] = _SUGGEST_ROUTE  # as FastAPI sets it, for what is counted
    host = await host_of(request, request.path_params["model"])
    place = whether(request.query_params, "place")
    return await suggestions.suggest(request, host, place)
