"""What other packages add: found by its name, and passed over where it cannot be loaded."""

from __future__ import annotations

import math
from importlib.metadata import EntryPoint

import pytest

from polyseme import _plugins
from polyseme._validation import PolysemeWarning


def test_what_others_offer_is_loaded_but_for_a_package_that_is_half_removed(monkeypatch):
    offers = {"lost": "no_such_package_at_all:thing", "tau": "math:tau"}
    points = [EntryPoint(name, value, "some.group") for name, value in offers.items()]
    monkeypatch.setattr(_plugins, "entry_points", lambda group: points)
    message = "'lost'.* cannot be loaded and is passed over: No module"
    with pytest.warns(PolysemeWarning, match=message):
        assert _plugins.load_plugins("some.group") == {"tau": math.tau}
