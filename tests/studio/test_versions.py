"""Versions of a model: complete, numbered and restored."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from polyseme import load
from polyseme.base.validation import InputError
from polyseme.storage.model_file import MODEL_FILE, ModelFileError
from polyseme.studio.host import ModelHost
from polyseme.studio.versions import FOLDER, Versions


def keep(versions, action="change"):
    with versions.writing():
        return versions.keep(action, "detail", "ann", 1, 2)


def actions(versions):
    return [version.action for version in versions.all()]


def test_every_saved_state_is_a_version_with_the_action_that_led_to_it(model):
    versions = Versions(model)
    first = keep(versions, "opened")
    assert keep(versions).number == first.number
    load(model).block(["sand"]).save(model)
    second = keep(versions, "block")
    assert actions(versions) == ["opened", "block"]
    assert second.digest == versions.current() != first.digest
    first_config, _ = versions.state(1)
    second_config, _ = versions.state(2)
    assert first_config["vocabulary"] != second_config["vocabulary"]


def test_a_version_is_a_copy_that_no_change_of_the_model_reaches(model):
    versions = Versions(model)
    keep(versions)
    content = (model / MODEL_FILE).read_bytes()
    (model / MODEL_FILE).write_bytes(content)  # in its place, as `cp` does
    load(model).block(["sand"]).save(model)
    assert (model / FOLDER / "0001.safetensors").read_bytes() == content


def test_a_full_disk_is_reported_with_a_sentence(model, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    versions = Versions(model)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(ModelFileError, match=r"is saved, and no version .* \(No space left"):
            keep(versions)
    assert versions.all() == []
    assert keep(versions).number == 1


def test_the_oldest_versions_are_removed_when_there_are_too_many(model):
    versions = Versions(model, most=2)
    tagger = load(model)
    for label in ("sand", "sea", "sun"):
        tagger.block([label]).save(model)
        keep(versions, label)
    assert actions(versions) == ["sea", "sun"]
    with pytest.raises(InputError, match="kept are 2 to 3"):
        versions.state(1)


def test_unfinished_and_damaged_versions_are_ignored(model):
    versions = Versions(model)
    keep(versions)
    folder = model / FOLDER
    (folder / "0002.safetensors").write_text("left by a kill")
    (folder / "0008.json").write_text("{}")
    assert [version.number for version in versions.all()] == [1]
    load(model).block(["sand"]).save(model)
    assert keep(versions).number == 9


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX links")
def test_no_version_is_written_through_a_link(model, tmp_path):
    theirs = tmp_path / "theirs"
    (theirs / "0001").mkdir(parents=True)
    (model / FOLDER).symlink_to(theirs)
    with pytest.raises(ModelFileError, match="is a link where versions belong"):
        ModelHost(model)
    with pytest.raises(ModelFileError, match="is a link"), Versions(model, most=1).writing():
        raise AssertionError("it may be written")
    assert [entry.name for entry in theirs.iterdir()] == ["0001"]
    assert (model / FOLDER).is_symlink()
