"""Requests and responses: bodies in any form that HTTP carries, names in addresses, JSON.

In: a request as JSON, raw numbers, a file or a form. Out: a `ParsedRequest` for a
model, or an error of one sentence; and what all routes share: dependencies and records.

Terms: a *kind* of body is its pydantic class of `schemas`. A *record* is a dict that becomes JSON;
its keys are the fields of the REST interface, which clients rely on.
"""

from __future__ import annotations

import asyncio
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
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams, UploadFile
from starlette.requests import Request

from polyseme.base.validation import InputError
from polyseme.documents.corpus import MOST_LETTERS
from polyseme.scoring.known_documents import Neighbour
from polyseme.studio.access import Caller
from polyseme.studio.collection import Collection
from polyseme.studio.host import (
    MOST_EXTRACTED,
    ItemFeatures,
    ModelHost,
    Snapshot,
    Suggestion,
    SuggestRequest,
)
from polyseme.studio.schemas import Encoded, Problem, Record, SuggestOptions, Thing

B = TypeVar("B", bound=Thing)
M = TypeVar("M", bound=BaseModel)
# Media types of bodies.
JSON = "application/json"
NUMBERS = "application/octet-stream"  # float32, little endian
NUMPY = "application/x-npy"
FORM = "multipart/form-data"
PDF = "application/pdf"
_FILE_TYPES = ("image/", "audio/", "text/", PDF)  # of bodies that are a file; their beginnings
_FIELD_BYTES = 2**16  # of a field of a form, other than its file


class UnsupportedError(InputError):
    """The body is of a type that cannot be read."""


class ParsedRequest(NamedTuple):
    """What was read from a request that asks a model about an item, tags or both."""

    body: Any  # of the kind that was asked for
    query: SuggestRequest  # checked
    unknown: list[str]  # tags that the model does not know


def suggest_request_of(
    features: ItemFeatures | None,
    tags: Sequence[str],
    suggest_options: SuggestOptions | None = None,
) -> SuggestRequest:
    """Return the request for tags of an item, which has features, tags or both; not checked."""
    tag_names = tuple(tags)
    if suggest_options is None:
        return SuggestRequest(features, tag_names)
    kinds = None
    if suggest_options.kinds is not None:
        # Sorted, so that requests for the same kinds are scored together.
        distinct_kinds = set(suggest_options.kinds)
        kinds = tuple(sorted(distinct_kinds))
    return SuggestRequest(
        features,
        tag_names,
        suggest_options.k,
        suggest_options.threshold,
        suggest_options.precision,
        kinds,
    )


def decode_features(features: list[float] | Encoded | None) -> ItemFeatures | None:
    """Return features of a JSON body, (n_features,); None where there are none."""
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
    """Return little-endian float32 numbers as the features of one item, (n_features,)."""
    if not data or len(data) % 4:
        raise InputError(f"Raw features are float32 numbers of 4 bytes; got {len(data)} bytes.")
    numbers = np.frombuffer(data, dtype="<f4")
    return numbers.astype(np.float32, copy=False)


def read_npy(data: bytes) -> NDArray[np.float32]:
    """Return the array of an .npy file, (n_items, n_features), executing nothing in it."""
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
    """Read a request about one item in any form, and check that the model can answer it.

    Options that are not in a JSON body are in the query of the address.

    Parameters
    ----------
    request : Request
    kind : type
        The body's schema, a `Thing` with what else is asked.
    host : ModelHost
        Whose collection and extractor may be needed.

    Raises
    ------
    InputError
        With one sentence about what cannot be used.
    """
    media = media_of(request)
    sent_features: ItemFeatures | None = None
    if media == JSON or media.endswith("+json"):
        body = parsed(kind, await request.body())
    elif media == FORM:
        body, data = await _read_form(request, kind)
        if data is not None:
            sent_features = await extract_file(data, host)
    else:
        body = options(kind, request.query_params)
        if media == NUMBERS:
            sent_features = _decode_float32(await request.body())
        elif media == NUMPY:
            rows = read_npy(await request.body())
            if len(rows) > 1:
                raise InputError(f"One row is asked about at a time; got {len(rows)}: use -batch.")
            sent_features = rows[0]
        elif media.startswith(_FILE_TYPES):
            sent_features = await extract_file(await request.body(), host)
        else:
            raise UnsupportedError(
                f"'{media[:60]}' cannot be read; send {JSON}, {NUMBERS} (float32), {NUMPY}, "
                f"image/*, audio/*, text/*, {PDF} or {FORM}."
            )
    check_thing(body, sent_features)
    if body.text is not None:
        sent_features = await extract_text(body.text, host)
    features = features_of_thing(body, host, sent_features)
    suggest_options = body if isinstance(body, SuggestOptions) else None
    query = suggest_request_of(features, body.tags, suggest_options)
    checked_query, unknown_tags = host.check(query)
    return ParsedRequest(body, checked_query, unknown_tags)


def media_of(request: Request) -> str:
    """Return the media type of a request's body in lower case, without parameters."""
    content_type = request.headers.get("content-type", JSON)
    media, _, _ = content_type.partition(";")
    stripped = media.strip()
    return stripped.lower()


def features_of_thing(
    body: Thing, host: ModelHost, sent: ItemFeatures | None = None
) -> ItemFeatures | None:
    """Return the features of a request's subject; None where it has tags only.

    Features that were `sent` beside the fields of the body, as raw numbers or as a file, or that
    were extracted from its text come first. Else they are among the fields, or the subject is an
    item of the collection.
    """
    if sent is not None:
        return sent
    if body.item is None:
        return decode_features(body.features)
    if host.collection is None:
        raise InputError("This model has no items; start the service with --items.")
    return host.collection.features_of(body.item)


def check_thing(body: Thing, sent: ItemFeatures | None = None) -> None:
    """Raise where a request has more than one subject; `sent` are features beside its fields."""
    has_features = sent is not None or body.features is not None
    if body.text is not None and (has_features or body.item is not None):
        raise InputError("Give a `text`, features (numbers or a file), or an `item`: one of them.")
    if body.item is not None and has_features:
        raise InputError("Give features (numbers or a file) or `item`, not both.")


async def _read_form(request: Request, kind: type[B]) -> tuple[B, bytes | None]:
    """Return the fields of a form as a body, and the content of its file, if it has one."""
    async with request.form(max_files=1, max_fields=32, max_part_size=_FIELD_BYTES) as form:
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
    """Read the fields of a body from the query of an address, or from a form.

    Parameters
    ----------
    kind : type
        The body's schema.
    query : QueryParams
        Of a field that is repeated the last value counts; `tags` and `kinds` are lists.
    commas : bool
        Whether lists may also have commas between their values.
    """
    fields: dict[str, Any] = {}
    for name in query:
        if name in ("place", "file"):
            continue
        values = query.getlist(name)
        if name in ("tags", "kinds"):
            if commas:
                values = ",".join(values).split(",")
            stripped_values = (value.strip() for value in values)
            fields[name] = [value for value in stripped_values if value]
        elif name == "features":
            raise InputError("Features are sent in the body, not in a field.")
        else:
            fields[name] = values[-1]
    return validated(kind, fields)


def whether(query: QueryParams, name: str) -> bool:
    """Read a yes or no of a query, such as `true` or `1`; no where it is not given."""
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
    """Return the JSON parser of a kind of body, cached: making one takes longer than parsing."""
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
    """Return the first error of a body in one sentence, with the field that it is about."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = errors[0]
    steps = [str(step) for step in first["loc"][:4]]
    field = ".".join(steps)
    reason = first["msg"][:200]
    if not field:
        return f"The body cannot be read: {reason}."
    return f"`{field[:100]}`: {reason}."


async def extract_text(text: str, host: ModelHost) -> ItemFeatures:
    """Return the features of a text; texts and files that wait are read together."""
    if host.takes_texts:
        return await host.extraction.submit(text)
    nouns = "numbers" if host.extractor is None else f"{host.extractor.noun}s"
    raise InputError(f"This model takes {nouns}, not texts; only a model of texts takes `text`.")


async def extract_texts(
    texts: Sequence[str | None], host: ModelHost
) -> list[ItemFeatures | InputError | None]:
    """Return the features of each text, or why there are none; None where there is no text."""
    outcomes: list[ItemFeatures | InputError | None] = [None] * len(texts)
    rows = [row for row, text in enumerate(texts) if text is not None]
    # A few at a time: the texts of others wait in the same queue.
    for first in range(0, len(rows), MOST_EXTRACTED):
        rows_now = rows[first : first + MOST_EXTRACTED]
        extracting = [extract_text(texts[row] or "", host) for row in rows_now]
        extracted = await asyncio.gather(*extracting, return_exceptions=True)
        for row, outcome in zip(rows_now, extracted, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, InputError):
                raise outcome
            outcomes[row] = outcome
    return outcomes


async def extract_file(data: bytes, host: ModelHost) -> ItemFeatures:
    """Return the features of an uploaded file; files that wait are read together."""
    if host.extractor is None:
        raise InputError("This model takes numbers, not files; send features.")
    if not data:
        raise InputError("The file is empty.")
    return await host.extraction.submit(data)


# ---------------------------------------------------------------------- what routes share

# By status, for OpenAPI.
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


# Names that browsers would take out of an address: `.` and `..`, and these with spaces behind.
_DOTS = re.compile(r"\.{1,2} *")


class NameConvertor(Convertor[str]):
    """A label or an item in an address: any name, also with slashes and line breaks.

    Browsers and other clients take `.` and `..` out of addresses, however they are encoded; such a
    name is followed by one more space. `addressOf` of `static/api.js` does the same.
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
    """Return a name as a part of an address, for `NameConvertor`.

    Its slashes stay where they separate plain names; clients would change `a//b` and `a/../b`.
    """
    spelled = f"{name} " if _DOTS.fullmatch(name) else name
    steps = spelled.split("/")
    has_plain_steps = {"", ".", ".."}.isdisjoint(steps)
    safe = "/" if has_plain_steps else ""
    return quote(spelled, safe=safe, errors="surrogateescape")


# Coroutines: FastAPI would call functions in a thread, for every request.
async def host_of(request: Request, model: Annotated[str, InPath(max_length=255)]) -> ModelHost:
    """Return the model that an address names, or answer 404."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    host = hosts.get(model)
    if host is None:
        names = ", ".join(hosts)
        asked_name = model[:60]
        raise HTTPException(404, f"There is no model '{asked_name}'; there is {names}.")
    return host


Host = Annotated[ModelHost, Depends(host_of)]


def caller_of(request: Request) -> Caller:
    """Return the caller of a request, whom `app.Frame` has noted."""
    caller: Caller = request.scope["caller"]
    return caller


def needs(scope: str) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency of a route: its caller, or 403 for one without a scope."""

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
    """Return content as JSON, with the version of the model that gave it as `X-Model-Version`."""
    text = _JSON.encode(content)
    data = text.encode("utf-8", "replace")
    headers = None
    if version is not None:
        headers = {"X-Model-Version": version}
    return Response(data, headers=headers, media_type=JSON)


def suggestion_records(suggestions: Sequence[Suggestion]) -> list[dict[str, Any]]:
    """Return suggestions as records, in their order."""
    records: list[dict[str, Any]] = []
    for suggestion in suggestions:
        probability = round(suggestion.probability, 6)
        records.append(
            {"label": suggestion.label, "probability": probability, "kind": suggestion.kind}
        )
    return records


def finite_or_none(value: float | None) -> float | None:
    """Return a measure as JSON has it: None where it is missing, not a number or infinite."""
    if value is None or not np.isfinite(value):
        return None
    return float(value)


# Bodies that are not JSON, for OpenAPI, by their media types.
BINARY = {"schema": {"type": "string", "format": "binary"}}
_FORM_FIELDS = {
    "schema": {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "text": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
}

_FORMS = {NUMBERS: BINARY, NUMPY: BINARY, FORM: _FORM_FIELDS}
_FORMS |= dict.fromkeys(("image/*", "audio/*", "text/*", PDF), BINARY)


def body_of(content: dict[str, Any]) -> dict[str, Any]:
    """Describe a body that a route reads by itself, for OpenAPI: schemas by media type."""
    return {"requestBody": {"required": True, "content": content}}


def body_route(
    router: APIRouter,
    path: str,
    kind: type[BaseModel],
    tag: str,
    summary: str,
    forms: Record = _FORMS,
    **options: Any,
) -> Callable[[Decorated], Decorated]:
    """Return the decorator of a route below a model, whose body is JSON or in another form.

    Parameters
    ----------
    router : APIRouter
    path : str
        Below `/models/{model}/`.
    kind : type
        The schema of the JSON body, which `routes.BODIES` lists as well.
    tag, summary : str
        For OpenAPI: the group of the route, and what it does.
    forms : dict
        Other media types that the body may have, and their schemas.
    **options
        As FastAPI's `router.post` takes them.
    """
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
    """Return the item and the tags of a request as a tagger takes X and `tags`: one row each."""
    X = None
    tags = None
    if query.features is not None:
        X = host.items([query.features])
    if query.tags:
        tags = [query.tags]
    return X, tags


def place_on_map(host: ModelHost, query: SuggestRequest) -> Record:
    """Return where a request's item or tags lie on the map, as a record."""
    X, tags = item_and_tags(host, query)
    x, y = host.place(X, tags)
    return {"x": x, "y": y}


def neighbour_record(neighbour: Neighbour) -> Record:
    """Return a known tag set near an item as a record."""
    return {
        "labels": list(neighbour.document),
        "ids": list(neighbour.document_ids[:5]),
        "distance": neighbour.distance,
        "share": neighbour.share,
    }


def nearest_records(
    host: ModelHost, snapshot: Snapshot, direction: NDArray[np.float32], k: int
) -> list[Record]:
    """Return the k known tag sets nearest to a direction, with their places on the map.

    Parameters
    ----------
    host : ModelHost
    snapshot : Snapshot
    direction : array, shape (n_axes,)
        On the principal axes of the space, of length 1; see `ConceptSpace.points`.
    k : int
    """
    store = snapshot.tagger.store_
    places = host.map(snapshot).places
    records: list[Record] = []
    for neighbour in store.nearest(direction, len(store.labels), k):
        first_id = neighbour.document_ids[0]
        row = snapshot.document_rows[first_id]
        x, y = places[store.sets[row]].tolist()
        record = neighbour_record(neighbour)
        records.append(record | {"document": row, "x": x, "y": y})
    return records
