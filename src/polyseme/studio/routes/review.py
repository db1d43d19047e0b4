"""Routes of the review: questions, items with their media, and answers.

`host: Host` is the model that the address names. `caller: Admin` and `caller: Reviewer` let only
tokens with that scope in. A *record* is a dict that becomes JSON, with the fields of the interface.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from polyseme.feedback.verdict_log import Undo, Verdict
from polyseme.studio.host import ItemFeatures, ModelHost, Snapshot, Suggestion
from polyseme.studio.http import (
    PROBLEMS,
    Host,
    ItemName,
    Limit,
    Offset,
    Reviewer,
    address_of,
    collection_of,
    json_response,
    suggestion_records,
)
from polyseme.studio.schemas import (
    TAG_LETTERS,
    AskBody,
    LearnBody,
    NumberedOut,
    Record,
    UndoBody,
    VersionOut,
)

# Of what is shown of items, as examples for OpenAPI.
_PREVIEW_TYPES = ("image/jpeg", "image/png", "audio/mpeg", "text/plain")

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@router.post("/models/{model}/ask", tags=["review"], summary="What to look at next")
def ask(body: AskBody, host: Host) -> Response:
    """Select the labels of items to ask about next; answered ones are left out."""
    collection = collection_of(host)
    snapshot = host.snapshot
    label = None if body.label is None else snapshot.label(body.label)
    questions = collection.ask(snapshot.tagger, label, body.k, body.strategy)
    records: list[Record] = []
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
    return json_response({"questions": records}, snapshot.version)


@router.get("/models/{model}/items", tags=["review"], summary="Items of the collection")
def items(
    host: Host,
    query: Annotated[str, Query(max_length=TAG_LETTERS)] = "",
    reviewed: bool | None = None,
    tagged: bool | None = None,
    offset: Offset = 0,
    limit: Limit = 50,
) -> Response:
    """List items by their ids and tags; `tagged` and `reviewed` ask for those with or without."""
    collection = collection_of(host)
    snapshot = host.snapshot
    names: list[str] = []
    for name in collection.find(query, tagged):
        is_reviewed = name in snapshot.reviewed
        if reviewed is None or reviewed == is_reviewed:
            names.append(name)
    page_names = names[offset : offset + limit]
    page = [_item_record(host, snapshot, name) for name in page_names]
    content = {"total": len(names), "items": page}
    return json_response(content, snapshot.version)


@router.get("/models/{model}/items/{item:name}", tags=["review"], summary="One item")
def item(host: Host, item: ItemName, k: Annotated[int, Query(ge=1, le=1000)] = 10) -> Response:
    """Return an item with its answers and suggestions."""
    collection = collection_of(host)
    snapshot = host.snapshot
    if item not in collection:
        raise HTTPException(404, f"There is no item '{item[:60]}'.")
    suggestions: list[Suggestion] = []
    if snapshot.tagger.n_features_in_:
        ranking = collection.suggest(snapshot.tagger, item, k)
        suggestions = [Suggestion(*ranked) for ranked in ranking]
    content = _item_record(host, snapshot, item)
    content["suggestions"] = suggestion_records(suggestions)
    return json_response(content, snapshot.version)


def _item_record(host: ModelHost, snapshot: Snapshot, name: str) -> Record:
    """Return the record of an item: its tags, the addresses of its media, and its answers."""
    collection = collection_of(host)
    media: str | None = None
    if collection.has_media(name):
        media = f"/v1/models/{address_of(host.name)}/media/{address_of(name)}"
    thumbnail: str | None = None
    if media is not None and collection.media in ("image", "text"):
        thumbnail = f"{media}?size=256"
    # Of several labels that were merged the latest answer counts.
    verdict_by_label: dict[str, Verdict] = {}
    for verdict in snapshot.verdicts_by_item.get(name, ()):
        verdict_by_label[snapshot.current_label(verdict.label)] = verdict
    verdicts: list[Record] = []
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
    summary="An item's picture, sound or text",
    response_class=Response,
    responses={200: {"content": {media_type: {} for media_type in _PREVIEW_TYPES}}},
)
def media(
    host: Host, item: ItemName, size: Annotated[int, Query(ge=16, le=2048)] = 1024
) -> Response:
    """Return a picture, no larger than asked, a sound, or the beginning of a text."""
    collection = collection_of(host)
    if item not in collection or not collection.has_media(item):
        raise HTTPException(404, f"There is no file of '{item[:60]}'.")
    content, media_type = collection.preview(item, size)
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(content, media_type=media_type, headers=headers)


@router.post("/models/{model}/learn", tags=["review"], summary="Yes and no")
def learn(body: LearnBody, host: Host, caller: Reviewer, request: Request) -> NumberedOut:
    """Take answers; they are on disk, and scores have changed, when this returns."""
    reviewer = caller.name or body.who
    version = host.snapshot.version
    verdicts: list[Verdict] = []
    for sent in body.verdicts:
        verdicts.append(
            Verdict(sent.item, sent.label, sent.answer, sent.score, sent.rank, version, reviewer)
        )
    features_by_name: dict[str, ItemFeatures] = {}
    for name, numbers in (body.features or {}).items():
        features = np.asarray(numbers, dtype=np.float32)
        host.check_features(features)
        features_by_name[name] = features
    event_numbers = host.learn(verdicts, features_by_name, body.seen)
    counter = request.app.state.metrics.verdicts
    for verdict in verdicts:
        label = host.snapshot.find_label(verdict.label) or ""
        kind = host.snapshot.kinds.get(label, "oov")
        counter.labels(kind, "yes" if verdict.answer else "no").inc()
    return NumberedOut(numbers=list(event_numbers), version=host.snapshot.version)


@router.post("/models/{model}/undo", tags=["review"], summary="Take answers back")
def undo(body: UndoBody, host: Host, caller: Reviewer) -> VersionOut:
    """Take answers back by their numbers; every score is as if they had never been given."""
    host.undo(body.numbers)
    return VersionOut(version=host.snapshot.version)


@router.get("/models/{model}/verdicts", tags=["review"], summary="What people answered")
def verdicts(
    host: Host,
    label: Annotated[str | None, Query(max_length=TAG_LETTERS)] = None,
    after: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
    limit: Limit = 100,
) -> Response:
    """List the latest answers, also those that were taken back or replaced by a later one.

    With `after`, all answers to the questions of the first `limit` events after that event; `last`
    is the last of these events, after which to ask next. Without, `last` is the last of all.
    """
    snapshot = host.snapshot
    log = snapshot.tagger.verdicts_
    wanted_label = None if label is None else snapshot.label(label)
    if after is not None and log.count <= after:  # asked every few seconds: nothing is read
        return json_response({"verdicts": [], "last": log.count}, snapshot.version)
    events = list(log.events())
    verdict_by_number = {event.number: event for event in events if isinstance(event, Verdict)}
    undone_numbers = {event.undoes for event in events if isinstance(event, Undo)}

    # A question is an item and a label, by its present name; its latest answer stands.
    logged_labels = {verdict.label for verdict in verdict_by_number.values()}
    current_by_logged = {logged: snapshot.current_label(logged) for logged in logged_labels}
    question_by_number: dict[int | None, tuple[str, str]] = {}
    for number, verdict in verdict_by_number.items():
        question_by_number[number] = (verdict.item, current_by_logged[verdict.label])
    standing_number_by_question: dict[tuple[str, str], int | None] = {}
    for number, question in question_by_number.items():
        if number not in undone_numbers:
            standing_number_by_question[question] = number

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

    page: list[Record] = []
    for number in numbers:
        question = question_by_number[number]
        is_undone = number in undone_numbers
        is_superseded = not is_undone and standing_number_by_question[question] != number
        state = {"label": question[1], "undone": is_undone, "superseded": is_superseded}
        page.append(verdict_by_number[number]._asdict() | state)
    last = events[-1].number if events else 0
    return json_response({"verdicts": page, "last": last}, snapshot.version)
