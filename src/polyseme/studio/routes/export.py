"""Routes that export answers and accepted tags, as files or into sidecars.

`host: Host` is the model that the address names. `caller: Admin` and `caller: Reviewer` let only
tokens with that scope in. A *record* is a dict that becomes JSON, with the fields of the interface.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

from polyseme.media.keywords import Keywords, keywords_of
from polyseme.media.suggestions import among
from polyseme.media.tag_files import answer_suggestions, merge_tags, read_tags, tag_file_of
from polyseme.studio.http import JSON, PROBLEMS, Admin, Host, collection_of, json_response
from polyseme.studio.schemas import Record, SidecarBody

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@router.get(
    "/models/{model}/export",
    tags=["review"],
    summary="What was accepted",
    response_class=Response,
    responses={200: {"content": {"application/jsonl": {}, JSON: {}}}},
)
def export(host: Host, form: Literal["jsonl", "documents", "label-studio"] = "jsonl") -> Response:
    """Export answers (`jsonl`), or items with accepted tags (`documents`, Label Studio)."""
    snapshot = host.snapshot
    if form == "jsonl":  # as `polyseme learn` takes them
        verdicts = snapshot.tagger.verdicts_.standing()
        answers = [_without_none(verdict._asdict()) for verdict in verdicts]
        return _download(_lines(answers), "verdicts.jsonl")
    collection = collection_of(host)
    if form == "documents":  # as `polyseme fit --documents` takes them
        documents: list[Record] = []
        for name, tags in snapshot.reviewed_tags(collection):
            documents.append({"id": name, "labels": tags})
        return _download(_lines(documents), "documents.jsonl")
    tasks = [_labelled_task(name, tags) for name, tags in snapshot.reviewed_tags(collection)]
    return _download(json.dumps(tasks, ensure_ascii=False), "label-studio.json", JSON)


def _without_none(record: Record) -> Record:
    """Return a record without the fields that have no value."""
    return {key: value for key, value in record.items() if value is not None}


def _labelled_task(name: str, tags: Sequence[str]) -> Record:
    """Return an item with its tags as a task of Label Studio, with an annotation.

    It fits a configuration with a `Taxonomy` named "tags" to an object named "item".
    """
    result = {
        "from_name": "tags",
        "to_name": "item",
        "type": "taxonomy",
        "value": {"taxonomy": [[tag] for tag in tags]},
    }
    return {"data": {"item": name}, "annotations": [{"result": [result]}]}


def _download(text: str, file_name: str, media: str = "application/jsonl") -> Response:
    """Return a text as a file of a media type; it is whole before any of it is sent."""
    disposition = f'attachment; filename="{file_name}"'
    headers = {"Content-Disposition": disposition}
    # What UTF-8 does not have becomes an escape of JSON, and is read back as it was.
    data = text.encode("utf-8", "backslashreplace")
    return Response(data, headers=headers, media_type=media)


def _lines(records: Iterable[Record]) -> str:
    """Return records as lines of JSON."""
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    return "".join(lines)


@router.post(
    "/models/{model}/export/sidecars",
    tags=["review"],
    summary="Accepted tags in Markdown, and beside other files",
)
def sidecars(body: SidecarBody, host: Host, caller: Admin) -> Response:
    """Write accepted tags into Markdown and to XMP files beside other files, or count them."""
    collection = collection_of(host)
    snapshot = host.snapshot
    n_files = 0
    n_tags = 0
    for name, verdicts in snapshot.verdicts_by_item.items():
        accepted = [snapshot.current_label(verdict.label) for verdict in verdicts if verdict.answer]
        path = collection.file_of(name) if name in collection else None
        if not accepted or path is None:
            continue
        added = add_accepted_tags(path, collection.media, accepted, dry_run=body.dry_run)
        n_files += bool(added)
        n_tags += len(added)
    content = {"files": n_files, "tags": n_tags, "dry_run": body.dry_run}
    return json_response(content, snapshot.version)


def add_accepted_tags(
    path: Path, kind: str | None, tags: Sequence[str], *, dry_run: bool
) -> list[str]:
    """Add accepted tags to Markdown itself, or to a file's sidecar; return the new ones.

    A tag that was there as a suggestion only counts as new, and is accepted.

    Parameters
    ----------
    path : Path
        Of the media file, which is not changed unless it is Markdown.
    kind : str or None
        Of media, such as "image": how keywords inside the file are read.
    tags : sequence of str
    dry_run : bool
        Whether nothing is written.
    """
    tag_file = tag_file_of(path)
    keywords = Keywords([], [], [])
    # Programs that find a sidecar read no keywords inside the file: a new one holds them, too. In
    # Markdown, a tag may also stand in the text, as #tag, or in a sidecar.
    if kind is not None and (tag_file == path or not tag_file.exists()):
        keywords = keywords_of(path, kind)
    pending = among(tags, read_tags(tag_file).pending)
    added = merge_tags(
        tag_file, tags, present=keywords.tags, hierarchies=keywords.hierarchies, dry_run=dry_run
    )
    accepted = [*pending, *added]
    if accepted and not dry_run:
        answer_suggestions(tag_file, accept=accepted)
    return accepted
