"""A folder of media becomes a folder of numbers: resumed, cached, every file accounted for."""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from killed_writers import killed_while_writing
from media_files import make_odd_pictures
from polyseme import AudioFeatures, ImageFeatures, extract_folder
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.io.join import match_files
from polyseme.media import extraction, feature_store, read_extraction
from polyseme.media.base import MediaError, MediaFeatures
from polyseme.media.feature_store import FeatureStore, FileHash, from_caches
from polyseme.media.xmp import merge_tags
from polyseme.storage.atomic_files import sealed, summary_of, unsealed
from sidecar_files import write_sidecar
from sound_files import make_odd_sounds, wav


class Letters(MediaFeatures):
    """A feature extractor for tests: text files, whose numbers are letter counts."""

    kind = "image"
    suffixes = frozenset({".txt"})
    batch_size = 2

    def __init__(self, version=1, n_jobs=1):
        self.version = version
        self.n_jobs = n_jobs
        self.looked: list[str] = []

    def preprocessing(self):
        return {"version": self.version}

    def extract_batch(self, items: Sequence[object]):
        rows = []
        for item in items:
            if not Path(str(item)).exists():
                rows.append(MediaError("is gone"))
                continue
            text = Path(str(item)).read_text()
            self.looked.append(Path(str(item)).name)
            if text == "stop":
                raise KeyboardInterrupt
            counts = np.array([text.count("a"), text.count("b")], dtype=np.float32)
            rows.append(MediaError("is bad") if text == "bad" else counts)
        return rows


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    (folder / "below").mkdir(parents=True)
    for name, text in {"a.txt": "aab", "b.txt": "bad", "below/c.txt": "abb", "d.png": "?"}.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def ledger(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "files.jsonl").read_text().splitlines()]


def test_every_file_is_in_the_ledger(texts, out):
    calls = []
    summary = extract_folder(texts, out, Letters(), progress=lambda *counts: calls.append(counts))
    assert summary.sentence() == (
        "2 of 3 picture files extracted, 1 skipped; 1 other file passed over"
    )
    assert [done for done, _, _ in calls] == [1, 2, 3]
    assert calls[-1] == (3, 3, 1)
    outcomes = [(row["file"], row["outcome"]) for row in ledger(out)]
    assert outcomes == [
        ("a.txt", "extracted"),
        ("below/c.txt", "extracted"),
        ("b.txt", "skipped"),
        ("d.png", "passed over"),
    ]


def test_features_are_in_the_order_of_the_ledger(texts, out):
    extract_folder(texts, out, Letters())
    extracted = read_extraction(out)
    assert extracted.ids == ("a.txt", "below/c.txt")
    assert_array_equal(extracted.raw, [[2, 1], [1, 2]])
    assert_array_equal(np.load(out / "features.npy"), extracted.raw)
    assert extracted.skipped == (("b.txt", "is bad"),)


def test_an_extraction_is_indexed_as_an_array(texts, out):
    extract_folder(texts, out, Letters())
    extracted = read_extraction(out)
    first, second = extracted.ids
    for index in ([1], slice(1, None), np.array([False, True]), 1):
        assert extracted[index].ids == (second,)
    assert extracted[::-1].ids == (second, first)


def test_different_files_with_the_same_features_are_reported(texts, out):
    summary = extract_folder(texts, out, Letters())
    assert summary.alike == ()
    assert summary.sameness() == ""
    (texts / "copy.txt").write_text("aab")
    assert extract_folder(texts, out, Letters()).alike == (), "a copy is the same picture"
    (texts / "other.txt").write_text("aba")
    summary = extract_folder(texts, out, Letters())
    assert summary.alike == ("a.txt", "copy.txt", "other.txt")
    assert "3 of 4 pictures have the same features as another one" in summary.sameness()


def test_clips_with_the_same_features_are_counted(tmp_path, out):
    pytest.importorskip("soundfile", reason="needs the extra `audio`")
    folder = tmp_path / "clips"
    folder.mkdir()
    for name, rate in (("a.wav", 22050), ("b.wav", 44100)):
        silence = np.zeros((rate, 1))
        content = wav(silence, rate)
        (folder / name).write_bytes(content)
    summary = extract_folder(folder, out, AudioFeatures())
    assert "2 of 2 sounds have the same features as another one" in summary.sameness()


def test_files_that_were_renamed_or_copied_come_from_the_cache(texts, out):
    extract_folder(texts, out, Letters())
    new_path = texts / "renamed.txt"
    (texts / "a.txt").rename(new_path)
    shutil.copy(new_path, texts / "copy.txt")
    (texts / "new.txt").write_text("b")
    extractor = Letters()
    summary = extract_folder(texts, out, extractor)
    assert sorted(extractor.looked) == ["b.txt", "new.txt"], "the bad one is tried again"
    assert summary.n_extracted == 4
    assert summary.n_cached == 3
    extracted = read_extraction(out)
    assert extracted.ids == ("copy.txt", "new.txt", "renamed.txt", "below/c.txt")


def test_changed_content_is_looked_at_again(texts, out):
    extract_folder(texts, out, Letters())
    path = texts / "a.txt"
    status = path.stat()
    path.write_text("bba")  # of the same size, and below of the same time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    extractor = Letters()
    extract_folder(texts, out, extractor)
    assert "a.txt" in extractor.looked
    assert "c.txt" not in extractor.looked
    extracted = read_extraction(out)
    assert_array_equal(extracted.raw[0], [1, 2])


def test_another_version_looks_at_everything_again(texts, out):
    extract_folder(texts, out, Letters())
    summary = extract_folder(texts, out, Letters(version=2))
    assert summary.n_cached == 0
    extracted = read_extraction(out)
    assert extracted.preprocessing == {"version": 2}


def test_an_interrupted_extraction_goes_on_where_it_stopped(tmp_path, out, monkeypatch):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02}.txt").write_text("a" * number)
    (folder / "15.txt").write_text("stop")
    with pytest.raises(KeyboardInterrupt):
        extract_folder(folder, out, Letters())
    with pytest.raises(InputError, match="is not finished"):
        read_extraction(out)
    (folder / "15.txt").write_text("a")
    extractor = Letters()
    summary = extract_folder(folder, out, extractor)
    assert summary.n_extracted == 20
    assert summary.n_cached >= 10
    assert len(extractor.looked) == 20 - summary.n_cached
    monkeypatch.setattr(Letters, "single_threaded", None)  # when all is known, nothing is loaded
    assert extract_folder(folder, out, Letters()).n_cached == 20


def test_a_file_that_changes_meanwhile_is_skipped(texts, out):
    class Changing(Letters):
        def extract_batch(self, items):
            rows = super().extract_batch(items)
            (texts / "a.txt").write_text("aaaaaaaa")
            return rows

    reasons = dict(extract_folder(texts, out, Changing()).skipped)
    assert reasons["a.txt"] == "was changed while it was looked at; run again"


def test_an_engine_gives_the_same_bytes(texts, tmp_path):
    plain = tmp_path / "plain"
    by_engine = tmp_path / "engine"
    extract_folder(texts, plain, Letters())
    engine = SimpleNamespace(map=map)
    extract_folder(texts, by_engine, Letters(), engine=engine)
    for name in ("features.npy", "files.jsonl", "extraction.json"):
        content = (by_engine / name).read_bytes()
        expected = (plain / name).read_bytes()
        assert content == expected


def test_a_file_that_vanishes_is_skipped(texts, out):
    def vanish(function, pieces):
        if function is not extraction._hash_files:
            (texts / "a.txt").unlink()
        return map(function, pieces)

    engine = SimpleNamespace(map=vanish)
    summary = extract_folder(texts, out, Letters(), engine=engine)
    reasons = dict(summary.skipped)
    assert reasons["a.txt"] == "cannot be opened (no such file or directory)"


def test_tags_of_sidecars_are_noted_but_for_suggested_ones(texts, out):
    write_sidecar(texts / "a.txt.xmp", ["sun", "sea"])
    merge_tags(texts / "a.txt.xmp", ["guessed"])
    (texts / "below" / "c.txt.xmp").write_text("no XML")
    summary = extract_folder(texts, out, Letters())
    assert [name for name, _ in summary.unread] == ["below/c.txt"]
    assert summary.keywords() == "1 of 2 files have keywords (sidecar 1)"
    extracted = read_extraction(out)
    assert extracted.tags == (("sun", "sea"), ())
    assert extracted[[1, 0]].tags == ((), ("sun", "sea"))


def test_features_come_from_caches(texts, out):
    extract_folder(texts, out, Letters())
    caches = [out / "cache.sqlite", out / "no.sqlite"]
    path = texts / "a.txt"
    missing = [texts / "b.txt", texts / "nowhere.txt"]
    cached = from_caches(caches, Letters().digest(), [path, *missing])
    assert list(cached) == [path]
    of_another_version = Letters(version=2).digest()
    assert from_caches(caches, of_another_version, [path]) == {}


@pytest.mark.parametrize(
    "damage",
    ["no database", "UPDATE numbers SET shape = '[7]'", "UPDATE numbers SET shape = NULL"],
)
def test_damaged_caches_are_passed_over(texts, out, damage):
    extract_folder(texts, out, Letters())
    cache = out / "cache.sqlite"
    digest = Letters().digest()
    if damage == "no database":
        cache.write_bytes(b"no database" * 99)
    else:
        with FeatureStore(cache, digest) as store:
            store._run(damage)
    cached = from_caches([cache], digest, [texts / "a.txt"])
    assert cached == {}


def test_a_cache_that_is_being_written_is_passed_over(texts, out):
    extract_folder(texts, out, Letters())
    cache = out / "cache.sqlite"
    path = texts / "a.txt"
    digest = Letters().digest()
    with FeatureStore(cache, digest) as store:
        store.note(path, FileHash("state", b"content"))
        cached = from_caches([cache], digest, [path])
    assert cached == {}


def test_folders_that_cannot_be_used_are_named(texts, tmp_path, out):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for source, target, complaint in [
        (tmp_path / "nowhere", out, "no folder"),
        (texts, texts, "two folders"),
        (texts, tmp_path / "full", "holds 'thesis.tex' and no mark that polyseme made it"),
        (texts, tmp_path / "file", "is a file"),
        (tmp_path / "empty", out, r"no image file in .* \(0 other files\)"),
    ]:
        with pytest.raises(InputError, match=complaint):
            extract_folder(source, target, Letters())
    extract_folder(texts, out, Letters())
    with pytest.raises(InputError, match="holds numbers of image files"):
        extract_folder(texts, out, AudioFeatures())
    for name in ("a.txt", "below/c.txt"):
        (texts / name).write_text("bad")
    with pytest.raises(
        InputError, match=r"None of the 3 image files .* a.txt, b.txt, below/c.txt: is bad"
    ):
        extract_folder(texts, tmp_path / "out2", Letters())


def test_numbers_inside_the_folder_of_media_are_left_out(texts):
    numbers = texts / "numbers"
    extract_folder(texts, numbers, Letters())
    summary = extract_folder(texts, numbers, Letters())
    assert summary.n_extracted == 2
    assert [name for name, _ in summary.others] == ["d.png"]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda out: (out / "extraction.json").write_text("{"), "extraction.json' was damaged"),
        (
            lambda out: (out / "extraction.json").write_text(
                '{"format": "polyseme extraction", "version": 99, "kind": "image"}'
            ),
            "another version of polyseme; extract the files to another folder",
        ),
        (lambda out: (out / "features.npy").write_bytes(b"x"), "features.npy' was damaged"),
        (
            lambda out: np.save(out / "features.npy", np.ones((2, 2), np.float32)),
            "features.npy' was damaged",
        ),
        (lambda out: flip(out / "features.npy", 130), "features.npy' was damaged"),
        (lambda out: flip(out / "files.jsonl", 9), "files.jsonl' was damaged"),
        (lambda out: flip(out / "extraction.json", 99), "extraction.json' was damaged"),
        (lambda out: (out / "files.jsonl").unlink(), "files.jsonl' was damaged"),
        (lambda out: (out / "extraction.json").unlink(), "is not finished"),
        (shutil.rmtree, "no folder that `polyseme extract` wrote"),
    ],
)
def test_damaged_extractions_are_refused(texts, out, damage, complaint):
    extract_folder(texts, out, Letters())
    damage(out)
    with pytest.raises(InputError, match=complaint):
        read_extraction(out)


def reseal(out: Path, **changes: object) -> None:
    """Write the manifest anew, with digests that fit whatever lies beside it."""
    path = out / "extraction.json"
    manifest = unsealed(path.read_bytes())
    manifest["files"] = {name: summary_of(out / name) for name in manifest["files"]}
    path.write_bytes(sealed(manifest | changes))


def test_numbers_and_a_manifest_that_nobody_wrote_are_refused_whatever_digests_say(texts, out):
    extract_folder(texts, out, Letters())
    numbers = (out / "features.npy").read_bytes()
    for wrong in (b"", numbers[:20], numbers.replace(b"(2, 2)", b"(4,)  ")):
        (out / "features.npy").write_bytes(wrong)
        reseal(out)
        with pytest.raises(InputError, match=r"features.npy is not readable|does not fit its"):
            read_extraction(out)
    (out / "features.npy").write_bytes(numbers)
    for name in ("preprocessing", "parameters", "kind"):
        reseal(out, **{name: [5]})
        with pytest.raises(InputError, match=r"extraction.json' was damaged"):
            read_extraction(out)
        reseal(out, **{name: "image" if name == "kind" else {}})


@pytest.mark.parametrize("name", ["extraction.json", "files.jsonl", "features.npy"])
@pytest.mark.parametrize("damage", ["bit", "cut", "gone"])
def test_damaged_files_are_rebuilt_by_the_next_extraction(texts, out, name, damage):
    extract_folder(texts, out, Letters())
    content_by_name = {}
    for path in out.iterdir():
        if "cache" not in path.name:
            content_by_name[path.name] = path.read_bytes()
    damaged = out / name
    if damage == "bit":
        flip(damaged, 20)
    elif damage == "cut":
        damaged.write_bytes(content_by_name[name][:30])
    else:
        damaged.unlink()
    context = nullcontext()
    if name == "extraction.json" and damage != "gone":
        context = pytest.warns(PolysemeWarning, match="made again")
    with context:
        summary = extract_folder(texts, out, Letters())
    assert summary.n_cached == 2
    for file_name, content in content_by_name.items():
        assert (out / file_name).read_bytes() == content
    assert len(read_extraction(out)) == 2


def test_no_bit_of_a_cache_can_change_the_numbers(texts, out):
    """Wherever it is: numbers, hashes, keys, or the pages of the database."""
    for number in range(30):
        (texts / f"{number}.txt").write_text("ab" * number)
    extract_folder(texts, out, Letters())
    features = out / "features.npy"
    files = out / "files.jsonl"
    cache = out / "cache.sqlite"
    feature_bytes = features.read_bytes()
    file_bytes = files.read_bytes()
    cache_bytes = cache.read_bytes()
    random_places = np.random.default_rng(0).integers(0, len(cache_bytes), 60)
    n_warned = 0
    for place in [0, 18, 40, *random_places.tolist()]:
        cache.write_bytes(cache_bytes)
        flip(cache, place)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            summary = extract_folder(texts, out, Letters())
        assert features.read_bytes() == feature_bytes
        assert files.read_bytes() == file_bytes
        messages = [str(warning.message) for warning in caught]
        warned = any("made again" in message for message in messages)
        n_warned += warned
        assert n_warned or summary.n_cached == 32, "a loss causes a warning"
    assert n_warned > 3


LINES = [
    "3",
    "null",
    "[]",
    "{",
    "[" * 100_000,
    '{"outcome": "extracted", "row": 0}',
    '{"file": "a.txt", "row": 0}',
    '{"file": ["a.txt"], "outcome": "extracted", "row": 0}',
    '{"file": "a.txt", "outcome": "extracted", "row": 1}',
    '{"file": "a.txt", "outcome": "extracted", "row": 0, "segments": -1}',
    '{"file": "a.txt", "outcome": "extracted", "row": 0, "segments": "2"}',
    '{"file": "a.txt", "outcome": "extracted", "row": 0, "segments": 1e999}',
    '{"file": "a.txt", "outcome": "extracted", "row": 0, "tags": "sea"}',
    '{"file": "a.txt", "outcome": "extracted", "row": 0, "tags": [3]}',
    '{"file": "a.txt", "outcome": "skipped"}',
]


def craft(out, name, data):
    """Put other bytes in the place of a file, and their digests into the manifest."""
    (out / name).write_bytes(data)
    path = out / "extraction.json"
    manifest = unsealed(path.read_bytes())
    manifest["files"][name] = summary_of(out / name)
    path.write_bytes(sealed(manifest))


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:70])
def test_a_crafted_ledger_is_refused_in_a_sentence(texts, out, line):
    extract_folder(texts, out, Letters())
    content = (out / "files.jsonl").read_bytes()
    _, *following_lines = content.split(b"\n")
    crafted = b"\n".join([line.encode(), *following_lines])
    craft(out, "files.jsonl", crafted)
    with pytest.raises(InputError, match=r"files.jsonl' was damaged"):
        read_extraction(out)


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.zeros(2, "f4"), np.array([["a"], ["b"]])])
def test_crafted_numbers_are_refused_in_a_sentence(texts, out, array):
    extract_folder(texts, out, Letters())
    np.save(out / "crafted.npy", array)
    craft(out, "features.npy", (out / "crafted.npy").read_bytes())
    with pytest.raises(InputError, match="does not fit its numbers"):
        read_extraction(out)


@pytest.mark.parametrize("name", ["kind", "files", "preprocessing", "parameters"])
@pytest.mark.parametrize("value", [None, 3, [], ["image"]])
def test_a_crafted_manifest_is_refused_in_a_sentence(texts, out, name, value):
    extract_folder(texts, out, Letters())
    path = out / "extraction.json"
    manifest = unsealed(path.read_bytes())
    manifest[name] = value
    path.write_bytes(sealed(manifest))
    with pytest.raises(InputError, match="was damaged or changed after it was written"):
        read_extraction(out)


@pytest.mark.parametrize(
    ("statement", "n_damaged", "n_cached"),
    [
        ("UPDATE numbers SET raw = zeroblob(8)", 2, 0),
        ("UPDATE files SET content = zeroblob(32)", 3, 2),
    ],
)
def test_a_damaged_cache_causes_a_warning_and_the_same_features(
    texts, out, statement, n_damaged, n_cached
):
    extract_folder(texts, out, Letters())
    features = (out / "features.npy").read_bytes()
    with FeatureStore(out / "cache.sqlite", Letters().digest()) as store:
        store._run(statement)
    message = rf"Damaged in '.*cache.sqlite', and made again: {n_damaged} "
    with pytest.warns(PolysemeWarning, match=message):
        summary = extract_folder(texts, out, Letters())
    assert summary.n_cached == n_cached
    assert (out / "features.npy").read_bytes() == features


@pytest.mark.parametrize("n_files", [1, 3, 4])
def test_a_folder_with_files_of_those_names_is_not_ours(texts, out, n_files):
    out.mkdir()
    contents = {
        "cache.sqlite": b"mine",
        "features.npy": b"my thesis",
        "files.jsonl": b"my list",
        "extraction.json": b"{}",
    }
    present = dict(list(contents.items())[:n_files])
    for name, content in present.items():
        (out / name).write_bytes(content)
    with pytest.raises(InputError, match=r"no mark that polyseme made it; name a folder that"):
        extract_folder(texts, out, Letters())
    remaining = {path.name: path.read_bytes() for path in out.iterdir()}
    assert remaining == present
    assert extraction.caches_beside(out.parent / "model") == []


def test_what_a_killed_extraction_leaves_is_overwritten_by_the_next(texts, out):
    extract_folder(texts, out, Letters())
    names = {path.name for path in out.iterdir()}
    killed_while_writing(out / "features.npy")
    (out / "thesis.tmp").write_text("mine")
    names_after_kill = {path.name for path in out.iterdir()}
    assert len(names_after_kill - names) == 2
    extract_folder(texts, out, Letters())
    names_after_next = {path.name for path in out.iterdir()}
    assert names_after_next == names | {"thesis.tmp"}


@pytest.mark.parametrize("moment", ["cache", "commit", "table"])
def test_a_full_disk_gets_one_sentence_and_finished_work_is_kept(texts, out, monkeypatch, moment):
    for number in range(400):
        (texts / f"{number}.txt").write_text("ab" * number)
    extract_folder(texts / "below", out, Letters())
    with monkeypatch.context() as patch:
        if moment == "table":
            patch.setattr(os, "fsync", full)
        else:
            most = 24 if moment == "cache" else 12
            schema = (
                f"{feature_store._SCHEMA} PRAGMA max_page_count = {most}; PRAGMA cache_size = 1;"
            )
            patch.setattr(feature_store, "_SCHEMA", schema)
        if moment == "commit":
            patch.setattr(FeatureStore, "find", lambda store, content: None)
        with pytest.raises(InputError, match=r"Nothing can be written to '.*out'.*(full|No space)"):
            extract_folder(texts, out, Letters())
    assert len(read_extraction(out)) == 1, "the former one is whole"
    assert extract_folder(texts, out, Letters()).n_extracted == 402


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_without_room_for_the_numbers_is_found_out_before(texts, out, monkeypatch):
    usage = SimpleNamespace(free=3)
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(InputError, match=r"has 0.00 GB left, and 0.00 are needed; make room"):
        extract_folder(texts, out, Letters())


def test_loops_of_links_are_refused_or_skipped(texts, tmp_path, out):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (texts / "loop.txt").symlink_to(texts / "loop.txt")
    (texts / "around").symlink_to(texts)
    with pytest.raises(InputError, match="There is no folder"):
        extract_folder(loop, out, Letters())
    with pytest.raises(InputError, match="is a link that leads nowhere"):
        extract_folder(texts, loop, Letters())
    summary = extract_folder(texts, out, Letters())
    assert ("loop.txt", "cannot be opened (too many levels of symbolic links)") in summary.skipped
    assert ("around", "is a link to a folder") in summary.others


def test_the_store_keeps_arrays_by_preprocessing_and_for_one_writer(texts, tmp_path, out):
    table = np.arange(72, dtype=np.float32).reshape(2, 36)
    path = tmp_path / "cache.sqlite"
    with FeatureStore(path, "one") as store:
        store.put(b"x", table)
        assert store.find(b"y") is None
        assert store.shape_of(b"x") == (2, 36)
    with FeatureStore(path, "one") as store:
        assert_array_equal(store.get(b"x"), table)
    with FeatureStore(path, "two") as store:
        assert store.find(b"x") is None
        assert not store.n_damaged
    extract_folder(texts, out, Letters())
    with (
        FeatureStore(out / "cache.sqlite", "one"),
        pytest.raises(InputError, match="Another extraction is writing"),
    ):
        extract_folder(texts, out, Letters())
    (out / "cache.sqlite").write_bytes(b"no database" * 1000)
    with pytest.warns(PolysemeWarning, match=r"is damaged \(file is not a database\). It is made"):
        assert extract_folder(texts, out, Letters()).n_cached == 0
    assert extract_folder(texts, out, Letters()).n_cached == 2


def test_names_that_are_no_text_and_names_with_odd_line_ends_are_kept(tmp_path, out):
    folder = tmp_path / "texts"
    folder.mkdir()
    names = ["line\u2028end.txt", "next\u0085line.txt", "new\nline.txt", "plain.txt"]
    if os.name == "posix":
        names.append(os.fsdecode(b"bad\xff.txt"))
    for name in names:
        (folder / name).write_text(name.encode("ascii", "replace").decode())
    extract_folder(folder, out, Letters())
    assert set(read_extraction(out).ids) == set(names)
    assert extract_folder(folder, out, Letters()).n_cached == len(names)


@pytest.mark.parametrize(
    ("make", "extractor"),
    [(make_odd_pictures, ImageFeatures(size=32)), (make_odd_sounds, AudioFeatures())],
    ids=["pictures", "sounds"],
)
def test_odd_files_are_survived_and_each_is_accounted_for(tmp_path, out, make, extractor):
    folder = tmp_path / "odd"
    folder.mkdir()
    verdict_by_name = make(folder)

    def times():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.exists()}

    times_before = times()
    summary = extract_folder(folder, out, extractor)
    assert times() == times_before, "the media themselves are never touched"

    outcome_by_verdict = {"good": "extracted", "broken": "skipped", "other": "passed over"}
    outcomes = {row["file"]: row["outcome"] for row in ledger(out)}
    expected = {}
    for name, verdict in verdict_by_name.items():
        # A folder is looked into, whatever its name is.
        if (folder / name).is_symlink() or name in outcomes:
            expected[name] = outcome_by_verdict[verdict]
    assert outcomes == expected
    for _, reason in summary.skipped:
        assert 0 < len(reason) < 200
    extracted = read_extraction(out)
    for raw in extracted.raw:
        assert np.isfinite(raw).all()
    features = extractor.fit(extracted).transform(extracted)
    assert len(features) == len(extracted)


@pytest.mark.parametrize(
    "names",
    [
        ["x/a.png", "b.png"],
        ["a.png", "b.png"],
        ["a", "b"],
        ["./x\\a.png", "b.png"],
        ["photos/x/a.png", "/home/me/b.png"],
        ["X/A.PNG", "B"],
    ],
)
def test_documents_find_their_files_by_path_name_or_stem(names):
    files, documents = match_files(["b.png", "x/a.png", "c.png"], [*names, "nobody"])
    assert files.tolist() == [1, 0]
    assert documents.tolist() == [0, 1]


def test_ambiguous_and_unknown_names_are_refused():
    assert match_files(["Zoe\u0308.png"], ["Zo\u00eb.png"])[0].tolist() == [0], "composed"
    with pytest.raises(InputError, match=r"Several files are called 'a\.png', such as x/a\.png"):
        match_files(["x/a.png", "y/a.png"], ["a.png"])
    with pytest.raises(InputError, match=r"'x/a\.png' and 'a' both name the file 'x/a\.png'"):
        match_files(["x/a.png", "y/b.png"], ["x/a.png", "a"])
    with pytest.raises(InputError, match=r"No document names one of the files: .* 0, 1"):
        match_files(["a.png"], ["0", "1"])
