"""Routes of models: their description, versions, refits and reliability.

`host: Host` is the model that the address names. `caller: Admin` and `caller: Reviewer` let only
tokens with that scope in. A *record* is a dict that becomes JSON, with the fields of the interface.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from fastapi import Path as InPath
from fastapi.responses import Response

from polyseme.storage.model_file import package_version
from polyseme.studio.access import Caller
from polyseme.studio.host import ModelHost, Snapshot
from polyseme.studio.http import (
    PROBLEMS,
    Admin,
    Host,
    caller_of,
    finite_or_none,
    json_response,
)
from polyseme.studio.schemas import Record, RefitOut, VersionOut
from polyseme.tagger import ZeroShotTagger

# For which the studio shows from which probability on they are reached.
_PRECISIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

router = APIRouter(prefix="/v1", responses=PROBLEMS)


@router.get("/models", tags=["models"], summary="All models")
def models(request: Request) -> Response:
    """List the models that answer here."""
    hosts: dict[str, ModelHost] = request.app.state.hosts
    caller = caller_of(request)
    descriptions = [_describe(host, caller) for host in hosts.values()]
    return json_response({"models": descriptions})


@router.get("/models/{model}", tags=["models"], summary="One model")
def model(host: Host, request: Request) -> Response:
    """Describe a model: its sizes, its input, and its measured quality."""
    return json_response(_describe(host, caller_of(request)), host.snapshot.version)


def _describe(host: ModelHost, caller: Caller) -> Record:
    """Return the record of a model, with the scopes of whoever asks."""
    snapshot = host.snapshot
    tagger = snapshot.tagger
    kinds = list(snapshot.kinds.values())
    return {
        "id": host.name,
        "version": snapshot.version,
        "n_labels": len(kinds),
        "kinds": {kind: kinds.count(kind) for kind in ("seen", "unseen", "oov")},
        "n_documents": len(tagger.store_.ids),
        "n_features": tagger.n_features_in_,
        "media": None if tagger.features_ is None else tagger.features_.kind,
        "learned_from_pool": tagger.pooled_,
        "can_rank_items": bool(tagger.n_features_in_),
        "takes_names": host.takes_names,
        "collection": _collection_facts(host, snapshot),
        "quality": _quality(tagger),
        "verdicts": {
            "standing": sum(yes + no for yes, no in snapshot.answer_counts.values()),
            "undone": snapshot.n_undone,
            "last": snapshot.n_events,
        },
        "status": "ready",
        "trouble": host.notices.reload_error,
        "changed": host.changed,
        "scopes": list(caller.scopes),
    }


def _collection_facts(host: ModelHost, snapshot: Snapshot) -> Record | None:
    """Return the record of the items that people review; None where there are none."""
    collection = host.collection
    if collection is None:
        return None
    return {
        "n_items": len(collection),
        "has_media": collection.media is not None,
        "media": collection.media,
        "n_reviewed": collection.n_reviewed(snapshot.reviewed),
        "n_untagged": collection.n_untagged,
    }


def _quality(tagger: ZeroShotTagger) -> Record | None:
    """Return the measured quality of a model; None where it was not validated.

    For the figures of `baselines`, see `Validation`.
    """
    validation = tagger.validation_
    if validation is None:
        return None
    quality: Record = {}
    for kind, metrics in (("seen", validation.seen), ("unseen", validation.unseen)):
        quality[kind] = {
            "e_map": finite_or_none(metrics.example_map),
            "c_map": finite_or_none(metrics.concept_map),
            "precision": finite_or_none(metrics.precision),
            "recall": finite_or_none(metrics.recall),
        }
    return quality | {
        "highest_precision_unseen": validation.highest_precision,
        "pool_gain": finite_or_none(validation.pool_gain),
        "click_gain": finite_or_none(validation.click_gain),
        "baselines": validation.baselines,
    }


@router.post("/models/{model}/reload", tags=["models"], summary="Load the model on disk")
def reload(host: Host, caller: Admin) -> VersionOut:
    """Load the model beside the one in use; if it cannot be used, the old one goes on."""
    host.reload()
    return VersionOut(version=host.snapshot.version)


@router.get("/models/{model}/versions", tags=["models"], summary="What changed, and when")
def versions(host: Host) -> Response:
    """List the versions that are kept, the oldest first."""
    current_number: int | None = None
    records: list[Record] = []
    for version in host.versions.all():
        records.append(asdict(version))
        if version.digest == host.snapshot.digest:
            current_number = version.number
    return json_response({"current": current_number, "versions": records})


@router.post("/models/{model}/versions/{number}/restore", tags=["models"], summary="Roll back")
def restore(
    host: Host, caller: Admin, number: Annotated[int, InPath(ge=1, lt=10**9)]
) -> VersionOut:
    """Restore a former version, as a new one; people's answers stay."""
    numbers = {version.number for version in host.versions.all()}
    if number not in numbers:
        raise HTTPException(404, f"There is no version {number}.")
    host.restore(number, caller.name)
    return VersionOut(version=host.snapshot.version)


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
    tagger = host.snapshot.tagger
    validation = tagger.validation_
    curves = {} if validation is None else validation.curves
    content: Record = {}
    for kind in ("seen", "unseen"):
        bins: list[Record] = []
        for n, predicted, observed in curves.get(kind, ()):
            if n:
                bins.append({"predicted": predicted, "observed": observed, "n": n})
        content[kind] = bins
    thresholds: list[Record] = []
    if tagger.n_features_in_:
        for precision in _PRECISIONS:
            seen = float(tagger.space_.threshold(precision))
            unseen = np.inf if validation is None else validation.threshold(precision)
            thresholds.append(
                {
                    "precision": precision,
                    "seen": finite_or_none(seen),
                    "unseen": finite_or_none(unseen),
                }
            )
    content["thresholds"] = thresholds
    return json_response(content, host.snapshot.version)


@router.get("/", tags=["models"], summary="What this is")
def root() -> dict[str, str]:
    """Return the name and the version of the service."""
    return {"title": "polyseme", "version": package_version()}
