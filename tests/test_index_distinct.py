"""Sorting and joining of concepts, against plain dictionaries."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyseme.index.distinct as module
from polyseme.index.distinct import distinct


def joined(points, labels, counts):
    """Add up counts of equal rows of a label with a dictionary."""
    totals = {}
    for point, label, count in zip(np.asarray(points, np.float32), labels, counts, strict=True):
        key = (int(label), tuple((point + np.float32(0)).tolist()))
        totals[key] = totals.get(key, 0) + int(count)
    return totals


def check(points, labels, counts):
    points, labels, counts = np.asarray(points), np.asarray(labels), np.asarray(counts)
    rows, ids, totals = distinct(points, labels, counts)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert (np.diff(ids) >= 0).all()
    assert len(joined(rows, ids, totals)) == len(rows)
    assert joined(rows, ids, totals) == joined(points, labels, counts)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(1, 3), *[st.sampled_from([-1.0, -0.0, 0.0, 1.0])] * 3
        ),
        min_size=1,
        max_size=40,
    )
)
def test_equal_concepts_are_joined(table):
    rows = np.array(table)
    check(rows[:, 2:], rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64))


@pytest.mark.parametrize("factor", [0, 2**63])
def test_concepts_whose_keys_collide_stay_apart(factor, monkeypatch):
    keys = module._keys
    monkeypatch.setattr(
        module, "_keys", lambda points, labels: keys(points, labels) * np.uint64(factor)
    )
    generator = np.random.default_rng(0)
    points = generator.integers(-2, 3, (200, 2)).astype(np.float32)
    check(points, generator.integers(0, 3, 200), generator.integers(1, 4, 200))


def test_keys_tell_signs_and_places_apart():
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 10)).reshape(10, -1).T.astype(np.float32)
    keys = module._keys(signs, np.zeros(len(signs), dtype=np.int64))
    assert len(np.unique(keys)) == len(signs) == 1024
    ones = np.eye(50, dtype=np.float32)
    assert len(np.unique(module._keys(ones, np.zeros(50, dtype=np.int64)))) == 50


def test_nothing_is_copied_where_nothing_changes():
    generator = np.random.default_rng(0)
    points = generator.standard_normal((5000, 40), dtype=np.float32)
    labels, counts = np.arange(5000) // 7, np.ones(5000, dtype=np.int64)
    rows, ids, totals = distinct(points, labels, counts)
    assert rows is points
    np.testing.assert_array_equal(ids, labels)
    np.testing.assert_array_equal(totals, counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_more_than_one_copy_is_held(dtype):
    generator = np.random.default_rng(0)
    points = generator.standard_normal((60_000, 100)).astype(dtype)
    labels, counts = generator.integers(0, 9, 60_000), np.ones(60_000, dtype=np.int64)
    tracemalloc.start()
    rows, _, _ = distinct(points, labels, counts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.nbytes == 24e6
    assert peak < 1.7 * rows.nbytes


def test_other_numbers_are_rounded_to_single_precision():
    check([[1, 2], [1, 2], [3, 4]], [1, 1, 0], [1, 1, 1])
    check(np.array([[0.1], [np.float64(np.float32(0.1))]]), [0, 0], [1, 2])
    check(np.ones((4, 6), dtype=np.float32)[:, ::2], [0, 0, 1, 1], [1, 1, 1, 1])
