"""Texts of files: prose without markup and tags, keywords in them, and files of strangers."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("yaml", reason="needs the extra `text`")
pytest.importorskip("lxml", reason="needs the extra `text`")

from pdf_files import make_pdf, pdf_of_contents
from polyseme.base.validation import InputError
from polyseme.media import text_files
from polyseme.media.base import MediaError
from polyseme.media.keywords import Keywords, keywords_of
from polyseme.media.text_files import prose_of, read_text

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


@pytest.fixture
def read(tmp_path: Path):
    """Read the words of a file with some content, whatever its name is."""

    def read_content(content: bytes, name: str = "file.txt") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return " ".join(read_text(path).split())

    return read_content


@pytest.fixture
def keywords(tmp_path: Path):
    """Read the keywords of a file with some content."""

    def read_keywords(content: bytes, name: str = "file.txt") -> Keywords:
        path = tmp_path / name
        path.write_bytes(content)
        return keywords_of(path, "text")

    return read_keywords


# ---------------------------------------------------------------------- plain text and Markdown

TEXT = "Über “Bücher”, naïve café"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_letters_are_read_as_they_were_written(read, encoding):
    assert read(TEXT.encode(encoding)) == TEXT


def test_utf_16_of_either_order_is_read(read):
    assert read(b"\xfe\xff" + TEXT.encode("utf-16-be")) == TEXT
    assert read(b"\xff\xfe" + TEXT.encode("utf-16-le")) == TEXT


MARKDOWN = {
    "headings": ("# One\n\n## Two ##\nthree", "One Two ## three"),
    "emphasis": ("*a* **b** __c__ ~~d~~ `e` snake_case", "a b c ~~d~~ e snake case"),
    "lists": ("- a\n* b\n+ c\n1. d\n   - e", "a b c 1. d e"),
    "quotes": ("> a\n>b", "a b"),
    "links": ("see [the page](http://x/y 'z') and ![a cat](cat.png)", "see the page and a cat"),
    "links with brackets": ("[a](http://x/y_(z)) b [not a link] c(d)", "a b [not a link] c(d)"),
    "links of wikis": ("[[Note]] [[Note|shown]] ![[cat.png]]", "Note shown cat.png"),
    "addresses": ("at https://a.b/c?d=e#f or <http://g> end", "at or < end"),
    "fences": ("```python\nx = 1\n```\n~~~\ny\n~~~", "x = 1 y"),
    "elements": ("a<br>b <img src='#x'> <b>c</b> 1 < 2 > 0 <ab> </p>", "a b c 1 < 2 > 0 <ab>"),
    "tags": ("a #cat, (#dog) C# #1984 b#c", "a , ( ) C# #1984 b#c"),
    "front matter": ("---\ntitle: A title\ntags: [cat]\nx: no\n---\nprose", "A title prose"),
    "no title": ("---\ntitle: [cat]\n---\nprose", "prose"),
    "broken front matter": ("---\ntitle: a: b\n---\nprose", "prose"),
    "prose between rules": ("---\nsome prose\n---\nmore", "some prose more"),
    "nothing between rules": ("---\n---\nmore", "more"),
    "unclosed front matter": ("---\ntags: prose", "--- tags: prose"),
}


@pytest.mark.parametrize(("text", "expected"), MARKDOWN.values(), ids=MARKDOWN)
def test_prose_is_free_of_markup_and_tags(text, expected):
    assert " ".join(prose_of(text).split()) == expected


def test_without_the_parser_of_yaml_prose_is_read_all_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert prose_of("---\ntags: [cat]\n---\nprose") == "prose"


def test_what_the_tags_are_is_no_part_of_the_prose(keywords, read):
    content = b"---\ntags: [cat]\nkeywords: dog, bird\n---\nA text about #fish, and C#."
    assert keywords(content).tags == ["cat", "dog", "bird", "fish"]
    assert keywords(content).places == ["front matter", "#tags"]
    assert read(content) == "A text about , and C#."


def test_front_matter_without_tags_is_no_place_of_some(keywords):
    assert keywords(b"---\nx: 1\n---\n#cat").places == ["#tags"]


def test_suggestions_are_no_keywords_and_words_of_a_person_are(keywords):
    content = b"---\ntags: [cat, dog]\npolyseme-suggested: [cat, dog, gone]\n---\na #Dog"
    assert keywords(content).tags == ["dog"]


def test_broken_front_matter_costs_its_own_tags_alone(keywords):
    keywords_of_note = keywords(b"---\ntitle: a: b\n---\n#cat")
    assert keywords_of_note.tags == ["cat"]
    (reason,) = keywords_of_note.unread
    assert reason.startswith("its front matter is no YAML (")


# ---------------------------------------------------------------------- HTML

PAGE = """<!DOCTYPE html>
<html><head><title>A title</title><meta name="KeyWords" content="cat; dog,
  wide   bird ,cat">
<style>p { color: red }</style><script>var no = "<p>no</p>";</script></head>
<body><p>First<p>second, <b>b</b>old &amp; &eacute;&#x1F600; a&nbsp;b<br>line<div>block</div>
<table><tr><td>1</td><td>2</td></tr></table><noscript>no</noscript>
<template><p>no</p></template><!-- no --><a href="#no" title="no">link</a></body></html>"""
PAGE_TEXT = "A title First second, bold & é😀 a b line block 1 2 link"

PAGE_STARTS = {
    "": "",
    "comment": "<!-- saved --> <!-- twice -->\n",
    "white space": " \n\t",
    "declaration": '<?xml version="1.0" encoding="UTF-8"?>\n',
}


@pytest.mark.parametrize("start", PAGE_STARTS.values(), ids=PAGE_STARTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_pages_are_read_as_people_see_them(read, keywords, start, encoding):
    content = (start + PAGE).encode(encoding)
    assert read(content, "page.txt") == PAGE_TEXT
    assert keywords(content).tags == ["cat", "dog", "wide bird"]
    assert keywords(content).places == ["HTML"]


@pytest.mark.parametrize(
    "start", ["<HTML>", "<head>", "<body class='x'>", "<title></title>", "<meta x>"]
)
def test_pages_may_begin_in_the_middle(read, start):
    assert read(f"{start}x<script>no</script>".encode(), "page.html") == "x"


CHARSETS = {
    "declared": ('<html><meta charset="koi8-r">', "koi8-r", "Привет"),
    "declared by http-equiv": (
        "<html><meta http-equiv=Content-Type content='text/html; charset=iso-8859-2'>",
        "iso-8859-2",
        "Žluťoučký",
    ),
    "wrongly declared": ('<html><meta charset="iso-8859-1">', "utf-8", "naïve Привет"),
    "Western": ("<html>", "cp1252", "“naïve” €"),
}


@pytest.mark.parametrize(("start", "encoding", "text"), CHARSETS.values(), ids=CHARSETS)
def test_pages_declare_how_their_letters_are_written(read, start, encoding, text):
    assert read(f"{start}<p>{text}".encode(encoding), "page.html") == text


def test_a_page_that_declares_nonsense_is_read(read):
    assert "caf" in read(b"<html><meta charset=punycode><p>caf\xe9", "page.html")


@pytest.mark.parametrize("content", ["<html>", "<html><!-- x -->", "<html><script>a</script>"])
def test_a_page_without_words_is_empty(read, content):
    assert read(content.encode(), "page.html") == ""


def test_entities_and_documents_from_elsewhere_are_not_read(read, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    requested_paths: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested_paths.append(self.path)

    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        page = f"""<!DOCTYPE html SYSTEM "{address}/dtd" [
            <!ENTITY e SYSTEM "file://{secret}"> <!ENTITY a "aaaaaaaa">
            <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
            <html><head><link rel=stylesheet href="{address}/css"></head>
            <body>text &e; &b; <img src="{address}/img"><iframe src="{address}/frame"></iframe>"""
        text = read(page.encode(), "page.html")
        server.shutdown()
        thread.join()
    assert requested_paths == []
    assert "text" in text
    assert "secret" not in text
    assert "aaaa" not in text


def test_without_the_parser_of_html_a_sentence_names_the_extra(read, keywords, monkeypatch):
    monkeypatch.setitem(sys.modules, "lxml", None)
    with pytest.raises(InputError, match="Reading HTML needs the extra `text`"):
        read(PAGE.encode())
    (reason,) = keywords(PAGE.encode()).unread
    assert "needs the extra `text`" in reason
    assert read(b"plain") == "plain"


# ---------------------------------------------------------------------- PDF

pdf = pytest.mark.skipif(find_spec("pypdf") is None, reason="needs the extra `pdf`")


@pdf
def test_a_pdf_is_read_page_by_page(read, keywords):
    content = make_pdf("Harbour at dawn", "café, second page", keywords="sea; boats, sea")
    assert read(content, "file.txt") == "Harbour at dawn café, second page"
    assert keywords(content).tags == ["sea", "boats"]
    assert keywords(content).places == ["PDF"]


@pdf
def test_only_as_many_pages_of_a_pdf_are_read_as_are_wanted(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(make_pdf("a" * 50, "b" * 50, "c" * 50))
    assert read_text(path, 60) == f"{'a' * 50}\n{'b' * 9}"


@pdf
def test_a_pdf_without_text_or_keywords_has_none(read, keywords):
    content = pdf_of_contents(b"0 0 10 10 re f")
    assert read(content) == ""
    assert keywords(content) == ([], [], [], [])


@pdf
@pytest.mark.parametrize("cut", [5, 60, 400])
def test_a_damaged_pdf_is_refused_or_read(read, keywords, cut, capfd):
    content = make_pdf("Harbour at dawn")[:-cut]
    try:
        assert read(content) in ("", "Harbour at dawn")
    except MediaError as error:
        assert str(error).startswith("is no PDF that can be read (")
    assert keywords(content).tags == []
    assert capfd.readouterr() == ("", ""), "remarks on strangers' files"


@pdf
@pytest.mark.parametrize(
    "content",
    [b"%PDF-", b"%PDF-1.7\n" + bytes(range(256)) * 40, b"%PDF-1.4 trailer << /Root 1 0 R >>"],
)
def test_what_only_begins_as_a_pdf_is_refused(read, content):
    with pytest.raises(MediaError, match=r"^is no PDF that can be read \("):
        read(content)


@pdf
def test_a_pdf_that_unpacks_to_too_much_is_refused(read):
    with pytest.raises(MediaError, match=r"^is (no PDF that can be read|a PDF that takes more)"):
        read(pdf_of_contents(b" " * 400_000_000))


@pdf
@posix
def test_a_pdf_that_takes_too_long_is_refused(read, monkeypatch):
    monkeypatch.setattr(text_files, "PDF_SECONDS", 1.0)
    content = pdf_of_contents(b"q Q " * 100_000, repeats=10_000)
    with pytest.raises(MediaError, match="is a PDF that takes more than 1 seconds"):
        read(content)


@pdf
def test_without_the_parser_of_pdf_a_sentence_names_the_extra(read, keywords, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(InputError, match="Reading PDF needs the extra `pdf`"):
        read(make_pdf("x"))
    (reason,) = keywords(make_pdf("x", keywords="a")).unread
    assert "needs the extra `pdf`" in reason


# ---------------------------------------------------------------------- what is no text


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"text\0text",
        "text".encode("utf-32"),
        b"\xff\xfea\0b",
        b"\x81\x8d\x8f",
    ],
    ids=["picture", "nul", "utf-32", "half of utf-16", "no letters"],
)
def test_what_is_no_text_is_refused(read, keywords, content):
    with pytest.raises(MediaError, match="is no text"):
        read(content)
    assert keywords(content) == ([], [], [], [])


@posix
def test_what_cannot_be_read_is_named(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    large = tmp_path / "large.txt"
    with large.open("wb") as stream:
        stream.truncate(text_files.MOST_BYTES + 1)
    for path, reason in (
        (empty, "is empty"),
        (pipe, "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (tmp_path / "none.txt", r"cannot be opened \(no such file or directory\)"),
        (large, "has more than 64 MiB"),
    ):
        with pytest.raises(MediaError, match=f"^{reason}$"):
            read_text(path)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_file_is_a_text_or_refused(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.md"
        path.write_bytes(content)
        try:
            assert isinstance(read_text(path), str)
        except MediaError as error:
            assert "\n" not in str(error)
        keywords_of(path, "text")


# ---------------------------------------------------------------------- texts of strangers

# What is repeated here made patterns look at the rest of the text from every place of it, which
# would take hours.
REPEATED = [
    "a", "[", "![", "[a](", "[[a", "[[a|", "](", "`", "``a`", "```", "#", "#1", "(#", "://", "a://",
    "<!--", "<", "<b ", "&", "*", "_a", "- ", "> ", "\n", "\n ", " ", "\t#", "---\n", "~~~\n```\n",
    "1. ```\n", "<html", "<p>", "<script>", "</p>", "<meta name=keywords content=", "a,", "\u3042",
]  # fmt: skip
READ_ALL = """
import json, sys
from pathlib import Path
from polyseme.media.front_matter import inline_tags
from polyseme.media.keywords import keywords_of
from polyseme.media.text_files import prose_of, read_text

path = Path(sys.argv[1])
for start in ("", "<html>"):
    for piece in json.loads(sys.argv[2]):
        print(repr(start), repr(piece), flush=True)
        text = start + piece * (2**18 // len(piece))
        path.write_text(text, "utf-8")
        read_text(path)
        prose_of(text)
        inline_tags(text)
        keywords_of(path, "text")
"""


def test_texts_take_time_in_proportion_to_their_length(tmp_path):
    command = [sys.executable, "-c", READ_ALL, str(tmp_path / "a.txt"), json.dumps(REPEATED)]
    try:
        # A tenth of this, and hours where a single one of them takes time by its square.
        subprocess.run(command, check=True, timeout=100, capture_output=True)
    except subprocess.TimeoutExpired as error:
        *_, last = (error.stdout or b"").decode().splitlines()
        pytest.fail(f"too slow: {last}")


def test_a_page_of_comments_is_no_riddle(read):
    assert read(b"<!---->" * 585 + b"x").endswith("x")


def test_of_a_long_text_the_beginning_is_looked_at(monkeypatch, tmp_path):
    monkeypatch.setattr(text_files, "MOST_LETTERS", 20)
    assert prose_of("word " * 100) == "word word word word"
    page = tmp_path / "a.html"
    page.write_text("<html>" + "<p>word" * 100)
    words = read_text(page).split()
    assert 2 <= len(words) <= 5


def test_a_title_by_aliases_is_not_written_out():
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    block = "\n".join(lines)
    assert prose_of(f"---\n{block}\ntitle: *a59\n---\nprose") == "prose"
