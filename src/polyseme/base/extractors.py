"""What a tagger asks of a feature extractor; those of `polyseme.media` are loaded when needed.

In: an extractor, fitted or not. Out: the protocol that it follows, and a copy that has learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from polyseme.base.estimator import copy_of


@runtime_checkable
class FeatureExtractor(Protocol):
    """Whatever turns items (files, pictures, sounds) into features.

    `X` is a sequence of items, of the form that the extractor documents, such as paths of files.
    """

    kind: str  # of media; saved taggers hold it, and find their extractor by it

    def fit_transform(self, X: object) -> Any:
        """Learn from items and return their features, (n_items, n_features)."""

    def transform(self, X: object) -> Any:
        """Return the features of items, (n_items, n_features)."""

    def single(self, item: object) -> object:
        """Return one item as an X of `transform` that holds it alone."""

    def get_params(self) -> dict[str, Any]:
        """Return the parameters by name."""

    def set_params(self, **parameters: Any) -> Any:
        """Set parameters by name."""

    def get_state(self) -> Any:
        """Return what was learned as JSON values and arrays, for a saved tagger."""


class NameColumns(NamedTuple):
    """Columns of the features by which items are compared with names of labels."""

    first: int
    stop: int  # the one behind the last
    is_sparse: bool  # whether they are words or the like, which are neither centred nor whitened


def name_columns(extractor: object) -> Sequence[NameColumns]:
    """Return the views of items that an extractor makes for names; none where all columns are."""
    columns: Sequence[NameColumns] = getattr(extractor, "name_columns_", ())
    return columns


def n_item_columns(extractor: object) -> int | None:
    """Return how many columns describe items: the first ones; None where all do.

    Further ones are for names alone, such as words of names that training items need not hold.
    """
    n_columns: int | None = getattr(extractor, "n_item_columns_", None)
    return n_columns


E = TypeVar("E")


def fitted_copy(extractor: E, X: object, seed: int) -> tuple[E, Any]:
    """Return a copy of an extractor fitted to X, and X's features, (n_items, n_features).

    The copy is seeded where it has a `random_state` that is None, and gives columns for names of
    labels where it has some; the extractor stays unfitted.
    """
    # An extractor of another package need not be an estimator of ours by its types.
    copied: Any = copy_of(extractor)  # type: ignore[type-var]
    random_state = getattr(copied, "random_state", seed)
    if random_state is None:
        copied.set_params(random_state=seed)
    if hasattr(copied, "gives_name_columns"):
        copied.gives_name_columns = True
    features = copied.fit_transform(X)
    return copied, features
