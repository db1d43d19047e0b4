"""What a tagger asks of a feature extractor; those of `polyseme.media` are loaded when needed.

In: an extractor, fitted or not. Out: the protocol that it follows, and a copy that has learned.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

from polyseme.base.estimator import copy_of


@runtime_checkable
class FeatureExtractor(Protocol):
    """Whatever turns items (files, pictures, sounds) into features."""

    kind: str  # of media, by which a saved tagger finds its own

    def fit_transform(self, X: object) -> Any:
        """Learn from items and return their features, (n, n_features)."""

    def transform(self, X: object) -> Any:
        """Return the features of items, (n, n_features)."""

    def single(self, item: object) -> object:
        """Return one item as `transform` takes several."""

    def get_params(self) -> dict[str, Any]:
        """Return the parameters by name."""

    def set_params(self, **parameters: Any) -> Any:
        """Set parameters by name."""

    def get_state(self) -> Any:
        """Return what was learned as JSON values and arrays."""


E = TypeVar("E")


def fitted_copy(extractor: E, X: object, seed: int) -> tuple[E, Any]:
    """Return a copy of an extractor fitted to X, seeded where it has no seed, and X's features."""
    # An extractor of another package need not be an estimator of ours by its types.
    copied: Any = copy_of(extractor)  # type: ignore[type-var]
    if getattr(copied, "random_state", seed) is None:
        copied.set_params(random_state=seed)
    return copied, copied.fit_transform(X)
