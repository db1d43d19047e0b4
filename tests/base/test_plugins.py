"""Plugins of other packages are found by name, and ignored where they cannot be loaded."""

from __future__ import annotations

import math
from importlib.metadata import EntryPoint

import pytest

from polyseme.base import plugins
from polyseme.base.validation import PolysemeWarning


def test_plugins_are_loaded_except_those_of_a_package_that_is_half_removed(monkeypatch):
    entry_points = [
        EntryPoint("lost", "no_such_package_at_all:thing", "some.group"),
        EntryPoint("tau", "math:tau", "some.group"),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: entry_points)
    message = "'lost'.* cannot be loaded and is passed over: No module"
    with pytest.warns(PolysemeWarning, match=message):
        assert plugins.load_plugins("some.group") == {"tau": math.tau}
