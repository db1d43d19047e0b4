"""Members that train together on one device: as member by member, with other draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyseme.gpu_training import GpuLearner
from polyseme.training import SpaceTraining
from test_training import (
    QUICK,
    Watched,
    assert_same_bits,
    finds_context,
    finds_topics,
    prepared,
)

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
DOCUMENTS_ALONE = {"X": None, "item_documents": None, "n_label_sets": 76}


def together(device="cpu", n_steps=80, plan=QUICK, **world):
    """Give a training whose members take their steps as one; on a processor without a graph."""
    made = SpaceTraining(*prepared(n_steps, plan=plan, **world), device)
    if device == "cpu":
        made.learners = [GpuLearner(made, slice(None))]
    return made


@devices
@pytest.mark.parametrize(
    ("n_steps", "plan", "world", "context"),
    [
        (80, QUICK, {}, slice(13, 16)),
        (160, replace(QUICK, label_block=8), {}, slice(13, 16)),
        (80, QUICK, DOCUMENTS_ALONE, slice(4, 7)),
    ],
    ids=["items", "some labels", "documents alone"],
)
def test_topics_and_the_context_of_unseen_labels_are_learned(device, n_steps, plan, world, context):
    made = together(device, n_steps, plan, **world)
    made.run()
    made.members = made.members.to("cpu")
    assert finds_context(made, context) and (world or finds_topics(made) == 1)
    if plan is QUICK:  # the loss of some labels depends on which they are
        assert made.history[-1]["documents"] < made.history[0]["documents"]


@devices
def test_a_training_goes_on_from_the_end_of_a_round_to_the_same_bits(device):
    whole, kept = together(device), []
    whole.run(after=lambda: kept.append((whole.get_state(), whole.round, list(whole.history))))
    other = together(device)
    other.set_state(*kept[1])
    other.run()
    assert_same_bits(*([group.cpu() for group in run.members.groups] for run in (whole, other)))
    assert whole.history == other.history


def test_a_state_of_one_way_is_gone_on_with_by_the_other():
    alone, kept = SpaceTraining(*prepared(80, plan=QUICK)), []
    alone.run(after=lambda: kept.append((alone.get_state(), alone.round, list(alone.history))))
    other = together()
    other.set_state(*kept[1])
    (learner,) = other.learners
    for name, moments in learner.optimizer.get_state().items():
        np.testing.assert_array_equal(moments.numpy(), kept[1][0][f"optimizer.{name}"])
        assert len({row.tobytes() for row in moments.numpy()}) == len(other.members), "each its own"
    back = SpaceTraining(*prepared(80, plan=QUICK))
    back.set_state(other.get_state(), *kept[1][1:])
    back.run()
    assert_same_bits(back.members.groups, alone.members.groups)


@devices
def test_a_member_sees_all_but_its_fold_and_probable_tags_wait_for_the_first_exchange(device):
    made = together(device)
    data, (learner,) = made.data, made.learners
    names = Watched.names_of(data)
    drawn = [[set(), set()] for _ in made.numbers]
    for made.round in range(2):
        learner.batches.begin(made._begin_round(None))
        for _ in range(30):
            batch = learner.batches.draw()
            by_tags = batch.weights[:, 24 : batch.tags.shape[1]]
            assert (by_tags[..., : data.n_seen] > 0).all() if made.round else not by_tags.any()
            for member, (documents, items) in enumerate(drawn):
                targets, features = batch.targets[member].cpu(), batch.features[member].cpu()
                rows = targets[:24, : data.n_labels].numpy()
                documents |= {names[0][row.tobytes()] for row in rows}
                items |= {names[1][row.tobytes()] for row in features.numpy()}
    for fold, (documents, items) in zip(made.fold_of, drawn, strict=True):
        assert documents == set(np.flatnonzero(data.folds != fold))
        assert items == set(np.flatnonzero(data.folds[data.item_documents] != fold))


def test_one_long_document_makes_no_table_of_all():
    table = np.eye(60, 50)
    table[0] = 1
    world = DOCUMENTS_ALONE | {"documents": sp.csr_matrix(table), "n_label_sets": 60}
    made = together(n_steps=8, **world)
    batches = made.learners[0].batches
    assert batches.labels.numel() < 200
    rows = batches._tags_of(torch.arange(60)[None].expand(len(made.members), -1))
    np.testing.assert_array_equal(rows[0].numpy(), table)
