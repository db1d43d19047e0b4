"""Tag cells: what stands in a column of tags, as lists or as text, becomes lists of labels.

In: one cell per document, each a list of strings, or text (a JSON list, the way Python or numpy
prints one, or tags with something between them). Out: one list of labels per document. Nothing is
ever evaluated.
"""

from __future__ import annotations

import ast
import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from polyseme._validation import InputError

_DELIMITERS = (";", "|", ",")  # of equally frequent ones the first is taken
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# As numpy and pandas print arrays: array([...], dtype=object).
_PRINTED_ARRAY = re.compile(r"^array\((.*?)(,\s*dtype=[\w<>'|]+)?\)$", re.DOTALL)
# No backtracking, and a quote that is never closed takes all that is left, so that no cell takes
# longer to read, or to refuse, than its length justifies.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|['"].*""", re.DOTALL)
MAX_CELL = 2**20  # letters
MAX_LABELS = 10_000  # of a document


def label_sets(
    cells: Iterable[Any],
    delimiter: str | None = None,
    column: str = "tags",
    where: Callable[[int], str] = "Document {}".format,
) -> list[list[str]]:
    """Read a column of tags, one cell per document.

    Parameters
    ----------
    cells : iterable of (sequence of str, str or None)
        All lists or all text; None is a document without labels. Where every cell with text is
        in brackets, it is read as a list.
    delimiter : str, optional
        What stands between two tags of a text; by default the one of `;`, `|` and `,` that most
        cells hold. Tags are stripped and empty ones dropped.
    column : str
        The name of the column, for errors.
    where : callable
        Gives the words for a cell's place in errors, such as "Line 3 of x.csv".

    Returns
    -------
    list of list of str
    """
    if delimiter == "":
        raise InputError("`delimiter` must not be empty; got ''.")
    listed = list(cells)
    texts = [cell for cell in listed if isinstance(cell, str) and cell.strip()]
    longest = max(map(len, texts), default=0)
    if longest > MAX_CELL:
        place = next(
            at for at, cell in enumerate(listed) if isinstance(cell, str) and len(cell) > MAX_CELL
        )
        raise InputError(
            f"{where(place)} has a cell of {longest:,} letters in '{column}'; {MAX_CELL:,} are the "
            "most."
        )
    in_brackets = bool(texts) and delimiter is None and all(map(_is_bracketed, texts))
    if delimiter is None and not in_brackets:
        delimiter = _most_common(texts)
    as_text = isinstance(next((cell for cell in listed if cell is not None), None), str)
    sets = []
    for place, cell in enumerate(listed):
        try:
            labels = _labels(cell, delimiter, in_brackets)
        except ValueError as error:
            raise InputError(f"{where(place)} {error} in '{column}'.") from error
        if labels is None or (labels and isinstance(cell, str) != as_text):
            kind = "text" if as_text else "a list of strings"
            raise InputError(
                f"{where(place)} must have '{column}' as {kind}; got {reprlib.repr(cell)}."
            )
        if len(labels) > MAX_LABELS:
            raise InputError(
                f"{where(place)} has {len(labels):,} labels in '{column}'; {MAX_LABELS:,} are the "
                "most."
            )
        sets.append(labels)
    return sets


def suspicion(sets: Sequence[Sequence[str]]) -> str | None:
    """Return what looks wrong about documents that were read, and the cure; None if nothing."""
    held = [labels for labels in sets if len(labels)]
    uses = Counter(label for labels in held for label in labels)
    broken = [label for label in uses if _is_broken(label)]
    if broken:
        return (
            f"{len(broken)} of {len(uses)} labels hold brackets or quotes, such as "
            f"{reprlib.repr(broken[0])}: were lists cut apart?"
        )
    if len(held) < 10:
        return None
    if all(len(labels) == 1 for labels in held):
        n_blank = sum(" " in labels[0].strip() for labels in held)
        if 2 * n_blank > len(held):
            example = reprlib.repr(held[0][0])
            return (
                f"every document has one label, most with blanks, such as {example}: if blanks "
                "separate tags, say so by the delimiter ' '"
            )
        return "every document has one label, and a label that stands beside no other tells little"
    if len(uses) >= 20 and sum(count == 1 for count in uses.values()) > 0.9 * len(uses):
        return f"nearly all of the {len(uses)} labels occur once, and teach nothing"
    return None


def _is_broken(label: str) -> bool:
    """Return whether a label looks like a piece of a printed list."""
    text = label.strip()
    lone = (text[:1] in ("[", "{") and text.count("]") + text.count("}") == 0) or (
        text[-1:] in ("]", "}") and text.count("[") + text.count("{") == 0
    )
    whole = len(text) > 1 and text[0] in "['\"{" and text[-1] in "]'\"}"
    return lone or whole


def _is_bracketed(text: str) -> bool:
    """Return whether a text is in brackets from end to end."""
    stripped = _PRINTED_ARRAY.sub(r"\1", text.strip())
    return len(stripped) > 1 and _BRACKETS.get(stripped[0]) == stripped[-1]


def _most_common(texts: Sequence[str]) -> str | None:
    """Return the delimiter that most cells hold; None where no cell holds any."""
    counts = {mark: sum(mark in text for text in texts) for mark in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda mark: counts[mark])  # the first of equals
    return best if counts[best] else None


def _labels(cell: Any, delimiter: str | None, in_brackets: bool) -> list[str] | None:
    """Read one cell; None where it is neither text nor a list of strings."""
    if cell is None or (isinstance(cell, float) and cell != cell):  # as pandas has what is missing
        return []
    if isinstance(cell, str):
        if in_brackets and cell.strip():
            return _printed_list(_PRINTED_ARRAY.sub(r"\1", cell.strip()))
        pieces = [cell] if delimiter is None else cell.split(delimiter)
        return [tag for piece in pieces if (tag := piece.strip())]
    if hasattr(cell, "tolist"):  # an array
        cell = cell.tolist()
    if not isinstance(cell, (list, tuple, set, frozenset)):
        return None
    labels = list(cell) if isinstance(cell, (list, tuple)) else sorted(cell, key=str)
    return labels if all(isinstance(label, str) for label in labels) else None


def _printed_list(text: str) -> list[str]:
    """Read a list as JSON, Python or numpy print it, or of bare words between commas."""
    try:
        parsed = json.loads(text)
        if isinstance(parsed, list) and all(isinstance(label, str) for label in parsed):
            return parsed
    except (ValueError, RecursionError):
        pass
    inside = text[1:-1]
    quoted = _QUOTED.findall(inside)
    between = _QUOTED.sub("", inside)
    if "..." in between:
        raise ValueError("holds a list that was cut short ('...'); write it out in full")
    if not quoted:
        return [tag for piece in inside.split(",") if (tag := piece.strip())]
    closed = all(len(piece) > 1 and piece[0] == piece[-1] for piece in quoted)
    if between.strip(", \t\r\n") or not closed:
        raise ValueError(f"holds {reprlib.repr(text)}, which is no list of strings")
    return [tag for piece in quoted if (tag := _unquoted(piece).strip())]


def _unquoted(piece: str) -> str:
    """Take the quotes and escapes of Python off a text."""
    if "\\" not in piece:
        return piece[1:-1]
    try:
        return str(ast.literal_eval(piece))
    except SyntaxError as error:
        raise ValueError(f"holds {reprlib.repr(piece)}, which is no string of Python") from error
