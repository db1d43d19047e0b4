"""The scikit-learn base of our estimators, in one place because scikit-learn ships no types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
)

__all__ = ["ClassNamePrefixFeaturesOutMixin", "Estimator", "TransformerMixin", "copy_of"]

E = TypeVar("E", bound="Estimator")


class Estimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """An object whose constructor stores parameters and whose `fit` learns.

    Gives `get_params`, `set_params`, cloning and a readable representation.
    """

    # Parameters that are estimators themselves and may be None, and the class whose defaults stand
    # for them then; a subclass sets its own.
    components: ClassVar[dict[str, type[Estimator]]] = {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; with `deep` also those of components, as `component__name`."""
        parameters: dict[str, Any] = super().get_params(deep)
        if not deep:
            return parameters
        for name, component_class in self.components.items():
            if parameters[name] is not None:
                continue  # scikit-learn has those of a component that is there
            component = component_class()
            inner_parameters = component.get_params()
            for inner_name, value in inner_parameters.items():
                parameters[f"{name}__{inner_name}"] = value
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; `component__name` reaches into a component.

        A component that is None is made first.
        """
        for name, component_class in self.components.items():
            prefix = f"{name}__"
            is_reached = any(key.startswith(prefix) for key in parameters)
            former_component = getattr(self, name)
            component = parameters.get(name, former_component)
            if is_reached and component is None:
                parameters[name] = component_class()
        # scikit-learn sets components first, whatever the order of the parameters.
        super().set_params(**parameters)
        return self

    def _set_feature_names(self, names: Sequence[str] | None) -> None:
        """Set the names of columns; without any there is no attribute, as in scikit-learn."""
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_


def copy_of(estimator: E) -> E:
    """Return an unfitted copy of an estimator with the same parameters."""
    copied: E = clone(estimator)
    return copied
