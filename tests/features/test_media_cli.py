"""From files to tags at the command line, with sample files of either kind."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyseme.cli import app
from polyseme.io.xmp import read_tags
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


def test_the_default_learns_from_files_too(pictures, tmp_path):
    tags = pictures / "files" / "tags.jsonl"
    done = run("fit", tmp_path / "model", "-x", pictures / "numbers", "-d", tags)
    assert "members of" in done.stderr
    facts = lines(run("info", tmp_path / "model", "--form", "jsonl").stdout)[0]
    assert facts["feature extractor"].startswith("ImageFeatures(")
    assert facts["documents left out"] == 4, "emoji without a tag"
    tagged = lines(run("tag", tmp_path / "model", pictures / "files", "-f", "jsonl").stdout)
    label = tagged[0]["labels"][0]
    asked = ("explain", tmp_path / "model", pictures / "numbers", label, "--form", "jsonl")
    (record,) = lines(run(*asked, "-k", 2).stdout)
    assert tagged[0]["file"].endswith(record["file"])
    assert record["probability"] == pytest.approx(tagged[0]["scores"][0], abs=1e-5)
    assert record["neighbours"][0]["known_as"][0].endswith(".png")


def test_sidecars_get_tags_and_lose_none(pictures, tmp_path):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    photos = sorted((tmp_path / "photos").glob("*.png"))
    before = [path.read_bytes() for path in photos]
    write_sidecar(photos[0].with_name(photos[0].name + ".xmp"), ["mine"])
    done = run("tag", pictures / "model", tmp_path / "photos", "--sidecars", "-k", 2)
    records = lines(done.stdout)
    assert len(records) == len(photos)
    assert read_tags(Path(records[0]["sidecar"]))[0] == "mine"
    assert read_tags(Path(records[0]["sidecar"]))[1:] == records[0]["added"]
    assert before == [path.read_bytes() for path in photos], "media are only read"
    again = lines(run("tag", pictures / "model", tmp_path / "photos", "--sidecars", "-k", 2).stdout)
    assert all(record["added"] == [] for record in again)


def test_sidecar_tags_teach_a_model(pictures, tmp_path):
    shutil.copytree(pictures / "files" / "noto", tmp_path / "photos")
    for number, path in enumerate(sorted((tmp_path / "photos").glob("*.png"))):
        write_sidecar(path.with_name(path.name + ".xmp"), ["round", ["red", "blue"][number % 2]])
    run("extract", "image", tmp_path / "photos", "--out", tmp_path / "numbers", "--size", 32)
    run("fit", tmp_path / "model", "-x", tmp_path / "numbers", *FAST)
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
