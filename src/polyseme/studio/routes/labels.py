"""Routes of the vocabulary: labels, their senses, and changes to them.

`host: Host` is the model that the address names. `caller: Admin` and `caller: Reviewer` let only
tokens with that scope in. A *record* is a dict that becomes JSON, with the fields of the interface.
`{label:name}` in an address takes a label with any character, slashes too (`NameConvertor` of
`studio.http`); so a POST on the bare label would have to come after those that go on, as `/rename`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain, islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from polyseme.base.validation import InputError
from polyseme.feedback.verdict_log import Verdict
from polyseme.scoring.senses import label_senses
from polyseme.studio.access import Caller
from polyseme.studio.host import ModelHost, Snapshot
from polyseme.studio.http import (
    PROBLEMS,
    Admin,
    Host,
    LabelName,
    Limit,
    Offset,
    finite_or_none,
    json_response,
)
from polyseme.studio.landscape import companions
from polyseme.studio.schemas import (
    TAG_LETTERS,
    AddBody,
    AddedOut,
    BlockBody,
    MergeBody,
    MergesBody,
    Record,
    RenameBody,
    VersionOut,
)
from polyseme.tagger import ZeroShotTagger

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@router.get("/models/{model}/labels", tags=["vocabulary"], summary="All labels")
def labels(
    host: Host,
    query: Annotated[str, Query(max_length=TAG_LETTERS)] = "",
    kind: Literal["seen", "unseen", "oov"] | None = None,
    blocked: bool | None = None,
    once: bool = False,
    order: Literal["count", "name", "quality"] = "count",
    offset: Offset = 0,
    limit: Limit = 100,
) -> Response:
    """List labels, those that begin with the query first; `once` lists those on one tag set."""
    snapshot = host.snapshot
    query_key = snapshot.key(query) if query else ""
    blocked_labels = set(snapshot.tagger.vocabulary_.blocked)
    matches: list[str] = []
    for label, label_kind in snapshot.kinds.items():
        if kind is not None and label_kind != kind:
            continue
        if query_key not in snapshot.key(label):
            continue
        is_blocked = label in blocked_labels
        if blocked is not None and blocked != is_blocked:
            continue
        if once and snapshot.document_counts.get(label) != 1:
            continue
        matches.append(label)

    def sort_key(label: str) -> tuple[Any, ...]:
        begins_otherwise = not snapshot.key(label).startswith(query_key)
        return (begins_otherwise, *_order_key(snapshot, label, order))

    matches.sort(key=sort_key)
    page_labels = matches[offset : offset + limit]
    page = [_label_record(snapshot, label) for label in page_labels]
    content = {"total": len(matches), "labels": page}
    return json_response(content, snapshot.version)


def _order_key(snapshot: Snapshot, label: str, order: str) -> tuple[Any, ...]:
    """Return the sort key of a label in an order: "name", "quality" or "count".

    Quality is the average precision as a seen label, or else as one made unseen; labels that were
    not measured come last.
    """
    if order == "name":
        return (label.casefold(),)
    if order == "count":
        count = snapshot.document_counts.get(label, 0)
        return (-count, label)
    validation = snapshot.tagger.validation_
    if validation is not None:
        for average_precision in validation.labels.get(label, ()):
            if average_precision is not None:
                return (False, -average_precision, label)
    return (True, 0.0, label)


def _label_record(snapshot: Snapshot, label: str) -> Record:
    """Return the record of a label in a list: its counts, quality and answers."""
    validation = snapshot.tagger.validation_
    quality_seen: float | None = None
    quality_unseen: float | None = None
    if validation is not None:
        quality_seen, quality_unseen = validation.labels.get(label, (None, None))
    yes, no = snapshot.answer_counts.get(label, (0, 0))
    return {
        "label": label,
        "kind": snapshot.kinds[label],
        "count": snapshot.document_counts.get(label, 0),
        "blocked": label in snapshot.tagger.vocabulary_.blocked,
        "quality": finite_or_none(quality_seen),
        "quality_unseen": finite_or_none(quality_unseen),
        "verdicts": {"yes": yes, "no": no},
    }


@router.get("/models/{model}/labels/{label:name}", tags=["vocabulary"], summary="One label")
def card(host: Host, label: LabelName) -> Response:
    """Return a label with its senses, companions and quality."""
    snapshot = host.snapshot
    tagger = snapshot.tagger
    vocabulary = tagger.vocabulary_
    name = snapshot.label(label)
    aliases = [alias for alias in vocabulary.aliases if vocabulary.resolve(alias) == name]
    content = _label_record(snapshot, name) | {
        "aliases": aliases,
        "implies": list(vocabulary.implies.get(name, ())),
        "senses": [],
        "silhouette": None,
        "companions": [],
        "similar": [],
    }
    if snapshot.document_counts.get(name):
        label_companions = companions(tagger.store_, name, normalize=tagger.normalize_labels_)
        content["companions"] = [asdict(companion) for companion in label_companions]
        content["similar"] = _similar_records(host, name)
        content |= _sense_facts(tagger, name)
    return json_response(content, snapshot.version)


def _similar_records(host: ModelHost, label: str) -> list[Record]:
    """Return the labels that may be one with a label, and why."""
    records: list[Record] = []
    for pair in host.similar_labels():
        if label == pair.label:
            records.append({"label": pair.into, "reason": pair.reason})
        elif label == pair.into:
            records.append({"label": pair.label, "reason": pair.reason})
    return records


def _sense_facts(tagger: ZeroShotTagger, label: str) -> Record:
    """Return the fields `senses` and `silhouette` of a label's card; none where it has one sense.

    Each sense has the rows of all its documents, for the map, and five tag sets as examples.
    """
    sense_map = label_senses(tagger.store_, label, normalize=tagger.normalize_labels_)
    if sense_map is None:
        return {}
    records: list[Record] = []
    for number, words in enumerate(sense_map.words):
        rows = sense_map.documents[sense_map.senses == number].tolist()
        first_tag_sets = [tagger.store_.document(row) for row in rows[:50]]
        distinct_tag_sets = dict.fromkeys(first_tag_sets)
        examples = [list(tag_set) for tag_set in islice(distinct_tag_sets, 5)]
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
    former_labels = set(host.snapshot.kinds)
    document_ids: tuple[str, ...] = ()
    if body.documents:
        tags = dict.fromkeys(chain.from_iterable(body.documents))
        detail = ", ".join(tags)[:200]
        document_ids = host.change(
            "add", detail, caller.name, lambda tagger: tagger.add_documents(body.documents)
        )
    elif body.labels:
        if not host.takes_names:
            raise InputError(
                "Labels by name need word vectors; start the service with --word-vectors."
            )
        words = host.words  # None where the feature extractor reads the names
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
    snapshot = host.snapshot
    added = [label for label in snapshot.kinds if label not in former_labels]
    return AddedOut(added=added, documents=list(document_ids), version=snapshot.version)


@router.delete("/models/{model}/labels/{label:name}", tags=["vocabulary"], summary="Remove a label")
def remove(host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Remove a label for good: it is taken out of all known documents."""
    name = host.snapshot.label(label)
    return _change(host, "remove", name, caller, lambda tagger: tagger.remove_labels([name]))


def _change(
    host: ModelHost, action: str, detail: str, caller: Caller, function: Callable[..., Any]
) -> VersionOut:
    """Change a model by a function, and return the version that answers then.

    The parameters are those of `ModelHost.change`.
    """
    host.change(action, detail, caller.name, function)
    return VersionOut(version=host.snapshot.version)


@router.post("/models/{model}/labels/{label:name}/rename", tags=["vocabulary"], summary="Rename")
def rename(body: RenameBody, host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Rename a label; the former name is still understood."""
    former_name = host.snapshot.label(label)
    new_name = body.name

    def change(tagger: ZeroShotTagger) -> object:
        return tagger.rename(former_name, new_name)

    return _change(host, "rename", f"{former_name} to {new_name}", caller, change)


@router.post("/models/{model}/labels/{label:name}/merge", tags=["vocabulary"], summary="Merge")
def merge(body: MergeBody, host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Let another label stand for this one, too."""
    snapshot = host.snapshot
    name = snapshot.label(label)
    into = snapshot.label(body.into)

    def change(tagger: ZeroShotTagger) -> object:
        return tagger.merge(name, into)

    return _change(host, "merge", f"{name} into {into}", caller, change)


@router.post("/models/{model}/labels/{label:name}/block", tags=["vocabulary"], summary="Block")
def block(body: BlockBody, host: Host, label: LabelName, caller: Admin) -> VersionOut:
    """Never suggest a label, or suggest it again."""
    name = host.snapshot.label(label)
    action = "unblock" if body.undo else "block"

    def change(tagger: ZeroShotTagger) -> object:
        return tagger.block([name], undo=body.undo)

    return _change(host, action, name, caller, change)


@router.get("/models/{model}/merges", tags=["vocabulary"], summary="Labels that may be one")
def merges(host: Host, limit: Limit = 20) -> Response:
    """Suggest labels to merge, so many for each reason, and count labels that are used once."""
    snapshot = host.snapshot
    counts_by_reason = Counter[str]()
    pairs: list[Record] = []
    for pair in host.similar_labels():
        counts_by_reason[pair.reason] += 1
        if counts_by_reason[pair.reason] <= limit:
            pairs.append(asdict(pair))
    n_used_once = list(snapshot.document_counts.values()).count(1)
    return json_response({"pairs": pairs, "used_once": n_used_once}, snapshot.version)


@router.post("/models/{model}/merges", tags=["vocabulary"], summary="Merge several labels")
def merge_all(body: MergesBody, host: Host, caller: Admin) -> VersionOut:
    """Let other labels stand for some labels; all pairs are merged, or none."""
    snapshot = host.snapshot
    pairs = [(snapshot.label(pair.label), snapshot.label(pair.into)) for pair in body.pairs]
    descriptions = [f"{label} into {into}" for label, into in pairs]
    detail = ", ".join(descriptions)[:200]
    return _change(host, "merge", detail, caller, lambda tagger: tagger.merge(pairs))


@router.get("/models/{model}/candidates", tags=["vocabulary"], summary="Tags it does not know")
def candidates(host: Host, limit: Limit = 100) -> Response:
    """Return tags outside the vocabulary: of the collection's items, and of requests."""
    snapshot = host.snapshot
    # How many items carry a tag, and in how many requests it came.
    counts_by_source: dict[str, dict[str, int]] = {
        "items": {},
        "asked": dict(host.notices.unknown_tags),
    }
    if host.collection is not None:
        counts_by_source["items"] = dict(host.collection.tag_counts)
    ranking: list[tuple[int, str, str]] = []
    for source, counts in counts_by_source.items():
        for tag, count in counts.items():
            if snapshot.find_label(tag) is None:
                ranking.append((-count, tag, source))
    ranking.sort()  # the most frequent tags first
    records: list[Record] = []
    for negative_count, tag, source in ranking[:limit]:
        records.append({"label": tag, "count": -negative_count, "source": source})
    return json_response({"candidates": records}, snapshot.version)
