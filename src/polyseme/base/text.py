"""Text as people see it: in a line, without what would steer a terminal, not too long.

Only the standard library is used: the command says its first words before anything is loaded.
"""

from __future__ import annotations

import math
import re
import unicodedata

# Marks that turn the direction of writing, by which a text can pretend to be another.
_DIRECTION_MARKS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
# Unicode's categories of control characters, halves of characters (surrogates), and separators of
# lines and paragraphs.
_STEERING_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
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
        category = unicodedata.category(character)
        is_steering = category in _STEERING_CATEGORIES or character in _DIRECTION_MARKS
        if is_steering and character not in allowed:
            quoted = ascii(character)
            character = quoted[1:-1]
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
    """Return a name as sentences hold it: in a line, without control characters, not too long.

    `most` characters at the most, an ellipsis included.
    """
    text = printable(str(name))
    if len(text) <= most:
        return text
    last = most - 1
    return f"{text[:last]}…"


def error_text(error: BaseException, most: int = 200) -> str:
    """Return a library's message as part of a sentence: in a line, shortened, without its end.

    The name of the exception where it has no message.
    """
    words = str(error).split()
    line = " ".join(words)
    message = _ADDRESS.sub("", line).rstrip(".")
    return in_words(message or type(error).__name__, most)


def shown(value: object, most: int = 80) -> str:
    """Return a value as errors name it: its `repr` in a line, cut to `most` characters."""
    # Python refuses to write out whole numbers of thousands of digits.
    if isinstance(value, int) and abs(value) >= 10**most:
        n_bits = value.bit_length()
        n_digits = int(n_bits * math.log10(2)) + 1
        return f"a number of {n_digits} digits"
    try:
        text = repr(value)
    except Exception:  # anything may be passed, also what cannot tell what it is
        text = f"a {type(value).__name__}"
    words = text.split()
    return in_words(" ".join(words), most)


def counted(count: int, noun: str) -> str:
    """Return a number of things, such as "1 label" or "2,000 labels"."""
    ending = "" if count == 1 else "s"
    return f"{count:,} {noun}{ending}"
