from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from html_pages import Parsed
from polyseme._validation import InputError
from polyseme.evidence import Evidence, TagEvidence
from polyseme.space import ConceptSpace
from polyseme_experiments.datasets import EmojiCorpus, load_emoji
from polyseme_experiments.demo import run_demo
from polyseme_experiments.demo.experiment import (
    COLUMNS,
    LEAST_PART,
    Card,
    Completion,
    DemoResults,
    DemoSettings,
    Known,
    Reason,
    Tag,
    group_means,
    run_experiment,
)
from polyseme_experiments.demo.page import SIZE, build_page, evidence_bars, push_apart, thumbnails
from polyseme_experiments.demo.split import EmojiSplit, SplitSettings, draw_split, families
from polyseme_experiments.report.tables import Cell
from polyseme_experiments.senses import JudgedSenses, SenseRule

HOSTILE = '<script>alert("1")</script>&\''
PIXEL = "data:image/webp;base64,AAAA"


def one_picture(emoji: int, drawing: str) -> str:
    return PIXEL


def made_up_evidence(label: str = "moon") -> Evidence:
    tags = (TagEvidence(label, 0.91, 1.5, -1.2), TagEvidence("night", 0.2, -0.5, 0.4))
    return Evidence(label, "unseen", 0.5, 0.0, -3.0, 2.25, tags, 0.01, -0.26, ())


def made_up_results(label: str = "moon") -> DemoResults:
    def scores(value: float) -> dict[str, Cell]:
        return {column: Cell(value, 1.0, 5, digits=1) for column in COLUMNS}

    def card(emoji: int) -> Card:
        return Card(
            emoji,
            "noto",
            label,
            (Tag("face", "seen", True), Tag(label, "unseen", True), Tag("ball", "oov", False)),
            (Tag(label, "unseen", True),),
            (Tag("night", "seen", True), Tag("star", "oov", True)),
        )

    generator = np.random.default_rng(0)
    sense_map = JudgedSenses(
        label=label,
        documents=np.arange(7),
        owners=np.arange(7),
        points=generator.normal(size=(7, 2)),
        senses=np.array([0, 0, 0, 0, 1, 1, 1]),
        words=(("mail", label), ("alphabet",)),
        background=generator.normal(size=(20, 2)),
        silhouette=0.8,
        agreement=0.9,
    )
    reason = Reason(
        card(1),
        Tag(label, "unseen", False),
        2,
        "all",
        made_up_evidence(label),
        (Known((1, 2, 3, 4), (label, "night"), 0.25, 0.5, holds=True),),
    )
    return DemoResults(
        seed=3,
        names=tuple(f"{label} {number}" for number in range(30)),
        n_train=20,
        n_taught=15,
        n_test=30,
        n_labels=6,
        unseen=(label,),
        oov=("ball", label),
        example={"polyseme": scores(50.0), label: scores(40.0)},
        concept={"polyseme": scores(20.0), label: scores(30.0)},
        differences=scores(10.0),
        cards=tuple(card(number) for number in range(30)),
        maps=(sense_map, sense_map),
        reasons=(reason,),
        completions=(
            (
                Completion((label,), ("sun",)),
                Completion((label, "mail"), ("post", label)),
                Completion((label, "alphabet"), ("word",)),
            ),
        ),
        sense_range=(9, 40),
        settings=((label, label),),
        seconds={"polyseme": 1.0, label: 2.0},
    )


def small_corpus(emoji: EmojiCorpus, n: int) -> EmojiCorpus:
    kept = emoji.group < n
    return replace(
        emoji,
        ids=emoji.ids[:n],
        characters=emoji.characters[:n],
        names=emoji.names[:n],
        categories=emoji.categories[:n],
        subcategories=emoji.subcategories[:n],
        documents=emoji.documents[:n],
        features=emoji.features[kept],
        drawing=[one for one, keep in zip(emoji.drawing, kept, strict=True) if keep],
        group=emoji.group[kept],
    )


@pytest.fixture(scope="module")
def emoji() -> EmojiCorpus:
    return load_emoji()


@pytest.fixture(scope="module", params=[0, 7])
def split(emoji: EmojiCorpus, request: pytest.FixtureRequest) -> EmojiSplit:
    return draw_split(emoji, random_state=request.param)


# ---------------------------------------------------------------------- the split


def test_what_is_hidden_reaches_no_training_document(split: EmojiSplit) -> None:
    _, documents = split.pictures(split.taught)
    semantics = split.semantics()
    shown = {label for document in documents for label in document}
    taught = {label for document in semantics for label in document}
    assert shown.isdisjoint(split.unseen) and set(split.oov) <= shown
    assert taught.isdisjoint(split.oov) and set(split.unseen) <= taught
    known = {name.split("/")[0] for name in (*documents.ids, *semantics.ids)}
    assert known.isdisjoint(split.emoji.ids[one] for one in split.test)
    for chosen in (split.train, split.test, split.taught):
        assert set(Counter(split.emoji.group[split.rows(chosen)].tolist()).values()) == {2}


def test_variants_of_one_person_are_on_one_side_and_in_one_group(split: EmojiSplit) -> None:
    numbers = families(split.emoji.names)
    assert not set(numbers[split.train]) & set(numbers[split.test])
    same = families(["man teacher", "woman teacher", "teacher", "old man", "woman", "man"])
    assert same.tolist() == [0, 0, 0, 1, 2, 3]
    _, documents = split.pictures(split.taught)
    semantics = split.semantics()
    group_of = dict(zip(semantics.ids, semantics.groups or (), strict=True))
    for name, group in zip(documents.ids, documents.groups or (), strict=True):
        assert group == group_of[name.split("/")[0]]
        assert split.emoji.ids[split.emoji_of(name)] == name.split("/")[0]


def test_a_quarter_of_emoji_and_labels_is_hidden_by_seed(split: EmojiSplit) -> None:
    labels = {label for document in split.emoji.documents for label in document}
    assert len(split.unseen) == pytest.approx(len(labels) / 4, abs=1)
    assert len(split.test) / (len(split.test) + len(split.train)) == pytest.approx(0.25, abs=0.01)
    assert len(split.oov) == 6
    one, other, third = (draw_split(split.emoji, random_state=seed) for seed in (1, 1, 2))
    assert (one.unseen, one.oov) == (other.unseen, other.oov)
    np.testing.assert_array_equal(one.test, other.test)
    assert one.unseen != third.unseen
    with pytest.raises(InputError, match="lower `min_oov` or `n_oov`"):
        draw_split(split.emoji, SplitSettings(n_oov=500), random_state=0)


def test_removing_repeated_documents_leaves_each_training_emoji_once(split: EmojiSplit) -> None:
    _, documents = split.pictures(split.taught)
    left = {*split.semantics().ids, *documents.ids} - set(split.repeated())
    assert sorted(name.split("/")[0] for name in left) == sorted(split.semantics().ids)
    carriers = {
        split.emoji.ids[one]
        for one in split.taught
        if not set(split.oov).isdisjoint(split.emoji.documents[one])
    }
    assert {name.split("/")[0] for name in left if "/" in name} == carriers


# ---------------------------------------------------------------------- numbers


def test_group_means_average_the_drawings_and_keep_nan() -> None:
    values = np.array([0.0, 1.0, np.nan, 0.5, 0.0, np.nan])
    groups = np.array([4, 2, 9, 4, 2, 9])
    np.testing.assert_allclose(group_means(values, groups), [0.5, 0.25, np.nan])


def test_pictures_pushed_apart_do_not_hide_each_other() -> None:
    moved = push_apart(np.full((12, 2), 200.0))
    gaps = np.abs(moved[:, None] - moved[None]).max(axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert gaps.min() >= SIZE


# ---------------------------------------------------------------------- the page


def test_the_page_loads_nothing_and_all_its_images_are_data_uris() -> None:
    parsed = Parsed(build_page(made_up_results(), one_picture))
    assert parsed.open == []
    for tag, attributes in parsed.elements:
        for name in ("src", "srcset", "poster", "data", "action", "background"):
            if name in attributes:
                assert (tag, (attributes[name] or "")[:5]) == ("img", "data:")
        if tag in ("image", "link", "use"):
            assert (attributes["href"] or "").startswith("data:")
    assert not {"iframe", "object", "embed", "audio", "video"} & {tag for tag, _ in parsed.elements}
    assert all("src" not in attributes for tag, attributes in parsed.elements if tag == "script")
    styles = "".join(parsed.text)
    assert "url(" not in styles
    assert "@import" not in styles


def test_chips_are_marked_by_kind_and_truth_and_not_by_colour_alone() -> None:
    results = made_up_results()
    page = build_page(results, one_picture)
    parsed = Parsed(page)
    in_cards = [one for one in parsed.of_class("chip") if one[0] == "li"]
    # On a card: three tags, one unseen tag, two missed; then one reason and four completions.
    assert len(in_cards) == 30 * 6 + 1 + 4
    assert len([one for one in parsed.of_class("chip", "seen", "right") if one[0] == "li"]) == 30
    assert len([one for one in parsed.of_class("chip", "unseen", "right") if one[0] == "li"]) == 60
    assert len([one for one in parsed.of_class("chip", "oov", "wrong") if one[0] == "li"]) == 30
    assert len([one for one in parsed.of_class("chip", "missed") if one[0] == "li"]) == 60
    # The legend has three, and one known tag list holds the tag that is explained.
    assert page.count("✓</b>") == 30 * 3 + 3 + 1
    assert page.count("✗</b>") == 30 * 1 + 3 + 1
    assert "".join(parsed.text).count("(unseen, right)") == 60


def test_24_cards_are_in_view_and_the_others_behind_a_button() -> None:
    page = build_page(made_up_results(), one_picture)
    before, behind = page.split('<details id="all">')
    assert before.count('<article class="card"') == 24
    assert behind.split("</details>")[0].count('<article class="card"') == 6
    assert "Show all 30 test emoji" in behind


def test_the_best_of_each_column_is_marked_even_when_it_is_not_ours() -> None:
    page = build_page(made_up_results("costa"), one_picture)
    first, second = re.findall(r"<table>.*?</table>", page, flags=re.DOTALL)
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', first + second, re.DOTALL)
    assert [(name, cells.count("(best)")) for name, cells in rows] == [
        ("polyseme", len(COLUMNS)),
        ("costa", 0),
        ("polyseme", 0),
        ("costa", len(COLUMNS)),
    ]
    assert "± 1.0" in first
    assert "+10.0" in first


def test_a_hostile_label_is_text_everywhere() -> None:
    page = build_page(made_up_results(HOSTILE), one_picture)
    parsed = Parsed(page)
    assert HOSTILE not in page
    assert [tag for tag, _ in parsed.elements].count("script") == 1
    assert HOSTILE in "".join(parsed.text)
    assert any(HOSTILE in (attributes.get("alt") or "") for _, attributes in parsed.elements)


def test_the_drawings_are_attributed_and_seconds_stand_in_one_place() -> None:
    results = made_up_results()
    page = build_page(results, one_picture)
    text = " ".join("".join(Parsed(page).text).split())
    assert (
        "Twemoji, copyright Twitter, Inc and other contributors, licensed under CC-BY 4.0" in text
    )
    assert "Noto Emoji, copyright Google LLC, licensed under Apache License 2.0" in text
    later = build_page(replace(results, seconds={"polyseme": 99.0}), one_picture)
    assert later != page
    seconds = re.compile(r'<dd id="seconds">.*?</dd>')
    assert seconds.sub("", later) == seconds.sub("", page)


# ---------------------------------------------------------------------- evidence


def test_bars_of_evidence_begin_at_zero_and_show_the_parts() -> None:
    found = evidence_bars(made_up_evidence())
    assert [name for name, *_ in found] == [
        *("how common the tag is", "the picture itself", "moon", "night", "other tags"),
        *("known tag lists nearby", "sum"),
    ]
    assert [value for _, _, value, *_ in found] == [-3.0, 2.25, 1.5, -0.5, 0.01, -0.26, 0.0]
    for _, _, value, zero, left, width in found:
        assert zero == pytest.approx(100 * 3 / 5.25)
        assert (left + width if value < 0 else left) == pytest.approx(zero)
        assert width == pytest.approx(abs(value) * 100 / 5.25)
    assert found[2][1] == "91% likely"
    assert found[-1][1] == "probability 0.50"


# ---------------------------------------------------------------------- all together


@pytest.fixture(scope="module")
def quick_settings(tiny_space: Callable[..., ConceptSpace]) -> DemoSettings:
    return DemoSettings(
        split=SplitSettings(document_share=(0.2, 0.6), n_oov=3, min_oov=5),
        senses=SenseRule(n_labels=2, fewest=6),
        tagger={"space": tiny_space(n_steps=20)},
    )


def test_a_small_demo_runs_from_pictures_to_page_and_repeats_itself(
    emoji: EmojiCorpus, quick_settings: DemoSettings
) -> None:
    small = small_corpus(emoji, 300)
    said: list[str] = []
    pages = []
    for _ in range(2):
        results = run_experiment(small, seed=5, log=said.append, settings=quick_settings)
        pages.append(build_page(replace(results, seconds={}), thumbnails(small)))
    assert pages[0] == pages[1]
    assert any("test emoji" in line for line in said)
    assert len(results.cards) == results.n_test
    assert list(results.example) == ["polyseme", "tuned COSTA", "popularity"]
    for card in results.cards:
        truth = {tag.label for tag in (*card.tags, *card.missed) if tag.right}
        assert truth == set(small.documents[card.emoji])
        assert all(tag.kind == "unseen" for tag in card.unseen)
    hidden = [card.hidden for card in results.cards]
    assert hidden == sorted(hidden, reverse=True)
    assert results.reasons
    for reason in results.reasons:
        evidence = reason.evidence
        assert evidence.label == reason.tag.label
        assert sum(part for _, part in evidence.parts()) == pytest.approx(evidence.logit)
        assert all(abs(tag.part) >= LEAST_PART for tag in evidence.tags)
        assert all(one.holds == (reason.tag.label in one.document) for one in reason.known)
        for one in reason.known:
            assert all(set(one.document) <= set(small.documents[place]) for place in one.emoji)
        distances = [one.distance for one in reason.known]
        assert distances == sorted(distances)
    Parsed(pages[0])


def test_a_folder_as_output_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; add a file name"):
        run_demo(tmp_path, log=lambda message: pytest.fail(message))


def test_run_demo_writes_the_page(
    tmp_path: Path, emoji: EmojiCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "polyseme_experiments.demo.experiment.run_experiment", lambda corpus, **_: made_up_results()
    )
    said: list[str] = []
    run_demo(tmp_path / "new" / "demo.html", seed=1, log=said.append)
    page = (tmp_path / "new" / "demo.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "MB" in said[-1]
