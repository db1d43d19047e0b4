"""Folders of ours carry a mark, and files appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from command_files import names
from killed_writers import killed_while_writing
from polyseme.base.validation import InputError
from polyseme.storage.atomic_files import (
    MARK_FILE,
    check_file,
    check_room,
    folder_kind,
    is_intact,
    is_temporary,
    mark_folder,
    own_folder,
    replacing,
    sealed,
    summary_of,
    temporary_of,
    unsealed,
)


def test_what_a_kill_leaves_is_overwritten_by_the_next_writer_and_nothing_else_is(tmp_path):
    own_names = {"thesis.tmp", ".0123456789abcdef.tmp", ".page.html.polyseme-tmp"}
    for name in own_names:
        (tmp_path / name).write_text("mine")
    killed_while_writing(tmp_path / "page.html")
    page = tmp_path / "page.html"
    (remainder,) = names(tmp_path) - own_names
    assert is_temporary(remainder)
    assert remainder == temporary_of(page).name
    with replacing(page) as stream:
        stream.write(b"x")
    assert names(tmp_path) == {"page.html", *own_names}
    assert page.read_bytes() == b"x"


def test_a_file_with_the_longest_possible_name_is_written(tmp_path):
    name = "\u00e9" * 127
    with replacing(tmp_path / name) as stream:
        stream.write(b"x")
    assert names(tmp_path) == {name}


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(KeyError), replacing(tmp_path / "a") as stream:
        stream.write(b"new")
        raise KeyError
    assert names(tmp_path) == {"a"} and (tmp_path / "a").read_bytes() == b"old"


def test_writers_of_one_file_wait_for_each_other(tmp_path):
    def write(letter: bytes) -> None:
        for _ in range(20):
            with replacing(tmp_path / "a") as stream:
                stream.write(letter * 10_000)
                stream.write(letter * 10_000)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, [b"a", b"b", b"c"]))
    content = (tmp_path / "a").read_bytes()
    assert len(content) == 20_000 and len(set(content)) == 1 and names(tmp_path) == {"a"}


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path):
    target = tmp_path / "mine"
    target.write_text("mine")
    path = tmp_path / "a"
    temporary_of(path).symlink_to(target)
    with pytest.raises(InputError, match="must be a regular file"), replacing(path):
        pytest.fail("it was written")
    assert target.read_text() == "mine"


def test_a_mark_is_made_in_a_new_folder(tmp_path):
    folder = tmp_path / "new" / "below"
    mark_folder(folder, "rankings")
    assert folder_kind(folder) == "rankings"


def test_a_mark_is_made_once_in_an_empty_folder(tmp_path):
    killed_while_writing(tmp_path / MARK_FILE)
    mark_folder(tmp_path, "rankings")
    assert names(tmp_path) == {MARK_FILE}
    content = (tmp_path / MARK_FILE).read_bytes()
    mark_folder(tmp_path, "rankings")
    assert (tmp_path / MARK_FILE).read_bytes() == content


@pytest.mark.parametrize(
    ("kind", "place", "complaint"),
    [
        ("rankings", "mine", "holds 'letter.txt' and no mark that polyseme made it"),
        ("rankings", "mine/letter.txt", "is a file; name a folder"),
        ("numbers", "ours", "holds rankings, and no numbers; name another folder"),
    ],
)
def test_no_mark_is_made_where_something_else_lies(tmp_path, kind, place, complaint):
    mark_folder(tmp_path / "ours", "rankings")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=complaint):
        mark_folder(tmp_path / place, kind)
    assert names(folder) == {"letter.txt"}


@pytest.mark.parametrize(
    "mark",
    [b"", b"{}", b"[]", b"no", b'{"format": "another"}', b"[" * 60_000],
)
def test_a_mark_that_is_not_ours_is_refused(tmp_path, mark):
    (tmp_path / MARK_FILE).write_bytes(mark)
    with pytest.raises(InputError, match=r"The mark '.polyseme' in .* is damaged or not ours"):
        mark_folder(tmp_path, "rankings")
    content = (tmp_path / MARK_FILE).read_bytes()
    assert content == mark
    assert folder_kind(tmp_path) is None


def test_one_writer_at_a_time_has_a_folder(tmp_path):
    with (
        own_folder(tmp_path / "out", "rankings"),
        pytest.raises(InputError, match="has been locked by another writer"),
        own_folder(tmp_path / "out", "rankings"),
    ):
        pytest.fail("two at a time")
    with own_folder(tmp_path / "out", "rankings"):
        assert names(tmp_path / "out") == {MARK_FILE}


@pytest.mark.parametrize("write", [mark_folder, own_folder])
def test_links_to_nothing_and_loops_get_a_sentence(tmp_path, write):
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for name in ("dangling", "loop"):
        with pytest.raises(InputError, match="is a link that leads nowhere"):
            with_block = write(tmp_path / name, "rankings")
            with_block.__enter__()
        with pytest.raises(InputError, match="is a link that leads nowhere"):
            check_file(tmp_path / name)
    with pytest.raises(InputError, match=r"loop' is a link that leads nowhere"):
        mark_folder(loop / "below", "rankings")
    (tmp_path / "real").mkdir()
    (tmp_path / "good").symlink_to(tmp_path / "real")
    mark_folder(tmp_path / "good", "rankings")
    assert folder_kind(tmp_path / "real") == "rankings"


def test_places_that_cannot_be_written_are_found_out_before(tmp_path, monkeypatch):
    check_file(tmp_path / "page.html")
    assert not names(tmp_path)
    for place, complaint in [
        (tmp_path, "is a folder; add the name of a file"),
        (tmp_path / "no" / "page.html", "There is no folder"),
    ]:
        with pytest.raises(InputError, match=complaint):
            check_file(place)

    def full(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    for check in (lambda: check_file(tmp_path / "a"), lambda: mark_folder(tmp_path / "b", "c")):
        with pytest.raises(InputError, match=r"Nothing can be written to .*: No space left"):
            check()
    assert names(tmp_path) == {"b"}


def test_free_space_is_checked_where_it_is_known(tmp_path):
    check_room(tmp_path / "not" / "there", 1)
    with pytest.raises(
        InputError, match=r"has .* GB left, and 1000000000.00 are needed; make room"
    ):
        check_room(tmp_path / "not" / "there", 10**18)


CONTENT = {"kind": "rankings", "rows": 3, "names": ["a", "\u00e9\ud800"], "none": None}


def test_every_bit_of_a_sealed_text_counts():
    data = sealed(CONTENT)
    assert unsealed(data) == CONTENT
    for place in range(len(data)):
        for bit in (1, 16, 128):
            changed = bytearray(data)
            changed[place] ^= bit
            assert unsealed(bytes(changed)) is None


def test_texts_that_are_cut_nested_or_without_seal_are_refused():
    data = sealed(CONTENT)
    assert unsealed(data[:-1]) is None
    assert unsealed(b"[" * 10_000) is None
    plain = json.dumps(CONTENT)
    assert unsealed(plain.encode()) is None


@pytest.fixture
def summarised(tmp_path):
    """A file, and the summary that its writer made of it."""
    path = tmp_path / "a"
    with replacing(path) as stream:
        stream.writelines([b"one", b"", b"two"])
        summary = stream.summary()
    return path, summary


def test_a_summary_is_made_while_a_file_is_written(summarised):
    path, summary = summarised
    assert summary == summary_of(path)
    assert summary["bytes"] == 6
    assert is_intact(path, summary)


@pytest.mark.parametrize("changed", [b"onetwp", b"onetw", b""])
def test_a_changed_file_is_not_intact(summarised, changed):
    path, summary = summarised
    path.write_bytes(changed)
    assert not is_intact(path, summary)


def test_without_a_summary_or_a_file_nothing_is_intact(summarised, tmp_path):
    path, summary = summarised
    for no_summary in (None, [], {"bytes": 0}):
        assert not is_intact(path, no_summary)
    assert not is_intact(tmp_path / "gone", summary)
    assert summary_of(tmp_path) is None
