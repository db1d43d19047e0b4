"""The demo: what is hidden, what is measured and explained, and the page that shows it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from html_pages import Parsed
from polyseme._validation import InputError
from polyseme_experiments.datasets import load_emoji
from polyseme_experiments.demo import run_demo
from polyseme_experiments.demo.experiment import COLUMNS, LEAST_PART, group_means, run_experiment
from polyseme_experiments.demo.page import SIZE, build_page, evidence_bars, push_apart, thumbnails
from polyseme_experiments.demo.split import SplitSettings, draw_split, families
from polyseme_experiments.report.tables import Cell
from polyseme_experiments.senses import SenseRule

HOSTILE = '<script>alert("1")</script>&\''


@pytest.fixture(scope="module")
def emoji():
    return load_emoji()


@pytest.fixture(scope="module", params=[0, 7])
def split(emoji, request):
    return draw_split(emoji, random_state=request.param)


@pytest.fixture(scope="module")
def small(emoji):
    """The first 300 emoji, with a label and names that would be markup."""
    cut = {one.name: getattr(emoji, one.name)[:300] for one in fields(emoji)[:6]}
    cut["names"] = [f"{name} {HOSTILE}" for name in cut["names"]]
    cut["documents"] = [
        [{"face": HOSTILE}.get(x, x) for x in labels] for labels in cut["documents"]
    ]
    rows = np.flatnonzero(emoji.group < 300)
    cut |= {"features": emoji.features[rows], "group": emoji.group[rows]}
    return replace(emoji, **cut, drawing=[emoji.drawing[row] for row in rows])


@pytest.fixture(scope="module")
def run_small(small, tiny_space):
    hiding = SplitSettings(document_share=(0.2, 0.6), n_oov=3, min_oov=5)
    options = {"hiding": hiding, "rule": SenseRule(n_labels=2, fewest=6)}

    def run(log=lambda line: None):
        return run_experiment(small, seed=5, log=log, space=tiny_space(n_steps=20), **options)

    return run


@pytest.fixture(scope="module")
def results(run_small):
    return run_small()


@pytest.fixture(scope="module")
def page(results, small):
    return build_page(results, thumbnails(small))


def test_what_is_hidden_reaches_no_training_document(split):
    _, documents = split.pictures(split.taught)
    semantics = split.semantics()
    shown = {label for document in documents for label in document}
    learned = {label for document in semantics for label in document}
    assert shown.isdisjoint(split.unseen)
    assert set(split.oov) <= shown
    assert learned.isdisjoint(split.oov)
    assert set(split.unseen) <= learned
    known = {name.split("/")[0] for name in (*documents.ids, *semantics.ids)}
    assert known.isdisjoint(split.emoji.ids[one] for one in split.test)
    for chosen in (split.train, split.test, split.taught):
        assert set(Counter(split.emoji.group[split.rows(chosen)].tolist()).values()) == {2}


def test_variants_of_one_person_are_on_one_side_and_in_one_group(split):
    numbers = families(split.emoji.names)
    assert not set(numbers[split.train]) & set(numbers[split.test])
    same = families(["man teacher", "woman teacher", "teacher", "old man", "woman", "man"])
    assert same.tolist() == [0, 0, 0, 1, 2, 3]
    _, documents = split.pictures(split.taught)
    semantics = split.semantics()
    group_of = dict(zip(semantics.ids, semantics.groups, strict=True))
    for name, group in zip(documents.ids, documents.groups, strict=True):
        assert group == group_of[name.split("/")[0]]
        assert split.emoji.ids[split.emoji_of(name)] == name.split("/")[0]


def test_a_quarter_of_emoji_and_labels_is_hidden_by_seed(split):
    labels = {label for document in split.emoji.documents for label in document}
    assert len(split.unseen) == pytest.approx(len(labels) / 4, abs=1)
    assert len(split.test) / (len(split.test) + len(split.train)) == pytest.approx(0.25, abs=0.01)
    assert len(split.oov) == 6
    first, again, other = (draw_split(split.emoji, random_state=seed) for seed in (1, 1, 2))
    assert (first.unseen, first.oov) == (again.unseen, again.oov)
    assert_array_equal(first.test, again.test)
    assert first.unseen != other.unseen
    with pytest.raises(InputError, match="lower `min_oov` or `n_oov`"):
        draw_split(split.emoji, SplitSettings(n_oov=500), random_state=0)


def test_removing_repeated_documents_leaves_each_training_emoji_once(split):
    _, documents = split.pictures(split.taught)
    left = {*split.semantics().ids, *documents.ids} - set(split.repeated())
    assert sorted(name.split("/")[0] for name in left) == sorted(split.semantics().ids)
    emoji = split.emoji
    oov = set(split.oov)
    carriers = {emoji.ids[one] for one in split.taught if oov & set(emoji.documents[one])}
    assert {name.split("/")[0] for name in left if "/" in name} == carriers


def test_group_means_average_the_drawings_and_keep_nan():
    values = np.array([0.0, 1.0, np.nan, 0.5, 0.0, np.nan])
    groups = np.array([4, 2, 9, 4, 2, 9])
    assert_allclose(group_means(values, groups), [0.5, 0.25, np.nan])


def test_cards_hold_the_truth_and_reasons_add_up(results, small):
    assert len(results.cards) == len(results.split.test)
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
        for neighbour, owners in reason.known:
            assert neighbour.holds == (reason.tag.label in neighbour.document)
            assert all(set(neighbour.document) <= set(small.documents[one]) for one in owners)
        distances = [neighbour.distance for neighbour, _ in reason.known]
        assert distances == sorted(distances)


def test_cards_show_how_probable_tags_are(results, page):
    for card in results.cards:
        probabilities = [tag.probability for tag in card.tags]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 <= probabilities[-1] <= probabilities[0] <= 1
    assert f"<small>{100 * results.cards[0].tags[0].probability:.0f}%</small>" in page


@pytest.mark.parametrize(
    ("means", "words"),
    [
        ((2.1, 1.9, -2.1, 0.0), "in “seen”, “oov” only"),
        ((1.0, 0.0, 0.0, 0.0), "in no column"),
        ((3.0, 3.0, 3.0, 3.0), "in every column"),
    ],
)
def test_the_page_says_which_differences_are_more_than_chance(results, means, words):
    columns = zip(results.differences, means, strict=True)
    differences = {column: Cell(mean, 1.0, 9) for column, mean in columns}
    page = build_page(replace(results, differences=differences), lambda emoji, drawing: "data:,")
    assert f"differ by more than two standard errors {words}." in page


def test_bars_of_evidence_begin_at_zero_and_show_the_parts(results):
    evidence = results.reasons[0].evidence
    bars = evidence_bars(evidence)
    shown = [value for _, _, value, *_ in bars]
    assert shown == pytest.approx([*(p for _, p in evidence.parts()), evidence.logit], abs=0.006)
    span = max(0, *shown) - min(0, *shown)
    for _, _, value, zero, left, width in bars:
        edges = {left, left + width} if value == 0 else {left + width if value < 0 else left}
        assert any(edge == pytest.approx(zero) for edge in edges)
        assert width == pytest.approx(abs(value) * 100 / span, abs=0.6)
    assert bars[-1][:2] == ("sum", f"probability {evidence.probability:.2f}")


def test_pictures_pushed_apart_do_not_hide_each_other():
    moved = push_apart(np.full((12, 2), 200.0))
    gaps = np.abs(moved[:, None] - moved[None]).max(axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert gaps.min() >= SIZE


def test_the_page_repeats_itself_but_for_the_seconds(page, results, run_small, small):
    log = []
    again = build_page(
        replace(run_small(log.append), seconds={"polyseme": 99.0}), thumbnails(small)
    )
    seconds = re.compile(r'<dd id="seconds">.*?</dd>')
    assert again != page
    assert seconds.sub("", again) == seconds.sub("", page)
    assert any("test emoji" in line for line in log)


def test_the_page_loads_nothing_and_hostile_text_is_text(page):
    parsed = Parsed(page)
    assert parsed.open == []
    for tag, attributes in parsed.elements:
        for name in ("src", "srcset", "poster", "data", "action", "background"):
            if name in attributes:
                assert (tag, attributes[name][:5]) == ("img", "data:")
        if tag in ("image", "link", "use"):
            assert attributes["href"].startswith("data:")
    tags = [tag for tag, _ in parsed.elements]
    assert not {"iframe", "object", "embed", "audio", "video"} & set(tags)
    assert tags.count("script") == 1
    assert "src" not in dict(parsed.elements)["script"]
    text = "".join(parsed.text)
    assert "url(" not in text
    assert "@import" not in text
    assert HOSTILE not in page
    assert HOSTILE in text
    assert any(HOSTILE in (attributes.get("alt") or "") for _, attributes in parsed.elements)


def test_chips_are_marked_by_kind_and_truth_and_not_by_colour_alone(page, results):
    parsed = Parsed(page)
    shown = [tag for card in results.cards for tag in (*card.tags, *card.unseen)]
    shown += [reason.tag for reason in results.reasons]
    for kind in ("seen", "unseen", "oov"):
        for right, mark in ((True, "right"), (False, "wrong")):
            chips = [one for one in parsed.of_class("chip", kind, mark) if one[0] == "li"]
            assert len(chips) == sum((tag.kind, tag.right) == (kind, right) for tag in shown)
            assert "".join(parsed.text).count(f"({kind}, {mark})") == len(chips)
    missed = [one for one in parsed.of_class("chip", "missed") if one[0] == "li"]
    assert len(missed) == sum(len(card.missed) for card in results.cards)


def test_24_cards_are_in_view_and_the_best_of_each_column_is_marked(page, results, small):
    before, behind = page.split('<details id="all">')
    assert before.count('<article class="card"') == 24
    assert behind.split("</details>")[0].count('<article class="card"') == len(results.cards) - 24
    assert f"Show all {len(results.cards)} test emoji" in behind
    rows = {column: Cell(50.0, 1.0, 5, digits=1) for column in COLUMNS}
    worse = {column: Cell(40.0, 1.0, 5, digits=1) for column in COLUMNS}
    tables = {"example": {"ours": rows, "costa": worse}, "concept": {"ours": worse, "costa": rows}}
    page = build_page(replace(results, **tables), lambda emoji, drawing: "data:,")
    first, second = re.findall(r"<table>.*?</table>", page, flags=re.DOTALL)
    cells = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', first + second, re.DOTALL)
    best = [(name, row.count("(best)")) for name, row in cells]
    assert best == [("ours", len(COLUMNS)), ("costa", 0), ("ours", 0), ("costa", len(COLUMNS))]


def test_the_drawings_are_attributed(page):
    text = " ".join("".join(Parsed(page).text).split())
    for words in (
        "Twemoji, copyright Twitter, Inc and other contributors, licensed under CC-BY 4.0",
        "Noto Emoji, copyright Google LLC, licensed under Apache License 2.0",
    ):
        assert words in text


def test_run_demo_writes_the_page_and_refuses_a_folder(tmp_path, results, monkeypatch):
    with pytest.raises(InputError, match="is a folder; add the name of a file"):
        run_demo(tmp_path, log=lambda message: pytest.fail(message))
    name = "polyseme_experiments.demo.experiment.run_experiment"
    monkeypatch.setattr(name, lambda corpus, **_: results)
    log = []
    run_demo(tmp_path / "new" / "demo.html", seed=1, log=log.append)
    page = (tmp_path / "new" / "demo.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "MB" in log[-1]
