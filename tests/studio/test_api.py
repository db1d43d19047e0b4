"""The routes under `/v1`: every answer, every refusal in one sentence."""

from __future__ import annotations

import asyncio
import base64
import json
import time

import numpy as np
import pytest
from rest import NPY, RAW, TOY, ModelClient, column, npy, ok, refused, verdict

from polyseme import load
from polyseme.studio.host import ModelHost

SUGGEST = f"{TOY}/suggest"
BATCH = f"{TOY}/suggest-batch"


def features_of(world, row=2):
    return world.X_test[row].astype("<f4")


# ---------------------------------------------------------------------- asking


def test_every_form_of_features_gets_the_same_suggestions(client, world):
    row = features_of(world)
    encoded = {"base64": base64.b64encode(row.tobytes()).decode()}
    responses = [
        client.post(SUGGEST, json={"features": row.tolist(), "k": 3}),
        client.post(SUGGEST, json={"features": encoded, "k": 3}),
        client.post(f"{SUGGEST}?k=3", content=row.tobytes(), headers=RAW),
        client.post(f"{SUGGEST}?k=3", content=npy(row), headers=NPY),
        client.post(SUGGEST, json={"item": "item-2", "k": 3}),
    ]
    suggestions, *repeated = [ok(response)["suggestions"] for response in responses]
    assert len(suggestions) == 3
    assert repeated == [suggestions] * 4
    assert set(column(suggestions, "label")) <= set(world.themes["beach"])
    version = responses[0].json()["version"]
    assert responses[0].headers["x-model-version"] == version


def test_tags_of_a_form_may_hold_commas_and_those_of_a_query_are_split_at_commas(client, world):
    form = [("tags", (None, "sand")), ("tags", (None, "rock, paper"))]
    content = ok(client.post(SUGGEST, files=form))
    assert content["unknown_tags"] == ["rock, paper"]
    row = features_of(world).tobytes()
    path = f"{SUGGEST}?tags=sand,rock, paper"
    content = ok(client.post(path, content=row, headers=RAW))
    assert content["unknown_tags"] == ["rock", "paper"]


def test_tags_alone_are_completed_and_unknown_ones_are_listed(toy):
    content = toy.post("/suggest", {"tags": ["sand", "canoe"], "k": 2})
    assert content["unknown_tags"] == ["canoe"]
    suggestions = content["suggestions"]
    assert "sand" not in column(suggestions, "label")
    completed = toy.post("/complete", {"tags": ["sand"], "k": 2})
    assert completed["suggestions"] == suggestions


def test_an_answer_may_come_with_a_place_on_the_map(toy, world):
    body = {"features": features_of(world).tolist()}
    content = toy.post("/suggest?place=true", body)
    place = toy.post("/place", {"item": "item-2"})
    assert content["place"] == pytest.approx(place)
    assert -1 <= place["x"] <= 1
    assert -1 <= place["y"] <= 1


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"features": [1.0]}, 422, "takes 5 features"),
        ({"features": [1.0] * 5, "item": "item-1"}, 422, "not both"),
        ({"features": [1.0] * 5, "text": "sand"}, 422, "one of them"),
        ({"item": "item-1", "text": "sand"}, 422, "one of them"),
        ({"text": "A day at the sea"}, 422, "This model takes numbers, not texts"),
        ({"text": ""}, 422, "`text`"),
        ({"text": "a" * 1_000_001}, 422, "`text`"),
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
def test_a_wrong_request_for_suggestions_is_refused_with_a_sentence(client, body, status, sentence):
    refused(client.post(SUGGEST, json=body), status, sentence)


def npy_with_header(header):
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    ("content", "content_type", "status", "sentence"),
    [
        (b"{", "application/json", 422, ""),
        (b"[1, NaN]", "application/json", 422, ""),
        (b"abc", "application/octet-stream", 422, "4 bytes"),
        (b"abc", "application/x-npy", 422, "no .npy file"),
        (b"abc", "video/mp4", 415, "video/mp4"),
        (b"abc", "image/png", 422, "takes numbers"),
        (b"abc", "text/plain", 422, "takes numbers"),
        (
            npy(np.array([{}], dtype=object), allow_pickle=True),
            "application/x-npy",
            422,
            "no .npy file",
        ),
        # What numpy reads a header by: syntax errors, those of the tokenizer, and recursion.
        (npy_with_header(b"(" * 5000), "application/x-npy", 422, "no .npy file"),
        (npy_with_header(b"{'descr': ("), "application/x-npy", 422, "no .npy file"),
        (npy_with_header(b"[" * 90 + b"]" * 90), "application/x-npy", 422, "no .npy file"),
        (npy_with_header(b"1 +" * 20_000 + b"1"), "application/x-npy", 422, "no .npy file"),
    ],
    ids=range(12),
)
def test_a_body_that_cannot_be_read_is_refused(client, content, content_type, status, sentence):
    response = client.post(SUGGEST, content=content, headers={"content-type": content_type})
    refused(response, status, sentence)


def test_a_wrong_item_of_a_batch_does_not_harm_the_others(toy, world):
    items = [
        {"id": "a", "features": features_of(world).tolist()},
        {"id": "b", "features": [1.0]},
        {"id": "c", "tags": ["sand"]},
        {"id": "d", "item": "item-0"},
    ]
    content = toy.post("/suggest-batch", {"items": items, "k": 2})
    features, wrong, tags, item = content["results"]
    assert features["id"] == "a"
    assert len(features["suggestions"]) == len(tags["suggestions"]) == 2
    assert "takes 5 features" in wrong["error"]["detail"]
    assert item["suggestions"]


def test_a_batch_may_be_the_rows_of_a_npy_file(client, world):
    rows = npy(world.X_test[:3])
    content = ok(client.post(f"{BATCH}?k=1", content=rows, headers=NPY))
    n_suggestions = [len(result["suggestions"]) for result in content["results"]]
    assert n_suggestions == [1, 1, 1]


def test_rows_of_a_batch_heed_the_options(client, world):
    rows = npy(world.X_test[:2].astype("<f4"))
    content = ok(client.post(f"{BATCH}?k=3&kinds=unseen", content=rows, headers=NPY))
    assert column(content["results"], "id") == ["0", "1"]
    for result in content["results"]:
        assert set(column(result["suggestions"], "kind")) == {"unseen"}


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("k=many", "`k`"),
        ("k=0", "k"),
        ("threshold=2", "threshold"),
        ("precision=", "precision"),
        ("kinds=odd", "`kinds"),
        ("top=3", "`top`"),
    ],
)
def test_a_wrong_option_of_a_batch_is_refused(client, world, option, sentence):
    rows = npy(world.X_test[:2].astype("<f4"))
    response = client.post(f"{BATCH}?{option}", content=rows, headers=NPY)
    refused(response, 422, sentence)


def test_an_item_beside_its_own_features_is_refused_in_every_form(client, toy, world):
    row = features_of(world)
    response = client.post(f"{SUGGEST}?item=item-2", content=row.tobytes(), headers=RAW)
    refused(response, 422, "not both")
    both = {"item": "item-2", "features": row.tolist()}
    content = toy.post("/suggest-batch", {"items": [both, {"item": "nobody"}]})
    errors = column(content["results"], "error")
    assert column(errors, "status") == [422, 404]
    assert "not both" in errors[0]["detail"]


def test_a_batch_names_the_version_of_the_model_that_answered(host, serving, monkeypatch):
    client = serving(host)
    version = host.snapshot.version
    suggest = host.suggest

    def suggest_and_rename(asks):
        suggestions = suggest(asks)
        host.change("rename", "", None, lambda tagger: tagger.rename("sand", "grit"))
        return suggestions

    monkeypatch.setattr(host, "suggest", suggest_and_rename)
    response = client.post(BATCH, json={"items": [{"tags": ["sand"]}]})
    assert ok(response)["version"] == version
    assert response.headers["x-model-version"] == version


def test_the_parts_of_an_explanation_add_up_to_the_score(client, toy, world):
    body = {"features": features_of(world).tolist(), "label": "wave", "k": 4}
    content = toy.post("/explain", body)
    contributions = column(content["parts"], "part")
    assert sum(contributions) == pytest.approx(content["logit"])
    assert content["kind"] == "unseen"
    nearest = content["neighbours"][0]
    assert nearest["labels"]
    body["label"] = "zzz"
    response = client.post(f"{TOY}/explain", json=body)
    refused(response, 404, "zzz")


# ---------------------------------------------------------------------- looking around


def test_a_model_is_described_alone_and_in_the_list(client, toy):
    content = toy.get()
    assert content == ok(client.get("/v1/models"))["models"][0]
    assert content["kinds"]["unseen"] == 4
    assert content["n_features"] == 5
    assert content["collection"]["n_items"] == 25
    assert content["quality"]["seen"]["e_map"] > 0
    assert content["scopes"] == ["read", "review", "admin"]
    refused(client.get("/v1/models/none"), 404, "there is toy")


def test_the_map_has_a_point_for_every_label_of_every_document(client, toy, model):
    header = toy.get("/space")
    response = client.get(header["points"])
    matrix = load(model).store_.matrix
    n_points = header["n_points"]
    assert n_points == matrix.nnz
    assert len(response.content) == 16 * n_points
    xy = np.frombuffer(response.content, "<f4", 2 * n_points).reshape(n_points, 2)
    assert np.isfinite(xy).all()
    assert len(np.unique(xy, axis=0)) == n_points
    labels = np.frombuffer(response.content, "<u4", n_points, 8 * n_points)
    documents = np.frombuffer(response.content, "<u4", n_points, 12 * n_points)
    assert matrix[documents, labels].all()
    etag = response.headers["etag"]
    unchanged = client.get(header["points"], headers={"if-none-match": etag})
    assert unchanged.status_code == 304
    assert not unchanged.content


def test_documents_have_neighbours_and_shared_labels(client, toy):
    content = toy.get("/documents/0")
    assert content["labels"]
    assert content["neighbours"][0]["labels"]
    assert 0 not in column(content["neighbours"], "document")
    shared = toy.post("/documents/shared", {"documents": [0, 5, 10]})
    assert shared["n"] == 3
    assert shared["labels"][0]["lift"] > 1
    refused(client.get(f"{TOY}/documents/99999"), 404)
    near = toy.post("/neighbours", {"tags": ["sand", "sea"], "k": 3})
    assert len(near["neighbours"]) == 3


def test_labels_are_searched_ordered_and_filtered_by_kind(toy):
    content = toy.get("/labels?query=s&limit=2&order=name")
    matching = column(content["labels"], "label")
    assert matching == ["sand", "screen"]
    content = toy.get("/labels?kind=unseen")
    unseen = column(content["labels"], "label")
    assert set(unseen) == {"charger", "sink", "wave", "tram"}


def test_the_card_of_a_label_has_its_senses_and_companions(client, toy):
    card = toy.get("/labels/apple")
    assert len(card["senses"]) >= 2
    assert card["companions"]
    counts = column(card["senses"], "count")
    assert sum(counts) == card["count"]
    missing = client.get(f"{TOY}/labels/zzz")
    refused(missing, 404, "zzz")


# ---------------------------------------------------------------------- reviewing


def test_a_verdict_changes_the_next_questions_and_can_be_undone(client, toy):
    request = {"label": "wave", "k": 5, "strategy": "likeliest"}
    questions = toy.post("/ask", request)["questions"]
    first = questions[0]
    item = first["item"]
    evidence = {"score": first["probability"], "rank": first["rank"]}
    learned = toy.learn(verdict(item, "wave", False) | evidence, who="ann")
    next_questions = toy.post("/ask", request)["questions"]
    assert item not in column(next_questions, "item")
    event = toy.verdicts()[0]
    assert (event["item"], event["who"], event["undone"]) == (item, "ann", False)
    assert toy.get(f"/items/{item}")["verdicts"][0]["answer"] is False
    toy.undo(*learned["numbers"])
    assert toy.post("/ask", request)["questions"] == questions
    refused(client.post(f"{TOY}/undo", json={"numbers": [99]}), 422, "99")


def test_items_are_searched_suggested_for_and_listed_when_reviewed(client, toy, world):
    content = toy.get("/items?query=item-2&limit=3")
    assert content["total"] == 6
    assert content["items"][0]["id"] == "item-2"
    row = world.themes_test.index("beach")
    item = toy.get(f"/items/item-{row}?k=5")
    assert item["tags"] == ["sand"]
    assert item["media"] is None
    suggested = column(item["suggestions"], "label")
    assert set(suggested) <= set(world.themes["beach"])
    toy.learn(verdict("item-3", "bus"))
    reviewed = toy.get("/items?reviewed=true")["items"]
    assert column(reviewed, "id") == ["item-3"]


@pytest.mark.parametrize("path", ["items/none", "media/item-3"])
def test_an_unknown_item_or_one_without_media_is_404(client, path):
    refused(client.get(f"{TOY}/{path}"), 404)


def test_items_without_tags_of_their_own_are_listed_page_by_page(client, toy, world):
    untagged = [f"item-{row}" for row, theme in enumerate(world.themes_test) if theme != "beach"]
    first_page = toy.get("/items?tagged=false&limit=3")
    assert first_page["total"] == len(untagged)
    second_page = toy.get("/items?tagged=false&offset=3&limit=1000")
    assert column(first_page["items"] + second_page["items"], "id") == untagged
    tagged = toy.get("/items?tagged=true&query=sand")
    assert tagged["total"] == len(world.themes_test) - len(untagged)
    assert toy.get()["collection"]["n_untagged"] == len(untagged)
    toy.learn(verdict(untagged[1], "bus", False))
    reviewed = toy.get("/items?tagged=false&reviewed=true")
    assert column(reviewed["items"], "id") == [untagged[1]]
    refused(client.get(f"{TOY}/items?tagged=perhaps"), 422, "tagged")


WAVE = verdict("item-2", "wave")
NO_WAVE = verdict("item-2", "wave", False)


def test_a_verdict_that_the_caller_has_not_seen_is_not_overwritten(client, toy):
    seen = toy.get()["verdicts"]["last"]
    (number,) = toy.learn(NO_WAVE, who="ann", seen=seen)["numbers"]
    body = {"verdicts": [verdict("item-3", "wave"), WAVE], "who": "bob", "seen": seen}
    response = client.post(f"{TOY}/learn", json=body)
    refused(response, 409, "Meanwhile 'wave' was answered no for 'item-2' by ann")
    (standing,) = response.json()["standing"]
    assert standing.pop("time")
    assert standing == NO_WAVE | {"who": "ann", "number": number}
    # Nothing of the batch was learned.
    assert toy.get()["verdicts"] == {"standing": 1, "undone": 0, "last": number}
    # The same answer is no conflict, and who has seen it may answer otherwise.
    toy.learn(NO_WAVE, who="bob", seen=seen)
    toy.learn(WAVE, who="bob", seen=number + 1)
    # Clients that do not say what they have seen overwrite it.
    toy.learn(NO_WAVE)


@pytest.mark.parametrize("label", ["breaker", "wave", "Breaker ", "WAVE"])
def test_a_verdict_is_not_overwritten_under_another_spelling_or_former_name(client, toy, label):
    toy.learn(NO_WAVE, who="ann")
    toy.rename("wave", "breaker")
    body = {"verdicts": [verdict("item-2", label)], "seen": 0}
    response = client.post(f"{TOY}/learn", json=body)
    refused(response, 409, "was answered no for 'item-2' by ann")
    (standing,) = response.json()["standing"]
    assert standing["label"].lower() == "breaker"


def test_verdicts_are_listed_by_the_present_names_of_labels(toy):
    toy.learn(WAVE)
    toy.rename("wave", "breaker")
    for verdicts in (toy.verdicts(), toy.get("/items/item-2")["verdicts"]):
        assert column(verdicts, "label") == ["breaker"]


def test_a_label_that_was_renamed_twice_has_both_former_names(toy):
    toy.rename("wave", "breaker")
    toy.rename("breaker", "surf")
    assert toy.get("/labels/surf")["aliases"] == ["wave", "breaker"]


def test_of_verdicts_on_merged_labels_the_latest_stands(toy):
    toy.learn(WAVE, verdict("item-2", "sand", False))
    toy.post("/labels/wave/merge", {"into": "sand"})
    (standing,) = toy.get("/items/item-2")["verdicts"]
    assert (standing["label"], standing["answer"], standing["number"]) == ("sand", False, 2)


def test_a_verdict_that_was_undone_is_no_conflict(toy):
    learned = toy.learn(NO_WAVE, seen=0)
    toy.undo(*learned["numbers"])
    toy.learn(WAVE, seen=0)


def test_a_verdict_that_a_later_one_replaced_is_listed_as_superseded(toy):
    def states():
        verdicts = toy.verdicts()
        columns = [column(verdicts, name) for name in ("number", "undone", "superseded")]
        return list(zip(*columns, strict=True))

    for answer in (WAVE, NO_WAVE, WAVE):
        toy.learn(answer)
    assert states() == [(3, False, False), (2, False, True), (1, False, True)]
    toy.undo(3)
    assert states() == [(3, True, False), (2, False, False), (1, False, True)]


def test_verdicts_are_listed_from_an_event_on(toy):
    toy.learn(WAVE)
    toy.learn(verdict("item-3", "wave"))
    assert toy.get("/verdicts?after=2") == {"verdicts": [], "last": 2}
    assert column(toy.verdicts("?after=1"), "item") == ["item-3"]
    toy.undo(1)
    content = toy.get("/verdicts?after=2")
    assert content["last"] == 3
    assert column(content["verdicts"], "item") == ["item-2"]
    assert column(content["verdicts"], "undone") == [True]


def test_all_events_are_listed_page_by_page(toy):
    items = {f"item-{number}" for number in range(2, 9)}
    for item in sorted(items):
        toy.learn(verdict(item, "wave"))
    toy.undo(1)
    last = 0
    listed = set()
    while True:
        page = toy.get(f"/verdicts?after={last}&limit=3")
        if not page["verdicts"]:
            break
        assert page["last"] > last
        last = page["last"]
        listed.update(column(page["verdicts"], "item"))
    assert last == 8
    assert listed == items


def exported_lines(client, form):
    lines = client.get(f"{TOY}/export?form={form}").text.splitlines()
    return [json.loads(line) for line in lines]


def test_accepted_tags_are_exported_in_three_forms(client, toy):
    toy.learn(WAVE, verdict("item-2", "sand", False))
    verdicts = exported_lines(client, "jsonl")
    assert column(verdicts, "answer") == [True, False]
    documents = exported_lines(client, "documents")
    assert {"id": "item-2", "labels": ["wave"]} in documents
    task, *_ = toy.get("/export?form=label-studio")
    assert task["data"]
    result = task["annotations"][0]["result"]
    assert result[0]["type"] == "taxonomy"


def test_accepted_tags_are_exported_under_the_present_names_of_labels(client, toy):
    toy.learn(verdict("item-0", "sun"), verdict("item-2", "sand", False))
    toy.rename("sun", "daylight")
    toy.rename("sand", "grit")
    documents = exported_lines(client, "documents")
    labels_by_item = {document["id"]: document["labels"] for document in documents}
    assert "daylight" in labels_by_item["item-0"]
    assert "sun" not in labels_by_item["item-0"]
    assert "item-2" not in labels_by_item


# ---------------------------------------------------------------------- vocabulary


def test_changes_of_the_vocabulary_are_versions_that_can_be_restored(client, toy, model):
    added = toy.post("/labels", {"documents": [["canoe", "sea"]]})
    assert added["added"] == ["canoe"]
    toy.rename("canoe", "kayak")
    toy.post("/labels/sun/block", {})
    toy.post("/labels/shell/merge", {"into": "sand"})
    toy.delete("/labels/tram")
    assert "kayak" in load(model).classes_
    content = toy.get("/versions")
    actions = column(content["versions"], "action")
    assert actions == ["opened", "add", "rename", "block", "merge", "remove"]
    assert content["current"] == 6
    toy.post("/versions/1/restore")
    assert "kayak" not in load(model).classes_
    refused(client.post(f"{TOY}/versions/99/restore"), 404)
    refused(client.post(f"{TOY}/labels/sun/rename", json={"name": "sea"}), 422, "merge")


def test_several_labels_are_merged_at_once_or_none(client, toy, model):
    toy.rename("shell", "waves")
    toy.post("/labels", {"documents": [["canoe", "sea"]]})
    content = toy.get("/merges")
    assert content["used_once"] == 1
    assert column(toy.get("/labels?once=true")["labels"], "label") == ["canoe"]
    (pair,) = [pair for pair in content["pairs"] if pair["reason"] == "spelling"]
    assert {pair["label"], pair["into"]} == {"wave", "waves"}
    assert 0.85 < pair["spelling"] < 1
    assert pair["meaning"] is None
    similar = toy.get("/labels/wave")["similar"]
    assert {"label": "waves", "reason": "spelling"} in similar

    chosen = [{"label": pair["label"], "into": pair["into"]}]
    unknown = {"label": "sand", "into": "nowhere"}
    refused(client.post(f"{TOY}/merges", json={"pairs": [*chosen, unknown]}), 404, "nowhere")
    assert len(toy.get("/versions")["versions"]) == 3
    toy.post("/merges", {"pairs": [*chosen, {"label": "canoe", "into": "sea"}]})
    tagger = load(model)
    assert tagger.vocabulary_.resolve(pair["label"]) == pair["into"]
    assert tagger.vocabulary_.resolve("canoe") == "sea"
    assert len(toy.get("/versions")["versions"]) == 4
    refused(client.post(f"{TOY}/merges", json={"pairs": []}), 422)


def test_a_label_is_added_by_items(toy):
    content = toy.post("/labels", {"label": "canoe", "items": ["item-2", "item-7"]})
    assert content["added"] == ["canoe"]
    card = toy.get("/labels/canoe")
    assert card["verdicts"] == {"yes": 2, "no": 0}


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"labels": ["x"]}, 422, "--word-vectors"),
        ({}, 422, "Give `documents`"),
        ({"label": "x", "items": ["none"]}, 404, ""),
    ],
)
def test_a_label_that_cannot_be_added_is_refused(client, body, status, sentence):
    refused(client.post(f"{TOY}/labels", json=body), status, sentence)


def test_tags_outside_the_vocabulary_become_candidates(toy):
    toy.post("/suggest", {"tags": ["sand", "canoe"]})
    candidates = toy.get("/candidates")["candidates"]
    assert candidates == [{"label": "canoe", "count": 1, "source": "asked"}]


def test_reliability_comes_with_thresholds(toy):
    content = toy.get("/reliability")
    assert content["seen"][0]["n"] > 0
    assert len(content["thresholds"]) == 9


# ---------------------------------------------------------------------- limits and access


def test_a_request_without_a_valid_token_is_refused(guarded_client, tokens):
    def get(**options):
        return guarded_client.get("/v1/models", **options)

    refused(get(), 401, "token")
    refused(get(headers={"authorization": "Bearer ps_x"}), 401)
    refused(get(headers={"authorization": "Basic !"}), 401)
    refused(get(auth=("anybody", "ps_x")), 401)
    # Programs that know names and passwords alone send the token as the password.
    ok(get(auth=("anybody", tokens["read"])))
    assert guarded_client.get("/health/live").status_code == 200
    refused(guarded_client.get("/metrics"), 401)


def test_a_scope_permits_what_it_names_and_no_more(guarded_client, bearer):
    def request(scope, method, path, **options):
        return guarded_client.request(method, path, headers=bearer(scope), **options)

    (described,) = ok(request("read", "GET", "/v1/models"))["models"]
    assert described["scopes"] == ["read"]
    body = {"verdicts": [WAVE]}
    refused(request("read", "POST", f"{TOY}/learn", json=body), 403, "review")
    ok(request("review", "POST", f"{TOY}/learn", json=body))
    content = ok(request("read", "GET", f"{TOY}/verdicts"))
    assert content["verdicts"][0]["who"] == "review"
    refused(request("review", "DELETE", f"{TOY}/labels/sand"), 403, "admin")
    ok(request("admin", "DELETE", f"{TOY}/labels/sand"))


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"host": "testserver"}, "this machine"),
        ({"origin": "http://elsewhere.example"}, ""),
        ({"host": "elsewhere.example"}, ""),
    ],
)
def test_other_sites_and_other_names_of_this_machine_are_refused(client, headers, sentence):
    refused(client.get("/v1/models", headers=headers), 403, sentence)


def test_a_page_of_the_service_itself_is_answered(client):
    headers = {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}
    ok(client.get("/v1/models", headers=headers))


def test_a_body_that_is_too_large_is_refused_whatever_length_it_states(host, serving):
    client = serving(host, max_body=1000)
    refused(client.post(SUGGEST, content=b"x" * 1001, headers=RAW), 413)
    chunks = iter([b"x" * 600, b"x" * 600])
    refused(client.post(SUGGEST, content=chunks, headers=RAW), 413)
    chunks = iter([b" " * 600, b" " * 600])
    headers = {"content-type": "application/json"}
    refused(client.post(f"{TOY}/learn", content=chunks, headers=headers), 413)


def test_a_request_that_takes_too_long_is_ended(host, serving, monkeypatch):
    client = serving(host, deadline=0.2)
    monkeypatch.setattr(host.scoring, "_score", lambda asks: time.sleep(1))
    refused(client.post(SUGGEST, json={"tags": ["sand"]}), 503, "longer than")


def test_a_full_queue_is_refused_with_the_time_to_retry(host, serving):
    host.scoring.most_waiting = 0
    response = serving(host).post(SUGGEST, json={"tags": ["sand"]})
    refused(response, 429)
    assert response.headers["retry-after"] == "1"


def test_an_internal_error_is_reported_without_details(host, serving, monkeypatch):
    client = serving(host)
    monkeypatch.setattr(host, "similar_labels", lambda: 1 / 0)
    detail = refused(client.get(f"{TOY}/merges"), 500)
    assert "ZeroDivision" not in detail


def test_answers_carry_the_request_id_and_security_headers(client):
    headers = client.get("/v1/models", headers={"x-request-id": "mine-1"}).headers
    assert headers["x-request-id"] == "mine-1"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_health_and_metrics(client, toy):
    assert ok(client.get("/health/live")) == {"status": "live"}
    toy.post("/suggest", {"tags": ["sand"]})
    text = client.get("/metrics").text
    assert 'polyseme_requests_total{route="/v1/models/{model}/suggest",status="200"} 1.0' in text
    assert 'polyseme_model_labels{model="toy"' in text


def test_several_models_answer_side_by_side(host, model, serving):
    client = serving(host, ModelHost(model, name="other"))
    assert column(ok(client.get("/v1/models"))["models"], "id") == ["toy", "other"]
    second = ModelClient(client, "/v1/models/other")
    second.post("/suggest", {"tags": ["sand"]})


def test_a_reload_takes_a_changed_model_and_refuses_a_broken_one(client, toy, model):
    load(model).block(["sand"]).save(model)
    toy.post("/reload")
    card = toy.get("/labels/sand")
    assert card["blocked"]
    file = model / "model.safetensors"
    file.write_text("{}")
    response = client.post(f"{TOY}/reload")
    refused(response, 422, "former model goes on")
    toy.post("/suggest", {"tags": ["sea"]})


def test_a_client_that_leaves_while_sending_is_no_failure(client, caplog):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": SUGGEST,
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "query_string": b"",
        "http_version": "1.1",
        "root_path": "",
    }
    asyncio.run(client.app(scope, receive, send))
    assert not sent
    assert not caplog.records
    assert 'status="499"' in client.get("/metrics").text
