"""Training on a real Ray cluster on this machine: what one process trains, whoever dies."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from polyseme import ConceptSpace, SpacePlan, ZeroShotTagger
from polyseme.base.validation import InputError
from polyseme.batch import RayTraining
from polyseme.batch.ray_training import _gather_members, run_name
from polyseme.feedback.verdict_log import Verdict
from polyseme.space.space_fit import prepare_training
from polyseme.storage.model_file import write_model
from ray_workers import kill_one

pytest.importorskip("ray", reason="the extra `ray` is not installed")


RNG = np.random.default_rng(0)
PLACES = (["apple", "knife", "oven", "sink"], ["apple", "desk", "phone", "charger"])
SETS = [RNG.permutation(place)[:3].tolist() for place in PLACES * 20]
TAGS = [RNG.permutation(place[:3])[:2].tolist() for place in PLACES * 20]
X = RNG.normal(size=(2, 8))[[0, 1] * 20] + RNG.normal(size=(40, 8))


POOL = np.random.default_rng(1).normal(size=(30, 8))
VERDICTS = [Verdict("3", "charger", True), Verdict("4", "knife", False)]


def tagger() -> ZeroShotTagger:
    """Return an unfitted tagger that trains in twelve rounds."""
    plan = SpacePlan(hidden=16, code=16, round_steps=5)
    space = ConceptSpace(n_folds=3, n_steps=60, plan=plan)
    return ZeroShotTagger(space, n_validations=0, random_state=0)


def fit_to_everything(trainer: RayTraining | None = None) -> ZeroShotTagger:
    """Fit a tagger to tags, a pool of items without tags, and verdicts."""
    unfitted = tagger()
    return unfitted.fit(X, TAGS, SETS, unlabelled=POOL, verdicts=VERDICTS, trainer=trainer)


@pytest.mark.slow
def test_two_workers_train_the_same_model_as_one_process_although_one_is_killed(
    engine, tmp_path, monkeypatch
):
    # A round ends when Ray has noticed its checkpoint; by default it looks every two seconds.
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    local = fit_to_everything()
    killed = threading.Event()

    def kill_after_a_checkpoint() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not killed.is_set():
            has_checkpoint = any(tmp_path.rglob("worker-*"))
            if has_checkpoint and kill_one("RayTrainWorker"):
                killed.set()
            time.sleep(0.02)

    threading.Thread(target=kill_after_a_checkpoint, daemon=True).start()
    for attempt in range(3):  # a training may be over before anybody is killed
        storage = tmp_path / str(attempt)
        trainer = RayTraining(workers=2, storage=storage)
        distributed = fit_to_everything(trainer)
        if killed.is_set():
            break
    assert distributed.space_.digest_ == local.space_.digest_
    assert_array_equal(distributed.predict_proba(X), local.predict_proba(X))
    assert_array_equal(distributed.predict_proba(POOL), local.predict_proba(POOL))
    histories = zip(distributed.space_.history_, local.space_.history_, strict=True)
    for losses, expected in histories:
        assert losses == pytest.approx(expected, rel=1e-6)
    assert killed.is_set(), "there was no worker to kill"
    fitted_to_tags_alone = tagger().fit(X, TAGS, SETS)
    assert distributed.space_.digest_ != fitted_to_tags_alone.space_.digest_


@pytest.mark.slow
def test_a_training_that_keeps_failing_ends_with_a_sentence(engine, monkeypatch):
    from ray import train

    def fail(self: object) -> None:
        raise train.TrainingFailedError("Training failed due to worker errors:\nout of luck")

    monkeypatch.setattr("ray.train.torch.TorchTrainer.fit", fail)
    trainer = RayTraining(workers=1)
    with pytest.raises(InputError, match=r"failed 4 times; the last one said: out of luck$"):
        tagger().fit(X, TAGS, SETS, trainer=trainer)


def test_a_training_without_workers_is_refused():
    trainer = RayTraining(workers=0)
    message = r"`workers` of `RayTraining` must be a whole number"
    with pytest.raises(InputError, match=message):
        tagger().fit(X, TAGS, SETS, trainer=trainer)


def test_a_training_is_resumed_only_with_the_same_data_plan_seed_and_number_of_workers():
    documents = sp.csr_matrix(np.eye(20, 6))
    features = np.ones((20, 3))
    changed_features = np.zeros((20, 3))
    space = ConceptSpace(n_folds=2, n_steps=8, random_state=0)
    data, seed = prepare_training(space, documents, features, None, None, None)
    changed_data, _ = prepare_training(space, documents, changed_features, None, None, None)
    plan = space.plan_
    changed_plan = replace(plan, n_steps=9)
    names = {
        run_name(data, plan, seed, 2),
        run_name(changed_data, plan, seed, 2),
        run_name(data, plan, seed + 1, 2),
        run_name(data, plan, seed, 1),
        run_name(data, changed_plan, seed, 2),
    }
    assert len(names) == 5
    assert run_name(data, plan, seed, 2) in names


def test_only_checkpoints_of_a_training_are_forgotten(tmp_path):
    foreign = {"polyseme-my-own-notes", "polyseme-1-0123456789abcdef-2-copy", "model"}
    for name in (*foreign, "polyseme-1-0123456789abcdef-2"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "file").touch()
    RayTraining(storage=tmp_path).forget()
    assert {path.name for path in tmp_path.iterdir()} == foreign
    RayTraining(storage=tmp_path / "nowhere").forget()
    RayTraining().forget()


SHAPE = [3, 3, 2, 4, 2]  # labels, outputs, features, hidden, code
WIDTHS = (22, 26, 9)


def write_checkpoints(folder, change=None):
    """Write the checkpoints of two workers with three members; `change` applies to the second."""
    for rank, n_members in enumerate((2, 1)):
        state = {"round": 1, "history": [{"loss": 0.5}], "shape": list(SHAPE)}
        arrays = {"optimizer.mean": np.zeros((n_members, 57), np.float32)}
        for layer, width in enumerate(WIDTHS):
            arrays[f"weights.{layer}"] = np.full((n_members, width), rank, np.float32)
        if rank and change is not None:
            change(state, arrays)
        write_model(folder / f"worker-{rank}", "training", state, arrays)


def test_checkpoints_of_workers_are_merged_by_members(tmp_path):
    write_checkpoints(tmp_path)
    members, history = _gather_members(tmp_path, 2, 3)
    shapes = [group.shape for group in members.groups]
    assert shapes == [(3, width) for width in WIDTHS]
    assert members.readout[:, 0].tolist() == [0, 1, 0]
    assert history == [{"loss": 0.5}]


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
def test_a_checkpoint_with_wrong_values_is_refused(tmp_path, change):
    write_checkpoints(tmp_path, change)
    with pytest.raises(InputError, match=r"^The checkpoint at '.*worker-1' cannot be used: "):
        _gather_members(tmp_path, 2, 3)
