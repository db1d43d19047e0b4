"""PhotoPrism's interface to a vision service: labels of pictures.

In: pictures as data URLs. Out: labels with confidence and topicality between 0 and 1. In
PhotoPrism's `vision.yml` the `Uri` of the service is `…/api/v1/vision/labels/MODEL`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from polyseme._validation import InputError
from polyseme.serve import api
from polyseme.serve.api import Host, answer
from polyseme.serve.collection import UnknownItemError
from polyseme.serve.host import Ask, ModelHost, Snapshot, Suggestion
from polyseme.serve.references import row_of_reference
from polyseme.serve.schemas import K, Precision, Share

MOST_PICTURES = 8
# Where no other is asked for, and the model can promise it: half of the labels should be true.
_PRECISION = _LIKELY = 0.5

router = APIRouter(prefix="/api/v1/vision", tags=["photoprism"], responses=api.router.responses)


class Bounds(BaseModel):
    """How many labels are wanted, and how likely they must be."""

    k: K = 20
    threshold: Share | None = None
    precision: Precision | None = None


class VisionBody(BaseModel):
    """One picture, as data URLs of several sizes or crops, or as an item of the collection."""

    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, Field(max_length=200)] = ""
    model: Annotated[str, Field(max_length=200)] = ""
    url: str = ""
    images: Annotated[list[str], Field(max_length=MOST_PICTURES)] = []


@router.post("/labels", summary="Labels of a picture, by the model that is named, or the first")
async def labels(
    request: Request, body: VisionBody, bounds: Annotated[Bounds, Query()]
) -> Response:
    """Return labels of a picture, by the first model that looks at pictures unless one is named."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    looking = [host for host in hosts.values() if host.extractor and host.extractor.kind == "image"]
    host = hosts.get(body.model) or next(iter(looking), None)
    if host is None:
        raise HTTPException(404, "No model here looks at pictures.")
    return await labels_by(host, body, bounds)


@router.post("/labels/{model}", summary="Labels of a picture")
async def labels_by(host: Host, body: VisionBody, bounds: Annotated[Bounds, Query()]) -> Response:
    """Return labels of a picture.

    By default those of which half should be true, where the model can promise it; `threshold` and
    `precision` in the address ask for others. Of several pictures, the labels that any of them has.
    """
    k, threshold, precision = bounds.k, bounds.threshold, bounds.precision
    if threshold is None and precision is None:
        measured = host.now.tagger.validation_ is not None
        threshold, precision = (None, _PRECISION) if measured else (_LIKELY, None)
    try:
        pictures = body.images or ([body.url] if body.url else [])
        if not pictures:
            raise InputError("Send `images` as data URLs.")
        rows = await asyncio.gather(*(row_of_reference(host, one) for one in pictures))
        asks = [host.check(Ask(row, (), k, threshold, precision))[0] for row in rows]
        found = await asyncio.gather(*(host.scoring.submit(ask) for ask in asks))
    except InputError as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        if isinstance(error, UnknownItemError):
            status = HTTPStatus.NOT_FOUND
        problem = {"id": body.id, "code": status, "error": str(error), "result": {}}
        problem |= {"status": status, "title": status.phrase, "detail": str(error)}
        return JSONResponse(problem, status, media_type="application/problem+json")
    now, best = found[-1][0], dict[str, Suggestion]()
    for one in sorted((one for _, some in found for one in some), key=lambda one: -one.probability):
        best.setdefault(one.label, one)
    content = {
        "id": body.id,
        "code": 200,
        "model": {"type": "labels", "name": host.name, "version": now.version},
        "result": {"labels": [_label(now, one) for one in list(best.values())[:k]]},
    }
    return answer(content, now.version)


def _label(now: Snapshot, one: Suggestion) -> dict[str, Any]:
    """Return a suggestion as PhotoPrism takes it; its categories are what it implies."""
    return {
        "name": one.label,
        "source": "image",
        "priority": 0,
        "confidence": round(one.probability, 6),
        "topicality": round(one.probability, 6),
        "categories": sorted(now.tagger.vocabulary_.implied(one.label)),
    }
