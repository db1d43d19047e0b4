"""Label Studio's interface: configurations, predictions, and what is learned from annotations."""

from __future__ import annotations

import asyncio
import threading

import pytest

from polyseme.base.validation import InputError
from polyseme.feedback.verdict_log import VerdictLog
from polyseme.storage.model_file import ModelFileError
from polyseme.studio import label_studio
from polyseme.studio.access import Caller
from polyseme.studio.label_studio import read_config

BACKEND = "/label-studio/toy"
CHOICES = """<View><Image name="img" value="$image"/>
<Choices name="tags" toName="img" choice="multiple">
<Choice value="Sand"/><Choice value="The sea" alias="sea"/><Choice value="pie"/>
<Choice value="nothing we know"/></Choices></View>"""
TAXONOMY = """<View><Taxonomy name="tree" toName="img"><Choice value="outside">
<Choice value="sand"/><Choice value="coast"><Choice value="sea"/></Choice></Choice></Taxonomy>
<Image name="img" value="$image"/></View>"""
FREE = '<View><Text name="t" value="$text"/><Taxonomy name="tags" toName="t"/></View>'


def post_predict(client, body):
    return client.post(f"{BACKEND}/predict", json=body)


def predict(client, config, *data, threshold=None):
    """Return the predictions for tasks with these data."""
    tasks = [{"id": number, "data": fields} for number, fields in enumerate(data, 1)]
    body = {"tasks": tasks, "label_config": config, "project": "1.2"}
    if threshold is not None:
        body["params"] = {"threshold": threshold}
    response = post_predict(client, body)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def predict_paths(client, *data, threshold=None, config=TAXONOMY):
    """Return the taxonomy paths that are predicted for a task."""
    (prediction,) = predict(client, config, *data, threshold=threshold)
    return prediction["result"][0]["value"]["taxonomy"]


def setup(client, config):
    return client.post(f"{BACKEND}/setup", json={"project": "1.2", "schema": config})


@pytest.fixture
def beach(world):
    """The name of an item at the beach."""
    row = world.themes_test.index("beach")
    return f"item-{row}"


# ---------------------------------------------------------------------- configurations


def test_choices_are_read_with_the_object_that_they_annotate():
    (control,) = read_config(CHOICES)
    assert (control.kind, control.name, control.object_name) == ("choices", "tags", "img")
    assert (control.field, control.single, control.options) == ("image", False, "")
    paths = [choice.path for choice in control.choices]
    assert paths[:2] == [("Sand",), ("sea",)]


def test_a_taxonomy_is_read_as_paths():
    (control,) = read_config(TAXONOMY)
    assert control.kind == "taxonomy"
    assert not control.single
    assert [choice.path for choice in control.choices] == [
        ("outside",),
        ("outside", "sand"),
        ("outside", "coast"),
        ("outside", "coast", "sea"),
    ]


def test_choices_are_single_by_default_and_may_come_with_the_task():
    (control,) = read_config(CHOICES.replace(' choice="multiple"', ' value="$options"'))
    assert control.single
    assert control.options == "options"


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
    ids=range(7),
)
def test_a_wrong_configuration_is_refused_with_a_sentence(client, config, sentence):
    with pytest.raises(InputError, match=sentence):
        read_config(config)
    assert setup(client, config).status_code == 422
    body = {"tasks": [{"id": 1, "data": {}}], "label_config": config}
    assert post_predict(client, body).status_code == 422


def test_a_setup_without_any_known_label_is_refused(client):
    config = '<View><Text name="t" value="$t"/><Choices name="c" toName="t"><Choice value="zz"/>'
    response = setup(client, config + "</Choices></View>")
    detail = response.json()["detail"]
    assert "None of the choices of 'c' is a label of this model: zz" in detail


@pytest.mark.parametrize("config", [CHOICES, TAXONOMY, FREE], ids=["choices", "taxonomy", "free"])
def test_a_setup_returns_the_version_of_the_model(client, host, config):
    assert setup(client, config).json() == {"model_version": host.snapshot.version}


def test_health_and_metrics_answer(client):
    for path in ("/", "/health"):
        assert client.get(BACKEND + path).json()["status"] == "UP"
    assert client.get(f"{BACKEND}/metrics").json() == {}
    assert client.get("/label-studio/other/health").status_code == 404


# ---------------------------------------------------------------------- predictions


def test_predictions_are_the_likely_choices_under_their_values(client, host, beach):
    (prediction,) = predict(client, CHOICES, {"image": beach}, threshold=0.3)
    tagger = host.snapshot.tagger
    features = host.collection.features_of(beach)
    scores = dict(zip(tagger.classes_, tagger.predict_proba(features[None])[0], strict=True))
    likely = [label for label in ("sand", "sea", "pie") if scores[label] >= 0.3]
    likely.sort(key=scores.get, reverse=True)
    assert "sea" in likely
    assert "pie" not in likely
    value_by_label = {"sand": "Sand", "sea": "sea"}
    (result,) = prediction["result"]
    assert result == {
        "from_name": "tags",
        "to_name": "img",
        "type": "choices",
        "value": {"choices": [value_by_label[label] for label in likely]},
    }
    mean_score = sum(scores[label] for label in likely) / len(likely)
    assert prediction["score"] == pytest.approx(mean_score, abs=1e-5)
    assert prediction["model_version"] == host.snapshot.version


def test_of_single_choices_the_best_one_is_predicted(client, beach):
    config = CHOICES.replace('choice="multiple"', 'choice="single"')
    (prediction,) = predict(client, config, {"image": beach}, threshold=1)
    (result,) = prediction["result"]
    assert len(result["value"]["choices"]) == 1


def test_a_taxonomy_gets_paths_and_labels_that_it_lacks(client, beach):
    (prediction,) = predict(client, TAXONOMY, {"image": beach}, threshold=0.2)
    (result,) = prediction["result"]
    assert result["type"] == "taxonomy"
    paths = result["value"]["taxonomy"]
    assert ["outside", "coast", "sea"] in paths
    assert ["sun"] in paths or ["wave"] in paths


def test_a_task_may_be_features_or_an_item_or_its_address(client, host, beach):
    row = host.collection.features_of(beach).tolist()
    tasks = [
        {"image": beach},
        {"features": row},
        {"image": row},
        {"item": beach},
        {"image": f"http://labels.example/data/upload/3/0a1b2c3d-{beach}"},
        {"image": f"/data/local-files/?d=photos/{beach}"},
    ]
    predictions = predict(client, TAXONOMY, *tasks)
    assert predictions[0]["result"]
    assert predictions == predictions[:1] * len(tasks)


def test_a_task_may_have_tags(client, beach):
    paths = predict_paths(client, {"text": "sand, sea"}, threshold=0, config=FREE)
    assert paths[:2] == [["sand"], ["sea"]]
    assert ["pie"] in predict_paths(client, {"image": beach, "tags": ["pie"]})


@pytest.mark.parametrize(
    "data",
    [
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
    ],
    ids=range(10),
)
def test_a_task_of_an_unknown_item_gets_no_result_and_nothing_is_fetched(client, monkeypatch, data):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("went outside"))
    (prediction,) = predict(client, CHOICES, data)
    assert prediction["result"] == []
    assert prediction["score"] == 0.0


def test_choices_that_come_with_the_task_are_predicted(client, beach):
    config = CHOICES.replace('choice="multiple"', 'choice="multiple" value="$options"')
    data = {"image": beach, "options": [{"value": "wave"}, "sun", {"html": "x"}, 3]}
    (prediction,) = predict(client, config, data, threshold=0.0)
    (result,) = prediction["result"]
    assert {"wave", "sun", "sea"} <= set(result["value"]["choices"])


@pytest.mark.parametrize(
    "body",
    [{}, {"tasks": 3}, {"tasks": [{"id": 1, "data": {}}] * 257, "label_config": CHOICES}],
    ids=["empty", "no list", "too many"],
)
def test_a_wrong_body_is_refused(client, body):
    assert post_predict(client, body).status_code == 422


# ---------------------------------------------------------------------- learning


def chosen(*labels):
    """Return the result of an annotation that chooses labels and rates the task."""
    choices = {"choices": [*labels]}
    return [
        {"from_name": "tags", "to_name": "img", "type": "choices", "value": choices},
        {"from_name": "other", "type": "rating", "value": {"rating": 3}},
    ]


def send(client, action, data, annotation, config=CHOICES, **options):
    """Send an event as Label Studio's webhook does."""
    body = {
        "action": action,
        "project": {"id": 7, "label_config": config},
        "task": {"id": 5, "data": data},
        "annotation": annotation,
    }
    return client.post(f"{BACKEND}/webhook", json=body, **options)


def create_sea(client, image="item-0", **options):
    """Annotate an item with `sea`."""
    annotation = {"id": 1, "result": chosen("sea")}
    return send(client, "ANNOTATION_CREATED", {"image": image}, annotation, **options)


def answers(host, item):
    """Return the standing verdicts on an item, by label."""
    return {
        verdict.label: verdict.answer for verdict in host.snapshot.verdicts_by_item.get(item, ())
    }


def test_a_chosen_label_is_accepted_and_a_removed_prediction_is_rejected(client, host, beach):
    annotation = {
        "id": 3,
        "result": chosen("sea", "brand new"),
        "prediction": {"result": chosen("sea", "Sand")},
    }
    response = send(client, "ANNOTATION_CREATED", {"image": beach}, annotation)
    assert response.status_code == 201
    assert response.json() == {"result": {}, "status": "ok"}
    assert answers(host, beach) == {"sand": False, "sea": True, "brand new": True}
    n_events = host.snapshot.n_events
    send(client, "ANNOTATION_UPDATED", {"image": beach}, annotation)
    assert host.snapshot.n_events == n_events, "a repeated annotation is not learned again"


def test_an_annotation_is_replaced_by_its_update_and_removed_with_it(client, host, beach):
    data = {"image": beach}
    send(client, "ANNOTATION_CREATED", data, {"id": 3, "result": chosen("sea")})
    send(client, "ANNOTATION_UPDATED", data, {"id": 3, "result": chosen("Sand")})
    assert answers(host, beach) == {"sand": True}
    send(client, "ANNOTATION_CREATED", data, {"id": 4, "result": chosen("pie")})
    send(client, "ANNOTATION_DELETED", data, {"id": 3, "result": []})
    assert answers(host, beach) == {"pie": True}


def test_a_cancelled_annotation_is_not_learned(client, host, beach):
    annotation = {"id": 9, "result": chosen("sea"), "was_cancelled": True}
    send(client, "ANNOTATION_CREATED", {"image": beach}, annotation)
    assert answers(host, beach) == {}


def test_a_task_with_features_is_an_item_of_its_own(client, host, world):
    data = {"features": world.X_test[0].tolist()}
    send(client, "ANNOTATION_CREATED", data, {"id": 1, "result": chosen("sea")})
    assert answers(host, "label-studio 7 5") == {"sea": True}
    paths = {"taxonomy": [["outside", "coast", "sea"], ["outside", "dune"]]}
    annotation = {"id": 1, "result": [{"from_name": "tree", "value": paths}]}
    send(client, "ANNOTATION_UPDATED", data, annotation, TAXONOMY)
    assert answers(host, "label-studio 7 5") == {"sea": True, "dune": True}


@pytest.fixture
def learning_log(monkeypatch):
    """What the service logs of annotations that it could not learn."""
    lines = []

    def warning(text, *arguments):
        lines.append(text % arguments)

    monkeypatch.setattr(label_studio._log, "warning", warning)
    return lines


@pytest.mark.parametrize(
    ("image", "config", "status", "sentence"),
    [
        ("nobody", CHOICES, 404, "There is no item for task 5"),
        ("item-0", "<View/>", 422, "neither <Choices> nor <Taxonomy>"),
    ],
)
def test_an_annotation_that_cannot_be_learned_is_refused_and_logged(
    client, host, learning_log, image, config, status, sentence
):
    response = create_sea(client, image, config=config)
    assert response.status_code == status
    assert sentence in response.json()["detail"]
    (line,) = learning_log
    assert sentence in line
    assert not host.snapshot.verdicts_by_item


def test_values_that_are_no_labels_are_ignored(client, host, learning_log):
    values = [None, 3, {"choices": 4}, {"choices": [3, [], "", "x" * 999]}]
    result = [{"from_name": "tags", "value": value} for value in values]
    annotation = {"id": 1, "result": result}
    response = send(client, "ANNOTATION_CREATED", {"image": "item-0"}, annotation)
    assert response.status_code == 201
    assert not host.snapshot.verdicts_by_item
    assert not learning_log


def test_an_event_without_an_annotation_is_ignored(client, host, learning_log):
    send(client, "START_TRAINING", {}, {})
    assert not host.snapshot.verdicts_by_item
    assert not learning_log


def test_an_annotation_that_cannot_be_written_is_refused_and_logged(
    client, learning_log, monkeypatch
):
    def fail(*_):
        raise ModelFileError("The verdicts cannot be written (disk full).")

    monkeypatch.setattr(VerdictLog, "append", fail)
    response = create_sea(client)
    assert response.status_code == 503
    assert "disk full" in response.json()["detail"]
    assert learning_log == [
        "toy: an annotation was not learned: The verdicts cannot be written (disk full)."
    ]


def test_an_annotation_is_learned_although_the_sender_has_left(host, monkeypatch):
    """Label Studio waits for a second, and sends nothing twice."""
    may_write = threading.Event()
    learn = host.learn

    def wait_and_learn(*arguments):
        assert may_write.wait(60)
        return learn(*arguments)

    monkeypatch.setattr(host, "learn", wait_and_learn)
    body = label_studio.WebhookBody(
        action="ANNOTATION_CREATED",
        project={"id": 7, "label_config": CHOICES},
        task={"id": 5, "data": {"image": "item-0"}},
        annotation={"id": 1, "result": chosen("sea")},
    )

    async def send_and_leave():
        caller = Caller("ann", "review")
        request = asyncio.create_task(label_studio.webhook(body, host, caller))
        await asyncio.sleep(0)
        assert len(label_studio._waiting) == 1
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        may_write.set()
        await asyncio.gather(*label_studio._waiting)

    asyncio.run(send_and_leave())
    assert answers(host, "item-0") == {"sea": True}
    assert not label_studio._waiting


def test_too_many_annotations_at_once_are_refused(client, learning_log, monkeypatch):
    monkeypatch.setattr(label_studio, "_MOST_WAITING", 0)
    assert create_sea(client).status_code == 429
    assert len(learning_log) == 1


def test_annotations_are_learned_in_the_order_of_their_arrival(host, monkeypatch):
    begun, done = [], []

    async def learn_slowly(_, number):
        begun.append(number)
        await asyncio.sleep(0)
        done.append(number)

    monkeypatch.setattr(label_studio, "_learn", learn_slowly)

    async def learn_several():
        tasks = [label_studio._in_turn(host, number) for number in range(5)]
        await asyncio.gather(*tasks)

    asyncio.run(learn_several())
    assert begun == done == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("scope", "status", "learned"), [("read", 403, {}), ("review", 201, {"sea": True})]
)
def test_annotations_need_a_scope(guarded_client, host, bearer, scope, status, learned):
    response = create_sea(guarded_client, headers=bearer(scope))
    assert response.status_code == status
    assert answers(host, "item-0") == learned
