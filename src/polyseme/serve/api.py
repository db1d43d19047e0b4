"""Routes of our own, under `/v1`: asking, looking around, reviewing, caring for the vocabulary.

In: requests that `app` has let through. Out: answers of a `ModelHost`. What is scored waits in the
host's queue and is answered together; all else works in a thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi import Path as InPath
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor

from polyseme._validation import InputError
from polyseme.corpus import MOST_LETTERS
from polyseme.evidence import Evidence
from polyseme.features.keywords import Keywords, keywords_of
from polyseme.io.xmp import answer_suggestions, merge_tags, sidecar_of
from polyseme.persistence import package_version
from polyseme.senses import label_senses
from polyseme.serve.access import Caller
from polyseme.serve.collection import Collection, UnknownItemError
from polyseme.serve.host import Ask, ModelHost, Row, Snapshot, Suggestion
from polyseme.serve.landscape import companions, shared_labels
from polyseme.serve.questions import (
    FORM,
    JSON,
    NUMBERS,
    NUMPY,
    ask_of,
    media_of,
    options,
    parsed,
    read_question,
    row_of_thing,
    table_of,
    whether,
)
from polyseme.serve.schemas import (
    MOST_BATCH,
    AddBody,
    AddedOut,
    AskBody,
    BatchBody,
    BatchItem,
    BlockBody,
    CompleteBody,
    DocumentsBody,
    ExplainBody,
    Facts,
    LearnBody,
    MergeBody,
    NeighboursBody,
    NumberedOut,
    Problem,
    RefitOut,
    RenameBody,
    SidecarBody,
    SuggestBody,
    SuggestOut,
    Thing,
    UndoBody,
    VersionOut,
    Wanted,
)
from polyseme.store import Neighbour
from polyseme.tagger import ZeroShotTagger
from polyseme.verdicts import Undo, Verdict
from polyseme.vocabulary import similar_labels

_SENTENCES = {
    401: "No token was sent, or one that nobody has.",
    403: "The token's scope does not allow it.",
    404: "There is no such model, label, item or version.",
    409: "Somebody else has answered differently; `standing` has the answers that stand.",
    413: "More was sent than is allowed.",
    415: "The body is of a type that cannot be read.",
    422: "Something in the request cannot be used.",
    429: "Too much is waiting.",
    503: "The model cannot answer just now.",
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {
        "description": text,
        "model": Problem,
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
    for code, text in _SENTENCES.items()
}
router = APIRouter(prefix="/v1", responses=_PROBLEMS)
# Bodies of routes that take several forms, for OpenAPI.
BODIES = (BatchBody, ExplainBody, NeighboursBody, SuggestBody, Thing)

T = TypeVar("T", bound=Callable[..., Any])
LabelName = Annotated[str, InPath(min_length=1, max_length=MOST_LETTERS)]
ItemName = Annotated[str, InPath(min_length=1, max_length=1024)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=10**9)]


# ---------------------------------------------------------------------- names in addresses


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


# ---------------------------------------------------------------------- who asks what


# Coroutines: FastAPI would call functions in a thread, for every request.
async def host_of(request: Request, model: Annotated[str, InPath(max_length=255)]) -> ModelHost:
    """Return the model that a path names."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    if model not in hosts:
        raise HTTPException(404, f"There is no model '{model[:60]}'; there is {', '.join(hosts)}.")
    return hosts[model]


Host = Annotated[ModelHost, Depends(host_of)]


def caller_of(request: Request) -> Caller:
    """Return who asks."""
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


def answer(content: Any, version: str | None = None) -> Response:
    """Return an answer as JSON, with the version of the model that gave it."""
    data = _JSON.encode(content)
    headers = None if version is None else {"X-Model-Version": version}
    return Response(data.encode("utf-8", "replace"), headers=headers, media_type=JSON)


def listed(suggestions: Sequence[Suggestion]) -> list[dict[str, Any]]:
    """Return suggestions as JSON."""
    records: list[dict[str, Any]] = []
    for suggestion in suggestions:
        probability = round(suggestion.probability, 6)
        records.append(
            {"label": suggestion.label, "probability": probability, "kind": suggestion.kind}
        )
    return records


# ---------------------------------------------------------------------- models


@router.get("/models", tags=["models"], summary="All models")
def models(request: Request) -> Response:
    """List the models that answer here."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    caller = caller_of(request)
    descriptions = [_described(host, caller) for host in hosts.values()]
    return answer({"models": descriptions})


@router.get("/models/{model}", tags=["models"], summary="One model")
def model(host: Host, request: Request) -> Response:
    """Describe a model: its sizes, what it takes, and what was measured of it."""
    return answer(_described(host, caller_of(request)), host.now.version)


def _described(host: ModelHost, caller: Caller) -> Facts:
    """Describe a model."""
    now = host.now
    tagger = now.tagger
    kinds = list(now.kinds.values())
    return {
        "id": host.name,
        "version": now.version,
        "n_labels": len(kinds),
        "kinds": {kind: kinds.count(kind) for kind in ("seen", "unseen", "oov")},
        "n_documents": len(tagger.store_.ids),
        "n_features": tagger.n_features_in_,
        "media": None if tagger.features_ is None else tagger.features_.kind,
        "learned_from_pool": tagger.pooled_,
        "can_rank_items": bool(tagger.n_features_in_),
        "takes_names": host.words is not None,
        "collection": _collection_facts(host, now),
        "quality": _quality(tagger),
        "verdicts": {
            "standing": sum(yes + no for yes, no in now.answers.values()),
            "undone": now.n_undone,
            "last": now.n_events,
        },
        "status": "ready",
        "trouble": host.told.trouble,
        "changed": host.changed,
        "scopes": list(caller.scopes),
    }


def _collection_facts(host: ModelHost, now: Snapshot) -> Facts | None:
    """Describe the items that people review; None where there are none."""
    collection = host.collection
    if collection is None:
        return None
    return {
        "n_items": len(collection),
        "has_media": collection.media is not None,
        "media": collection.media,
        "n_reviewed": collection.n_reviewed(now.reviewed),
        "n_untagged": collection.n_untagged,
    }


def _quality(tagger: ZeroShotTagger) -> Facts | None:
    """Return what was measured of a model; None where nothing was."""
    measured = tagger.validation_
    if measured is None:
        return None
    quality: Facts = {}
    for kind, metrics in (("seen", measured.seen), ("unseen", measured.unseen)):
        quality[kind] = {
            "e_map": _number(metrics.example_map),
            "c_map": _number(metrics.concept_map),
            "precision": _number(metrics.precision),
            "recall": _number(metrics.recall),
        }
    return quality | {
        "highest_precision_unseen": measured.highest_precision,
        "pool_gain": _number(measured.pool_gain),
        "click_gain": _number(measured.click_gain),
        "baselines": measured.baselines,
    }


def _number(value: float | None) -> float | None:
    """Return a measure; None where there is none."""
    if value is None or not np.isfinite(value):
        return None
    return float(value)


@router.post("/models/{model}/reload", tags=["models"], summary="Load the model on disk")
def reload(host: Host, caller: Admin) -> VersionOut:
    """Load the model beside the one in use; if it cannot be used, the old one goes on."""
    host.reload()
    return VersionOut(version=host.now.version)


@router.get("/models/{model}/versions", tags=["models"], summary="What changed, and when")
def versions(host: Host) -> Response:
    """List the versions that are kept, the oldest first."""
    versions = host.versions.all()
    digest = host.now.digest
    numbers = [version.number for version in versions if version.digest == digest]
    current = max(numbers, default=None)
    records = [asdict(version) for version in versions]
    return answer({"current": current, "versions": records})


@router.post("/models/{model}/versions/{number}/restore", tags=["models"], summary="Roll back")
def restore(
    host: Host, caller: Admin, number: Annotated[int, InPath(ge=1, lt=10**9)]
) -> VersionOut:
    """Put a former version in place, as a new one; what people have answered stays."""
    numbers = {version.number for version in host.versions.all()}
    if number not in numbers:
        raise HTTPException(404, f"There is no version {number}.")
    host.restore(number, caller.name)
    return VersionOut(version=host.now.version)


@router.post(
    "/models/{model}/refit",
    tags=["models"],
    summary="Fit the model again, from where it is",
    status_code=202,
)
def refit(host: Host, caller: Admin) -> RefitOut:
    """Fit to the items and their tags as they were accepted, in the background.

    The fit starts from the model's members. The model goes on answering, and is replaced when the
    fit is done; answers that are given meanwhile stay. One refit runs at a time (409).
    """
    host.refitting.start(caller.name)
    return RefitOut(**asdict(host.refitting.status))


@router.get("/models/{model}/refit", tags=["models"], summary="How far the refit is")
def refit_status(host: Host) -> RefitOut:
    """Return the state of the last refit, how many rounds are done, and why it failed."""
    return RefitOut(**asdict(host.refitting.status))


@router.get("/models/{model}/reliability", tags=["models"], summary="Are probabilities true?")
def reliability(host: Host) -> Response:
    """Return predicted and observed frequencies of held-out items, and thresholds by precision."""
    tagger = host.now.tagger
    measured = tagger.validation_
    curves = {} if measured is None else measured.curves
    content: Facts = {}
    for kind in ("seen", "unseen"):
        bins: list[Facts] = []
        for n, predicted, observed in curves.get(kind, ()):
            if n:
                bins.append({"predicted": predicted, "observed": observed, "n": n})
        content[kind] = bins
    thresholds: list[Facts] = []
    if tagger.n_features_in_:
        for precision in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
            unseen = np.inf if measured is None else measured.threshold(precision)
            seen = float(tagger.space_.threshold(precision))
            thresholds.append(
                {"precision": precision, "seen": _number(seen), "unseen": _number(unseen)}
            )
    content["thresholds"] = thresholds
    return answer(content, host.now.version)


# ---------------------------------------------------------------------- asking


_ROW = {"schema": {"type": "string", "format": "binary"}}
_FORM_FIELDS = {
    "schema": {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
}


_FORMS = {NUMBERS: _ROW, NUMPY: _ROW, FORM: _FORM_FIELDS, "image/*": _ROW, "audio/*": _ROW}


def body_of(content: dict[str, Any]) -> dict[str, Any]:
    """Describe a body that a route reads by itself, for OpenAPI."""
    return {"requestBody": {"required": True, "content": content}}


def _asking(
    path: str, kind: type[BaseModel], tag: str, summary: str, forms: Facts = _FORMS, **more: Any
) -> Callable[[T], T]:
    """Return the decorator of a route whose body is JSON of a kind, or in another form."""
    body_schema = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    content = {JSON: body_schema} | forms
    return router.post(
        f"/models/{{model}}/{path}",
        tags=[tag],
        summary=summary,
        openapi_extra=body_of(content),
        **more,
    )


SUGGEST = "/v1/models/{model}/suggest"


async def suggest_directly(request: Request) -> Response:
    """Answer as `suggest` does, without FastAPI's dependencies."""
    request.scope["route"] = _SUGGEST_ROUTE  # as FastAPI notes it, for what is counted
    host = await host_of(request, request.path_params["model"])
    return await suggest(request, host, whether(request.query_params, "place"))


@_asking("suggest", SuggestBody, "ask", "Tags for one item", response_model=SuggestOut)
async def suggest(request: Request, host: Host, place: bool = False) -> Response:
    """Rank tags for features, a picture, a sound, an item of the collection, or tags alone.

    Features are sent as JSON, as base64, or as raw float32 numbers (`application/octet-stream`),
    which is fastest; for these, options are in the query.
    """
    _, ask, unknown_tags = await read_question(request, SuggestBody, host)
    now, suggestions = await host.scoring.submit(ask)
    content: dict[str, Any] = {
        "model": host.name,
        "version": now.version,
        "suggestions": listed(suggestions),
        "unknown_tags": unknown_tags,
        "place": None,
    }
    if place:
        content["place"] = await run_in_threadpool(_place, host, ask)
    return answer(content, now.version)


_SUGGEST_ROUTE = next(route for route in router.routes if getattr(route, "path", None) == SUGGEST)


def _item_and_tags(host: ModelHost, ask: Ask) -> tuple[Any, list[tuple[str, ...]] | None]:
    """Return what is asked about as a tagger takes it: one item, and its tags."""
    X = None if ask.features is None else host.items([ask.features])
    tags = [ask.tags] if ask.tags else None
    return X, tags


def _place(host: ModelHost, ask: Ask) -> Facts:
    """Return where an item, or tags, lie on the map."""
    X, tags = _item_and_tags(host, ask)
    x, y = host.place(X, tags)
    return {"x": x, "y": y}


@_asking("suggest-batch", BatchBody, "ask", "Tags for many items", {NUMPY: _ROW})
async def suggest_batch(request: Request, host: Host) -> Response:
    """Rank tags for up to 256 items; one that cannot be used has an error and harms no other."""
    sent_rows: Sequence[Row | None]
    if media_of(request) == NUMPY:
        table = table_of(await request.body())
        if len(table) > MOST_BATCH:
            raise InputError(f"A batch has {MOST_BATCH} items at the most; got {len(table)}.")
        wanted = options(Wanted, request.query_params)
        items = [BatchItem(id=str(number)) for number in range(len(table))]
        sent_rows = list(table)
    else:
        wanted = body = parsed(BatchBody, await request.body())
        items = body.items
        sent_rows = [None] * len(items)

    asks: list[Ask] = []
    results: list[Facts] = []
    for batch_item, sent_row in zip(items, sent_rows, strict=True):
        result: Facts = {"id": batch_item.id}
        results.append(result)
        try:
            row = row_of_thing(batch_item, host, sent_row)
            item_ask, _ = host.check(ask_of(row, batch_item.tags, wanted))
            asks.append(item_ask)
        except InputError as error:
            status = 404 if isinstance(error, UnknownItemError) else 422
            result["error"] = {"status": status, "detail": str(error)}

    answers = await run_in_threadpool(host.suggest, asks) if asks else []
    now = answers[0][0] if answers else host.now
    answered_results = [result for result in results if "error" not in result]
    for result, (_, suggestions) in zip(answered_results, answers, strict=True):
        result["suggestions"] = listed(suggestions)
    return answer({"model": host.name, "version": now.version, "results": results}, now.version)


@router.post("/models/{model}/complete", tags=["ask"], summary="Tags that go with tags")
async def complete(body: CompleteBody, host: Host) -> Response:
    """Suggest tags that go with a partial tag set; nothing else is known of the item."""
    tags = tuple(body.tags)
    ask, unknown_tags = host.check(Ask(None, tags, body.k))
    now, suggestions = await host.scoring.submit(ask)
    content = {
        "model": host.name,
        "version": now.version,
        "unknown_tags": unknown_tags,
        "suggestions": listed(suggestions),
    }
    return answer(content, now.version)


@_asking("explain", ExplainBody, "ask", "Why a tag has its score")
async def explain(request: Request, host: Host) -> Response:
    """Take a score apart: the parts add up to its logit."""
    body, ask, unknown_tags = await read_question(request, ExplainBody, host)
    now = host.now
    label = now.label(body.label)

    def compute_evidence() -> Evidence:
        X, _ = _item_and_tags(host, ask)
        return now.tagger.explain(X, label, body.k, ask.tags or None)

    evidence = await run_in_threadpool(compute_evidence)
    content = _evidence(evidence)
    content["unknown_tags"] = unknown_tags
    return answer(content, now.version)


def _evidence(evidence: Evidence) -> Facts:
    """Return evidence as JSON."""
    terms = [
        _term("how common the tag is", evidence.frequency, "frequency"),
        _term("features", evidence.features, "features"),
    ]
    for tag in evidence.tags:
        term = _term(tag.tag, tag.part, "tag")
        terms.append(term | {"probability": tag.probability, "without": tag.without})
    terms.append(_term("other tags", evidence.other_tags, "other_tags"))
    terms.append(_term("known tag sets nearby", evidence.known, "known"))
    if evidence.verdicts:
        terms.append(_term("answers about it", evidence.verdicts, "verdicts"))
    neighbours: list[Facts] = []
    for neighbour in evidence.neighbours:
        neighbours.append(_neighbour(neighbour) | {"holds": neighbour.holds})
    return {
        "label": evidence.label,
        "kind": evidence.kind,
        "probability": evidence.probability,
        "logit": evidence.logit,
        "implied_by": evidence.implied_by,
        "parts": terms,
        "neighbours": neighbours,
    }


def _term(name: str, value: float, role: str) -> Facts:
    """Return one term of a logit as JSON."""
    return {"name": name, "part": value, "role": role, "probability": None, "without": None}


def _neighbour(neighbour: Neighbour) -> Facts:
    """Return a known tag set as JSON."""
    return {
        "labels": list(neighbour.document),
        "ids": list(neighbour.document_ids[:5]),
        "distance": neighbour.distance,
        "share": neighbour.share,
    }


@_asking("neighbours", NeighboursBody, "ask", "Known tag sets that are near")
async def neighbours(request: Request, host: Host) -> Response:
    """Return the known tag sets that lie nearest to an item or to tags."""
    body, ask, _ = await read_question(request, NeighboursBody, host)
    now = host.now

    def find_neighbours() -> list[Facts]:
        X, tags = _item_and_tags(host, ask)
        tagger = now.tagger
        points = tagger.space_.points(tagger.transform(X, tags))
        return _near(host, now, points[0], body.k)

    return answer({"neighbours": await run_in_threadpool(find_neighbours)}, now.version)


def _near(host: ModelHost, now: Snapshot, point: Any, k: int) -> list[Facts]:
    """Return the known tag sets nearest to a point, with their places on the map."""
    store = now.tagger.store_
    places = host.map(now).places
    records: list[Facts] = []
    for neighbour in store.nearest(point, len(store.labels), k):
        document = now.documents[neighbour.document_ids[0]]
        row = store.sets[document]
        x, y = places[row].tolist()
        records.append(_neighbour(neighbour) | {"document": document, "x": x, "y": y})
    return records


# ---------------------------------------------------------------------- looking around


@_asking("place", Thing, "map", "Where something lies")
async def place(request: Request, host: Host) -> Response:
    """Return where an item, or tags, lie on the map."""
    _, ask, _ = await read_question(request, Thing, host)
    now = host.now
    content = await run_in_threadpool(_place, host, ask)
    return answer(content, now.version)


@router.get("/models/{model}/space", tags=["map"], summary="The map of the concept space")
def space(host: Host) -> Response:
    """Describe the map: labels, captions, bounds, and where its points are found."""
    now = host.now
    picture = host.map(now)
    dots = picture.dots
    store = picture.store
    bounds = [-1.0, -1.0, 1.0, 1.0]
    if len(dots.xy):
        low = dots.xy.min(axis=0)
        high = dots.xy.max(axis=0)
        bounds = [*low.tolist(), *high.tolist()]
    content = {
        "n_points": len(dots.labels),
        "n_documents": len(store.ids),
        "labels": list(store.labels),
        "kinds": [now.kinds.get(label, "oov") for label in store.labels],
        "bounds": bounds,
        "anchors": [asdict(anchor) for anchor in picture.anchors],
        "layout": picture.landscape.layout,
        "version": picture.digest,
        "points": f"/v1/models/{address_of(host.name)}/space/points?v={picture.digest}",
    }
    return answer(content, now.version)


@router.get(
    "/models/{model}/space/points",
    tags=["map"],
    summary="The map's points",
    response_class=Response,
    responses={200: {"content": {NUMBERS: {}}}, 304: {"description": "As it was."}},
)
def points(host: Host, request: Request) -> Response:
    """Return all points: x and y in turn (float32), then labels, then documents (uint32)."""
    picture = host.map()
    headers = {"ETag": f'"{picture.digest}"', "Cache-Control": "private, max-age=86400"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(picture.points, headers=headers, media_type=NUMBERS)


@router.get("/models/{model}/documents/{number}", tags=["map"], summary="A known tag set")
def document(host: Host, number: Annotated[int, InPath(ge=0, lt=2**31)]) -> Response:
    """Return a known document, and those that lie nearest to it in the space."""
    now = host.now
    store = now.tagger.store_
    if number >= len(store.ids):
        raise HTTPException(404, f"There is no document {number}; there are {len(store.ids)}.")
    row = int(store.sets[number])
    x, y = host.map(now).places[row].tolist()
    nearest = _near(host, now, store.points[row], 9)
    neighbours = [neighbour for neighbour in nearest if neighbour["document"] != number]
    content = {
        "index": number,
        "id": store.ids[number],
        "labels": list(store.document(number)),
        "x": x,
        "y": y,
        "neighbours": neighbours[:8],
    }
    return answer(content, now.version)


@router.post("/models/{model}/documents/shared", tags=["map"], summary="Tags that documents share")
def shared(body: DocumentsBody, host: Host) -> Response:
    """Return the tags that set some known documents apart from all others."""
    documents = body.documents
    labels = shared_labels(host.now.tagger.store_, documents)
    records = [asdict(label) for label in labels]
    content = {"n": len(set(documents)), "labels": records}
    return answer(content, host.now.version)


# ---------------------------------------------------------------------- labels


@router.get("/models/{model}/labels", tags=["vocabulary"], summary="All labels")
def labels(
    host: Host,
    query: Annotated[str, Query(max_length=200)] = "",
    kind: Literal["seen", "unseen", "oov"] | None = None,
    blocked: bool | None = None,
    order: Literal["count", "name", "quality"] = "count",
    offset: Offset = 0,
    limit: Limit = 100,
) -> Response:
    """List labels, those that begin with the query first."""
    now = host.now
    query_key = now.key(query) if query else ""
    blocked_labels = set(now.tagger.vocabulary_.blocked)
    matches: list[str] = []
    for label, label_kind in now.kinds.items():
        if kind is not None and label_kind != kind:
            continue
        if query_key and query_key not in now.key(label):
            continue
        if blocked is not None and blocked != (label in blocked_labels):
            continue
        matches.append(label)
    measured = now.tagger.validation_
    quality = {} if measured is None else measured.labels

    def rank(label: str) -> tuple[Any, ...]:
        begins_otherwise = bool(query_key) and not now.key(label).startswith(query_key)
        if order == "name":
            return (begins_otherwise, label.casefold())
        if order == "quality":
            measures = [measure for measure in quality.get(label, ()) if measure is not None]
            value = measures[0] if measures else None
            return (begins_otherwise, value is None, -(value or 0.0), label)
        return (begins_otherwise, -now.counts.get(label, 0), label)

    matches.sort(key=rank)
    page_labels = matches[offset : offset + limit]
    page = [_label(now, label) for label in page_labels]
    return answer({"total": len(matches), "labels": page}, now.version)


def _label(now: Snapshot, label: str) -> Facts:
    """Return what is known of a label."""
    measured = now.tagger.validation_
    seen: float | None = None
    unseen: float | None = None
    if measured is not None:
        seen, unseen = measured.labels.get(label, (None, None))
    yes, no = now.answers.get(label, (0, 0))
    return {
        "label": label,
        "kind": now.kinds[label],
        "count": now.counts.get(label, 0),
        "blocked": label in now.tagger.vocabulary_.blocked,
        "quality": _number(seen),
        "quality_unseen": _number(unseen),
        "verdicts": {"yes": yes, "no": no},
    }


@router.get("/models/{model}/labels/{label:name}", tags=["vocabulary"], summary="One label")
def card(host: Host, label: LabelName) -> Response:
    """Return what a label means here: its senses, what stands beside it, how well it is found."""
    now = host.now
    tagger = now.tagger
    vocabulary = tagger.vocabulary_
    name = now.label(label)
    aliases = [alias for alias in vocabulary.aliases if vocabulary.resolve(alias) == name]
    content = _label(now, name) | {
        "aliases": aliases,
        "implies": list(vocabulary.implies.get(name, ())),
        "senses": [],
        "silhouette": None,
        "companions": [],
        "similar": [],
    }
    if now.counts.get(name):
        label_companions = companions(tagger.store_, name, normalize=tagger.normalize_labels_)
        content["companions"] = [asdict(companion) for companion in label_companions]
        similar: list[Facts] = []
        for similar_label, alike in now.similar.get(name, ()):
            similar.append({"label": similar_label, "alike": alike})
        content["similar"] = similar
        content |= _senses(tagger, name)
    return answer(content, now.version)


def _senses(tagger: ZeroShotTagger, label: str) -> Facts:
    """Return the senses of a label, each with some of its documents."""
    sense_map = label_senses(tagger.store_, label, normalize=tagger.normalize_labels_)
    if sense_map is None:
        return {}
    records: list[Facts] = []
    for number, words in enumerate(sense_map.words):
        rows = sense_map.documents[sense_map.senses == number].tolist()
        tag_sets = dict.fromkeys(tagger.store_.document(row) for row in rows[:50])
        examples = [list(tag_set) for tag_set in islice(tag_sets, 5)]
        records.append(
            {
                "words": list(words),
                "count": len(rows),
                "documents": rows,
                "example_sets": examples,
            }
        )
    return {"senses": records, "silhouette": sense_map.silhouette}


@router.post("/models/{model}/labels", tags=["vocabulary"], summary="New labels")
def add(body: AddBody, host: Host, caller: Admin) -> AddedOut:
    """Add labels by tag sets, by items of the collection that have them, or by their names."""
    ways = [bool(body.documents), bool(body.items), bool(body.labels)]
    if sum(ways) != 1 or bool(body.label) != bool(body.items):
        raise InputError("Give `documents`, or `label` with `items`, or `labels` by name.")
    before = set(host.now.kinds)
    documents: tuple[str, ...] = ()
    if body.documents:
        tags = dict.fromkeys(chain.from_iterable(body.documents))
        detail = ", ".join(tags)[:200]
        documents = host.change(
            "add", detail, caller.name, lambda tagger: tagger.add_documents(body.documents)
        )
    elif body.labels:
        if host.words is None:
            raise InputError(
                "Labels by name need word vectors; start the service with --word-vectors."
            )
        words = host.words
        detail = ", ".join(body.labels)[:200]
        host.change(
            "add by name",
            detail,
            caller.name,
            lambda tagger: tagger.add_labels(body.labels, words),
        )
    else:
        assert body.label is not None
        verdicts = [Verdict(name, body.label, True, who=caller.name) for name in body.items]
        host.learn(verdicts)
    now = host.now
    added = [label for label in now.kinds if label not in before]
    return AddedOut(added=added, documents=list(documents), version=now.version)


@router.delete("/models/{model}/labels/{label:name}", tags=["vocabulary"], summary="Remove a label")
def remove(host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Remove a label for good: it is taken out of all known documents."""
    name = host.now.label(label)
    return _changed(host, "remove", name, caller, lambda tagger: tagger.remove_labels([name]))


def _changed(
    host: ModelHost, action: str, detail: str, caller: Caller, function: Callable[..., Any]
) -> VersionOut:
    """Return the version that answers after a change; see `ModelHost.change`."""
    host.change(action, detail, caller.name, function)
    return VersionOut(version=host.now.version)


@router.post("/models/{model}/labels/{label:name}/rename", tags=["vocabulary"], summary="Rename")
def rename(body: RenameBody, host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Rename a label; the former name is still understood."""
    name = host.now.label(label)
    new_name = body.name
    detail = f"{name} to {new_name}"
    return _changed(host, "rename", detail, caller, lambda tagger: tagger.rename(name, new_name))


@router.post("/models/{model}/labels/{label:name}/merge", tags=["vocabulary"], summary="Merge")
def merge(body: MergeBody, host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Let another label stand for this one, too."""
    name = host.now.label(label)
    into = host.now.label(body.into)
    detail = f"{name} into {into}"
    return _changed(host, "merge", detail, caller, lambda tagger: tagger.merge(name, into))


@router.post("/models/{model}/labels/{label:name}/block", tags=["vocabulary"], summary="Block")
def block(body: BlockBody, host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Never suggest a label, or suggest it again."""
    name = host.now.label(label)
    undo = body.undo
    action = "unblock" if undo else "block"
    return _changed(host, action, name, caller, lambda tagger: tagger.block([name], undo=undo))


@router.get("/models/{model}/merges", tags=["vocabulary"], summary="Labels that may be one")
def merges(host: Host, limit: Limit = 20) -> Response:
    """Suggest labels to merge, such as cards into card."""
    store = host.now.tagger.store_
    similar_pairs = similar_labels(store.matrix, store.labels, limit)
    pairs: list[Facts] = []
    for label, into, alike in similar_pairs:
        pairs.append({"label": label, "into": into, "alike": alike})
    return answer({"pairs": pairs}, host.now.version)


@router.get("/models/{model}/candidates", tags=["vocabulary"], summary="Tags it does not know")
def candidates(host: Host, limit: Limit = 100) -> Response:
    """Return tags outside the vocabulary: of the collection's items, and that people asked with."""
    now = host.now
    item_tags = {} if host.collection is None else host.collection.tag_counts
    typed_tags = dict(host.told.typed)
    ranking: list[tuple[int, str, str]] = []
    for source, counts in (("items", item_tags), ("asked", typed_tags)):
        for tag, n in counts.items():
            if now.known(tag) is None:
                ranking.append((-n, tag, source))
    ranking.sort()
    records: list[Facts] = []
    for negative_count, tag, source in ranking[:limit]:
        records.append({"label": tag, "count": -negative_count, "source": source})
    return answer({"candidates": records}, now.version)


# ---------------------------------------------------------------------- reviewing


@router.post("/models/{model}/ask", tags=["review"], summary="What to look at next")
def ask(body: AskBody, host: Host) -> Response:
    """Select which label of which item is worth a yes or no; what was answered is left out."""
    collection = collection_of(host)
    now = host.now
    label = None if body.label is None else now.label(body.label)
    questions = collection.ask(now.tagger, label, body.k, body.strategy)
    records: list[Facts] = []
    for rank, question in enumerate(questions, start=1):
        records.append(
            {
                "item": question.item,
                "label": question.label,
                "probability": question.probability,
                "rank": rank,
                "why": question.reason,
            }
        )
    return answer({"questions": records}, now.version)


@router.get("/models/{model}/items", tags=["review"], summary="Items of the collection")
def items(
    host: Host,
    query: Annotated[str, Query(max_length=200)] = "",
    reviewed: bool | None = None,
    tagged: bool | None = None,
    offset: Offset = 0,
    limit: Limit = 50,
) -> Response:
    """List items by their ids and tags; `tagged` and `reviewed` ask for those with or without."""
    collection = collection_of(host)
    now = host.now
    names = collection.find(query, tagged)
    if reviewed is not None:
        names = [name for name in names if (name in now.reviewed) == reviewed]
    page_names = names[offset : offset + limit]
    page = [_item(host, now, name) for name in page_names]
    return answer({"total": len(names), "items": page}, now.version)


@router.get("/models/{model}/items/{item:name}", tags=["review"], summary="One item")
def item(host: Host, item: ItemName, k: Annotated[int, Query(ge=1, le=1000)] = 10) -> Response:
    """Return an item with what was answered of it and what is suggested."""
    collection = collection_of(host)
    now = host.now
    if item not in collection:
        raise HTTPException(404, f"There is no item '{item[:60]}'.")
    suggestions: list[Suggestion] = []
    if now.tagger.n_features_in_:
        ranking = collection.suggest(now.tagger, item, k)
        suggestions = [Suggestion(*ranked) for ranked in ranking]
    content = _item(host, now, item)
    content["suggestions"] = listed(suggestions)
    return answer(content, now.version)


def _item(host: ModelHost, now: Snapshot, name: str) -> Facts:
    """Return what is known of an item."""
    collection = collection_of(host)
    media: str | None = None
    if collection.has_media(name):
        media = f"/v1/models/{address_of(host.name)}/media/{address_of(name)}"
    thumbnail: str | None = None
    if media is not None and collection.media == "image":
        thumbnail = f"{media}?size=256"
    # Of several labels that were merged the latest answer counts.
    verdict_by_label = {now.named(verdict.label): verdict for verdict in now.said.get(name, ())}
    verdicts: list[Facts] = []
    for label, verdict in verdict_by_label.items():
        verdicts.append(
            {
                "label": label,
                "answer": verdict.answer,
                "number": verdict.number,
                "who": verdict.who,
            }
        )
    return {
        "id": name,
        "tags": list(collection.tags_of(name)),
        "media": media,
        "thumbnail": thumbnail,
        "verdicts": verdicts,
    }


@router.get(
    "/models/{model}/media/{item:name}",
    tags=["review"],
    summary="An item's picture or sound",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}, "image/png": {}, "audio/mpeg": {}}}},
)
def media(
    host: Host, item: ItemName, size: Annotated[int, Query(ge=16, le=2048)] = 1024
) -> Response:
    """Return a picture, no larger than asked, or a sound, of an item of the collection."""
    collection = collection_of(host)
    if item not in collection or not collection.has_media(item):
        raise HTTPException(404, f"There is no file of '{item[:60]}'.")
    data, kind = collection.picture(item, size)
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(data, media_type=kind, headers=headers)


@router.post("/models/{model}/learn", tags=["review"], summary="Yes and no")
def learn(body: LearnBody, host: Host, caller: Reviewer, request: Request) -> NumberedOut:
    """Take answers; they are on disk, and scores have changed, when this returns."""
    reviewer = caller.name or body.who
    version = host.now.version
    verdicts = [
        Verdict(sent.item, sent.label, sent.answer, sent.score, sent.rank, version, reviewer)
        for sent in body.verdicts
    ]
    rows: dict[str, Row] | None = None
    if body.features is not None:
        rows = {}
        for name, numbers in body.features.items():
            rows[name] = np.asarray(numbers, dtype=np.float32)
        for row in rows.values():
            host.check_row(row)
    event_numbers = host.learn(verdicts, rows, body.seen)
    counter = request.app.state.metrics.verdicts
    for verdict in verdicts:
        label = host.now.known(verdict.label) or ""
        kind = host.now.kinds.get(label, "oov")
        counter.labels(kind, "yes" if verdict.answer else "no").inc()
    return NumberedOut(numbers=list(event_numbers), version=host.now.version)


@router.post("/models/{model}/undo", tags=["review"], summary="Take answers back")
def undo(body: UndoBody, host: Host, caller: Reviewer) -> VersionOut:
    """Take answers back by their numbers; every score is as if they had never been given."""
    host.undo(body.numbers)
    return VersionOut(version=host.now.version)


@router.get("/models/{model}/verdicts", tags=["review"], summary="What people answered")
def verdicts(
    host: Host,
    label: Annotated[str | None, Query(max_length=200)] = None,
    after: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
    limit: Limit = 100,
) -> Response:
    """List the latest answers, also those that were taken back or replaced by a later one.

    With `after`, all answers to the questions of the first `limit` events after that event; `last`
    is the last of these events, after which to ask next. Without, `last` is the last of all.
    """
    now = host.now
    log = now.tagger.verdicts_
    wanted_label = None if label is None else now.label(label)
    if after is not None and log.count <= after:  # asked every few seconds: nothing is read
        return answer({"verdicts": [], "last": log.count}, now.version)
    events = list(log.events())
    verdict_by_number = {event.number: event for event in events if isinstance(event, Verdict)}
    undone = {event.undoes for event in events if isinstance(event, Undo)}

    # A question is an item and a label; its latest answer stands.
    logged_labels = {verdict.label for verdict in verdict_by_number.values()}
    label_by_logged = {logged: now.named(logged) for logged in logged_labels}
    question_by_number = {
        number: (verdict.item, label_by_logged[verdict.label])
        for number, verdict in verdict_by_number.items()
    }
    latest: dict[tuple[str, str], int | None] = {}
    for number, question in question_by_number.items():
        if number not in undone:
            latest[question] = number

    if after is not None:
        events = [event for event in events if (event.number or 0) > after][:limit]
    changed_questions: set[tuple[str, str]] = set()
    for event in events:
        number = event.undoes if isinstance(event, Undo) else event.number
        changed_questions.add(question_by_number[number])
    numbers: list[int | None] = []
    for number, question in reversed(question_by_number.items()):
        if question in changed_questions and wanted_label in (None, question[1]):
            numbers.append(number)
    if after is None:
        numbers = numbers[:limit]

    page: list[Facts] = []
    for number in numbers:
        question = question_by_number[number]
        is_undone = number in undone
        superseded = not is_undone and latest[question] != number
        state = {"label": question[1], "undone": is_undone, "superseded": superseded}
        page.append(verdict_by_number[number]._asdict() | state)
    last = events[-1].number if events else 0
    return answer({"verdicts": page, "last": last}, now.version)


# ---------------------------------------------------------------------- export


@router.get(
    "/models/{model}/export",
    tags=["review"],
    summary="What was accepted",
    response_class=Response,
    responses={200: {"content": {"application/jsonl": {}, JSON: {}}}},
)
def export(host: Host, form: Literal["jsonl", "documents", "label-studio"] = "jsonl") -> Response:
    """Export answers (`jsonl`), or items with accepted tags (`documents`, Label Studio)."""
    now = host.now
    if form == "jsonl":  # as `polyseme learn` takes them
        standing = [verdict._asdict() for verdict in now.tagger.verdicts_.standing()]
        return _download(_lines(map(_without_none, standing)), "verdicts.jsonl")
    collection = collection_of(host)
    if form == "documents":  # as `polyseme fit --documents` takes them
        documents = ({"id": name, "labels": tags} for name, tags in now.accepted(collection))
        return _download(_lines(documents), "documents.jsonl")
    tasks = [_labelled_task(name, tags) for name, tags in now.accepted(collection)]
    return _download(json.dumps(tasks, ensure_ascii=False), "label-studio.json", JSON)


def _without_none(record: Facts) -> Facts:
    """Return a record without the fields that have no value."""
    return {key: value for key, value in record.items() if value is not None}


def _labelled_task(name: str, tags: Sequence[str]) -> Facts:
    """Return an item with its tags as a task of Label Studio."""
    result = {
        "from_name": "tags",
        "to_name": "item",
        "type": "taxonomy",
        "value": {"taxonomy": [[tag] for tag in tags]},
    }
    return {"data": {"item": name}, "annotations": [{"result": [result]}]}


def _download(text: str, name: str, media: str = "application/jsonl") -> Response:
    """Return a text as a file; it is whole before any of it is sent."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    # What UTF-8 does not have becomes an escape of JSON, and is read back as it was.
    data = text.encode("utf-8", "backslashreplace")
    return Response(data, headers=headers, media_type=media)


def _lines(records: Iterable[Facts]) -> str:
    """Return records as lines of JSON."""
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    return "".join(lines)


@router.post(
    "/models/{model}/export/sidecars", tags=["review"], summary="Accepted tags beside the files"
)
def sidecars(body: SidecarBody, host: Host, caller: Admin) -> Response:
    """Write accepted tags to XMP files beside the collection's files, or count them."""
    collection = collection_of(host)
    now = host.now
    n_files = 0
    n_tags = 0
    for name, verdicts in now.said.items():
        accepted = [now.named(verdict.label) for verdict in verdicts if verdict.answer]
        path = collection.file_of(name) if name in collection else None
        if not accepted or path is None:
            continue
        added = _write_sidecar(path, collection.media, accepted, dry_run=body.dry_run)
        n_files += bool(added)
        n_tags += len(added)
    return answer({"files": n_files, "tags": n_tags, "dry_run": body.dry_run}, now.version)


def _write_sidecar(
    path: Path, kind: str | None, tags: Sequence[str], *, dry_run: bool
) -> list[str]:
    """Add accepted tags to the sidecar of a file; return those that it lacked."""
    sidecar = sidecar_of(path)
    inside = Keywords([], [], [])
    if kind is not None and not sidecar.exists():  # a new one would hide them
        inside = keywords_of(path, kind)
    added = merge_tags(
        sidecar, tags, present=inside.tags, hierarchies=inside.hierarchies, dry_run=dry_run
    )
    if added and not dry_run:
        answer_suggestions(sidecar, accept=added)
    return added


@router.get("/", tags=["models"], summary="What this is")
def root() -> dict[str, str]:
    """Return what answers here."""
    return {"title": "polyseme", "version": package_version()}
