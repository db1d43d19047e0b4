"""Parse requests in any form that HTTP carries: JSON, raw numbers, pictures, sounds, forms.

In: a request. Out: a `ParsedRequest` for a model, or an error of one sentence.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.datastructures import QueryParams, UploadFile
from starlette.requests import Request

from polyseme.base.validation import InputError
from polyseme.studio.host import ModelHost, Row, SuggestRequest
from polyseme.studio.schemas import Encoded, SuggestOptions, Thing

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
    row: Row | None, tags: Sequence[str], wanted: SuggestOptions | None = None
) -> SuggestRequest:
    """Return the request for tags of a row, of tags or of both."""
    tag_names = tuple(tags)
    if wanted is None:
        return SuggestRequest(row, tag_names)
    kinds = None
    if wanted.kinds is not None:
        kinds = tuple(sorted(set(wanted.kinds)))
    return SuggestRequest(row, tag_names, wanted.k, wanted.threshold, wanted.precision, kinds)


def row_of(features: list[float] | Encoded | None) -> Row | None:
    """Return features of a JSON body as a row."""
    if features is None:
        return None
    if isinstance(features, Encoded):
        try:
            data = base64.b64decode(features.base64, validate=True)
            return _row(data)
        except ValueError:  # not base64
            raise InputError("`base64` of the features cannot be decoded.") from None
    return np.asarray(features, dtype=np.float32)


def _row(data: bytes) -> Row:
    """Return little-endian float32 numbers as a row."""
    if not data or len(data) % 4:
        raise InputError(f"Raw features are float32 numbers of 4 bytes; got {len(data)} bytes.")
    numbers = np.frombuffer(data, dtype="<f4")
    return numbers.astype(np.float32, copy=False)


def table_of(data: bytes) -> Row:
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
        return np.atleast_2d(array).astype(np.float32)


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
    row: Row | None = None
    if media == JSON or media.endswith("+json"):
        body = parsed(kind, await request.body())
    elif media == FORM:
        body, data = await _read_form(request, kind)
        row = None if data is None else await row_of_file(data, host)
    else:
        body = options(kind, request.query_params)
        if media == NUMBERS:
            row = _row(await request.body())
        elif media == NUMPY:
            rows = table_of(await request.body())
            if len(rows) > 1:
                raise InputError(f"One row is asked about at a time; got {len(rows)}: use -batch.")
            row = rows[0]
        elif media.startswith(("image/", "audio/")):
            row = await row_of_file(await request.body(), host)
        else:
            raise UnsupportedError(
                f"'{media[:60]}' cannot be read; send {JSON}, {NUMBERS} (float32), {NUMPY}, "
                f"image/*, audio/* or {FORM}."
            )
    row = row_of_thing(body, host, row)
    wanted = body if isinstance(body, SuggestOptions) else None
    query, unknown_tags = host.check(suggest_request_of(row, body.tags, wanted))
    return ParsedRequest(body, query, unknown_tags)


def media_of(request: Request) -> str:
    """Return the type of a request's body, without parameters."""
    content_type = request.headers.get("content-type", JSON)
    media = content_type.partition(";")[0]
    return media.strip().lower()


def row_of_thing(body: Thing, host: ModelHost, sent: Row | None = None) -> Row | None:
    """Return the features of a request's subject, from its fields or sent beside them."""
    if body.item is None:
        return row_of(body.features) if sent is None else sent
    if sent is not None or body.features is not None:
        raise InputError("Give features (numbers or a file) or `item`, not both.")
    if host.collection is None:
        raise InputError("This model has no items; start the service with --items.")
    return host.collection.row(body.item)


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


async def row_of_file(data: bytes, host: ModelHost) -> Row:
    """Return the features of an uploaded picture or sound; files that wait are read together."""
    if host.extractor is None:
        raise InputError("This model takes numbers, not files; send features.")
    if not data:
        raise InputError("The file is empty.")
    return await host.looking.submit(data)
