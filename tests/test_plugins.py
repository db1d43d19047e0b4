"""What other packages add: found by its name, and passed over where it cannot be loaded."""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint

import pytest

from polyseme import _plugins
from polyseme._validation import PolysemeWarning


def offered(monkeypatch, **values):
    points = [EntryPoint(name, value, "some.group") for name, value in values.items()]
    monkeypatch.setattr(_plugins, "entry_points", lambda group: points)


def test_what_others_offer_is_loaded_by_its_name(monkeypatch):
    offered(monkeypatch, tau="math:tau", inf="math:inf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _plugins.load_plugins("some.group") == {
            "tau": 6.283185307179586,
            "inf": float("inf"),
        }


def test_a_package_that_is_half_removed_takes_nothing_else_with_it(monkeypatch):
    offered(monkeypatch, lost="no_such_package_at_all:thing", tau="math:tau")
    with pytest.warns(
        PolysemeWarning, match="'lost'.* cannot be loaded and is passed over: No module"
    ):
        assert list(_plugins.load_plugins("some.group")) == ["tau"]
