"""What an audit hands back: checks, and whether they hold.

In: checks. Out: a `Receipt` as text, as JSON values and as a digest, the same for the same run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from polyseme._validation import InputError


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    name : str
        What must hold, or what is noted.
    looked_at : str
        What was looked at, and how much of it.
    count : int
        What was found: for a check, the things that are wrong.
    passed : bool
        Whether it holds; a note always does.
    detail : str
        What was found, in words.
    note : bool
        Whether it only says something that should be known.
    """

    name: str
    looked_at: str
    count: int
    passed: bool
    detail: str
    note: bool = False

    @property
    def verdict(self) -> str:
        """In one word: "ok", "note" or "FAILED"."""
        if not self.passed:
            return "FAILED"
        return "note" if self.note else "ok"


@dataclass(frozen=True)
class Receipt:
    """The result of an audit.

    Attributes
    ----------
    checks : tuple of Check
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)

    @property
    def digest(self) -> str:
        """SHA-256 over the checks."""
        listed = [asdict(check) for check in self.checks]
        return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()

    def lines(self) -> list[str]:
        """Give the receipt as lines of text."""
        width = max((len(check.name) for check in self.checks), default=0)
        listed = [
            f"{check.verdict:<6}  {check.name:<{width}}  {check.detail} ({check.looked_at})"
            for check in self.checks
        ]
        n_failed = sum(not check.passed for check in self.checks)
        verdict = "all checks hold" if self.passed else f"{n_failed} failed"
        return [*listed, f"{verdict}; digest {self.digest}"]

    def require(self) -> None:
        """Raise an `InputError` that names the first failed check, if there is one."""
        for check in self.checks:
            if not check.passed:
                raise InputError(
                    f"The audit failed at '{check.name}': {check.detail} ({check.looked_at})."
                )

    def to_dict(self) -> dict[str, Any]:
        """Give the receipt as JSON values."""
        return {
            "passed": self.passed,
            "digest": self.digest,
            "checks": [asdict(check) for check in self.checks],
        }


def check(
    name: str, looked_at: str, wrong: list[str], ok: str, failed: str, *, most: int = 5
) -> Check:
    """Make a check from the list of what is wrong.

    Parameters
    ----------
    name, looked_at : str
        As in `Check`.
    wrong : list of str
        What is wrong, by name; nothing passes.
    ok, failed : str
        What to say when nothing is wrong, and what the names are said to be.
    most : int
        How many of them to name.

    Returns
    -------
    Check
    """
    if not wrong:
        return Check(name, looked_at, 0, True, ok)
    named = ", ".join(wrong[:most]) + (f" and {len(wrong) - most} more" if wrong[most:] else "")
    return Check(name, looked_at, len(wrong), False, f"{failed}: {named}")


def note(name: str, looked_at: str, count: int, detail: str) -> Check:
    """Make a note: something found that should be known but is not wrong.

    Parameters
    ----------
    name, looked_at, count, detail
        As in `Check`.

    Returns
    -------
    Check
    """
    return Check(name, looked_at, count, True, detail, note=True)
