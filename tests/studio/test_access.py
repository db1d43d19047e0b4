"""Tokens: only hashes are stored, scopes limit, and nobody else may read the file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from killed_writers import killed_while_writing
from polyseme.base.validation import InputError
from polyseme.studio.access import Caller, Tokens, new_token


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens.json"


def write(file, content):
    """Write a file that nobody else may read."""
    file.write_text(content)
    file.chmod(0o600)


def test_only_the_hash_of_a_token_is_stored(file):
    token = new_token(file, "ann", "review")
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    tokens = Tokens.read(file)
    assert tokens.caller(token) == Caller("ann", "review")
    assert tokens.caller(token + "x") is None


def test_a_new_token_of_a_name_revokes_the_former_one(file):
    former = new_token(file, "ann", "read")
    bob = new_token(file, "bob", "admin")
    latter = new_token(file, "ann", "admin")
    tokens = Tokens.read(file)
    assert tokens.caller(former) is None
    assert tokens.caller(bob).scope == "admin"
    assert tokens.caller(latter).scope == "admin"


def test_tokens_that_are_made_at_the_same_time_are_all_stored(file):
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda name: new_token(file, name, "read"), "abcdefgh"))
    tokens = Tokens.read(file)
    names = [tokens.caller(token).name for token in created]
    assert names == list("abcdefgh")


def test_the_next_token_removes_what_a_killed_writer_left(file):
    killed_while_writing(file)
    new_token(file, "ann", "read")
    assert list(file.parent.iterdir()) == [file]


def test_a_scope_includes_those_before_it():
    reviewer = Caller(None, "review")
    assert reviewer.may("read")
    assert not reviewer.may("admin")
    assert Caller(None, "admin").scopes == ("read", "review", "admin")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"tokens": [{"name": "a", "scope": "root", "sha256": "' + "0" * 64 + '"}]}',
        '{"tokens": [{"name": "a", "scope": "read", "sha256": "abc"}]}',
    ],
    ids=["empty", "list", "no tokens", "no scope", "no hash"],
)
def test_a_file_that_holds_no_tokens_is_refused(file, content):
    write(file, content)
    with pytest.raises(InputError, match="no file of tokens"):
        Tokens.read(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"dear diary",
        b"{",
        b"[]",
        b"\xff",
        b'{"tokens": 5}',
        b'{"tokens": [{}]}',
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_no_token_is_added_to_another_file(file, content):
    file.write_bytes(content)
    before = file.stat()
    with pytest.raises(InputError, match="is no file of tokens"):
        new_token(file, "ann", "read")
    assert file.read_bytes() == content
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_that_other_users_may_read_is_refused(file):
    new_token(file, "ann", "read")
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        Tokens.read(file)


@pytest.mark.parametrize(("name", "scope"), [("", "read"), ("a\nb", "read"), ("a", "all")])
def test_names_and_scopes_are_checked(file, name, scope):
    with pytest.raises(InputError, match=r"name of a token|scope"):
        new_token(file, name, scope)
