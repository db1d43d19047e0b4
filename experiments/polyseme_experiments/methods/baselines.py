"""Baselines, classifiers on image features, and counts of what a split holds.

In: a `Trial`. Out: metrics of label scores, sizes, and how often labels are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import polyseme_experiments.baselines
from polyseme.base.validation import as_generator, draw_seed
from polyseme.media import ImageFeatures
from polyseme_experiments.baselines import SeenClassifiers
from polyseme_experiments.methods.base import Matrix, Method, Metrics, Outcome, System, reprs
from polyseme_experiments.reductions import make_reduction
from polyseme_experiments.sampling import RunConfig, word_vectors
from polyseme_experiments.splits import measure
from polyseme_experiments.trials import Trial


@dataclass(frozen=True)
class BaselineSystem(System):
    """A class of `polyseme_experiments.baselines`.

    A trial gives it what it has a parameter for: the seed, the word vectors, the classifiers that
    all forms of COSTA share.
    """

    estimator: str = "Popularity"
    parameters: Mapping[str, Any] = field(default_factory=dict)  # where they are not the defaults

    def _make(self, **parameters: Any) -> Any:
        estimator = getattr(polyseme_experiments.baselines, self.estimator)
        return estimator(**self.parameters, **parameters)

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        parameters = reprs(self._make().get_params())
        described = super().config(config)
        if "classifiers" in parameters:
            described["classifiers"] = reprs(SeenClassifiers().get_params())
        if "vectors" in parameters and not config.quick:
            described["words"] = word_vectors(config.data).checksum
        described["kind"] = self.estimator
        described["parameters"] = parameters
        return described

    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Fit it and score instances; see `System.scores`."""
        names = self._make().get_params()
        shared: dict[str, Any] = {}
        if "random_state" in names:
            shared["random_state"] = trial.seed
        if "vectors" in names:
            shared["vectors"] = trial.word_vectors
        if "classifiers" in names:
            shared["classifiers"] = trial.classifiers()
            shared["fit_classifiers"] = False
        ranker = self._make(**shared)
        trial.fitted(ranker)
        return ranker, ranker.decision_function(X)


@dataclass(frozen=True)
class FeatureSet(Method):
    """Classifiers of the seen labels on one kind of image features (in the paper: Appendix A)."""

    features: ClassVar[bool] = True
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of `ImageFeatures`
    reduction: str | None = None  # what the features are reduced by; see `make_reduction`
    n_components: int = 512  # how many features a reduction leaves

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        extractor = self._extractor(config)
        return super().config(config) | {
            "preprocessing": extractor.preprocessing(),
            # Which network it is, the preprocessing says.
            "parameters": reprs(extractor.get_params(), {"network", "weights", "device"}),
            "reduction": self.reduction,
            "n_components": self._n_components(config),
            "classifiers": reprs(SeenClassifiers().get_params()),
        }

    def run(self, trial: Trial) -> Outcome:
        """Learn from the training instances, measure on the validation instances."""
        split = trial.split
        extractor = self._extractor(trial.config)
        table = trial.media_features(extractor)
        if self.reduction is not None:
            n_components = self._n_components(trial.config)
            n_components = min(n_components, len(split.train))
            generator = as_generator(trial.seed)
            seed = draw_seed(generator)
            reduction = make_reduction(self.reduction, n_components, seed)
            reduction.fit(table[split.train])
            reduced = reduction.transform(table)
            table = np.asarray(reduced, dtype=np.float32)
        classifiers = SeenClassifiers(random_state=trial.seed)
        classifiers.fit(table[split.train], trial.train_documents)
        scores = classifiers.predict_proba(table[split.validation])
        columns = {"training": split.labels.seen}
        tested = split.instances("validation")
        labels = classifiers.classes_
        metrics: Metrics = measure(tested, scores, labels, columns)
        metrics["training"]["features"] = table.shape[1]
        return metrics, trial.audit()

    def _extractor(self, config: RunConfig) -> ImageFeatures:
        """Make the extractor, at the size at which the embedded emoji's features were made."""
        size = 64 if config.quick else 192
        extractor = ImageFeatures(size=size, n_jobs=1, **self.parameters)
        if config.quick and self.reduction is not None:
            extractor.set_params(depth="pooled")  # a quarter of the numbers, a tenth of the time
        return extractor

    def _n_components(self, config: RunConfig) -> int:
        """Return how many features are left by a reduction."""
        if config.quick:
            return self.n_components // 16
        return self.n_components


@dataclass(frozen=True)
class Sizes(Method):
    """How many labels and instances each set of the split has (in the paper: Table 1)."""

    def run(self, trial: Trial) -> Outcome:
        """Count."""
        return {"sizes": trial.split.sizes()}, trial.audit()


@dataclass(frozen=True)
class Usage(Method):
    """How often source and target use the source's labels (in the paper: Fig. 5)."""

    def run(self, trial: Trial) -> Outcome:
        """Count the documents that hold each label, in percent."""
        source = trial.split.source
        aligned, _ = trial.target.corpus.align(source.labels)
        target = aligned[:, : len(source.labels)]
        usage = {}
        for side, matrix in (("source", source.matrix), ("target", target)):
            shares = np.asarray(matrix.mean(axis=0)).ravel()
            percentages = (100 * shares).round(4)
            by_label = zip(source.labels, percentages.tolist(), strict=True)
            usage[side] = dict(by_label)
        return {"usage": usage}, trial.audit()
