"""From files to tags at the command line, with sample files of either kind."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from killed_writers import killed_while_writing
from polyseme import ConceptSpace, ImageFeatures, load
from polyseme.cli import app
from polyseme.media import read_extraction
from polyseme.media.xmp import read_sidecar
from sidecar_files import write_sidecar

FAST = ["--preset", "paper", "--components", "8", "--topics", "4", "--epochs", "3"]


def run(*words: object, code: int = 0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Thirty emoji, their features and a model."""
    place = tmp_path_factory.mktemp("pictures")
    run("sample", "image", place / "files", "--limit", 60)
    run("extract", "image", place / "files", "--out", place / "numbers", "--size", 64)
    tags = place / "files" / "tags.jsonl"
    run("fit", place / "model", "-x", place / "numbers", "-d", tags, *FAST)
    return place


@pytest.fixture(scope="module")
def sounds(tmp_path_factory) -> Path:
    """Forty clips, their segments and a model."""
    place = tmp_path_factory.mktemp("sounds")
    run("sample", "audio", place / "files", "--limit", 40)
    run("extract", "audio", place / "files", "--out", place / "numbers")
    tags = place / "files" / "tags.jsonl"
    words = ["--words", "16", "--mapper", "kernel-ridge"]
    run(
        "fit",
        place / "model",
        "-x",
        place / "numbers",
        "-d",
        tags,
        *words,
        *FAST,
    )
    return place


def test_sounds_become_tags(sounds):
    result = run("tag", sounds / "model", sounds / "files", "--top", 3, "--form", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 40
    labels = rows[0]["labels"].split(";")
    assert len(labels) == 3


def test_files_and_extracted_numbers_are_tagged_alike(pictures):
    model = pictures / "model"
    numbers = pictures / "numbers"
    tags = pictures / "files" / "tags.jsonl"
    options = ("--top", 4, "--form", "jsonl")
    result = run("tag", model, pictures / "files", *options)
    of_files = lines(result.stdout)
    result = run("rank", model, numbers, *options)
    of_numbers = lines(result.stdout)
    labels_of_files = [record["labels"] for record in of_files]
    labels_of_numbers = [record["labels"] for record in of_numbers]
    assert labels_of_files == labels_of_numbers
    for record in of_files:
        assert len(record["labels"]) == 4
        assert len(record["scores"]) == 4
    assert "noto/1F600.png" in {record["file"] for record in of_numbers}

    result = run("evaluate", model, numbers, tags, "--form", "jsonl")
    first_row = lines(result.stdout)[0]
    assert first_row["n_items"] > 20
    label = labels_of_numbers[0][0]
    result = run("explain", model, numbers, label, "--form", "jsonl")
    assert lines(result.stdout)


@pytest.mark.parametrize("command", ["tag", "extract"])
def test_a_missing_device_is_refused_before_any_file_is_looked_at(pictures, tmp_path, command):
    files = pictures / "files"
    words = ("tag", pictures / "model", files)
    if command == "extract":
        words = ("extract", "image", files, "-o", tmp_path)
    message = complaint(*words, "--device", "abacus")
    assert "'abacus', which torch cannot use here; 'cpu'" in message


@pytest.fixture(scope="module")
def default_model(pictures, tmp_path_factory):
    """A model that `fit` learned from extracted files with its default settings."""
    model = tmp_path_factory.mktemp("default") / "model"
    tags = pictures / "files" / "tags.jsonl"
    result = run("fit", model, "-x", pictures / "numbers", "-d", tags)
    assert "members of" in result.stderr
    return model


def test_the_default_learns_from_files_too(default_model):
    result = run("info", default_model, "--form", "jsonl")
    facts = lines(result.stdout)[0]
    assert facts["feature extractor"].startswith("ImageFeatures(")
    assert facts["documents left out"] == 4, "emoji without a tag"


def test_the_default_suggests_the_tags_that_reach_a_precision(default_model, pictures):
    result = run("tag", default_model, pictures / "files", "-f", "jsonl")
    reaches_precision = "tags for a precision of 0.5" in result.stderr
    validated = load(default_model).validation_ is not None
    assert reaches_precision == validated
    counts = [len(record["labels"]) for record in lines(result.stdout)]
    assert max(counts) <= 10
    assert (min(counts) < 10) == reaches_precision


def test_a_number_of_tags_may_be_asked_for(default_model, pictures):
    result = run("tag", default_model, pictures / "files", "-f", "jsonl", "--top", 10)
    counts = {len(record["labels"]) for record in lines(result.stdout)}
    assert counts == {10}


def test_items_and_files_are_explained_alike(default_model, pictures):
    result = run("tag", default_model, pictures / "files", "-f", "jsonl", "--top", 10)
    tagged = lines(result.stdout)[0]
    file = tagged["file"]
    label = tagged["labels"][0]
    result = run("explain", default_model, pictures / "numbers", label, "--form", "jsonl", "-k", 2)
    (of_item,) = lines(result.stdout)
    assert file.endswith(of_item["file"])
    assert of_item["probability"] == pytest.approx(tagged["scores"][0], abs=1e-5)
    neighbour = of_item["neighbours"][0]
    assert neighbour["known_as"][0].endswith(".png")

    result = run("explain", default_model, file, label, "-k", 2)
    (of_file,) = lines(result.stdout)
    assert of_file["file"] == file
    assert of_file["probability"] == pytest.approx(of_item["probability"], abs=1e-5)


@pytest.mark.parametrize("way", ["--sidecars", "--undo", "review"])
def test_what_a_kill_leaves_among_photos_is_gone_after_the_next_run(pictures, tmp_path, way):
    photos = tmp_path / "photos"
    folder = photos / "below"
    folder.mkdir(parents=True)
    picture = next((pictures / "files").rglob("*.png"))
    shutil.copy(picture, folder / "a.png")
    command = ["tag", pictures / "model", photos, "-k", 2]
    result = run(*command, "--sidecars")
    added = lines(result.stdout)[0]["added"]
    killed_while_writing(folder / "a.png.xmp")
    own_names = {"b.tmp", f".{'0' * 16}.tmp", ".hidden"}
    for name in own_names:
        (folder / name).write_text("mine")
    run(*command, "--dry-run")
    assert len(list(folder.iterdir())) == 6
    if way == "review":
        run("review", photos, "--accept", added[0])
    else:
        run(*command, way)
    names = {path.name for path in folder.iterdir()}
    names.discard("a.png.xmp")
    assert names == own_names | {"a.png"}


def test_sidecars_get_tags_and_lose_none(pictures, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    photos = sorted(folder.glob("*.png"))
    contents = [path.read_bytes() for path in photos]
    first_sidecar = photos[0].with_name(photos[0].name + ".xmp")
    write_sidecar(first_sidecar, ["mine"])
    command = ("tag", pictures / "model", folder, "--sidecars", "-k", 2)
    records = lines(run(*command).stdout)
    assert len(records) == len(photos)
    assert records[0]["sidecar"] == str(first_sidecar)
    own_tag, *added = read_sidecar(first_sidecar).tags
    assert own_tag == "mine"
    assert added == records[0]["added"]
    assert [path.read_bytes() for path in photos] == contents, "media are only read"
    for record in lines(run(*command).stdout):
        assert record["added"] == []


def test_a_disk_that_does_not_take_a_sidecar_is_no_success(pictures, tmp_path, monkeypatch):
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    command = ("tag", pictures / "model", folder, "--sidecars", "-k", 2)
    sync = os.fsync
    failed = []

    def fail_once(descriptor: int) -> None:
        if not failed:
            failed.append(descriptor)
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    assert "1 sidecar could not be written" in complaint(*command)
    n_photos = len(list(folder.glob("*.png")))
    n_sidecars = len(list(folder.glob("*.xmp")))
    assert n_sidecars == n_photos - 1
    records = lines(run(*command).stdout)
    with_new_tags = [record for record in records if record["added"]]
    assert len(with_new_tags) == 1


def test_an_extracted_folder_is_not_looked_at_again(pictures, tmp_path, monkeypatch):
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    command = ("tag", pictures / "model", folder, "-k", 3, "--form", "jsonl")
    expected = run(*command).stdout
    monkeypatch.setattr(ImageFeatures, "extract_batch", forbidden)
    by_content = run(*command).stdout
    assert by_content == expected, "the extraction beside the model has them, by content"
    of_extraction = run(*command, "-x", pictures / "numbers").stdout
    assert of_extraction == expected

    photo = next(folder.glob("*.png"))
    photo.write_bytes(photo.read_bytes() + b"more")
    with pytest.raises(AssertionError, match="looked at"):
        CliRunner().invoke(app, [str(word) for word in command], catch_exceptions=False)
    assert "no folder that `polyseme extract` wrote" in complaint(*command, "-x", tmp_path)


def forbidden(*_: object) -> None:
    raise AssertionError("a file was looked at")


def test_a_dry_run_shows_what_would_be_written(pictures, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    command = ("tag", pictures / "model", folder, "-k", 2)
    dry_run = run(*command, "--dry-run")
    assert "nothing was written" in dry_run.stderr
    assert not list(folder.glob("*.xmp"))
    written = run(*command, "--sidecars")
    assert lines(written.stdout) == lines(dry_run.stdout)


@pytest.mark.parametrize("words", [[], ["--dry-run"]], ids=["tags", "sidecars"])
def test_people_see_probabilities(pictures, words):
    photo = next((pictures / "files" / "noto").glob("*.png"))
    result = run("tag", pictures / "model", photo, "-k", 2, "--form", "table", *words)
    probabilities = re.findall(r" [01](?:\.\d+)?(?=[,\s])", result.stdout)
    assert len(probabilities) >= 2, result.stdout


def test_undo_removes_suggestions_and_nothing_else(pictures, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    photo = sorted(folder.glob("*.png"))[0]
    own_sidecar = photo.with_name(photo.name + ".xmp")
    write_sidecar(own_sidecar, ["mine"])
    text = own_sidecar.read_text("utf-8")
    command = ("tag", pictures / "model", folder)
    run(*command, "--sidecars", "-k", 2)
    dry_run = run(*command, "--undo", "--dry-run")
    assert "taken back from 30 files" in dry_run.stderr
    assert len(list(folder.glob("*.xmp"))) == 30

    undone = run(*command, "--undo")
    assert "60 suggestions taken back from 30 files" in undone.stderr
    assert list(folder.glob("*.xmp")) == [own_sidecar]
    assert canonical(own_sidecar.read_text("utf-8")) == canonical(text)
    undone = run(*command, "--undo")
    assert "0 suggestions taken back" in undone.stderr


def canonical(text: str) -> str:
    return ElementTree.canonicalize(text[text.index("<x:") :], strip_text=True)


@pytest.fixture
def suggested(pictures, tmp_path):
    """A folder of photos, one of them, and the four tags suggested for it in a sidecar."""
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    photo = sorted(folder.glob("*.png"))[0]
    result = run("tag", pictures / "model", photo, "-k", 4, "--sidecars")
    return folder, photo, lines(result.stdout)[0]["added"]


def test_suggestions_are_reviewed(suggested, pictures):
    folder, photo, (first, second, *remaining) = suggested
    (waiting,) = lines(run("review", folder).stdout)
    assert waiting == {"file": str(photo), "suggested": [first, second, *remaining]}
    (answered,) = lines(run("review", folder, "-a", first.upper(), "-r", second).stdout)
    assert answered["accepted"] == [first]
    assert answered["refused"] == [second]
    (waiting,) = lines(run("review", photo).stdout)
    assert waiting["suggested"] == remaining

    command = ("tag", pictures / "model", photo, "-k", 4)
    tagged = lines(run(*command).stdout)[0]
    assert second not in tagged["labels"], "a refused tag came back"
    tagged = lines(run(*command, "--sidecars").stdout)[0]
    assert second not in tagged["added"]


def test_accepted_suggestions_teach(suggested, tmp_path):
    folder, photo, (first, *_) = suggested
    run("review", folder, "-a", first)
    run("review", photo, "--refuse", "*")
    answered = run("review", photo)
    assert answered.stdout == ""
    assert "no suggestion waits for an answer" in answered.stderr
    assert "waits for an answer" in complaint("review", folder, "--accept", first)

    numbers = tmp_path / "numbers"
    run("extract", "image", folder, "--out", numbers, "--size", 32)
    extracted = read_extraction(numbers)
    tags_by_name = dict(zip(extracted.ids, extracted.tags, strict=True))
    assert tags_by_name[photo.name] == (first,)


def test_one_suggestion_is_accepted_and_all_others_refused(suggested, pictures):
    _, photo, _ = suggested
    run("review", photo, "--refuse", "*")
    retagged_photo = retagged(pictures, photo)
    message = complaint("review", retagged_photo, "-a", "*", "-r", "*")
    assert "both accepted and refused" in message
    (waiting,) = lines(run("review", retagged_photo).stdout)
    right, *wrong = waiting["suggested"]
    (answered,) = lines(run("review", retagged_photo, "-a", right, "-r", "*").stdout)
    assert answered["accepted"] == [right]
    assert answered["refused"] == wrong


@pytest.fixture
def taught(pictures, tmp_path, tiny_space, monkeypatch) -> Path:
    """A folder with photographs and a default model of them that a test may teach."""

    def make() -> ConceptSpace:
        return tiny_space(n_steps=20)

    make.from_state = ConceptSpace.from_state
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", make)
    tags = pictures / "files" / "tags.jsonl"
    words = ("-x", pictures / "numbers", "-d", tags, "--validations", 0)
    run("fit", tmp_path / "model", *words)
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos" / "noto")
    return tmp_path


def test_questions_about_files_are_answered(pictures, taught):
    model = taught / "model"
    numbers = pictures / "numbers"
    questions = run("ask", model, numbers, "-k", 5, "-f", "jsonl").stdout
    items = {question["item"] for question in lines(questions)}
    extracted = read_extraction(numbers)
    assert items <= set(extracted.ids)
    answers = taught / "q.jsonl"
    answers.write_text(questions.replace("null", "false"))
    result = run("learn", model, answers, "-x", numbers)
    assert result.stdout == "1-5\n"


def test_answers_about_a_file_are_kept_under_its_item_or_its_path(pictures, taught):
    model = taught / "model"
    numbers = pictures / "numbers"
    photo = sorted((taught / "photos" / "noto").glob("*.png"))[0]
    # The same file by another path, and as a file of its own.
    extracted_photo = pictures / "files" / "noto" / photo.name
    run("learn", model, "--yes", "canoe", extracted_photo, "-x", numbers)
    run("add", model, photo, "--label", "canoe")
    result = run("tag", model, photo, "-k", 2, "--sidecars")
    first, second = lines(result.stdout)[0]["added"]
    result = run("review", photo, "-a", first, "-r", second, "--model", model, "-x", numbers)
    assert "the model has learned from 2 answers" in result.stderr
    item = f"noto/{photo.name}"
    verdicts = []
    for event in load(model).verdicts_.events():
        verdicts.append((event.item, event.label, event.answer))
    assert verdicts == [
        (item, "canoe", True),
        (str(photo), "canoe", True),
        (item, first, True),
        (item, second, False),
    ]


def test_answers_about_unknown_files_are_refused(pictures, taught):
    command = ("learn", taught / "model", "--yes", "canoe", "nowhere.png")
    assert "Nothing is known of the file 'nowhere.png'" in complaint(*command)
    message = complaint(*command, "-x", pictures / "numbers")
    assert "There is no item 'nowhere.png' in" in message


def test_files_without_tags_are_a_pool_and_an_update_keeps_the_extractor(pictures, taught):
    numbers = pictures / "numbers"
    tags = pictures / "files" / "tags.jsonl"
    photos = taught / "photos"
    update = ("fit", taught / "new", "--update", taught / "model")
    data = ("-x", numbers, "-d", tags, "--validations", 0)
    for pool in (photos, numbers):
        assert "have tags; leave out --unlabelled" in complaint(*update, *data, "-u", pool)
    shutil.copytree(pictures / "files" / "noto", photos / "other")
    result = run(*update, *data, "-u", photos)
    assert "photos: 30 items with tags left out" in result.stderr
    assert "it learned from items without tags" in result.stderr
    updated = load(taught / "new")
    assert updated.pooled_
    assert updated.features_.size == 64


def test_an_update_and_a_pool_need_features_of_the_same_extractor(pictures, taught):
    numbers = pictures / "numbers"
    tags = pictures / "files" / "tags.jsonl"
    update = ("fit", taught / "new", "--update", taught / "model", "-d", tags)
    run("extract", "image", pictures / "files", "-o", taught / "larger", "--size", 96)
    assert "96" in complaint(*update, "-x", taught / "larger")
    features = numbers / "features.npy"
    assert "was fitted on image files" in complaint(*update, "-x", features)
    message = complaint("validate", "-x", features, "-d", tags, "-u", numbers)
    assert "was extracted from files" in message


def retagged(pictures: Path, photo: Path) -> Path:
    run("tag", pictures / "model", photo, "-k", 6, "--sidecars")
    return photo


def test_tags_that_are_inside_are_not_suggested(pictures, tmp_path):
    photo = next((pictures / "files" / "noto").glob("*.png"))
    command = ("tag", pictures / "model")
    tagged = lines(run(*command, photo, "-k", 2).stdout)[0]
    first, second = tagged["labels"]
    exif = Image.Exif()
    exif[0x9C9E] = first.encode("utf-16-le")
    path = tmp_path / "a.png"
    with Image.open(photo) as picture:
        picture.save(path, exif=exif)
    result = run(*command, path, "-k", 2, "--dry-run")
    assert lines(result.stdout)[0]["added"] == [second]


@pytest.fixture
def keyword_numbers(pictures, tmp_path, place):
    """The extraction of photos that hold their tags in sidecars or in themselves."""
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    for number, path in enumerate(sorted(folder.glob("*.png"))):
        tags = ["round", ["red", "blue"][number % 2]]
        if place == "sidecar":
            write_sidecar(path.with_name(path.name + ".xmp"), tags)
            continue
        exif = Image.Exif()
        exif[0x9C9E] = ";".join(tags).encode("utf-16-le")
        with Image.open(path) as picture:
            picture.save(path, exif=exif)
    numbers = tmp_path / "numbers"
    result = run("extract", "image", folder, "--out", numbers, "--size", 32)
    assert f"30 of 30 files have keywords ({place} 30)" in result.stderr
    return numbers


@pytest.mark.parametrize("place", ["sidecar", "EXIF"])
def test_keywords_teach_a_model(keyword_numbers, tmp_path):
    model = tmp_path / "model"
    run("fit", model, "-x", keyword_numbers, *FAST)
    result = run("tag", model, tmp_path / "photos", "--form", "jsonl")
    labels = set()
    for record in lines(result.stdout):
        labels.update(record["labels"])
    assert labels == {"round", "red", "blue"}


@pytest.mark.parametrize("place", ["sidecar", "EXIF"])
def test_documents_take_the_place_of_keywords(keyword_numbers, tmp_path):
    documents = tmp_path / "none.jsonl"
    documents.write_text('{"id": "nothing", "labels": ["a", "b"]}\n')
    result = run("fit", tmp_path / "m", "-x", keyword_numbers, "-d", documents, code=1)
    assert "are not used, since --documents names their tags" in result.stderr


@pytest.fixture
def with_torn_photo(pictures, tmp_path):
    """Photos, one of them torn, and a file that is no picture."""
    folder = tmp_path / "photos"
    shutil.copytree(pictures / "files" / "noto", folder)
    (folder / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    (folder / "notes.md").write_text("no picture")
    return folder


def test_broken_files_are_named_and_fail_only_strict_extractions(with_torn_photo, tmp_path):
    command = ("extract", "image", with_torn_photo, "--out", tmp_path / "out", "--size", 32)
    result = run(*command)
    assert "skipped torn.png: " in result.stderr
    assert "30 of 31 picture files extracted, 1 skipped; 1 other file passed over" in result.stderr
    strict = run(*command, "--strict", code=1)
    assert "(30 from the cache)" in strict.stderr


def test_broken_files_are_named_and_fail_only_strict_tagging(with_torn_photo, pictures):
    command = ("tag", pictures / "model")
    result = run(*command, with_torn_photo, "--form", "jsonl")
    assert len(lines(result.stdout)) == 30
    assert "torn.png: " in result.stderr
    run(*command, with_torn_photo, "--strict", code=1)
    run(*command, with_torn_photo / "torn.png", code=1)


def test_a_file_that_is_named_twice_is_tagged_once(with_torn_photo, pictures):
    photo = next(with_torn_photo.glob("1F*.png"))
    result = run("tag", pictures / "model", photo, with_torn_photo, "--form", "jsonl")
    assert len(lines(result.stdout)) == 30


def complaint(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code != 0
    return str(result.exception)


def test_misuse_is_one_sentence(pictures, sounds, tmp_path):
    tags = pictures / "files" / "tags.jsonl"
    numbers = pictures / "numbers"
    table = numbers / "features.npy"
    fit = ("fit", tmp_path / "m", "-x")
    for words, sentence in (
        ((*fit, numbers, "-d", tags, "--words", "8"), "does not apply to image"),
        ((*fit, numbers), "No file has keywords"),
        ((*fit, table), "--documents"),
        ((*fit, table, "-d", tags, "--words", "8"), "not for numbers"),
        ((*fit, numbers, "--split", "train"), "--split"),
        (("rank", pictures / "model", sounds / "numbers"), "extracted from audio files"),
        (("tag", pictures / "model", sounds / "files"), "no image file"),
        (("sample", "image", pictures / "files"), "exists and is not the file"),
    ):
        assert sentence in complaint(*words)
    run(*fit, table, "-d", tags, *FAST)
    assert "fitted on numbers" in complaint("tag", tmp_path / "m", pictures / "files")
