"""XMP sidecars: every legal spelling is read and extended, and nothing else in the file changes."""

from __future__ import annotations

import difflib
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

from polyseme._validation import InputError
from polyseme.io import _xmp_disk
from polyseme.io.xmp import merge_tags, new_packet, read_tags, sidecar_of

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DC = "http://purl.org/dc/elements/1.1/"
OURS = "urn:polyseme:xmp:1.0/"

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")

# Written as photo programs do: comments, padding, other namespaces, hierarchies, structures.
RICH = """<?xpacket begin='\ufeff' id='W5M0MpCehiHzreSzNTczkc9d'?>
<!-- a comment before -->
<x:xmpmeta xmlns:x='adobe:ns:meta/' x:xmptk='Some Program 1.0'>
<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>

 <rdf:Description rdf:about=''
  xmlns:dc='http://purl.org/dc/elements/1.1/'>
  <dc:subject><!-- mine -->
   <rdf:Bag>
    <rdf:li>Beach</rdf:li>
    <rdf:li xml:lang='pt'>São   Paulo</rdf:li>
   </rdf:Bag>
  </dc:subject>
  <dc:title>
   <rdf:Alt>
    <rdf:li xml:lang='x-default'>A &amp; B &#x263A;</rdf:li>
   </rdf:Alt>
  </dc:title>
 </rdf:Description>

 <rdf:Description rdf:about='' xmp:Rating='4'
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


def bare(body: str, *, root: str = "") -> str:
    """A packet without the outer wrapper."""
    return f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:dc="{DC}"{root}>{body}</rdf:RDF>'


def described(body: str) -> str:
    return bare(f"<rdf:Description>{body}</rdf:Description>")


SPELLINGS = {
    "bag": (described("<dc:subject><rdf:Bag><rdf:li>a</rdf:li></rdf:Bag></dc:subject>"), ["a"]),
    "seq": (described("<dc:subject><rdf:Seq><rdf:li>a</rdf:li></rdf:Seq></dc:subject>"), ["a"]),
    "alt": (described("<dc:subject><rdf:Alt><rdf:li>a</rdf:li></rdf:Alt></dc:subject>"), ["a"]),
    "plain": (described('<dc:subject xml:lang="en">a<!-- - -->b</dc:subject>'), ["ab"]),
    "cdata": (described("<dc:subject><![CDATA[a</b>]]></dc:subject>"), ["a</b>"]),
    "attribute": (
        bare(
            """<rdf:Description rdf:about="" dc:source=" dc:subject='no'" dc:subject='a&gt;"&amp;'
            dc:format="x"/>"""
        ),
        ['a>"&'],
    ),
    "blank attribute": (bare('<rdf:Description dc:subject=" "/>'), []),
    "resource": (described('<dc:subject rdf:resource="http://a/b"/>'), ["http://a/b"]),
    "qualified": (
        described(
            '<dc:subject rdf:parseType="Resource"><rdf:value>a</rdf:value>'
            "<dc:type>t</dc:type></dc:subject>"
        ),
        ["a"],
    ),
    "qualified attributes": (described('<dc:subject rdf:value="a" dc:type="t"/>'), ["a"]),
    "qualified items": (
        described(
            '<dc:subject><rdf:Bag><rdf:li rdf:parseType="Resource"><rdf:value>a</rdf:value>'
            "<dc:type>t</dc:type></rdf:li><rdf:li><rdf:Description><rdf:value>b</rdf:value>"
            '</rdf:Description></rdf:li><rdf:li dc:type="t" rdf:value="c"/></rdf:Bag></dc:subject>'
        ),
        ["a", "b", "c"],
    ),
    "empty property": (described("<dc:subject />"), []),
    "blank property": (described("<dc:subject>\n </dc:subject>"), []),
    "empty bag": (described("<dc:subject><rdf:Bag/></dc:subject>"), []),
    "blank bag": (described("<dc:subject><rdf:Bag> </rdf:Bag></dc:subject>"), []),
    "empty item": (
        described("<dc:subject><rdf:Bag><rdf:li/><rdf:li>a</rdf:li></rdf:Bag></dc:subject>"),
        ["a"],
    ),
    "empty root": (f'<rdf:RDF xmlns:rdf="{RDF}"/>', []),
    "no tags": (bare('<rdf:Description rdf:about="uuid:1&quot;" dc:format="x"/>'), []),
    "two places": (
        bare(
            '<rdf:Description dc:subject="a"/><rdf:Description><dc:subject>b</dc:subject>'
            "</rdf:Description>"
        ),
        ["a", "b"],
    ),
    "last one an attribute": (
        bare(
            "<rdf:Description><dc:subject>b</dc:subject></rdf:Description>"
            '<rdf:Description dc:subject="a"/>'
        ),
        ["b", "a"],
    ),
    "other prefixes": (
        f'<r:RDF xmlns:r="{RDF}" xmlns:q="{DC}" xmlns:dc="urn:x" xmlns:polyseme="urn:y">'
        "<r:Description><q:subject><r:Bag><r:li>a</r:li></r:Bag></q:subject><dc:subject>no"
        "</dc:subject></r:Description></r:RDF>",
        ["a"],
    ),
    "other prefixes, plain": (
        f'<r:RDF xmlns:r="{RDF}" xmlns:rdf="urn:x"><r:Description>'
        f'<subject xmlns="{DC}">a</subject></r:Description></r:RDF>',
        ["a"],
    ),
    "declared on the property": (
        f'<rdf:RDF xmlns:rdf="{RDF}"><rdf:Description><dc:subject xmlns:dc="{DC}" xml:lang="en">a'
        "</dc:subject></rdf:Description></rdf:RDF>",
        ["a"],
    ),
    "all declared on the property": (
        f'<r:RDF xmlns:r="{RDF}"><r:Description><q:subject xmlns:q="{DC}" xmlns:rdf="{RDF}" '
        'rdf:parseType="Resource"><rdf:value>a</rdf:value></q:subject></r:Description></r:RDF>',
        ["a"],
    ),
    "foreign text": (described("<dc:subjects>no</dc:subjects>tail"), []),
}
spellings = pytest.mark.parametrize(("text", "tags"), SPELLINGS.values(), ids=SPELLINGS)


@pytest.fixture
def sidecar(tmp_path: Path) -> Path:
    return tmp_path / "photo.jpg.xmp"


def suggested(path: Path) -> list[str | None]:
    """The noted tags, by another reader than ours."""
    tree = ElementTree.fromstring(path.read_bytes())
    return [one.text for one in tree.findall(f".//{{{OURS}}}suggested/{{{RDF}}}Bag/{{{RDF}}}li")]


def subjects(path: Path) -> list[str | None]:
    """The items of the tags of the first kind of array, by another reader than ours."""
    tree = ElementTree.fromstring(path.read_bytes())
    return [one.text for one in tree.findall(f".//{{{DC}}}subject/{{{RDF}}}Bag/{{{RDF}}}li")]


def removed_bytes(old: bytes, new: bytes) -> bytes:
    """What of the old bytes is not in the new ones in the same order."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    codes = matcher.get_opcodes()
    return b"".join(old[i1:i2] for tag, i1, i2, _, _ in codes if tag in ("delete", "replace"))


# --- where the sidecar is ---


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ([], "photo.jpg.xmp"),
        (["photo.jpg.xmp", "photo.xmp"], "photo.jpg.xmp"),
        (["photo.xmp"], "photo.xmp"),
        (["photo.xmp", "photo.cr2"], "photo.xmp"),
        (["photo.xmp", "photo.cr2", "photo.cr2.xmp"], "photo.xmp"),
        (["photo.XMP"], "photo.XMP"),
        (["photo.jpg.XMP", "photo.xmp"], "photo.jpg.XMP"),
        (["photo.jpg.Xmp"], "photo.jpg.Xmp"),
        (["photo.xmp", "photo"], "photo.jpg.xmp"),
        (["photo.png.xmp", "photos.xmp"], "photo.jpg.xmp"),
    ],
)
def test_the_sidecar_is_found_by_each_convention(
    tmp_path: Path, present: list[str], expected: str
) -> None:
    for name in present:
        (tmp_path / name).touch()
    found = sidecar_of(tmp_path / "photo.jpg")
    assert found.name.lower() == expected.lower()
    assert not present or found.name == expected or found.exists()
    assert found.parent == tmp_path


def test_the_sidecar_of_a_raw_file_is_not_that_of_its_export(tmp_path: Path) -> None:
    for name in ("photo.cr2", "photo.cr2.xmp", "photo.cr2.jpg"):
        (tmp_path / name).touch()
    assert sidecar_of(tmp_path / "photo.cr2.jpg").name == "photo.cr2.jpg.xmp"
    assert sidecar_of(tmp_path / "photo.cr2").name == "photo.cr2.xmp"


def test_a_folder_is_no_sidecar_and_a_file_without_suffix_has_one(tmp_path: Path) -> None:
    (tmp_path / "photo.xmp").mkdir()
    assert sidecar_of(tmp_path / "photo.jpg").name == "photo.jpg.xmp"
    assert sidecar_of(tmp_path / "scan").name == "scan.xmp"


@pytest.mark.parametrize("name", ["photo.xmp", "photo.jpg.XMP"])
def test_a_sidecar_has_no_sidecar(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is a sidecar itself"):
        sidecar_of(tmp_path / name)


# --- reading and extending ---


@spellings
def test_every_spelling_is_read(sidecar: Path, text: str, tags: list[str]) -> None:
    sidecar.write_text(text, "utf-8")
    assert read_tags(sidecar) == tags


@spellings
def test_every_spelling_is_extended(sidecar: Path, text: str, tags: list[str]) -> None:
    sidecar.write_text(text, "utf-8")
    assert merge_tags(sidecar, ["new", *tags, "x<y"]) == ["new", "x<y"]
    assert read_tags(sidecar) == [*tags, "new", "x<y"]
    assert suggested(sidecar) == ["new", "x<y"]
    assert merge_tags(sidecar, ["more"]) == ["more"]
    assert read_tags(sidecar) == [*tags, "new", "x<y", "more"]
    assert suggested(sidecar) == ["new", "x<y", "more"]


@pytest.mark.parametrize(
    "name", [name for name in SPELLINGS if "attribute" not in name and "empty" not in name]
)
def test_extending_only_inserts(sidecar: Path, name: str) -> None:
    old = SPELLINGS[name][0].encode()
    sidecar.write_bytes(old)
    merge_tags(sidecar, ["new"])
    assert removed_bytes(old, sidecar.read_bytes()) == b""


def test_a_value_spelled_as_an_attribute_is_all_that_is_moved(sidecar: Path) -> None:
    sidecar.write_text(SPELLINGS["attribute"][0])
    merge_tags(sidecar, ["new"])
    start = SPELLINGS["attribute"][0].replace(""" dc:subject='a&gt;"&amp;'""", "")
    assert sidecar.read_text().startswith(start.removesuffix("</rdf:RDF>"))
    assert subjects(sidecar) == ['a>"&', "new"]


def test_one_plain_value_keeps_its_language_as_the_first_item(sidecar: Path) -> None:
    sidecar.write_text(SPELLINGS["plain"][0])
    merge_tags(sidecar, ["new"])
    assert (
        '<dc:subject><rdf:Bag><rdf:li xml:lang="en">a<!-- - -->b</rdf:li><rdf:li>new</rdf:li>'
        "</rdf:Bag></dc:subject>"
    ) in sidecar.read_text()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", False),
        ("utf-8", True),
        ("utf-16-le", True),
        ("utf-16-be", True),
        ("utf-16-le", False),
        ("utf-16-be", False),
        ("utf-32-le", True),
        ("utf-32-be", True),
        ("utf-32-le", False),
    ],
)
def test_outside_the_inserted_text_the_bytes_are_identical(
    sidecar: Path, encoding: str, mark: bool, newline: str
) -> None:
    text = RICH.replace("\n", newline)
    sidecar.write_bytes((("\ufeff" if mark else "") + text).encode(encoding))
    assert read_tags(sidecar) == ["Beach", "São   Paulo"]
    assert merge_tags(sidecar, ["beach", "dog 🐕"]) == ["dog 🐕"]
    line = newline + " "
    item = f"{line}   <rdf:li>dog 🐕</rdf:li>"
    note = (
        f'{line}<rdf:Description xmlns:polyseme="{OURS}" rdf:about="">'
        f"{line} <polyseme:suggested>{line}  <rdf:Bag>{item}{line}  </rdf:Bag>"
        f"{line} </polyseme:suggested>{line}</rdf:Description>"
    )
    first, second = text.index("Paulo</rdf:li>") + 14, text.rindex("</rdf:Description>") + 18
    expected = text[:first] + item + text[first:second] + note + text[second:]
    assert sidecar.read_bytes() == (("\ufeff" if mark else "") + expected).encode(encoding)


def test_tags_are_compared_without_case_space_or_composition(sidecar: Path) -> None:
    there = ["Straße", "São Paulo", "Σίσυφος"]
    merge_tags(sidecar, there)
    before = sidecar.read_bytes()
    others = ["STRASSE", unicodedata.normalize("NFD", " são \t paulo\n"), "ΣΊΣΥΦΟΣ"]
    assert merge_tags(sidecar, others) == []
    assert sidecar.read_bytes() == before
    assert merge_tags(sidecar, ["sao paulo"]) == ["sao paulo"]


def test_repeated_tags_in_a_file_are_read_once_and_never_removed(sidecar: Path) -> None:
    items = "".join(f"<rdf:li>{one}</rdf:li>" for one in ("b", " A ", "B", "a", ""))
    sidecar.write_text(described(f"<dc:subject><rdf:Bag>{items}</rdf:Bag></dc:subject>"))
    assert read_tags(sidecar) == ["b", "A"]
    merge_tags(sidecar, ["c"])
    assert items + "<rdf:li>c</rdf:li>" in sidecar.read_text()


def test_a_run_that_adds_nothing_does_not_touch_the_file(sidecar: Path) -> None:
    sidecar.write_text(RICH, "utf-8")
    os.utime(sidecar, ns=(1_000_000_000, 1_000_000_000))
    before = sidecar.stat()
    assert merge_tags(sidecar, ["BEACH", " ", ""]) == []
    assert merge_tags(sidecar, []) == []
    after = sidecar.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_nothing_to_add_creates_no_file(sidecar: Path) -> None:
    assert merge_tags(sidecar, [" "]) == []
    assert not sidecar.exists()
    assert read_tags(sidecar) == []


def test_a_tag_taken_out_by_a_person_is_not_suggested_again(sidecar: Path) -> None:
    merge_tags(sidecar, ["dog", "cat"])
    text = sidecar.read_text("utf-8")
    sidecar.write_text(text.replace("<rdf:li>dog</rdf:li>", "", 1), "utf-8")
    assert read_tags(sidecar) == ["cat"]
    assert merge_tags(sidecar, ["Dog", "bird"]) == ["bird"]
    assert read_tags(sidecar) == ["cat", "bird"]
    assert suggested(sidecar) == ["dog", "cat", "bird"]


def test_a_new_sidecar_is_a_whole_packet(sidecar: Path) -> None:
    tags = ["a & b <c> ]]> \"'", "café", "👩‍🚀", "שלום", "  wide  space\n", "x" * 100_000]
    cleaned = [" ".join(tag.split()) for tag in tags]
    assert merge_tags(sidecar, tags) == cleaned
    raw = sidecar.read_bytes()
    assert raw == new_packet(tags)
    assert raw.startswith('<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'.encode())
    assert raw.endswith(b'\n<?xpacket end="w"?>\n')
    assert b"\r" not in raw
    assert subjects(sidecar) == suggested(sidecar) == cleaned == read_tags(sidecar)


def test_a_packet_may_hold_no_tags() -> None:
    assert ElementTree.fromstring(new_packet([])).tag == "{adobe:ns:meta/}xmpmeta"


# --- what is refused ---

BAD = {
    "empty": (b"", "is not well-formed XML"),
    "no XML": (b"\xff\xd8\xff\xe0 JFIF", "is not valid UTF-8 at byte 1"),
    "cut": (RICH[:400].encode(), "is not well-formed XML"),
    "no RDF": (b"<svg><g/></svg>", "holds no rdf:RDF"),
    "doctype": (b"<!DOCTYPE a><a/>", "has a DOCTYPE"),
    "entities": (
        f'<!DOCTYPE a [<!ENTITY e "boom">]>{described("<dc:subject>&e;</dc:subject>")}'.encode(),
        "has a DOCTYPE",
    ),
    "doctype in UTF-16": ("<!DOCTYPE a SYSTEM 'file:///x'><a/>".encode("utf-16"), "has a DOCTYPE"),
    "unknown entity": (described("<dc:subject>&e;</dc:subject>").encode(), "not well-formed"),
    "unknown prefix": (b"<rdf:RDF/>", "not well-formed"),
    "latin-1": (
        b"<?xml version='1.0' encoding='ISO-8859-1'?>" + bare("").encode(),
        "says it is in ISO-8859-1",
    ),
    "half a character": (RICH.encode("utf-16")[:-1], "is not valid UTF-16-LE"),
    "deep": (described("<dc:a>" * 300 + "</dc:a>" * 300).encode(), "deeper than 200"),
    "large": (described(" " * 2**24).encode(), "is larger than 16 MiB"),
}


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD)
def test_what_is_no_packet_is_refused_and_left_alone(
    sidecar: Path, raw: bytes, message: str
) -> None:
    sidecar.write_bytes(raw)
    with pytest.raises(InputError, match=rf"photo\.jpg\.xmp .*{message}"):
        read_tags(sidecar)
    with pytest.raises(InputError, match=rf"photo\.jpg\.xmp .*{message}"):
        merge_tags(sidecar, ["a"])
    assert sidecar.read_bytes() == raw
    assert [one.name for one in sidecar.parent.iterdir()] == [sidecar.name]


def test_a_spelling_that_cannot_be_extended_is_refused_and_left_alone(sidecar: Path) -> None:
    text = described('<dc:subject xmlns:rdf="urn:other">a</dc:subject>')
    sidecar.write_text(text)
    assert read_tags(sidecar) == ["a"]
    with pytest.raises(InputError, match=r"photo\.jpg\.xmp .*cannot be extended; add them by hand"):
        merge_tags(sidecar, ["b"])
    assert sidecar.read_text() == text


def test_a_file_that_would_grow_too_large_is_left_alone(sidecar: Path) -> None:
    sidecar.write_text(RICH, "utf-8")
    with pytest.raises(InputError, match="would grow beyond 16 MiB; add fewer tags"):
        merge_tags(sidecar, ["x" * 2**23])
    assert sidecar.read_text("utf-8") == RICH


def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name a sidecar file"):
        merge_tags(tmp_path, ["a"])
    with pytest.raises(InputError, match="is a folder; name a sidecar file"):
        read_tags(tmp_path)
    with pytest.raises(InputError, match=r"a\.xmp cannot be written \(No such file"):
        merge_tags(tmp_path / "missing" / "a.xmp", ["a"])


@posix
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.xmp")
    with pytest.raises(InputError, match="is no regular file"):
        merge_tags(tmp_path / "a.xmp", ["a"])


@posix
@pytest.mark.parametrize("dangling", [False, True])
def test_a_symbolic_link_is_read_but_not_written(
    tmp_path: Path, sidecar: Path, dangling: bool
) -> None:
    target = tmp_path / "target.xmp"
    if not dangling:
        target.write_bytes(new_packet(["a"]))
    sidecar.symlink_to(target)
    assert read_tags(sidecar) == ([] if dangling else ["a"])
    with pytest.raises(InputError, match="is a symbolic link; name the file it points to"):
        merge_tags(sidecar, ["b"])
    assert sidecar.is_symlink()
    assert target.exists() != dangling


@pytest.mark.parametrize("tag", ["a\0b", "\x0bx", "x\x1f", "\ud800", "\ufffe", "\uffff"], ids=ascii)
def test_characters_that_xml_forbids_are_refused(sidecar: Path, tag: str) -> None:
    with pytest.raises(InputError, match=r"The tag '.*' holds a character that XML forbids"):
        merge_tags(sidecar, ["fine", tag])
    assert not sidecar.exists()


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("dog", "must be a sequence of strings; got 'dog'"),
        ([1], "must hold strings only; got 1"),
        ([None], "must hold strings only; got None"),
    ],
)
def test_tags_must_be_strings_in_a_sequence(sidecar: Path, tags: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        merge_tags(sidecar, tags)


def test_a_write_protected_file_is_left_alone(
    sidecar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar.write_text(RICH, "utf-8")
    # The owner of everything may write everything, so permissions alone would not show it.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(InputError, match="is write-protected; make it writable first"):
        merge_tags(sidecar, ["b"])
    assert sidecar.read_text("utf-8") == RICH


# --- writing ---


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_permissions_of_a_file_are_kept(sidecar: Path, mode: int) -> None:
    sidecar.write_text(RICH, "utf-8")
    sidecar.chmod(mode)
    merge_tags(sidecar, ["new"])
    assert sidecar.stat().st_mode & 0o777 == mode


@posix
def test_a_new_file_has_the_usual_permissions(tmp_path: Path, sidecar: Path) -> None:
    (tmp_path / "usual").touch()
    merge_tags(sidecar, ["new"])
    assert sidecar.stat().st_mode == (tmp_path / "usual").stat().st_mode


@posix
def test_another_name_of_the_file_keeps_the_old_content(tmp_path: Path, sidecar: Path) -> None:
    sidecar.write_text(RICH, "utf-8")
    (tmp_path / "other").hardlink_to(sidecar)
    merge_tags(sidecar, ["new"])
    assert (tmp_path / "other").read_text("utf-8") == RICH


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    sidecar: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    sidecar.write_text(RICH, "utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        merge_tags(sidecar, ["new"])
    assert sidecar.read_text("utf-8") == RICH
    assert [one.name for one in sidecar.parent.iterdir()] == [sidecar.name]


def test_the_longest_file_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 251 + ".xmp")
    assert merge_tags(path, ["a"]) == ["a"]


def test_processes_that_merge_into_one_sidecar_lose_no_tags(sidecar: Path) -> None:
    pytest.importorskip("fcntl", reason="this system has no file locks")
    code = (
        "import sys; from pathlib import Path; from polyseme.io.xmp import merge_tags\n"
        "for i in range(25): merge_tags(Path(sys.argv[1]), [f'{sys.argv[2]}{i}'])"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(sidecar), name]) for name in ("a", "b")
    ]
    assert [one.wait(timeout=60) for one in running] == [0, 0]
    assert sorted(read_tags(sidecar)) == sorted(f"{n}{i}" for n in "ab" for i in range(25))
    assert [one.name for one in sidecar.parent.iterdir()] == [sidecar.name]


def test_a_lock_that_is_never_freed_is_reported(
    sidecar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl", reason="this system has no file locks")
    monkeypatch.setattr(_xmp_disk, "_LOCK_SECONDS", 0.02)
    holder = os.open(sidecar.parent, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"locked by another program for 0\.02 s"):
            merge_tags(sidecar, ["a"])
    finally:
        os.close(holder)
    assert merge_tags(sidecar, ["a"]) == ["a"]


# --- any tags ---

LETTERS = st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from(" \t\n\rß&<ſİ")
TAGS = st.lists(st.text(LETTERS, max_size=6) | st.sampled_from(["a", "A", "b c", "B  C"]))


def canon(tag: str) -> str:
    """What the tags in a set of tags are told apart by."""
    folded = unicodedata.normalize("NFD", " ".join(tag.split())).casefold()
    return unicodedata.normalize("NFC", folded)


@settings(max_examples=40, deadline=None)
@given(
    first=TAGS,
    second=TAGS,
    start=st.sampled_from([None, RICH, *(t for t, _ in SPELLINGS.values())]),
)
def test_merging_gives_the_union_and_keeps_what_was_there_first(
    first: list[str], second: list[str], start: str | None
) -> None:
    unions = []
    for one, other in ((first, second), (second, first)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.xmp"
            if start is not None:
                path.write_text(start, "utf-8", newline="")
            states = [read_tags(path)]
            for tags in (one, other, one, other):
                added = merge_tags(path, tags)
                assert read_tags(path) == states[-1] + added
                states.append(read_tags(path))
        assert states[2] == states[3] == states[4]
        keys = [canon(tag) for tag in states[-1]]
        assert len(set(keys)) == len(keys)
        assert set(keys) == {canon(tag) for tag in states[0] + one + other if tag.strip()}
        unions.append(set(keys))
    assert unions[0] == unions[1]
