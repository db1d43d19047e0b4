"""Reductions: features (n, n_features) become fewer, learned on training rows only.

In: a name, a number of components and a seed, or a saved state. Out: a `Reduction`: "pca"
(principal components), "rbm" (stacked Boltzmann machines) or "uth" (these, fine-tuned on triplets).
"""

from __future__ import annotations

from polyseme._validation import RandomState, unknown_name
from polyseme.features.reductions.boltzmann import BoltzmannStack
from polyseme.features.reductions.pca import PrincipalComponents
from polyseme.features.reductions.state import Arrays, Config, Reduction
from polyseme.features.reductions.triplets import TripletHashing

__all__ = [
    "REDUCTIONS",
    "BoltzmannStack",
    "PrincipalComponents",
    "Reduction",
    "TripletHashing",
    "make_reduction",
    "reduction_from_state",
]

_Kind = type[PrincipalComponents] | type[BoltzmannStack] | type[TripletHashing]
REDUCTIONS: dict[str, _Kind] = {
    "pca": PrincipalComponents,
    "rbm": BoltzmannStack,
    "uth": TripletHashing,
}


def make_reduction(
    kind: str, n_components: int = 512, random_state: RandomState = None
) -> Reduction:
    """Make an unfitted reduction with its default parameters.

    Parameters
    ----------
    kind : {"pca", "rbm", "uth"}
    n_components : int
        Columns of the result.
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    Reduction
    """
    return _class_of(kind)(n_components=n_components, random_state=random_state)


def reduction_from_state(config: Config, arrays: Arrays) -> Reduction:
    """Rebuild a fitted reduction from what its `get_state` gave.

    Parameters
    ----------
    config : mapping
        With the name of the reduction under "kind".
    arrays : mapping of str to array

    Returns
    -------
    Reduction
        It transforms bit for bit as the saved one did.
    """
    return _class_of(config.get("kind")).from_state(config, arrays)


def _class_of(kind: object) -> _Kind:
    """Give the class of a reduction by its name."""
    if not isinstance(kind, str) or kind not in REDUCTIONS:
        raise unknown_name("reduction", kind, REDUCTIONS)
    return REDUCTIONS[kind]
