"""The training of a concept space by several workers of a Ray cluster (Ray Train).

In: what a space is learned from. Out: the same members, on processors bit for bit, that one process
trains: the members are shared out among the workers, which meet between rounds to exchange their
answers. After every round each worker leaves its state; when one dies, all go on from there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyseme._validation import InputError, check_number
from polyseme.members import Members, Shape
from polyseme.persistence import read_model, write_model
from polyseme.training import (
    CHECKPOINT,
    Answers,
    SpacePlan,
    SpaceTraining,
    TrainingData,
    fingerprint,
)

# How often a training goes on after workers died.
RETRIES = 3
Progress = Callable[[int, int, Mapping[str, float]], None]


@dataclass(frozen=True)
class RayTraining:
    """Train members by Ray Train's `TorchTrainer`; give it to `ZeroShotTagger.fit` as `trainer`.

    Attributes
    ----------
    workers : int
        Processes; more than there are members are not used.
    address : str, optional
        Of the cluster, as for `polyseme.cluster.open_engine`.
    storage : str or Path, optional
        A folder that all machines reach, where states are left; by default a temporary one, which
        does for one machine.
    device : str
        "cpu", or "cuda" for a GPU a worker.
    """

    workers: int = 2
    address: str | None = None
    storage: str | Path | None = None
    device: str = "cpu"

    def __call__(
        self, data: TrainingData, plan: SpacePlan, seed: int, progress: Progress | None = None
    ) -> tuple[Members, list[dict[str, float]]]:
        """Train all members.

        Parameters
        ----------
        data : TrainingData
        plan : SpacePlan
        seed : int
        progress : callable, optional
            Is told once, at the end: Ray shows its own progress.

        Returns
        -------
        members : Members
        history : list of dict
        """
        check_number("workers", self.workers, owner="RayTraining", low=1, whole=True)
        from polyseme.cluster.engines import open_engine

        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        with open_engine("ray", self.address, self.workers) as engine:
            assert engine is not None  # "ray" always gives one
            with tempfile.TemporaryDirectory() as folder:
                storage = Path(self.storage or folder).resolve()
                n_members = (int(data.folds.max(initial=0)) + 1) * plan.members_per_fold
                workers = min(self.workers, n_members)
                checkpoint = self._run(engine.ray, storage, workers, data, plan, seed)
                with checkpoint.as_directory() as kept:
                    members, history = _gathered(Path(kept), workers)
        if progress is not None:
            progress(plan.n_rounds, plan.n_rounds, history[-1])
        return members, history

    def forget(self) -> None:
        """Remove the states in `storage`, once they are of no use; nothing else that is there."""
        if self.storage is None or not Path(self.storage).is_dir():
            return
        for folder in Path(self.storage).glob("polyseme-*-*-*"):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # something of somebody else's is there
            Path(self.storage).rmdir()

    def _run(
        self,
        ray: Any,
        storage: Path,
        workers: int,
        data: TrainingData,
        plan: SpacePlan,
        seed: int,
    ) -> Any:
        """Run the workers; give the last checkpoint."""
        from ray import train
        from ray.train.torch import TorchTrainer

        trainer = TorchTrainer(
            _work,
            train_loop_config={
                "data": ray.put(data),
                "plan": plan,
                "seed": seed,
                "device": self.device,
            },
            scaling_config=train.ScalingConfig(num_workers=workers, use_gpu=self.device != "cpu"),
            run_config=train.RunConfig(
                name=run_name(data, plan, seed, workers),
                storage_path=str(storage),
                failure_config=train.FailureConfig(max_failures=RETRIES),
                checkpoint_config=train.CheckpointConfig(num_to_keep=2),
            ),
        )
        try:
            return trainer.fit().checkpoint
        except train.TrainingFailedError as error:
            raise InputError(
                f"The workers of the training failed {RETRIES + 1} times; the last one said: "
                f"{str(error).strip().splitlines()[-1]}"
            ) from error


def run_name(data: TrainingData, plan: SpacePlan, seed: int, workers: int) -> str:
    """Name a run: one of the same name is gone on with, so it is of the same data, shared alike."""
    return f"polyseme-{seed}-{fingerprint(data, plan)[:16]}-{workers}"


def _work(config: dict[str, Any]) -> None:
    """Train one worker's share of the members; runs in the worker."""
    import ray
    import torch.distributed as dist
    from ray import train

    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    data: TrainingData = ray.get(config["data"])
    training = SpaceTraining(data, config["plan"], config["seed"], config["device"], (rank, world))
    before = train.get_checkpoint()
    if before is not None:
        with before.as_directory() as folder:
            told, arrays = read_model(Path(folder) / f"worker-{rank}", CHECKPOINT)
            training.set_state(arrays, int(told["round"]), told["history"])

    def exchange(mine: dict[int, Answers]) -> dict[int, Answers]:
        everybody: list[dict[int, Answers]] = [{} for _ in range(world)]
        dist.all_gather_object(everybody, mine)
        return {number: one for some in everybody for number, one in some.items()}

    def after() -> None:
        with tempfile.TemporaryDirectory() as folder:
            told: dict[str, Any] = {
                "round": training.round,
                "history": training.history,
                "shape": list(training.members.shape),
            }
            write_model(Path(folder) / f"worker-{rank}", CHECKPOINT, told, training.get_state())
            kept = train.Checkpoint.from_directory(folder)
            train.report(dict(training.history[-1]), checkpoint=kept)

    training.run(exchange if world > 1 else None, after)
    if before is not None and training.round == int(told["round"]):
        after()  # everything was done before a worker died: leave it once more


def _gathered(folder: Path, workers: int) -> tuple[Members, list[dict[str, float]]]:
    """Put the workers' shares together."""
    shares = [read_model(folder / f"worker-{rank}", CHECKPOINT) for rank in range(workers)]
    shape = Shape(*shares[0][0]["shape"])
    groups = []
    for place in range(3):
        parts = [np.asarray(arrays[f"weights.{place}"]) for _, arrays in shares]
        whole = np.empty((sum(map(len, parts)), parts[0].shape[1]), dtype=np.float32)
        for rank, part in enumerate(parts):
            whole[rank::workers] = part
        groups.append(torch.from_numpy(whole))
    counts = [len(arrays["weights.2"]) for _, arrays in shares]
    history = [
        {
            name: float(np.average([one[name] for one in rounds], weights=counts))
            for name in rounds[0]
        }
        for rounds in zip(*(told["history"] for told, _ in shares), strict=True)
    ]
    return Members(shape, *groups), history
