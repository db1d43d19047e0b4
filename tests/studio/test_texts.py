"""Models of texts behind the service: texts as files and in JSON, shown, reviewed, written back."""

from __future__ import annotations

import pytest
from notes import EACH, UNTAGGED, note_text
from rest import TOY, ModelClient, column, ok, refused

from polyseme.cli import serving
from polyseme.media import TextFeatures, front_matter
from polyseme.studio.annif import uri_of
from polyseme.studio.host import ModelHost

SUGGEST = f"{TOY}/suggest"
SEA = "Fishermen mend their nets; gulls and boats ride the waves"
UNTAGGED_SEA = f"sea-{UNTAGGED[0]}.md"


@pytest.fixture
def client(notes_host, serving):
    return serving(notes_host)


@pytest.fixture
def toy(client):
    return ModelClient(client)


# ---------------------------------------------------------------------- asking


def test_a_text_gets_the_same_suggestions_in_every_form(client):
    named = ("walk", SEA.encode())  # a file without a suffix
    responses = [
        client.post(SUGGEST, json={"text": SEA, "k": 3}),
        client.post(SUGGEST, files={"file": named}, data={"k": 3}),
        client.post(SUGGEST, files=[("text", (None, SEA)), ("k", (None, "3"))]),
        client.post(f"{SUGGEST}?k=3", content=SEA, headers={"content-type": "text/plain"}),
        client.post(f"{SUGGEST}?k=3", content=SEA, headers={"content-type": "text/markdown"}),
    ]
    suggestions, *repeated = [ok(response)["suggestions"] for response in responses]
    assert repeated == [suggestions] * 4
    assert set(column(suggestions, "label")) == {"water", "coast", "boat"}


def test_tags_and_markup_of_a_text_say_nothing_of_it(toy):
    note = f"---\ntags: [street, city]\n---\n*{SEA}* #traffic"
    plain = toy.post("/suggest", {"text": SEA})
    assert toy.post("/suggest", {"text": note})["suggestions"] == plain["suggestions"]


def test_a_page_that_is_sent_as_a_file_is_read_without_its_markup(client, toy):
    pytest.importorskip("lxml", reason="the extra text is not installed")
    page = f"<!DOCTYPE html><title>Walk</title><script>street city</script><p>{SEA}</p>"
    by_file = ok(client.post(SUGGEST, files={"file": ("page", page.encode())}))
    by_text = toy.post("/suggest", {"text": f"Walk\n{SEA}"})
    assert by_file["suggestions"] == by_text["suggestions"]


def test_a_text_is_explained_placed_and_has_neighbours(toy):
    suggestion = toy.post("/suggest", {"text": SEA, "k": 1})["suggestions"][0]
    evidence = toy.post("/explain", {"text": SEA, "label": suggestion["label"]})
    assert evidence["probability"] == pytest.approx(suggestion["probability"], abs=1e-5)
    assert sum(column(evidence["parts"], "part")) == pytest.approx(evidence["logit"], abs=1e-4)
    place = toy.post("/place", {"text": SEA})
    assert toy.post("/suggest?place=true", {"text": SEA})["place"] == pytest.approx(place)
    nearest = toy.post("/neighbours", {"text": SEA, "k": 1})["neighbours"][0]
    assert set(nearest["labels"]) < {"water", "coast", "boat"}


def test_of_a_batch_every_text_has_its_own_answer_or_error(toy):
    items = [
        {"id": "sea", "text": SEA},
        {"id": "none", "text": " \n"},
        {"id": "both", "text": SEA, "item": UNTAGGED_SEA},
        {"id": "item", "item": UNTAGGED_SEA},
        {"id": "tags", "tags": ["water"]},
    ]
    alone = toy.post("/suggest", {"text": SEA, "k": 2})["suggestions"]
    results = toy.post("/suggest-batch", {"items": items, "k": 2})["results"]
    answer = {result["id"]: result for result in results}
    suggestions = answer["sea"]["suggestions"]
    assert column(suggestions, "label") == column(alone, "label")
    assert column(suggestions, "probability") == pytest.approx(
        column(alone, "probability"), abs=1e-5
    )
    assert answer["none"]["error"] == {"status": 422, "detail": "The text holds no words."}
    assert "one of them" in answer["both"]["error"]["detail"]
    assert len(answer["item"]["suggestions"]) == len(answer["tags"]["suggestions"]) == 2


def test_a_batch_may_hold_more_texts_than_may_wait(toy, notes_host):
    n_texts = notes_host.extraction.most_waiting + 10
    items = [{"text": note_text("sea", number)} for number in range(n_texts)]
    results = toy.post("/suggest-batch", {"items": items, "k": 1})["results"]
    assert len(results) == n_texts
    assert {result["suggestions"][0]["label"] for result in results} <= {"water", "coast", "boat"}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"text": " "}, "The text holds no words."),
        ({"text": SEA, "features": [1.0]}, "one of them"),
        ({"features": [1.0] * 8}, "This model takes texts"),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence(client, body, sentence):
    refused(client.post(SUGGEST, json=body), 422, sentence)


def test_a_file_that_is_no_text_is_refused_with_a_sentence(client):
    response = client.post(SUGGEST, files={"file": ("a.png", b"\x89PNG\0\0")})
    refused(response, 422, "The file is no text.")


def test_a_model_of_pictures_takes_no_text(pictures_model, serving):
    client = serving(ModelHost(pictures_model))
    response = client.post("/v1/models/photos/suggest", json={"text": SEA})
    refused(response, 422, "This model takes pictures, not texts")


@pytest.mark.parametrize("text", ["[" * 1_000_000, "QUJD" * 250_000, "<!---->" * 100_000])
def test_a_long_line_takes_no_longer_than_other_texts(client, text):
    """Patterns that run across their own beginning would take hours, and the test with them."""
    sent_at_once = client.post(SUGGEST, json={"text": text[:1_000_000]})
    assert sent_at_once.status_code in (200, 422)
    assert client.post(SUGGEST, files={"file": ("a", text.encode())}).status_code in (200, 422)


def test_what_reads_texts_is_loaded_before_the_first_request(notes_host, monkeypatch):
    read = []
    extract_batch = TextFeatures.extract_batch

    def note(extractor, items):
        read.extend(items)
        return extract_batch(extractor, items)

    monkeypatch.setattr(TextFeatures, "extract_batch", note)
    notes_host.warm()
    assert read


# ---------------------------------------------------------------------- items


def test_an_item_is_shown_as_plain_text_that_no_browser_takes_for_anything_else(client, notes):
    note = notes / "notes" / UNTAGGED_SEA
    note.write_text("---\ntitle: Walk\n---\n<script>alert(1)</script> *Sea*\n", "utf-8")
    response = client.get(f"{TOY}/media/{UNTAGGED_SEA}")
    assert response.content == b"Walk\n\n<script>alert(1)</script> *Sea*"
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in response.headers["content-security-policy"]


def test_items_have_a_short_preview_and_a_long_one(client, toy, notes):
    note = notes / "notes" / UNTAGGED_SEA
    note.write_text("word " * 9000, "utf-8")
    item = toy.get(f"/items/{UNTAGGED_SEA}")
    short = client.get(item["thumbnail"]).text
    long = client.get(item["media"]).text
    assert 1000 < len(short) < 1500
    assert long.startswith(short.removesuffix(" …"))
    assert 15_000 < len(long) < 21_000
    assert toy.get()["collection"]["media"] == toy.get()["media"] == "text"


def test_answers_about_texts_are_learned(toy):
    question = toy.post("/ask", {"label": "water", "k": 1, "strategy": "likeliest"})["questions"][0]
    assert question["item"].startswith("sea-")
    toy.learn({"item": question["item"], "label": "water", "answer": False})
    suggestions = toy.get(f"/items/{question['item']}")["suggestions"]
    scores = {suggestion["label"]: suggestion["probability"] for suggestion in suggestions}
    assert scores["water"] < question["probability"]


def test_a_refit_in_the_background_learns_accepted_tags(toy, notes_host):
    sea = [f"sea-{number:02}.md" for number in range(EACH)]
    toy.learn(*({"item": item, "label": "harbour", "answer": True} for item in sea[:10]))
    assert notes_host.snapshot.kinds["harbour"] == "oov"
    notes_host.refitting.start("ada")
    status = notes_host.refitting.wait()
    assert (status.state, status.reason) == ("done", None)
    assert notes_host.snapshot.kinds["harbour"] == "seen"
    suggestions = toy.post("/suggest", {"text": SEA, "k": 4})["suggestions"]
    assert "harbour" in column(suggestions, "label")


def test_labels_are_added_by_their_names(toy):
    assert toy.get()["takes_names"]
    toy.post("/labels", {"labels": ["fishermen"]})
    assert toy.get("/labels/fishermen")["kind"] == "oov"


# ---------------------------------------------------------------------- tags in the files


def export_sidecars(toy, *, dry_run):
    return toy.post("/export/sidecars", {"dry_run": dry_run})


def test_accepted_tags_are_written_into_front_matter_unless_the_text_has_them(toy, notes):
    note = notes / "notes" / UNTAGGED_SEA
    before = note.read_text("utf-8").replace("A *", "A #coast *")
    note.write_text(before, "utf-8")
    labels = ("water", "coast", "boat")
    toy.learn(*({"item": UNTAGGED_SEA, "label": label, "answer": True} for label in labels))
    toy.learn({"item": UNTAGGED_SEA, "label": "street", "answer": False})
    assert export_sidecars(toy, dry_run=True) == {"files": 1, "tags": 2, "dry_run": True}
    assert note.read_text("utf-8") == before
    assert export_sidecars(toy, dry_run=False) == {"files": 1, "tags": 2, "dry_run": False}
    tags = front_matter.read_tags(note)
    assert tags.tags == ["water", "boat", "coast"]
    assert front_matter.parse_block(front_block(note))["tags"] == ["water", "boat"]
    assert tags.pending == []
    assert note.read_text("utf-8").endswith(before.partition("---\n")[2].partition("---\n")[2])
    assert export_sidecars(toy, dry_run=False)["tags"] == 0
    assert not list((notes / "notes").glob("*.xmp"))


def front_block(note):
    """Return the front matter of a note."""
    return front_matter.split_note(note.read_text("utf-8")).block


def test_an_accepted_tag_that_was_only_suggested_is_accepted_in_the_file(toy, notes):
    note = notes / "notes" / UNTAGGED_SEA
    front_matter.merge_tags(note, ["water", "boat"])
    toy.learn({"item": UNTAGGED_SEA, "label": "water", "answer": True})
    assert export_sidecars(toy, dry_run=True)["tags"] == 1
    assert front_matter.read_tags(note).pending == ["water", "boat"]
    assert export_sidecars(toy, dry_run=False)["tags"] == 1
    assert front_matter.read_tags(note).pending == ["boat"]


def test_a_tag_in_a_sidecar_is_not_written_into_the_note_again(toy, notes):
    from polyseme.media import xmp

    note = notes / "notes" / UNTAGGED_SEA
    sidecar = xmp.sidecar_of(note)
    xmp.merge_tags(sidecar, ["water"])
    xmp.answer_suggestions(sidecar, accept=["water"])
    toy.learn({"item": UNTAGGED_SEA, "label": "water", "answer": True})
    assert export_sidecars(toy, dry_run=False)["tags"] == 0


# ---------------------------------------------------------------------- from nothing


@pytest.fixture
def quick_fit(tiny_space, monkeypatch):
    """Fit a small model in place of a large one."""
    from polyseme.cli.inputs import TableReader, read_items

    def fit(model, *, documents, features, tables):
        items = read_items(features, documents, None, TableReader(tables))
        extractor = TextFeatures(8, network=items.X.parameters["network"], random_state=0)
        tagger = serving_tagger(extractor, tiny_space(n_steps=40))
        tagger.fit(items.X, items.documents).save(model)

    monkeypatch.setattr(serving, "fit", fit)


def serving_tagger(extractor, space):
    from polyseme import ZeroShotTagger

    return ZeroShotTagger(space, extractor, n_validations=0, random_state=0)


def test_a_folder_of_notes_is_served_from_nothing(run, notes, quick_fit, monkeypatch):
    apps = []
    monkeypatch.setattr("polyseme.studio.process.run", lambda app, *_, **__: apps.append(app))
    folder = notes / "notes"
    (folder / "picture.png").write_bytes(b"no picture")
    code, _, stderr = run("serve", notes / "new", "--items", folder)
    assert code == 0, stderr
    assert "28 of 28 text files extracted" in stderr
    assert "24 of 28 files have keywords (front matter 24)" in stderr
    host = apps[0].state.hosts["new"]
    assert host.collection.media == "text"
    assert host.collection.tags_of("sea-00.md") == ("coast", "boat")
    assert host.collection.n_untagged == 4
    assert host.snapshot.kinds["coast"] == "seen"


# ---------------------------------------------------------------------- other programs


def test_annif_reads_texts_of_a_model_of_texts(client, toy):
    project = "/v1/projects/toy"
    expected = toy.post("/suggest", {"text": SEA, "k": 3})["suggestions"]
    results = ok(client.post(f"{project}/suggest", data={"text": SEA, "limit": "3"}))["results"]
    assert column(results, "label") == column(expected, "label")
    documents = [{"text": SEA, "document_id": "a"}, {"text": " "}]
    batch = ok(client.post(f"{project}/suggest-batch?limit=3", json={"documents": documents}))
    assert batch[0]["results"] == results
    assert batch[1]["results"] == []
    learned = [{"text": SEA, "subjects": [{"uri": uri_of("traffic")}]}]
    assert client.post(f"{project}/learn", json=learned).status_code == 204
    answer = ok(client.post(f"{project}/suggest", data={"text": SEA, "limit": "6"}))["results"]
    scores = dict(zip(column(answer, "label"), column(answer, "score"), strict=True))
    before = toy.post("/suggest", {"text": SEA, "k": 6})["suggestions"]
    assert "traffic" in column(before, "label")
    assert scores["traffic"] > 0.2


def test_label_studio_reads_texts_of_a_model_of_texts(client, toy):
    config = """<View><Text name="item" value="$text"/>
        <Taxonomy name="tags" toName="item"><Choice value="water"/></Taxonomy></View>"""
    tasks = [{"id": number, "data": {"text": note_text("sea", number)}} for number in range(70)]
    body = {"tasks": tasks, "label_config": config, "params": {"threshold": 0.1}}
    results = ok(client.post("/label-studio/toy/predict", json=body))["results"]
    assert len(results) == 70
    (result,) = results[0]["result"]
    labels = {path[-1] for path in result["value"]["taxonomy"]}
    assert labels <= {"water", "coast", "boat"}
    assert "water" in labels
