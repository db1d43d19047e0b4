"""Parse the cells of a column of tags, lists or text, into lists of labels.

In: one cell per document, each a list of strings, or text (a JSON list, the way Python or numpy
prints one, or tags with something between them). Out: one list of labels per document. Nothing is
ever evaluated.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from polyseme.base.validation import InputError

_DELIMITERS = (";", "|", ",")  # of equally frequent ones the first is taken
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# As numpy and pandas print arrays: array([...], dtype=object).
_PRINTED_ARRAY = re.compile(r"^array\((.*?)(,\s*dtype=[\w<>'|]+)?\)$", re.DOTALL)
# No backtracking, and a quote that is never closed takes all that is left, so that no cell takes
# longer to read, or to refuse, than its length justifies.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|['"].*""", re.DOTALL)
MAX_CELL = 2**20  # letters
MAX_LABELS = 10_000  # of a document


def parse_tag_cells(
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
    cell_list = list(cells)
    for row, cell in enumerate(cell_list):
        if isinstance(cell, str) and len(cell) > MAX_CELL:
            raise InputError(
                f"{where(row)} has a cell of {len(cell):,} letters in '{column}'; {MAX_CELL:,} are "
                "the most."
            )
    texts = [cell for cell in cell_list if isinstance(cell, str) and cell.strip()]
    in_brackets = False
    if delimiter is None:
        in_brackets = bool(texts) and all(map(_is_bracketed, texts))
        if not in_brackets:
            delimiter = _most_common(texts)
    first_cell = next((cell for cell in cell_list if cell is not None), None)
    as_text = isinstance(first_cell, str)
    sets = []
    for row, cell in enumerate(cell_list):
        try:
            labels = _labels(cell, delimiter, in_brackets)
        except ValueError as error:
            raise InputError(f"{where(row)} {error} in '{column}'.") from error
        if labels is None or (labels and isinstance(cell, str) != as_text):
            kind = "text" if as_text else "a list of strings"
            raise InputError(
                f"{where(row)} must have '{column}' as {kind}; got {reprlib.repr(cell)}."
            )
        if len(labels) > MAX_LABELS:
            raise InputError(
                f"{where(row)} has {len(labels):,} labels in '{column}'; {MAX_LABELS:,} are the "
                "most."
            )
        sets.append(labels)
    return sets


def diagnose_tags(sets: Sequence[Sequence[str]]) -> str | None:
    """Return a doubt about the tags of documents, and its remedy; None if there is none."""
    tagged = [labels for labels in sets if len(labels)]
    uses = Counter(itertools.chain.from_iterable(tagged))
    broken = [label for label in uses if _is_broken(label)]
    if broken:
        return (
            f"{len(broken)} of {len(uses)} labels hold brackets or quotes, such as "
            f"{reprlib.repr(broken[0])}: were lists cut apart?"
        )
    if len(tagged) < 10:
        return None
    if all(len(labels) == 1 for labels in tagged):
        n_blank = sum(" " in labels[0].strip() for labels in tagged)
        if 2 * n_blank > len(tagged):
            example = reprlib.repr(tagged[0][0])
            return (
                f"every document has one label, most with blanks, such as {example}: if blanks "
                "separate tags, say so by the delimiter ' '"
            )
        return "every document has one label, and labels that never occur together teach little"
    n_single = sum(count == 1 for count in uses.values())
    if len(uses) >= 20 and n_single > 0.9 * len(uses):
        return f"nearly all of the {len(uses)} labels occur once, and teach nothing"
    return None


def _is_broken(label: str) -> bool:
    """Return whether a label looks like a piece of a printed list."""
    text = label.strip()
    if not text:
        return False
    first = text[0]
    last = text[-1]
    has_opening = "[" in text or "{" in text
    has_closing = "]" in text or "}" in text
    never_closed = first in "[{" and not has_closing
    never_opened = last in "]}" and not has_opening
    enclosed = len(text) > 1 and first in "['\"{" and last in "]'\"}"
    return never_closed or never_opened or enclosed


def _is_bracketed(text: str) -> bool:
    """Return whether a text is in brackets from end to end."""
    bare = _PRINTED_ARRAY.sub(r"\1", text.strip())
    if len(bare) < 2:
        return False
    closing = _BRACKETS.get(bare[0])
    return bare[-1] == closing


def _most_common(texts: Sequence[str]) -> str | None:
    """Return the delimiter that most cells hold; None where no cell holds any."""
    best = None
    most_cells = 0
    for delimiter in _DELIMITERS:
        n_cells = sum(delimiter in text for text in texts)
        if n_cells > most_cells:  # of equals, the first one stays
            best = delimiter
            most_cells = n_cells
    return best


def _labels(cell: Any, delimiter: str | None, in_brackets: bool) -> list[str] | None:
    """Return the labels of one cell; None where it is neither text nor a list of strings."""
    is_missing = cell is None or (isinstance(cell, float) and cell != cell)  # pandas writes NaN
    if is_missing:
        return []
    if isinstance(cell, str):
        if in_brackets and cell.strip():
            return _parse_printed_list(_PRINTED_ARRAY.sub(r"\1", cell.strip()))
        return _stripped([cell] if delimiter is None else cell.split(delimiter))
    if hasattr(cell, "tolist"):  # an array
        cell = cell.tolist()
    if isinstance(cell, (list, tuple)):
        labels = list(cell)
    elif isinstance(cell, (set, frozenset)):
        labels = sorted(cell, key=str)
    else:
        return None
    if not all(isinstance(label, str) for label in labels):
        return None
    return labels


def _stripped(pieces: Iterable[str]) -> list[str]:
    """Return the pieces of a text without white space around them; blank ones are dropped."""
    tags = [piece.strip() for piece in pieces]
    return [tag for tag in tags if tag]


def _parse_printed_list(text: str) -> list[str]:
    """Return a list as JSON, Python or numpy print it, or of bare words between commas."""
    with suppress(ValueError, RecursionError):
        parsed = json.loads(text)
        if isinstance(parsed, list) and all(isinstance(label, str) for label in parsed):
            return parsed
    inside = text[1:-1]
    quoted = _QUOTED.findall(inside)
    between = _QUOTED.sub("", inside)
    if "..." in between:
        raise ValueError("holds a list that was cut short ('...'); write it out in full")
    if not quoted:
        return _stripped(inside.split(","))
    all_closed = all(len(piece) > 1 and piece[0] == piece[-1] for piece in quoted)
    if between.strip(", \t\r\n") or not all_closed:
        raise ValueError(f"holds {reprlib.repr(text)}, which is no list of strings")
    return _stripped(map(_unquote, quoted))


def _unquote(piece: str) -> str:
    """Return a text without the quotes and escapes of Python."""
    if "\\" not in piece:
        return piece[1:-1]
    try:
        return str(ast.literal_eval(piece))
    except SyntaxError as error:
        raise ValueError(f"holds {reprlib.repr(piece)}, which is no string of Python") from error
