"""Reduction "pca": principal components, the linear yardstick for the other reductions.

In: features (n, n_features). Out: their coordinates (n, n_components) along the directions in
which the training rows spread most.
"""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import PolysemeWarning, RandomState, check_number, draw_seed
from polyseme.features.reductions.state import (
    BLOCK_ROWS,
    Arrays,
    Config,
    Reduction,
    State,
    saved_arrays,
)

# Up to this many rows or columns all components are computed exactly, in seconds.
_EXACT_SIDE = 2048


class PrincipalComponents(Reduction):
    """Project features on their principal components.

    Parameters
    ----------
    n_components : int
        Columns of the result. There are at most min(n, n_features); where more are asked for,
        `fit` warns and keeps as many as there are.
    random_state : int, numpy.random.Generator or None
        Draws the start of the randomised solver, which is only used where both sides of the
        training matrix are longer than 2,048.

    Attributes
    ----------
    mean_ : float64 array, shape (n_features,)
    components_ : float32 array, shape (n_components_, n_features)
        Directions of length 1, the one with the largest variance first.
    explained_variance_ : float64 array, shape (n_components_,)
        Variances of the training rows along them.
    n_components_ : int
    n_features_in_ : int

    Examples
    --------
    >>> from polyseme.features.reductions import PrincipalComponents
    >>> X = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    >>> PrincipalComponents(1, random_state=0).fit(X).transform(X).round(2)
    array([[-1.41],
           [ 0.  ],
           [ 1.41]], dtype=float32)
    """

    kind: ClassVar[str] = "pca"

    def __init__(self, n_components: int = 512, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def check_parameters(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""
        owner = type(self).__name__
        check_number("n_components", self.n_components, owner=owner, low=1, whole=True)

    def learn(self, rows: NDArray[np.float64], generator: np.random.Generator) -> None:
        """Learn the directions; see `Reduction.learn`."""
        most = min(rows.shape)
        if self.n_components > most:
            warnings.warn(
                f"`n_components` of `{type(self).__name__}` is {self.n_components} but "
                f"{rows.shape[0]} rows of {rows.shape[1]} features have {most} component(s); "
                "keeping these.",
                PolysemeWarning,
                stacklevel=3,
            )
        self._decompose(rows, min(self.n_components, most), generator)

    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float32]:
        """Project rows; see `Reduction.apply`."""
        found = np.empty((len(rows), self.n_components_), dtype=np.float32)
        for start in range(0, len(rows), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            centred = (rows[block] - self.mean_).astype(np.float32)
            np.matmul(centred, self.components_.T, out=found[block])
        return found

    def learned_state(self) -> State:
        """Give the directions, their variances and the mean; see `Reduction.learned_state`."""
        return {"n_components": self.n_components_}, {
            "mean": self.mean_,
            "components": self.components_,
            "explained_variance": self.explained_variance_,
        }

    def take_state(self, config: Config, arrays: Arrays) -> None:
        """Take back the directions, their variances and the mean; see `Reduction.take_state`."""
        width, depth = int(config["n_features_in"]), int(config["n_components"])
        shapes = {
            "mean": (width,),
            "components": (depth, width),
            "explained_variance": (depth,),
        }
        for name, array in saved_arrays(arrays, shapes, owner=type(self).__name__).items():
            setattr(self, f"{name}_", array)
        self.n_components_ = depth

    def _decompose(
        self, rows: NDArray[np.float64], n_components: int, generator: np.random.Generator
    ) -> None:
        """Let scikit-learn find the directions and take over what `transform` needs."""
        from sklearn.decomposition import PCA

        n, width = rows.shape
        if width <= _EXACT_SIDE and n > 2 * width:
            solver = "covariance_eigh"
        else:
            solver = "full" if min(n, width) <= _EXACT_SIDE else "randomized"
        pca = PCA(n_components, svd_solver=solver, random_state=draw_seed(generator))
        # Of rows without any spread the shares of the variance are 0 / 0; we do not use them.
        with np.errstate(invalid="ignore", divide="ignore"):
            pca.fit(rows)
        self.mean_ = np.ascontiguousarray(pca.mean_, dtype=np.float64)
        self.components_ = np.ascontiguousarray(pca.components_, dtype=np.float32)
        spread = np.nan_to_num(np.asarray(pca.explained_variance_, dtype=np.float64))
        self.explained_variance_ = spread
        self.n_components_ = n_components
