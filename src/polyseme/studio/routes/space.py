"""Routes of the map: where items, tags and known tag sets lie in the concept space.

`host: Host` is the model that the address names. A *record* is a dict that becomes JSON, with the
fields of the interface.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, HTTPException, Request
from fastapi import Path as InPath
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from polyseme.studio.http import (
    NUMBERS,
    PROBLEMS,
    Host,
    address_of,
    body_route,
    json_response,
    nearest_records,
    place_on_map,
    read_request,
)
from polyseme.studio.landscape import shared_labels
from polyseme.studio.schemas import DocumentsBody, Thing

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@body_route(router, "place", Thing, "map", "Where something lies")
async def place(request: Request, host: Host) -> Response:
    """Return where an item, or tags, lie on the map."""
    _, query, _ = await read_request(request, Thing, host)
    snapshot = host.snapshot
    content = await run_in_threadpool(place_on_map, host, query)
    return json_response(content, snapshot.version)


@router.get("/models/{model}/space", tags=["map"], summary="The map of the concept space")
def space(host: Host) -> Response:
    """Describe the map: labels, captions, bounds, and where its points are found."""
    snapshot = host.snapshot
    picture = host.map(snapshot)
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
        "kinds": [snapshot.kinds.get(label, "oov") for label in store.labels],
        "bounds": bounds,
        "anchors": [asdict(anchor) for anchor in picture.anchors],
        "layout": picture.landscape.layout,
        "version": picture.digest,
        "points": f"/v1/models/{address_of(host.name)}/space/points?v={picture.digest}",
    }
    return json_response(content, snapshot.version)


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
    entity_tag = f'"{picture.digest}"'
    headers = {"ETag": entity_tag, "Cache-Control": "private, max-age=86400"}
    if request.headers.get("if-none-match") == entity_tag:
        return Response(status_code=304, headers=headers)
    return Response(picture.dot_bytes, headers=headers, media_type=NUMBERS)


@router.get("/models/{model}/documents/{number}", tags=["map"], summary="A known tag set")
def document(host: Host, number: Annotated[int, InPath(ge=0, lt=2**31)]) -> Response:
    """Return a known document, and those that lie nearest to it in the space."""
    snapshot = host.snapshot
    store = snapshot.tagger.store_
    if number >= len(store.ids):
        raise HTTPException(404, f"There is no document {number}; there are {len(store.ids)}.")
    set_row = int(store.sets[number])  # of the document among the distinct tag sets
    x, y = host.map(snapshot).places[set_row].tolist()
    # The document itself is among the nearest: of nine, eight are others.
    nearest = nearest_records(host, snapshot, store.points[set_row], 9)
    neighbours = [neighbour for neighbour in nearest if neighbour["document"] != number]
    content = {
        "index": number,
        "id": store.ids[number],
        "labels": list(store.document(number)),
        "x": x,
        "y": y,
        "neighbours": neighbours[:8],
    }
    return json_response(content, snapshot.version)


@router.post("/models/{model}/documents/shared", tags=["map"], summary="Tags that documents share")
def shared(body: DocumentsBody, host: Host) -> Response:
    """Return the tags that set some known documents apart from all others."""
    snapshot = host.snapshot
    shared_tags = shared_labels(snapshot.tagger.store_, body.documents)
    records = [asdict(shared_tag) for shared_tag in shared_tags]
    n_documents = len(set(body.documents))
    content = {"n": n_documents, "labels": records}
    return json_response(content, snapshot.version)
