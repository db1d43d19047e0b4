"""What features teach: which labels an instance has, by a kernel and by networks.

In: features of training instances, their seen labels, and soft targets for unseen ones. Out: for
other instances scores of seen labels by kernel ridge regression, and probabilities of all labels
by networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from polyseme._persistence import within
from polyseme._validation import IntArray, draw_seed
from polyseme.mapping import InstanceMapper
from polyseme.nn.bank import BankPlan, Batch, NetworkBank, enough_steps
from polyseme.solvers.kernels import column_statistics

Matrix = NDArray[np.float64]
Features = NDArray[np.float64] | sp.csr_matrix

# Chosen on nested splits of training halves; results/default-model.md has the search.
PLAN = BankPlan(
    hidden=512,
    code=128,
    dropout=(0.3, 0.4, 0.4),
    n_steps=300,
    batch_size=128,
    learning_rate=3e-3,
    decay=1e-2,
)
# Standardised features are cut off here: one wild number must not carry a network away.
_FARTHEST = 10.0
_BLOCK = 4096


def out_of_fold(mapper: InstanceMapper, X: Features, targets: Matrix, folds: IntArray) -> Matrix:
    """Predict each instance's targets (n, d) by a kernel ridge mapper that has not seen it.

    Parameters
    ----------
    mapper : InstanceMapper
        A fitted one, which gives the settings.
    X : array or csr_matrix, shape (n, n_features)
    targets : float64 array, shape (n, d)
    folds : int64 array, shape (n,)
        With a single fold there is nobody to learn from: all predictions are 0.

    Returns
    -------
    float64 array, shape (n, d)
    """
    predicted = np.zeros_like(targets)
    for fold in np.unique(folds) if len(np.unique(folds)) > 1 else ():
        held = folds == fold
        one = InstanceMapper(kind="kernel-ridge", gamma=mapper.gamma_, penalty=mapper.penalty_)
        predicted[held] = one.fit(X[~held], targets[~held]).predict(X[held])
    return predicted


class InstanceNetworks:
    """Networks from features to labels.

    Parameters
    ----------
    networks : NetworkBank
        Several for each fold.
    members : int64 array, shape (n_nets,)
        The fold that each network has not seen.
    mean, scale : float64 arrays, shape (n_features,)
        Subtracted from and divided out of each column.
    """

    def __init__(
        self, networks: NetworkBank, members: IntArray, mean: Matrix, scale: Matrix
    ) -> None:
        self.networks = networks
        self.members = members
        self.mean = mean
        self.scale = scale

    @classmethod
    def learn(
        cls,
        X: Features,
        targets: Matrix,
        weights: Matrix,
        folds: IntArray,
        *,
        n_folds: int,
        nets_per_fold: int,
        n_steps: int | None,
        generator: np.random.Generator,
        device: str = "cpu",
    ) -> Self:
        """Train on true and soft targets alike.

        Parameters
        ----------
        X : array or csr_matrix, shape (n, n_features)
        targets : float64 array, shape (n, n_labels)
            0 or 1 for seen labels, probabilities for unseen ones.
        weights : float64 array, shape (n,)
            What each instance counts.
        folds : int64 array, shape (n,)
            Below `n_folds`; a network never sees the instances of its fold.
        n_folds, nets_per_fold : int
        n_steps : int, optional
            By default by the number of instances.
        generator : numpy Generator
        device : str
            Where the networks are trained.
        """
        seed = torch.Generator().manual_seed(draw_seed(generator))
        members = np.repeat(np.arange(n_folds), nets_per_fold)
        _, scale = column_statistics(X, "standard")
        mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        priors = (targets.sum(axis=0) + 0.5) / (len(targets) + 1)
        plan = enough_steps(PLAN, X.shape[0], n_steps)
        made = cls(
            NetworkBank.start(len(members), X.shape[1], priors, plan, seed), members, mean, scale
        )
        goals = torch.from_numpy(targets.astype(np.float32)).to(device)
        counts = torch.from_numpy(weights.astype(np.float32))[:, None].to(device)
        rows = None if sp.issparse(X) else torch.from_numpy(made.standard(X)).to(device)

        def batch(chosen: IntArray, draws: torch.Generator) -> Batch:
            """Gather rows, and make sparse ones dense."""
            at = torch.from_numpy(chosen).to(draws.device)
            if rows is None:
                dense = torch.from_numpy(made.standard(X[chosen.ravel()]))
                inputs = dense.reshape(*chosen.shape, -1).to(draws.device)
            else:
                inputs = rows[at]
            return inputs, goals[at], counts[at]

        visible = [np.flatnonzero(folds != fold) for fold in members]
        everybody = np.arange(len(targets))
        visible = [some if len(some) else everybody for some in visible]
        made.networks.train(batch, visible, plan, generator, seed, device)
        return made

    def probabilities(self, X: Features, fold: int | None = None) -> Matrix:
        """Give the probability of each label, (n, n_labels); of a fold, by networks new to it."""
        members: Sequence[int] | None = None
        if fold is not None:
            members = np.flatnonzero(self.members == fold).tolist()
        found = [
            self.networks.probabilities(self.standard(X[start : start + _BLOCK]), members)
            for start in range(0, X.shape[0], _BLOCK)
        ]
        return np.concatenate(found)

    def standard(self, X: Features) -> NDArray[np.float32]:
        """Give features in spreads from the mean, dense and without wild ones."""
        # What comes here at a time is few enough to be dense.
        dense = X.toarray() if sp.issparse(X) else X
        scaled = (np.asarray(dense, dtype=np.float64) - self.mean) / self.scale
        return np.asarray(np.clip(scaled, -_FARTHEST, _FARTHEST), dtype=np.float32)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Give what was learned as arrays by name."""
        held = {"members": self.members, "mean": self.mean, "scale": self.scale}
        return held | {f"networks.{name}": one for name, one in self.networks.get_state().items()}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild the networks from `get_state`."""
        networks = within(arrays, "networks")
        held = [np.array(arrays[name]) for name in ("members", "mean", "scale")]
        return cls(NetworkBank.from_state(networks), *held)
