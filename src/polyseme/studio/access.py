"""Bearer tokens, each with a name and a scope; only their hashes are stored.

In: the file that `polyseme token` writes. Out: the name and scope that belong to a token.

The file is JSON, `{"tokens": [entry, …]}`. An *entry* has the fields `name`, `scope` and `sha256`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme.base.validation import InputError
from polyseme.storage.atomic_files import check_file, locked, replacing

# Each may do what those before it may.
SCOPES = ("read", "review", "admin")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 2**20  # of a file of tokens
_LOCK_SECONDS = 30.0  # until it is given up that another process ends its write


@dataclass(frozen=True)
class Caller:
    """Somebody who asks: a name for the log of verdicts, and the scope."""

    name: str | None
    scope: str

    def may(self, scope: str) -> bool:
        """Return whether something that needs a scope is allowed."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that this one includes."""
        return SCOPES[: SCOPES.index(self.scope) + 1]


class Tokens:
    """The tokens that a service knows, by their SHA-256.

    They are drawn from 256 random bits, so that a plain hash cannot be turned back.

    Parameters
    ----------
    callers : mapping of str to Caller
        By the SHA-256 of their tokens, in hexadecimal digits.
    """

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        self._caller_by_hash = dict(callers)

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file that `new_token` has written; one that others may read is refused."""
        entries = _read_entries(path, private=True)
        return cls({entry["sha256"]: _caller(entry) for entry in entries})

    def __len__(self) -> int:
        return len(self._caller_by_hash)

    def caller(self, token: str) -> Caller | None:
        """Return the caller that a token belongs to; None for an unknown one."""
        sent_hash = _hash(token)
        caller = None
        # All are compared, each in constant time, so that the time tells nothing about a token.
        for token_hash, token_caller in self._caller_by_hash.items():
            if hmac.compare_digest(token_hash, sent_hash):
                caller = token_caller
        return caller


def new_token(path: Path, name: str, scope: str) -> str:
    """Return a new token, and store its hash in a file; the token itself is not stored.

    Parameters
    ----------
    path : Path
        The file, which may be there already; only its owner may read it. Of a link the file it
        leads to is written.
    name : str
        Whose it is; a token of the same name is replaced.
    scope : {"read", "review", "admin"}
    """
    if scope not in SCOPES:
        raise InputError(f"`scope` must be one of {', '.join(SCOPES)}; got '{scope}'.")
    if not _NAME.fullmatch(name):
        raise InputError("The name of a token must be 1 to 64 letters on one line.")
    path = check_file(path)
    token = f"ps_{secrets.token_urlsafe(32)}"
    # Of two that are made at once, each would write the file without the other's.
    with locked(path.parent, _LOCK_SECONDS):
        former_entries = _read_entries(path) if path.exists() else []
        entries = [entry for entry in former_entries if entry["name"] != name]
        entries.append({"name": name, "scope": scope, "sha256": _hash(token)})
        text = json.dumps({"tokens": entries}, indent=1) + "\n"
        with replacing(path, 0o600) as stream:
            stream.write(text.encode())
    return token


def _read_entries(path: Path, *, private: bool = False) -> list[dict[str, Any]]:
    """Read and check the entries of a file of tokens.

    With `private`, a file that others than its owner may read is an `InputError`.
    """
    try:
        state = path.stat()
        if private and state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(
                f"The tokens in '{path}' can be read by others; run: chmod 600 '{path}'."
            )
        if state.st_size > _MOST_BYTES:
            raise InputError(f"'{path}' is too large to be a file of tokens.")
        content = json.loads(path.read_text("utf-8"))
        entries = list(content["tokens"])
        for entry in entries:
            _caller(entry)  # raises for a wrong one
            if not _SHA256.fullmatch(entry["sha256"]):
                raise ValueError("no hash")
        return entries
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"'{path}' is no file of tokens; `polyseme token NEW NAME` makes one."
        ) from error


def _caller(entry: Mapping[str, Any]) -> Caller:
    """Return the caller of an entry, or raise a `ValueError`."""
    name = entry["name"]
    scope = entry["scope"]
    if scope not in SCOPES or not isinstance(name, str):
        raise ValueError("no scope")
    return Caller(name, scope)


def _hash(token: str) -> str:
    """Return the SHA-256 of a token, in hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
