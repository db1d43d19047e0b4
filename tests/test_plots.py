"""Plots show what the tagger knows."""

from __future__ import annotations

import pytest
from numpy.testing import assert_allclose

from polyseme.base.validation import InputError
from polyseme.plots import plot_label, plot_reliability, plot_space

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    matplotlib.pyplot.close("all")


def texts(artists):
    return [artist.get_text() for artist in artists]


def test_documents_are_dots_and_labels_stand_in_the_middle_of_their_documents(toy_tagger):
    axes = plot_space(toy_tagger, labels=["sea", "desk"])
    store = toy_tagger.store_
    positions = store.points[store.sets][:, :2]
    assert_allclose(axes.collections[0].get_offsets(), positions)
    assert texts(axes.texts) == ["sea", "desk"]
    sea = store.labels.index("sea")
    rows = store.matrix[:, [sea]].nonzero()[0]
    centre = positions[rows].mean(axis=0)
    assert_allclose(axes.texts[0].xy, centre, atol=1e-6)


def test_the_title_counts_documents_and_different_tag_sets(toy_tagger):
    store = toy_tagger.store_
    title = plot_space(toy_tagger).get_title()
    n_documents = len(store.ids)
    n_tag_sets = len(store.points)
    assert n_tag_sets < n_documents
    assert title == f"{n_documents} known documents, {n_tag_sets} different tag sets"


def test_by_default_labels_are_shown_where_there_is_room(toy_tagger):
    axes = plot_space(toy_tagger)
    assert 4 <= len(axes.texts) < len(toy_tagger.classes_)


def test_every_sense_of_a_label_has_its_colour(toy_tagger):
    axes = plot_label(toy_tagger, "apple")
    names = texts(axes.get_legend().get_texts())
    assert len(names) >= 2
    assert any("phone" in name or "desk" in name for name in names)


def test_an_unknown_label_is_refused(toy_tagger):
    with pytest.raises(InputError, match="Unknown label 'zebra'"):
        plot_label(toy_tagger, "zebra")


def test_reliability_is_that_of_the_validation(toy_tagger):
    axes = plot_reliability(toy_tagger)
    curve = toy_tagger.validation_.curves["seen"]
    frequencies = [step[2] for step in curve]
    drawn_line = axes.lines[1]
    assert_allclose(drawn_line.get_ydata(), frequencies)


def test_a_tagger_without_a_validation_has_no_reliability(own_tagger):
    own_tagger.validation_ = None
    with pytest.raises(InputError, match="was not validated"):
        plot_reliability(own_tagger)
