"""Several processes that train one network together, over torch.distributed.

In: what torchrun (or whoever started the processes) says in the environment. Out: each process's
share of a step's pairs, and sums over all of them.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyseme._validation import InputError
from polyseme.published.nn.pairs import Batch


@dataclass(frozen=True)
class Processes:
    """The processes that train together.

    Attributes
    ----------
    rank : int
        The number of this one; 0 writes and speaks.
    world : int
        How many there are.
    device : str
        Where they compute. What is sent goes by way of it: cards may know no other way.
    """

    rank: int = 0
    world: int = 1
    device: str = "cpu"

    def share(self, batch: Batch) -> Batch:
        """Give this process's pairs of a batch."""
        if self.world == 1:
            return batch
        pairs = np.arange(self.rank, len(batch.label_ids) // 2, self.world)
        sides = np.stack([2 * pairs, 2 * pairs + 1], axis=1).ravel()
        return Batch(batch.label_ids[sides], batch.document_ids[sides], batch.positive[sides])

    def sum_in_place(self, values: Tensor) -> None:
        """Replace values by their sum over all processes."""
        if self.world > 1:
            sent = values.to(self.device)
            torch.distributed.all_reduce(sent)
            if sent is not values:
                values.copy_(sent)

    def summed(self, values: Tensor) -> Tensor:
        """Give the sum of values over all processes."""
        self.sum_in_place(values)
        return values

    def agree(self, values: Tensor) -> Tensor:
        """Replace values by those of process 0, so that all have the same to the last bit."""
        if self.world > 1:
            sent = values.to(self.device)
            torch.distributed.broadcast(sent, 0)
            if sent is not values:
                values.copy_(sent)
        return values

    def agreed(self, number: int) -> int:
        """Give process 0's number."""
        return int(self.agree(torch.tensor(number, dtype=torch.int64)))


@contextmanager
def training_processes(device: str) -> Iterator[Processes]:
    """Join the processes that were started to train together; alone, there is nothing to join.

    Parameters
    ----------
    device : str
        Where this process computes; NVIDIA cards speak to each other by NCCL, all else by Gloo.

    Yields
    ------
    Processes
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        yield _joined(device)
        return
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes()
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing or not torch.distributed.is_available():
        raise InputError(
            f"WORLD_SIZE is {world} but {', '.join(missing) or 'torch.distributed'} is missing; "
            "start the processes with torchrun, or unset WORLD_SIZE."
        )
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    # Kept for the next training: a group that is left and joined again may wait for itself.
    atexit.register(_leave)
    yield _joined(device)


def _leave() -> None:
    """Leave the group, if nobody else did."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        # Gloo's threads let go of the last tensors only when they get Python's lock; one that
        # still waits for it when the interpreter ends aborts the process. They get it now.
        time.sleep(0.1)


def _joined(device: str) -> Processes:
    """Describe the group that this process is in."""
    distributed = torch.distributed
    return Processes(distributed.get_rank(), distributed.get_world_size(), device)
