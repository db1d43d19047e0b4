"""Training state on disk: written after every epoch, taken back by the next run.

In: a trainer. Out: a folder of JSON and arrays from which a run goes on bit for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, RandomState, as_generator, draw_seed
from polyseme.persistence import read_model, write_model

if TYPE_CHECKING:
    from polyseme.published.nn.training import ConceptTrainer

KIND = "checkpoint"
# How the optimiser's memory is laid out; a state in another layout is not taken up.
_LAYOUT = "flat"


def fingerprint(
    parameters: Mapping[str, object],
    labels: Sequence[str],
    matrices: Sequence[sp.csr_matrix | None],
) -> str:
    """Digest data and parameters, to tell whose checkpoint a folder holds.

    Parameters
    ----------
    parameters : mapping
        Of the estimator; where it trains, where it leaves its state and whether it says so do not
        count.
    labels : sequence of str
        The vocabulary.
    matrices : sequence of csr_matrix or None
        The documents; None is passed over.

    Returns
    -------
    str
    """
    told = {
        # A generator's own words hold an address; the checkpoint holds the seed drawn from it.
        name: "generator" if isinstance(value, np.random.Generator) else repr(value)
        for name, value in sorted(parameters.items())
        if name not in ("checkpoint", "device", "verbose")
    }
    digest = hashlib.sha256(json.dumps([_LAYOUT, told, labels]).encode())
    for matrix in matrices:
        if matrix is not None:
            digest.update(matrix.indices.astype(np.int64).tobytes())
            digest.update(matrix.indptr.astype(np.int64).tobytes())
    return digest.hexdigest()


class TrainingCheckpoint:
    """The folder that holds an interrupted run, if any.

    Parameters
    ----------
    path : str, Path or None
        The folder; None keeps nothing.
    fingerprint : str
        Digest of data and parameters; a folder with another one is refused.
    """

    def __init__(self, path: str | Path | None, fingerprint: str) -> None:
        self.path = None if path is None else Path(path)
        self.fingerprint = fingerprint
        self.config: dict[str, Any] = {}
        self.arrays: dict[str, NDArray[Any]] = {}
        if self.path is not None and (self.path / "manifest.json").exists():
            self.config, self.arrays = read_model(self.path, KIND)
            if self.config["fingerprint"] != fingerprint:
                raise InputError(
                    f"The checkpoint at '{self.path}' belongs to other data or parameters; remove "
                    "it or name another folder."
                )

    def seed(self, random_state: RandomState) -> int:
        """Give the run's seed: the interrupted run's, or a new one from `random_state`."""
        if self.config:
            return int(self.config["seed"])
        return draw_seed(as_generator(random_state))

    def restore(self, trainer: ConceptTrainer) -> None:
        """Put a trainer where the interrupted run stood; do nothing if there is none."""
        if not self.config:
            return
        import torch

        from polyseme.published.nn.moments import put_moments

        def tensors(prefix: str) -> dict[str, torch.Tensor]:
            return {
                name.removeprefix(prefix): torch.from_numpy(np.array(value))
                for name, value in self.arrays.items()
                if name.startswith(prefix)
            }

        state = trainer.state
        state.stage, state.epoch = self.config["stage"], self.config["epoch"]
        state.n_stale, state.history = self.config["n_stale"], self.config["history"]
        score = self.config["best_score"]
        state.best_score = -np.inf if score is None else score
        state.best_weights = tensors("best.")
        # Descriptors are learned again, and may be laid out in another way elsewhere.
        trainer.network.load_state_dict(
            tensors("network.") | {"descriptors": trainer.network.descriptors}
        )
        trainer.optimizer = trainer.new_optimizer()
        put_moments(trainer.optimizer, tensors("optimizer."))
        trainer.generator.bit_generator.state = self.config["generator"]

    def write(self, trainer: ConceptTrainer, seed: int) -> None:
        """Save where a trainer stands, between two epochs."""
        if self.path is None:
            return
        from polyseme.published.nn.moments import moments_of

        state = trainer.state
        arrays = {
            f"network.{name}": value.cpu().numpy()
            for name, value in trainer.network.state_dict().items()
            if name != "descriptors"
        }
        arrays |= {
            f"best.{name}": value.cpu().numpy() for name, value in state.best_weights.items()
        }
        arrays |= {
            f"optimizer.{key}": value.cpu().numpy()
            for key, value in moments_of(trainer.optimizer).items()
        }
        config: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "seed": seed,
            "stage": state.stage,
            "epoch": state.epoch,
            "n_stale": state.n_stale,
            "history": state.history,
            "best_score": None if np.isneginf(state.best_score) else state.best_score,
            "generator": trainer.generator.bit_generator.state,
        }
        write_model(self.path, KIND, config, arrays)
