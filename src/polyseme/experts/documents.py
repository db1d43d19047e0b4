"""What label documents teach: which labels go together, linearly and in context.

In: documents (m, n_labels), some of whose labels have training instances (seen) and others not.
Out: probabilities of labels given others, by ridge regression and by concept networks, which hide
labels of a document and learn to guess them from the company that is left.
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
from polyseme.nn.bank import BankPlan, Batch, NetworkBank, enough_steps
from polyseme.solvers.ridge import RidgeSums

Matrix = NDArray[np.float64]

# Chosen on nested splits of training halves; results/default-model.md has the search.
PLAN = BankPlan(
    hidden=256,
    code=128,
    dropout=(0.0, 0.3, 0.3),
    n_steps=1200,
    batch_size=256,
    learning_rate=2e-3,
    decay=0.5,
)
# Labels of a document are hidden at a rate drawn between 0 and this.
HIDDEN = 0.4
# How often all unseen labels are hidden, as they are when an instance is looked at.
UNSEEN_HIDDEN = 0.7
# What a hidden seen label counts beside a hidden unseen one.
SEEN_WEIGHT = 0.5
# Share of the networks in the soft targets; the rest is the regression's.
NETWORK_SHARE = 0.5


class DocumentExpert:
    """Guess labels from other labels.

    Parameters
    ----------
    n_seen : int
        The first so many columns are seen labels.
    ridge : (float64 array (n_seen, n_unseen), float64 array (n_unseen,))
        Weights and intercepts from seen to unseen labels.
    networks : NetworkBank
        Concept networks: all labels in, all labels out; one for each fold.
    """

    def __init__(self, n_seen: int, ridge: tuple[Matrix, Matrix], networks: NetworkBank) -> None:
        self.n_seen = n_seen
        self.ridge = ridge
        self.networks = networks

    @classmethod
    def learn(
        cls,
        documents: sp.csr_matrix,
        n_seen: int,
        folds: IntArray,
        penalty: float,
        priors: Matrix,
        n_steps: int | None,
        generator: np.random.Generator,
        device: str = "cpu",
        n_semantics: int | None = None,
    ) -> Self:
        """Learn from documents.

        Parameters
        ----------
        documents : csr_matrix, shape (m, n_labels)
            Seen labels first.
        n_seen : int
        folds : int64 array, shape (m,)
            Network f never sees the documents of fold f.
        penalty : float
            Of the regression.
        priors : float64 array, shape (n_labels,)
            How often documents hold each label.
        n_steps : int, optional
            Of the networks' training; by default by the number of documents.
        generator : numpy Generator
        device : str
            Where the networks are trained.
        n_semantics : int, optional
            Only the first so many documents tell of unseen labels: that the others hold none is
            how they were chosen. By default all.
        """
        rows = sp.csr_matrix(documents, dtype=np.float64)
        n_telling = rows.shape[0] if n_semantics is None else n_semantics
        telling = rows[:n_telling]
        ridge = RidgeSums.of(telling[:, :n_seen], telling[:, n_seen:]).solve(penalty)
        seed = torch.Generator().manual_seed(draw_seed(generator))
        n_folds = int(folds.max()) + 1
        plan = enough_steps(PLAN, rows.shape[0], n_steps)
        networks = NetworkBank.start(n_folds, rows.shape[1], priors, plan, seed)
        visible = [
            np.flatnonzero(folds != fold) if n_folds > 1 else np.arange(rows.shape[0])
            for fold in range(n_folds)
        ]

        def batch(chosen: IntArray, draws: torch.Generator) -> Batch:
            """Hide labels; only hidden ones count."""

            def drawn(*shape: int) -> torch.Tensor:
                return torch.rand(*shape, generator=draws, device=draws.device)

            dense = rows[chosen.ravel()].toarray().astype(np.float32)
            truth = torch.from_numpy(dense.reshape(*chosen.shape, -1)).to(draws.device)
            rate = HIDDEN * drawn(*chosen.shape, 1)
            hidden = drawn(*truth.shape) < rate
            hidden[..., n_seen:] |= drawn(*chosen.shape, 1) < UNSEEN_HIDDEN
            weights = hidden.float()
            weights[..., :n_seen] *= SEEN_WEIGHT
            if n_telling < rows.shape[0]:
                told = torch.from_numpy(chosen < n_telling).to(draws.device)
                weights[..., n_seen:] *= told[..., None]
            return truth * ~hidden, truth, weights

        networks.train(batch, visible, plan, generator, seed, device)
        return cls(n_seen, ridge, networks)

    def soft_targets(
        self,
        documents: sp.csr_matrix,
        folds: IntArray,
        of: IntArray,
        penalty: float,
        n_semantics: int | None = None,
    ) -> tuple[Matrix, Matrix]:
        """Guess the unseen labels of training instances from their seen ones, out of fold.

        Parameters
        ----------
        documents : csr_matrix, shape (m, n_labels)
            As in `learn`.
        folds : int64 array, shape (m,)
        of : int64 array, shape (n,)
            The instances' own documents.
        penalty : float
        n_semantics : int, optional
            As in `learn`.

        Returns
        -------
        targets : float64 array, shape (n, n_unseen)
        any_unseen : float64 array, shape (n,)
            How likely a document with these seen labels holds some unseen one.
        """
        rows = sp.csr_matrix(documents, dtype=np.float64)
        given, hidden = rows[:, : self.n_seen], rows[:, self.n_seen :]
        some = sp.csr_matrix(np.asarray(hidden.sum(axis=1) > 0, dtype=np.float64))
        goals = sp.csr_matrix(sp.hstack([hidden, some]))
        n_telling = rows.shape[0] if n_semantics is None else n_semantics
        telling = np.arange(rows.shape[0]) < n_telling
        everything = RidgeSums.of(given[telling], goals[telling])
        linear = np.tile(everything.targets / max(everything.n, 1), (len(of), 1))
        network = np.zeros((len(of), hidden.shape[1]))
        single = not folds.any()
        for fold in np.unique(folds[of]):
            mine = of[folds[of] == fold]
            held = (folds == fold) & telling
            inputs = np.zeros((len(mine), rows.shape[1]))
            inputs[:, : self.n_seen] = given[mine].toarray()
            at = folds[of] == fold
            network[at] = self.networks.probabilities(inputs, [int(fold)])[:, self.n_seen :]
            sums = everything.without(RidgeSums.of(given[held], goals[held]))
            # Where all who could tell are in this fold, the mean must do.
            if sums.n and not single:
                weights, intercept = sums.solve(penalty)
                linear[at] = given[mine] @ weights + intercept
        linear = np.clip(linear, 0.0, 1.0)
        mixed = NETWORK_SHARE * network + (1 - NETWORK_SHARE) * linear[:, :-1]
        return mixed, linear[:, -1]

    def linear(self, seen: Matrix) -> Matrix:
        """Give unseen labels' scores (n, n_unseen) from seen labels' (n, n_seen), by regression."""
        weights, intercept = self.ridge
        return np.asarray(np.clip(seen, 0.0, 1.0) @ weights + intercept)

    def in_context(self, labels: Matrix, members: Sequence[int] | None = None) -> Matrix:
        """Give the probability of every label beside others.

        Parameters
        ----------
        labels : float64 array, shape (n, n_labels) or (n, n_seen)
            Probabilities of labels, or 1 for those that are given; unseen ones may be left out.
        members : sequence of int, optional
            Which networks.

        Returns
        -------
        float64 array, shape (n, n_labels)
        """
        return self.networks.probabilities(self._padded(labels), members)

    def codes(self, labels: Matrix) -> Matrix:
        """Give the context codes of label sets, (n, n_nets * n_code); see `in_context`."""
        return self.networks.codes(self._padded(labels))

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Give what was learned as arrays by name."""
        held = {"ridge.weights": self.ridge[0], "ridge.intercept": self.ridge[1]}
        return held | {f"networks.{name}": one for name, one in self.networks.get_state().items()}

    @classmethod
    def from_state(cls, n_seen: int, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild an expert from `get_state`."""
        networks = within(arrays, "networks")
        ridge = (np.array(arrays["ridge.weights"]), np.array(arrays["ridge.intercept"]))
        return cls(n_seen, ridge, NetworkBank.from_state(networks))

    def _padded(self, labels: Matrix) -> Matrix:
        """Give label sets the width of the networks' inputs."""
        missing = self.networks.weights[0].shape[1] - labels.shape[1]
        return np.pad(labels, ((0, 0), (0, missing))) if missing else labels
