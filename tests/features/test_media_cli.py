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
from operator import attrgetter
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from killed_writers import killed_while_writing
from polyseme import ConceptSpace, ImageFeatures, load
from polyseme.cli import app
from polyseme.features import read_extraction
from polyseme.io.xmp import read_sidecar
from sidecar_files import write_sidecar

FAST = ["--preset", "paper", "--components", "8", "--topics", "4", "--epochs", "3"]


def run(*words: object, code: int = 0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


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
    run("fit", place / "model", "-x", place / "numbers", "-d", tags, *words, *FAST)
    return place


def test_sounds_become_tags(sounds):
    done = run("tag", sounds / "model", sounds / "files", "--top", 3, "--form", "csv")
    table = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(table) == 40
    assert len(table[0]["labels"].split(";")) == 3


def test_files_and_extracted_numbers_are_tagged_alike(pictures):
    model, numbers, tags = (pictures / name for name in ("model", "numbers", "files/tags.jsonl"))
    of_files = lines(run("tag", model, pictures / "files", "--top", 4, "--form", "jsonl").stdout)
    of_numbers = lines(run("rank", model, numbers, "--top", 4, "--form", "jsonl").stdout)
    assert [record["labels"] for record in of_files] == [row["labels"] for row in of_numbers]
    assert all(len(record["labels"]) == len(record["scores"]) == 4 for record in of_files)
    assert "noto/1F600.png" in {row["file"] for row in of_numbers}
    (row, *_) = lines(run("evaluate", model, numbers, tags, "--form", "jsonl").stdout)
    assert row["n_items"] > 20
    label = of_numbers[0]["labels"][0]
    assert lines(run("explain", model, numbers, label, "--form", "jsonl").stdout)


def test_a_device_that_is_not_there_is_refused_before_any_file_is_looked_at(pictures, tmp_path):
    files, there = pictures / "files", ("--device", "abacus")
    for command in (
        ("tag", pictures / "model", files),
        ("extract", "image", files, "-o", tmp_path),
    ):
        assert "'abacus', which torch cannot use here; 'cpu'" in complaint(*command, *there)


def test_the_default_learns_from_files_too(pictures, tmp_path):
    tags = pictures / "files" / "tags.jsonl"
    done = run("fit", tmp_path / "model", "-x", pictures / "numbers", "-d", tags)
    assert "members of" in done.stderr
    facts = lines(run("info", tmp_path / "model", "--form", "jsonl").stdout)[0]
    assert facts["feature extractor"].startswith("ImageFeatures(")
    assert facts["documents left out"] == 4, "emoji without a tag"
    command = ("tag", tmp_path / "model", pictures / "files", "-f", "jsonl")
    done = run(*command)
    promised = "tags for a precision of 0.5" in done.stderr
    assert promised == (load(tmp_path / "model").validation_ is not None)
    given = [len(record["labels"]) for record in lines(done.stdout)]
    assert max(given) <= 10 and (min(given) < 10) == promised
    tagged = lines(run(*command, "--top", 10).stdout)
    assert {len(record["labels"]) for record in tagged} == {10}
    label = tagged[0]["labels"][0]
    asked = ("explain", tmp_path / "model", pictures / "numbers", label, "--form", "jsonl")
    (record,) = lines(run(*asked, "-k", 2).stdout)
    assert tagged[0]["file"].endswith(record["file"])
    assert record["probability"] == pytest.approx(tagged[0]["scores"][0], abs=1e-5)
    assert record["neighbours"][0]["known_as"][0].endswith(".png")
    (of_file,) = lines(run("explain", tmp_path / "model", tagged[0]["file"], label, "-k", 2).stdout)
    assert of_file["file"] == tagged[0]["file"]
    assert of_file["probability"] == pytest.approx(record["probability"], abs=1e-5)


@pytest.mark.parametrize("way", ["--sidecars", "--undo", "review"])
def test_what_a_kill_leaves_among_photos_is_gone_after_the_next_run(pictures, tmp_path, way):
    place = tmp_path / "photos"
    (place / "below").mkdir(parents=True)
    photo = Path(shutil.copy(next((pictures / "files").rglob("*.png")), place / "below" / "a.png"))
    command = ["tag", pictures / "model", place, "-k", 2]
    added = lines(run(*command, "--sidecars").stdout)[0]["added"]
    killed_while_writing(photo.with_name("a.png.xmp"))
    mine = {name: place / "below" / name for name in ("b.tmp", f".{'0' * 16}.tmp", ".hidden")}
    for path in mine.values():
        path.write_text("mine")
    run(*command, "--dry-run")
    assert len(list((place / "below").iterdir())) == 6
    if way == "review":
        run("review", place, "--accept", added[0])
    else:
        run(*command, way)
    left = {path.name for path in (place / "below").iterdir()} - {"a.png.xmp"}
    assert left == {*mine, "a.png"}


def test_sidecars_get_tags_and_lose_none(pictures, tmp_path):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    photos = sorted((tmp_path / "photos").glob("*.png"))
    before = [path.read_bytes() for path in photos]
    write_sidecar(photos[0].with_name(photos[0].name + ".xmp"), ["mine"])
    done = run("tag", pictures / "model", tmp_path / "photos", "--sidecars", "-k", 2)
    records = lines(done.stdout)
    assert len(records) == len(photos)
    assert read_sidecar(Path(records[0]["sidecar"])).tags[0] == "mine"
    assert read_sidecar(Path(records[0]["sidecar"])).tags[1:] == records[0]["added"]
    assert before == [path.read_bytes() for path in photos], "media are only read"
    again = lines(run("tag", pictures / "model", tmp_path / "photos", "--sidecars", "-k", 2).stdout)
    assert all(record["added"] == [] for record in again)


def test_a_disk_that_does_not_take_a_sidecar_is_no_success(pictures, tmp_path, monkeypatch):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    command = ("tag", pictures / "model", tmp_path / "photos", "--sidecars", "-k", 2)
    sync, failed = os.fsync, []

    def fail_once(descriptor: int) -> None:
        if not failed:
            failed.append(descriptor)
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    done = CliRunner().invoke(app, [str(word) for word in command])
    assert "1 sidecar could not be written" in str(done.exception)
    photos = sorted((tmp_path / "photos").glob("*.png"))
    assert len(list((tmp_path / "photos").glob("*.xmp"))) == len(photos) - 1
    assert len([one for one in lines(run(*command).stdout) if one["added"]]) == 1


def test_an_extracted_folder_is_not_looked_at_again(pictures, tmp_path, monkeypatch):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    command = ("tag", pictures / "model", tmp_path / "photos", "-k", 3, "--form", "jsonl")
    beside = run(*command).stdout
    monkeypatch.setattr(ImageFeatures, "extract_batch", forbidden)
    assert run(*command).stdout == beside, "the extraction beside the model has them, by content"
    assert run(*command, "-x", pictures / "numbers").stdout == beside
    photo = next((tmp_path / "photos").glob("*.png"))
    photo.write_bytes(photo.read_bytes() + b"more")
    with pytest.raises(AssertionError, match="looked at"):
        CliRunner().invoke(app, [str(word) for word in command], catch_exceptions=False)
    assert "no folder that `polyseme extract` wrote" in complaint(*command, "-x", tmp_path)


def forbidden(*_: object) -> None:
    raise AssertionError("a file was looked at")


def test_a_dry_run_tells_what_would_be_written(pictures, tmp_path):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    command = ("tag", pictures / "model", tmp_path / "photos", "-k", 2)
    done = run(*command, "--dry-run")
    assert "nothing was written" in done.stderr
    assert not list((tmp_path / "photos").glob("*.xmp"))
    assert lines(run(*command, "--sidecars").stdout) == lines(done.stdout)


@pytest.mark.parametrize("words", [[], ["--dry-run"]], ids=["tags", "sidecars"])
def test_people_see_probabilities(pictures, words):
    photo = next((pictures / "files" / "noto").glob("*.png"))
    done = run("tag", pictures / "model", photo, "-k", 2, "--form", "table", *words)
    assert len(re.findall(r" [01](?:\.\d+)?(?=[,\s])", done.stdout)) >= 2, done.stdout


def test_undo_takes_back_what_was_suggested_and_nothing_else(pictures, tmp_path):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    photos = sorted((tmp_path / "photos").glob("*.png"))
    mine = photos[0].with_name(photos[0].name + ".xmp")
    write_sidecar(mine, ["mine"])
    before = mine.read_text("utf-8")
    command = ("tag", pictures / "model", tmp_path / "photos")
    run(*command, "--sidecars", "-k", 2)
    assert "taken back from 30 files" in run(*command, "--undo", "--dry-run").stderr
    assert len(list((tmp_path / "photos").glob("*.xmp"))) == 30
    assert "60 suggestions taken back from 30 files" in run(*command, "--undo").stderr
    assert list((tmp_path / "photos").glob("*.xmp")) == [mine]
    assert canonical(mine.read_text("utf-8")) == canonical(before)
    assert "0 suggestions taken back" in run(*command, "--undo").stderr


def canonical(text: str) -> str:
    return ElementTree.canonicalize(text[text.index("<x:") :], strip_text=True)


def test_suggestions_are_reviewed_and_accepted_ones_teach(pictures, tmp_path):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    photo = sorted((tmp_path / "photos").glob("*.png"))[0]
    command = ("tag", pictures / "model", photo, "-k", 4)
    first, second, *others = lines(run(*command, "--sidecars").stdout)[0]["added"]
    (waiting,) = lines(run("review", tmp_path / "photos").stdout)
    assert waiting == {"file": str(photo), "suggested": [first, second, *others]}
    (done,) = lines(run("review", tmp_path / "photos", "-a", first.upper(), "-r", second).stdout)
    assert (done["accepted"], done["refused"]) == ([first], [second])
    assert lines(run("review", photo).stdout)[0]["suggested"] == others
    assert second not in lines(run(*command).stdout)[0]["labels"], "a refused tag came back"
    assert second not in lines(run(*command, "--sidecars").stdout)[0]["added"]
    run("review", photo, "--refuse", "*")
    answered = run("review", photo)
    assert answered.stdout == "" and "no suggestion waits for an answer" in answered.stderr
    run("extract", "image", tmp_path / "photos", "--out", tmp_path / "numbers", "--size", 32)
    tags = dict(zip(*attrgetter("ids", "tags")(read_extraction(tmp_path / "numbers")), strict=True))
    assert tags[photo.name] == (first,)
    assert "waits for an answer" in complaint("review", tmp_path / "photos", "--accept", first)
    again = retagged(pictures, photo)
    assert "both accepted and refused" in complaint("review", again, "-a", "*", "-r", "*")
    ((right, *wrong),) = (one["suggested"] for one in lines(run("review", again).stdout))
    (done,) = lines(run("review", again, "-a", right, "-r", "*").stdout)
    assert (done["accepted"], done["refused"]) == ([right], wrong)


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


def test_files_are_asked_about_answered_and_reviewed(pictures, taught):
    model, numbers = taught / "model", pictures / "numbers"
    questions = run("ask", model, numbers, "-k", 5, "-f", "jsonl").stdout
    assert {row["item"] for row in lines(questions)} <= set(read_extraction(numbers).ids)
    (taught / "q.jsonl").write_text(questions.replace("null", "false"))
    assert run("learn", model, taught / "q.jsonl", "-x", numbers).stdout == "1-5\n"
    photo = sorted((taught / "photos" / "noto").glob("*.png"))[0]
    # The same file by another path, and as a file of its own.
    run("learn", model, "--yes", "canoe", pictures / "files" / "noto" / photo.name, "-x", numbers)
    run("add", model, photo, "--label", "canoe")
    (first, second) = lines(run("tag", model, photo, "-k", 2, "--sidecars").stdout)[0]["added"]
    done = run("review", photo, "-a", first, "-r", second, "--model", model, "-x", numbers)
    assert "the model has learned from 2 answers" in done.stderr
    said = [(one.item, one.label, one.answer) for one in load(model).verdicts_.events(5)]
    own = f"noto/{photo.name}"
    yes, no = (own, first, True), (own, second, False)
    assert said == [(own, "canoe", True), (str(photo), "canoe", True), yes, no]
    assert "Nothing is known of the file 'nowhere.png'" in complaint(
        "learn", model, "--yes", "canoe", "nowhere.png"
    )
    assert "There is no item 'nowhere.png' in" in complaint(
        "learn", model, "--yes", "canoe", "nowhere.png", "-x", numbers
    )


def test_files_without_tags_are_a_pool_and_an_update_keeps_the_extractor(pictures, taught):
    tags = pictures / "files" / "tags.jsonl"
    words = ("-x", pictures / "numbers", "-d", tags, "--validations", 0)
    update = ("fit", taught / "new", "--update", taught / "model")
    for place in (taught / "photos", pictures / "numbers"):
        assert "have tags; leave out --unlabelled" in complaint(*update, *words, "-u", place)
    shutil.copytree(pictures / "files" / "noto", taught / "photos" / "other")
    done = run(*update, *words, "-u", taught / "photos")
    assert "photos: 30 items with tags left out" in done.stderr
    assert "items without tags are learned from" in done.stderr
    new = load(taught / "new")
    assert new.pooled_ and new.features_.size == 64
    run("extract", "image", pictures / "files", "-o", taught / "larger", "--size", 96)
    assert "96" in complaint(*update, "-d", tags, "-x", taught / "larger")
    numbers = pictures / "numbers" / "features.npy"
    assert "was made of image files" in complaint(*update, "-x", numbers, "-d", tags)
    assert "was extracted from files" in complaint(
        "validate", "-x", numbers, "-d", tags, "-u", pictures / "numbers"
    )


def retagged(pictures: Path, photo: Path) -> Path:
    run("tag", pictures / "model", photo, "-k", 6, "--sidecars")
    return photo


def test_tags_that_are_inside_are_not_suggested(pictures, tmp_path):
    photo = next((pictures / "files" / "noto").glob("*.png"))
    first, second = lines(run("tag", pictures / "model", photo, "-k", 2).stdout)[0]["labels"]
    exif = Image.Exif()
    exif[0x9C9E] = first.encode("utf-16-le")
    with Image.open(photo) as picture:
        picture.save(tmp_path / "a.png", exif=exif)
    done = run("tag", pictures / "model", tmp_path / "a.png", "-k", 2, "--dry-run")
    assert lines(done.stdout)[0]["added"] == [second]


@pytest.mark.parametrize("place", ["sidecar", "EXIF"])
def test_keywords_teach_a_model(pictures, tmp_path, place):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    for number, path in enumerate(sorted((tmp_path / "photos").glob("*.png"))):
        tags = ["round", ["red", "blue"][number % 2]]
        if place == "sidecar":
            write_sidecar(path.with_name(path.name + ".xmp"), tags)
            continue
        exif = Image.Exif()
        exif[0x9C9E] = ";".join(tags).encode("utf-16-le")
        with Image.open(path) as picture:
            picture.save(path, exif=exif)
    command = ("extract", "image", tmp_path / "photos", "--out", tmp_path / "numbers", "--size", 32)
    assert f"30 of 30 files have keywords ({place} 30)" in run(*command).stderr
    run("fit", tmp_path / "model", "-x", tmp_path / "numbers", *FAST)
    (tmp_path / "none.jsonl").write_text('{"id": "nothing", "labels": ["a", "b"]}\n')
    done = run(
        "fit", tmp_path / "m", "-x", tmp_path / "numbers", "-d", tmp_path / "none.jsonl", code=1
    )
    assert "are not used, since --documents names their tags" in done.stderr
    done = run("tag", tmp_path / "model", tmp_path / "photos", "--form", "jsonl")
    labels = {label for record in lines(done.stdout) for label in record["labels"]}
    assert labels == {"round", "red", "blue"}


def test_broken_files_are_named_and_fail_only_strict_runs(pictures, tmp_path):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    (tmp_path / "photos" / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    (tmp_path / "photos" / "notes.md").write_text("no picture")
    command = ("extract", "image", tmp_path / "photos", "--out", tmp_path / "out", "--size", 32)
    done = run(*command)
    assert "skipped torn.png: " in done.stderr
    assert "30 of 31 picture files extracted, 1 skipped; 1 other file passed over" in done.stderr
    assert "(30 from the cache)" in run(*command, "--strict", code=1).stderr
    done = run("tag", pictures / "model", tmp_path / "photos", "--form", "jsonl")
    assert len(lines(done.stdout)) == 30
    assert "torn.png: " in done.stderr
    run("tag", pictures / "model", tmp_path / "photos", "--strict", code=1)
    run("tag", pictures / "model", tmp_path / "photos" / "torn.png", code=1)
    photo = next((tmp_path / "photos").glob("1F*.png"))
    twice = run("tag", pictures / "model", photo, tmp_path / "photos", "--form", "jsonl")
    assert len(lines(twice.stdout)) == 30


def complaint(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code != 0
    return str(done.exception)


def test_misuse_is_one_sentence(pictures, sounds, tmp_path):
    tags, numbers = pictures / "files" / "tags.jsonl", pictures / "numbers"
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
