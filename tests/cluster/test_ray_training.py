"""Training on a real Ray cluster on this machine: what one process trains, whoever dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from polyseme import ConceptSpace, SpacePlan, ZeroShotTagger
from polyseme._validation import InputError
from polyseme.cluster import RayEngine, RayTraining, open_engine
from polyseme.cluster.training import _gather_members, run_name
from polyseme.persistence import write_model
from polyseme.verdicts import Verdict
from ray_workers import kill_one

pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    with open_engine("ray", workers=2) as made:
        assert made is not None
        yield made


RNG = np.random.default_rng(0)
PLACES = (["apple", "knife", "oven", "sink"], ["apple", "desk", "phone", "charger"])
SETS = [RNG.permutation(place)[:3].tolist() for place in PLACES * 20]
TAGS = [RNG.permutation(place[:3])[:2].tolist() for place in PLACES * 20]
X = RNG.normal(size=(2, 8))[[0, 1] * 20] + RNG.normal(size=(40, 8))


def tagger() -> ZeroShotTagger:
    plan = SpacePlan(hidden=16, code=16, round_steps=5)
    return ZeroShotTagger(ConceptSpace(n_folds=3, n_steps=60, plan=plan), random_state=0)


@pytest.mark.slow
def test_two_workers_train_what_one_process_trains_although_one_is_killed(engine, tmp_path):
    alone, killed = tagger().fit(X, TAGS, SETS), threading.Event()

    def kill_when_a_state_was_left() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not killed.is_set():
            if any(tmp_path.rglob("worker-*")) and kill_one("RayTrainWorker"):
                killed.set()
            time.sleep(0.02)

    threading.Thread(target=kill_when_a_state_was_left, daemon=True).start()
    for attempt in range(3):  # a training may be over before anybody is killed
        trainer = RayTraining(workers=2, storage=tmp_path / str(attempt))
        together = tagger().fit(X, TAGS, SETS, trainer=trainer)
        if killed.is_set():
            break
    assert np.array_equal(together.predict_proba(X), alone.predict_proba(X))
    assert together.space_.history_ == [
        {name: pytest.approx(value, rel=1e-6) for name, value in losses.items()}
        for losses in alone.space_.history_
    ]
    assert killed.is_set(), "no worker was there to be killed"


@pytest.mark.slow
def test_workers_learn_from_a_pool_and_verdicts_what_one_process_learns(engine, tmp_path):
    pool = np.random.default_rng(1).normal(size=(30, 8))
    said = [Verdict("3", "charger", True), Verdict("4", "knife", False)]
    given = {"unlabelled": pool, "verdicts": said}
    alone, together, without = (
        tagger().set_params(n_validations=0).fit(X, TAGS, SETS, **options)
        for options in (given, given | {"trainer": RayTraining(2, storage=tmp_path)}, {})
    )
    assert together.space_.digest_ == alone.space_.digest_ != without.space_.digest_
    assert np.array_equal(together.predict_proba(pool), alone.predict_proba(pool))


@pytest.mark.slow
def test_a_training_that_fails_for_good_is_told_in_a_sentence(engine, monkeypatch):
    from ray import train

    def fail(self: object) -> None:
        raise train.TrainingFailedError("Training failed due to worker errors:\nout of luck")

    monkeypatch.setattr("ray.train.torch.TorchTrainer.fit", fail)
    with pytest.raises(InputError, match=r"failed 4 times; the last one said: out of luck$"):
        tagger().fit(X, TAGS, SETS, trainer=RayTraining(workers=1))
    with pytest.raises(InputError, match=r"`workers` of `RayTraining` must be a whole number"):
        tagger().fit(X, TAGS, SETS, trainer=RayTraining(workers=0))


def test_only_a_training_of_the_same_data_shared_alike_is_gone_on_with():
    world = {"documents": sp.csr_matrix(np.eye(20, 6)), "X": np.ones((20, 3))}
    space = ConceptSpace(n_folds=2, n_steps=8, random_state=0)
    data, seed = space.prepare(*world.values(), None, None, None)
    other, _ = space.prepare(world["documents"], np.zeros((20, 3)), None, None, None)
    plan = space.plan_
    runs = [(data, plan, seed, 2), (other, plan, seed, 2), (data, plan, seed + 1, 2)]
    runs += [(data, plan, seed, 1), (data, replace(plan, n_steps=9), seed, 2)]
    assert len({run_name(*options) for options in runs}) == 5
    assert run_name(*runs[0]) == run_name(*runs[0])


def test_only_states_of_ours_are_forgotten(tmp_path):
    mine = ["polyseme-my-own-notes", "polyseme-1-0123456789abcdef-2-copy", "model"]
    for name in (*mine, "polyseme-1-0123456789abcdef-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    RayTraining(storage=tmp_path).forget()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(mine)
    RayTraining(storage=tmp_path / "nowhere").forget()
    RayTraining().forget()


SHAPE = [3, 3, 2, 4, 2]  # labels, outputs, features, hidden, code
WIDTHS = (22, 26, 9)


def left_by_workers(folder, change=None):
    """Write what two workers leave of three members; `change` makes the second one's wrong."""
    for rank, n_members in enumerate((2, 1)):
        state = {"round": 1, "history": [{"loss": 0.5}], "shape": list(SHAPE)}
        arrays = {
            f"weights.{place}": np.full((n_members, width), rank, np.float32)
            for place, width in enumerate(WIDTHS)
        }
        arrays["optimizer.mean"] = np.zeros((n_members, 57), np.float32)
        if rank and change is not None:
            change(state, arrays)
        write_model(folder / f"worker-{rank}", "training", state, arrays)


def test_what_workers_leave_is_put_together_by_members(tmp_path):
    left_by_workers(tmp_path)
    members, history = _gather_members(tmp_path, 2, 3)
    assert [group.shape for group in members.groups] == [(3, width) for width in WIDTHS]
    assert members.readout[:, 0].tolist() == [0, 1, 0] and history == [{"loss": 0.5}]


@pytest.mark.parametrize(
    "change",
    [
        lambda state, arrays: arrays.pop("weights.1"),
        lambda state, arrays: arrays.update({"weights.1": np.zeros((1, 25), np.float32)}),
        lambda state, arrays: arrays.update({"weights.1": np.zeros((2, 26), np.float32)}),
        lambda state, arrays: arrays.update({"weights.1": np.zeros((1, 26))}),
        lambda state, arrays: arrays.update({"weights.1": np.zeros(26, np.float32)}),
        lambda state, arrays: arrays.update({"weights.1": np.full((1, 26), np.nan, np.float32)}),
        lambda state, arrays: arrays.update({"weights.1": np.full((1, 26), 1e30, np.float32)}),
        lambda state, arrays: state.update(shape=[3, 3, 2, 4, 3]),
        lambda state, arrays: state.update(history=[]),
        lambda state, arrays: state.update(history=[{"loss": 0.5}] * 2),
        lambda state, arrays: state.update(history=[{"other": 0.5}]),
    ],
)
def test_what_no_worker_leaves_is_refused_before_it_is_put_together(tmp_path, change):
    left_by_workers(tmp_path, change)
    with pytest.raises(InputError, match=r"^The checkpoint at '.*worker-1' cannot be used: "):
        _gather_members(tmp_path, 2, 3)
