"""Members that train together on one device: the same recipe as member by member."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyseme.captured import CapturedLearner
from polyseme.training import Batches, SpaceTraining
from test_training import QUICK, assert_same_bits, finds_company, finds_topics, prepared

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


def test_a_state_of_one_way_is_gone_on_with_by_the_other():
    alone = SpaceTraining(*prepared(80, plan=QUICK))
    kept = []
    alone.run(after=lambda: kept.append((alone.get_state(), alone.round, list(alone.history))))
    other = together()
    other.set_state(*kept[1])
    (learner,) = other._learners
    for name, one in learner.optimizer.get_state().items():
        np.testing.assert_array_equal(one.numpy(), kept[1][0][f"optimizer.{name}"])
        assert len({row.tobytes() for row in one.numpy()}) == len(other.members), "each its own"
    back = SpaceTraining(*prepared(80, plan=QUICK))
    back.set_state(other.get_state(), *kept[1][1:])
    back.run()
    assert_same_bits(back.members.groups, alone.members.groups)


@pytest.mark.parametrize("soft", [False, True], ids=["first round", "later"])
def test_a_step_counts_what_member_by_member_counts(soft):
    """The two ways draw differently; what labels, documents and items count must agree."""
    data, plan, seed = prepared(12, plan=QUICK)
    one, both = SpaceTraining(data, plan, seed), together(n_steps=12)
    one.round = both.round = int(soft)
    now = one._begin(None)
    (learner,) = both._learners
    learner._take_over(now)
    n, n_seen, n_items = plan.document_batch, data.n_seen, plan.item_batch
    batches = Batches(one, 0, now)
    ours, theirs = ([], []), ([], [])
    for _ in range(200):
        for told, batch in ((ours, batches.draw()), (theirs, learner._draw())):
            told[0].append(batch.weights[0, :n].numpy().copy())
            told[1].append(batch.weights[0, n:].numpy().copy())
    documents = [np.concatenate(told[0]) for told in (ours, theirs)]
    np.testing.assert_allclose(documents[0][:, :n_seen], documents[1][:, :n_seen], rtol=1e-5)
    for column in range(n_seen, data.n_outputs):
        # Whether an unseen label is hidden is drawn: the same weights, about as often.
        values = [np.unique(table[:, column].round(8), return_counts=True) for table in documents]
        np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-3)
        np.testing.assert_allclose(values[0][1], values[1][1], rtol=0.15, atol=60)
    # Items by probable tags come before items by features; the first round has none of them.
    by_tags = [np.stack(told[1])[:, :-n_items].sum(axis=1).mean(axis=0) for told in (ours, theirs)]
    by_features = [
        np.stack(told[1])[:, -n_items:].sum(axis=1).mean(axis=0) for told in (ours, theirs)
    ]
    np.testing.assert_allclose(by_tags[0], by_tags[1], rtol=0.1, atol=1e-9)
    np.testing.assert_allclose(by_features[0], by_features[1], rtol=0.1, atol=1e-9)
    assert (by_tags[0].sum() > 0) == soft


def test_one_long_document_makes_no_table_of_all():
    table = np.eye(60, 50)
    table[0] = 1
    world = {"documents": sp.csr_matrix(table), "X": None, "own": np.zeros(0, dtype=np.int64)}
    made = together(n_steps=8, n_semantics=60, **world)
    (learner,) = made._learners
    assert learner.labels.numel() < 200
    rows = learner._documents(torch.arange(60)[None].expand(len(made.members), -1))
    np.testing.assert_array_equal(rows[0].numpy(), table)
