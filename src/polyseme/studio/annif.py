"""Annif's REST interface, so that its clients and its `http` backend can ask a model of ours.

In: texts, for a model of texts; else tags as a text, with commas or on lines, and features as
metadata. Out: labels as subjects, each with a URI that stays while its name does. Paths, fields and
their names are Annif's (version 1 of its interface), and status 400 stands where our own routes
answer 422.

Terms, as Annif has them: a *project* is a model, a *vocabulary* the model's labels, a *subject* a
label, a *document* an item or a tag set.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote, unquote

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from polyseme.base.validation import InputError
from polyseme.feedback.verdict_log import Verdict
from polyseme.studio.access import Caller
from polyseme.studio.host import ItemFeatures, ModelHost, Snapshot, Suggestion, SuggestRequest
from polyseme.studio.http import (
    JSON,
    PROBLEMS,
    Host,
    body_of,
    caller_of,
    decode_features,
    extract_texts,
    json_response,
    sentence_of,
)
from polyseme.studio.references import known_tags
from polyseme.studio.schemas import (
    MOST_NUMBERS,
    MOST_TAGS,
    MOST_TEXT_LETTERS,
    TAG_LETTERS,
    Encoded,
    Tag,
)

MOST_DOCUMENTS = 32  # of a batch, as Annif has it
MOST_RESULTS = 1000  # labels of a document
# No language is known of labels: "undetermined", as ISO 639 has it.
LANGUAGE = "und"
# People may have stored such URIs: they stay.
_URI_PREFIX = "urn:polyseme:"
_COMMA_SEPARATED_NUMBERS = re.compile(r"[-+0-9.eE\s]+(,[-+0-9.eE\s]+)*")
_PROBLEM = {"description": "Something in the request cannot be used."}

router = APIRouter(prefix="/v1", tags=["annif"], responses={**PROBLEMS, 400: _PROBLEM})


def uri_of(label: str) -> str:
    """Return the URI of a label; `label_of` turns it back."""
    return _URI_PREFIX + quote(label, safe="")


def label_of(uri: str) -> str | None:
    """Return the label of a URI; None for URIs of others."""
    if uri.startswith(_URI_PREFIX):
        return unquote(uri.removeprefix(_URI_PREFIX))
    return None


class Document(BaseModel):
    """A text, or tags as a text, with features as metadata: the field `features` of `metadata`."""

    text: str = ""
    document_id: str | None = None
    metadata: dict[str, str] = {}


class DocumentBatch(BaseModel):
    """Several documents."""

    documents: Annotated[list[Document], Field(max_length=MOST_DOCUMENTS)]


class Subject(BaseModel):
    """A label that a document should have."""

    uri: Annotated[str, Field(max_length=2000)]
    label: Tag | None = None


class IndexedDocument(Document):
    """A document with its accepted labels."""

    subjects: Annotated[list[Subject], Field(max_length=MOST_TAGS)] = []


class LearnBatch(BaseModel):
    """Documents to learn from."""

    documents: Annotated[list[IndexedDocument], Field(max_length=1000)]


# ---------------------------------------------------------------------- projects and vocabularies


@router.get("/vocabs", summary="Vocabularies, as Annif lists them")
def vocabs(request: Request) -> Response:
    """List the labels of each model as a vocabulary."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    return json_response({"vocabs": [_vocabulary(host) for host in hosts.values()]})


@router.get(
    "/vocabs/{model}/subjects.tsv",
    summary="A vocabulary, as `annif load-vocab` takes it",
    response_class=Response,
    responses={200: {"content": {"text/tab-separated-values": {}}}},
)
def subjects(host: Host) -> Response:
    """List labels with their URIs, one a line: `<URI>`, a tab, the label."""
    lines: list[str] = []
    for label in host.snapshot.kinds:
        name = " ".join(label.split())
        lines.append(f"<{uri_of(label)}>\t{name}\n")
    text = "".join(lines)
    media_type = "text/tab-separated-values; charset=utf-8"
    data = text.encode("utf-8", "replace")
    return Response(data, media_type=media_type)


@router.get("/projects", summary="Models, as Annif lists projects")
def projects(request: Request) -> Response:
    """List the models as projects."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    return json_response({"projects": [_project(host) for host in hosts.values()]})


@router.get("/projects/{model}", summary="A model, as Annif shows a project")
def project(host: Host) -> Response:
    """Describe a model as a project."""
    return json_response(_project(host), host.snapshot.version)


def _vocabulary(host: ModelHost) -> dict[str, Any]:
    """Describe a model's labels as a vocabulary."""
    size = len(host.snapshot.kinds)
    return {"vocab_id": host.name, "languages": [LANGUAGE], "size": size, "loaded": True}


def _project(host: ModelHost) -> dict[str, Any]:
    """Describe a model as a project."""
    return {
        "project_id": host.name,
        "name": host.name,
        "language": LANGUAGE,
        "backend": {"backend_id": "polyseme"},
        "vocab": _vocabulary(host),
        "vocab_language": LANGUAGE,
        "is_trained": True,
        "modification_time": host.changed,
    }


# ---------------------------------------------------------------------- suggesting


# For OpenAPI: how much is asked for, and the fields of a form.
_BOUNDS: dict[str, Any] = {
    "limit": {"type": "integer", "minimum": 0, "default": 10},
    "threshold": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
    "language": {"type": "string"},
}
_TEXT = {"type": "string"}
_FIELDS = {
    "type": "object",
    "required": ["text"],
    "properties": _BOUNDS | {"text": _TEXT, "metadata_features": _TEXT},
}


# Without references, which would lead nowhere in the description of the whole service.
_INDEXED = Document.model_json_schema()
_INDEXED["properties"]["subjects"] = {"type": "array", "items": Subject.model_json_schema()}
_DOCUMENTS = {
    "type": "array",
    "maxItems": MOST_DOCUMENTS,
    "items": Document.model_json_schema(),
}
_BATCH = {"type": "object", "required": ["documents"], "properties": {"documents": _DOCUMENTS}}


@router.post(
    "/projects/{model}/suggest",
    summary="Tags for a text, as Annif suggests subjects",
    openapi_extra=body_of({"application/x-www-form-urlencoded": {"schema": _FIELDS}}),
)
async def suggest(request: Request, host: Host) -> Response:
    """Suggest labels for tags (`text`), for features (`metadata_features`), or for both.

    A model of texts reads `text` itself. Features are numbers with commas between them, or
    little-endian float32 as base64. A text in which no tag is known gets no suggestion.
    """
    async with request.form(max_files=0, max_fields=64, max_part_size=2**22) as form:
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
    if "text" not in fields:
        raise HTTPException(400, "`text` is missing.")
    prefix = "metadata_"  # Annif's clients send the field `features` as `metadata_features`
    metadata: dict[str, str] = {}
    for name, value in fields.items():
        if name.startswith(prefix):
            metadata[name.removeprefix(prefix)] = value
    document = Document(text=fields["text"], metadata=metadata)
    limit, threshold = _bounds(fields)
    results, version = await _suggest(host, [document], limit, threshold)
    return json_response(results[0], version)


@router.post(
    "/projects/{model}/suggest-batch",
    summary="Tags for up to 32 texts",
    openapi_extra=body_of({JSON: {"schema": _BATCH}})
    | {
        "parameters": [
            {"name": name, "in": "query", "schema": schema} for name, schema in _BOUNDS.items()
        ]
    },
)
async def suggest_batch(request: Request, host: Host) -> Response:
    """Suggest labels for several documents; metadata may have `features`."""
    try:
        documents = DocumentBatch.model_validate_json(await request.body()).documents
    except ValidationError as error:
        raise HTTPException(400, sentence_of(error)) from error
    limit, threshold = _bounds(request.query_params)
    results, version = await _suggest(host, documents, limit, threshold)
    for result, document in zip(results, documents, strict=True):
        result["document_id"] = document.document_id
    return json_response(results, version)


async def _suggest(
    host: ModelHost, documents: Sequence[Document], limit: int, threshold: float
) -> tuple[list[dict[str, Any]], str]:
    """Return Annif's record of each document's suggestions, and the version that gave the last.

    Parameters
    ----------
    host : ModelHost
    documents : sequence of Document
    limit : int
        Labels of a document at the most.
    threshold : float
        The lowest probability that is returned.
    """
    try:
        rows = await _features_of_documents(host, documents)
        queries: list[SuggestRequest | None] = []
        for document, features in zip(documents, rows, strict=True):
            queries.append(_suggest_request_of(host, document, features, limit, threshold))
    except InputError as error:
        raise HTTPException(400, str(error)) from error
    answers = await asyncio.gather(*(_submit(host, query) for query in queries))
    version = host.snapshot.version
    results: list[dict[str, Any]] = []
    for snapshot, suggestions in answers:
        version = snapshot.version
        results.append({"results": [_result(suggestion) for suggestion in suggestions]})
    return results, version


async def _features_of_documents(
    host: ModelHost, documents: Sequence[Document]
) -> list[ItemFeatures | None]:
    """Return the features of documents: of their metadata, else, for a model of texts, their text.

    None where there are none; a text in which nothing can be read has none, either.
    """
    rows = [_read_features(document.metadata.get("features")) for document in documents]
    texts: list[str | None] = [None] * len(documents)
    for row, document in enumerate(documents):
        if host.takes_texts and rows[row] is None and document.text.strip():
            texts[row] = document.text[:MOST_TEXT_LETTERS]
    for row, outcome in enumerate(await extract_texts(texts, host)):
        if isinstance(outcome, np.ndarray):
            rows[row] = outcome
    for features in rows:
        if features is not None:
            host.check_features(features)
    return rows


def _tags_of_document(host: ModelHost, document: Document) -> tuple[str, ...]:
    """Return the known labels in a document's text; for a model of texts it is no list of tags."""
    return () if host.takes_texts else tuple(known_tags(host, document.text))


def _suggest_request_of(
    host: ModelHost,
    document: Document,
    features: ItemFeatures | None,
    limit: int,
    threshold: float,
) -> SuggestRequest | None:
    """Return the request that a document stands for; None where nothing is known of it."""
    tags = _tags_of_document(host, document)
    if limit == 0 or (features is None and not tags):
        return None
    return SuggestRequest(features, tags, limit, threshold or None)


async def _submit(
    host: ModelHost, query: SuggestRequest | None
) -> tuple[Snapshot, list[Suggestion]]:
    """Return a model's answer; no suggestion where there is no request, or nothing follows."""
    if query is not None:
        with suppress(InputError):  # all its tags are newer than the space
            return await host.scoring.submit(query)
    return host.snapshot, []


def _read_features(text: str | None) -> ItemFeatures | None:
    """Read features from a field: numbers with commas between them, or base64 of float32.

    None where the field is missing or empty.
    """
    if not text:
        return None
    if "," in text:
        numbers = text.split(",", MOST_NUMBERS)
        if not _COMMA_SEPARATED_NUMBERS.fullmatch(text) or len(numbers) > MOST_NUMBERS:
            raise InputError("`features` must be numbers with commas between them, or base64.")
        try:
            with np.errstate(over="ignore"):  # reported as infinity
                return np.array([float(number) for number in numbers], dtype=np.float32)
        except (ValueError, OverflowError):
            raise InputError("`features` holds something that is no number.") from None
    if len(text) > 8 * MOST_NUMBERS:  # base64 takes 16 letters for 3 numbers
        raise InputError(f"`features` may hold {MOST_NUMBERS} numbers at the most.")
    return decode_features(Encoded(base64=text))


def _bounds(fields: Mapping[str, str]) -> tuple[int, float]:
    """Return how many labels a request wants at the most, and their lowest probability."""
    threshold = 0.0
    try:
        limit = int(fields.get("limit", "10"))
        threshold = float(fields.get("threshold", "0"))
    except ValueError:
        limit = -1
    if limit < 0 or not 0 <= threshold <= 1:
        raise HTTPException(
            400, "`limit` must be a whole number from 0 on, `threshold` between 0 and 1."
        )
    return min(limit, MOST_RESULTS), threshold


def _result(suggestion: Suggestion) -> dict[str, Any]:
    """Return a suggestion as Annif has it."""
    label = suggestion.label
    score = round(suggestion.probability, 6)
    return {"uri": uri_of(label), "label": label, "notation": None, "score": score}


# ---------------------------------------------------------------------- learning


@router.post(
    "/projects/{model}/learn",
    status_code=204,
    response_class=Response,
    summary="Learn from documents with their subjects",
    openapi_extra=body_of({JSON: {"schema": {"type": "array", "items": _INDEXED}}}),
)
async def learn(request: Request, host: Host) -> Response:
    """Learn that labels are right: of an item, where it has features, or as a known tag set.

    The first needs the scope `review`, the second `admin`, as it may bring new labels.
    """
    caller = caller_of(request)
    try:
        records = json.loads(await request.body())
        documents = LearnBatch.model_validate({"documents": records}).documents
    except ValidationError as error:
        raise HTTPException(400, sentence_of(error)) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The body is no JSON.") from error
    indexed_documents = [document for document in documents if document.subjects]
    scopes = {_scope_to_learn(host, document) for document in indexed_documents}
    for scope in sorted(scopes or {"review"}):
        if not caller.may(scope):
            raise HTTPException(403, f"To learn this needs the scope '{scope}'.")
    try:
        rows = await _features_of_documents(host, indexed_documents)
        await run_in_threadpool(_learn, host, indexed_documents, rows, caller)
    except InputError as error:
        raise HTTPException(400, str(error)) from error
    return Response(status_code=204)


def _scope_to_learn(host: ModelHost, document: IndexedDocument) -> str:
    """Return the scope that is needed to learn from a document."""
    is_item = host.takes_texts or bool(document.metadata.get("features"))
    return "review" if is_item else "admin"


def _learn(
    host: ModelHost,
    documents: Sequence[IndexedDocument],
    rows: Sequence[ItemFeatures | None],
    caller: Caller,
) -> None:
    """Learn labels of items with features as accepted, and other documents as known ones."""
    verdicts: list[Verdict] = []
    features_by_name: dict[str, ItemFeatures] = {}
    tag_sets: list[list[str]] = []
    for document, features in zip(documents, rows, strict=True):
        labels = [_label_of_subject(subject) for subject in document.subjects]
        if features is None:
            if host.takes_texts:
                raise InputError("A document to learn from has no text that can be read.")
            tags = known_tags(host, document.text)
            tag_sets.append([*tags, *labels])
            continue
        # The same item has the same name, however often it is sent.
        content_digest = hashlib.sha256(features.tobytes()).hexdigest()[:32]
        name = document.document_id or content_digest
        features_by_name[name] = features
        version = host.snapshot.version
        for label in labels:
            verdicts.append(Verdict(name, label, True, model=version, who=caller.name))
    if verdicts:
        host.learn(verdicts, features_by_name)
    if tag_sets:
        detail = f"{len(tag_sets)} documents by Annif's interface"
        host.change("add", detail, caller.name, lambda tagger: tagger.add_documents(tag_sets))


def _label_of_subject(subject: Subject) -> str:
    """Return the label that a subject stands for: of its URI, or else the one it names."""
    label = label_of(subject.uri) or subject.label or ""
    if 0 < len(label) <= TAG_LETTERS and label.isprintable():
        return label
    raise InputError(f"'{subject.uri[:60]}' is no URI of a label here; give its `label`, too.")
