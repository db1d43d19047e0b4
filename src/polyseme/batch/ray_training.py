"""Train a concept space with several workers of a Ray cluster (Ray Train).

In: the training data of a space. Out: the same members, but for rounding, as from one
process: workers share the members and exchange their predictions between rounds. After every round
each worker saves its state; when one dies, all resume from there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyseme.base.validation import InputError, check_number
from polyseme.batch.ray_engine import RETRIES, open_engine
from polyseme.space.members import Members, Shape
from polyseme.space.training import (
    CHECKPOINT_KIND,
    ROUNDS,
    HeldOutPredictions,
    SpacePlan,
    SpaceTraining,
    TrainingData,
    fingerprint,
)
from polyseme.storage.array_checks import (
    Array,
    Fields,
    ListOf,
    Whole,
    check_arrays,
    name_folder_in_errors,
    require,
)
from polyseme.storage.model_file import State, part_arrays, read_model, write_model

_RUN = re.compile(r"polyseme-\d+-[0-9a-f]{16}-\d+")  # as `run_name` has it
Progress = Callable[[int, int, Mapping[str, float]], None]


@dataclass(frozen=True)
class RayTraining:
    """Train members by Ray Train's `TorchTrainer`; give it to `ZeroShotTagger.fit` as `trainer`.

    Attributes
    ----------
    workers : int
        Processes; more than there are members are not used.
    address : str, optional
        Of the cluster, as for `polyseme.batch.open_engine`.
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
        """Train all members; the progress is called once, at the end, for Ray shows its own."""
        check_number("workers", self.workers, owner="RayTraining", low=1, whole=True)
        n_members = (int(data.folds.max(initial=0)) + 1) * plan.members_per_fold
        workers = min(self.workers, n_members)
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        with (
            open_engine("ray", self.address, self.workers),
            tempfile.TemporaryDirectory() as temporary,
        ):
            import ray
            from ray import train
            from ray.train.torch import TorchTrainer

            config = {"data": ray.put(data), "plan": plan, "seed": seed}
            trainer = TorchTrainer(
                _train_share,
                train_loop_config=config | {"device": self.device},
                scaling_config=train.ScalingConfig(
                    num_workers=workers, use_gpu=self.device != "cpu"
                ),
                run_config=train.RunConfig(
                    name=run_name(data, plan, seed, workers),
                    storage_path=str(Path(self.storage or temporary).resolve()),
                    failure_config=train.FailureConfig(max_failures=RETRIES),
                    checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                ),
            )
            try:
                checkpoint: Any = trainer.fit().checkpoint
            except train.TrainingFailedError as error:
                raise InputError(
                    f"The workers of the training failed {RETRIES + 1} times; the last one said: "
                    f"{str(error).strip().splitlines()[-1]}"
                ) from error
            with checkpoint.as_directory() as folder:
                members, history = _gather_members(Path(folder), workers, n_members)
        if progress is not None:
            progress(plan.n_rounds, plan.n_rounds, history[-1])
        return members, history

    def forget(self) -> None:
        """Remove the states in `storage`, once they are of no use; nothing else that is there."""
        if self.storage is None:
            return
        storage = Path(self.storage)
        if not storage.is_dir():
            return
        for folder in storage.iterdir():
            is_run = _RUN.fullmatch(folder.name)
            if is_run and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds files of others
            storage.rmdir()


def run_name(data: TrainingData, plan: SpacePlan, seed: int, workers: int) -> str:
    """Return the name of a run; a run of the same name, on the same data and shares, is resumed."""
    return f"polyseme-{seed}-{fingerprint(data, plan)[:16]}-{workers}"


def _train_share(config: dict[str, Any]) -> None:
    """Train one worker's share of the members; runs in the worker."""
    import ray
    import torch.distributed as dist
    from ray import train

    context = train.get_context()
    rank = context.get_world_rank()
    n_workers = context.get_world_size()
    share = (rank, n_workers)
    data: TrainingData = ray.get(config["data"])
    training = SpaceTraining(data, config["plan"], config["seed"], config["device"], share)
    before = train.get_checkpoint()
    if before is not None:
        with before.as_directory() as folder:
            state, arrays = _read_share(Path(folder) / f"worker-{rank}")
            training.set_state(arrays, state["round"], state["history"])

    def exchange(answers_here: dict[int, HeldOutPredictions]) -> dict[int, HeldOutPredictions]:
        answers_by_worker: list[dict[int, HeldOutPredictions]] = [{} for _ in range(n_workers)]
        dist.all_gather_object(answers_by_worker, answers_here)
        answers_by_member: dict[int, HeldOutPredictions] = {}
        for worker_answers in answers_by_worker:
            answers_by_member |= worker_answers
        return answers_by_member

    def leave_state() -> None:
        state: dict[str, Any] = {
            "round": training.round,
            "history": training.history,
            "shape": list(training.members.shape),
        }
        with tempfile.TemporaryDirectory() as folder:
            share_folder = Path(folder) / f"worker-{rank}"
            write_model(share_folder, CHECKPOINT_KIND, state, training.get_state())
            checkpoint = train.Checkpoint.from_directory(folder)
            latest = dict(training.history[-1])
            train.report(latest, checkpoint=checkpoint)

    training.run(exchange if n_workers > 1 else None, leave_state)
    if before is not None and training.round == int(state["round"]):
        leave_state()  # everything was done before a worker died: leave it once more


def _read_share(folder: Path) -> State:
    """Read the state that a worker left; arrays are checked where they are taken over."""
    state, arrays = read_model(folder, CHECKPOINT_KIND)
    with name_folder_in_errors(folder, "checkpoint"):
        n_sizes = len(Shape._fields)
        sizes = ListOf(Whole(0), n_sizes)
        declared = Fields({**ROUNDS, "shape": sizes})
        declared.check(state)
    return state, arrays


def _gather_members(
    folder: Path, workers: int, n_members: int
) -> tuple[Members, list[dict[str, float]]]:
    """Return the members of all workers' shares, after checking each share."""
    shares = [_read_share(folder / f"worker-{rank}") for rank in range(workers)]
    first_state, _ = shares[0]
    shape = Shape(*first_state["shape"])
    first_names = [list(metrics) for metrics in first_state["history"]]
    groups = [np.empty((n_members, count), dtype=np.float32) for count in shape.n_weights]
    counts: list[int] = []
    for rank, (state, arrays) in enumerate(shares):
        weights = part_arrays(arrays, "weights")
        share = range(rank, n_members, workers)
        n_own = len(share)
        counts.append(n_own)
        with name_folder_in_errors(folder / f"worker-{rank}", "checkpoint"):
            require(state["shape"] == first_state["shape"], "shape", "that of all workers")
            names = [list(metrics) for metrics in state["history"]]
            is_alike = bool(names) and names == first_names
            require(is_alike, "history", "of as many rounds as those of all workers")
            declared: dict[str, Array] = {}
            for number, n_weights in enumerate(shape.n_weights):
                declared[str(number)] = Array("float32", (n_own, n_weights))
            check_arrays(weights, declared)
        for number, group in enumerate(groups):
            group[rank::workers] = weights[str(number)]
    histories = [state["history"] for state, _ in shares]
    history: list[dict[str, float]] = []
    for rounds in zip(*histories, strict=True):
        means: dict[str, float] = {}
        for name in rounds[0]:
            values = [metrics[name] for metrics in rounds]
            means[name] = float(np.average(values, weights=counts))
        history.append(means)
    return Members(shape, *groups), history
