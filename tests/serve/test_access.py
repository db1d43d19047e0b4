"""Tokens: only hashes are kept, scopes hold, and nobody else may read the file."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from killed_writers import killed_while_writing
from polyseme._validation import InputError
from polyseme.serve.access import Caller, Tokens, new_token


def test_a_token_is_known_by_its_hash_alone(tmp_path):
    file = tmp_path / "tokens.json"
    token = new_token(file, "ann", "review")
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert Tokens.read(file).caller(token) == Caller("ann", "review")
    assert Tokens.read(file).caller(token + "x") is None


def test_a_new_token_of_a_name_ends_the_former_one(tmp_path):
    file = tmp_path / "tokens.json"
    first, other = new_token(file, "ann", "read"), new_token(file, "bob", "admin")
    second = new_token(file, "ann", "admin")
    tokens = Tokens.read(file)
    assert tokens.caller(first) is None
    assert tokens.caller(second).scope == tokens.caller(other).scope == "admin"


def test_of_many_that_are_made_at_once_none_is_forgotten(tmp_path):
    file = tmp_path / "tokens.json"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda name: new_token(file, name, "read"), "abcdefgh"))
    tokens = Tokens.read(file)
    assert [tokens.caller(one).name for one in made] == list("abcdefgh")


def test_what_a_kill_leaves_is_used_up_by_the_next_token(tmp_path):
    killed_while_writing(tmp_path / "tokens.json")
    new_token(tmp_path / "tokens.json", "ann", "read")
    assert [one.name for one in tmp_path.iterdir()] == ["tokens.json"]


def test_a_scope_holds_those_before_it():
    assert Caller(None, "review").may("read") and not Caller(None, "review").may("admin")
    assert Caller(None, "admin").scopes == ("read", "review", "admin")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"tokens": [{"name": "a", "scope": "root", "sha256": "' + "0" * 64 + '"}]}'],
)
def test_another_file_is_refused(tmp_path, content):
    file = tmp_path / "tokens.json"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(InputError, match="no file of tokens"):
        Tokens.read(file)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"\xff", b'{"tokens": 5}', b'{"tokens": [{}]}', b"[" * 100_000]
)
def test_no_token_is_added_to_another_file(tmp_path, content):
    file = tmp_path / "tokens.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match="no file of tokens"):
        new_token(file, "ann", "read")
    assert file.read_bytes() == content


def test_a_file_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "tokens.json"
    new_token(file, "ann", "read")
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        Tokens.read(file)


@pytest.mark.parametrize(("name", "scope"), [("", "read"), ("a\nb", "read"), ("a", "all")])
def test_names_and_scopes_are_checked(tmp_path, name, scope):
    with pytest.raises(InputError, match=r"name of a token|scope"):
        new_token(tmp_path / "tokens.json", name, scope)


def test_hashes_must_be_hashes(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"tokens": [{"name": "a", "scope": "read", "sha256": "abc"}]}))
    file.chmod(0o600)
    with pytest.raises(InputError, match="no file of tokens"):
        Tokens.read(file)
