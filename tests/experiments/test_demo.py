"""The demo: what is hidden, what is measured and explained, and the page that shows it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist

from html_pages import Parsed
from polyseme.base.validation import InputError
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
    values = {}
    for field in fields(emoji)[:6]:
        values[field.name] = getattr(emoji, field.name)[:300]
    values["names"] = [f"{name} {HOSTILE}" for name in values["names"]]
    documents = []
    for labels in values["documents"]:
        documents.append([HOSTILE if label == "face" else label for label in labels])
    values["documents"] = documents
    rows = np.flatnonzero(emoji.group < 300)
    values["features"] = emoji.features[rows]
    values["group"] = emoji.group[rows]
    values["drawing"] = [emoji.drawing[row] for row in rows]
    return replace(emoji, **values)


@pytest.fixture(scope="module")
def run_small(small, tiny_space):
    hiding = SplitSettings(document_share=(0.2, 0.6), n_oov=3, min_oov=5)
    rule = SenseRule(n_labels=2, fewest=6)

    def run(log=lambda line: None):
        return run_experiment(
            small,
            seed=5,
            log=log,
            space=tiny_space(n_steps=20),
            hiding=hiding,
            rule=rule,
        )

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
    picture_labels = set().union(*documents)
    assert picture_labels.isdisjoint(split.unseen)
    assert picture_labels.issuperset(split.oov)
    semantic_labels = set().union(*semantics)
    assert semantic_labels.isdisjoint(split.oov)
    assert semantic_labels.issuperset(split.unseen)

    names = (*documents.ids, *semantics.ids)
    training_emoji = {name.split("/")[0] for name in names}
    test_emoji = {split.emoji.ids[number] for number in split.test}
    assert training_emoji.isdisjoint(test_emoji)


def test_both_drawings_of_an_emoji_lie_in_one_part(split):
    for numbers in (split.train, split.test, split.taught):
        groups = split.emoji.group[split.rows(numbers)]
        _, counts = np.unique(groups, return_counts=True)
        assert (counts == 2).all()


def test_variants_of_one_person_are_one_family():
    names = ["man teacher", "woman teacher", "teacher", "old man", "woman", "man"]
    assert families(names).tolist() == [0, 0, 0, 1, 2, 3]


def test_a_family_lies_in_one_part_of_the_split(split):
    numbers = families(split.emoji.names)
    training_families = set(numbers[split.train])
    assert training_families.isdisjoint(numbers[split.test])


def test_pictures_share_the_group_of_their_emoji(split):
    _, documents = split.pictures(split.taught)
    semantics = split.semantics()
    group_by_code = dict(zip(semantics.ids, semantics.groups, strict=True))
    for name, group in zip(documents.ids, documents.groups, strict=True):
        code = name.split("/")[0]
        assert group == group_by_code[code]
        number = split.emoji_of(name)
        assert split.emoji.ids[number] == code


def test_a_quarter_of_emoji_and_labels_is_hidden(split):
    labels = set().union(*split.emoji.documents)
    n_unseen = len(split.unseen)
    assert n_unseen == pytest.approx(len(labels) / 4, abs=1)
    n_test = len(split.test)
    n_emoji = n_test + len(split.train)
    test_share = n_test / n_emoji
    assert test_share == pytest.approx(0.25, abs=0.01)
    assert len(split.oov) == 6


def test_the_seed_decides_what_is_hidden(emoji):
    split = draw_split(emoji, random_state=1)
    repeated = draw_split(emoji, random_state=1)
    assert split.unseen == repeated.unseen
    assert split.oov == repeated.oov
    assert_array_equal(split.test, repeated.test)
    of_another_seed = draw_split(emoji, random_state=2)
    assert split.unseen != of_another_seed.unseen


def test_more_oov_labels_than_there_are_is_refused(emoji):
    settings = SplitSettings(n_oov=500)
    with pytest.raises(InputError, match="lower `min_oov` or `n_oov`"):
        draw_split(emoji, settings, random_state=0)


def test_removing_repeated_documents_leaves_each_training_emoji_once(split):
    _, documents = split.pictures(split.taught)
    semantics = split.semantics()
    remaining = set(semantics.ids) | set(documents.ids)
    remaining -= set(split.repeated())
    codes = [name.split("/")[0] for name in remaining]
    assert sorted(codes) == sorted(semantics.ids)

    carriers = set()
    for number in split.taught:
        labels = split.emoji.documents[number]
        if not set(labels).isdisjoint(split.oov):
            carriers.add(split.emoji.ids[number])
    codes_of_pictures = {name.split("/")[0] for name in remaining if "/" in name}
    assert codes_of_pictures == carriers


def test_group_means_average_the_drawings_and_keep_nan():
    values = np.array([0.0, 1.0, np.nan, 0.5, 0.0, np.nan])
    groups = np.array([4, 2, 9, 4, 2, 9])
    means = group_means(values, groups)
    assert_allclose(means, [0.5, 0.25, np.nan])


def test_cards_hold_the_truth(results, small):
    assert len(results.cards) == len(results.split.test)
    assert list(results.example) == ["polyseme", "tuned COSTA", "popularity"]
    for card in results.cards:
        tags = (*card.tags, *card.missed)
        truth = {tag.label for tag in tags if tag.right}
        expected = set(small.documents[card.emoji])
        assert truth == expected
        assert {tag.kind for tag in card.unseen} <= {"unseen"}
    hidden = [card.hidden for card in results.cards]
    assert hidden == sorted(hidden, reverse=True)


def test_the_evidence_of_reasons_adds_up(results):
    assert results.reasons
    for reason in results.reasons:
        evidence = reason.evidence
        assert evidence.label == reason.tag.label
        values = [value for _, value in evidence.parts()]
        assert sum(values) == pytest.approx(evidence.logit)
        for tag in evidence.tags:
            assert abs(tag.part) >= LEAST_PART


def test_reasons_show_the_nearest_known_documents_and_their_emoji(results, small):
    for reason in results.reasons:
        for neighbour, owners in reason.known:
            document = set(neighbour.document)
            expected = reason.tag.label in document
            assert neighbour.holds == (expected)
            for owner in owners:
                assert document <= set(small.documents[owner])
        distances = [neighbour.distance for neighbour, _ in reason.known]
        assert distances == sorted(distances)


def test_cards_show_how_probable_tags_are(results, page):
    for card in results.cards:
        probabilities = [tag.probability for tag in card.tags]
        assert probabilities == sorted(probabilities, reverse=True)
        assert probabilities[0] <= 1
        assert probabilities[-1] >= 0
    best = results.cards[0].tags[0]
    percentage = f"{100 * best.probability:.0f}%"
    assert f"<small>{percentage}</small>" in page


@pytest.mark.parametrize(
    ("means", "words"),
    [
        ((2.1, 1.9, -2.1, 0.0), "in “seen”, “oov” only"),
        ((1.0, 0.0, 0.0, 0.0), "in no column"),
        ((3.0, 3.0, 3.0, 3.0), "in every column"),
    ],
)
def test_the_page_says_which_differences_are_more_than_chance(results, means, words):
    differences = {}
    for column, mean in zip(results.differences, means, strict=True):
        differences[column] = Cell(mean, 1.0, 9)
    changed = replace(results, differences=differences)
    page = build_page(changed, lambda emoji, drawing: "data:,")
    assert f"differ by more than two standard errors {words}." in page


def test_bars_of_evidence_begin_at_zero_and_show_the_parts(results):
    evidence = results.reasons[0].evidence
    bars = evidence_bars(evidence)
    values = [value for _, _, value, *_ in bars]
    shares = [share for _, share in evidence.parts()]
    assert values == pytest.approx([*shares, evidence.logit], abs=0.006)
    name, text, *_ = bars[-1]
    assert name == "sum"
    assert text == f"probability {evidence.probability:.2f}"

    span = max(0, *values) - min(0, *values)
    for _, _, value, zero, left, width in bars:
        right = left + width
        expected = abs(value) * 100 / span
        assert width == pytest.approx(expected, abs=0.6)
        if value < 0:
            assert right == pytest.approx(zero)
        elif value > 0:
            assert left == pytest.approx(zero)
        else:
            assert zero in (pytest.approx(left), pytest.approx(right))


def test_pictures_pushed_apart_do_not_hide_each_other():
    same_places = np.full((12, 2), 200.0)
    places = push_apart(same_places)
    gaps = pdist(places, "chebyshev")
    assert gaps.min() >= SIZE


def test_the_page_repeats_itself_but_for_the_seconds(page, results, run_small, small):
    lines = []
    repeated = run_small(lines.append)
    slower = replace(repeated, seconds={"polyseme": 99.0})
    repeated_page = build_page(slower, thumbnails(small))
    assert repeated_page != page
    seconds = re.compile(r'<dd id="seconds">.*?</dd>')
    expected = seconds.sub("", page)
    assert seconds.sub("", repeated_page) == expected
    assert any("test emoji" in line for line in lines)


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


def chips_of(parsed, *classes):
    """Return the list items that are chips of some classes."""
    elements = parsed.of_class("chip", *classes)
    return [element for element in elements if element[0] == "li"]


def test_chips_are_marked_by_kind_and_truth_and_not_by_colour_alone(page, results):
    parsed = Parsed(page)
    text = "".join(parsed.text)
    tags = [reason.tag for reason in results.reasons]
    for card in results.cards:
        tags += card.tags
        tags += card.unseen
    counts = Counter((tag.kind, "right" if tag.right else "wrong") for tag in tags)
    for kind in ("seen", "unseen", "oov"):
        for mark in ("right", "wrong"):
            chips = chips_of(parsed, kind, mark)
            assert len(chips) == counts[kind, mark]
            assert text.count(f"({kind}, {mark})") == len(chips)
    n_missed = sum(len(card.missed) for card in results.cards)
    assert len(chips_of(parsed, "missed")) == n_missed


def test_24_cards_are_in_view_and_the_rest_behind_a_button(page, results):
    visible, details = page.split('<details id="all">')
    hidden, _ = details.split("</details>", 1)
    card = '<article class="card"'
    assert visible.count(card) == 24
    assert hidden.count(card) == len(results.cards) - 24
    assert f"Show all {len(results.cards)} test emoji" in hidden


def test_the_best_of_each_column_is_marked(results):
    good = {column: Cell(50.0, 1.0, 5, digits=1) for column in COLUMNS}
    poor = {column: Cell(40.0, 1.0, 5, digits=1) for column in COLUMNS}
    changed = replace(
        results,
        example={"ours": good, "costa": poor},
        concept={"ours": poor, "costa": good},
    )
    page = build_page(changed, lambda emoji, drawing: "data:,")
    tables = re.findall(r"<table>.*?</table>", page, flags=re.DOTALL)
    assert len(tables) == 2
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', "".join(tables), re.DOTALL)
    n_best = [(name, row.count("(best)")) for name, row in rows]
    n_columns = len(COLUMNS)
    assert n_best == [("ours", n_columns), ("costa", 0), ("ours", 0), ("costa", n_columns)]


def test_the_drawings_are_attributed(page):
    text = " ".join("".join(Parsed(page).text).split())
    for words in (
        "Twemoji, copyright Twitter, Inc and other contributors, licensed under CC-BY 4.0",
        "Noto Emoji, copyright Google LLC, licensed under Apache License 2.0",
    ):
        assert words in text


def test_the_demo_is_not_written_to_a_folder(tmp_path):
    with pytest.raises(InputError, match="is a folder; add the name of a file"):
        run_demo(tmp_path, log=lambda message: pytest.fail(message))


def test_the_demo_writes_its_page(tmp_path, results, monkeypatch):
    name = "polyseme_experiments.demo.experiment.run_experiment"
    monkeypatch.setattr(name, lambda corpus, **_: results)
    lines = []
    path = tmp_path / "new" / "demo.html"
    run_demo(path, seed=1, log=lines.append)
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "MB" in lines[-1]
