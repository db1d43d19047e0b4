"""What all media files have in common: how a file that cannot be used is told of.

In: a reason. Out: the error that says it, or the one about a missing extra.
"""

from __future__ import annotations

import os
from typing import TypeAlias

from polyseme._validation import InputError

Source: TypeAlias = str | os.PathLike[str]


class MediaError(InputError):
    """One media file cannot be used.

    Parameters
    ----------
    reason : str
        Completes "skipped FILE: …", such as "is truncated".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


def needs(extra: str, what: str) -> InputError:
    """Build the error for a library that is not installed.

    Parameters
    ----------
    extra : str
        The extra of polyseme that brings it.
    what : str
        What it is needed for, as the beginning of a sentence.
    """
    return InputError(f"{what} needs the extra `{extra}`; pip install 'polyseme[{extra}]'.")
