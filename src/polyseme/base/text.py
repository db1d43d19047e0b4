"""Text as people see it: in a line, without what would steer a terminal, not too long.

Only the standard library is used: the command says its first words before anything is loaded.
"""

from __future__ import annotations

import math
import re
import unicodedata

# Marks that turn the direction of writing, by which a text can pretend to be another.
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_STEERING = frozenset(("Cc", "Cs", "Zl", "Zp"))
_ADDRESS = re.compile(" at 0x[0-9a-f]+")  # of an object, which says nothing to anybody


def printable(text: str, allowed: str = "") -> str:
    """Return a text with what steers a terminal, and halves of characters, spelled out.

    Parameters
    ----------
    text : str
    allowed : str
        Characters that stay as they are, such as line feeds.
    """
    if text.isascii() and text.isprintable():
        return text
    characters = []
    for character in text:
        is_steering = unicodedata.category(character) in _STEERING or character in _TURNS
        if is_steering and character not in allowed:
            character = ascii(character)[1:-1]
        characters.append(character)
    return "".join(characters)


def is_text(value: str) -> bool:
    """Return whether a text can be written anywhere: it has no NUL and no half of a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def in_words(name: object, most: int = 250) -> str:
    """Return a name as sentences hold it: in a line, without control characters, not too long."""
    text = printable(str(name))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def error_text(error: BaseException, most: int = 200) -> str:
    """Return a library's message as part of a sentence: in a line, shortened, without its end."""
    words = _ADDRESS.sub("", " ".join(str(error).split())).rstrip(".")
    return in_words(words or type(error).__name__, most)


def shown(value: object, most: int = 80) -> str:
    """Return a value as errors name it: in a line, cut where it is long."""
    if isinstance(value, int) and abs(value) >= 10**most:
        n_digits = int(value.bit_length() * math.log10(2)) + 1
        return f"a number of {n_digits} digits"
    try:
        text = repr(value)
    except Exception:  # anything may be passed, also what cannot tell what it is
        text = f"a {type(value).__name__}"
    words = text.split()
    return in_words(" ".join(words), most)


def counted(count: int, noun: str) -> str:
    """Return a number of things."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
