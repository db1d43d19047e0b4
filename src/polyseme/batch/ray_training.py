"""Train a concept space with several workers of a Ray cluster (Ray Train).

In: the training data of a space. Out: the same members, but for rounding, as from one
process: workers share the members and exchange their predictions between rounds. After every round
each worker saves its state; when one dies, all resume from there.

Terms: a *member* is one pair of encoders of the space's ensemble, a *round* a stretch of its
training. A worker's *rank* is its number; its *share* is every member whose number is the rank plus
a multiple of the number of workers.
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
from numpy.typing import NDArray

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

_RUN_NAME = re.compile(r"polyseme-\d+-[0-9a-f]{16}-\d+")  # as `run_name` has it
_DIGEST_LETTERS = 16  # of a fingerprint, in the name of a run
# Called with the rounds that are done, of how many, and the measures of the last one.
Progress = Callable[[int, int, Mapping[str, float]], None]
History = list[dict[str, float]]  # of each round, measures by name


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
    ) -> tuple[Members, History]:
        """Train all members; return them, in order, and the history of all rounds.

        The same data, plan and seed give the same members as one process does, but for rounding.
        The progress is called once, at the end, for Ray shows its own.
        """
        check_number("workers", self.workers, owner="RayTraining", low=1, whole=True)
        last_fold = int(data.folds.max(initial=0))
        n_folds = last_fold + 1
        n_members = n_folds * plan.members_per_fold
        workers = min(self.workers, n_members)
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        with (
            open_engine("ray", self.address, self.workers),
            tempfile.TemporaryDirectory() as temporary,
        ):
            import ray
            from ray import train
            from ray.train.torch import TorchTrainer

            storage = Path(self.storage or temporary)
            # What `_train_share` gets.
            config = {
                "data": ray.put(data),
                "plan": plan,
                "seed": seed,
                "device": self.device,
            }
            trainer = TorchTrainer(
                _train_share,
                train_loop_config=config,
                scaling_config=train.ScalingConfig(
                    num_workers=workers,
                    use_gpu=self.device != "cpu",
                ),
                run_config=train.RunConfig(
                    name=run_name(data, plan, seed, workers),
                    storage_path=str(storage.resolve()),
                    failure_config=train.FailureConfig(max_failures=RETRIES),
                    checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                ),
            )
            try:
                checkpoint: Any = trainer.fit().checkpoint
            except train.TrainingFailedError as error:
                lines = str(error).strip().splitlines()
                raise InputError(
                    f"The workers of the training failed {RETRIES + 1} times; the last one said: "
                    f"{lines[-1]}"
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
            is_run = _RUN_NAME.fullmatch(folder.name)
            if is_run and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds files of others
            storage.rmdir()


def run_name(data: TrainingData, plan: SpacePlan, seed: int, workers: int) -> str:
    """Return the name of a run, which is that of its folder in the storage.

    A run of the same name, on the same data and shares, is resumed; `_RUN_NAME` finds such folders.
    """
    digest = fingerprint(data, plan)[:_DIGEST_LETTERS]
    return f"polyseme-{seed}-{digest}-{workers}"


def _train_share(config: dict[str, Any]) -> None:
    """Train one worker's share of the members; runs in the worker.

    `config` is the trainer's `train_loop_config`. The result is what is left in checkpoints.
    """
    import ray
    import torch.distributed as dist
    from ray import train

    context = train.get_context()
    rank = context.get_world_rank()
    n_workers = context.get_world_size()
    share = (rank, n_workers)
    data: TrainingData = ray.get(config["data"])
    training = SpaceTraining(
        data,
        config["plan"],
        config["seed"],
        config["device"],
        share,
    )
    last_checkpoint = train.get_checkpoint()
    resumed_round = -1
    if last_checkpoint is not None:
        with last_checkpoint.as_directory() as folder:
            share_folder = _share_folder(folder, rank)
            state, arrays = _read_share(share_folder)
            resumed_round = int(state["round"])
            training.set_state(arrays, state["round"], state["history"])

    def exchange(own_predictions: dict[int, HeldOutPredictions]) -> dict[int, HeldOutPredictions]:
        # Predictions by the number of the member; all workers get those of all members.
        gathered: list[dict[int, HeldOutPredictions]] = [{} for _ in range(n_workers)]
        dist.all_gather_object(gathered, own_predictions)
        predictions_by_member: dict[int, HeldOutPredictions] = {}
        for worker_predictions in gathered:
            predictions_by_member |= worker_predictions
        return predictions_by_member

    def leave_state() -> None:
        state: dict[str, Any] = {
            "round": training.round,
            "history": training.history,
            "shape": list(training.members.shape),
        }
        with tempfile.TemporaryDirectory() as folder:
            share_folder = _share_folder(folder, rank)
            arrays = training.get_state()
            write_model(share_folder, CHECKPOINT_KIND, state, arrays)
            checkpoint = train.Checkpoint.from_directory(folder)
            last_measures = dict(training.history[-1])
            train.report(last_measures, checkpoint=checkpoint)

    training.run(exchange if n_workers > 1 else None, leave_state)
    if training.round == resumed_round:
        leave_state()  # everything was done before a worker died: leave it once more


def _share_folder(folder: str | Path, rank: int) -> Path:
    """Return where a worker's state lies in the folder of a checkpoint."""
    return Path(folder) / f"worker-{rank}"


def _read_share(folder: Path) -> State:
    """Read the state that a worker left; arrays are checked where they are taken over."""
    state, arrays = read_model(folder, CHECKPOINT_KIND)
    with name_folder_in_errors(folder, "checkpoint"):
        n_sizes = len(Shape._fields)
        sizes = ListOf(Whole(0), n_sizes)
        declared = Fields({**ROUNDS, "shape": sizes})
        declared.check(state)
    return state, arrays


def _gather_members(folder: Path, workers: int, n_members: int) -> tuple[Members, History]:
    """Return the members of all workers' shares, after checking each share, and their history.

    `folder` is that of a checkpoint. Measures are averaged over members.
    """
    share_folders = [_share_folder(folder, rank) for rank in range(workers)]
    shares = [_read_share(share_folder) for share_folder in share_folders]
    first_state, _ = shares[0]
    shape = Shape(*first_state["shape"])
    first_names = [list(measures) for measures in first_state["history"]]
    # The fields of `Members`: arrays of weights, a row for each member.
    weight_tables: list[NDArray[np.float32]] = []
    for n_weights in shape.n_weights:
        table = np.empty((n_members, n_weights), dtype=np.float32)
        weight_tables.append(table)
    share_sizes: list[int] = []
    for rank, (state, arrays) in enumerate(shares):
        share_weights = part_arrays(arrays, "weights")
        share = range(rank, n_members, workers)
        n_own = len(share)
        share_sizes.append(n_own)
        with name_folder_in_errors(share_folders[rank], "checkpoint"):
            has_shape = state["shape"] == first_state["shape"]
            require(has_shape, "shape", "that of all workers")
            names = [list(measures) for measures in state["history"]]
            is_alike = bool(names) and names == first_names
            require(is_alike, "history", "of as many rounds as those of all workers")
            declared: dict[str, Array] = {}
            for number, n_weights in enumerate(shape.n_weights):
                declared[str(number)] = Array("float32", (n_own, n_weights))
            check_arrays(share_weights, declared)
        for number, table in enumerate(weight_tables):
            table[rank::workers] = share_weights[str(number)]
    members = Members(shape, *weight_tables)

    histories = [state["history"] for state, _ in shares]
    history: History = []
    for measures_by_worker in zip(*histories, strict=True):
        means: dict[str, float] = {}
        for name in measures_by_worker[0]:
            values = [measures[name] for measures in measures_by_worker]
            mean = np.average(values, weights=share_sizes)
            means[name] = float(mean)
        history.append(means)
    return members, history
