"""A short form of every attack."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from torture import ATTACKS, UnavailableError, attack


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_attacked_a_few_times_everything_holds(name, tmp_path):
    made = attack(name)(tmp_path, random.Random(0))
    try:
        found = list(islice(made, ATTACKS[name][1]))
    except UnavailableError as error:
        pytest.skip(str(error))
    finally:
        made.close()
    assert [one for one in found if not one.held] == []
    assert len(found) == ATTACKS[name][1]
