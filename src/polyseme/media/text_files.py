"""Read texts as people wrote them: plain text, Markdown, HTML and PDF.

In: a file, whatever its name is. Out: its prose, without markup, front matter and #tags, so that
features do not know the tags that they are to predict.

A file may be a stranger's. Every pattern here takes time in proportion to the text: what it repeats
cannot hold what it begins with. HTML is read without building a tree, and PDF by a process of its
own.
"""

from __future__ import annotations

import codecs
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from polyseme.base.text import error_text
from polyseme.base.validation import InputError
from polyseme.media.base import MediaError, check_file, needs
from polyseme.media.front_matter import (
    INLINE_TAG,
    Note,
    inline_tags,
    parse_block,
    split_note,
    tags_in_block,
)
from polyseme.media.front_matter import SUFFIXES as MARKDOWN_SUFFIXES
from polyseme.media.keywords import Place
from polyseme.media.suggestions import Tags, distinct
from polyseme.media.workers import run_worker

HTML_SUFFIXES = (".html", ".htm", ".xhtml")
SUFFIXES = (".txt", ".text", ".pdf", *MARKDOWN_SUFFIXES, *HTML_SUFFIXES)
MOST_BYTES = 64 * 2**20
MOST_LETTERS = 4 * 2**20  # of a text, from its beginning; those behind are not looked at
PDF_SECONDS = 30.0  # that reading one may take

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PDF_START = b"%PDF-"
_HTML_START = re.compile(
    rb"""(?:\xef\xbb\xbf)?\s*+
    (?:(?:<!--.*?-->|<\?xml.*?\?>)\s*+)*+
    <(?:!doctype\s+html|html|head|body|meta|title)\b""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_SNIFFED_BYTES = 4096  # in which a file shows what it is
_HTML_CHARSET = re.compile(rb"<meta[^<>]*charset", re.IGNORECASE)
_HIDDEN_ELEMENTS = frozenset(("script", "style", "template", "noscript"))
# All others begin a line.
_IN_LINES = """
a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q s samp small span
strike strong sub sup time tt u var wbr
"""
_ELEMENTS_IN_LINES = frozenset(_IN_LINES.split())

_ADDRESS = re.compile(r"(?<![a-zA-Z0-9+.-])[a-zA-Z][a-zA-Z0-9+.-]*+://\S+")
_MARKDOWN_LINK = re.compile(
    r"!?\[([^\[\]\n]*+)\]\([^()\[\]\n]*+(?:\([^()\[\]\n]*+\)[^()\[\]\n]*+)*+\)"
)
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|\n]*+\|)*+([^\[\]|\n]*+)\]\]")
_HTML_TAG = re.compile(
    r"</?(?:a|b|br|center|code|del|details|div|em|figure|font|h[1-6]|hr|i|iframe|img|ins|kbd|li|"
    r"mark|ol|p|picture|pre|s|small|source|span|strong|sub|summary|sup|table|tbody|td|th|thead|"
    r"tr|u|ul|video)\b[^<>]*+>",
    re.IGNORECASE,
)
_MARKDOWN_SIGNS = re.compile(r"^\s{0,3}(#{1,6}\s+|>\s?|[-*+]\s+|(```|~~~).*$)|[*_`]{1,3}", re.M)


def read_text(path: Path, most_letters: int = MOST_LETTERS) -> str:
    """Return the prose of a file, up to so many letters; raise a `MediaError` for no text."""
    content = _read(path)
    kind = _kind_of(content)
    if kind == "PDF":
        text = _run_pdf_worker(content, "text", most_letters).strip()
    elif kind == "HTML":
        text = _read_html(content).text
    else:
        text = prose_of(_decoded(content))
    return text[:most_letters]


def shown_text(path: Path, enough: int) -> str:
    """Return a file's text as people read it, without front matter, at least `enough` letters.

    Plain text and Markdown stay as they were written; a title in the front matter comes first.
    """
    content = _read(path)
    kind = _kind_of(content)
    if kind == "PDF":
        return _run_pdf_worker(content, "text", 2 * enough).strip()
    if kind == "HTML":
        return _tidy(_read_html(content).text)
    title, body = _title_and_body(_decoded(content))
    body = body.strip()
    first_line, _, _ = body.partition("\n")
    if title and first_line.strip("# \r") != title:
        return f"{title}\n\n{body}".strip()
    return body


def _tidy(text: str) -> str:
    """Return a text with single spaces, and with one empty line where there are more."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    neighbours = zip(lines, ["", *lines], strict=False)
    return "\n".join(line for line, line_before in neighbours if line or line_before)


def _read(path: Path) -> bytes:
    """Return the content of a file."""
    n_bytes = check_file(path)
    if n_bytes > MOST_BYTES:
        raise MediaError(f"has more than {MOST_BYTES >> 20} MiB")
    try:
        return path.read_bytes()
    except OSError as error:
        raise MediaError(f"cannot be opened ({error.strerror})") from error


def prose_of(text: str) -> str:
    """Return a plain or Markdown text without front matter, #tags, addresses and markup.

    A title in the front matter is kept.
    """
    title, body = _title_and_body(text)
    prose = body[:MOST_LETTERS]
    for pattern, replacement in (
        (_MARKDOWN_LINK, r"\1"),
        (_WIKI_LINK, r"\1"),
        (_ADDRESS, " "),
        (INLINE_TAG, " "),
        (_HTML_TAG, " "),
        (_MARKDOWN_SIGNS, " "),
    ):
        prose = pattern.sub(replacement, prose)
    return f"{title}\n{prose}".strip()


def _title_and_body(text: str) -> tuple[str, str]:
    """Return the title in the front matter of a text, if there is one, and all below.

    What stands between two rules at the beginning, and is no front matter, is part of the text.
    """
    note = split_note(text)
    if not note.block:
        return "", note.body
    try:
        values = parse_block(note.block)
    except InputError:  # no YAML, which may hold tags
        return "", note.body
    if not values:
        return "", note.block + note.body
    title = values.get("title")
    return title if isinstance(title, str) else "", note.body


def _kind_of(content: bytes) -> str:
    """Return what a file is, by how it begins: PDF, HTML or text."""
    start = content[:_SNIFFED_BYTES]
    if start.startswith(_UTF16_MARKS):
        start = start.decode("utf-16", "replace").encode("utf-8", "replace")
    if start.lstrip(b" \t\r\n").startswith(_PDF_START):
        return "PDF"
    return "HTML" if _HTML_START.match(start) else "text"


def _decoded(content: bytes) -> str:
    """Return the letters of a text: UTF-8, UTF-16 with its mark, else Windows' Western letters."""
    encodings = ["utf-8-sig", "cp1252"]
    if content.startswith(_UTF16_MARKS):
        encodings = ["utf-16"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise MediaError("is no text")


# ---------------------------------------------------------------------- HTML


class _EnoughError(Exception):
    """So much of a page was read that the rest is not looked at."""


class _Page:
    """What is collected while a page is parsed: what a reader sees, and its keywords."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.n_letters = 0
        self.keywords: list[str] = []
        self.hidden_depth = 0  # of elements that are open and that no reader sees

    @property
    def text(self) -> str:
        """Title and prose."""
        return "".join(self.pieces).strip()

    def start(self, tag: str, attributes: Any) -> None:
        """Begin an element."""
        if tag in _HIDDEN_ELEMENTS:
            self.hidden_depth += 1
        if tag not in _ELEMENTS_IN_LINES:
            self.data("\n")
        if tag == "meta" and str(attributes.get("name", "")).lower() == "keywords":
            keywords = str(attributes.get("content", ""))[:MOST_LETTERS]
            self.keywords += _split_keywords(keywords)

    def end(self, tag: str) -> None:
        """End an element."""
        if tag in _HIDDEN_ELEMENTS:
            self.hidden_depth -= 1
        if tag not in _ELEMENTS_IN_LINES:
            self.data("\n")

    def data(self, text: str) -> None:
        """Take what stands between tags."""
        if self.hidden_depth > 0:
            return
        if self.n_letters > MOST_LETTERS:
            raise _EnoughError
        self.pieces.append(text)
        self.n_letters += len(text)

    def close(self) -> _Page:
        """End the page."""
        return self


def _read_html(content: bytes) -> _Page:
    """Read a page; nothing that it refers to is fetched."""
    try:
        from lxml import etree
    except ImportError:
        raise needs("text", "Reading HTML") from None
    # Pages that do not say how their letters are written mostly are in UTF-8.
    encoding = None
    if content.startswith(_UTF16_MARKS):
        content = content.decode("utf-16", "replace").encode()
    if _is_utf8(content):
        encoding = "utf-8"
    elif _HTML_CHARSET.search(content[:_SNIFFED_BYTES]) is None:
        encoding = "windows-1252"
    page = _Page()
    try:
        # Without limits of its own: a picture inside a page may be one attribute of many megabytes.
        parser = etree.HTMLParser(target=page, encoding=encoding, no_network=True, huge_tree=True)
        etree.fromstring(content, parser=parser)
    except _EnoughError:
        return page
    except (etree.LxmlError, ValueError) as error:
        raise MediaError(f"is no HTML that can be read ({error_text(error)})") from error
    return page


def _is_utf8(content: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# ---------------------------------------------------------------------- PDF


def _run_pdf_worker(content: bytes, *arguments: object) -> str:
    """Return what `_pdf_worker.py` reads of a PDF; a hostile one takes no more than a process."""
    if find_spec("pypdf") is None:
        raise needs("pdf", "Reading PDF")
    try:
        process = run_worker("_pdf_worker.py", content, *arguments, seconds=PDF_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise MediaError(f"is a PDF that takes more than {PDF_SECONDS:g} seconds") from error
    if process.returncode == 1:
        reason = process.stderr.decode("utf-8", "replace")
        raise MediaError(f"is no PDF that can be read ({error_text(ValueError(reason))})")
    if process.returncode:
        raise MediaError("is a PDF that takes more than the reader can")
    return process.stdout.decode("utf-8", "replace")


# ---------------------------------------------------------------------- keywords


def places_in_text(file: BinaryIO) -> Iterator[Place]:
    """Yield the places inside an open text that may hold keywords."""
    content = file.read()
    kind = _kind_of(content)
    if kind == "PDF":
        yield Place("PDF", partial(_pdf_keywords, content))
    elif kind == "HTML":
        yield Place("HTML", partial(_html_keywords, content))
    else:
        try:
            note = split_note(_decoded(content))
        except MediaError:  # which the extraction reports itself
            return
        yield Place("front matter", partial(tags_in_block, note))
        yield Place("#tags", partial(_inline_keywords, note))


def _pdf_keywords(content: bytes) -> Tags:
    """Return the keywords in the information of a PDF."""
    return Tags(_split_keywords(_run_pdf_worker(content, "keywords")))


def _html_keywords(content: bytes) -> Tags:
    """Return the keywords in the head of a page."""
    return Tags(distinct(_read_html(content).keywords))


def _split_keywords(text: str) -> list[str]:
    """Return keywords that stand between commas or semicolons, with single spaces."""
    keywords = re.split(r"[,;]", text)
    return distinct(" ".join(keyword.split()) for keyword in keywords)


def _inline_keywords(note: Note) -> Tags:
    """Return the #words of a note."""
    return Tags(inline_tags(note.body))
