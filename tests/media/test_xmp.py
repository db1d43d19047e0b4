"""XMP sidecars: every legal spelling is read and extended, and nothing else in the file is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme.base.validation import InputError
from polyseme.media import suggestions
from polyseme.media.xmp import (
    answer_suggestions,
    merge_tags,
    read_sidecar,
    sidecar_of,
    undo_suggestions,
)

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DC = "http://purl.org/dc/elements/1.1/"
OURS = "urn:polyseme:xmp:1.0/"

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")

# Written as photo programs do: comments, padding, other namespaces, hierarchies, structures.
RICH = """<?xpacket begin='\ufeff' id='W5M0MpCehiHzreSzNTczkc9d'?>
<!-- a comment before -->
<x:xmpmeta xmlns:x='adobe:ns:meta/' x:xmptk='Some Program 1.0'>
<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>

 <rdf:Description rdf:about='' xmlns:dc='http://purl.org/dc/elements/1.1/'>
  <dc:subject><!-- mine -->
   <rdf:Bag>
    <rdf:li>Beach</rdf:li>
    <rdf:li xml:lang='pt'>São   Paulo</rdf:li>
   </rdf:Bag>
  </dc:subject>
  <dc:title>
   <rdf:Alt>
    <rdf:li xml:lang='x-default'>A &amp; B &#x263A; &#13; <![CDATA[<raw>]]></rdf:li>
   </rdf:Alt>
  </dc:title>
 </rdf:Description>

 <rdf:Description rdf:about='' xmp:Rating='4' xmp:Label='two&#10;lines'
  xmlns:lr='http://ns.adobe.com/lightroom/1.0/'
  xmlns:stMfs='urn:manifest' xmlns:dc='http://purl.org/dc/elements/1.1/'
  xmlns:xmp='http://ns.adobe.com/xap/1.0/'>
  <lr:hierarchicalSubject>
   <rdf:Bag><rdf:li>Places|Brazil</rdf:li></rdf:Bag>
  </lr:hierarchicalSubject>
  <stMfs:ingredient rdf:parseType='Resource'>
   <dc:subject><rdf:Bag><rdf:li>of another picture</rdf:li></rdf:Bag></dc:subject>
   <stMfs:deep><rdf:Description dc:subject='of another, too'/></stMfs:deep>
  </stMfs:ingredient>
 </rdf:Description>
</rdf:RDF>
</x:xmpmeta>
        \t
<?xpacket end='w'?>"""


def bare(body: str) -> str:
    """A packet without the outer wrapper."""
    return f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:dc="{DC}">{body}</rdf:RDF>'


def described(body: str) -> str:
    return bare(f"<rdf:Description>{body}</rdf:Description>")


def array(name: str, items: str) -> str:
    return described(f"<dc:subject><rdf:{name}>{items}</rdf:{name}></dc:subject>")


SPELLINGS = {
    "bag": (array("Bag", "<rdf:li>a</rdf:li>"), ["a"]),
    "alt": (array("Alt", "<rdf:li>a</rdf:li>"), ["a"]),
    "plain": (described('<dc:subject xml:lang="en">a<!-- - -->b</dc:subject>'), ["ab"]),
    "attribute": (bare("""<rdf:Description dc:subject='a&gt;"&amp;' dc:format="x"/>"""), ['a>"&']),
    "resource": (described('<dc:subject rdf:resource="http://a/b"/>'), ["http://a/b"]),
    "qualified": (
        described(
            '<dc:subject rdf:parseType="Resource"><rdf:value>a</rdf:value>'
            "<dc:type>t</dc:type></dc:subject>"
        ),
        ["a"],
    ),
    "qualified items": (
        array(
            "Bag",
            '<rdf:li rdf:parseType="Resource"><rdf:value>a</rdf:value><dc:type>t</dc:type></rdf:li>'
            "<rdf:li><rdf:Description><rdf:value>b</rdf:value></rdf:Description></rdf:li>"
            '<rdf:li dc:type="t" rdf:value="c"/>',
        ),
        ["a", "b", "c"],
    ),
    "empty property": (described("<dc:subject />"), []),
    "empty bag": (described("<dc:subject><rdf:Bag/></dc:subject>"), []),
    "empty item": (array("Bag", "<rdf:li/><rdf:li>a</rdf:li>"), ["a"]),
    "no tags": (bare('<rdf:Description rdf:about="uuid:1&quot;" dc:format="x"/>'), []),
    "two places": (
        bare(
            '<rdf:Description dc:subject="a"/><rdf:Description><dc:subject>b</dc:subject>'
            "</rdf:Description>"
        ),
        ["a", "b"],
    ),
    "other prefixes": (
        f'<r:RDF xmlns:r="{RDF}" xmlns:q="{DC}" xmlns:dc="urn:x" xmlns:polyseme="urn:y">'
        "<r:Description><q:subject><r:Bag><r:li>a</r:li></r:Bag></q:subject><dc:subject>no"
        "</dc:subject></r:Description></r:RDF>",
        ["a"],
    ),
    "default namespace": (
        f'<r:RDF xmlns:r="{RDF}" xmlns:rdf="urn:x"><r:Description>'
        f'<subject xmlns="{DC}">a</subject></r:Description></r:RDF>',
        ["a"],
    ),
    "foreign text": (described("<dc:subjects>no</dc:subjects>tail"), []),
}


@pytest.fixture
def sidecar(tmp_path: Path) -> Path:
    return tmp_path / "photo.jpg.xmp"


def items(path: Path, name: str) -> list[str | None]:
    """The items of a property, by another reader than ours."""
    tree = ElementTree.fromstring(path.read_bytes())
    return [item.text for item in tree.findall(f".//{name}/{{{RDF}}}Bag/{{{RDF}}}li")]


def suggested(path: Path) -> list[str | None]:
    return items(path, f"{{{OURS}}}suggested")


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ([], "photo.jpg.xmp"),
        (["photo.jpg.xmp", "photo.xmp"], "photo.jpg.xmp"),
        (["photo.xmp", "photo.cr2", "photo.cr2.xmp"], "photo.xmp"),
        (["photo.jpg.XMP", "photo.xmp"], "photo.jpg.XMP"),
        (["photo.xmp", "photo"], "photo.jpg.xmp"),
        (["photo.png.xmp", "photos.xmp"], "photo.jpg.xmp"),
        (["photo.xmp/"], "photo.jpg.xmp"),
    ],
)
def test_the_sidecar_is_found_by_each_convention(tmp_path, present, expected):
    for name in present:
        path = tmp_path / name
        if name.endswith("/"):
            path.mkdir()
        else:
            path.touch()
    sidecar = sidecar_of(tmp_path / "photo.jpg")
    assert sidecar.name.lower() == expected.lower()


def test_a_sidecar_has_no_sidecar(tmp_path):
    with pytest.raises(InputError, match="is a sidecar itself"):
        sidecar_of(tmp_path / "photo.XMP")


@pytest.mark.parametrize(("text", "tags"), SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_is_read_and_extended(sidecar, text, tags):
    sidecar.write_text(text, "utf-8")
    assert read_sidecar(sidecar).tags == tags
    assert merge_tags(sidecar, ["new", *tags, "x<y"]) == ["new", "x<y"]
    assert read_sidecar(sidecar).tags == [*tags, "new", "x<y"]
    assert read_sidecar(sidecar).pending == ["new", "x<y"]
    assert merge_tags(sidecar, ["more"]) == ["more"]
    assert read_sidecar(sidecar).tags == [*tags, "new", "x<y", "more"]
    assert suggested(sidecar) == ["new", "x<y", "more"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_all_else_in_the_file_is_kept(sidecar, encoding):
    sidecar.write_bytes(RICH.encode(encoding))
    assert read_sidecar(sidecar).tags == ["Places|Brazil", "Beach", "São   Paulo"]
    assert merge_tags(sidecar, ["beach", "dog 🐕"]) == ["dog 🐕"]
    text = sidecar.read_text("utf-8")
    assert "Paulo</rdf:li>\n    <rdf:li>dog 🐕</rdf:li>\n   </rdf:Bag>" in text
    assert text.startswith("<?xpacket begin='\ufeff' id='W5M0MpCehiHzreSzNTczkc9d'?>\n<!-- a comm")
    assert text.endswith("</x:xmpmeta>\n<?xpacket end='w'?>\n")
    # Without what was added, the two are the same XML, comments and layout included.
    added = (
        f'<polyseme:suggested xmlns:polyseme="{OURS}"><rdf:Bag><rdf:li>dog 🐕</rdf:li></rdf:Bag>'
    )
    # A program that reads hierarchies reads nothing else, so it stands among these as well.
    assert "<rdf:li>Places|Brazil</rdf:li><rdf:li>dog 🐕</rdf:li></rdf:Bag>" in text
    removed = text.replace("\n    <rdf:li>dog 🐕</rdf:li>", "", 1)
    removed = removed.replace("<rdf:li>dog 🐕</rdf:li></rdf:Bag>\n  </lr", "</rdf:Bag>\n  </lr", 1)
    removed = removed.replace(f"{added}</polyseme:suggested>", "")
    plain, before = (
        ElementTree.canonicalize(each[each.index("<x:") :], with_comments=True)
        for each in (removed, RICH)
    )
    assert plain == before


def test_tags_are_compared_without_case_space_or_composition(sidecar):
    merge_tags(sidecar, ["Straße", "São Paulo", "Σίσυφος"])
    content = sidecar.read_bytes()
    inode = sidecar.stat().st_ino
    decomposed = unicodedata.normalize("NFD", " são \t paulo\n")
    assert merge_tags(sidecar, ["STRASSE", decomposed, "ΣΊΣΥΦΟΣ", " ", ""]) == []
    assert sidecar.read_bytes() == content
    assert sidecar.stat().st_ino == inode, "the file was touched"
    assert merge_tags(sidecar, ["sao paulo"]) == ["sao paulo"]


def test_a_tag_taken_out_by_a_person_is_not_suggested_again(sidecar):
    merge_tags(sidecar, ["dog", "cat"])
    text = sidecar.read_text("utf-8")
    own_note = text.index("polyseme:suggested")
    everywhere = text[:own_note].replace("<rdf:li>dog</rdf:li>", "")
    sidecar.write_text(everywhere + text[own_note:], "utf-8")
    assert merge_tags(sidecar, ["Dog", "bird"]) == ["bird"]
    assert read_sidecar(sidecar).tags == ["cat", "bird"]
    assert suggested(sidecar) == ["dog", "cat", "bird"]


HIERARCHIES = {
    "lightroom": (
        "lr",
        "http://ns.adobe.com/lightroom/1.0/",
        "hierarchicalSubject",
        "a|b|c",
        "a|b|c",
    ),
    "digikam": ("d", "http://www.digikam.org/ns/1.0/", "TagsList", "a/b", "a|b"),
    "microsoft": ("m", "http://ns.microsoft.com/photo/1.0/", "LastKeywordXMP", "a", "a"),
    "empty leaf": ("d", "http://www.digikam.org/ns/1.0/", "TagsList", "a/b/", "a|b"),
}


def hierarchy(prefix: str, space: str, name: str, path: str, subjects: str = "") -> str:
    return described(
        f'<{prefix}:{name} xmlns:{prefix}="{space}"><rdf:Seq><rdf:li>{path}</rdf:li></rdf:Seq>'
        f"</{prefix}:{name}><dc:subject><rdf:Bag>{subjects}</rdf:Bag></dc:subject>"
    )


@pytest.mark.parametrize("case", HIERARCHIES.values(), ids=HIERARCHIES)
def test_a_hierarchy_is_a_tag_as_a_whole(sidecar, case):
    *parameters, path = case
    # Programs list the words of a path as subjects, too.
    words = "".join(f"<rdf:li>{word}</rdf:li>" for word in (*path.split("|"), "x"))
    sidecar.write_text(hierarchy(*parameters, words), "utf-8")
    assert read_sidecar(sidecar).tags == [path, "x"]
    assert merge_tags(sidecar, [path, *path.split("|"), "new"]) == ["new"]


def test_a_tag_with_a_slash_is_no_hierarchy_where_it_is_a_subject(sidecar):
    prefix, space, name, *_ = HIERARCHIES["digikam"]
    text = hierarchy(prefix, space, name, "AC/DC", "<rdf:li>AC/DC</rdf:li>")
    sidecar.write_text(text, "utf-8")
    assert read_sidecar(sidecar).tags == ["AC/DC"]


def test_what_darktable_notes_for_itself_is_no_tag(sidecar):
    prefix, space, name, *_ = HIERARCHIES["lightroom"]
    items = [f"<rdf:li>{tag}</rdf:li>" for tag in ("darktable", "exported", "sea")]
    text = hierarchy(prefix, space, name, "darktable|exported", "".join(items))
    sidecar.write_text(text, "utf-8")
    assert read_sidecar(sidecar).tags == ["sea"]


def test_too_many_tags_are_refused(sidecar):
    sidecar.write_text(array("Bag", "<rdf:li>a</rdf:li>" * 1001), "utf-8")
    with pytest.raises(InputError, match="more than 1,000 tags"):
        read_sidecar(sidecar)


@pytest.mark.parametrize(("text", "tags"), SPELLINGS.values(), ids=SPELLINGS)
def test_undo_restores_the_tags_of_every_spelling(sidecar, text, tags):
    sidecar.write_text(text, "utf-8")
    merge_tags(sidecar, ["new", "x<y"])
    assert undo_suggestions(sidecar, dry_run=True) == ["new", "x<y"]
    assert undo_suggestions(sidecar) == ["new", "x<y"]
    keywords = read_sidecar(sidecar)
    assert keywords.tags == tags
    assert not keywords.pending
    assert merge_tags(sidecar, ["new"]) == ["new"], "what is undone may be suggested again"


def test_undo_leaves_all_else_as_it_was(sidecar):
    sidecar.write_text(RICH, "utf-8")
    merge_tags(sidecar, ["dog", "cat"])
    undo_suggestions(sidecar)
    after = sidecar.read_text("utf-8")
    plain, before = (
        ElementTree.canonicalize(each[each.index("<x:") :], with_comments=True)
        for each in (after, RICH)
    )
    assert plain == before


def test_undo_removes_a_sidecar_that_holds_nothing_else(sidecar):
    merge_tags(sidecar, ["dog"])
    undo_suggestions(sidecar)
    assert not sidecar.exists()
    assert undo_suggestions(sidecar) == []


def test_answers_outlive_undo(sidecar):
    merge_tags(sidecar, ["dog", "cat", "bird"])
    accepted, refused = answer_suggestions(sidecar, accept=["DOG", "fish"], refuse=["cat"])
    assert accepted == ["dog"]
    assert refused == ["cat"]
    keywords = read_sidecar(sidecar)
    assert keywords.pending == ["bird"]
    assert keywords.refused == ["cat"]

    assert undo_suggestions(sidecar) == ["bird"]
    keywords = read_sidecar(sidecar)
    assert keywords.tags == ["dog"]
    assert keywords.pending == []
    assert keywords.refused == ["cat"]
    assert merge_tags(sidecar, ["cat", "dog"]) == []


def test_a_persons_own_tag_is_not_answered(sidecar):
    sidecar.write_text(array("Bag", "<rdf:li>mine</rdf:li>"), "utf-8")
    content = sidecar.read_bytes()
    assert answer_suggestions(sidecar, refuse=["mine"]) == ([], [])
    assert sidecar.read_bytes() == content


def test_a_missing_sidecar_has_no_suggestion_to_answer(sidecar):
    missing = sidecar.with_name("no.xmp")
    assert answer_suggestions(missing, accept=["mine"]) == ([], [])


def test_a_tag_cannot_be_both_accepted_and_refused(sidecar):
    with pytest.raises(InputError, match="both accepted and refused"):
        answer_suggestions(sidecar, accept=["a"], refuse=["A"])


def test_tags_that_stand_elsewhere_are_not_added(sidecar):
    assert merge_tags(sidecar, ["sea", "sky"], present=["Sea"]) == ["sky"]


def test_a_new_sidecar_is_a_whole_packet(sidecar):
    assert merge_tags(sidecar, [" "]) == []
    assert not sidecar.exists()
    assert read_sidecar(sidecar).tags == []
    tags = ["a & b <c> ]]> \"'", "café", "👩‍🚀", "שלום", "  wide  space\n", "x" * 100_000]
    cleaned = [" ".join(tag.split()) for tag in tags]
    assert merge_tags(sidecar, tags) == cleaned
    raw = sidecar.read_bytes()
    assert raw.startswith('<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'.encode())
    assert raw.endswith(b'\n<?xpacket end="w"?>\n')
    assert items(sidecar, f"{{{DC}}}subject") == suggested(sidecar) == cleaned
    assert read_sidecar(sidecar).tags == cleaned


LR = "http://ns.adobe.com/lightroom/1.0/"
DIGIKAM = "http://www.digikam.org/ns/1.0/"


def subjects(path: Path) -> list[str | None]:
    return items(path, f"{{{DC}}}subject")


def hierarchies(path: Path) -> list[str | None]:
    return items(path, f"{{{LR}}}hierarchicalSubject")


def test_a_new_sidecar_has_the_keywords_of_the_picture_that_it_hides(sidecar):
    added = merge_tags(sidecar, ["dog", "Zoë"], present=["iptc", "zoë"])
    assert added == ["dog"]
    assert subjects(sidecar) == ["iptc", "zoë", "dog"]
    assert hierarchies(sidecar) == ["iptc", "zoë", "dog"]
    assert suggested(sidecar) == ["dog"]
    assert read_sidecar(sidecar).pending == ["dog"]
    added = merge_tags(sidecar, ["cat"], present=["iptc", "later"])
    assert added == ["cat"]
    assert subjects(sidecar) == ["iptc", "zoë", "dog", "cat"], "only a new one gets them"


def test_a_new_sidecar_has_hierarchies_whole_and_other_tags_beside_them(sidecar):
    present = ["z", "y", "iptc"]
    paths = ["x|y|z"]
    assert merge_tags(sidecar, ["dog", "a|b"], present=present, hierarchies=paths)
    assert subjects(sidecar) == ["z", "y", "iptc", "dog", "b"]
    assert hierarchies(sidecar) == ["x|y|z", "iptc", "dog", "a|b"], "parts are no tags of their own"
    assert read_sidecar(sidecar).hierarchies == ["x|y|z", "iptc"]
    assert read_sidecar(sidecar)[:2] == (["x|y|z", "iptc", "a|b", "dog"], ["a|b", "dog"])


@pytest.mark.parametrize("space", [LR, DIGIKAM], ids=["lightroom", "digikam"])
def test_tags_stand_in_the_list_that_a_program_reads_alone(sidecar, space):
    prefix, name, mark = (
        ("lr", "hierarchicalSubject", "|") if space == LR else ("d", "TagsList", "/")
    )
    sidecar.write_text(hierarchy(prefix, space, name, f"animal{mark}bird"), "utf-8")
    added = merge_tags(sidecar, ["bird", "dog", "cat", "AC/DC", "animal|fish"])
    assert added == ["dog", "cat", "AC/DC", "animal|fish"]
    path = f".//{{{space}}}{name}/{{{RDF}}}Seq/{{{RDF}}}li"
    tree = ElementTree.fromstring(sidecar.read_bytes())
    listed = [item.text for item in tree.findall(path)]
    first_values = [f"animal{mark}bird", "dog", "cat"]
    flat = ["AC/DC"] if space == LR else []  # with the mark it would be a path
    assert listed == [*first_values, *flat, f"animal{mark}fish"]
    assert answer_suggestions(sidecar, accept=["dog"], refuse=["cat"]) == (["dog"], ["cat"])
    tags = read_sidecar(sidecar)
    assert set(tags.tags) == {"animal|bird", "dog", "AC/DC", "animal|fish"}
    assert set(tags.pending) == {"AC/DC", "animal|fish"}
    assert tags.refused == ["cat"]
    answer_suggestions(sidecar, refuse=["AC/DC", "animal|fish"])
    assert read_sidecar(sidecar).tags == ["animal|bird", "dog"]
    assert "fish" not in subjects(sidecar)
    start = hierarchy(prefix, space, name, f"animal{mark}bird", "<rdf:li>x</rdf:li>")
    sidecar.write_text(start, "utf-8")
    merge_tags(sidecar, ["dog", "cat"])
    undo_suggestions(sidecar)
    after = ElementTree.canonicalize(sidecar.read_text("utf-8"))
    assert after == ElementTree.canonicalize(start)


COPIES = {"present": ["z", "iptc"], "hierarchies": ["x|y|z"]}


def test_undo_removes_a_sidecar_that_holds_copies_alone(sidecar):
    merge_tags(sidecar, ["dog"], **COPIES)
    assert undo_suggestions(sidecar) == ["dog"]
    assert not sidecar.exists()


def taken_out(text: str) -> str:
    """What a program writes when a person has taken a keyword out."""
    return text.replace("<rdf:li>iptc</rdf:li>", "", 2)  # not our note of it


def rated(text: str) -> str:
    """What a program writes when a person has rated a picture."""
    space = "xmlns:xmp='http://ns.adobe.com/xap/1.0/'"
    return text.replace(
        "</rdf:Description>", f"<xmp:Rating {space}>3</xmp:Rating></rdf:Description>"
    )


@pytest.mark.parametrize("edited", [taken_out, rated])
def test_undo_keeps_a_sidecar_that_somebody_has_changed(sidecar, edited):
    merge_tags(sidecar, ["dog"], **COPIES)
    text = sidecar.read_text("utf-8")
    sidecar.write_text(edited(text), "utf-8")
    before = read_sidecar(sidecar)
    assert undo_suggestions(sidecar) == ["dog"]
    after = read_sidecar(sidecar)
    expected = [tag for tag in before.tags if tag != "dog"]
    assert after.tags == expected
    assert after.hierarchies == before.hierarchies
    assert "x|y|z" in hierarchies(sidecar)


def test_accepted_and_refused_tags_outlive_undo_beside_copies(sidecar):
    merge_tags(sidecar, ["dog", "cat"], **COPIES)
    answer_suggestions(sidecar, refuse=["cat"])
    assert undo_suggestions(sidecar) == ["dog"]
    assert read_sidecar(sidecar)[:3] == (["x|y|z", "iptc"], [], ["cat"])
    assert hierarchies(sidecar) == ["x|y|z", "iptc"]


def test_keywords_that_xml_forbids_are_not_copied(sidecar):
    assert merge_tags(sidecar, ["dog"], present=["a\0b", "\x1b", "fine"]) == ["dog"]
    assert read_sidecar(sidecar).tags == ["fine", "dog"]


def test_a_dry_run_makes_no_sidecar_and_nothing_to_add_makes_none(sidecar):
    added = merge_tags(sidecar, ["dog"], **COPIES, dry_run=True)
    assert added == ["dog"]
    assert not sidecar.exists()
    added = merge_tags(sidecar, ["Z"], **COPIES)
    assert added == []
    assert not sidecar.exists()


BAD = {
    "empty": (b"", "is not well-formed XML"),
    "no XML": (b"\xff\xd8\xff\xe0 JFIF", "is not well-formed XML"),
    "cut": (RICH[:400].encode(), "is not well-formed XML"),
    "no RDF": (b"<svg><g/></svg>", "holds no rdf:RDF"),
    "doctype": (b"<!DOCTYPE a SYSTEM 'file:///x'><a/>", "has a DOCTYPE"),
    "entities": (
        f'<!DOCTYPE a [<!ENTITY e "boom">]>{described("<dc:subject>&e;</dc:subject>")}'.encode(),
        "has a DOCTYPE",
    ),
    "unknown entity": (described("<dc:subject>&e;</dc:subject>").encode(), "not well-formed"),
    "unknown prefix": (b"<rdf:RDF/>", "not well-formed"),
    "deep": (described("<dc:a>" * 300 + "</dc:a>" * 300).encode(), "not well-formed"),
    "large": (described(" " * 2**24).encode(), "is larger than 16 MiB"),
}


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD)
def test_what_is_no_packet_is_refused_and_left_alone(sidecar, raw, message):
    sidecar.write_bytes(raw)
    pattern = rf"photo\.jpg\.xmp .*{message}"
    with pytest.raises(InputError, match=pattern):
        read_sidecar(sidecar)
    with pytest.raises(InputError, match=pattern):
        merge_tags(sidecar, ["a"])
    assert sidecar.read_bytes() == raw
    (path,) = sidecar.parent.iterdir()
    assert path == sidecar


@posix
def test_what_is_no_file_of_its_own_is_refused(tmp_path, sidecar, monkeypatch):
    pipe = tmp_path / "pipe.xmp"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        with pytest.raises(InputError, match="is no regular file"):
            merge_tags(path, ["a"])
    with pytest.raises(InputError, match=r"a\.xmp cannot be written \(No such file"):
        merge_tags(tmp_path / "missing" / "a.xmp", ["a"])
    target = tmp_path / "target.xmp"
    merge_tags(target, ["a"])
    sidecar.symlink_to(target)
    assert read_sidecar(sidecar).tags == ["a"]
    with pytest.raises(InputError, match="is a symbolic link; name the file it points to"):
        merge_tags(sidecar, ["b"])
    # The owner of everything may write everything, so permissions alone would not show it.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(InputError, match="is write-protected; make it writable first"):
        merge_tags(target, ["b"])
    assert read_sidecar(target).tags == ["a"]


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["fine", "a\0b"], r"The tag '.*' holds a character that XML forbids"),
        (["\ud800"], r"The tag '.*' holds a character that XML forbids"),
        (["\ufffe"], r"The tag '.*' holds a character that XML forbids"),
        ("text", "must be a sequence of strings; got"),
        (["x" * 2**23], "would grow beyond 16 MiB; add fewer tags"),
    ],
    ids=["nul", "surrogate", "no character", "no sequence", "too long"],
)
def test_tags_that_cannot_be_written_leave_the_file_alone(sidecar, tags, message):
    sidecar.write_text(RICH, "utf-8")
    with pytest.raises(InputError, match=message):
        merge_tags(sidecar, tags)
    assert sidecar.read_text("utf-8") == RICH


@posix
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(sidecar, monkeypatch, step):
    sidecar.write_text(RICH, "utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        merge_tags(sidecar, ["new"])
    assert sidecar.read_text("utf-8") == RICH
    assert [path.name for path in sidecar.parent.iterdir()] == [sidecar.name]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_owner_and_permissions_of_a_file_are_kept(sidecar, monkeypatch, mode):
    sidecar.write_text(RICH, "utf-8")
    sidecar.chmod(mode)
    owners = []
    monkeypatch.setattr(os, "chown", lambda path, user, group: owners.append((user, group)))
    merge_tags(sidecar, ["new"])
    state = sidecar.stat()
    assert state.st_mode & 0o777 == mode
    assert owners == [(state.st_uid, state.st_gid)]


@posix
def test_a_sidecar_with_two_names_is_cut_loose_and_the_other_name_keeps_the_old_one(sidecar):
    sidecar.write_text(RICH, "utf-8")
    os.link(sidecar, sidecar.with_name("backup"))
    assert merge_tags(sidecar, ["new"]) == ["new"]
    assert sidecar.with_name("backup").read_text("utf-8") == RICH


def test_extended_attributes_of_a_sidecar_are_kept(sidecar):
    sidecar.write_text(RICH, "utf-8")
    try:
        os.setxattr(sidecar, "user.colour", b"red")
    except (AttributeError, OSError):
        pytest.skip("no extended attributes here")
    merge_tags(sidecar, ["new"])
    assert os.getxattr(sidecar, "user.colour") == b"red"


def test_a_lock_that_is_never_freed_is_reported(sidecar, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="this system has no file locks")
    monkeypatch.setattr(suggestions, "_LOCK_SECONDS", 0.02)
    holder = os.open(sidecar.parent, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(InputError, match=r"locked by another writer for 0\.02 s"):
        merge_tags(sidecar, ["a"])
    os.close(holder)
    assert merge_tags(sidecar, ["a"]) == ["a"]


LETTERS = st.characters(
    exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="|"
) | st.sampled_from(" \t\n\rß&<ſİ")
TAGS = st.lists(st.text(LETTERS, max_size=6) | st.sampled_from(["a", "A", "b c", "B  C"]))
STARTS = st.sampled_from([None, RICH, *(text for text, _ in SPELLINGS.values())])


def canon(tag: str) -> str:
    """What tags are told apart by."""
    folded = unicodedata.normalize("NFD", " ".join(tag.split())).casefold()
    return unicodedata.normalize("NFC", folded)


@settings(max_examples=40, deadline=None)
@given(first=TAGS, second=TAGS, start=STARTS)
def test_merging_gives_the_union_and_keeps_what_was_there_first(first, second, start):
    keys_of_orders = []
    for batches in ((first, second), (second, first)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.xmp"
            if start is not None:
                path.write_text(start, "utf-8", newline="")
            states = [read_sidecar(path).tags]
            for tags in (*batches, *batches):
                added = merge_tags(path, tags)
                state = read_sidecar(path).tags
                expected = states[-1] + added
                assert state == expected
                states.append(state)
        assert states[3] == states[2], "tags that are there are not added again"
        assert states[4] == states[2]

        keys = [canon(tag) for tag in states[-1]]
        assert len(set(keys)) == len(keys)
        all_tags = states[0] + first + second
        assert set(keys) == {canon(tag) for tag in all_tags if tag.strip()}
        keys_of_orders.append(set(keys))
    first_keys, second_keys = keys_of_orders
    assert first_keys == second_keys


def test_processes_that_merge_into_one_sidecar_lose_no_tags(sidecar):
    pytest.importorskip("fcntl", reason="this system has no file locks")
    code = (
        "import sys; from pathlib import Path; from polyseme.media.xmp import merge_tags\n"
        "for i in range(25): merge_tags(Path(sys.argv[1]), [f'{sys.argv[2]}{i}'])"
    )
    processes = []
    for name in ("a", "b"):
        command = [sys.executable, "-c", code, str(sidecar), name]
        processes.append(subprocess.Popen(command))
    for process in processes:
        assert process.wait(timeout=120) == 0
    expected = {f"{name}{number}" for name in "ab" for number in range(25)}
    tags = read_sidecar(sidecar).tags
    assert len(tags) == len(expected)
    assert set(tags) == expected


def test_a_path_is_suggested_accepted_and_refused_with_its_last_part(sidecar):
    merge_tags(sidecar, ["sky"], present=["sea"])
    answer_suggestions(sidecar, accept=["sky"])
    added = merge_tags(sidecar, ["animals|birds|crane", "machines|crane", "animals|sea", "birds"])
    assert added == ["animals|birds|crane", "machines|crane", "animals|sea", "birds"]
    # Who finds the new list reads nothing else, so that it has the flat tags as well.
    listed = ["sea", "sky", "animals|birds|crane", "machines|crane", "animals|sea", "birds"]
    assert hierarchies(sidecar) == listed
    assert subjects(sidecar) == ["sea", "sky", "crane", "birds"]
    assert set(read_sidecar(sidecar).pending) == set(added)
    assert merge_tags(sidecar, ["animals|birds", "crane"]) == [], "both stand in a path"

    answer_suggestions(sidecar, accept=["animals|birds|crane"], refuse=["animals|sea"])
    tags = read_sidecar(sidecar)
    assert "animals|birds|crane" not in tags.pending
    assert tags.refused == ["animals|sea"]
    assert "sea" in subjects(sidecar), "it was there before"
    assert merge_tags(sidecar, ["animals|sea"]) == []
    undo_suggestions(sidecar)
    assert set(read_sidecar(sidecar).tags) == {"animals|birds|crane", "sky", "sea"}


def test_undo_takes_a_path_and_what_came_with_it(sidecar):
    start = described("<dc:subject><rdf:Bag><rdf:li>sea</rdf:li></rdf:Bag></dc:subject>")
    sidecar.write_text(start, "utf-8")
    merge_tags(sidecar, ["places|coast"])
    assert undo_suggestions(sidecar) == ["places|coast"]
    assert subjects(sidecar) == ["sea"]
    assert hierarchies(sidecar) == ["sea"]
    assert read_sidecar(sidecar)[:3] == (["sea"], [], [])


def seen_by_immich(path: Path) -> list[str]:
    """Return the tags that Immich reads of a sidecar: the first of these lists that has a value."""
    tags_list = items(path, f"{{{DIGIKAM}}}TagsList")
    if tags_list:
        return tags_list
    return [tag.replace("|", "/") for tag in hierarchies(path)]  # it reads no subjects


@pytest.mark.parametrize(
    "present",
    [{}, {"present": ["iptc"]}, {"present": ["x|y|z", "iptc"], "hierarchies": ["x|y|z"]}],
    ids=["nothing", "flat", "path"],
)
def test_immich_sees_the_keywords_of_people_and_ours(sidecar, present):
    merge_tags(sidecar, ["dog", "places|coast"], **present)
    own_tags = [tag.replace("|", "/") for tag in present.get("present", [])]
    assert set(seen_by_immich(sidecar)) == {*own_tags, "dog", "places/coast"}
    merge_tags(sidecar, ["cat"])
    assert "cat" in seen_by_immich(sidecar)
    assert set(hierarchies(sidecar)) == {tag.replace("/", "|") for tag in seen_by_immich(sidecar)}
    undo_suggestions(sidecar)
    assert not sidecar.exists()


def test_immich_sees_ours_beside_the_list_of_digikam(sidecar):
    prefix, space, name, *_ = HIERARCHIES["digikam"]
    sidecar.write_text(hierarchy(prefix, space, name, "animal/bird"), "utf-8")
    merge_tags(sidecar, ["dog", "animal|fish"])
    tree = ElementTree.fromstring(sidecar.read_bytes())
    listed = [item.text for item in tree.iter(f"{{{RDF}}}li")]
    assert {"animal/bird", "dog", "animal/fish"} <= set(listed)
