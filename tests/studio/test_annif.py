"""Annif's interface: by its published schema and its own client, where Annif is installed."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rest import column, ok

from polyseme.studio.annif import label_of, uri_of

PROJECT = "/v1/projects/toy"
SEA = [{"uri": uri_of("sea")}]


def suggest(client, text="", **fields):
    return client.post(f"{PROJECT}/suggest", data={"text": text} | fields)


def suggest_batch(client, body, query=""):
    return client.post(f"{PROJECT}/suggest-batch{query}", json=body)


def learn(client, documents, **options):
    return client.post(f"{PROJECT}/learn", json=documents, **options)


def results(response):
    return ok(response)["results"]


def check_refused(response, sentence):
    assert response.status_code == 400
    detail = response.json()["detail"]
    assert sentence in detail


def labels(response):
    return column(results(response), "label")


@pytest.fixture
def features(world):
    """The features of an item as a text of numbers."""
    return ",".join(map(str, world.X_test[0].tolist()))


def test_a_model_is_a_project_and_its_labels_are_a_vocabulary(client, host):
    (vocabulary,) = ok(client.get("/v1/vocabs"))["vocabs"]
    size = len(host.now.kinds)
    assert vocabulary == {"vocab_id": "toy", "languages": ["und"], "size": size, "loaded": True}
    (project,) = ok(client.get("/v1/projects"))["projects"]
    assert project == ok(client.get(PROJECT))
    assert project["project_id"] == "toy"
    assert project["is_trained"] is True
    assert project["vocab"] == vocabulary
    assert project["backend"] == {"backend_id": "polyseme"}


def test_an_unknown_project_is_a_problem_with_status_404(client):
    response = client.get("/v1/projects/other")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


def test_tags_in_a_text_are_completed(client, host):
    response = suggest(client, "Sand, sea\nnobody knows this, ", limit="3")
    expected, scores = host.now.tagger.complete(["sand", "sea"], k=3)
    assert labels(response) == expected.tolist()
    assert column(results(response), "score") == pytest.approx(scores, abs=1e-5)
    assert results(response)[0]["uri"] == uri_of(expected[0])
    assert response.headers["x-model-version"] == host.now.version
    likely = suggest(client, "sand;sea", threshold=str(scores[1]))
    assert labels(likely) == expected[:2].tolist()
    assert labels(suggest(client, "sand", limit="0")) == []


@pytest.mark.parametrize(
    "text", ["", "a long text, in words; of which\nnone is a tag", "x" * 100_000], ids=range(3)
)
def test_a_text_without_a_known_tag_gets_no_labels_and_no_candidates(client, host, text):
    assert labels(suggest(client, text)) == []
    assert not host.told.typed


def test_features_are_numbers_or_base64_and_may_have_tags_beside_them(client, host, world):
    row = world.X_test[0].astype(np.float32)
    numbers = ",".join(map(str, row.tolist()))
    encoded = base64.b64encode(row.tobytes()).decode()
    expected, _ = host.now.tagger.rank(row[None], 4)
    by_numbers = suggest(client, metadata_features=numbers, limit="4")
    assert labels(by_numbers) == expected[0].tolist()
    by_base64 = suggest(client, metadata_features=encoded, limit="4")
    assert by_base64.json() == by_numbers.json()
    with_tag = suggest(client, "phone", metadata_features=encoded, limit="4")
    assert "phone" not in labels(with_tag)
    assert with_tag.json() != by_base64.json()


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
    ids=range(11),
)
def test_a_wrong_field_is_a_bad_request_with_a_sentence(client, fields, sentence):
    response = client.post(f"{PROJECT}/suggest", data=fields)
    check_refused(response, sentence)
    assert response.headers["content-type"] == "application/problem+json"


def test_documents_of_a_batch_keep_their_ids(client, features):
    documents = [
        {"text": "sand, sea", "document_id": "one"},
        {"text": "nothing known"},
        {"text": "", "metadata": {"features": features}},
    ]
    batch = suggest_batch(client, {"documents": documents}, "?limit=2").json()
    assert column(batch, "document_id") == ["one", None, None]
    n_results = [len(document["results"]) for document in batch]
    assert n_results == [2, 0, 2]
    assert batch[0]["results"] == results(suggest(client, "sand, sea", limit="2"))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"documents": [{"text": "sand"}] * 33}, "at most 32 items"),
        ({"documents": [{"text": 3}]}, "`documents.0.text`"),
        ([], "The body cannot be read"),
        ({"documents": [{"text": "", "metadata": {"features": "1,2"}}]}, "takes 5 features"),
    ],
    ids=range(4),
)
def test_a_wrong_batch_is_a_bad_request_with_a_sentence(client, body, sentence):
    check_refused(suggest_batch(client, body), sentence)


@pytest.mark.parametrize("route", ["suggest-batch", "learn"])
@pytest.mark.parametrize("content", [b"{", b"[", b"[" * 100_000], ids=range(3))
def test_broken_json_is_a_bad_request(client, route, content):
    assert client.post(f"{PROJECT}/{route}", content=content).status_code == 400


def test_documents_with_subjects_become_known_and_may_bring_new_labels(client, host):
    n_documents = len(host.now.tagger.store_.ids)
    subjects = [*SEA, {"uri": "http://example.org/7", "label": "pebble"}]
    response = learn(client, [{"text": "sand, words that are no tag", "subjects": subjects}])
    assert response.status_code == 204
    assert response.content == b""
    store = host.now.tagger.store_
    assert len(store.ids) == n_documents + 1
    labels_of_document = store.document(n_documents)
    assert set(labels_of_document) == {"pebble", "sand", "sea"}


def test_a_document_without_subjects_is_not_learned(client, host):
    n_documents = len(host.now.tagger.store_.ids)
    response = learn(client, [{"text": "sand"}])
    assert response.status_code == 204
    assert len(host.now.tagger.store_.ids) == n_documents


def test_subjects_of_an_item_with_features_are_verdicts(client, host, world, features):
    document = {
        "document_id": "my item",
        "text": "",
        "metadata": {"features": features},
        "subjects": SEA,
    }
    sea = host.now.tagger.classes_.tolist().index("sea")
    score_before = host.now.tagger.predict_proba(world.X_test[:1])[0, sea]
    assert learn(client, [document, document]).status_code == 204
    (verdict,) = host.now.said["my item"]
    assert (verdict.label, verdict.answer) == ("sea", True)
    score_after = host.now.tagger.predict_proba(world.X_test[:1])[0, sea]
    assert score_after > score_before


@pytest.mark.parametrize(
    ("documents", "sentence"),
    [
        ([{"text": "sand", "subjects": [{"uri": "http://example.org/1"}]}], "is no URI of a label"),
        ([{"text": "sand", "subjects": [{}]}], "`documents.0.subjects.0"),
        ({"text": "sand"}, "`documents`"),
        ([{"text": "", "metadata": {"features": "1"}, "subjects": SEA}], ""),
    ],
    ids=range(4),
)
def test_a_document_that_cannot_be_learned_is_a_bad_request(client, documents, sentence):
    check_refused(learn(client, documents), sentence)


@pytest.mark.parametrize(
    ("scope", "verdict_status", "document_status"),
    [("read", 403, 403), ("review", 204, 403), ("admin", 204, 204)],
)
def test_learning_needs_a_scope(
    guarded_client, bearer, features, scope, verdict_status, document_status
):
    headers = bearer(scope)
    verdict = {"text": "", "metadata": {"features": features}, "subjects": SEA}
    response = learn(guarded_client, [verdict], headers=headers)
    assert response.status_code == verdict_status
    document = {"text": "sand", "subjects": SEA}
    response = learn(guarded_client, [document], headers=headers)
    assert response.status_code == document_status


@settings(deadline=None)
@example("new york")
@example("a/b?c#d")
@example("<é>")
@example("100%")
@given(st.text(min_size=1))
def test_a_label_and_its_uri_are_converted_into_each_other(label):
    uri = uri_of(label)
    assert label_of(uri) == label
    assert not set(uri) & set(" <>\t/?#")
    assert label_of("http://example.org/" + label) is None


def references(schema):
    """Yield all references in an OpenAPI description."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for value in schema:
            yield from references(value)


def test_every_reference_in_the_openapi_description_leads_somewhere(client):
    description = ok(client.get("/openapi.json"))
    all_references = set(references(description))
    assert all_references
    for reference in all_references:
        target = description
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]


def test_every_operation_of_the_openapi_description_has_its_own_id(client):
    description = ok(client.get("/openapi.json"))
    ids = []
    for operations in description["paths"].values():
        for operation in operations.values():
            ids.append(operation["operationId"])
    assert len(ids) == len(set(ids))


# ---------------------------------------------------------------------- with Annif itself


@pytest.fixture
def annif():
    """The modules of Annif that are used; it is no dependency of polyseme's."""
    package = pytest.importorskip("annif", reason="Annif is not installed")
    pytest.importorskip("annif.backend.http", reason="Annif's http backend needs requests")
    return package


def test_answers_follow_the_schema_that_annif_publishes(annif, client):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    file = Path(annif.__file__).parent / "openapi" / "annif.yaml"
    published = yaml.safe_load(file.read_text("utf-8"))
    components = as_json_schema(published["components"])

    def check(path, method, response):
        operation = published["paths"][path][method]
        status = str(response.status_code)
        described = operation["responses"][status]
        schema = described["content"]["application/json"]["schema"]
        jsonschema.validate(response.json(), schema | {"components": components})

    check("/", "get", client.get("/v1/"))
    check("/vocabs", "get", client.get("/v1/vocabs"))
    check("/projects", "get", client.get("/v1/projects"))
    check("/projects/{project_id}", "get", client.get(PROJECT))
    check("/projects/{project_id}/suggest", "post", suggest(client, "sand"))
    documents = [{"text": "sand", "document_id": "a"}, {"text": ""}]
    batch = suggest_batch(client, {"documents": documents})
    check("/projects/{project_id}/suggest-batch", "post", batch)


def as_json_schema(schema):
    """Return a schema of OpenAPI 3.0 as JSON Schema: what is nullable may be null."""
    if isinstance(schema, list):
        return [as_json_schema(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {key: as_json_schema(value) for key, value in schema.items()}
    if converted.get("nullable") is True and "type" in converted:
        converted["type"] = [converted["type"], "null"]
    # In OpenAPI 3.0 it is true or false, in JSON Schema a number.
    converted.pop("exclusiveMaximum", None)
    return converted


def test_annif_suggests_with_a_model_as_its_http_backend(
    annif, client, host, monkeypatch, tmp_path
):
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
    parameters = {"endpoint": f"http://localhost{PROJECT}/suggest", "limit": "5"}
    backend = backends.HTTPBackend("http", parameters, project)
    assert backend.is_trained is True
    assert backend.modification_time.isoformat() == host.changed
    (suggestions,) = backend.suggest([Document(text="sand, sea")])
    names = [subjects[suggestion.subject_id].labels["und"] for suggestion in suggestions]
    expected, scores = host.now.tagger.complete(["sand", "sea"], k=5)
    assert names == expected.tolist()
    suggested_scores = [suggestion.score for suggestion in suggestions]
    assert suggested_scores == pytest.approx(scores, abs=1e-5)
