"""Tags in Markdown: every spelling of front matter is read and extended, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("yaml", reason="needs the extra `text`")

import yaml

from polyseme.base.validation import InputError
from polyseme.media import suggestions
from polyseme.media.front_matter import (
    answer_suggestions,
    inline_tags,
    merge_tags,
    read_tags,
    undo_suggestions,
)

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note.md"


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode())


def text_of(path: Path) -> str:
    return path.read_bytes().decode()


# ---------------------------------------------------------------------- spellings

BODY = "\nProse with a rule:\n\n---\n\nmore: prose\n"

# Front matter as people and programs write it, the tags that it has, and what it is once "new" was
# suggested, up to the key `polyseme-suggested`.
SPELLINGS = {
    "brackets": ("tags: [a, 'b c']", ["a", "b c"], "tags: [a, 'b c', new]"),
    "brackets with a comma at the end": ("tags: [a,]", ["a"], "tags: [a, new,]"),
    "several lines in brackets": (
        "tags: [\n  a, # first\n  b\n]",
        ["a", "b"],
        "tags: [\n  a, # first\n  b, new\n]",
    ),
    "empty brackets": ("tags: [ ]\nx: 1", [], "tags: [new ]\nx: 1"),
    "no value": ("tags:\nx: 1", [], "tags: [new]\nx: 1"),
    "no value, but a comment": ("tags: # none\nx: 1", [], "tags: [new] # none\nx: 1"),
    "null": ("tags: null\nx: 1", [], "tags: [new]\nx: 1"),
    "lines": ("tags:\n- a\n- b", ["a", "b"], "tags:\n- a\n- b\n- new"),
    "lines further in": (
        "tags:\n    -   a\nx: 1",
        ["a"],
        "tags:\n    -   a\n    -   new\nx: 1",
    ),
    "lines and comments": (
        "tags: # mine\n  # above\n  - a # behind\n  # between\n  - 'b'\n# below\nx: 1",
        ["a", "b"],
        "tags: # mine\n  # above\n  - a # behind\n  # between\n  - 'b'\n  - new\n# below\nx: 1",
    ),
    "lines with an empty one": ("tags:\n  -\n  - b", ["b"], "tags:\n  -\n  - b\n  - new"),
    "commas": ("tags: a b, c", ["a b", "c"], "tags: [a b, c, new]"),
    "spaces": ("tags: a #b", ["a"], "tags: [a, new] #b"),
    "quoted text": ('"tags": "a, b"', ["a", "b"], '"tags": [a, b, new]'),
    "signs": ("tags: ['#a', '##b']", ["a", "b"], "tags: ['#a', '##b', new]"),
    "numbers and truths": (
        "tags: [2024, 1.50, yes, 2024-01-01]",
        ["2024", "1.50", "yes", "2024-01-01"],
        "tags: [2024, 1.50, yes, 2024-01-01, new]",
    ),
    "items that are no texts": (
        "tags:\n- a\n- b: c\n- [d]\n-\n  e: f\nx: 1",
        ["a"],
        "tags:\n- a\n- b: c\n- [d]\n-\n  e: f\n- new\nx: 1",
    ),
    "items that are no texts, in brackets": (
        "tags: [{b: c}, [d], a]",
        ["a"],
        "tags: [{b: c}, [d], a, new]",
    ),
    "capitals": ("Tags: [a]", ["a"], "Tags: [a, new]"),
    "tag": ("tag: a\nkeywords: b, c", ["a", "b", "c"], "tag: a\nkeywords: b, c\ntags: [new]"),
    "nested": (
        "meta:\n  tags: [no]\ntags: [a]\nlong: |\n  # text\n  tags: [no]",
        ["a"],
        "meta:\n  tags: [no]\ntags: [a, new]\nlong: |\n  # text\n  tags: [no]",
    ),
    "folded text at the end": (
        "tags: [a]\nlong: >+\n  text\n\n",
        ["a"],
        "tags: [a, new]\nlong: >+\n  text\n\n",
    ),
    "all further in": ("  x: 1\n  tags: [a]", ["a"], "  x: 1\n  tags: [a, new]"),
    "anchors elsewhere": (
        "x: &x [1, 2]\ny: *x\ntags: [a]",
        ["a"],
        "x: &x [1, 2]\ny: *x\ntags: [a, new]",
    ),
    "comments alone": ("# nothing", [], "# nothing\ntags: [new]"),
    "unicode": (
        "tags: [été, 猫, كتاب, 👩‍🚀]",
        ["été", "猫", "كتاب", "👩‍🚀"],
        "tags: [été, 猫, كتاب, 👩‍🚀, new]",
    ),
}
# Where undo does not bring back the bytes, but the tags.
REWRITTEN = {
    "commas",
    "spaces",
    "quoted text",
    "no value",
    "no value, but a comment",
    "null",
    "empty brackets",
}


def fenced(block: str, body: str = BODY) -> str:
    """A note with front matter."""
    end = "\n" if block and not block.endswith("\n") else ""
    return f"---\n{block}{end}---\n{body}"


@pytest.mark.parametrize("case", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_is_read(note, case):
    block, tags, _ = case
    write(note, fenced(block))
    assert read_tags(note).tags == tags


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte order mark"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_extended_and_all_else_kept(note, name, line_end, mark):
    block, tags, extended = SPELLINGS[name]
    start = mark + fenced(block).replace("\n", line_end)
    write(note, start)
    assert merge_tags(note, ["new", *tags]) == ["new"]
    end = "" if extended.endswith("\n") else "\n"
    indent = "  " if extended.startswith("  ") else ""
    noted = fenced(f"{extended}{end}{indent}polyseme-suggested: [new]")
    assert text_of(note) == mark + noted.replace("\n", line_end)
    assert read_tags(note).tags == [*tags, "new"]
    assert read_tags(note).pending == ["new"]
    assert merge_tags(note, ["NEW", "more"]) == ["more"]
    assert read_tags(note).pending == ["new", "more"]

    assert undo_suggestions(note) == ["new", "more"]
    assert read_tags(note).tags == tags
    if name not in REWRITTEN:
        assert text_of(note) == start


ODD_NOTES = {
    "none": "just prose\n",
    "empty": "",
    "no line end": "just prose",
    "a blank line first": "\n---\nx: 1\n---\nprose",
    "unclosed dashes": "---\nthe beginning of a text\n",
    "four dashes": "----\nx: 1\n----\n",
    "a rule in the text": "prose\n---\ntags: [no]\n---\n",
    "begins with a blank line": "\n\nprose",
    "dashes and more": "--- yes\nx: 1\n---\n",
}


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte order mark"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("text", ODD_NOTES.values(), ids=ODD_NOTES)
def test_a_note_without_front_matter_gets_some_and_loses_it_by_undo(note, text, line_end, mark):
    start = mark + text.replace("\n", line_end)
    write(note, start)
    assert read_tags(note).tags == []
    assert merge_tags(note, ["dog", "a: b"]) == ["dog", "a: b"]
    # The line end of a note of one line is anybody's guess.
    added_text = "---\ntags: [dog, 'a: b']\npolyseme-suggested: [dog, 'a: b']\n---\n\n"
    if "\r" in start:
        added_text = added_text.replace("\n", "\r\n")
    assert text_of(note) == mark + added_text + start.removeprefix(mark)
    assert undo_suggestions(note, dry_run=True) == ["dog", "a: b"]
    assert undo_suggestions(note) == ["dog", "a: b"]
    assert text_of(note) == start


def test_front_matter_of_a_person_stays_when_it_is_empty_again(note):
    start = "---\n---\nprose"
    write(note, start)
    merge_tags(note, ["dog"])
    undo_suggestions(note)
    assert text_of(note) == start


@pytest.mark.parametrize("end", ["---", "...", "---  ", "---\r"])
def test_front_matter_ends_as_yaml_does(note, end):
    write(note, f"---\ntags: [a]\n{end}\nprose")
    merge_tags(note, ["b"])
    assert text_of(note) == f"---\ntags: [a, b]\npolyseme-suggested: [b]\n{end}\nprose"


# ---------------------------------------------------------------------- any note

LETTERS = st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from(
    " \t\nß&<ſİ,:'\"[]"
)
WORDS = st.sampled_from(
    ["yes", "no", "null", "~", "1.0", "0x1F", "2024-01-01", "a: b", "#x", "- a"]
)
WORDS |= st.sampled_from(["a, b", "[x]", "{x}", "&a", "*a", "!x", "%x", "@x", "`x`", "a #b", "a:"])
TAGS = st.lists(st.text(LETTERS, max_size=6) | WORDS, max_size=5)
OWN_TAGS = st.lists(st.sampled_from(["red", "Blue", "b c", "é", "7"]), unique=True, max_size=4)
OTHER_ENTRIES = [
    "title: 'A: b'",
    "date: 2024-01-01 # when",
    "nested:\n  tags: [no]\n  list:\n    - 1\n    - b: 2",
    "folded: >-\n  text # no comment\n  more",
    "literal: |+\n  text\n\n",
    "# a comment",
    "",
    'aliases: [x, "y"]',
    "one: &one [1, 2]\ntwo: *one",
    '"a key": &v value',
    "empty:",
    "? complex\n: value",
]
PIECES = st.lists(st.sampled_from(OTHER_ENTRIES), unique=True, max_size=4)


def quoted(tag: str) -> str:
    return yaml.safe_dump([tag], default_flow_style=True, allow_unicode=True).strip()[1:-1]


def spelled(tags: list[str], spelling: str) -> str:
    """Tags as an entry of front matter; empty for none."""
    if spelling == "none":
        return ""
    if spelling == "brackets":
        return f"tags: [{' ,  '.join(map(quoted, tags))}]\n"
    if not tags:
        return "tags:\n"
    indent = "  " if "further in" in spelling else ""
    lines = [f"{indent}- {quoted(tag)}" for tag in tags]
    separator = f"\n{indent}# between\n" if "comments" in spelling else "\n"
    return f"tags:\n{separator.join(lines)}\n"


@settings(max_examples=150, deadline=None)
@given(
    own_tags=OWN_TAGS,
    spelling=st.sampled_from(["none", "brackets", "lines", "lines further in", "comments"]),
    first=TAGS,
    second=TAGS,
    before=PIECES,
    after=PIECES,
    line_end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
    body=st.sampled_from(["", "prose\n---\nx", "\n\nprose", "`#code` and https://a/#b"]),
)
def test_merging_gives_the_union_and_undo_what_was_there(
    own_tags, spelling, first, second, before, after, line_end, mark, body
):
    pieces_before = "".join(f"{piece}\n" for piece in before)
    pieces_after = "".join(f"{piece}\n" for piece in after if piece not in before)
    entry = spelled(own_tags, spelling)
    if not (pieces_before + entry + pieces_after).strip():
        body = body.strip()  # empty front matter and a line below it look like ours
    opening = f"{mark}---\n{pieces_before}".replace("\n", line_end)
    closing = f"---\n{body}".replace("\n", line_end)
    middle = pieces_after.replace("\n", line_end)
    start = opening + entry.replace("\n", line_end) + middle + closing
    start_tags = own_tags if entry else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.md"
        write(path, start)
        assert read_tags(path).tags == start_tags
        expected = list(start_tags)
        added_by_all: list[str] = []
        for tags in (first, second, first):
            added = merge_tags(path, tags)
            expected += added
            added_by_all += added
            state = read_tags(path)
            assert state.tags == expected
            assert list(state.pending) == added_by_all
            text = text_of(path)
            assert text.startswith(opening)
            assert text.endswith(closing)
            assert middle in text
            # Another reader of YAML sees the same, and as texts.
            block = text.removeprefix(f"{mark}---").split(f"\n---{line_end}", 1)[0]
            assert yaml.safe_load(block).get("tags", []) == expected if expected else True
        wanted = {canon(tag.strip().lstrip("#")) for tag in [*start_tags, *first, *second]}
        assert {canon(tag) for tag in expected} == wanted - {""}
        assert undo_suggestions(path) == added_by_all
        was_empty = bool(entry) and not own_tags
        if was_empty and added_by_all:
            assert read_tags(path).tags == []
            assert middle in text_of(path)
        else:
            assert text_of(path) == start


def canon(tag: str) -> str:
    """What tags are told apart by."""
    return suggestions.tag_key(tag)


@settings(max_examples=100, deadline=None)
@given(block=st.text(st.sampled_from("ab:-[]{}#&*!|>'\"\n ,?~"), max_size=40))
def test_any_front_matter_is_changed_rightly_or_refused_and_left_alone(block):
    start = f"---\n{block}\n---\nprose"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.md"
        write(path, start)
        try:
            before = read_tags(path)
            added = merge_tags(path, ["new"])
        except InputError as error:
            assert "\n" not in str(error)
            assert text_of(path) == start
            return
        assert added == ["new"]
        after = read_tags(path)
        assert after.tags == [*before.tags, "new"]
        assert text_of(path).endswith("---\nprose")
        assert undo_suggestions(path) == ["new"]
        assert read_tags(path).tags == before.tags


# ---------------------------------------------------------------------- suggestions and answers


def test_a_tag_taken_out_by_a_person_is_not_suggested_again(note):
    write(note, "prose")
    merge_tags(note, ["dog", "cat"])
    text = text_of(note).replace("tags: [dog, cat]", "tags: [cat]", 1)
    write(note, text)
    assert read_tags(note).refused == ["dog"]
    assert merge_tags(note, ["Dog", "bird"]) == ["bird"]
    assert read_tags(note).tags == ["cat", "bird"]


def test_answers_outlive_undo(note):
    write(note, "prose")
    merge_tags(note, ["dog", "cat", "bird"])
    answered = answer_suggestions(note, accept=["DOG", "fish"], refuse=["cat"])
    assert answered == (["dog"], ["cat"])
    tags = read_tags(note)
    assert tags.tags == ["dog", "bird"]
    assert tags.pending == ["bird"]
    assert tags.refused == ["cat"]
    assert undo_suggestions(note) == ["bird"]
    assert read_tags(note) == (["dog"], [], ["cat"], ())
    assert merge_tags(note, ["cat", "dog"]) == []
    assert text_of(note) == "---\ntags: [dog]\npolyseme-suggested: [cat]\n---\n\nprose"


def test_all_refused_and_suggested_anew(note):
    write(note, "prose")
    merge_tags(note, ["dog"])
    answer_suggestions(note, refuse=["dog"])
    assert text_of(note) == "---\npolyseme-suggested: [dog]\n---\n\nprose"
    assert merge_tags(note, ["dog", "cat"]) == ["cat"]
    assert undo_suggestions(note) == ["cat"]
    assert text_of(note) == "---\npolyseme-suggested: [dog]\n---\n\nprose"


def test_an_accepted_tag_leaves_no_trace_of_us(note):
    write(note, fenced("tags:\n  - mine\nx: 1"))
    merge_tags(note, ["dog"])
    answer_suggestions(note, accept=["dog"])
    assert text_of(note) == fenced("tags:\n  - mine\n  - dog\nx: 1")


def test_lists_as_obsidian_writes_them_anew_are_read_and_changed(note):
    block = "tags:\n  - dog\n  - cat\npolyseme-suggested:\n  - dog\n  - cat\nx: 1"
    write(note, fenced(block))
    assert read_tags(note).pending == ["dog", "cat"]
    assert answer_suggestions(note, accept=["cat"], refuse=["dog"]) == (["cat"], ["dog"])
    assert text_of(note) == fenced("tags:\n  - cat\npolyseme-suggested:\n  - dog\nx: 1")
    write(note, fenced(block))
    undo_suggestions(note)
    assert text_of(note) == fenced("x: 1")


def test_an_emptied_list_of_a_person_stays(note):
    write(note, fenced("tags: # of this note\n  - dog\nx: 1\npolyseme-suggested: [dog]"))
    undo_suggestions(note)
    assert text_of(note) == fenced("tags: [] # of this note\nx: 1")


def test_a_word_that_a_person_wrote_is_no_suggestion(note):
    write(note, "prose")
    merge_tags(note, ["dog", "cat", "bird"])
    write(note, text_of(note).replace("polyseme-s", "keywords: cat\npolyseme-s") + " about a #Dog")
    assert read_tags(note).pending == ["bird"]
    assert read_tags(note).refused == []
    assert answer_suggestions(note, refuse=["dog", "cat"]) == ([], [])
    assert undo_suggestions(note) == ["bird"]
    assert read_tags(note).tags == ["dog", "cat"]


def test_a_persons_own_tag_is_not_answered(note):
    write(note, fenced("tags: [mine]"))
    assert answer_suggestions(note, refuse=["mine"]) == ([], [])
    assert text_of(note) == fenced("tags: [mine]")


def test_a_tag_cannot_be_both_accepted_and_refused(note):
    write(note, "prose")
    with pytest.raises(InputError, match="both accepted and refused"):
        answer_suggestions(note, accept=["a"], refuse=["A"])


def test_tags_that_stand_elsewhere_are_not_added(note):
    write(note, fenced("keyword: x", "a #sea"))
    assert merge_tags(note, ["sea", "sky", "sun"], present=["Sky"]) == ["sun"]


def test_a_dry_run_changes_nothing_and_refuses_what_a_run_would(note):
    write(note, fenced("tags: [a]"))
    inode = note.stat().st_ino
    assert merge_tags(note, ["b"], dry_run=True) == ["b"]
    assert merge_tags(note, ["A", " "]) == []
    assert text_of(note) == fenced("tags: [a]")
    assert note.stat().st_ino == inode, "the file was touched"
    write(note, fenced("x: &x [a]\ntags: *x"))
    with pytest.raises(InputError, match="cannot be changed without harm"):
        merge_tags(note, ["b"], dry_run=True)


def test_a_missing_note_has_no_tags(note):
    assert read_tags(note).tags == []
    with pytest.raises(InputError, match="is no regular file"):
        merge_tags(note, ["a"])


# ---------------------------------------------------------------------- what is refused

BOMB = "a0: &a0 [lol, lol]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)
)

REFUSED = {
    "no YAML": (fenced("title: A: b\n\ttags: [x"), "its front matter is no YAML"),
    "two documents": (fenced("x: 1\n--- y\nz: 2"), "is no YAML|without harm"),
    "a loop": (fenced("tags: &t [*t]"), "its front matter is no YAML"),
    "deep": (fenced("x: " + "[" * 5000), "its front matter is no YAML"),
    "large": (fenced("x: " + "y" * 2**17), "its front matter has more than 128 KiB"),
    "too many tags": (fenced(f"tags: {list(range(1001))}"), "more than 1,000 tags"),
    "too many words": (fenced("", " ".join(f"#t{n}" for n in range(1001))), "more than 1,000 tags"),
    "prose between dashes": (fenced("only words"), "without harm; add these tags by hand: new"),
    "a list": (fenced("- a\n- b"), "without harm"),
    "one mapping in brackets": (fenced("{tags: [a]}"), "without harm"),
    "tags by an alias": (fenced("x: &x [a]\ntags: *x"), "without harm"),
    "tags that an alias means": (fenced("tags: &t [a]\nx: *t"), "without harm"),
    "tags as prose": (fenced("tags: |\n  a\n  b"), "without harm"),
    "tags as a mapping": (fenced("tags:\n  a: b"), "without harm"),
    "tags twice": (fenced("tags: [a]\ntags: [b]"), "without harm"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_a_note_that_cannot_be_changed_safely_is_refused_and_left_alone(note, text, message):
    write(note, text)
    with pytest.raises(InputError, match=rf"note\.md .*({message})"):
        merge_tags(note, ["new"])
    assert text_of(note) == text
    assert [path.name for path in note.parent.iterdir()] == ["note.md"]


def test_a_suggestion_that_an_alias_means_stays(note):
    text = fenced("tags: [&d dog, cat]\nx: *d\npolyseme-suggested: [dog]")
    write(note, text)
    with pytest.raises(InputError, match="without harm; change it by hand"):
        undo_suggestions(note)
    with pytest.raises(InputError, match="without harm"):
        answer_suggestions(note, refuse=["dog"])
    assert text_of(note) == text


def test_a_comment_in_brackets_does_not_go_with_a_suggestion(note):
    text = fenced("tags: [cat, # mine\n  dog]\npolyseme-suggested: [dog]")
    write(note, text)
    with pytest.raises(InputError, match="without harm"):
        undo_suggestions(note)
    assert text_of(note) == text


@pytest.mark.parametrize("tags", ["tags: [a]\n", "", "title: *a59\n", "tags: *a59\n"])
def test_lines_that_stand_for_more_than_any_memory_are_not_written_out(note, tags):
    write(note, fenced(BOMB + tags))
    assert set(read_tags(note).tags) <= {"a"}
    if "*" not in tags:
        assert merge_tags(note, ["b"]) == ["b"]
        assert undo_suggestions(note) == ["b"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("é".encode("latin-1"), "is no text in UTF-8; save it as UTF-8"),
        ("prose".encode("utf-16"), "is no text in UTF-8; save it as UTF-8"),
        (b" " * (2**24 + 1), "is larger than 16 MiB, so it is no note"),
        (b" " * (2**24 - 10), "would grow beyond 16 MiB; add fewer tags"),
    ],
    ids=["western", "utf-16", "large", "growing"],
)
def test_what_is_no_note_is_refused_and_left_alone(note, raw, message):
    note.write_bytes(raw)
    with pytest.raises(InputError, match=rf"note\.md {message}"):
        merge_tags(note, ["a"])
    assert note.read_bytes() == raw


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["fine", "a\0b"], "holds half a character or none"),
        (["\ud800"], "holds half a character or none"),
        ("text", "must be a sequence of strings; got"),
        ([f"t{n}" for n in range(1001)], "more than 1,000 tags"),
        (["x" * 2**17], "more than 128 KiB"),
    ],
    ids=["nul", "surrogate", "no sequence", "many", "long"],
)
def test_tags_that_cannot_be_written_leave_the_note_alone(note, tags, message):
    write(note, fenced("x: 1"))
    with pytest.raises(InputError, match=message):
        merge_tags(note, tags)
    assert text_of(note) == fenced("x: 1")


@pytest.mark.parametrize("escape", [r"\0", r"\ud800"], ids=["nul", "surrogate"])
def test_texts_that_nobody_can_write_are_no_tags(note, escape):
    write(note, fenced(f'tags: ["{escape}", a]'))
    assert read_tags(note).tags == ["a"]


def test_without_the_parser_of_yaml_a_sentence_names_the_extra(note, monkeypatch):
    write(note, fenced("tags: [a]"))
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InputError, match="needs the extra `text`"):
        read_tags(note)


# ---------------------------------------------------------------------- files


@posix
def test_what_is_no_file_of_its_own_is_refused(tmp_path, note, monkeypatch):
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        with pytest.raises(InputError, match="is no regular file"):
            merge_tags(path, ["a"])
    target = tmp_path / "target.md"
    write(target, fenced("tags: [a]"))
    note.symlink_to(target)
    assert read_tags(note).tags == ["a"]
    with pytest.raises(InputError, match="is a symbolic link; name the file it points to"):
        merge_tags(note, ["b"])
    # Without anything to take back, a link is no reason to complain.
    assert undo_suggestions(note) == []
    # The owner of everything may write everything, so permissions alone would not show it.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(InputError, match="is write-protected; make it writable first"):
        merge_tags(target, ["b"])
    assert text_of(target) == fenced("tags: [a]")


@posix
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_note_and_no_other_file(note, monkeypatch, step):
    write(note, fenced("tags: [a]"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        merge_tags(note, ["new"])
    assert text_of(note) == fenced("tags: [a]")
    assert [path.name for path in note.parent.iterdir()] == [note.name]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_permissions_of_a_note_are_kept(note, mode):
    write(note, "prose")
    note.chmod(mode)
    merge_tags(note, ["new"])
    assert note.stat().st_mode & 0o777 == mode


def test_a_lock_that_is_never_freed_is_reported(note, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="this system has no file locks")
    write(note, "prose")
    monkeypatch.setattr(suggestions, "_LOCK_SECONDS", 0.02)
    holder = os.open(note.parent, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(InputError, match=r"locked by another writer for 0\.02 s"):
        merge_tags(note, ["a"])
    os.close(holder)
    assert merge_tags(note, ["a"]) == ["a"]


def test_processes_that_merge_into_one_note_lose_no_tags(note):
    pytest.importorskip("fcntl", reason="this system has no file locks")
    write(note, "prose")
    code = (
        "import sys; from pathlib import Path; from polyseme.media.front_matter import merge_tags\n"
        "for i in range(25): merge_tags(Path(sys.argv[1]), [f'{sys.argv[2]}{i}'])"
    )
    processes = []
    for name in ("a", "b"):
        processes.append(subprocess.Popen([sys.executable, "-c", code, str(note), name]))
    for process in processes:
        assert process.wait(timeout=120) == 0
    tags = read_tags(note).tags
    assert len(tags) == 50
    assert set(tags) == {f"{name}{number}" for name in "ab" for number in range(25)}


# ---------------------------------------------------------------------- words with a sign

INLINE = {
    "begins": ("#a", ["a"]),
    "in a sentence": ("see #a, and #b.", ["a", "b"]),
    "brackets": ("(#a) [#b]", ["a", "b"]),
    "case": ("#A #a", ["A"]),
    "signs": ("#to-do #to_do #a/b/c #a/", ["to-do", "to_do", "a/b/c", "a"]),
    "digits": ("#1984 #y1984 #2024-01", ["y1984"]),
    "languages": (
        "#été #猫。 #हिन्दी #می‌خواهم #straße",
        ["été", "猫", "हिन्दी", "می‌خواهم", "straße"],
    ),
    "emoji": ("#❤️ #a👍", ["❤️", "a👍"]),
    "no tags": ("C# a#b ## # #", []),
    "headings": ("# Heading\n## Two\n#real", ["real"]),
    "escaped": (r"\#a", []),
    "code": ("`#a` ``b ` #c`` ``#d`` ```#e``` #real", ["real"]),
    "code between lines": ("```sh\n#a\n```\n~~~\n#b\n```\n#c\n~~~\n#real", ["real"]),
    "longer fences": ("````\n```\n#a\n```\n````\n#real", ["real"]),
    "fences further in": ("- x\n\n  ```\n  #a\n  ```\n> ```\n> #b\n> ```\n- ```\n  #c\n  ```", []),
    "code without an end": ("```\n#a\n", []),
    "addresses": ("https://a.b/c#d http://x/ #real <a href='#e'>", ["real"]),
    "links": ("[x](#a) [y](b.md#c) [z](<#d> 'e (f)') [[#g]] [[h#i|j]] #real", ["real"]),
    "a bracket alone": ("](a #real", ["real"]),
    "colours": ("#fff", ["fff"]),
}


@pytest.mark.parametrize(("text", "tags"), INLINE.values(), ids=INLINE)
def test_words_with_a_sign_are_tags_where_obsidian_sees_some(text, tags):
    assert inline_tags(text) == tags


def test_words_are_tags_beside_those_of_the_front_matter(note):
    write(note, fenced("tags: [a]", "#b and #A"))
    assert read_tags(note).tags == ["a", "b"]
