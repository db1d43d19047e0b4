"""Members that train together on one device: the same recipe as member by member."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from polyseme.captured import CapturedLearner
from polyseme.training import Batches, SpaceTraining
from test_training import QUICK, finds_company, finds_topics, prepared

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def together(device="cpu", n_steps=80, plan=QUICK, **world):
    """Give a training whose members take their steps as one; on a processor without a graph."""
    made = SpaceTraining(*prepared(n_steps, plan=plan, **world), device)
    if device == "cpu":
        made._learners = [CapturedLearner(made)]
    return made


def on_processor(made):
    made.members = made.members.to("cpu")
    return made


@pytest.mark.parametrize("device", DEVICES)
def test_topics_and_the_company_of_unseen_labels_are_learned(device):
    made = together(device)
    made.run()
    assert finds_topics(on_processor(made)) == 1 and finds_company(made, slice(13, 16))
    documents = [losses["documents"] for losses in made.history]
    assert documents[-1] < documents[0]


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_may_read_a_part_of_the_labels(device):
    made = together(device, n_steps=160, plan=replace(QUICK, label_block=8))
    made.run()
    assert finds_topics(on_processor(made)) == 1 and finds_company(made, slice(13, 16))


@pytest.mark.parametrize("device", DEVICES)
def test_documents_alone_are_learned_from(device):
    world = {"X": None, "own": np.zeros(0, dtype=np.int64), "n_semantics": 76}
    made = together(device, **world)
    made.run()
    assert finds_company(on_processor(made), slice(4, 7))


@pytest.mark.parametrize("device", DEVICES)
def test_a_training_goes_on_from_the_end_of_a_round_to_the_same_bits(device):
    whole, kept = together(device), []
    whole.run(after=lambda: kept.append((whole.get_state(), whole.round, list(whole.history))))
    other = together(device)
    other.set_state(*kept[1])
    other.run()
    for one, same in zip(whole.members.groups, other.members.groups, strict=True):
        np.testing.assert_array_equal(one.cpu().numpy(), same.cpu().numpy())
    assert whole.history == other.history


@pytest.mark.parametrize("device", DEVICES)
def test_a_member_never_sees_its_fold(device):
    made = together(device)
    (learner,) = made._learners
    rows, sizes = learner.visible.cpu().numpy(), learner.n_visible.cpu().numpy().ravel()
    for place, fold in enumerate(made.fold_of):
        mine = rows[place, : sizes[place]]
        assert set(mine) == set(np.flatnonzero(made.data.folds != fold))


def test_what_a_step_aims_at_is_what_member_by_member_aims_at():
    """Weights of the two ways agree: of documents' labels, of items, of rare labels."""
    data, plan, seed = prepared(12, plan=replace(QUICK, label_block=2048))
    one = SpaceTraining(data, plan, seed)
    both = together(n_steps=12)
    now = one._begin(None)
    (learner,) = both._learners
    learner._take_over(now)
    drawn = learner._draw()
    batch = Batches(one, 0, now).draw()
    items = slice(-plan.item_batch, None)
    ours, theirs = batch.weights[0, items], drawn.weights[0, items]
    # Before anybody was asked all items count alike.
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    n = plan.document_batch
    np.testing.assert_allclose(
        batch.weights[0, 0, : data.n_seen], drawn.weights[0, 0, : data.n_seen], rtol=1e-5
    )
    for column in range(data.n_seen, data.n_outputs):
        possible = set(np.round(batch.weights[0, :n, column].numpy(), 9))
        assert set(np.round(drawn.weights[0, :n, column].numpy(), 9)) & possible
