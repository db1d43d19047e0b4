"""The scikit-learn base of our estimators, in one place because scikit-learn ships no types."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from sklearn.base import BaseEstimator, TransformerMixin, clone

__all__ = ["Estimator", "TransformerMixin", "copy_of"]

E = TypeVar("E", bound="Estimator")


class Estimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """An object whose constructor stores parameters and whose `fit` learns.

    Gives `get_params`, `set_params`, cloning and a readable representation.
    """

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; `part__name` reaches into a part."""
        super().set_params(**parameters)
        return self


def copy_of(estimator: E) -> E:
    """Give an unfitted copy of an estimator with the same parameters."""
    copied: E = clone(estimator)
    return copied
