"""PhotoPrism's interface to a vision service: labels of pictures.

In: pictures as data URLs. Out: labels with confidence and topicality between 0 and 1. In
PhotoPrism's `vision.yml` the `Uri` of the service is `…/api/v1/vision/labels/MODEL`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from polyseme.base.validation import InputError
from polyseme.studio.collection import UnknownItemError
from polyseme.studio.host import ModelHost, Snapshot, Suggestion, SuggestRequest
from polyseme.studio.http import PROBLEMS, Host, json_response
from polyseme.studio.references import features_of_reference
from polyseme.studio.schemas import K, Precision, Share

MOST_PICTURES = 8  # of one request: sizes or crops of the same one
# Where no other is asked for, and the model can promise it: half of the labels should be true.
_PRECISION = 0.5
# For models that were not validated, so that they can promise no precision.
_THRESHOLD = 0.5

router = APIRouter(prefix="/api/v1/vision", tags=["photoprism"], responses=PROBLEMS)


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
    host = hosts.get(body.model)
    if host is None:
        all_hosts = hosts.values()
        host = _first_for_pictures(all_hosts)
    if host is None:
        raise HTTPException(404, "No model here looks at pictures.")
    return await labels_by(host, body, bounds)


def _first_for_pictures(hosts: Iterable[ModelHost]) -> ModelHost | None:
    """Return the first model that looks at pictures; None where none does."""
    for host in hosts:
        if host.extractor and host.extractor.kind == "image":
            return host
    return None


@router.post("/labels/{model}", summary="Labels of a picture")
async def labels_by(host: Host, body: VisionBody, bounds: Annotated[Bounds, Query()]) -> Response:
    """Return labels of a picture.

    By default those of which half should be true, where the model can promise it; `threshold` and
    `precision` in the address ask for others. Of several pictures, the labels that any of them has.
    """
    k = bounds.k
    threshold = bounds.threshold
    precision = bounds.precision
    if threshold is None and precision is None:
        if host.snapshot.tagger.validation_ is not None:
            precision = _PRECISION
        else:
            threshold = _THRESHOLD
    try:
        pictures = body.images
        if not pictures and body.url:
            pictures = [body.url]
        if not pictures:
            raise InputError("Send `images` as data URLs.")
        extracting = [features_of_reference(host, picture) for picture in pictures]
        rows = await asyncio.gather(*extracting)
        queries: list[SuggestRequest] = []
        for features in rows:
            query, _ = host.check(SuggestRequest(features, (), k, threshold, precision))
            queries.append(query)
        answers = await asyncio.gather(*(host.scoring.submit(query) for query in queries))
    except InputError as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        if isinstance(error, UnknownItemError):
            status = HTTPStatus.NOT_FOUND
        # PhotoPrism reads `code` and `error`; the rest is our own form of errors.
        problem = {"id": body.id, "code": status, "error": str(error), "result": {}}
        problem |= {"status": status, "title": status.phrase, "detail": str(error)}
        return JSONResponse(problem, status, media_type="application/problem+json")
    snapshot = answers[-1][0]
    best = _likeliest(suggestions for _, suggestions in answers)
    content = {
        "id": body.id,
        "code": 200,
        "model": {"type": "labels", "name": host.name, "version": snapshot.version},
        "result": {"labels": [_label(snapshot, suggestion) for suggestion in best[:k]]},
    }
    return json_response(content, snapshot.version)


def _likeliest(rankings: Iterable[list[Suggestion]]) -> list[Suggestion]:
    """Return each label's likeliest suggestion among several rankings, the likeliest first."""
    suggestions = list(chain.from_iterable(rankings))
    suggestions.sort(key=lambda suggestion: -suggestion.probability)
    by_label: dict[str, Suggestion] = {}
    for suggestion in suggestions:
        by_label.setdefault(suggestion.label, suggestion)
    return list(by_label.values())


def _label(snapshot: Snapshot, suggestion: Suggestion) -> dict[str, Any]:
    """Return a suggestion in PhotoPrism's form; its categories are the implied labels."""
    probability = round(suggestion.probability, 6)
    categories = snapshot.tagger.vocabulary_.implied(suggestion.label)
    return {
        "name": suggestion.label,
        "source": "image",
        "priority": 0,
        "confidence": probability,
        "topicality": probability,
        "categories": sorted(categories),
    }
