"""What is acknowledged is on disk at the instant at which the answer begins, not soon after."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from rest import TOY, verdict

from polyseme import load
from polyseme.feedback.verdict_log import Verdict
from polyseme.studio.app import Settings, create_app

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
# Every change: method, path and body.
REQUESTS = {
    "learn": ("POST", f"{TOY}/learn", {"verdicts": [verdict("item-1", "sand")]}),
    "undo": ("POST", f"{TOY}/undo", {"numbers": [1]}),
    "new label by an item": ("POST", f"{TOY}/labels", {"label": "dune", "items": ["item-0"]}),
    "new documents": ("POST", f"{TOY}/labels", {"documents": [["dune", "sand"]]}),
    "rename": ("POST", f"{TOY}/labels/sand/rename", {"name": "grit"}),
    "merge": ("POST", f"{TOY}/labels/sand/merge", {"into": "sea"}),
    "block": ("POST", f"{TOY}/labels/sand/block", {}),
    "remove": ("DELETE", f"{TOY}/labels/sand", None),
    "restore": ("POST", f"{TOY}/versions/1/restore", {}),
    "annotation": ("POST", "/label-studio/toy/webhook", WEBHOOK),
    "document": (
        "POST",
        "/v1/projects/toy/learn",
        [{"text": "sand", "subjects": [{"uri": "urn:polyseme:dune"}]}],
    ),
    "document with features": (
        "POST",
        "/v1/projects/toy/learn",
        [{"metadata": {"features": "1,0,0,0,0"}, "subjects": [{"uri": "urn:polyseme:sand"}]}],
    ),
}


class StateOnDisk:
    """An application that reads the model on disk whenever an answer to a change begins."""

    def __init__(self, app, model):
        self.app = app
        self.model = model
        self.state = None

    async def __call__(self, scope, receive, send):
        async def send_and_read(message):
            begins = message["type"] == "http.response.start"
            if begins and scope["method"] != "GET":
                tagger = load(self.model)
                self.state = state_of(tagger)
            await send(message)

        await self.app(scope, receive, send_and_read)


def state_of(tagger):
    """Return what a change may change."""
    store = tagger.store_
    return {
        "events": list(tagger.verdicts_.events()),
        "labels": tagger.classes_.tolist(),
        "blocked": sorted(tagger.vocabulary_.blocked),
        "aliases": dict(tagger.vocabulary_.aliases),
        "documents": [store.document(row) for row in range(len(store.ids))],
    }


@pytest.mark.parametrize("change", REQUESTS)
def test_a_change_is_on_disk_when_its_answer_begins(change, host, model):
    host.learn([Verdict("item-0", "sand", True)])
    host.change("block", "pie", None, lambda tagger: tagger.block(["pie"]))
    before = state_of(host.now.tagger)
    app = create_app([host], Settings(watch=0))
    disk = StateOnDisk(app, model)
    method, path, body = REQUESTS[change]
    with TestClient(disk, "http://localhost") as client:
        response = client.request(method, path, json=body)
    assert response.status_code in (200, 201, 204), response.text
    assert disk.state == state_of(host.now.tagger)
    assert disk.state != before
