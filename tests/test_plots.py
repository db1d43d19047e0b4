"""Plots: what is drawn is what the tagger knows."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme._validation import InputError
from polyseme.plots import plot_label, plot_reliability, plot_space

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def test_every_known_tag_set_is_a_dot_and_labels_stand_where_they_lie(toy_tagger):
    drawn = plot_space(toy_tagger, labels=["sea", "desk"])
    store = toy_tagger.store_
    np.testing.assert_allclose(drawn.collections[0].get_offsets(), store.points[store.sets][:, :2])
    assert [text.get_text() for text in drawn.texts] == ["sea", "desk"]
    rows = [row for row in range(len(store.ids)) if "sea" in store.document(row)]
    wanted = store.points[store.sets][rows, :2].mean(axis=0)
    np.testing.assert_allclose(drawn.texts[0].xy, wanted, atol=1e-6)
    assert 4 <= len(plot_space(toy_tagger).texts) < len(toy_tagger.classes_), "none covers another"


def test_senses_of_a_label_have_colours_of_their_own(toy_tagger):
    drawn = plot_label(toy_tagger, "apple")
    names = [text.get_text() for text in drawn.get_legend().get_texts()]
    assert len(names) >= 2 and any("phone" in name or "desk" in name for name in names)
    with pytest.raises(InputError, match="Unknown label 'zebra'"):
        plot_label(toy_tagger, "zebra")


def test_reliability_is_that_of_the_validation(toy_tagger, own_tagger):
    drawn = plot_reliability(toy_tagger)
    curve = toy_tagger.validation_.curves["seen"]
    np.testing.assert_allclose(drawn.lines[1].get_ydata(), [step[2] for step in curve])
    own_tagger.validation_ = None
    with pytest.raises(InputError, match="was not validated"):
        plot_reliability(own_tagger)
