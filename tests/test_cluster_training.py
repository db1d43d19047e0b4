"""The training of a concept space by Ray Train: the same bits as in one process, whoever dies."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from polyseme import ConceptSpace, SpacePlan, ZeroShotTagger
from polyseme._validation import InputError
from polyseme.cluster import RayTraining
from polyseme.cluster.training import run_name

# Nothing is reported to anybody, and workers do not stand back behind other tests.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
pytest.importorskip("ray", reason="the extra `ray` is not installed")

RNG = np.random.default_rng(0)
PLACES = (["apple", "knife", "oven", "sink"], ["apple", "desk", "phone", "charger"])
SETS = [RNG.permutation(place)[:3].tolist() for place in PLACES * 20]
TAGS = [RNG.permutation(place[:3])[:2].tolist() for place in PLACES * 20]
LOOKS = RNG.normal(size=(2, 8))
X = LOOKS[[0, 1] * 20] + RNG.normal(size=(40, 8))


def tagger() -> ZeroShotTagger:
    plan = SpacePlan(hidden=16, code=16, round_steps=5)
    return ZeroShotTagger(ConceptSpace(n_folds=3, n_steps=60, plan=plan), random_state=0)


@pytest.fixture(scope="module")
def alone() -> ZeroShotTagger:
    return tagger().fit(X, TAGS, SETS)


def workers() -> list[int]:
    """Find the processes that train."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdecimal() and b"RayTrainWorker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_two_workers_train_what_one_process_trains_although_one_is_killed(
    alone: ZeroShotTagger, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        """Kill a worker as soon as a state was left."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not killed:
            running = workers()
            if running and any(tmp_path.rglob("worker-*")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running[0], signal.SIGKILL)
                    killed.append(running[0])
            time.sleep(0.02)

    watching = threading.Thread(target=kill_one, daemon=True)
    watching.start()
    for attempt in range(3):  # a training may be over before anybody is killed
        trainer = RayTraining(workers=2, storage=tmp_path / str(attempt))
        together = tagger().fit(X, TAGS, SETS, trainer=trainer)
        if killed:
            break
    assert np.array_equal(together.predict_proba(X), alone.predict_proba(X))
    assert together.space_.history_ == [
        {name: pytest.approx(value, rel=1e-6) for name, value in one.items()}
        for one in alone.space_.history_
    ]
    assert killed, "no worker was there to be killed"


def test_only_a_training_of_the_same_data_shared_alike_is_gone_on_with() -> None:
    world = {"documents": sp.csr_matrix(np.eye(20, 6)), "X": np.ones((20, 3)), "own": None}
    space = ConceptSpace(n_folds=2, n_steps=8, random_state=0)
    data, seed = space.prepare(**world, groups=None, n_semantics=None)
    other, _ = space.prepare(**(world | {"X": np.zeros((20, 3))}), groups=None, n_semantics=None)
    plan = space.plan_
    names = {
        run_name(data, plan, seed, 2),
        run_name(other, plan, seed, 2),
        run_name(data, plan, seed + 1, 2),
        run_name(data, plan, seed, 1),
        run_name(data, replace(plan, n_steps=9), seed, 2),
    }
    assert len(names) == 5 and run_name(data, plan, seed, 2) in names


def test_no_workers_are_refused() -> None:
    with pytest.raises(InputError, match=r"`workers` of `RayTraining` must be a whole number"):
        tagger().fit(X, TAGS, SETS, trainer=RayTraining(workers=0))


@pytest.mark.slow
def test_a_training_that_fails_for_good_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray import train

    def fail(self: object) -> None:
        raise train.TrainingFailedError("Training failed due to worker errors:\nout of luck")

    monkeypatch.setattr("ray.train.torch.TorchTrainer.fit", fail)
    with pytest.raises(InputError, match=r"failed 4 times; the last one said: out of luck$"):
        tagger().fit(X, TAGS, SETS, trainer=RayTraining(workers=1))
