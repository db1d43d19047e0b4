"""Annif's interface: by its published schema and its own client, where Annif is installed."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pytest

from polyseme.serve.access import Tokens, new_token
from polyseme.serve.annif import label_of, uri_of


def suggest(client, **fields):
    return client.post("/v1/projects/toy/suggest", data=fields)


def labels(response):
    assert response.status_code == 200, response.text
    return [one["label"] for one in response.json()["results"]]


def test_models_are_projects_and_their_labels_a_vocabulary(client, host):
    (vocabulary,) = client.get("/v1/vocabs").json()["vocabs"]
    size = len(host.now.kinds)
    assert vocabulary == {"vocab_id": "toy", "languages": ["und"], "size": size, "loaded": True}
    (project,) = client.get("/v1/projects").json()["projects"]
    assert project == client.get("/v1/projects/toy").json()
    assert project["project_id"] == "toy" and project["is_trained"] is True
    assert project["vocab"] == vocabulary and project["backend"] == {"backend_id": "polyseme"}
    missing = client.get("/v1/projects/other")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"


def test_tags_in_a_text_are_completed(client, host):
    first = suggest(client, text="Sand, sea\nnobody knows this, ", limit="3")
    expected, scores = host.now.tagger.complete(["sand", "sea"], k=3)
    assert labels(first) == expected.tolist()
    assert [one["score"] for one in first.json()["results"]] == pytest.approx(scores, abs=1e-5)
    assert first.json()["results"][0]["uri"] == uri_of(expected[0])
    assert first.headers["x-model-version"] == host.now.version
    likely = suggest(client, text="sand;sea", threshold=str(scores[1]))
    assert labels(likely) == expected[:2].tolist()
    assert labels(suggest(client, text="sand", limit="0")) == []


def test_a_text_without_a_known_tag_gets_nothing_and_is_not_taken_for_tags(client, host):
    for text in ("", "a long text, in words; of which\nnone is a tag", "x" * 100_000):
        assert labels(suggest(client, text=text)) == []
    assert not host.told.typed


def test_features_are_numbers_or_base64_and_may_have_tags_beside_them(client, host, world):
    row = world.X_test[0].astype(np.float32)
    numbers = ",".join(map(str, row.tolist()))
    raw = base64.b64encode(row.tobytes()).decode()
    first = suggest(client, text="", metadata_features=numbers, limit="4")
    assert labels(first) == host.now.tagger.rank(row[None], 4)[0][0].tolist()
    assert first.json() == suggest(client, text="", metadata_features=raw, limit="4").json()
    with_tag = suggest(client, text="phone", metadata_features=raw, limit="4")
    assert "phone" not in labels(with_tag) and with_tag.json() != first.json()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"limit": "3"}, "`text` is missing"),
        ({"text": "sand", "limit": "-1"}, "`limit` must be a whole number"),
        ({"text": "sand", "limit": "x"}, "`limit` must be a whole number"),
        ({"text": "sand", "threshold": "2"}, "`threshold` between 0 and 1"),
        ({"text": "sand", "threshold": "nan"}, "`threshold` between 0 and 1"),
        ({"text": "", "metadata_features": "1,2"}, "takes 5 features"),
        ({"text": "", "metadata_features": "1,x,2"}, "must be numbers"),
        ({"text": "", "metadata_features": "1,1e99,1,1,1"}, "must be finite"),
        ({"text": "", "metadata_features": "1,1-1,1,1,1"}, "is no number"),
        ({"text": "", "metadata_features": "!!!!"}, "cannot be decoded"),
        ({"text": "", "metadata_features": "A" * 600_000}, "65536 numbers at the most"),
    ],
)
def test_what_cannot_be_used_is_a_bad_request_with_a_sentence(client, fields, sentence):
    refused = suggest(client, **fields)
    assert refused.status_code == 400 and sentence in refused.json()["detail"]
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_batch_has_ids_and_up_to_32_documents(client, world):
    features = ",".join(map(str, world.X_test[0].tolist()))
    documents = [
        {"text": "sand, sea", "document_id": "one"},
        {"text": "nothing known"},
        {"text": "", "metadata": {"features": features}},
    ]
    found = client.post(
        "/v1/projects/toy/suggest-batch?limit=2", json={"documents": documents}
    ).json()
    assert [one["document_id"] for one in found] == ["one", None, None]
    assert [len(one["results"]) for one in found] == [2, 0, 2]
    assert found[0]["results"] == suggest(client, text="sand, sea", limit="2").json()["results"]
    for body, sentence in (
        ({"documents": [{"text": "sand"}] * 33}, "at most 32 items"),
        ({"documents": [{"text": 3}]}, "`documents.0.text`"),
        ([], "The body cannot be read"),
        ({"documents": [{"text": "", "metadata": {"features": "1,2"}}]}, "takes 5 features"),
    ):
        refused = client.post("/v1/projects/toy/suggest-batch", json=body)
        assert refused.status_code == 400 and sentence in refused.json()["detail"]
    broken = client.post("/v1/projects/toy/suggest-batch", content=b"{")
    assert broken.status_code == 400


def learn(client, documents, **options):
    return client.post("/v1/projects/toy/learn", json=documents, **options)


def test_documents_with_subjects_become_known_and_may_bring_new_labels(client, host):
    before = len(host.now.tagger.store_.ids)
    subjects = [{"uri": uri_of("sea")}, {"uri": "http://example.org/7", "label": "pebble"}]
    done = learn(client, [{"text": "sand, words that are no tag", "subjects": subjects}])
    assert done.status_code == 204 and done.content == b""
    store = host.now.tagger.store_
    assert len(store.ids) == before + 1
    assert sorted(store.document(before)) == ["pebble", "sand", "sea"]
    assert learn(client, [{"text": "sand"}]).status_code == 204
    assert len(host.now.tagger.store_.ids) == before + 1


def test_subjects_of_items_with_features_are_answers(client, host, world):
    row = ",".join(map(str, world.X_test[0].tolist()))
    score = host.now.tagger.predict_proba(world.X_test[:1])
    document = {
        "document_id": "my item",
        "text": "",
        "metadata": {"features": row},
        "subjects": [{"uri": uri_of("sea")}],
    }
    assert learn(client, [document, document]).status_code == 204
    (said,) = host.now.said["my item"]
    assert (said.label, said.answer) == ("sea", True)
    column = host.now.tagger.classes_.tolist().index("sea")
    after = host.now.tagger.predict_proba(world.X_test[:1])
    assert after[0, column] > score[0, column]


def test_what_cannot_be_learned_is_told(client):
    for body, sentence in (
        ([{"text": "sand", "subjects": [{"uri": "http://example.org/1"}]}], "is no URI of a label"),
        ([{"text": "sand", "subjects": [{}]}], "`documents.0.subjects.0"),
        ({"text": "sand"}, "`documents`"),
        ([{"text": "", "metadata": {"features": "1"}, "subjects": [{"uri": uri_of("sea")}]}], ""),
    ):
        refused = learn(client, body)
        assert refused.status_code == 400 and sentence in refused.json()["detail"]
    for body in (b"[", b"[" * 100_000):
        assert client.post("/v1/projects/toy/learn", content=body).status_code == 400


def test_learning_needs_a_scope(host, serving, tmp_path, world):
    file = tmp_path / "tokens.json"
    tokens = {scope: new_token(file, scope, scope) for scope in ("read", "review", "admin")}
    client = serving(host, tokens=Tokens.read(file))
    row = ",".join(map(str, world.X_test[0].tolist()))
    subjects = [{"uri": uri_of("sea")}]
    answer = [{"text": "", "metadata": {"features": row}, "subjects": subjects}]
    document = [{"text": "sand", "subjects": subjects}]
    for scope, expected in (("read", (403, 403)), ("review", (204, 403)), ("admin", (204, 204))):
        headers = {"authorization": f"Bearer {tokens[scope]}"}
        found = tuple(learn(client, one, headers=headers).status_code for one in (answer, document))
        assert found == expected, scope


@pytest.mark.parametrize("label", ["sea", "new york", "a/b?c#d", "<é>", "100%"])
def test_uris_name_labels_both_ways(label):
    assert label_of(uri_of(label)) == label
    assert not set(uri_of(label)) & set(" <>\t/?#")
    assert label_of("http://example.org/" + label) is None


def test_the_description_of_all_interfaces_refers_to_nothing_that_is_not_there(client):
    described = client.get("/openapi.json").json()

    def references(part):
        if isinstance(part, dict):
            yield from [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        values = part.values() if isinstance(part, dict) else part
        for one in values if isinstance(part, (dict, list)) else ():
            yield from references(one)

    found = set(references(described))
    assert found
    for reference in found:
        place = described
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    names = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))


# ---------------------------------------------------------------------- with Annif itself


@pytest.fixture
def annif():
    """The modules of Annif that are used; it is no dependency of polyseme's."""
    found = pytest.importorskip("annif", reason="Annif is not installed")
    pytest.importorskip("annif.backend.http", reason="Annif's http backend needs requests")
    return found


def test_answers_are_as_annif_publishes_them(annif, client, world):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    text = (Path(annif.__file__).parent / "openapi" / "annif.yaml").read_text("utf-8")
    published = yaml.safe_load(text)

    def check(path, method, response):
        described = published["paths"][path][method]["responses"][str(response.status_code)]
        schema = described["content"]["application/json"]["schema"]
        whole = schema | {"components": _nullable(published["components"])}
        jsonschema.validate(response.json(), whole)

    check("/", "get", client.get("/v1/"))
    check("/vocabs", "get", client.get("/v1/vocabs"))
    check("/projects", "get", client.get("/v1/projects"))
    check("/projects/{project_id}", "get", client.get("/v1/projects/toy"))
    check("/projects/{project_id}/suggest", "post", suggest(client, text="sand"))
    documents = {"documents": [{"text": "sand", "document_id": "a"}, {"text": ""}]}
    batch = client.post("/v1/projects/toy/suggest-batch", json=documents)
    check("/projects/{project_id}/suggest-batch", "post", batch)


def _nullable(schema):
    """Let what OpenAPI 3.0 calls nullable be null, as JSON Schema says it."""
    if isinstance(schema, list):
        return [_nullable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _nullable(value) for key, value in schema.items()}
    if changed.get("nullable") is True and "type" in changed:
        changed["type"] = [changed["type"], "null"]
    # 3.0 has them as yes or no.
    return {key: value for key, value in changed.items() if key != "exclusiveMaximum"}


def test_annif_takes_a_model_for_its_http_backend(annif, client, host, monkeypatch, tmp_path):
    import annif.backend.http as backends
    from annif.corpus import Document
    from annif.vocab.subject_file import VocabFileTSV
    from annif.vocab.subject_index import SubjectIndexFile

    def path(url):
        return urlsplit(url).path

    requests = SimpleNamespace(
        get=lambda url, headers: client.get(path(url), headers=headers),
        post=lambda url, data, headers: client.post(path(url), data=data, headers=headers),
        exceptions=backends.requests.exceptions,
    )
    monkeypatch.setattr(backends, "requests", requests)
    file = tmp_path / "subjects.tsv"
    file.write_bytes(client.get("/v1/vocabs/toy/subjects.tsv").content)
    subjects = SubjectIndexFile()
    subjects.load_subjects(VocabFileTSV(str(file), "und"))
    assert len(subjects) == len(host.now.kinds)
    project = SimpleNamespace(subjects=subjects, datadir=str(tmp_path))
    parameters = {"endpoint": "http://localhost/v1/projects/toy/suggest", "limit": "5"}
    backend = backends.HTTPBackend("http", parameters, project)
    assert backend.is_trained is True
    assert backend.modification_time.isoformat() == host.changed
    (found,) = backend.suggest([Document(text="sand, sea")])
    named = [subjects[one.subject_id].labels["und"] for one in found]
    expected, scores = host.now.tagger.complete(["sand", "sea"], k=5)
    assert named == expected.tolist()
    assert [one.score for one in found] == pytest.approx(scores, abs=1e-5)
