"""Read texts as people wrote them: plain text, Markdown, HTML and PDF.

In: a file, whatever its name is. Out: its prose, without markup, front matter and #tags, so that
features do not know the tags that they are to predict.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from functools import partial
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
    tags_of,
)
from polyseme.media.front_matter import SUFFIXES as MARKDOWN_SUFFIXES
from polyseme.media.keywords import Place
from polyseme.media.suggestions import Tags, distinct

HTML_SUFFIXES = (".html", ".htm", ".xhtml")
SUFFIXES = (".txt", ".text", ".pdf", *MARKDOWN_SUFFIXES, *HTML_SUFFIXES)
MOST_BYTES = 64 * 2**20
_PDF_START = b"%PDF-"
# Comments are matched once (*+): a file of many would take for ever otherwise.
_HTML_START = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*+<(!doctype html|html|head|body)\b",
    re.I | re.S,
)
_HIDDEN_ELEMENTS = ("script", "style", "template", "noscript")
_BLOCK_ELEMENTS = (
    *("title", "h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "br", "hr", "pre", "blockquote"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "tr", "td", "th", "caption", "figcaption"),
    *("header", "footer", "main", "article", "section", "nav", "aside", "address", "option"),
)
# No part of a pattern runs across its own beginning, so that each takes time in proportion to the
# text, also where a line is a megabyte long, such as that of an embedded picture.
_MARKDOWN_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^\[)\n]*\)")
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|\n]*\|)?([^\[\]\n]*)\]\]")
_MARKDOWN_SIGNS = re.compile(r"^\s{0,3}(#{1,6}\s+|>\s?|[-*+]\s+|(```|~~~).*$)|[*_`]{1,3}", re.M)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{0,20}://\S+", re.I)


def read_text(path: Path) -> str:
    """Return the prose of a file; raise a `MediaError` where it cannot be read."""
    content = _read(path)
    if content.startswith(_PDF_START):
        return _pdf_text(content)
    if _HTML_START.match(content[:4096]):
        return _html_text(content)
    return prose_of(_decoded(content))


def shown_text(path: Path, enough: int) -> str:
    """Return a file's text as people read it, without front matter, at least `enough` letters.

    Plain text and Markdown stay as they were written; a title in the front matter comes first.
    """
    content = _read(path)
    if content.startswith(_PDF_START):
        return _pdf_text(content, enough)
    if _HTML_START.match(content[:4096]):
        return _tidy(_html_text(content))
    note = split_note(_decoded(content))
    title = _title_of(note)
    body = note.body.strip()
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
    note = split_note(text)
    title = _title_of(note)
    prose = note.body
    for pattern, replacement in (
        (_MARKDOWN_LINK, r"\1"),
        (_WIKI_LINK, r"\1"),
        (_ADDRESS, " "),
        (INLINE_TAG, " "),
        (_MARKDOWN_SIGNS, " "),
    ):
        prose = pattern.sub(replacement, prose)
    return f"{title}\n{prose}".strip()


def _title_of(note: Note) -> str:
    """Return the title in the front matter of a note; empty where there is none."""
    if not note.block:
        return ""
    try:
        return str(parse_block(note.block).get("title", ""))
    except InputError:
        return ""


def _decoded(content: bytes) -> str:
    """Return the letters of a text: UTF-8, UTF-16 with its mark, else Windows' Western letters."""
    if b"\0" in content and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MediaError("is no text")
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        if encoding == "utf-16" and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
            continue
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise MediaError("is no text in UTF-8")


# ---------------------------------------------------------------------- HTML


def _html_root(content: bytes) -> Any:
    """Parse a page."""
    try:
        from lxml import etree
        from lxml import html as lxml_html
    except ImportError:
        raise needs("text", "Reading HTML") from None
    try:
        # Pages that do not say how their letters are written mostly are in UTF-8.
        encoding = "utf-8" if _is_utf8(content) else None
        parser = lxml_html.HTMLParser(encoding=encoding, no_network=True)
        root = lxml_html.document_fromstring(content, parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise MediaError(f"is no HTML that can be read ({error_text(error)})") from error
    return root


def _is_utf8(content: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _html_text(content: bytes) -> str:
    """Return the prose of a page: its title and what a reader sees."""
    root = _html_root(content)
    for element in list(root.iter(*_HIDDEN_ELEMENTS)):
        element.drop_tree()
    for element in root.iter(*_BLOCK_ELEMENTS):
        element.text = f"\n{element.text or ''}"
        element.tail = f"\n{element.tail or ''}"
    text = root.text_content()
    return html.unescape(str(text)).strip()


# ---------------------------------------------------------------------- PDF


def _pdf_text(content: bytes, enough: int | None = None) -> str:
    """Return the text of a PDF's pages, or of the first ones that have enough letters."""
    texts: list[str] = []
    n_letters = 0
    try:
        for page in _pdf_reader(content).pages:
            texts.append(page.extract_text())
            n_letters += len(texts[-1])
            if enough is not None and n_letters > enough:
                break
    except InputError:
        raise
    except Exception as error:  # the parser raises nearly everything on broken files
        raise MediaError(f"is no PDF that can be read ({error_text(error)})") from error
    return "\n".join(texts).strip()


def _pdf_reader(content: bytes) -> Any:
    """Open a PDF."""
    try:
        import pypdf
    except ImportError:
        raise needs("pdf", "Reading PDF") from None
    return pypdf.PdfReader(io.BytesIO(content))


# ---------------------------------------------------------------------- keywords


def places_in_text(file: BinaryIO) -> Iterator[Place]:
    """Yield the places inside an open text that may hold keywords."""
    content = file.read()
    if content.startswith(_PDF_START):
        yield Place("PDF", partial(_pdf_keywords, content))
    elif _HTML_START.match(content[:4096]):
        yield Place("HTML", partial(_html_keywords, content))
    else:
        try:
            note = split_note(_decoded(content))
        except MediaError:  # which the extraction reports itself
            return
        yield Place("front matter", partial(_front_keywords, note))
        yield Place("#tags", partial(_inline_keywords, note))


def _pdf_keywords(content: bytes) -> Tags:
    """Return the keywords in the information of a PDF."""
    information = _pdf_reader(content).metadata or {}
    return Tags(_split_keywords(str(information.get("/Keywords", ""))))


def _html_keywords(content: bytes) -> Tags:
    """Return the keywords in the head of a page."""
    contents = _html_root(content).xpath(
        "//meta[translate(@name,'KEYWORDS','keywords')='keywords']"
    )
    texts = [str(element.get("content", "")) for element in contents]
    return Tags(_split_keywords(",".join(texts)))


def _split_keywords(text: str) -> list[str]:
    """Return keywords that stand between commas or semicolons."""
    return distinct(re.split(r"[,;]", text))


def _front_keywords(note: Note) -> Tags:
    """Return the tags of the front matter of a note, and which of them are suggested."""
    return tags_of(note)


def _inline_keywords(note: Note) -> Tags:
    """Return the #words of a note."""
    return Tags(inline_tags(note.body))
