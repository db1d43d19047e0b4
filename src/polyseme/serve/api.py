"""Routes of our own, under `/v1`: asking, looking around, reviewing, caring for the vocabulary.

In: requests that `app` has let through. Out: answers of a `ModelHost`. What is scored waits in the
host's queue and is answered together; all else works in a thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
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
from polyseme.serve.access import Caller
from polyseme.serve.collection import Collection, UnknownItemError
from polyseme.serve.host import Ask, ModelHost, Snapshot, Suggestion
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
        return value[:-1] if value.endswith(" ") and _DOTS.fullmatch(value) else value

    def to_string(self, value: str) -> str:
        """Return a name as a part of an address."""
        return address_of(value)


register_url_convertor("name", NameConvertor())


def address_of(name: str) -> str:
    """Return a name as a part of an address; its slashes stay where they separate plain names."""
    spelled = f"{name} " if _DOTS.fullmatch(name) else name
    plain = {"", ".", ".."}.isdisjoint(spelled.split("/"))
    return quote(spelled, safe="/" if plain else "", errors="surrogateescape")


# ---------------------------------------------------------------------- who asks what


# Coroutines: FastAPI would call functions in a thread, for every request.
async def host_of(request: Request, model: Annotated[str, InPath(max_length=255)]) -> ModelHost:
    """Find the model that a path names."""
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
    """Make a dependency that lets only callers of a scope through."""

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        if not caller.may(scope):
            raise HTTPException(403, f"This needs the scope '{scope}'; yours is '{caller.scope}'.")
        return caller

    return check


Reviewer = Annotated[Caller, Depends(needs("review"))]
Admin = Annotated[Caller, Depends(needs("admin"))]


def collection_of(host: ModelHost) -> Collection:
    """Return the items that people review, or say that there are none."""
    if host.collection is None:
        raise InputError("This model has no items to review; start the service with --items.")
    return host.collection


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def answer(content: Any, version: str | None = None) -> Response:
    """Return an answer as JSON, with the version of the model that gave it."""
    data = _JSON.encode(content)
    headers = None if version is None else {"X-Model-Version": version}
    return Response(data.encode("utf-8", "replace"), headers=headers, media_type=JSON)


def listed(found: Sequence[Suggestion]) -> list[dict[str, Any]]:
    """Return suggestions as JSON."""
    return [
        {"label": one.label, "probability": round(one.probability, 6), "kind": one.kind}
        for one in found
    ]


# ---------------------------------------------------------------------- models


@router.get("/models", tags=["models"], summary="All models")
def models(request: Request) -> Response:
    """List the models that answer here."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    caller = caller_of(request)
    return answer({"models": [_described(host, caller) for host in hosts.values()]})


@router.get("/models/{model}", tags=["models"], summary="One model")
def model(host: Host, request: Request) -> Response:
    """Describe a model: its sizes, what it takes, and what was measured of it."""
    return answer(_described(host, caller_of(request)), host.now.version)


def _described(host: ModelHost, caller: Caller) -> Facts:
    """Describe a model."""
    now = host.now
    tagger, measured = now.tagger, now.tagger.validation_
    kinds = list(now.kinds.values())
    collection, quality = host.collection, None
    if measured is not None:
        quality = {
            kind: {
                "e_map": _number(part.example_map),
                "c_map": _number(part.concept_map),
                "precision": _number(part.precision),
                "recall": _number(part.recall),
            }
            for kind, part in (("seen", measured.seen), ("unseen", measured.unseen))
        } | {
            "highest_precision_unseen": measured.highest_precision,
            "pool_gain": _number(measured.pool_gain),
            "click_gain": _number(measured.click_gain),
            "baselines": measured.baselines,
        }
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
        "collection": None
        if collection is None
        else {
            "n_items": len(collection),
            "has_media": collection.media is not None,
            "media": collection.media,
            "n_reviewed": collection.n_reviewed(now.reviewed),
            "n_untagged": collection.n_untagged,
        },
        "quality": quality,
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


def _number(value: float | None) -> float | None:
    """Return a measure; None where there is none."""
    return None if value is None or not np.isfinite(value) else float(value)


@router.post("/models/{model}/reload", tags=["models"], summary="Load the model on disk")
def reload(host: Host, who: Admin) -> VersionOut:
    """Load the model beside the one in use; if it cannot be used, the old one goes on."""
    host.reload()
    return VersionOut(version=host.now.version)


@router.get("/models/{model}/versions", tags=["models"], summary="What changed, and when")
def versions(host: Host) -> Response:
    """List the versions that are kept, the oldest first."""
    kept = host.versions.all()
    current = max((one.number for one in kept if one.digest == host.now.digest), default=None)
    return answer({"current": current, "versions": [asdict(one) for one in kept]})


@router.post("/models/{model}/versions/{number}/restore", tags=["models"], summary="Roll back")
def restore(host: Host, who: Admin, number: Annotated[int, InPath(ge=1, lt=10**9)]) -> VersionOut:
    """Put a former version in place, as a new one; what people have answered stays."""
    if number not in {one.number for one in host.versions.all()}:
        raise HTTPException(404, f"There is no version {number}.")
    host.restore(number, who.name)
    return VersionOut(version=host.now.version)


@router.post(
    "/models/{model}/refit",
    tags=["models"],
    summary="Fit the model again, from where it is",
    status_code=202,
)
def refit(host: Host, who: Admin) -> RefitOut:
    """Fit to the items and their tags as they were accepted, in the background.

    The fit starts from the model's members. The model goes on answering, and is replaced when the
    fit is done; answers that are given meanwhile stay. One refit runs at a time (409).
    """
    host.refitting.start(who.name)
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
    bins = {
        kind: [
            {"predicted": predicted, "observed": observed, "n": n}
            for n, predicted, observed in curves.get(kind, ())
            if n
        ]
        for kind in ("seen", "unseen")
    }
    wanted = []
    if tagger.n_features_in_:
        for precision in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
            unseen = np.inf if measured is None else measured.threshold(precision)
            seen = float(tagger.space_.threshold(precision))
            wanted.append(
                {"precision": precision, "seen": _number(seen), "unseen": _number(unseen)}
            )
    return answer(bins | {"thresholds": wanted}, host.now.version)


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
    """Make a route whose body is JSON of a kind, or of one of several other forms."""
    schema = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    extra = body_of({JSON: schema} | forms)
    place = f"/models/{{model}}/{path}"
    return router.post(place, tags=[tag], summary=summary, openapi_extra=extra, **more)


SUGGEST = "/v1/models/{model}/suggest"


async def suggest_directly(request: Request) -> Response:
    """Do what `suggest` does, without FastAPI's dependencies."""
    request.scope["route"] = _SUGGEST_ROUTE  # as FastAPI notes it, for what is counted
    host = await host_of(request, request.path_params["model"])
    return await suggest(request, host, whether(request.query_params, "place"))


@_asking("suggest", SuggestBody, "ask", "Tags for one item", response_model=SuggestOut)
async def suggest(request: Request, host: Host, place: bool = False) -> Response:
    """Rank tags for features, a picture, a sound, an item of the collection, or tags alone.

    Features are sent as JSON, as base64, or as raw float32 numbers (`application/octet-stream`),
    which is fastest; for these, options are in the query.
    """
    _, ask, unknown = await read_question(request, SuggestBody, host)
    now, found = await host.scoring.submit(ask)
    content: dict[str, Any] = {
        "model": host.name,
        "version": now.version,
        "suggestions": listed(found),
        "unknown_tags": unknown,
        "place": None,
    }
    if place:
        content["place"] = await run_in_threadpool(_place, host, ask)
    return answer(content, now.version)


_SUGGEST_ROUTE = next(one for one in router.routes if getattr(one, "path", None) == SUGGEST)


def _given(host: ModelHost, ask: Ask) -> tuple[Any, list[tuple[str, ...]] | None]:
    """Return what is asked about as a tagger takes it: one item, and its tags."""
    X = None if ask.features is None else host.items([ask.features])
    return X, [ask.tags] if ask.tags else None


def _place(host: ModelHost, ask: Ask) -> Facts:
    """Return where an item, or tags, lie on the map."""
    x, y = host.place(*_given(host, ask))
    return {"x": x, "y": y}


@_asking("suggest-batch", BatchBody, "ask", "Tags for many items", {NUMPY: _ROW})
async def suggest_batch(request: Request, host: Host) -> Response:
    """Rank tags for up to 256 items; one that cannot be used has an error and harms no other."""
    if media_of(request) == NUMPY:
        rows = table_of(await request.body())
        if len(rows) > MOST_BATCH:
            raise InputError(f"A batch has {MOST_BATCH} items at the most; got {len(rows)}.")
        wanted = options(Wanted, request.query_params)
        things = [(BatchItem(id=str(place)), row) for place, row in enumerate(rows)]
    else:
        wanted = body = parsed(BatchBody, await request.body())
        things = [(item, None) for item in body.items]
    asks: list[Ask] = []
    results: list[Facts] = []
    for thing, sent in things:
        results.append({"id": thing.id})
        try:
            ask = ask_of(row_of_thing(thing, host, sent), thing.tags, wanted)
            asks.append(host.check(ask)[0])
        except InputError as error:
            status = 404 if isinstance(error, UnknownItemError) else 422
            results[-1]["error"] = {"status": status, "detail": str(error)}
    found = await run_in_threadpool(host.suggest, asks) if asks else []
    now = found[0][0] if found else host.now
    answers = iter(found)
    for result in results:
        if "error" not in result:
            result["suggestions"] = listed(next(answers)[1])
    return answer({"model": host.name, "version": now.version, "results": results}, now.version)


@router.post("/models/{model}/complete", tags=["ask"], summary="Tags that go with tags")
async def complete(body: CompleteBody, host: Host) -> Response:
    """Suggest tags that go with a partial tag set; nothing else is known of the item."""
    ask, unknown = host.check(Ask(None, tuple(body.tags), body.k))
    now, found = await host.scoring.submit(ask)
    content = {"model": host.name, "version": now.version, "unknown_tags": unknown}
    return answer(content | {"suggestions": listed(found)}, now.version)


@_asking("explain", ExplainBody, "ask", "Why a tag has its score")
async def explain(request: Request, host: Host) -> Response:
    """Take a score apart: the parts add up to its logit."""
    body, ask, unknown = await read_question(request, ExplainBody, host)
    now = host.now
    label = now.label(body.label)

    def explained() -> Evidence:
        X, _ = _given(host, ask)
        return now.tagger.explain(X, label, body.k, ask.tags or None)

    evidence = await run_in_threadpool(explained)
    return answer(_evidence(evidence) | {"unknown_tags": unknown}, now.version)


def _evidence(evidence: Evidence) -> Facts:
    """Return evidence as JSON."""

    def part(name: str, value: float, role: str, **more: Any) -> Facts:
        return {
            "name": name,
            "part": value,
            "role": role,
            "probability": None,
            "without": None,
        } | more

    parts = [
        part("how common the tag is", evidence.frequency, "frequency"),
        part("features", evidence.features, "features"),
        *(
            part(tag.tag, tag.part, "tag", probability=tag.probability, without=tag.without)
            for tag in evidence.tags
        ),
        part("other tags", evidence.other_tags, "other_tags"),
        part("known tag sets nearby", evidence.known, "known"),
    ]
    if evidence.verdicts:
        parts.append(part("answers about it", evidence.verdicts, "verdicts"))
    return {
        "label": evidence.label,
        "kind": evidence.kind,
        "probability": evidence.probability,
        "logit": evidence.logit,
        "implied_by": evidence.implied_by,
        "parts": parts,
        "neighbours": [_neighbour(one) | {"holds": one.holds} for one in evidence.neighbours],
    }


def _neighbour(one: Neighbour) -> Facts:
    """Return a known tag set as JSON."""
    return {
        "labels": list(one.document),
        "ids": list(one.document_ids[:5]),
        "distance": one.distance,
        "share": one.share,
    }


@_asking("neighbours", NeighboursBody, "ask", "Known tag sets that are near")
async def neighbours(request: Request, host: Host) -> Response:
    """Return the known tag sets that lie nearest to an item or to tags."""
    body, ask, _ = await read_question(request, NeighboursBody, host)
    now = host.now

    def found() -> list[Facts]:
        point = now.tagger.points(*_given(host, ask))[0]
        return _near(host, now, point, body.k)

    return answer({"neighbours": await run_in_threadpool(found)}, now.version)


def _near(host: ModelHost, now: Snapshot, point: Any, k: int) -> list[Facts]:
    """Return the known tag sets nearest to a point, with their places on the map."""
    store, places = now.tagger.store_, host.map(now)
    listed = []
    for one in store.nearest(point, len(store.labels), k):
        document = now.documents[one.document_ids[0]]
        x, y = places.places[store.sets[document]].tolist()
        listed.append(_neighbour(one) | {"document": document, "x": x, "y": y})
    return listed


# ---------------------------------------------------------------------- looking around


@_asking("place", Thing, "map", "Where something lies")
async def place(request: Request, host: Host) -> Response:
    """Return where an item, or tags, lie on the map."""
    _, ask, _ = await read_question(request, Thing, host)
    now = host.now
    return answer(await run_in_threadpool(_place, host, ask), now.version)


@router.get("/models/{model}/space", tags=["map"], summary="The map of the concept space")
def space(host: Host) -> Response:
    """Describe the map: labels, captions, bounds, and where its points are found."""
    now = host.now
    picture = host.map(now)
    dots, store = picture.dots, picture.store
    bounds = [-1.0, -1.0, 1.0, 1.0]
    if len(dots.xy):
        bounds = [*dots.xy.min(axis=0).tolist(), *dots.xy.max(axis=0).tolist()]
    content = {
        "n_points": len(dots.labels),
        "n_documents": len(store.ids),
        "labels": list(store.labels),
        "kinds": [now.kinds.get(label, "oov") for label in store.labels],
        "bounds": bounds,
        "anchors": [asdict(one) for one in picture.anchors],
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
    near = [one for one in _near(host, now, store.points[row], 9) if one["document"] != number]
    content = {
        "index": number,
        "id": store.ids[number],
        "labels": list(store.document(number)),
        "x": x,
        "y": y,
        "neighbours": near[:8],
    }
    return answer(content, now.version)


@router.post("/models/{model}/documents/shared", tags=["map"], summary="Tags that documents share")
def shared(body: DocumentsBody, host: Host) -> Response:
    """Return the tags that set some known documents apart from all others."""
    found = shared_labels(host.now.tagger.store_, body.documents)
    return answer(
        {"n": len(set(body.documents)), "labels": [asdict(one) for one in found]},
        host.now.version,
    )


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
    wanted = now.key(query) if query else ""
    hidden = set(now.tagger.vocabulary_.blocked)
    found = [
        label
        for label, own in now.kinds.items()
        if kind in (None, own)
        and (not wanted or wanted in now.key(label))
        and (blocked is None or blocked == (label in hidden))
    ]
    measured = now.tagger.validation_
    quality = {} if measured is None else measured.labels

    def rank(label: str) -> tuple[Any, ...]:
        first = bool(wanted) and not now.key(label).startswith(wanted)
        if order == "name":
            return (first, label.casefold())
        if order == "quality":
            value = next((one for one in quality.get(label, ()) if one is not None), None)
            return (first, value is None, -(value or 0.0), label)
        return (first, -now.counts.get(label, 0), label)

    found.sort(key=rank)
    page = [_label(now, label) for label in found[offset : offset + limit]]
    return answer({"total": len(found), "labels": page}, now.version)


def _label(now: Snapshot, label: str) -> Facts:
    """Return what is known of a label."""
    measured = now.tagger.validation_
    seen, unseen = (None, None) if measured is None else measured.labels.get(label, (None, None))
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
    tagger, name = now.tagger, now.label(label)
    vocabulary = tagger.vocabulary_
    content = _label(now, name) | {
        "aliases": [other for other in vocabulary.aliases if vocabulary.resolve(other) == name],
        "implies": list(vocabulary.implies.get(name, ())),
        "senses": [],
        "silhouette": None,
        "companions": [],
        "similar": [],
    }
    if now.counts.get(name):
        content["companions"] = [
            asdict(one)
            for one in companions(tagger.store_, name, normalize=tagger.normalize_labels_)
        ]
        content["similar"] = [
            {"label": other, "alike": alike} for other, alike in now.similar.get(name, ())
        ]
        content |= _senses(tagger, name)
    return answer(content, now.version)


def _senses(tagger: ZeroShotTagger, label: str) -> Facts:
    """Return the senses of a label, each with some of its documents."""
    found = tagger.senses(label)
    if found is None:
        return {}
    senses = []
    for sense, words in enumerate(found.words):
        rows = found.documents[found.senses == sense].tolist()
        sets = dict.fromkeys(tagger.store_.document(row) for row in rows[:50])
        examples = [list(one) for one in islice(sets, 5)]
        one = {"words": list(words), "count": len(rows), "documents": rows}
        senses.append(one | {"example_sets": examples})
    return {"senses": senses, "silhouette": found.silhouette}


@router.post("/models/{model}/labels", tags=["vocabulary"], summary="New labels")
def add(body: AddBody, host: Host, who: Admin) -> AddedOut:
    """Add labels by tag sets, by items of the collection that have them, or by their names."""
    ways = [bool(body.documents), bool(body.items), bool(body.labels)]
    if sum(ways) != 1 or bool(body.label) != bool(body.items):
        raise InputError("Give `documents`, or `label` with `items`, or `labels` by name.")
    before = set(host.now.kinds)
    documents: tuple[str, ...] = ()
    if body.documents:
        detail = ", ".join(dict.fromkeys(tag for one in body.documents for tag in one))
        documents = host.change(
            "add", detail[:200], who.name, lambda tagger: tagger.add_documents(body.documents)
        )
    elif body.labels:
        if host.words is None:
            raise InputError(
                "Labels by name need word vectors; start the service with --word-vectors."
            )
        words = host.words
        host.change(
            "add by name",
            ", ".join(body.labels)[:200],
            who.name,
            lambda tagger: tagger.add_labels(body.labels, words),
        )
    else:
        assert body.label is not None
        host.learn([Verdict(name, body.label, True, who=who.name) for name in body.items])
    now = host.now
    added = [label for label in now.kinds if label not in before]
    return AddedOut(added=added, documents=list(documents), version=now.version)


@router.delete("/models/{model}/labels/{label:name}", tags=["vocabulary"], summary="Remove a label")
def remove(host: Host, label: LabelName, who: Admin) -> VersionOut:
    """Remove a label for good: it is taken out of all known documents."""
    name = host.now.label(label)
    return _changed(host, "remove", name, who, lambda tagger: tagger.remove_labels([name]))


def _changed(
    host: ModelHost, action: str, detail: str, who: Caller, function: Callable[..., Any]
) -> VersionOut:
    """Change a model, and say which version answers now; see `ModelHost.change`."""
    host.change(action, detail, who.name, function)
    return VersionOut(version=host.now.version)


@router.post("/models/{model}/labels/{label:name}/rename", tags=["vocabulary"], summary="Rename")
def rename(body: RenameBody, host: Host, label: LabelName, who: Admin) -> VersionOut:
    """Return a label another name; the former one is still understood."""
    name = host.now.label(label)
    detail = f"{name} to {body.name}"
    return _changed(host, "rename", detail, who, lambda tagger: tagger.rename(name, body.name))


@router.post("/models/{model}/labels/{label:name}/merge", tags=["vocabulary"], summary="Merge")
def merge(body: MergeBody, host: Host, label: LabelName, who: Admin) -> VersionOut:
    """Let another label stand for this one, too."""
    name, into = host.now.label(label), host.now.label(body.into)
    detail = f"{name} into {into}"
    return _changed(host, "merge", detail, who, lambda tagger: tagger.merge(name, into))


@router.post("/models/{model}/labels/{label:name}/block", tags=["vocabulary"], summary="Block")
def block(body: BlockBody, host: Host, label: LabelName, who: Admin) -> VersionOut:
    """Never suggest a label, or suggest it again."""
    name = host.now.label(label)
    action = "unblock" if body.undo else "block"
    return _changed(host, action, name, who, lambda tagger: tagger.block([name], undo=body.undo))


@router.get("/models/{model}/merges", tags=["vocabulary"], summary="Labels that may be one")
def merges(host: Host, limit: Limit = 20) -> Response:
    """Suggest labels to merge, such as cards into card."""
    pairs = host.now.tagger.similar_labels(limit)
    return answer(
        {"pairs": [{"label": a, "into": b, "alike": alike} for a, b, alike in pairs]},
        host.now.version,
    )


@router.get("/models/{model}/candidates", tags=["vocabulary"], summary="Tags it does not know")
def candidates(host: Host, limit: Limit = 100) -> Response:
    """Return tags outside the vocabulary: of the collection's items, and that people asked with."""
    now = host.now
    counts = {} if host.collection is None else host.collection.tag_counts
    given = [(-n, tag, "items") for tag, n in counts.items()]
    given += [(-n, tag, "asked") for tag, n in list(host.told.typed.items())]
    found = sorted(one for one in given if now.known(one[1]) is None)[:limit]
    listed = [{"label": tag, "count": -n, "source": source} for n, tag, source in found]
    return answer({"candidates": listed}, now.version)


# ---------------------------------------------------------------------- reviewing


@router.post("/models/{model}/ask", tags=["review"], summary="What to look at next")
def ask(body: AskBody, host: Host) -> Response:
    """Select which label of which item is worth a yes or no; what was answered is left out."""
    collection, now = collection_of(host), host.now
    label = None if body.label is None else now.label(body.label)
    found = collection.ask(now.tagger, label, body.k, body.strategy)
    questions = [
        {"item": one.item, "label": one.label, "probability": one.probability}
        | {"rank": rank, "why": one.reason}
        for rank, one in enumerate(found, start=1)
    ]
    return answer({"questions": questions}, now.version)


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
    collection, now = collection_of(host), host.now
    found = collection.find(query, tagged)
    if reviewed is not None:
        found = [name for name in found if (name in now.reviewed) == reviewed]
    page = [_item(host, now, name) for name in found[offset : offset + limit]]
    return answer({"total": len(found), "items": page}, now.version)


@router.get("/models/{model}/items/{item:name}", tags=["review"], summary="One item")
def item(host: Host, item: ItemName, k: Annotated[int, Query(ge=1, le=1000)] = 10) -> Response:
    """Return an item with what was answered of it and what is suggested."""
    collection, now = collection_of(host), host.now
    if item not in collection:
        raise HTTPException(404, f"There is no item '{item[:60]}'.")
    found: list[Suggestion] = []
    if now.tagger.n_features_in_:
        found = [Suggestion(*one) for one in collection.suggest(now.tagger, item, k)]
    return answer(_item(host, now, item) | {"suggestions": listed(found)}, now.version)


def _item(host: ModelHost, now: Snapshot, name: str) -> Facts:
    """Return what is known of an item."""
    collection, media = collection_of(host), None
    if collection.has_media(name):
        media = f"/v1/models/{address_of(host.name)}/media/{address_of(name)}"
    picture = media is not None and collection.media == "image"
    # Of several labels that were merged the latest answer counts.
    verdicts = {now.named(verdict.label): verdict for verdict in now.said.get(name, ())}
    return {
        "id": name,
        "tags": list(collection.tags_of(name)),
        "media": media,
        "thumbnail": f"{media}?size=256" if picture else None,
        "verdicts": [
            {"label": label, "answer": verdict.answer, "number": verdict.number, "who": verdict.who}
            for label, verdict in verdicts.items()
        ],
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
    return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})


@router.post("/models/{model}/learn", tags=["review"], summary="Yes and no")
def learn(body: LearnBody, host: Host, who: Reviewer, request: Request) -> NumberedOut:
    """Take answers; they are on disk, and scores have changed, when this returns."""
    name = who.name or body.who
    now = host.now
    said = [
        Verdict(one.item, one.label, one.answer, one.score, one.rank, now.version, name)
        for one in body.verdicts
    ]
    rows = None
    if body.features is not None:
        rows = {name: np.asarray(one, dtype=np.float32) for name, one in body.features.items()}
        for row in rows.values():
            host.check_row(row)
    numbers = host.learn(said, rows, body.seen)
    counted = request.app.state.metrics.verdicts
    for one in body.verdicts:
        kind = host.now.kinds.get(host.now.known(one.label) or "", "oov")
        counted.labels(kind, "yes" if one.answer else "no").inc()
    return NumberedOut(numbers=list(numbers), version=host.now.version)


@router.post("/models/{model}/undo", tags=["review"], summary="Take answers back")
def undo(body: UndoBody, host: Host, who: Reviewer) -> VersionOut:
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
    wanted = None if label is None else now.label(label)
    if after is not None and log.count <= after:  # asked every few seconds: nothing is read
        return answer({"verdicts": [], "last": log.count}, now.version)
    events = list(log.events())
    given = {event.number: event for event in events if isinstance(event, Verdict)}
    undone = {event.undoes for event in events if isinstance(event, Undo)}
    names = {name: now.named(name) for name in {verdict.label for verdict in given.values()}}
    question = {number: (one.item, names[one.label]) for number, one in given.items()}
    latest = {question[number]: number for number in given if number not in undone}
    if after is not None:
        events = [event for event in events if (event.number or 0) > after][:limit]
    changed = {
        question[event.undoes if isinstance(event, Undo) else event.number] for event in events
    }
    numbers = [
        number
        for number in reversed(given)
        if question[number] in changed and wanted in (None, question[number][1])
    ]
    page = []
    for number in numbers if after is not None else numbers[:limit]:
        taken_back = number in undone
        superseded = not taken_back and latest[question[number]] != number
        _, label = question[number]
        state = {"label": label, "undone": taken_back, "superseded": superseded}
        page.append(given[number]._asdict() | state)
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
        said = (one._asdict() for one in now.tagger.verdicts_.standing())
        known = ({key: value for key, value in one.items() if value is not None} for one in said)
        return _download(_lines(known), "verdicts.jsonl")
    collection = collection_of(host)
    if form == "documents":  # as `polyseme fit --documents` takes them
        items = ({"id": name, "labels": tags} for name, tags in now.accepted(collection))
        return _download(_lines(items), "documents.jsonl")
    tag = {"from_name": "tags", "to_name": "item", "type": "taxonomy"}
    tasks = [
        {
            "data": {"item": name},
            "annotations": [{"result": [tag | {"value": {"taxonomy": [[one] for one in tags]}}]}],
        }
        for name, tags in now.accepted(collection)
    ]
    return _download(json.dumps(tasks, ensure_ascii=False), "label-studio.json", JSON)


def _download(text: str, name: str, media: str = "application/jsonl") -> Response:
    """Return a text as a file; it is whole before any of it is sent."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    # What UTF-8 does not have becomes an escape of JSON, and is read back as it was.
    data = text.encode("utf-8", "backslashreplace")
    return Response(data, headers=headers, media_type=media)


def _lines(records: Iterable[Facts]) -> str:
    """Return records as lines of JSON."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)


@router.post(
    "/models/{model}/export/sidecars", tags=["review"], summary="Accepted tags beside the files"
)
def sidecars(body: SidecarBody, host: Host, who: Admin) -> Response:
    """Write accepted tags to XMP files beside the collection's files, or count them."""
    collection, now = collection_of(host), host.now
    n_files, n_tags = 0, 0
    for name, said in now.said.items():
        accepted = [now.named(one.label) for one in said if one.answer]
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
