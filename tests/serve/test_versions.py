"""Versions of a model: whole, shared where nothing changed, and put back."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from polyseme import load
from polyseme._validation import InputError
from polyseme.persistence import MODEL, ModelFileError
from polyseme.serve.host import ModelHost
from polyseme.serve.versions import FOLDER, Versions


def kept(versions, action="change"):
    with versions.writing():
        return versions.keep(action, "detail", "ann", 1, 2)


def test_every_saved_state_is_kept_once_with_what_changed(model):
    versions = Versions(model)
    first = kept(versions, "opened")
    assert kept(versions).number == first.number
    tagger = load(model)
    tagger.block(["sand"]).save(model)
    second = kept(versions, "block")
    assert [one.action for one in versions.all()] == ["opened", "block"]
    assert second.digest == versions.current() != first.digest
    config, _ = versions.state(1)
    assert config["vocabulary"] != versions.state(2)[0]["vocabulary"]


def test_a_version_is_a_copy_that_outlives_what_happens_to_the_model(model):
    versions = Versions(model)
    kept(versions)
    content = (model / MODEL).read_bytes()
    (model / MODEL).write_bytes(content)  # in its place, as `cp` does
    load(model).block(["sand"]).save(model)
    assert (model / "versions" / "0001.safetensors").read_bytes() == content


def test_a_disk_that_is_full_is_told_in_a_sentence(model, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    versions = Versions(model)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(ModelFileError, match=r"is saved, and no version .* \(No space left"):
            kept(versions)
    assert versions.all() == [] and kept(versions).number == 1


def test_the_oldest_go_when_there_are_too_many(model):
    versions, tagger = Versions(model, most=2), load(model)
    for label in ("sand", "sea", "sun"):
        tagger.block([label]).save(model)
        kept(versions, label)
    assert [one.action for one in versions.all()] == ["sea", "sun"]
    with pytest.raises(InputError, match="kept are 2 to 3"):
        versions.state(1)


def test_what_a_kill_leaves_and_what_was_damaged_is_passed_over(model):
    versions = Versions(model)
    kept(versions)
    (model / "versions" / "0002.safetensors").write_text("left by a kill")
    (model / "versions" / "0008.json").write_text("{}")
    assert [one.number for one in versions.all()] == [1]
    load(model).block(["sand"]).save(model)
    assert kept(versions).number == 9


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
