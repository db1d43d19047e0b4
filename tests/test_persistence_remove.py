"""Removal of model directories: what goes with the model and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyseme.persistence import read_model, remove_model
from saved_models import NEW, OLD, contents, same, write


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write(path, OLD)
    return path


def test_removal_takes_model_abandoned_files_and_folder(model: Path) -> None:
    for name in ("arrays-0123456789ab.safetensors", f"config-0123456789ab.json.{'0' * 16}.tmp"):
        (model / name).write_bytes(b"abandoned")
    remove_model(str(model))
    assert list(model.parent.iterdir()) == []
    write(model, NEW)
    assert same(read_model(model), NEW)


def test_removal_tidies_up_after_a_first_write_that_was_killed(model: Path) -> None:
    (model / "manifest.json").rename(model / f"manifest.json.{'a' * 16}.tmp")
    remove_model(model)
    assert not model.exists()


def test_removal_leaves_everything_that_is_not_the_models(model: Path) -> None:
    own, outside = set(contents(model)), model.parent / "outside"
    outside.write_text("mine")
    (model / "config.json").write_text("mine")
    (model / "arrays-0123456789ab.safetensors").symlink_to(outside)
    (model / "config-0123456789ab.json").mkdir()
    (model / "runs").mkdir()
    (model / "runs" / "manifest.json").write_text("mine")
    kept = {entry.name for entry in model.iterdir()} - own
    remove_model(model)
    assert {entry.name for entry in model.iterdir()} == kept
    assert (model / "runs" / "manifest.json").read_text() == outside.read_text() == "mine"


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
@pytest.mark.parametrize("text", ["precious", '{"format": "other"}', "[]"])
def test_removal_leaves_foreign_directories_untouched(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "arrays-0123456789ab.safetensors").write_text("precious")
    before = contents(tmp_path)
    remove_model(tmp_path)
    assert contents(tmp_path) == before


def test_removal_of_nothing_and_of_a_plain_file_does_nothing(tmp_path: Path) -> None:
    remove_model(tmp_path / "absent" / "model")
    assert not (tmp_path / "absent").exists()
    (tmp_path / "file").write_text("precious")
    remove_model(tmp_path / "file")
    remove_model(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "precious"


def test_removal_through_a_link_leaves_a_folder_that_can_be_written_again(model: Path) -> None:
    link = model.parent / "link"
    link.symlink_to(model)
    remove_model(link)
    assert contents(model) == {}
    write(link, NEW)
    assert same(read_model(model), NEW)
