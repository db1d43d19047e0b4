"""Keywords are found where other programs write them, and hostile files cost only themselves."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.ImageFile import ImageFile

from media_files import DRAWING, png, quadrants
from polyseme import AudioFeatures, ImageFeatures, extract_folder
from polyseme.media import keywords, read_extraction
from polyseme.media.base import MediaError
from polyseme.media.extraction import by_reason
from polyseme.media.keywords import keywords_of
from polyseme.media.pictures import read_picture
from polyseme.media.sound import read_sound
from polyseme.media.xmp import answer_suggestions, merge_tags, read_sidecar, undo_suggestions
from sidecar_files import write_sidecar

needs_exiftool = pytest.mark.skipif(
    shutil.which("exiftool") is None, reason="exiftool (libimage-exiftool-perl) is not installed"
)
needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
FORMATS = ["jpg", "png", "webp", "tif", "heic", "avif"]
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
    'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag>{}</rdf:Bag></dc:subject>'
    "</rdf:Description></rdf:RDF></x:xmpmeta>"
)


def packet(*tags: str) -> bytes:
    return XMP.format("".join(f"<rdf:li>{tag}</rdf:li>" for tag in tags)).encode()


def picture(path: Path, **options: object) -> Path:
    """A small picture in the format of the path's suffix."""
    if path.suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    Image.fromarray(quadrants()).save(path, **options)
    return path


def exiftool(path: Path, *words: str) -> None:
    command = ["exiftool", "-q", "-q", "-m", "-overwrite_original", *words, str(path)]
    subprocess.run(command, check=True, timeout=60)


def ffmpeg(path: Path, *words: str) -> Path:
    command = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "sine=duration=1", *words]
    subprocess.run([*command, str(path)], check=True, timeout=60)
    return path


XMP_KEY = b"XML:com.adobe.xmp\0\0\0\0\0"


def packet_chunk(*tags: str) -> bytes:
    """Return the chunk of a PNG file that holds an XMP packet."""
    content = b"iTXt" + XMP_KEY + packet(*tags)
    length = len(content) - 4
    checksum = zlib.crc32(content)
    return length.to_bytes(4, "big") + content + checksum.to_bytes(4, "big")


@needs_exiftool
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("words", "tags", "place"),
    [
        (["-XMP-dc:Subject=sea", "-XMP-dc:Subject=café"], ["sea", "café"], "XMP"),
        (["-XMP-lr:HierarchicalSubject=place|sea"], ["place|sea"], "XMP"),
        (["-XMP-digiKam:TagsList=animal/bird"], ["animal|bird"], "XMP"),
        (["-XMP-microsoft:LastKeywordXMP=sea"], ["sea"], "XMP"),
        (["-EXIF:XPKeywords=sea;café"], ["sea", "café"], "EXIF"),
    ],
    ids=["subject", "lightroom", "digikam", "microsoft", "xpkeywords"],
)
def test_keywords_that_exiftool_wrote_are_read(tmp_path, suffix, words, tags, place):
    path = picture(tmp_path / f"a.{suffix}")
    exiftool(path, *words)
    keywords = keywords_of(path, "image")
    assert keywords.tags == tags
    assert keywords.places == [place]
    assert keywords.unread == []


@needs_exiftool
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize(
    "charset", [["-IPTC:CodedCharacterSet=UTF8"], ["-charset", "iptc=Latin1"]], ids=["utf8", "old"]
)
def test_iptc_keywords_are_read_where_formats_have_them(tmp_path, suffix, charset):
    path = picture(tmp_path / f"a.{suffix}")
    exiftool(path, *charset, "-IPTC:Keywords=sea", "-IPTC:Keywords=café")
    keywords = keywords_of(path, "image")
    assert keywords.tags == ["sea", "café"]
    assert keywords.places == ["IPTC"]
    assert keywords.unread == []


@needs_exiftool
@pytest.mark.parametrize("name", ["a.jpg.xmp", "a.xmp"])
def test_places_are_united(tmp_path, name):
    path = picture(tmp_path / "a.jpg")
    exiftool(path, "-XMP-dc:Subject=sea", "-IPTC:Keywords=Sea", "-EXIF:XPKeywords=sand")
    exiftool(tmp_path / name, "-XMP-dc:Subject=sky", "-XMP-digiKam:TagsList=place/sea")
    keywords = keywords_of(path, "image")
    assert keywords.tags == ["sand", "place|sea", "sky"], "the sea inside is the one of the path"
    assert keywords.places == ["XMP", "IPTC", "EXIF", "sidecar"]


def test_both_sidecars_count(tmp_path):
    path = picture(tmp_path / "a.jpg")
    write_sidecar(tmp_path / "a.jpg.xmp", ["sea"])
    write_sidecar(tmp_path / "a.xmp", ["sky"])
    assert keywords_of(path, "image").tags == ["sea", "sky"]


@needs_ffmpeg
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.mp3", []),
        ("b.mp3", ["-id3v2_version", "3"]),
        ("a.flac", []),
        ("a.ogg", ["-c:a", "libvorbis"]),
        ("a.opus", ["-c:a", "libopus"]),
        ("a.m4a", ["-c:a", "aac"]),
        ("a.aiff", ["-write_id3v2", "1"]),
    ],
)
def test_genre_and_keywords_that_ffmpeg_wrote_are_read_and_comments_are_not(tmp_path, name, words):
    options = ["-metadata", "genre=Jazz; R&B/Soul"]
    options += ["-metadata", "keywords=piano, trio"]
    options += ["-metadata", "comment=bought in June"]
    path = ffmpeg(tmp_path / name, *options, *words)
    keywords = keywords_of(path, "audio")
    assert sorted(keywords.tags) == ["Jazz", "R&B/Soul", "piano", "trio"]
    assert keywords.places == ["sound tags"]
    assert keywords.unread == []


@needs_ffmpeg
@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.m4a", "aac"), ("b.m4a", "alac"), ("a.aac", "aac"), ("a.opus", "libopus")],
)
def test_sound_of_apple_and_opus_is_heard(tmp_path, name, codec):
    pytest.importorskip("av")
    path = ffmpeg(tmp_path / name, "-c:a", codec, "-ac", "2")
    samples = read_sound(path)
    seconds = len(samples) / 22_050
    assert 0.9 < seconds < 1.1
    spectrum = np.abs(np.fft.rfft(samples[2000 : 2000 + 18_000]))
    loudest = spectrum.argmax() * 22_050 / 18_000
    assert loudest == pytest.approx(440, abs=2)
    beginning = read_sound(path, max_seconds=0.25)
    assert len(beginning) == pytest.approx(22_050 / 4, abs=1)


@needs_ffmpeg
@pytest.mark.parametrize("damage", ["cut", "empty of frames", "no sound"])
def test_damaged_apple_sound_is_one_reason(tmp_path, damage):
    pytest.importorskip("av")
    whole = ffmpeg(tmp_path / "a.m4a", "-c:a", "aac").read_bytes()
    torn = {"cut": whole[:2000], "empty of frames": bytes(3000), "no sound": b"text " * 99}[damage]
    for suffix in ("m4a", "aac"):
        path = tmp_path / f"torn.{suffix}"
        path.write_bytes(torn)
        with pytest.raises(MediaError):
            read_sound(path)


def test_the_keywords_of_a_png_cost_no_pixels(tmp_path, monkeypatch):
    large = png(b"", (60_000, 60_000), depth=8, colour=2)
    text = packet_chunk("sea")
    path = tmp_path / "a.png"
    path.write_bytes(large[:-12] + text + large[-12:])

    def load(self):
        raise AssertionError("unpacked")

    monkeypatch.setattr(ImageFile, "load_prepare", load)
    keywords = keywords_of(path, "image")
    assert keywords.tags == ["sea"]
    assert keywords.places == ["XMP"]
    assert keywords.unread == []


@pytest.mark.parametrize("suffix", ["heic", "avif"])
def test_pictures_of_phones_are_seen_as_they_are(tmp_path, suffix):
    path = picture(tmp_path / f"a.{suffix}", quality=95)
    expected_path = picture(tmp_path / "a.png")
    pixels = read_picture(path, size=64).astype(int)
    expected = read_picture(expected_path, size=64).astype(int)
    differences = np.abs(pixels - expected)
    assert differences.mean() < 8


@pytest.mark.parametrize("suffix", ["heic", "avif"])
def test_cut_pictures_of_phones_are_one_reason(tmp_path, suffix):
    path = picture(tmp_path / f"a.{suffix}")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(MediaError):
        read_picture(path, size=32)
    keywords_of(path, "image")


def test_a_missing_extra_is_named_once(tmp_path, monkeypatch):
    for name in "abc":
        picture(tmp_path / f"{name}.heic")
    picture(tmp_path / "d.png")
    monkeypatch.delitem(Image.OPEN, "HEIF")
    summary = extract_folder(tmp_path, tmp_path / "out", ImageFeatures(size=32))
    ((names, reason),) = by_reason(summary.skipped)
    assert names == "a.heic, b.heic, c.heic"
    assert reason.startswith("Reading HEIC pictures needs the extra `heic`; pip install")


def test_a_missing_tag_reader_costs_the_tags_only(tmp_path, monkeypatch):
    import soundfile

    soundfile.write(tmp_path / "a.wav", np.sin(np.arange(9000)) / 2, 22_050)
    monkeypatch.setitem(sys.modules, "tinytag", None)
    summary = extract_folder(tmp_path, tmp_path / "out", AudioFeatures())
    assert summary.n_extracted == 1
    assert "needs the extra `audio`" in summary.unread[0][1]


# ---------------------------------------------------------------------- by hand


def png_with(path: Path, *chunks: tuple[bytes, bytes]) -> Path:
    path.write_bytes(png(b"\0" * 20, (4, 4), *chunks, depth=8, colour=0))
    return path


HOSTILE = {
    "entities": b'<!DOCTYPE a [<!ENTITY e "boom">]>' + packet("&e;"),
    "outside": b'<!DOCTYPE a SYSTEM "file:///etc/passwd">' + packet("a"),
    "cut": packet("a")[:-9],
    "no XML": b"\xff\xfe\0\0 nothing",
    "many": packet(*map(str, range(2000))),
    "long": packet("x" * 5000),
    "deep": b"<a>" * 5000,
}


@pytest.mark.parametrize("xmp", HOSTILE.values(), ids=HOSTILE)
def test_hostile_xmp_is_one_unread_place(tmp_path, xmp):
    exif = Image.Exif()
    exif[0x9C9E] = "sea;sky".encode("utf-16-le")
    path = picture(tmp_path / "a.jpg", xmp=xmp, exif=exif)
    keywords = keywords_of(path, "image")
    assert keywords.tags == ["sea", "sky"]
    assert keywords.places == ["EXIF"]
    assert len(keywords.unread) == 1


@pytest.mark.parametrize("where", ["before", "after"])
def test_png_packets_before_and_after_the_pixels(tmp_path, where):
    path = tmp_path / "a.png"
    png_with(path, (b"iTXt", XMP_KEY + packet("sea")))
    if where == "after":
        small = png(b"\0" * 20, (4, 4), depth=8, colour=0)
        path.write_bytes(small[:-12] + packet_chunk("sea") + small[-12:])
    keywords = keywords_of(path, "image")
    assert keywords.tags == ["sea"]


def test_a_text_that_blows_up_is_one_unread_place(tmp_path):
    bomb = b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(bytes(200_000_000), 9)
    path = png_with(tmp_path / "a.png", (b"iTXt", bomb))
    keywords = keywords_of(path, "image")
    assert keywords.tags == []


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("length", [30, 200, 400, 600])
def test_cut_files_never_end_the_work(tmp_path, suffix, length):
    exif = Image.Exif()
    exif[0x9C9E] = "sea;sky".encode("utf-16-le")
    path = picture(tmp_path / f"a.{suffix}", exif=exif)
    path.write_bytes(path.read_bytes()[:length])
    keywords = keywords_of(path, "image")
    assert set(keywords.tags) <= {"sea", "sky"}


@pytest.mark.parametrize(
    "junk", [b"ID3\4\0\0\x7f\x7f\x7f\x7f", b"fLaC", b"OggS", b"\0\0\0 ftypM4A "]
)
def test_broken_sound_tags_never_end_the_work(tmp_path, junk):
    path = tmp_path / "a.mp3"
    path.write_bytes(junk + bytes(2000))
    keywords = keywords_of(path, "audio")
    assert keywords.tags == []


def test_more_than_a_limit_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(keywords._BoundedReader, "bytes_left", 100)
    xmp = packet("sea")
    path = picture(tmp_path / "a.webp", xmp=xmp)
    result = keywords_of(path, "image")
    assert result.tags == []
    assert "MiB would have to be read" in result.unread[0]


def test_a_drawing_has_no_keywords(tmp_path):
    (tmp_path / "a.svg").write_text(DRAWING)
    assert keywords_of(tmp_path / "a.svg", "image")[:3] == ([], [], [])


def test_a_suggestion_that_a_program_copied_into_the_file_does_not_teach(tmp_path):
    path = picture(tmp_path / "a.jpg", xmp=packet("mine", "guessed"))
    sidecar = tmp_path / "a.jpg.xmp"
    merge_tags(sidecar, ["guessed", "other"])
    suggested = keywords_of(path, "image")
    assert suggested.tags == ["mine"]
    answer_suggestions(sidecar, accept=["guessed"])
    accepted = keywords_of(path, "image")
    assert accepted.tags == ["mine", "guessed"]


def test_an_extraction_counts_the_files_with_keywords_by_place(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    picture(folder / "a.jpg", xmp=packet("sea"))
    picture(folder / "b.png")
    picture(folder / "c.webp", xmp=packet("sky"))
    write_sidecar(folder / "c.webp.xmp", ["sand"])
    out = tmp_path / "out"
    summary = extract_folder(folder, out, ImageFeatures(size=32))
    assert summary.keywords() == "2 of 3 files have keywords (XMP 2, sidecar 1)"
    extracted = read_extraction(out)
    assert extracted.tags == (("sea",), (), ("sky", "sand"))


# ---------------------------------------------------------------------- what other programs see


def write_tags(path: Path, labels: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Write the sidecar of one picture as `polyseme tag --sidecars` does."""
    from polyseme.batch.tagging import Tagging

    tagging = Tagging.__new__(Tagging)
    tagging.kind = "image"
    tagging.skipped = []
    tagging.files = []
    record = {"file": path.name, "labels": labels, "kinds": ["seen"] * len(labels)}
    record["scores"] = [0.9] * len(labels)
    monkeypatch.setattr(tagging, "_tag_files", lambda: iter([(path, record)]))
    (written,) = tagging.sidecars()
    return written


def test_a_sidecar_takes_over_what_is_inside_the_picture(tmp_path, monkeypatch):
    xmp = packet("sea").decode()
    xmp = xmp.replace("dc:subject", "lr:hierarchicalSubject")
    xmp = xmp.replace("xmlns:dc=", "xmlns:lr='http://ns.adobe.com/lightroom/1.0/' xmlns:dc=")
    xmp = xmp.replace(">sea<", ">place|sea<")
    exif = Image.Exif()
    exif[0x9C9E] = "sand;Zoë".encode("utf-16-le")
    path = picture(tmp_path / "a.jpg", xmp=xmp.encode(), exif=exif)
    inside = keywords_of(path, "image")
    assert inside.tags == ["place|sea", "sand", "Zoë"]
    assert inside.hierarchies == ["place|sea"]

    outcome = write_tags(path, ["dog", "sea"], monkeypatch)
    assert outcome["added"] == ["dog"]
    sidecar = tmp_path / "a.jpg.xmp"
    text = sidecar.read_text("utf-8")
    for tag in ("place|sea", "sea", "sand", "Zoë", "dog"):
        assert f"<rdf:li>{tag}</rdf:li>" in text
    with_sidecar = keywords_of(path, "image")
    assert with_sidecar.tags == inside.tags
    assert with_sidecar.hierarchies == inside.hierarchies
    undo_suggestions(sidecar)
    assert not sidecar.exists()


def test_the_service_s_sidecars_take_it_over_as_well(tmp_path):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from polyseme.studio.routes.export import add_accepted_tags

    path = picture(tmp_path / "a.jpg", xmp=packet("sea", "sand"))
    assert add_accepted_tags(path, "image", ["dog", "sea"], dry_run=True) == ["dog"]
    assert not (tmp_path / "a.jpg.xmp").exists()
    assert add_accepted_tags(path, "image", ["dog", "sea"], dry_run=False) == ["dog"]
    assert read_sidecar(tmp_path / "a.jpg.xmp")[:3] == (["sea", "sand", "dog"], [], [])
    write_sidecar(tmp_path / "b.jpg.xmp", ["sky"])
    path = picture(tmp_path / "b.jpg", xmp=packet("sea"))
    assert add_accepted_tags(path, "image", ["sea"], dry_run=False) == ["sea"]


def tags_in_darktable(folder: Path, names: list[str]) -> dict[str, set[str]]:
    """Return what darktable takes for the tags of pictures that it imports."""
    library = folder / "library.db"
    settings = folder / "settings"
    exported = folder / "exported"
    exported.mkdir()
    command = ["darktable-cli"]
    for name in names:
        command += ["--import", str(folder / name)]
    command += [str(exported), "--out-ext", "jpg", "--core"]
    command += ["--library", str(library)]
    command += ["--configdir", str(settings)]
    command += ["--cachedir", str(folder / "cache"), "--disable-opencl"]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    query = (
        "SELECT filename, name FROM images JOIN tagged_images ON imgid = images.id "
        "JOIN tags.tags ON tags.tags.id = tagid WHERE name NOT LIKE 'darktable|%'"
    )
    with closing(sqlite3.connect(library)) as connection:
        connection.execute("ATTACH ? AS tags", (str(settings / "data.db"),))
        rows = connection.execute(query).fetchall()
    tags_by_name = {name: set() for name in names}
    for name, tag in rows:
        tags_by_name[name].add(tag)
    return tags_by_name


@needs_exiftool
@pytest.mark.skipif(shutil.which("darktable-cli") is None, reason="darktable is not installed")
def test_darktable_sees_the_keywords_of_people_and_ours(tmp_path, monkeypatch):
    names = ["iptc.jpg", "inside.jpg", "beside.jpg", "nothing.jpg"]
    paths = {name: picture(tmp_path / name) for name in names}
    utf8 = "-IPTC:CodedCharacterSet=UTF8"
    exiftool(paths["iptc.jpg"], utf8, "-IPTC:Keywords=iptckey", "-IPTC:Keywords=Zoë")
    exiftool(paths["inside.jpg"], "-XMP-lr:HierarchicalSubject=x|y|z")
    exiftool(tmp_path / "beside.jpg.xmp", "-XMP-lr:HierarchicalSubject=animal|bird|São Paulo")
    for path in paths.values():
        write_tags(path, ["face", "parts|eye"], monkeypatch)
    ours = {"face", "parts|eye"}
    assert tags_in_darktable(tmp_path, names) == {
        "iptc.jpg": {"iptckey", "Zoë"} | ours,
        "inside.jpg": {"x|y|z"} | ours,
        "beside.jpg": {"animal|bird|São Paulo"} | ours,
        "nothing.jpg": ours,
    }


@needs_exiftool
def test_exiftool_has_nothing_to_say_against_a_sidecar(tmp_path, monkeypatch):
    path = picture(tmp_path / "a.jpg")
    exiftool(path, "-XMP-lr:HierarchicalSubject=x|y|z", "-EXIF:XPKeywords=sand")
    write_tags(path, ["dog"], monkeypatch)
    sidecar = tmp_path / "a.jpg.xmp"
    command = ["exiftool", "-validate", "-warning", "-error", "-a", str(sidecar)]
    process = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    (line,) = process.stdout.splitlines()
    _, verdict = line.split(":")
    assert verdict.strip() == "OK"
