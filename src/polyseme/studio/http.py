"""Requests and responses: bodies in any form that HTTP carries, names in addresses, JSON.

In: a request as JSON, raw numbers, a picture, a sound or a form. Out: a `ParsedRequest` for a
model, or an error of one sentence; and what all routes share: dependencies and records.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import quote

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi import Path as InPath
from fastapi.responses import Response
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams, UploadFile
from starlette.requests import Request

from polyseme.base.validation import InputError
from polyseme.documents.corpus import MOST_LETTERS
from polyseme.scoring.known_documents import Neighbour
from polyseme.studio.access import Caller
from polyseme.studio.collection import Collection
from polyseme.studio.host import ItemFeatures, ModelHost, Snapshot, Suggestion, SuggestRequest
from polyseme.studio.schemas import Encoded, Facts, Problem, SuggestOptions, Thing

B = TypeVar("B", bound=Thing)
M = TypeVar("M", bound=BaseModel)
JSON = "application/json"
NUMBERS = "application/octet-stream"
NUMPY = "application/x-npy"
FORM = "multipart/form-data"
_FIELDS_BYTES = 2**16  # of the other fields of a form


class UnsupportedError(InputError):
    """The body is of a type that cannot be read."""


class ParsedRequest(NamedTuple):
    """The fields of a body, the request to the model, and the tags that it does not know."""

    body: Any
    query: SuggestRequest
    unknown: list[str]


def suggest_request_of(
    row: ItemFeatures | None, tags: Sequence[str], wanted: SuggestOptions | None = None
) -> SuggestRequest:
    """Return the request for tags of a row, of tags or of both."""
    tag_names = tuple(tags)
    if wanted is None:
        return SuggestRequest(row, tag_names)
    kinds = None
    if wanted.kinds is not None:
        distinct_kinds = set(wanted.kinds)
        kinds = tuple(sorted(distinct_kinds))
    return SuggestRequest(row, tag_names, wanted.k, wanted.threshold, wanted.precision, kinds)


def decode_features(features: list[float] | Encoded | None) -> ItemFeatures | None:
    """Return features of a JSON body as a row."""
    if features is None:
        return None
    if isinstance(features, Encoded):
        try:
            data = base64.b64decode(features.base64, validate=True)
            return _decode_float32(data)
        except ValueError:  # not base64
            raise InputError("`base64` of the features cannot be decoded.") from None
    return np.asarray(features, dtype=np.float32)


def _decode_float32(data: bytes) -> ItemFeatures:
    """Return little-endian float32 numbers as a row."""
    if not data or len(data) % 4:
        raise InputError(f"Raw features are float32 numbers of 4 bytes; got {len(data)} bytes.")
    numbers = np.frombuffer(data, dtype="<f4")
    return numbers.astype(np.float32, copy=False)


def read_npy(data: bytes) -> ItemFeatures:
    """Return the array of an .npy file, (n, n_features), without executing anything in it."""
    try:
        array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # numpy raises a dozen kinds, down to those of the tokenizer
        raise InputError("The body is no .npy file of numbers.") from error
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or not array.size:
        raise InputError(
            "An .npy file must hold one row of numbers or several; got an array of "
            f"{array.dtype} with the shape {array.shape}."
        )
    with np.errstate(over="ignore"):  # reported as infinity
        table = np.atleast_2d(array)
        return table.astype(np.float32)


async def read_request(request: Request, kind: type[B], host: ModelHost) -> ParsedRequest:
    """Read a question of any form; options that are not in a JSON body are in the query.

    Parameters
    ----------
    request : Request
    kind : type
        The body's schema, a `Thing` with what else is asked.
    host : ModelHost
        Whose collection and extractor may be needed.
    """
    media = media_of(request)
    row: ItemFeatures | None = None
    if media == JSON or media.endswith("+json"):
        body = parsed(kind, await request.body())
    elif media == FORM:
        body, data = await _read_form(request, kind)
        row = None if data is None else await extract_file(data, host)
    else:
        body = options(kind, request.query_params)
        if media == NUMBERS:
            row = _decode_float32(await request.body())
        elif media == NUMPY:
            rows = read_npy(await request.body())
            if len(rows) > 1:
                raise InputError(f"One row is asked about at a time; got {len(rows)}: use -batch.")
            row = rows[0]
        elif media.startswith(("image/", "audio/")):
            row = await extract_file(await request.body(), host)
        else:
            raise UnsupportedError(
                f"'{media[:60]}' cannot be read; send {JSON}, {NUMBERS} (float32), {NUMPY}, "
                f"image/*, audio/* or {FORM}."
            )
    row = features_of_thing(body, host, row)
    wanted = body if isinstance(body, SuggestOptions) else None
    query, unknown_tags = host.check(suggest_request_of(row, body.tags, wanted))
    return ParsedRequest(body, query, unknown_tags)


def media_of(request: Request) -> str:
    """Return the type of a request's body, without parameters."""
    content_type = request.headers.get("content-type", JSON)
    media, _, _ = content_type.partition(";")
    stripped = media.strip()
    return stripped.lower()


def features_of_thing(
    body: Thing, host: ModelHost, sent: ItemFeatures | None = None
) -> ItemFeatures | None:
    """Return the features of a request's subject, from its fields or sent beside them."""
    if body.item is None and sent is not None:
        return sent
    if body.item is None:
        return decode_features(body.features)
    if sent is not None or body.features is not None:
        raise InputError("Give features (numbers or a file) or `item`, not both.")
    if host.collection is None:
        raise InputError("This model has no items; start the service with --items.")
    return host.collection.features_of(body.item)


async def _read_form(request: Request, kind: type[B]) -> tuple[B, bytes | None]:
    """Read the fields of a form, and its file where it has one."""
    async with request.form(max_files=1, max_fields=32, max_part_size=_FIELDS_BYTES) as form:
        files: list[UploadFile] = []
        fields: list[tuple[str, str]] = []
        for name, value in form.multi_items():
            if isinstance(value, str):
                fields.append((name, value))
        for value in form.values():
            if isinstance(value, UploadFile):
                files.append(value)
        body = options(kind, QueryParams(fields), commas=False)
        data = await files[0].read() if files else None
        return body, data


def options(kind: type[M], query: QueryParams, *, commas: bool = True) -> M:
    """Read the fields of a body from a query or a form; lists are repeated, or have commas."""
    fields: dict[str, Any] = {}
    for name in query:
        if name in ("place", "file"):
            continue
        values = query.getlist(name)
        if name in ("tags", "kinds"):
            if commas:
                values = ",".join(values).split(",")
            stripped_values = [value.strip() for value in values]
            fields[name] = [value for value in stripped_values if value]
        elif name == "features":
            raise InputError("Features are sent in the body, not in a field.")
        else:
            fields[name] = values[-1]
    return validated(kind, fields)


def whether(query: QueryParams, name: str) -> bool:
    """Read a yes or no of a query, as `true` or `1`; no where it is not given."""
    value = query.get(name)
    if value is None:
        return False
    try:
        return _BOOL.validate_python(value)
    except ValidationError as error:
        raise InputError(f"`{name}`: {error.errors()[0]['msg']}.") from None


_BOOL = TypeAdapter(bool)


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return the JSON parser of a kind, cached: making one takes longer than parsing."""
    return TypeAdapter(kind)


def validated(kind: type[M], fields: dict[str, Any]) -> M:
    """Read the fields of a body that came otherwise than as JSON."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InputError(sentence_of(error)) from None


def parsed(kind: type[M], data: bytes) -> M:
    """Read a JSON body."""
    try:
        body: M = _adapter(kind).validate_json(data)
    except ValidationError as error:
        raise InputError(sentence_of(error)) from None
    return body


def sentence_of(error: ValidationError) -> str:
    """Return the first error of a body, in one sentence."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = errors[0]
    steps = [str(step) for step in first["loc"][:4]]
    place = ".".join(steps)
    reason = first["msg"][:200]
    if not place:
        return f"The body cannot be read: {reason}."
    return f"`{place[:100]}`: {reason}."


async def extract_file(data: bytes, host: ModelHost) -> ItemFeatures:
    """Return the features of an uploaded picture or sound; files that wait are read together."""
    if host.extractor is None:
        raise InputError("This model takes numbers, not files; send features.")
    if not data:
        raise InputError("The file is empty.")
    return await host.extraction.submit(data)


# ---------------------------------------------------------------------- what routes share

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
        asked_name = model[:60]
        raise HTTPException(404, f"There is no model '{asked_name}'; there is {names}.")
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
        document = snapshot.document_rows[first_id]
        x, y = places[store.sets[document]].tolist()
        record = neighbour_record(neighbour)
        records.append(record | {"document": document, "x": x, "y": y})
    return records
