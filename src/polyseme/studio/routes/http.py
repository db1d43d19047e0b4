"""HTTP parts that all routes share: names in URLs, dependencies, JSON responses, records."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi import Path as InPath
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor

from polyseme.base.validation import InputError
from polyseme.documents.corpus import MOST_LETTERS
from polyseme.scoring.known_documents import Neighbour
from polyseme.studio.access import Caller
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost, Snapshot, Suggestion, SuggestRequest
from polyseme.studio.requests import FORM, JSON, NUMBERS, NUMPY
from polyseme.studio.schemas import Facts, Problem

_SENTENCES = {
    401: "No token was sent, or an unknown one.",
    403: "The token's scope does not allow it.",
    404: "There is no such model, label, item or version.",
    409: "Somebody else has answered differently; `standing` has the answers that stand.",
    413: "More was sent than is allowed.",
    415: "The body is of a type that cannot be read.",
    422: "Something in the request cannot be used.",
    429: "Too much is waiting.",
    503: "The model cannot answer just now.",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {
        "description": text,
        "model": Problem,
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
    for code, text in _SENTENCES.items()
}
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
LabelName = Annotated[str, InPath(min_length=1, max_length=MOST_LETTERS)]
ItemName = Annotated[str, InPath(min_length=1, max_length=1024)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=10**9)]


_DOTS = re.compile(r"\.{1,2} *")


class NameConvertor(Convertor[str]):
    """A label or an item in an address: any name, also with slashes and line breaks.

    Browsers and other clients take `.` and `..` out of addresses, however they are encoded; such a
    name is followed by one more space.
    """

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        """Return the name that a part of an address stands for."""
        if value.endswith(" ") and _DOTS.fullmatch(value):
            return value[:-1]
        return value

    def to_string(self, value: str) -> str:
        """Return a name as a part of an address."""
        return address_of(value)


register_url_convertor("name", NameConvertor())


def address_of(name: str) -> str:
    """Return a name as a part of an address; its slashes stay where they separate plain names."""
    spelled = f"{name} " if _DOTS.fullmatch(name) else name
    steps = spelled.split("/")
    plain = {"", ".", ".."}.isdisjoint(steps)
    safe = "/" if plain else ""
    return quote(spelled, safe=safe, errors="surrogateescape")


# Coroutines: FastAPI would call functions in a thread, for every request.
async def host_of(request: Request, model: Annotated[str, InPath(max_length=255)]) -> ModelHost:
    """Return the model that a path names."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    host = hosts.get(model)
    if host is None:
        names = ", ".join(hosts)
        raise HTTPException(404, f"There is no model '{model[:60]}'; there is {names}.")
    return host


Host = Annotated[ModelHost, Depends(host_of)]


def caller_of(request: Request) -> Caller:
    """Return the caller of a request."""
    caller: Caller = request.scope["caller"]
    return caller


def needs(scope: str) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that refuses callers without a scope."""

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        if not caller.may(scope):
            raise HTTPException(403, f"This needs the scope '{scope}'; yours is '{caller.scope}'.")
        return caller

    return check


Reviewer = Annotated[Caller, Depends(needs("review"))]
Admin = Annotated[Caller, Depends(needs("admin"))]


def collection_of(host: ModelHost) -> Collection:
    """Return the items that people review; raise an error where there are none."""
    if host.collection is None:
        raise InputError("This model has no items to review; start the service with --items.")
    return host.collection


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_response(content: Any, version: str | None = None) -> Response:
    """Return content as JSON, with the version of the model that gave it."""
    text = _JSON.encode(content)
    data = text.encode("utf-8", "replace")
    headers = None
    if version is not None:
        headers = {"X-Model-Version": version}
    return Response(data, headers=headers, media_type=JSON)


def suggestion_records(suggestions: Sequence[Suggestion]) -> list[dict[str, Any]]:
    """Return suggestions as JSON."""
    records: list[dict[str, Any]] = []
    for suggestion in suggestions:
        probability = round(suggestion.probability, 6)
        records.append(
            {"label": suggestion.label, "probability": probability, "kind": suggestion.kind}
        )
    return records


def finite_or_none(value: float | None) -> float | None:
    """Return a measure as JSON: None where it is missing or not finite."""
    if value is None or not np.isfinite(value):
        return None
    return float(value)


BINARY = {"schema": {"type": "string", "format": "binary"}}
_FORM_FIELDS = {
    "schema": {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
}

_FORMS = {NUMBERS: BINARY, NUMPY: BINARY, FORM: _FORM_FIELDS, "image/*": BINARY, "audio/*": BINARY}


def body_of(content: dict[str, Any]) -> dict[str, Any]:
    """Describe a body that a route reads by itself, for OpenAPI."""
    return {"requestBody": {"required": True, "content": content}}


def body_route(
    router: APIRouter,
    path: str,
    kind: type[BaseModel],
    tag: str,
    summary: str,
    forms: Facts = _FORMS,
    **options: Any,
) -> Callable[[Decorated], Decorated]:
    """Return the decorator of a route whose body is JSON of a kind, or in another form."""
    body_schema = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    content = {JSON: body_schema} | forms
    return router.post(
        f"/models/{{model}}/{path}",
        tags=[tag],
        summary=summary,
        openapi_extra=body_of(content),
        **options,
    )


def item_and_tags(
    host: ModelHost, query: SuggestRequest
) -> tuple[Any, list[tuple[str, ...]] | None]:
    """Return the item and the tags of a request, as a tagger takes them."""
    X = None
    tags = None
    if query.features is not None:
        X = host.items([query.features])
    if query.tags:
        tags = [query.tags]
    return X, tags


def place_on_map(host: ModelHost, query: SuggestRequest) -> Facts:
    """Return where an item, or tags, lie on the map."""
    X, tags = item_and_tags(host, query)
    x, y = host.place(X, tags)
    return {"x": x, "y": y}


def neighbour_record(neighbour: Neighbour) -> Facts:
    """Return a known tag set as JSON."""
    return {
        "labels": list(neighbour.document),
        "ids": list(neighbour.document_ids[:5]),
        "distance": neighbour.distance,
        "share": neighbour.share,
    }


def nearest_records(host: ModelHost, snapshot: Snapshot, point: Any, k: int) -> list[Facts]:
    """Return the known tag sets nearest to a point, with their places on the map."""
    store = snapshot.tagger.store_
    places = host.map(snapshot).places
    records: list[Facts] = []
    for neighbour in store.nearest(point, len(store.labels), k):
        first_id = neighbour.document_ids[0]
        document = snapshot.documents[first_id]
        x, y = places[store.sets[document]].tolist()
        record = neighbour_record(neighbour)
        records.append(record | {"document": document, "x": x, "y": y})
    return records
