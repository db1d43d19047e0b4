"""Which labels a training step reads, where there are too many to read all."""

from __future__ import annotations

import pytest
import torch
from numpy.testing import assert_allclose

from polyseme.space.steps import read_columns


@pytest.fixture
def is_present():
    """Whether each of ten labels is likely in some row of a batch: 2, 4 and 7 are."""
    targets = torch.zeros(2, 3, 10)
    targets[0, 1, 2] = 1
    targets[1, 0, 7] = 1
    targets[0, 0, 7] = 1
    targets[0, 2, 4] = 0.9
    targets[0, 2, 5] = 0.3
    return (targets > 0.5).flatten(0, -2).any(dim=0)


@pytest.mark.parametrize("most", [3, 5, 8])
def test_present_labels_are_read_first_and_all_labels_count_on_average(is_present, most):
    counts = torch.zeros(10)
    for seed in range(400):
        generator = torch.Generator().manual_seed(seed)
        order = torch.rand(10, generator=generator)
        columns, factors = read_columns(is_present, order, most)
        labels = set(columns.tolist())
        assert len(labels) == most
        assert {2, 4, 7} <= labels
        counts[columns] += factors
    # Over the steps every label counts as if all were read.
    mean_counts = counts / 400
    assert_allclose(mean_counts[[2, 4, 7]], 1)
    if most > 3:
        assert_allclose(mean_counts, 1, atol=0.35)


def test_where_not_all_present_labels_can_be_read_some_stand_for_the_rest(is_present):
    columns, factors = read_columns(is_present, torch.rand(10), 2)
    assert set(columns.tolist()) <= {2, 4, 7}
    assert factors.tolist() == [1.5, 1.5]
