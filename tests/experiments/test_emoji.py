from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from polyseme._validation import InputError
from polyseme_experiments.datasets import EmojiCorpus, load_emoji
from polyseme_experiments.datasets import emoji as module

FOLDER = Path(module.__file__).parent / "emoji_data"
N = 1610


@pytest.fixture(scope="module")
def corpus() -> EmojiCorpus:
    return load_emoji()


@pytest.fixture(scope="module")
def stored() -> list[dict[str, object]]:
    text = gzip.decompress((FOLDER / "documents.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def frequencies(documents: list[list[str]]) -> Counter[str]:
    return Counter(label for labels in documents for label in labels)


def test_every_list_has_one_entry_per_emoji(corpus: EmojiCorpus) -> None:
    fields = ("ids", "characters", "names", "categories", "subcategories", "documents")
    assert {field: len(getattr(corpus, field)) for field in fields} == dict.fromkeys(fields, N)
    assert len(set(corpus.ids)) == len(set(corpus.characters)) == len(set(corpus.names)) == N


def test_id_spells_the_character_in_code_points(corpus: EmojiCorpus) -> None:
    for code, character in zip(corpus.ids, corpus.characters, strict=True):
        assert "-".join(f"{ord(point):04X}" for point in character) == code


def test_flags_and_skin_tones_are_left_out(corpus: EmojiCorpus) -> None:
    assert len(set(corpus.categories)) == 8
    assert not {"Flags", "Component"} & set(corpus.categories)
    assert not any(0x1F3FB <= ord(point) <= 0x1F3FF for text in corpus.characters for point in text)


def test_features_are_finite_single_precision_rows(corpus: EmojiCorpus) -> None:
    assert corpus.features.shape == (2 * N, 1280)
    assert corpus.features.dtype == np.float32
    assert np.isfinite(corpus.features).all()
    assert corpus.features.min() >= 0 and corpus.features.max() <= 6


def test_no_two_rows_of_a_drawing_are_equal(corpus: EmojiCorpus) -> None:
    for rows in (corpus.features[:N], corpus.features[N:]):
        assert len(np.unique(rows, axis=0)) == N


def test_groups_pair_the_two_drawings_of_an_emoji(corpus: EmojiCorpus) -> None:
    pairs: dict[int, list[str]] = {}
    for group, drawing in zip(corpus.group.tolist(), corpus.drawing, strict=True):
        pairs.setdefault(group, []).append(drawing)
    assert sorted(pairs) == list(range(N))
    assert all(drawings == ["noto", "twemoji"] for drawings in pairs.values())


def test_rows_hold_the_stored_table_of_their_drawing(corpus: EmojiCorpus) -> None:
    for row in (0, N - 1, N, 2 * N - 1):
        table = np.load(FOLDER / f"{corpus.drawing[row]}.npy", allow_pickle=False)
        np.testing.assert_array_equal(corpus.features[row], table[corpus.group[row]])


def test_the_two_drawings_of_an_emoji_resemble_each_other(corpus: EmojiCorpus) -> None:
    centred = corpus.features - corpus.features.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    nearest = (centred[:N] @ centred[N:].T).argmax(axis=1)
    assert (nearest == np.arange(N)).mean() > 0.4  # chance: 0.0006


def test_every_label_is_on_at_least_min_count_emoji(corpus: EmojiCorpus) -> None:
    counts = frequencies(corpus.documents)
    assert len(counts) == 262
    assert min(counts.values()) == 10


@pytest.mark.parametrize("min_count", [1, 2, 20])
def test_min_count_keeps_exactly_the_frequent_labels(
    min_count: int, stored: list[dict[str, object]]
) -> None:
    everything = [list(row["labels"]) for row in stored]  # type: ignore[call-overload]  # read from JSON
    counts = frequencies(everything)
    expected = [[label for label in one if counts[label] >= min_count] for one in everything]
    assert load_emoji(min_count=min_count).documents == expected


def test_every_stored_document_has_labels_and_few_lose_all(
    corpus: EmojiCorpus, stored: list[dict[str, object]]
) -> None:
    assert all(row["labels"] for row in stored)
    assert sum(not labels for labels in corpus.documents) == 13


def test_the_readme_states_the_true_counts() -> None:
    labels = frequencies(load_emoji(min_count=1).documents)
    text = (FOLDER / "README.md").read_text("utf-8")
    assert f"{N:,} emoji" in text
    assert f"{len(labels):,} remain" in text


def test_labels_are_sorted_sets_in_lower_case(stored: list[dict[str, object]]) -> None:
    for row in stored:
        labels = row["labels"]
        assert isinstance(labels, list)
        assert labels == sorted(set(labels))
        assert all(label == " ".join(label.lower().split()) for label in labels)
        assert not any(mark in label for label in labels for mark in "_-0123456789:")


def test_no_label_differs_from_another_only_by_case_or_space() -> None:
    labels = frequencies(load_emoji(min_count=1).documents)
    keys = Counter("".join(filter(str.isalnum, label.lower())) for label in labels)
    assert [key for key, times in keys.items() if times > 1] == []


@pytest.mark.parametrize(
    ("character", "label"),
    [("🍊", "fruit"), ("🍊", "orange"), ("🐦", "bird"), ("🎸", "music"), ("🚗", "vehicle")],
)
def test_well_known_emoji_have_the_expected_label(
    corpus: EmojiCorpus, character: str, label: str
) -> None:
    assert label in corpus.documents[corpus.characters.index(character)]


@pytest.mark.parametrize(
    ("label", "one_sense", "other_sense"),
    [("letter", "📨", "🔠"), ("note", "🎶", "💶"), ("palm", "✋", "🌴"), ("suit", "🤵", "♣️")],
)
def test_ambiguous_labels_cover_their_senses(
    corpus: EmojiCorpus, label: str, one_sense: str, other_sense: str
) -> None:
    for character in (one_sense, other_sense):
        assert label in corpus.documents[corpus.characters.index(character)]


def test_cells_tile_the_sheet_row_by_row(corpus: EmojiCorpus) -> None:
    assert corpus.cell(0) == (0, 0, 64, 64)
    assert corpus.cell(39) == (2496, 0, 2560, 64)
    assert corpus.cell(40) == (0, 64, 64, 128)
    assert len({corpus.cell(emoji) for emoji in range(N)}) == N


@pytest.mark.parametrize("emoji", [-1, N])
def test_cell_refuses_an_emoji_that_is_not_there(corpus: EmojiCorpus, emoji: int) -> None:
    with pytest.raises(InputError, match="`emoji` of `cell` must be a whole number at least 0"):
        corpus.cell(emoji)


@pytest.mark.parametrize("drawing", ["noto", "twemoji"])
def test_sheets_are_lossless_webp_that_hold_every_cell(corpus: EmojiCorpus, drawing: str) -> None:
    head = corpus.sheets[drawing].read_bytes()[:30]
    assert (head[:4], head[8:16]) == (b"RIFF", b"WEBPVP8L")
    bits = int.from_bytes(head[21:25], "little")
    width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    assert (width, height) == (corpus.cell(39)[2], corpus.cell(N - 1)[3])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("noto-Apache-2.0", "Apache License"),
        ("twemoji-CC-BY-4.0", "Creative Commons Attribution 4.0 International"),
        ("emoji-datasource-MIT", "Copyright (c) 2013 Cal Henderson"),
        ("emojilib-MIT", "Copyright (c) 2014 Mu-An Chiou"),
        ("emojibase-data-MIT", "Copyright (c) 2017-2019 Miles Johnson"),
        ("cldr-Unicode-3.0", "UNICODE LICENSE V3"),
    ],
)
def test_every_licence_is_there_and_named_in_the_readme(name: str, words: str) -> None:
    assert words in (FOLDER / "licences" / f"{name}.txt").read_text("utf-8")
    assert f"licences/{name}.txt" in (FOLDER / "README.md").read_text("utf-8")


def test_no_data_file_is_too_large_to_commit() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()}
    assert max(sizes.values()) < 4 * 2**20
    assert sum(sizes.values()) < 16_000_000
