"""Routes that rank tags for an item, explain a score, and find known tag sets nearby.

`host: Host` is the model that the address names. A *record* is a dict that becomes JSON, with the
fields of the interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from polyseme.base.validation import InputError
from polyseme.scoring.evidence import Evidence
from polyseme.studio.collection import UnknownItemError
from polyseme.studio.host import ItemFeatures, SuggestRequest
from polyseme.studio.http import (
    BINARY,
    NUMPY,
    PROBLEMS,
    Host,
    body_route,
    check_thing,
    extract_texts,
    features_of_thing,
    host_of,
    item_and_tags,
    json_response,
    media_of,
    nearest_records,
    neighbour_record,
    options,
    parsed,
    place_on_map,
    read_npy,
    read_request,
    suggest_request_of,
    suggestion_records,
    whether,
)
from polyseme.studio.schemas import (
    MOST_BATCH,
    BatchBody,
    BatchItem,
    CompleteBody,
    ExplainBody,
    NeighboursBody,
    Record,
    SuggestBody,
    SuggestOptions,
    SuggestOut,
)

SUGGEST_PATH = "/v1/models/{model}/suggest"

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@body_route(router, "suggest", SuggestBody, "ask", "Tags for one item", response_model=SuggestOut)
async def suggest(request: Request, host: Host, place: bool = False) -> Response:
    """Rank tags for features, a file, a text, an item of the collection, or tags alone.

    Features are sent as JSON, as base64, or as raw float32 numbers (`application/octet-stream`),
    which is fastest; for these, options are in the query.
    """
    return await answer_suggest(request)


_SUGGEST_ROUTE = next(
    route for route in router.routes if getattr(route, "path", None) == SUGGEST_PATH
)


async def answer_suggest(request: Request) -> Response:
    """Answer a request of the route `suggest`, without FastAPI's dependencies; see `app`."""
    request.scope["route"] = _SUGGEST_ROUTE  # as FastAPI sets it, for what is counted
    host = await host_of(request, request.path_params["model"])
    wants_place = whether(request.query_params, "place")
    _, query, unknown_tags = await read_request(request, SuggestBody, host)
    snapshot, suggestions = await host.scoring.submit(query)
    content: dict[str, Any] = {
        "model": host.name,
        "version": snapshot.version,
        "suggestions": suggestion_records(suggestions),
        "unknown_tags": unknown_tags,
        "place": None,
    }
    if wants_place:
        content["place"] = await run_in_threadpool(place_on_map, host, query)
    return json_response(content, snapshot.version)


@body_route(router, "suggest-batch", BatchBody, "ask", "Tags for many items", {NUMPY: BINARY})
async def suggest_batch(request: Request, host: Host) -> Response:
    """Rank tags for up to 256 items; one that cannot be used has an error and harms no other."""
    # Features of each item that came beside the JSON fields or of its text, or why it has none.
    sent_rows: Sequence[ItemFeatures | InputError | None]
    if media_of(request) == NUMPY:
        table = read_npy(await request.body())
        if len(table) > MOST_BATCH:
            raise InputError(f"A batch has {MOST_BATCH} items at the most; got {len(table)}.")
        suggest_options = options(SuggestOptions, request.query_params)
        items = [BatchItem(id=str(number)) for number in range(len(table))]
        sent_rows = list(table)
    else:
        suggest_options = body = parsed(BatchBody, await request.body())
        items = body.items
        sent_rows = await extract_texts([item.text for item in items], host)

    queries: list[SuggestRequest] = []
    results: list[Record] = []
    for batch_item, sent_features in zip(items, sent_rows, strict=True):
        result: Record = {"id": batch_item.id}
        results.append(result)
        try:
            check_thing(batch_item)
            if isinstance(sent_features, InputError):
                raise sent_features
            features = features_of_thing(batch_item, host, sent_features)
            query = suggest_request_of(features, batch_item.tags, suggest_options)
            checked_query, _ = host.check(query)
            queries.append(checked_query)
        except InputError as error:
            status = 404 if isinstance(error, UnknownItemError) else 422
            result["error"] = {"status": status, "detail": str(error)}

    answers = await run_in_threadpool(host.suggest, queries) if queries else []
    snapshot = answers[0][0] if answers else host.snapshot
    answered_results = [result for result in results if "error" not in result]
    for result, (_, suggestions) in zip(answered_results, answers, strict=True):
        result["suggestions"] = suggestion_records(suggestions)
    return json_response(
        {"model": host.name, "version": snapshot.version, "results": results}, snapshot.version
    )


@router.post("/models/{model}/complete", tags=["ask"], summary="Tags that go with tags")
async def complete(body: CompleteBody, host: Host) -> Response:
    """Suggest tags that go with a partial tag set; nothing else is known of the item."""
    tags = tuple(body.tags)
    query, unknown_tags = host.check(SuggestRequest(None, tags, body.k))
    snapshot, suggestions = await host.scoring.submit(query)
    content = {
        "model": host.name,
        "version": snapshot.version,
        "unknown_tags": unknown_tags,
        "suggestions": suggestion_records(suggestions),
    }
    return json_response(content, snapshot.version)


@body_route(router, "explain", ExplainBody, "ask", "Why a tag has its score")
async def explain(request: Request, host: Host) -> Response:
    """Take a score apart: the parts add up to its logit."""
    body, query, unknown_tags = await read_request(request, ExplainBody, host)
    snapshot = host.snapshot
    label = snapshot.label(body.label)

    def compute_evidence() -> Evidence:
        X, _ = item_and_tags(host, query)
        return snapshot.tagger.explain(X, label, body.k, query.tags or None)

    evidence = await run_in_threadpool(compute_evidence)
    content = _evidence_record(evidence)
    content["unknown_tags"] = unknown_tags
    return json_response(content, snapshot.version)


def _evidence_record(evidence: Evidence) -> Record:
    """Return evidence as a record; `part` of its terms add up to `logit`."""
    terms = [
        _term("how common the tag is", evidence.frequency, "frequency"),
        _term("features", evidence.features, "features"),
    ]
    for tag in evidence.tags:
        term = _term(tag.tag, tag.part, "tag")
        terms.append(term | {"probability": tag.probability, "without": tag.without})
    terms.append(_term("other tags", evidence.other_tags, "other_tags"))
    terms.append(_term("known tag sets nearby", evidence.known, "known"))
    if evidence.name:
        terms.append(_term("the name", evidence.name, "name"))
    if evidence.verdicts:
        terms.append(_term("answers about it", evidence.verdicts, "verdicts"))
    neighbours: list[Record] = []
    for neighbour in evidence.neighbours:
        neighbours.append(neighbour_record(neighbour) | {"holds": neighbour.holds})
    return {
        "label": evidence.label,
        "kind": evidence.kind,
        "probability": evidence.probability,
        "logit": evidence.logit,
        "implied_by": evidence.implied_by,
        "parts": terms,
        "neighbours": neighbours,
    }


def _term(name: str, value: float, role: str) -> Record:
    """Return the record of one term of a logit: its name for people, and its role for programs."""
    return {"name": name, "part": value, "role": role, "probability": None, "without": None}


@body_route(router, "neighbours", NeighboursBody, "ask", "Known tag sets that are near")
async def neighbours(request: Request, host: Host) -> Response:
    """Return the known tag sets that lie nearest to an item or to tags."""
    body, query, _ = await read_request(request, NeighboursBody, host)
    snapshot = host.snapshot

    def find_neighbours() -> list[Record]:
        X, tags = item_and_tags(host, query)
        tagger = snapshot.tagger
        codes = tagger.transform(X, tags)
        directions = tagger.space_.points(codes)
        return nearest_records(host, snapshot, directions[0], body.k)

    records = await run_in_threadpool(find_neighbours)
    return json_response({"neighbours": records}, snapshot.version)
