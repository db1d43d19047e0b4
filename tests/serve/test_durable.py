"""What is acknowledged is on disk: at the instant at which the answer begins, not soon after."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from polyseme import load
from polyseme.serve.app import Settings, create_app
from polyseme.verdicts import Verdict

MODEL = "/v1/models/toy"
CHOICES = """<View><Text name="t" value="$item"/>
<Choices name="tags" toName="t" choice="multiple"><Choice value="pie"/></Choices></View>"""
WEBHOOK = {
    "action": "ANNOTATION_CREATED",
    "project": {"id": 1, "label_config": CHOICES},
    "task": {"id": 1, "data": {"item": "item-1"}},
    "annotation": {
        "id": 1,
        "result": [{"from_name": "tags", "type": "choices", "value": {"choices": ["pie"]}}],
    },
}
VERDICTS = [{"item": "item-1", "label": "sand", "answer": True}]
# What is asked for: method, path and body.
REQUESTS = {
    "learn": ("POST", f"{MODEL}/learn", {"verdicts": VERDICTS}),
    "undo": ("POST", f"{MODEL}/undo", {"numbers": [1]}),
    "new label by an item": ("POST", f"{MODEL}/labels", {"label": "dune", "items": ["item-0"]}),
    "new documents": ("POST", f"{MODEL}/labels", {"documents": [["dune", "sand"]]}),
    "rename": ("POST", f"{MODEL}/labels/sand/rename", {"name": "grit"}),
    "merge": ("POST", f"{MODEL}/labels/sand/merge", {"into": "sea"}),
    "block": ("POST", f"{MODEL}/labels/sand/block", {}),
    "remove": ("DELETE", f"{MODEL}/labels/sand", None),
    "restore": ("POST", f"{MODEL}/versions/1/restore", {}),
    "annotation": ("POST", "/label-studio/toy/webhook", WEBHOOK),
    "document": (
        "POST",
        "/v1/projects/toy/learn",
        [{"text": "sand", "subjects": [{"uri": "urn:polyseme:dune"}]}],
    ),
    "document with features": (
        "POST",
        "/v1/projects/toy/learn",
        [
            {
                "metadata": {"features": "1,0,0,0,0"},
                "subjects": [{"uri": "urn:polyseme:sand"}],
            }
        ],
    ),
}


class Witness:
    """An application that reads the model on disk whenever an answer begins."""

    def __init__(self, app, model):
        self.app, self.model, self.seen = app, model, None

    async def __call__(self, scope, receive, send):
        async def sending(message):
            if message["type"] == "http.response.start" and scope["method"] != "GET":
                self.seen = _state(load(self.model))
            await send(message)

        await self.app(scope, receive, sending)


def _state(tagger):
    """Return what a change may change."""
    store = tagger.store_
    return {
        "events": list(tagger.verdicts_.events()),
        "labels": tagger.classes_.tolist(),
        "blocked": sorted(tagger.vocabulary_.blocked),
        "aliases": dict(tagger.vocabulary_.aliases),
        "documents": [store.document(row) for row in range(len(store.ids))],
    }


@pytest.mark.parametrize("what", REQUESTS)
def test_what_is_acknowledged_is_on_disk_when_the_answer_begins(what, host, model):
    host.learn([Verdict("item-0", "sand", True)])
    host.change("block", "pie", None, lambda tagger: tagger.block(["pie"]))
    before = _state(host.now.tagger)
    witness = Witness(create_app([host], Settings(watch=0)), model)
    method, path, body = REQUESTS[what]
    with TestClient(witness, "http://localhost") as client:
        response = client.request(method, path, json=body)
    assert response.status_code in (200, 201, 204), response.text
    assert witness.seen == _state(host.now.tagger)
    assert witness.seen != before
