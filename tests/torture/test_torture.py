"""A short form of every attack."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from torture import ATTACKS, UnavailableError, attack


def tried(name, place, n_tries):
    made = attack(name)(place, random.Random(0))
    try:
        return list(islice(made, n_tries))
    except UnavailableError as error:
        pytest.skip(str(error))
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, tries) in ATTACKS.items() if tries])
def test_attacked_a_few_times_everything_holds(name, tmp_path):
    found = tried(name, tmp_path, ATTACKS[name][1])
    assert [one for one in found if not one.held] == []
    assert len(found) == ATTACKS[name][1]


@pytest.mark.reproduction
def test_a_worker_and_the_head_of_a_cluster_are_killed(tmp_path):
    assert [one for one in tried("cluster", tmp_path, 3) if not one.held] == []
