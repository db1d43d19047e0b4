"""A short form of every attack."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from torture import ATTACKS, UnavailableError, attack


def tried(name, place, n_tries):
    attempts = attack(name)(place, random.Random(0))
    try:
        return list(islice(attempts, n_tries))
    except UnavailableError as error:
        pytest.skip(str(error))
    finally:
        attempts.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, tries) in ATTACKS.items() if tries])
def test_attacked_a_few_times_everything_holds(name, tmp_path):
    outcomes = tried(name, tmp_path, ATTACKS[name][1])
    assert [outcome for outcome in outcomes if not outcome.held] == []
    assert len(outcomes) == ATTACKS[name][1]


@pytest.mark.reproduction
def test_a_worker_and_the_head_of_a_cluster_are_killed(tmp_path):
    assert [outcome for outcome in tried("cluster", tmp_path, 3) if not outcome.held] == []
