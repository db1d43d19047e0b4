"""The routes under `/v1`: every answer, every refusal in one sentence."""

from __future__ import annotations

import asyncio
import base64
import io
import json

import numpy as np
import pytest

from polyseme import load
from polyseme.serve import api
from polyseme.serve.access import Tokens, new_token
from polyseme.serve.host import ModelHost

SUGGEST = "/v1/models/toy/suggest"


def numbers(world, row=2):
    return world.X_test[row].astype("<f4")


def ok(response):
    assert response.status_code == 200, response.text
    return response.json()


def refused(response, status, sentence=""):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert content["status"] == status and content["request_id"] == response.headers["x-request-id"]
    assert sentence in content["detail"]
    return content["detail"]


# ---------------------------------------------------------------------- asking


def test_every_form_of_features_gives_the_same_answer(client, world):
    row = numbers(world)
    file = io.BytesIO()
    np.save(file, row)
    encoded = {"base64": base64.b64encode(row.tobytes()).decode()}
    answers = [
        client.post(SUGGEST, json={"features": row.tolist(), "k": 3}),
        client.post(SUGGEST, json={"features": encoded, "k": 3}),
        client.post(
            f"{SUGGEST}?k=3",
            content=row.tobytes(),
            headers={"content-type": "application/octet-stream"},
        ),
        client.post(
            f"{SUGGEST}?k=3", content=file.getvalue(), headers={"content-type": "application/x-npy"}
        ),
        client.post(SUGGEST, json={"item": "item-2", "k": 3}),
    ]
    found = [ok(one)["suggestions"] for one in answers]
    assert all(one == found[0] for one in found) and len(found[0]) == 3
    assert {one["label"] for one in found[0]} <= set(world.themes["beach"])
    assert answers[0].headers["x-model-version"] == answers[0].json()["version"]


def test_tags_of_a_form_are_repeated_and_may_hold_commas_those_of_a_query_are_split(client, world):
    form = [("tags", (None, "sand")), ("tags", (None, "rock, paper"))]
    content = ok(client.post("/v1/models/toy/suggest", files=form))
    assert content["unknown_tags"] == ["rock, paper"]
    numbers = world.X_test[0].astype("<f4").tobytes()
    headers = {"Content-Type": "application/octet-stream"}
    path = "/v1/models/toy/suggest?tags=sand,rock, paper"
    content = ok(client.post(path, content=numbers, headers=headers))
    assert content["unknown_tags"] == ["rock", "paper"]


def test_tags_alone_are_completed_and_unknown_ones_told(client):
    content = ok(client.post(SUGGEST, json={"tags": ["sand", "canoe"], "k": 2}))
    assert content["unknown_tags"] == ["canoe"]
    assert "sand" not in [one["label"] for one in content["suggestions"]]
    again = ok(client.post("/v1/models/toy/complete", json={"tags": ["sand"], "k": 2}))
    assert again["suggestions"] == content["suggestions"]


def test_a_place_on_the_map_comes_with_the_answer(client, world):
    content = ok(client.post(f"{SUGGEST}?place=true", json={"features": numbers(world).tolist()}))
    place = ok(client.post("/v1/models/toy/place", json={"item": "item-2"}))
    assert content["place"] == pytest.approx(place)
    assert -1 <= place["x"] <= 1 and -1 <= place["y"] <= 1


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"features": [1.0]}, 422, "takes 5 features"),
        ({"features": [1.0] * 5, "item": "item-1"}, 422, "not both"),
        ({"item": "nobody"}, 404, "no item 'nobody'"),
        ({"tags": ["zzz"]}, 422, "None of the tags is known"),
        ({}, 422, "Give features"),
        ({"tags": ["sand"], "k": 0}, 422, "`k`"),
        ({"tags": ["sand"], "k": 10**30}, 422, "`k`"),
        ({"tags": ["sand"], "colour": 1}, 422, "`colour`"),
        ({"features": {"base64": "!"}}, 422, "decoded"),
        ({"tags": ["a" * 201]}, 422, "`tags.0`"),
        ({"tags": ["sand"], "precision": 0.5}, 422, "threshold"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(client, body, status, sentence):
    refused(client.post(SUGGEST, json=body), status, sentence)


def test_bodies_that_cannot_be_read_are_refused(client):
    def send(content, kind):
        return client.post(SUGGEST, content=content, headers={"content-type": kind})

    refused(send(b"{", "application/json"), 422)
    refused(send(b"[1, NaN]", "application/json"), 422)
    refused(send(b"abc", "application/octet-stream"), 422, "4 bytes")
    refused(send(b"abc", "application/x-npy"), 422, "no .npy file")
    refused(send(b"abc", "text/plain"), 415, "text/plain")
    refused(send(b"abc", "image/png"), 422, "takes numbers")
    objects = io.BytesIO()
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    refused(send(objects.getvalue(), "application/x-npy"), 422, "no .npy file")
    # What numpy reads a header by: syntax errors, those of the tokenizer, and recursion.
    for header in (b"(" * 5000, b"{'descr': (", b"[" * 90 + b"]" * 90, b"1 +" * 20_000 + b"1"):
        length = len(header).to_bytes(2, "little")
        refused(send(b"\x93NUMPY\1\0" + length + header, "application/x-npy"), 422, "no .npy file")


def test_a_batch_answers_for_each_and_a_bad_one_harms_none(client, world):
    items = [
        {"id": "a", "features": numbers(world).tolist()},
        {"id": "b", "features": [1.0]},
        {"id": "c", "tags": ["sand"]},
        {"id": "d", "item": "item-0"},
    ]
    content = ok(client.post(f"{SUGGEST}-batch", json={"items": items, "k": 2}))
    a, b, c, d = content["results"]
    assert a["id"] == "a" and len(a["suggestions"]) == len(c["suggestions"]) == 2
    assert "takes 5 features" in b["error"]["detail"] and d["suggestions"]
    file = io.BytesIO()
    np.save(file, world.X_test[:3])
    rows = client.post(
        f"{SUGGEST}-batch?k=1",
        content=file.getvalue(),
        headers={"content-type": "application/x-npy"},
    )
    assert [len(one["suggestions"]) for one in ok(rows)["results"]] == [1, 1, 1]
    for option in ("k=many", "k=0", "threshold=2", "precision="):
        rows = client.post(
            f"{SUGGEST}-batch?{option}",
            content=file.getvalue(),
            headers={"content-type": "application/x-npy"},
        )
        refused(rows, 422, option.partition("=")[0])


def test_rows_of_a_batch_heed_every_option_and_refuse_what_is_none(client, world):
    def post(options):
        file = io.BytesIO()
        np.save(file, world.X_test[:2].astype("<f4"))
        headers = {"content-type": "application/x-npy"}
        path = f"/v1/models/toy/suggest-batch?{options}"
        return client.post(path, content=file.getvalue(), headers=headers)

    found = ok(post("k=3&kinds=unseen"))["results"]
    assert [one["id"] for one in found] == ["0", "1"]
    kinds = {one["kind"] for result in found for one in result["suggestions"]}
    assert kinds == {"unseen"}
    for options, sentence in (("k=many", "`k`"), ("kinds=odd", "`kinds"), ("top=3", "`top`")):
        refused(post(options), 422, sentence)


def test_an_item_beside_its_own_numbers_is_refused_in_every_form(client, world):
    row = numbers(world)
    headers = {"content-type": "application/octet-stream"}
    sent = client.post(f"{SUGGEST}?item=item-2", content=row.tobytes(), headers=headers)
    refused(sent, 422, "not both")
    both = {"items": [{"item": "item-2", "features": row.tolist()}, {"item": "nobody"}]}
    errors = [one["error"] for one in ok(client.post(f"{SUGGEST}-batch", json=both))["results"]]
    assert [one["status"] for one in errors] == [422, 404]
    assert "not both" in errors[0]["detail"]


def test_a_batch_names_the_state_that_answered(host, serving, monkeypatch):
    client, before = serving(host), host.now.version
    suggest = host.suggest

    def renamed_meanwhile(asks):
        found = suggest(asks)
        host.change("rename", "", None, lambda tagger: tagger.rename("sand", "grit"))
        return found

    monkeypatch.setattr(host, "suggest", renamed_meanwhile)
    response = client.post(f"{SUGGEST}-batch", json={"items": [{"tags": ["sand"]}]})
    assert ok(response)["version"] == response.headers["x-model-version"] == before


def test_parts_of_a_score_add_up(client, world):
    body = {"features": numbers(world).tolist(), "label": "wave", "k": 4}
    content = ok(client.post("/v1/models/toy/explain", json=body))
    assert sum(one["part"] for one in content["parts"]) == pytest.approx(content["logit"])
    assert content["kind"] == "unseen" and content["neighbours"][0]["labels"]
    refused(client.post("/v1/models/toy/explain", json=body | {"label": "zzz"}), 404, "zzz")


# ---------------------------------------------------------------------- looking around


def test_models_are_described(client, world):
    content = ok(client.get("/v1/models/toy"))
    assert content == ok(client.get("/v1/models"))["models"][0]
    assert content["kinds"]["unseen"] == 4 and content["n_features"] == 5
    assert content["collection"]["n_items"] == 25 and content["quality"]["seen"]["e_map"] > 0
    assert content["scopes"] == ["read", "review", "admin"]
    refused(client.get("/v1/models/none"), 404, "there is toy")


def test_the_map_has_every_concept_once(client, model):
    header = ok(client.get("/v1/models/toy/space"))
    answer = client.get(header["points"])
    store, n = load(model).store_, header["n_points"]
    assert n == store.matrix.nnz and len(answer.content) == 16 * n
    xy = np.frombuffer(answer.content, "<f4", 2 * n).reshape(n, 2)
    assert np.isfinite(xy).all() and len(np.unique(xy, axis=0)) == n
    labels = np.frombuffer(answer.content, "<u4", n, 8 * n)
    documents = np.frombuffer(answer.content, "<u4", n, 12 * n)
    assert (store.matrix[documents, labels]).all()
    again = client.get(header["points"], headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304 and not again.content


def test_documents_have_neighbours_and_shared_tags(client):
    content = ok(client.get("/v1/models/toy/documents/0"))
    assert content["labels"] and content["neighbours"][0]["labels"]
    assert all(one["document"] != 0 for one in content["neighbours"])
    shared = ok(client.post("/v1/models/toy/documents/shared", json={"documents": [0, 5, 10]}))
    assert shared["n"] == 3 and shared["labels"][0]["lift"] > 1
    refused(client.get("/v1/models/toy/documents/99999"), 404)
    near = ok(client.post("/v1/models/toy/neighbours", json={"tags": ["sand", "sea"], "k": 3}))
    assert len(near["neighbours"]) == 3


def test_labels_are_found_ordered_and_told_apart(client):
    content = ok(client.get("/v1/models/toy/labels?query=s&limit=2&order=name"))
    assert [one["label"] for one in content["labels"]] == ["sand", "screen"]
    unseen = ok(client.get("/v1/models/toy/labels?kind=unseen"))
    assert {one["label"] for one in unseen["labels"]} == {"charger", "sink", "wave", "tram"}
    card = ok(client.get("/v1/models/toy/labels/apple"))
    assert len(card["senses"]) >= 2 and card["companions"]
    assert sum(one["count"] for one in card["senses"]) == card["count"]
    refused(client.get("/v1/models/toy/labels/zzz"), 404, "zzz")


# ---------------------------------------------------------------------- reviewing


def test_yes_and_no_change_what_is_asked_and_can_be_taken_back(client):
    asked = ok(
        client.post("/v1/models/toy/ask", json={"label": "wave", "k": 5, "strategy": "likeliest"})
    )
    first = asked["questions"][0]
    said = {
        "item": first["item"],
        "label": "wave",
        "answer": False,
        "score": first["probability"],
        "rank": first["rank"],
    }
    told = ok(client.post("/v1/models/toy/learn", json={"verdicts": [said], "who": "ann"}))
    again = ok(
        client.post("/v1/models/toy/ask", json={"label": "wave", "k": 5, "strategy": "likeliest"})
    )
    assert first["item"] not in [one["item"] for one in again["questions"]]
    event = ok(client.get("/v1/models/toy/verdicts"))["verdicts"][0]
    assert (event["item"], event["who"], event["undone"]) == (first["item"], "ann", False)
    item = ok(client.get(f"/v1/models/toy/items/{first['item']}"))
    assert item["verdicts"][0]["answer"] is False
    ok(client.post("/v1/models/toy/undo", json={"numbers": told["numbers"]}))
    last = ok(
        client.post("/v1/models/toy/ask", json={"label": "wave", "k": 5, "strategy": "likeliest"})
    )
    assert last["questions"] == asked["questions"]
    refused(client.post("/v1/models/toy/undo", json={"numbers": [99]}), 422, "99")


def test_items_are_listed_found_and_suggested_for(client, world):
    content = ok(client.get("/v1/models/toy/items?query=item-2&limit=3"))
    assert content["total"] == 6 and content["items"][0]["id"] == "item-2"
    beach = world.themes_test.index("beach")
    item = ok(client.get(f"/v1/models/toy/items/item-{beach}?k=5"))
    assert item["tags"] == ["sand"] and item["media"] is None
    assert {one["label"] for one in item["suggestions"]} <= set(world.themes["beach"])
    ok(
        client.post(
            "/v1/models/toy/learn",
            json={"verdicts": [{"item": "item-3", "label": "bus", "answer": True}]},
        )
    )
    reviewed = ok(client.get("/v1/models/toy/items?reviewed=true"))
    assert [one["id"] for one in reviewed["items"]] == ["item-3"]
    refused(client.get("/v1/models/toy/items/none"), 404)
    refused(client.get("/v1/models/toy/media/item-3"), 404)


def test_items_without_tags_of_their_own_are_listed_page_by_page(client, world):
    untagged = [f"item-{row}" for row, theme in enumerate(world.themes_test) if theme != "beach"]
    first = ok(client.get("/v1/models/toy/items?tagged=false&limit=3"))
    assert first["total"] == len(untagged)
    rest = ok(client.get("/v1/models/toy/items?tagged=false&offset=3&limit=1000"))
    assert [one["id"] for one in first["items"] + rest["items"]] == untagged
    tagged = ok(client.get("/v1/models/toy/items?tagged=true&query=sand"))
    assert tagged["total"] == len(world.themes_test) - len(untagged)
    assert ok(client.get("/v1/models/toy"))["collection"]["n_untagged"] == len(untagged)
    said = [{"item": untagged[1], "label": "bus", "answer": False}]
    ok(client.post("/v1/models/toy/learn", json={"verdicts": said}))
    both = ok(client.get("/v1/models/toy/items?tagged=false&reviewed=true"))
    assert [one["id"] for one in both["items"]] == [untagged[1]]
    refused(client.get("/v1/models/toy/items?tagged=perhaps"), 422, "tagged")


def learn_of(client, answer, item="item-2", **more):
    said = [{"item": item, "label": "wave", "answer": answer}]
    return client.post("/v1/models/toy/learn", json={"verdicts": said} | more)


def test_an_answer_that_was_not_seen_is_not_overwritten_and_nothing_of_the_batch_is_taken(client):
    seen = ok(client.get("/v1/models/toy"))["verdicts"]["last"]
    (number,) = ok(learn_of(client, False, who="ann", seen=seen))["numbers"]
    both = [{"item": item, "label": "wave", "answer": True} for item in ("item-3", "item-2")]
    body = {"verdicts": both, "who": "bob", "seen": seen}
    response = client.post("/v1/models/toy/learn", json=body)
    refused(response, 409, "Meanwhile 'wave' was answered no for 'item-2' by ann")
    (standing,) = response.json()["standing"]
    assert standing.pop("time")
    assert standing == {
        "item": "item-2",
        "label": "wave",
        "answer": False,
        "who": "ann",
        "number": number,
    }
    assert ok(client.get("/v1/models/toy"))["verdicts"] == {
        "standing": 1,
        "undone": 0,
        "last": number,
    }
    # The same answer is no conflict, and who has seen it may answer otherwise.
    ok(learn_of(client, False, who="bob", seen=seen))
    ok(learn_of(client, True, who="bob", seen=number + 1))
    # Clients that do not say what they have seen answer as before.
    ok(learn_of(client, False))


def test_an_answer_is_not_overwritten_under_another_spelling_or_former_name(client):
    ok(learn_of(client, False, who="ann"))
    ok(client.post("/v1/models/toy/labels/wave/rename", json={"name": "breaker"}))
    for label in ("breaker", "wave", "Breaker ", "WAVE"):
        said = [{"item": "item-2", "label": label, "answer": True}]
        response = client.post("/v1/models/toy/learn", json={"verdicts": said, "seen": 0})
        refused(response, 409, "was answered no for 'item-2' by ann")
        assert response.json()["standing"][0]["label"].lower() == "breaker"


def test_answers_are_listed_by_the_names_that_labels_have_now(client):
    ok(learn_of(client, True))
    ok(client.post("/v1/models/toy/labels/wave/rename", json={"name": "breaker"}))
    (verdict,) = ok(client.get("/v1/models/toy/verdicts"))["verdicts"]
    assert verdict["label"] == "breaker"
    (verdict,) = ok(client.get("/v1/models/toy/items/item-2"))["verdicts"]
    assert verdict["label"] == "breaker"


def test_a_label_has_all_its_former_names_also_after_another_change(client):
    for old, new in (("wave", "breaker"), ("breaker", "surf")):
        ok(client.post(f"/v1/models/toy/labels/{old}/rename", json={"name": new}))
    assert ok(client.get("/v1/models/toy/labels/surf"))["aliases"] == ["wave", "breaker"]


def test_of_answers_to_merged_labels_an_item_has_the_latest(client):
    said = [
        {"item": "item-2", "label": label, "answer": answer}
        for label, answer in (("wave", True), ("sand", False))
    ]
    ok(client.post("/v1/models/toy/learn", json={"verdicts": said}))
    ok(client.post("/v1/models/toy/labels/wave/merge", json={"into": "sand"}))
    (verdict,) = ok(client.get("/v1/models/toy/items/item-2"))["verdicts"]
    assert (verdict["label"], verdict["answer"], verdict["number"]) == ("sand", False, 2)


def test_an_answer_that_was_taken_back_is_no_conflict(client):
    numbers = ok(learn_of(client, False, seen=0))["numbers"]
    ok(client.post("/v1/models/toy/undo", json={"numbers": numbers}))
    ok(learn_of(client, True, seen=0))


def test_an_answer_that_a_later_one_replaced_is_listed_as_superseded(client):
    for answer in (True, False, True):
        ok(learn_of(client, answer))
    states = [
        (one["number"], one["undone"], one["superseded"])
        for one in ok(client.get("/v1/models/toy/verdicts"))["verdicts"]
    ]
    assert states == [(3, False, False), (2, False, True), (1, False, True)]
    ok(client.post("/v1/models/toy/undo", json={"numbers": [3]}))
    states = [
        (one["number"], one["undone"], one["superseded"])
        for one in ok(client.get("/v1/models/toy/verdicts"))["verdicts"]
    ]
    assert states == [(3, True, False), (2, False, False), (1, False, True)]


def test_what_changed_after_an_event_can_be_asked_for(client):
    ok(learn_of(client, True))
    ok(learn_of(client, True, "item-3"))
    assert ok(client.get("/v1/models/toy/verdicts?after=2")) == {"verdicts": [], "last": 2}
    found = ok(client.get("/v1/models/toy/verdicts?after=1"))
    assert [one["item"] for one in found["verdicts"]] == ["item-3"]
    ok(client.post("/v1/models/toy/undo", json={"numbers": [1]}))
    found = ok(client.get("/v1/models/toy/verdicts?after=2"))
    assert found["last"] == 3
    assert [(one["item"], one["undone"]) for one in found["verdicts"]] == [("item-2", True)]


def test_of_many_changes_none_is_passed_over(client):
    for item in range(2, 9):
        ok(learn_of(client, True, f"item-{item}"))
    ok(client.post("/v1/models/toy/undo", json={"numbers": [1]}))
    after, items = 0, []
    while (found := ok(client.get(f"/v1/models/toy/verdicts?after={after}&limit=3")))["verdicts"]:
        assert found["last"] > after
        after = found["last"]
        items += [verdict["item"] for verdict in found["verdicts"]]
    assert after == 8 and set(items) == {f"item-{item}" for item in range(2, 9)}


def test_accepted_tags_are_exported(client):
    said = [
        {"item": "item-2", "label": "wave", "answer": True},
        {"item": "item-2", "label": "sand", "answer": False},
    ]
    ok(client.post("/v1/models/toy/learn", json={"verdicts": said}))
    lines = client.get("/v1/models/toy/export?form=jsonl").text.splitlines()
    assert [json.loads(line)["answer"] for line in lines] == [True, False]
    documents = client.get("/v1/models/toy/export?form=documents").text.splitlines()
    assert {"id": "item-2", "labels": ["wave"]} in [json.loads(line) for line in documents]
    tasks = ok(client.get("/v1/models/toy/export?form=label-studio"))
    assert tasks[0]["data"] and tasks[0]["annotations"][0]["result"][0]["type"] == "taxonomy"


# ---------------------------------------------------------------------- vocabulary


def test_what_was_accepted_is_exported_under_the_label_s_name_of_now(client):
    said = [{"item": "item-0", "label": "sun", "answer": True}]
    said.append({"item": "item-2", "label": "sand", "answer": False})
    ok(client.post("/v1/models/toy/learn", json={"verdicts": said}))
    ok(client.post("/v1/models/toy/labels/sun/rename", json={"name": "daylight"}))
    ok(client.post("/v1/models/toy/labels/sand/rename", json={"name": "grit"}))
    lines = client.get("/v1/models/toy/export?form=documents").text.splitlines()
    tags = {one["id"]: one["labels"] for one in map(json.loads, lines)}
    assert "daylight" in tags["item-0"] and "sun" not in tags["item-0"]
    assert "item-2" not in tags


def test_the_vocabulary_is_cared_for_and_rolled_back(client, model):
    added = ok(client.post("/v1/models/toy/labels", json={"documents": [["canoe", "sea"]]}))
    assert added["added"] == ["canoe"]
    ok(client.post("/v1/models/toy/labels/canoe/rename", json={"name": "kayak"}))
    ok(client.post("/v1/models/toy/labels/sun/block", json={}))
    ok(client.post("/v1/models/toy/labels/shell/merge", json={"into": "sand"}))
    ok(client.delete("/v1/models/toy/labels/tram"))
    assert "kayak" in load(model).classes_
    listed = ok(client.get("/v1/models/toy/versions"))
    actions = [one["action"] for one in listed["versions"]]
    assert actions == ["opened", "add", "rename", "block", "merge", "remove"]
    assert listed["current"] == 6
    ok(client.post("/v1/models/toy/versions/1/restore"))
    assert "kayak" not in load(model).classes_
    refused(client.post("/v1/models/toy/versions/99/restore"), 404)
    refused(client.post("/v1/models/toy/labels/sun/rename", json={"name": "sea"}), 422, "merge")


def test_labels_are_added_by_items_and_names_need_vectors(client):
    body = {"label": "canoe", "items": ["item-2", "item-7"]}
    assert ok(client.post("/v1/models/toy/labels", json=body))["added"] == ["canoe"]
    assert ok(client.get("/v1/models/toy/labels/canoe"))["verdicts"] == {"yes": 2, "no": 0}
    refused(client.post("/v1/models/toy/labels", json={"labels": ["x"]}), 422, "--word-vectors")
    refused(client.post("/v1/models/toy/labels", json={}), 422, "Give `documents`")
    refused(client.post("/v1/models/toy/labels", json={"label": "x", "items": ["none"]}), 404)


def test_tags_outside_the_vocabulary_are_candidates(client):
    client.post(SUGGEST, json={"tags": ["sand", "canoe"]})
    content = ok(client.get("/v1/models/toy/candidates"))
    assert content["candidates"] == [{"label": "canoe", "count": 1, "source": "asked"}]


def test_reliability_and_thresholds_are_told(client):
    content = ok(client.get("/v1/models/toy/reliability"))
    assert content["seen"][0]["n"] > 0 and len(content["thresholds"]) == 9


# ---------------------------------------------------------------------- limits and access


def test_scopes_hold(host, serving, tmp_path):
    file = tmp_path / "tokens.json"
    tokens = {scope: new_token(file, scope, scope) for scope in ("read", "review", "admin")}
    client = serving(host, tokens=Tokens.read(file))

    def ask(scope, method, path, **more):
        headers = {"authorization": f"Bearer {tokens[scope]}"} if scope else {}
        return client.request(method, path, headers=headers, **more)

    said = {"verdicts": [{"item": "item-2", "label": "wave", "answer": True}]}
    refused(ask(None, "GET", "/v1/models"), 401, "token")
    refused(client.get("/v1/models", headers={"authorization": "Bearer ps_x"}), 401)
    assert ok(ask("read", "GET", "/v1/models"))["models"][0]["scopes"] == ["read"]
    # Programs that know names and passwords alone send it as the password.
    ok(client.get("/v1/models", auth=("anybody", tokens["read"])))
    refused(client.get("/v1/models", auth=("anybody", "ps_x")), 401)
    refused(client.get("/v1/models", headers={"authorization": "Basic !"}), 401)
    refused(ask("read", "POST", "/v1/models/toy/learn", json=said), 403, "review")
    ok(ask("review", "POST", "/v1/models/toy/learn", json=said))
    assert ok(ask("read", "GET", "/v1/models/toy/verdicts"))["verdicts"][0]["who"] == "review"
    refused(ask("review", "DELETE", "/v1/models/toy/labels/sand"), 403, "admin")
    ok(ask("admin", "DELETE", "/v1/models/toy/labels/sand"))
    assert client.get("/health/live").status_code == 200
    refused(client.get("/metrics"), 401)


def test_other_pages_and_other_names_of_this_machine_are_refused(client):
    refused(client.get("/v1/models", headers={"host": "testserver"}), 403, "this machine")
    refused(client.get("/v1/models", headers={"origin": "http://elsewhere.example"}), 403)
    refused(client.get("/v1/models", headers={"host": "elsewhere.example"}), 403)
    ok(
        client.get(
            "/v1/models", headers={"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}
        )
    )


def test_more_than_is_allowed_is_refused_whatever_its_length_is_said_to_be(host, serving):
    client = serving(host, max_body=1000)
    raw = {"content-type": "application/octet-stream"}
    refused(client.post(SUGGEST, content=b"x" * 1001, headers=raw), 413)
    chunks = iter([b"x" * 600, b"x" * 600])
    refused(client.post(SUGGEST, content=chunks, headers=raw), 413)
    chunks = iter([b" " * 600, b" " * 600])
    refused(
        client.post(
            "/v1/models/toy/learn", content=chunks, headers={"content-type": "application/json"}
        ),
        413,
    )


def test_what_takes_too_long_is_ended(host, serving, monkeypatch):
    import time

    client = serving(host, deadline=0.2)
    monkeypatch.setattr(host, "suggest", lambda asks: time.sleep(1))
    host.scoring._score = host.suggest
    refused(client.post(SUGGEST, json={"tags": ["sand"]}), 503, "longer than")


def test_too_much_waiting_is_told_with_when_to_come_again(host, serving):
    host.scoring.most_waiting = 0
    answer = serving(host).post(SUGGEST, json={"tags": ["sand"]})
    refused(answer, 429)
    assert answer.headers["retry-after"] == "1"


def test_a_failure_of_ours_is_told_without_its_insides(host, serving, monkeypatch):
    client = serving(host)
    monkeypatch.setattr(api, "similar_labels", lambda *_: 1 / 0)
    detail = refused(client.get("/v1/models/toy/merges"), 500)
    assert "ZeroDivision" not in detail


def test_answers_carry_a_name_and_headers_that_keep_pages_safe(client):
    answer = client.get("/v1/models", headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (
        client.get("/v1/models", headers={"x-request-id": "a b"}).headers["x-request-id"] != "a b"
    )


def test_health_and_metrics(client):
    assert ok(client.get("/health/live")) == {"status": "live"}
    ok(client.post(SUGGEST, json={"tags": ["sand"]}))
    text = client.get("/metrics").text
    assert 'polyseme_requests_total{route="/v1/models/{model}/suggest",status="200"} 1.0' in text
    assert 'polyseme_model_labels{model="toy"' in text


def test_several_models_answer_side_by_side(host, model, serving):
    other = ModelHost(model, name="other")
    client = serving(host, other)
    assert [one["id"] for one in ok(client.get("/v1/models"))["models"]] == ["toy", "other"]
    ok(client.post("/v1/models/other/suggest", json={"tags": ["sand"]}))


def test_a_reload_is_taken_or_refused(client, model):
    load(model).block(["sand"]).save(model)
    ok(client.post("/v1/models/toy/reload"))
    assert ok(client.get("/v1/models/toy/labels/sand"))["blocked"]
    (model / "model.safetensors").write_text("{}")
    refused(client.post("/v1/models/toy/reload"), 422, "former model goes on")
    ok(client.post(SUGGEST, json={"tags": ["sea"]}))


def test_who_leaves_while_sending_is_no_failure(client, caplog):
    sent = []

    async def leave():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": SUGGEST, "headers": headers}
    scope |= {"query_string": b"", "http_version": "1.1", "root_path": ""}
    asyncio.run(client.app(scope, leave, send))
    assert not sent and not caplog.records
    assert 'status="499"' in client.get("/metrics").text
