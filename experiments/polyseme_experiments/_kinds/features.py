"""Image features, reduced or not: how well classifiers learn the seen labels from them.

In: a `Trial` of pictures. Out: metrics of the validation instances' label scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from polyseme._validation import as_generator, draw_seed
from polyseme.baselines import SeenClassifiers
from polyseme.features import ImageFeatures
from polyseme.splits import measure
from polyseme_experiments._kinds.method import Method, Metrics
from polyseme_experiments.draws import Conditions
from polyseme_experiments.reductions import make_reduction
from polyseme_experiments.trials import Trial


@dataclass(frozen=True)
class FeatureSet(Method):
    """Classifiers of the seen labels on one kind of image features (in the paper: Appendix A).

    Attributes
    ----------
    parameters : mapping
        Of `ImageFeatures`.
    reduction : str, optional
        What the features are reduced by; see `make_reduction`.
    n_components : int
        For a reduction: how many features are left.
    """

    features: ClassVar[bool] = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reduction: str | None = None
    n_components: int = 512

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        extractor = self._extractor(conditions)
        parameters = {name: repr(value) for name, value in extractor.get_params().items()}
        classifiers = SeenClassifiers().get_params()
        return super().config(conditions) | {
            "preprocessing": extractor.preprocessing(),
            "parameters": parameters,
            "reduction": self.reduction,
            "n_components": self._n_components(conditions),
            "classifiers": {name: repr(value) for name, value in classifiers.items()},
        }

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Learn from the training instances, measure on the validation instances."""
        table = trial.media_features(self._extractor(trial.conditions))
        if self.reduction is not None:
            n_components = min(self._n_components(trial.conditions), len(trial.split.train))
            seed = draw_seed(as_generator(trial.seed))
            reduction = make_reduction(self.reduction, n_components, seed)
            reduction.fit(table[trial.split.train])
            table = np.asarray(reduction.transform(table), dtype=np.float32)
        classifiers = SeenClassifiers(random_state=trial.seed)
        classifiers.fit(table[trial.split.train], trial.train_documents)
        scores = classifiers.predict_proba(table[trial.split.validation])
        tested = trial.split.instances("validation")
        columns = {"training": trial.split.labels.seen}
        found: Metrics = measure(tested, scores, classifiers.classes_, columns)
        found["training"]["features"] = table.shape[1]
        return found, trial.audit()

    def _extractor(self, conditions: Conditions) -> ImageFeatures:
        """Make the extractor, at the size at which the embedded emoji's features were made."""
        extractor = ImageFeatures(size=192, n_jobs=1, **self.parameters)
        if conditions.quick:
            extractor.set_params(size=64)
        if conditions.quick and self.reduction is not None:
            extractor.set_params(depth="pooled")  # a quarter of the numbers, a tenth of the time
        return extractor

    def _n_components(self, conditions: Conditions) -> int:
        """Give how many features are left by a reduction."""
        return self.n_components // 16 if conditions.quick else self.n_components
