"""Label Studio's interface: configurations, predictions, and what is learned from annotations."""

from __future__ import annotations

import asyncio
import threading

import pytest

from polyseme._validation import InputError
from polyseme.persistence import ModelFileError
from polyseme.serve import label_studio
from polyseme.serve.access import Caller, Tokens, new_token
from polyseme.serve.label_studio import read_config
from polyseme.verdicts import VerdictLog

BACKEND = "/label-studio/toy"
CHOICES = """<View><Image name="img" value="$image"/>
<Choices name="tags" toName="img" choice="multiple">
<Choice value="Sand"/><Choice value="The sea" alias="sea"/><Choice value="pie"/>
<Choice value="nothing we know"/></Choices></View>"""
TAXONOMY = """<View><Taxonomy name="tree" toName="img"><Choice value="outside">
<Choice value="sand"/><Choice value="coast"><Choice value="sea"/></Choice></Choice></Taxonomy>
<Image name="img" value="$image"/></View>"""
FREE = '<View><Text name="t" value="$text"/><Taxonomy name="tags" toName="t"/></View>'


def predict(client, config, *data, **more):
    tasks = [{"id": number, "data": one} for number, one in enumerate(data, 1)]
    body = {"tasks": tasks, "label_config": config, "project": "1.2"} | more
    response = client.post(f"{BACKEND}/predict", json=body)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def beach(world):
    return f"item-{world.themes_test.index('beach')}"


# ---------------------------------------------------------------------- configurations


def test_controls_are_read_with_what_they_show():
    (choices,) = read_config(CHOICES)
    assert (choices.kind, choices.name, choices.object_name) == ("choices", "tags", "img")
    assert (choices.field, choices.single, choices.options) == ("image", False, "")
    assert [one.path for one in choices.choices][:2] == [("Sand",), ("sea",)]
    (tree,) = read_config(TAXONOMY)
    assert tree.kind == "taxonomy" and not tree.single
    assert [one.path for one in tree.choices] == [
        ("outside",),
        ("outside", "sand"),
        ("outside", "coast"),
        ("outside", "coast", "sea"),
    ]
    single = CHOICES.replace(' choice="multiple"', ' value="$options"')
    assert read_config(single)[0].single and read_config(single)[0].options == "options"


ENTITY = '<!DOCTYPE v [<!ENTITY a "b">]><View><Text name="t" value="$t"/></View>'


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (None, "labelling configuration is missing"),
        ("<View>", "not well-formed"),
        (ENTITY, "has a DOCTYPE"),
        ('<View><Text name="t" value="$t"/></View>', "neither <Choices> nor <Taxonomy>"),
        (CHOICES.replace('toName="img"', 'toName="image"'), "goes to 'image' .*shown: img"),
        (CHOICES.replace('toName="img"', ""), "'tags' .*shown: img"),
        (CHOICES.replace('value="$image"', 'value="x.png"'), "shows nothing; what is shown: none"),
    ],
)
def test_configurations_that_do_not_fit_are_told_in_a_sentence(client, config, sentence):
    with pytest.raises(InputError, match=sentence):
        read_config(config)
    refused = client.post(f"{BACKEND}/setup", json={"project": "1.2", "schema": config})
    assert refused.status_code == 422
    assert predict_status(client, config) == 422


def predict_status(client, config):
    body = {"tasks": [{"id": 1, "data": {}}], "label_config": config}
    return client.post(f"{BACKEND}/predict", json=body).status_code


def test_choices_of_which_none_is_a_label_are_refused_before_anybody_wonders(client, host):
    strange = '<View><Text name="t" value="$t"/><Choices name="c" toName="t"><Choice value="zz"/>'
    refused = client.post(f"{BACKEND}/setup", json={"schema": strange + "</Choices></View>"})
    assert "None of the choices of 'c' is a label of this model: zz" in refused.json()["detail"]
    for config in (CHOICES, TAXONOMY, FREE):
        taken = client.post(f"{BACKEND}/setup", json={"project": "1.2", "schema": config})
        assert taken.json() == {"model_version": host.now.version}


def test_health_and_metrics_are_there(client):
    for path in ("/", "/health"):
        assert client.get(BACKEND + path).json()["status"] == "UP"
    assert client.get(f"{BACKEND}/metrics").json() == {}
    assert client.get("/label-studio/other/health").status_code == 404


# ---------------------------------------------------------------------- predictions


def test_predictions_name_what_is_likely_and_can_be_chosen(client, host, world):
    name = beach(world)
    (found,) = predict(client, CHOICES, {"image": name}, params={"threshold": 0.3})
    scores = dict(
        zip(
            host.now.tagger.classes_,
            host.now.tagger.predict_proba(host.collection.row(name)[None])[0],
            strict=True,
        )
    )
    likely = sorted(
        (label for label in ("sand", "sea", "pie") if scores[label] >= 0.3),
        key=lambda label: -scores[label],
    )
    own = {"sand": "Sand", "sea": "sea", "pie": "pie"}
    (result,) = found["result"]
    assert result == {
        "from_name": "tags",
        "to_name": "img",
        "type": "choices",
        "value": {"choices": [own[label] for label in likely]},
    }
    assert "sea" in likely and "pie" not in likely
    assert found["score"] == pytest.approx(
        sum(scores[one] for one in likely) / len(likely), abs=1e-5
    )
    assert found["model_version"] == host.now.version


def test_a_single_choice_is_the_best_one(client, world):
    single = CHOICES.replace('choice="multiple"', 'choice="single"')
    (found,) = predict(client, single, {"image": beach(world)}, params={"threshold": 1})
    assert len(found["result"][0]["value"]["choices"]) == 1


def test_a_taxonomy_has_paths_and_takes_labels_that_it_lacks(client, world):
    (found,) = predict(client, TAXONOMY, {"image": beach(world)}, params={"threshold": 0.2})
    paths = found["result"][0]["value"]["taxonomy"]
    assert ["outside", "coast", "sea"] in paths
    assert ["sun"] in paths or ["wave"] in paths
    assert found["result"][0]["type"] == "taxonomy"


def test_tasks_are_features_items_addresses_or_tags(client, host, world):
    name = beach(world)
    row = host.collection.row(name).tolist()
    address = f"http://labels.example/data/upload/3/0a1b2c3d-{name}"
    local = f"/data/local-files/?d=photos/{name}"
    same = predict(
        client, TAXONOMY, {"image": name}, {"features": row}, {"image": row}, {"item": name},
        {"image": address}, {"image": local},
    )  # fmt: skip
    assert all(one == same[0] for one in same) and same[0]["result"]
    (tags,) = predict(client, FREE, {"text": "sand, sea"}, params={"threshold": 0})
    assert tags["result"][0]["value"]["taxonomy"][:2] == [["sand"], ["sea"]]
    (both,) = predict(client, TAXONOMY, {"image": name, "tags": ["pie"]})
    assert ["pie"] in both["result"][0]["value"]["taxonomy"]


def test_what_nothing_is_known_of_has_no_result_and_nothing_is_fetched(client, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("went outside"))
    nothing = [
        {},
        {"image": "http://elsewhere.example/x.png"},
        {"image": 3},
        {"image": ["x"]},
        {"image": [1e300] * 5},
        {"image": [1.0, 2.0]},
        {"image": "data:image/png;base64,!!"},
        {"image": "../../secret"},
        {"item": "nobody"},
        {"tags": {"a": 1}},
    ]
    for found in predict(client, CHOICES, *nothing):
        assert found["result"] == [] and found["score"] == 0.0


def test_choices_may_come_with_the_task(client, world):
    config = CHOICES.replace('choice="multiple"', 'choice="multiple" value="$options"')
    data = {"image": beach(world), "options": [{"value": "wave"}, "sun", {"html": "x"}, 3]}
    (found,) = predict(client, config, data, params={"threshold": 0.0})
    assert {"wave", "sun", "sea"} <= set(found["result"][0]["value"]["choices"])


@pytest.mark.parametrize(
    "body", [{}, {"tasks": 3}, {"tasks": [{"id": 1, "data": {}}] * 257, "label_config": CHOICES}]
)
def test_other_bodies_are_refused(client, body):
    assert client.post(f"{BACKEND}/predict", json=body).status_code == 422


# ---------------------------------------------------------------------- learning


def result(*labels):
    return [
        {"from_name": "tags", "to_name": "img", "type": "choices", "value": {"choices": [*labels]}},
        {"from_name": "other", "type": "rating", "value": {"rating": 3}},
    ]


def tell(client, action, data, annotation, config=CHOICES, **options):
    body = {
        "action": action,
        "project": {"id": 7, "label_config": config},
        "task": {"id": 5, "data": data},
        "annotation": annotation,
    }
    return client.post(f"{BACKEND}/webhook", json=body, **options)


def said(host, name):
    return {one.label: one.answer for one in host.now.said.get(name, ())}


def test_what_annotators_choose_is_right_and_what_they_take_out_is_wrong(client, host, world):
    name = beach(world)
    annotation = {
        "id": 3,
        "result": result("sea", "brand new"),
        "prediction": {"result": result("sea", "Sand")},
    }
    answer = tell(client, "ANNOTATION_CREATED", {"image": name}, annotation)
    assert answer.status_code == 201 and answer.json() == {"result": {}, "status": "ok"}
    assert said(host, name) == {"sand": False, "sea": True, "brand new": True}
    n_events = host.now.n_events
    tell(client, "ANNOTATION_UPDATED", {"image": name}, annotation)
    assert host.now.n_events == n_events, "what was said before is not said again"
    tell(client, "ANNOTATION_UPDATED", {"image": name}, {"id": 3, "result": result("Sand")})
    assert said(host, name) == {"sand": True}
    tell(client, "ANNOTATION_CREATED", {"image": name}, {"id": 4, "result": result("pie")})
    tell(client, "ANNOTATION_DELETED", {"image": name}, {"id": 3, "result": []})
    assert said(host, name) == {"pie": True}
    skipped = {"id": 9, "result": result("sea"), "was_cancelled": True}
    tell(client, "ANNOTATION_CREATED", {"image": name}, skipped)
    assert said(host, name) == {"pie": True}


def test_tasks_with_features_are_items_of_their_own(client, host, world):
    row = world.X_test[0].tolist()
    tell(client, "ANNOTATION_CREATED", {"features": row}, {"id": 1, "result": result("sea")})
    assert said(host, "label-studio 7 5") == {"sea": True}
    chosen = {"taxonomy": [["outside", "coast", "sea"], ["outside", "dune"]]}
    annotation = {"id": 1, "result": [{"from_name": "tree", "value": chosen}]}
    tell(client, "ANNOTATION_UPDATED", {"features": row}, annotation, TAXONOMY)
    assert said(host, "label-studio 7 5") == {"sea": True, "dune": True}


def test_what_cannot_be_learned_is_refused_and_logged(client, host, learning_log):
    tell(client, "START_TRAINING", {}, {})
    annotation = {"id": 1, "result": result("sea")}
    refused = tell(client, "ANNOTATION_CREATED", {"image": "nobody"}, annotation)
    assert refused.status_code == 404
    assert "There is no item for task 5" in refused.json()["detail"]
    refused = tell(client, "ANNOTATION_CREATED", {"image": "item-0"}, annotation, "<View/>")
    assert refused.status_code == 422
    assert len(learning_log) == 2 and "neither <Choices> nor <Taxonomy>" in learning_log[1]
    odd = [{"from_name": "tags", "value": value} for value in (None, 3, {"choices": 4})]
    odd.append({"from_name": "tags", "value": {"choices": [3, [], "", "x" * 999]}})
    told = tell(client, "ANNOTATION_CREATED", {"image": "item-0"}, {"id": 1, "result": odd})
    assert told.status_code == 201
    assert not host.now.said


@pytest.fixture
def learning_log(monkeypatch):
    """What the service logs of annotations that it could not learn."""
    lines = []
    monkeypatch.setattr(
        label_studio._log, "warning", lambda text, *given: lines.append(text % given)
    )
    return lines


def test_an_answer_that_cannot_be_written_is_refused_and_logged(
    client, host, learning_log, monkeypatch
):
    def full(*_):
        raise ModelFileError("The verdicts cannot be written (disk full).")

    monkeypatch.setattr(VerdictLog, "append", full)
    annotation = {"id": 1, "result": result("sea")}
    refused = tell(client, "ANNOTATION_CREATED", {"image": "item-0"}, annotation)
    assert refused.status_code == 503 and "disk full" in refused.json()["detail"]
    assert learning_log == [
        "toy: an annotation was not learned: The verdicts cannot be written (disk full)."
    ]


def test_an_annotation_is_learned_also_where_nobody_waits_for_the_answer(host, monkeypatch):
    """Label Studio waits for a second, and sends nothing twice."""
    may_write, learn = threading.Event(), host.learn

    def wait_and_learn(*given):
        assert may_write.wait(60)
        return learn(*given)

    monkeypatch.setattr(host, "learn", wait_and_learn)
    body = label_studio.WebhookBody(
        action="ANNOTATION_CREATED",
        project={"id": 7, "label_config": CHOICES},
        task={"id": 5, "data": {"image": "item-0"}},
        annotation={"id": 1, "result": result("sea")},
    )

    async def leave():
        request = asyncio.create_task(label_studio.webhook(body, host, Caller("ann", "review")))
        await asyncio.sleep(0)
        assert len(label_studio._waiting) == 1
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        may_write.set()
        await asyncio.gather(*label_studio._waiting)

    asyncio.run(leave())
    assert said(host, "item-0") == {"sea": True} and not label_studio._waiting


def test_too_many_annotations_at_once_are_refused(client, host, learning_log, monkeypatch):
    monkeypatch.setattr(label_studio, "_MOST_WAITING", 0)
    annotation = {"id": 1, "result": result("sea")}
    refused = tell(client, "ANNOTATION_CREATED", {"image": "item-0"}, annotation)
    assert refused.status_code == 429 and len(learning_log) == 1


def test_annotations_are_learned_in_the_order_in_which_they_came(host, monkeypatch):
    begun, done = [], []

    async def slow(_, number):
        begun.append(number)
        await asyncio.sleep(0)
        done.append(number)

    monkeypatch.setattr(label_studio, "_learn", slow)

    async def several():
        await asyncio.gather(*(label_studio._in_turn(host, number) for number in range(5)))

    asyncio.run(several())
    assert begun == done == [0, 1, 2, 3, 4]


def test_annotations_need_a_scope(host, serving, tmp_path):
    file = tmp_path / "tokens.json"
    tokens = {scope: new_token(file, scope, scope) for scope in ("read", "review")}
    client = serving(host, tokens=Tokens.read(file))
    annotation = {"id": 1, "result": result("sea")}
    for scope, status in (("read", 403), ("review", 201)):
        headers = {"authorization": f"Bearer {tokens[scope]}"}
        data = {"image": "item-0"}
        told = tell(client, "ANNOTATION_CREATED", data, annotation, headers=headers)
        assert told.status_code == status
    assert said(host, "item-0") == {"sea": True}
