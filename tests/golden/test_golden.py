"""Nothing that the public interfaces answer has changed; see the package's docstring."""

from __future__ import annotations

import pytest

from golden import GROUPS, RECORDED, changes, compute, recorded
from golden.compare import differences, without_volatile

NAMES = [(group, name) for group in GROUPS for name in recorded(group)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the cases of a group compute now, once each, and what of it has changed."""
    computed = {}

    def results_of(group):
        if group not in computed:
            group_results = compute(group, tmp_path_factory.mktemp(group))
            computed[group] = (group_results, changes(group, group_results))
        return computed[group]

    return results_of


@pytest.mark.parametrize(("group", "name"), NAMES, ids=["-".join(pair) for pair in NAMES])
def test_results_are_as_recorded(results, group, name):
    computed = results(group)[1][name]
    assert not computed, "\n".join(computed[:20])


@pytest.mark.parametrize("group", GROUPS)
def test_every_case_is_recorded(results, group):
    expected = list(recorded(group))
    assert list(results(group)[0]) == expected


def test_recorded_results_are_small():
    assert sum(path.stat().st_size for path in RECORDED.iterdir()) < 300_000


@pytest.mark.parametrize(
    ("expected", "actual", "n_differences"),
    [
        ({"a": [1.0, "x"]}, {"a": [1.000009, "x"]}, 0),
        ({"a": [1.0, "x"]}, {"a": [1.00002, "x"]}, 1),
        ({"a": 1}, {"a": 1, "b": 2}, 1),
        ({"a": 1, "b": 2}, {"a": 1}, 1),
        ([1, 2], [1], 1),
        ("p 0.123 of 7", "p 0.124 of 7", 0),
        ("p 0.123 of 7", "p 0.125 of 7", 1),
        ("p 0.123 of 7", "p 0.123 of 8", 1),
        ("p 0.123", "q 0.123", 1),
        ("-inf", "inf", 1),
        (True, 1, 1),
        (None, 0, 1),
    ],
)
def test_the_comparison_sees_what_differs(expected, actual, n_differences):
    assert len(list(differences(expected, actual, 1e-5))) == n_differences


def test_times_digests_and_folders_are_taken_out_of_texts(tmp_path):
    text = f"{tmp_path}/model at 2026-11-19T05:49:42+00:00: a49ab695f1077b9b-3, 0.123456789012 "
    assert without_volatile(text, tmp_path) == "model at TIME: DIGEST, 0.123456789012"
