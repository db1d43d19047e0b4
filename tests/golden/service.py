"""What the service answers by REST: its own routes, and those of Annif, Label Studio, PhotoPrism.

All requests are sent to one service in the order in which they stand here; some change the model.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fastapi.testclient import TestClient

from golden import Case, models
from golden.compare import without_volatile
from polyseme.io import Table
from polyseme.studio.app import Settings, create_app
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost

MODEL = "/v1/models/toy"
# Versions, times, sentences, and places on a map that is laid out by chance.
VOLATILE = {
    "version", "model_version", "digest", "time", "changed", "request_id", "detail",
    "modification_time", "x", "y", "layout", "bounds", "anchors", "points", "model",
}  # fmt: skip
CHOICES = """<View><Image name="img" value="$image"/>
<Choices name="tags" toName="img" choice="multiple">
<Choice value="Sand"/><Choice value="The sea" alias="sea"/><Choice value="pie"/></Choices></View>"""
TAXONOMY = """<View><Taxonomy name="tree" toName="img"><Choice value="outside">
<Choice value="sand"/><Choice value="coast"><Choice value="sea"/></Choice></Choice></Taxonomy>
<Image name="img" value="$image"/></View>"""


class Sent(NamedTuple):
    """One request."""

    name: str
    method: str
    path: str
    body: Any = None
    options: dict[str, Any] = {}  # noqa: RUF012  # nobody changes it


def cases(folder: Path) -> dict[str, Case]:
    """Send all requests; return their answers as cases by name."""
    toy = models.world()
    path = folder / "toy"
    models.toy_tagger().save(path)
    ids = tuple(f"item-{row}" for row in range(len(toy.X_test)))
    tags = [("sand", "unheard of") if theme == "beach" else () for theme in toy.themes_test]
    collection = Collection(ids, Table(features=toy.X_test, ids=list(ids)), tags, None)
    app = create_app([ModelHost(path, collection)], Settings(watch=0))
    answers = {}
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        for sent in requests():
            options = dict(sent.options)
            if sent.body is not None:
                options["json"] = sent.body
            response = client.request(sent.method, sent.path, **options)
            assert sent.name not in answers, sent.name
            answers[sent.name] = answer_of(response, folder)
    return {name: lambda answer=answer: answer for name, answer in answers.items()}


def answer_of(response: Any, folder: Path) -> Any:
    """Return the status and content of a response, without what is volatile."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind.endswith("json"):
        content = stable(response.json())
    elif kind == "application/octet-stream":
        content = len(response.content)
    else:
        content = without_volatile(response.text, folder)
    return [response.status_code, kind, content]


def stable(content: Any) -> Any:
    """Return JSON without volatile fields."""
    if isinstance(content, dict):
        return {key: stable(value) for key, value in content.items() if key not in VOLATILE}
    if isinstance(content, list):
        return [stable(element) for element in content]
    if isinstance(content, str):
        return without_volatile(content, Path("/no/folder"))
    return content


def post(name: str, path: str, body: Any = None, **options: Any) -> Sent:
    """Return a request that sends something."""
    return Sent(name, "POST", path, body, options)


def get(name: str, path: str, **options: Any) -> Sent:
    """Return a request that asks for something."""
    return Sent(name, "GET", path, None, options)


def requests() -> Iterator[Sent]:
    """Yield all requests."""
    yield from asking()
    yield from looking_around()
    yield from reviewing()
    yield from caring()
    yield from annif()
    yield from label_studio()
    yield from refusals()


def asking() -> Iterator[Sent]:
    """Yield questions for tags."""
    X = models.world().X_test.astype("<f4")
    row = X[2].tolist()
    encoded = {"base64": base64.b64encode(X[2].tobytes()).decode()}
    suggest = f"{MODEL}/suggest"
    raw = {"content-type": "application/octet-stream"}
    yield post("suggest for features", suggest, {"features": row, "k": 4})
    yield post("suggest for encoded features", suggest, {"features": encoded, "k": 4})
    yield post("suggest for raw features", f"{suggest}?k=3", content=X[2].tobytes(), headers=raw)
    yield post("suggest for an item", suggest, {"item": "item-3", "k": 3})
    yield post("suggest for tags", suggest, {"tags": ["sea", "sand", "nobody knows"], "k": 3})
    yield post("suggest for both", suggest, {"features": row, "tags": ["pie"], "k": 5})
    yield post("suggest by threshold", suggest, {"features": row, "threshold": 0.5})
    yield post("suggest by precision", suggest, {"item": "item-1", "precision": 0.7})
    yield post("suggest by kinds", suggest, {"item": "item-1", "kinds": ["unseen", "oov"], "k": 3})
    batch = [
        {"id": "a", "tags": ["apple", "pie"]},
        {"id": "b", "features": [1, 2]},
        {"id": "c", "item": "item-4"},
        {"item": "nobody"},
    ]
    yield post("suggest for a batch", f"{MODEL}/suggest-batch", {"items": batch, "k": 3})
    yield post("complete", f"{MODEL}/complete", {"tags": ["apple", "pie", "zz"], "k": 3})
    explain = f"{MODEL}/explain"
    yield post("explain an item", explain, {"item": "item-0", "label": "charger", "k": 2})
    yield post("explain tags", explain, {"tags": ["sea"], "label": "sand", "k": 1})
    yield post("neighbours", f"{MODEL}/neighbours", {"features": row, "k": 3})


def looking_around() -> Iterator[Sent]:
    """Yield requests for what a model knows."""
    yield get("live", "/health/live")
    yield get("root", "/v1/")
    yield get("models", "/v1/models")
    yield get("model", MODEL)
    yield get("reliability", f"{MODEL}/reliability")
    yield get("map", f"{MODEL}/space")
    yield get("points of the map", f"{MODEL}/space/points")
    yield get("document", f"{MODEL}/documents/5")
    yield post("shared tags", f"{MODEL}/documents/shared", {"documents": [0, 5, 10, 15]})
    yield get("labels", f"{MODEL}/labels")
    yield get("labels by query", f"{MODEL}/labels", params={"query": "s", "order": "name"})
    yield get("labels by kind", f"{MODEL}/labels", params={"kind": "unseen", "order": "quality"})
    yield get("label", f"{MODEL}/labels/apple")
    yield get("merges", f"{MODEL}/merges", params={"limit": 3})
    yield get("candidates", f"{MODEL}/candidates")
    yield get("items", f"{MODEL}/items", params={"limit": 3})
    yield get("items without tags", f"{MODEL}/items", params={"tagged": False, "limit": 2})
    yield get("item", f"{MODEL}/items/item-7", params={"k": 3})


def reviewing() -> Iterator[Sent]:
    """Yield questions, answers, and what becomes of them."""
    ask = f"{MODEL}/ask"
    yield post("ask", ask, {"k": 5})
    yield post("ask about a label", ask, {"label": "charger", "k": 4, "strategy": "likeliest"})
    yield post("ask about errors", ask, {"k": 4, "strategy": "errors"})
    verdicts = [
        {"item": "item-0", "label": "charger", "answer": True, "score": 0.5, "rank": 1},
        {"item": "item-1", "label": "charger", "answer": False},
        {"item": "item-2", "label": "sea", "answer": True},
        {"item": "item-2", "label": "surfboard", "answer": True},
    ]
    learn = f"{MODEL}/learn"
    yield post("learn", learn, {"verdicts": verdicts, "who": "ann"})
    second_verdict = [{"item": "item-0", "label": "charger", "answer": False}]
    yield post(
        "learn what others deny", learn, {"verdicts": second_verdict, "who": "ben", "seen": 0}
    )
    new = {"verdicts": [{"item": "mine", "label": "sea", "answer": True}]}
    features = {"mine": models.world().X_test[7].tolist()}
    yield post("learn of a new item", learn, new | {"features": features})
    yield post("suggest after answers", f"{MODEL}/suggest", {"item": "item-5", "k": 5})
    yield post("explain after answers", f"{MODEL}/explain", {"item": "item-5", "label": "charger"})
    yield get("verdicts", f"{MODEL}/verdicts")
    yield get("verdicts after an event", f"{MODEL}/verdicts", params={"after": 2})
    yield get("item after answers", f"{MODEL}/items/item-2", params={"k": 2})
    yield get("reviewed items", f"{MODEL}/items", params={"reviewed": True})
    for form in ("jsonl", "documents", "label-studio"):
        yield get(f"export as {form}", f"{MODEL}/export", params={"form": form})
    yield post("undo", f"{MODEL}/undo", {"numbers": [1, 2]})
    yield post("suggest after undo", f"{MODEL}/suggest", {"item": "item-5", "k": 5})
    yield get("verdicts after undo", f"{MODEL}/verdicts", params={"label": "charger"})
    yield post("sidecars", f"{MODEL}/export/sidecars", {"dry_run": True})


def caring() -> Iterator[Sent]:
    """Yield changes of the vocabulary."""
    documents = {"documents": [["lamp", "lantern"], ["lantern", "desk"]]}
    yield post("add documents", f"{MODEL}/labels", documents)
    yield post("add by items", f"{MODEL}/labels", {"label": "canoe", "items": ["item-2"]})
    yield post("block", f"{MODEL}/labels/knife/block", {})
    yield post("rename", f"{MODEL}/labels/sand/rename", {"name": "shore"})
    yield post("merge", f"{MODEL}/labels/tram/merge", {"into": "bus"})
    yield Sent("remove", "DELETE", f"{MODEL}/labels/desk")
    yield get("labels after changes", f"{MODEL}/labels", params={"limit": 1000})
    yield post("suggest after changes", f"{MODEL}/suggest", {"item": "item-3", "k": 5})
    yield post("complete after changes", f"{MODEL}/complete", {"tags": ["sand", "tram"], "k": 3})
    yield get("versions", f"{MODEL}/versions")
    yield post("restore", f"{MODEL}/versions/1/restore")
    yield post("suggest after restoring", f"{MODEL}/suggest", {"item": "item-3", "k": 5})
    yield post("reload", f"{MODEL}/reload")
    yield get("refit", f"{MODEL}/refit")


def annif() -> Iterator[Sent]:
    """Yield requests as Annif sends them."""
    project = "/v1/projects/toy"
    features = ",".join(map(str, models.world().X_test[0].tolist()))
    yield get("Annif: vocabularies", "/v1/vocabs")
    yield get("Annif: subjects", "/v1/vocabs/toy/subjects.tsv")
    yield get("Annif: projects", "/v1/projects")
    yield get("Annif: project", project)
    yield post("Annif: suggest", f"{project}/suggest", data={"text": "Sand, sea\nno", "limit": "3"})
    numbers = {"text": "", "metadata_features": features, "limit": "3"}
    yield post("Annif: suggest for features", f"{project}/suggest", data=numbers)
    documents = [
        {"text": "sand, sea", "document_id": "a"},
        {"text": "nothing known"},
        {"text": "", "metadata": {"features": features}},
    ]
    batch = f"{project}/suggest-batch?limit=2"
    yield post("Annif: suggest for a batch", batch, {"documents": documents})
    subjects = [{"uri": "http://example.org/7", "label": "pebble"}]
    learned = [{"text": "sand", "subjects": subjects}]
    yield post("Annif: learn", f"{project}/learn", learned)
    yield post("Annif: suggest what was learned", f"{MODEL}/complete", {"tags": ["pebble"], "k": 2})


def label_studio() -> Iterator[Sent]:
    """Yield requests as Label Studio sends them, and one as PhotoPrism does."""
    backend = "/label-studio/toy"
    yield get("Label Studio: health", f"{backend}/health")
    yield post("Label Studio: set-up", f"{backend}/setup", {"project": "1", "schema": CHOICES})
    tasks = [{"id": 1, "data": {"image": "item-2"}}, {"id": 2, "data": {"image": "nobody"}}]
    for name, config in (("choices", CHOICES), ("a taxonomy", TAXONOMY)):
        body = {"tasks": tasks, "label_config": config, "params": {"threshold": 0.3}}
        yield post(f"Label Studio: predict {name}", f"{backend}/predict", body)
    chosen = {"from_name": "tags", "type": "choices", "value": {"choices": ["sea", "Sand"]}}
    event = {
        "action": "ANNOTATION_CREATED",
        "project": {"id": 7, "label_config": CHOICES},
        "task": {"id": 5, "data": {"image": "item-9"}},
        "annotation": {"id": 3, "result": [chosen]},
    }
    yield post("Label Studio: an annotation", f"{backend}/webhook", event)
    yield get("Label Studio: what was learned", f"{MODEL}/items/item-9", params={"k": 3})
    yield post("PhotoPrism: labels", "/api/v1/vision/labels/toy", {"url": "item-2"})


def refusals() -> Iterator[Sent]:
    """Yield requests that are refused."""
    suggest = f"{MODEL}/suggest"
    row = np.zeros(2, "<f4").tobytes()
    raw = {"content-type": "application/octet-stream"}
    yield post("refused: features", suggest, {"features": [1, 2]})
    yield post("refused: raw features", suggest, content=row, headers=raw)
    yield post("refused: nothing", suggest, {})
    yield post("refused: an unknown field", suggest, {"tags": ["sea"], "what": 1})
    yield post("refused: no JSON", suggest, content=b"{")
    yield post("refused: an unknown item", suggest, {"item": "nobody"})
    yield get("refused: an unknown label", f"{MODEL}/labels/nobody")
    yield get("refused: an unknown model", "/v1/models/other")
    yield post("refused: another method", MODEL, {})
    yield get("refused: another origin", MODEL, headers={"origin": "http://elsewhere.example"})
