"""Reliability curves: what is drawn, and what is too little to draw."""

from __future__ import annotations

import pytest

from polyseme._validation import InputError
from polyseme_experiments.rendering.reliability import FEWEST, reliability_curves


def curve(count, predicted=0.4, observed=0.3):
    return {"counts": [count, 900], "predicted": [predicted, 0.1], "observed": [observed, 0.2]}


def test_every_bin_is_a_mark_that_says_what_it_is():
    pytest.importorskip("matplotlib")
    svg = reliability_curves("one", {"seen labels": curve(50), "late": curve(60, 0.7, 0.9)})
    assert svg.startswith("<svg") and "seen labels" in svg and "late" in svg
    for told in ("50 labels given 40.0 %, 30.0 % true", "60 labels given 70.0 %, 90.0 % true"):
        assert told in svg


def test_bins_of_few_labels_are_left_out():
    pytest.importorskip("matplotlib")
    svg = reliability_curves("one", {"seen labels": curve(FEWEST - 1)})
    assert "given 40.0 %" not in svg and "given 10.0 %" in svg


@pytest.mark.parametrize("few", [{"counts": [], "predicted": [], "observed": []}, None])
def test_nothing_to_draw_is_said(few):
    curves = {} if few is None else {"seen labels": few}
    with pytest.raises(InputError, match="no values to show"):
        reliability_curves("one", curves)
