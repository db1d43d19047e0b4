"""A Ray cluster on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from polyseme.batch import RayEngine, open_engine


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    with open_engine("ray", workers=2) as ray_engine:
        assert ray_engine is not None
        yield ray_engine
