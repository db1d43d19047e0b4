from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyseme._validation import InputError
from polyseme.corpus import LabelCorpus
from polyseme_experiments.datasets import clips as module
from polyseme_experiments.datasets.clips import (
    LICENCE_FILE,
    RATE,
    SECONDS,
    TAGS_FILE,
    ClipCorpus,
    load_clips,
)

FOLDER = Path(module.__file__).parent / "clips_data"
N = 640
MUSIC = json.loads((FOLDER / "music.json").read_text("utf-8"))
VOICES, RULES = MUSIC["voices"], MUSIC["rules"]


@pytest.fixture(scope="module")
def corpus() -> ClipCorpus:
    return load_clips()


def frequencies(documents: list[list[str]]) -> Counter[str]:
    return Counter(label for labels in documents for label in labels)


def given(corpus: ClipCorpus) -> list[tuple[set[str], dict[str, Any]]]:
    """Pair all true labels of each clip with its facts."""
    return [
        (set(labels), facts) for labels, facts in zip(corpus.complete, corpus.facts, strict=True)
    ]


# ---------------------------------------------------------------------- what is there


def test_every_list_has_one_entry_per_clip(corpus: ClipCorpus) -> None:
    fields = ("ids", "documents", "complete", "groups", "facts", "sounds")
    assert {field: len(getattr(corpus, field)) for field in fields} == dict.fromkeys(fields, N)
    assert corpus.ids == [f"{number:04d}.ogg" for number in range(1, N + 1)]
    assert len(set(corpus.sounds)) == N


def test_a_group_is_two_variations_in_one_style_with_different_tags(corpus: ClipCorpus) -> None:
    members: dict[str, list[int]] = {}
    for clip, group in enumerate(corpus.groups):
        members.setdefault(group, []).append(clip)
    assert len(members) == N // 2
    for one, other in members.values():
        assert corpus.facts[one]["voices"] == corpus.facts[other]["voices"]
        assert corpus.facts[one]["style"] == corpus.facts[other]["style"]
        assert corpus.complete[one] != corpus.complete[other]


def test_label_statistics_are_as_promised(corpus: ClipCorpus) -> None:
    counts = frequencies(corpus.documents)
    assert len(counts) == 53
    assert min(counts.values()) >= 20
    assert max(counts.values()) <= N / 4
    assert {len(labels) for labels in corpus.documents} == {5, 6, 7, 8}


def test_given_labels_are_sorted_and_true(corpus: ClipCorpus) -> None:
    for labels, true in zip(corpus.documents, corpus.complete, strict=True):
        assert labels == sorted(set(labels))
        assert set(labels) <= set(true)


def test_no_two_labels_are_on_the_same_clips(corpus: ClipCorpus) -> None:
    rows: dict[str, list[int]] = {}
    for clip, labels in enumerate(corpus.complete):
        for label in labels:
            rows.setdefault(label, []).append(clip)
    assert len({tuple(clips) for clips in rows.values()}) == len(rows)


@pytest.mark.parametrize("min_count", [1, 60, 100])
def test_min_count_keeps_exactly_the_frequent_labels(corpus: ClipCorpus, min_count: int) -> None:
    counts = frequencies(corpus.documents)
    kept = {label for label, count in counts.items() if count >= min_count}
    chosen = load_clips(min_count=min_count)
    assert chosen.documents == [[one for one in row if one in kept] for row in corpus.documents]
    assert chosen.complete == [[one for one in row if one in kept] for row in corpus.complete]


# ---------------------------------------------------------------------- tags hold


def test_instruments_and_families_are_those_of_the_voices(corpus: ClipCorpus) -> None:
    instruments = {voice["label"] for voice in VOICES.values()}
    families = {family for voice in VOICES.values() for family in voice["families"]}
    assert (len(instruments), len(families)) == (23, 7)
    for labels, facts in given(corpus):
        played = [VOICES[name] for name in facts["voices"]]
        assert labels & instruments == {voice["label"] for voice in played}
        assert labels & families == {family for voice in played for family in voice["families"]}
        assert facts["programs"] == [voice["program"] for voice in played]
        assert ("solo" in labels) == (len(played) == 1)


def test_a_style_is_given_as_its_label_alone(corpus: ClipCorpus) -> None:
    for labels, facts in given(corpus):
        assert labels & set(MUSIC["styles"]) == {facts["style"]}


def test_words_for_tempo_agree_with_the_beat(corpus: ClipCorpus) -> None:
    for labels, facts in given(corpus):
        word = next(iter(labels & {"slow", "fast"}), "moderate")
        low, high = RULES["tempo"][word]
        assert low <= facts["bpm"] <= high


def test_words_for_register_agree_with_the_pitches(corpus: ClipCorpus) -> None:
    for labels, facts in given(corpus):
        lower, median, upper = facts["pitches"]
        assert lower <= median <= upper
        assert ("low" in labels) == (upper <= 54)
        assert ("high" in labels) == (lower >= 70)


def test_pitches_lie_in_the_range_of_some_voice(corpus: ClipCorpus) -> None:
    for _, facts in given(corpus):
        ranges = [VOICES[name]["range"] for name in facts["voices"] if name != "drums"]
        for pitch in facts["pitches"]:
            assert any(low <= pitch <= high for low, high in ranges)


def test_words_for_loudness_agree_with_the_level(corpus: ClipCorpus) -> None:
    for labels, facts in given(corpus):
        word = next(iter(labels & {"soft", "loud"}), "plain")
        assert facts["dynamics"] == word
        low, high = RULES["level"][word]
        assert low <= facts["level"] <= high


def test_touch_is_named_only_where_the_voices_can_do_it(corpus: ClipCorpus) -> None:
    for labels, facts in given(corpus):
        assert next(iter(labels & {"legato", "staccato"}), "plain") == facts["touch"]
        sounds = {VOICES[name]["sound"] for name in facts["voices"]} - {"drums"}
        assert facts["touch"] != "legato" or sounds == {"sustained"}
        assert facts["touch"] != "staccato" or "ringing" not in sounds


def test_moods_follow_from_the_other_tags(corpus: ClipCorpus) -> None:
    for labels, _ in given(corpus):
        driven = bool(labels & {"loud", "drums"})
        assert ("calm" in labels) == ("slow" in labels and not driven)
        assert ("energetic" in labels) == ("fast" in labels and driven)
        assert ("bright" in labels) == ("high" in labels and "soft" not in labels)
        assert ("dreamy" in labels) == ("slow" in labels and bool(labels & {"soft", "ambient"}))
        heavy = "loud" in labels and bool(labels & {"electric guitar", "low"})
        assert ("heavy" in labels) == heavy
        lively_folk = "folk" in labels and "slow" not in labels
        dance = "latin" in labels or lively_folk or {"jazz", "fast"} <= labels
        assert ("dance" in labels) == dance


def test_one_instrument_keeps_two_kinds_of_company(corpus: ClipCorpus) -> None:
    families = {
        ("bowed" in labels, "plucked" in labels)
        for labels, facts in given(corpus)
        if [VOICES[name]["label"] for name in facts["voices"]] == ["double bass"]
    }
    assert families == {(True, False), (False, True)}


# ---------------------------------------------------------------------- sound


def test_clips_decode_to_the_stated_length_rate_and_level(corpus: ClipCorpus) -> None:
    soundfile = pytest.importorskip("soundfile", reason="the extra `audio` is not installed")
    for clip in range(0, N, N // 20):
        samples, rate = soundfile.read(io.BytesIO(corpus.sounds[clip]))
        assert (rate, samples.shape) == (RATE, (round(RATE * SECONDS),))
        level = 10 * np.log10(np.mean(samples**2))
        assert level == pytest.approx(corpus.facts[clip]["level"], abs=0.2)
        assert np.abs(samples[-200:]).max() < 0.1 * np.abs(samples).max() + 1e-3


def test_low_clips_sound_lower_than_high_ones(corpus: ClipCorpus) -> None:
    soundfile = pytest.importorskip("soundfile", reason="the extra `audio` is not installed")
    centres: dict[str, list[float]] = {"low": [], "high": []}
    for clip, (labels, facts) in enumerate(given(corpus)):
        for word in labels & set(centres):
            if "drums" not in facts["voices"] and len(centres[word]) < 20:
                samples, _ = soundfile.read(io.BytesIO(corpus.sounds[clip]))
                power = np.abs(np.fft.rfft(samples)) ** 2
                centres[word].append(float(np.average(np.arange(len(power)), weights=power)))
    assert np.median(centres["low"]) < 0.6 * np.median(centres["high"])


# ---------------------------------------------------------------------- writing


def test_write_unpacks_every_clip_beside_its_tags(corpus: ClipCorpus, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "clips"
    paths = corpus.write(folder)
    assert [path.name for path in paths] == corpus.ids
    assert [path.read_bytes() for path in paths] == corpus.sounds
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*corpus.ids, TAGS_FILE, LICENCE_FILE]
    )
    tags = LabelCorpus.read(folder / TAGS_FILE)
    assert list(tags.ids or ()) == corpus.ids
    assert [sorted(tags.document(row)) for row in range(N)] == corpus.documents
    rows = [json.loads(line) for line in (folder / TAGS_FILE).read_text("utf-8").splitlines()]
    assert [row["group"] for row in rows] == corpus.groups


def test_writing_again_completes_what_is_missing(corpus: ClipCorpus, tmp_path: Path) -> None:
    paths = corpus.write(tmp_path)
    before = paths[0].stat().st_mtime_ns
    paths[5].unlink()
    assert corpus.write(tmp_path) == paths
    assert paths[5].read_bytes() == corpus.sounds[5]
    assert paths[0].stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["0100.ogg", TAGS_FILE])
def test_another_file_is_not_overwritten(corpus: ClipCorpus, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine", "utf-8")
    with pytest.raises(InputError, match=f"{name}' exists and is not the file"):
        corpus.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text("utf-8") == "mine"


def test_a_file_in_place_of_the_folder_is_refused(corpus: ClipCorpus, tmp_path: Path) -> None:
    (tmp_path / "clips").write_text("mine", "utf-8")
    with pytest.raises(InputError, match=r"The clips cannot be written to '.*clips'"):
        corpus.write(tmp_path / "clips")


# ---------------------------------------------------------------------- damage


def archive_of(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (b"no archive", "not a whole archive"),
        (archive_of({"0001": b"sound"}), "members are not the documents'"),
        (archive_of({"../0001": b"sound", "head": b"head"}), "members are not the documents'"),
        (archive_of({"0001": b"", "head": b"head"}), "'0001' has a wrong size"),
        (archive_of({"0001": bytes(1 << 17), "head": b"head"}), "'0001' has a wrong size"),
        (archive_of({"0001": b"s" * 99, "head": b"h"}, zipfile.ZIP_DEFLATED), "a wrong size"),
        (archive_of({"0001": b"sound", "head": b"head"}).replace(b"sound", b"s0und"), "a whole"),
    ],
)
def test_members_of_the_archive_are_checked(
    archive: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = gzip.decompress((FOLDER / "documents.jsonl.gz").read_bytes()).splitlines()[0]
    files = {"clips.zip": archive, "documents.jsonl.gz": gzip.compress(row, mtime=0)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    (tmp_path / "checksums.json").write_text(json.dumps(sums), "utf-8")
    monkeypatch.setattr(module, "_data_folder", lambda: tmp_path)
    with pytest.raises(InputError, match=rf"'clips.zip' is damaged: .*{words}"):
        load_clips(min_count=1)


# ---------------------------------------------------------------------- what is told


def test_the_readme_states_the_true_numbers(corpus: ClipCorpus) -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    counts = frequencies(corpus.documents)
    assert f"{N} clips of music" in text
    assert f"{len(set(corpus.groups))} pieces, {N // 16} in each of eight styles" in text
    assert f"{len(counts)} tags. A clip has 5 to 8" in text
    assert f"{np.mean([len(labels) for labels in corpus.documents]):.1f} on average;" in text
    assert f"({np.mean([len(labels) for labels in corpus.complete]):.1f} on average)" in text
    assert f"at least {min(counts.values())} clips" in text
    assert f"slow ({RULES['tempo']['slow'][0]} to {RULES['tempo']['slow'][1]} beats" in text
    table = [line.split("|")[2] for line in text.splitlines() if line.count("|") == 3]
    named = {word.split("(")[0].strip() for cell in table for word in cell.split(", ")}
    assert set(counts) <= named


def test_the_licence_is_there_and_named_in_the_readme() -> None:
    licence = (FOLDER / "licences" / "fluid-r3-MIT.txt").read_text("utf-8")
    assert "Frank Wen" in licence
    assert "Permission is hereby granted, free of charge" in licence
    assert "licences/fluid-r3-MIT.txt" in (FOLDER / "README.md").read_text("utf-8")


def test_the_data_stay_small() -> None:
    sizes = [path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(sizes) < 5_000_000
