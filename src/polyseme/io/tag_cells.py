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

_DELIMITERS = (";", "|", ",")  # of those that equally many cells hold the first is taken
_CLOSING_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# As numpy and pandas print arrays: array([...], dtype=object).
_PRINTED_ARRAY = re.compile(r"^array\((.*?)(,\s*dtype=[\w<>'|]+)?\)$", re.DOTALL)
# No backtracking, and a quote that is never closed takes all that is left, so that no cell takes
# longer to read, or to refuse, than its length justifies.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|['"].*""", re.DOTALL)
# Limits, so that a crafted file cannot take all memory.
MAX_CELL = 2**20  # letters of a cell
MAX_LABELS = 10_000  # of a document
# When tags look misread: see `diagnose_tags`.
_FEWEST_DOCUMENTS = 10
_FEWEST_LABELS = 20
_MOST_SINGLE_USES = 0.9  # the share of labels that occur once


def parse_tag_cells(
    cells: Iterable[Any],
    delimiter: str | None = None,
    column: str = "tags",
    place_of: Callable[[int], str] = "Document {}".format,
) -> list[list[str]]:
    """Parse a column of tags, one cell per document.

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
    place_of : callable
        Returns what errors call a row: 2 gives "Line 3 of x.csv".

    Returns
    -------
    list of list of str
        The tags of each document as written, repeated ones included.
    """
    if delimiter == "":
        raise InputError("`delimiter` must not be empty; got ''.")
    cell_list = list(cells)
    for row, cell in enumerate(cell_list):
        if isinstance(cell, str) and len(cell) > MAX_CELL:
            raise InputError(
                f"{place_of(row)} has a cell of {len(cell):,} letters in '{column}'; "
                f"{MAX_CELL:,} are the most."
            )
    filled_texts = [cell for cell in cell_list if isinstance(cell, str) and cell.strip()]
    are_bracketed = False
    if delimiter is None:
        are_bracketed = bool(filled_texts) and all(map(_is_bracketed, filled_texts))
        if not are_bracketed:
            delimiter = _most_common_delimiter(filled_texts)
    first_cell = next((cell for cell in cell_list if cell is not None), None)
    as_text = isinstance(first_cell, str)  # which all other cells must be, too
    label_sets = []
    for row, cell in enumerate(cell_list):
        try:
            labels = _parse_cell(cell, delimiter, are_bracketed)
        except ValueError as error:
            raise InputError(f"{place_of(row)} {error} in '{column}'.") from error
        is_of_other_kind = isinstance(cell, str) != as_text
        if labels is None or (labels and is_of_other_kind):
            kind = "text" if as_text else "a list of strings"
            raise InputError(
                f"{place_of(row)} must have '{column}' as {kind}; got {reprlib.repr(cell)}."
            )
        if len(labels) > MAX_LABELS:
            raise InputError(
                f"{place_of(row)} has {len(labels):,} labels in '{column}'; {MAX_LABELS:,} are the "
                "most."
            )
        label_sets.append(labels)
    return label_sets


def diagnose_tags(label_sets: Sequence[Sequence[str]]) -> str | None:
    """Return why the tags of documents look misread, and a remedy; None if they look sound.

    The text completes "Tags of x may be misread: …".
    """
    filled_sets = [labels for labels in label_sets if len(labels)]
    n_documents = len(filled_sets)
    use_counts = Counter(itertools.chain.from_iterable(filled_sets))
    n_labels = len(use_counts)
    broken_labels = [label for label in use_counts if _is_broken(label)]
    if broken_labels:
        return (
            f"{len(broken_labels)} of {n_labels} labels hold brackets or quotes, such as "
            f"{reprlib.repr(broken_labels[0])}: were lists cut apart?"
        )
    if n_documents < _FEWEST_DOCUMENTS:
        return None
    if all(len(labels) == 1 for labels in filled_sets):
        n_with_blank = sum(" " in labels[0].strip() for labels in filled_sets)
        if 2 * n_with_blank > n_documents:
            first_label = filled_sets[0][0]
            example = reprlib.repr(first_label)
            return (
                f"every document has one label, most with blanks, such as {example}: if blanks "
                "separate tags, say so by the delimiter ' '"
            )
        return "every document has one label, and labels that never occur together teach little"
    n_single_uses = sum(count == 1 for count in use_counts.values())
    if n_labels >= _FEWEST_LABELS and n_single_uses > _MOST_SINGLE_USES * n_labels:
        return f"nearly all of the {n_labels} labels occur once, and teach nothing"
    return None


def _is_broken(label: str) -> bool:
    """Return whether a label looks like a piece of a printed list."""
    text = label.strip()
    if not text:
        return False
    first_letter = text[0]
    last_letter = text[-1]
    has_opening = "[" in text or "{" in text
    has_closing = "]" in text or "}" in text
    if first_letter in "[{" and not has_closing:
        return True
    if last_letter in "]}" and not has_opening:
        return True
    begins_enclosed = first_letter in "['\"{"
    ends_enclosed = last_letter in "]'\"}"
    return len(text) > 1 and begins_enclosed and ends_enclosed


def _is_bracketed(text: str) -> bool:
    """Return whether a text is in brackets from end to end, as printed lists and arrays are."""
    bare = _PRINTED_ARRAY.sub(r"\1", text.strip())
    if len(bare) < 2:
        return False
    closing_bracket = _CLOSING_BRACKETS.get(bare[0])
    return bare[-1] == closing_bracket


def _most_common_delimiter(texts: Sequence[str]) -> str | None:
    """Return the delimiter that most cells hold; None where no cell holds any."""
    most_common = None
    most_cells = 0
    for delimiter in _DELIMITERS:
        n_cells = sum(delimiter in text for text in texts)
        if n_cells > most_cells:  # of equals, the first one stays
            most_common = delimiter
            most_cells = n_cells
    return most_common


def _parse_cell(cell: Any, delimiter: str | None, is_bracketed: bool) -> list[str] | None:
    """Return the labels of one cell; None where it is neither text nor a list of strings.

    A text is a printed list with `is_bracketed`, or else cut at the delimiter; without a delimiter
    it is one label. ValueError says why a printed list cannot be read.
    """
    is_nan = isinstance(cell, float) and cell != cell  # which pandas writes for a missing text
    if cell is None or is_nan:
        return []
    if isinstance(cell, str):
        text = cell.strip()
        if is_bracketed and text:
            bare = _PRINTED_ARRAY.sub(r"\1", text)
            return _parse_printed_list(bare)
        pieces = [cell] if delimiter is None else cell.split(delimiter)
        return _strip(pieces)
    if hasattr(cell, "tolist"):  # an array
        cell = cell.tolist()
    if isinstance(cell, (list, tuple)):
        labels = list(cell)
    elif isinstance(cell, (set, frozenset)):
        labels = sorted(cell, key=str)  # sets have no order that lasts
    else:
        return None
    if not all(isinstance(label, str) for label in labels):
        return None
    return labels


def _strip(pieces: Iterable[str]) -> list[str]:
    """Return the pieces of a text without white space around them; blank ones are dropped."""
    stripped = [piece.strip() for piece in pieces]
    return [piece for piece in stripped if piece]


def _parse_printed_list(text: str) -> list[str]:
    """Return the labels of a list as JSON, Python or numpy print it, or of words between commas.

    ValueError says why it cannot be read, in words that follow the place of the cell.
    """
    with suppress(ValueError, RecursionError):
        parsed = json.loads(text)
        if isinstance(parsed, list) and all(isinstance(label, str) for label in parsed):
            return parsed
    inside = text[1:-1]
    quoted_pieces = _QUOTED.findall(inside)
    between = _QUOTED.sub("", inside)  # what stands between them
    if "..." in between:
        raise ValueError("holds a list that was cut short ('...'); write it out in full")
    if not quoted_pieces:
        words = inside.split(",")
        return _strip(words)
    all_closed = all(len(piece) > 1 and piece[0] == piece[-1] for piece in quoted_pieces)
    unquoted = between.strip(", \t\r\n")
    if unquoted or not all_closed:
        raise ValueError(f"holds {reprlib.repr(text)}, which is no list of strings")
    return _strip(map(_unquote, quoted_pieces))


def _unquote(piece: str) -> str:
    """Return what a text of Python's source stands for; ValueError says why it is none.

    Only escapes need Python's parser, which builds a text here and runs nothing.
    """
    if "\\" not in piece:
        return piece[1:-1]
    try:
        return str(ast.literal_eval(piece))
    except SyntaxError as error:
        raise ValueError(f"holds {reprlib.repr(piece)}, which is no string of Python") from error
