"""How far probabilities can be believed: reliability, log-loss, and the precision that is reached.

In: a `Trial` with features. Out: for seen, unseen and late labels, on held-out instances as they
come, what was predicted and what was true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import IntArray, check_features
from polyseme.experiments._kinds.method import Method, Metrics
from polyseme.experiments._kinds.systems import expert_config
from polyseme.experiments.draws import Conditions, word_vectors
from polyseme.experiments.trials import Trial
from polyseme.experts import LabelExperts
from polyseme.experts.blending import logit, sigmoid
from polyseme.experts.late import CODE_PENALTY, RARE, USUAL, LateLabels
from polyseme.experts.named import NOISE, SPREAD, NamedLabels, NamedScorer
from polyseme.protocols import evaluation_columns
from polyseme.scoring import concept_map, example_map, log_loss, reliability

Matrix = NDArray[np.float64]
PRECISIONS = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class Calibration(Method):
    """Probabilities of seen and unseen labels, by the experts or as tuned COSTA's scores.

    Attributes
    ----------
    raw : bool
        Whether tuned COSTA's scores are read as probabilities instead.
    """

    features: ClassVar[bool] = True
    raw: bool = False

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        return super().config(conditions) | expert_config() | {"raw": self.raw}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Compare probabilities with what held-out instances have."""
        experts, labels = trial.experts()
        least = {one: experts.thresholds(one) for one in PRECISIONS}
        if self.raw:
            experts = experts.with_experts(("kernel",), ("linear",), use_shifts=False)
        X = check_features(trial.features(trial.mixed), owner="LabelExperts")
        probabilities = experts.probabilities(X)
        tested = trial.split.target.select(trial.mixed)
        place = {tested.key(label): column for column, label in enumerate(labels)}
        found: Metrics = {}
        for name, chosen in evaluation_columns(trial.split.labels).items():
            if name not in ("training", "zsl-only"):
                continue
            truth = tested.align(chosen)[0][:, : len(chosen)].toarray().astype(bool)
            at = [place[tested.key(label)] for label in chosen]
            found[name] = believed(truth, probabilities[:, at])
            if not self.raw:
                for asked, thresholds in least.items():
                    given = probabilities[:, at] >= thresholds[at]
                    found[name] |= reached(truth, given, asked)
        return found, trial.audit(given=trial.given())


@dataclass(frozen=True)
class LateCalibration(Method):
    """A third of the unseen labels: learned, placed later by documents, or by name alone."""

    features: ClassVar[bool] = True

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        words = None if conditions.quick else word_vectors(conditions.data).checksum
        late = {"usual": USUAL, "penalty": (CODE_PENALTY, RARE), "words": (SPREAD, NOISE)}
        return super().config(conditions) | expert_config() | {"words": words, "late": late}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Learn without some labels, then take the documents that hold them, or their names."""
        lessons, labels = trial.lessons()
        unseen = np.flatnonzero(np.asarray(lessons.matrix.sum(axis=0)).ravel() == 0)
        generator = np.random.default_rng(trial.seed)
        late = np.sort(generator.permutation(unseen)[: max(1, len(unseen) // 3)])
        kept = np.setdiff1d(np.arange(len(labels)), late)
        experts = trial.new_experts().fit(
            check_features(trial.train_features, owner="LabelExperts"),
            lessons.matrix[:, kept],
            lessons.documents[:, kept],
            *lessons[2:],
        )
        seen, names = kept[experts.seen_], [labels[column] for column in late]
        X = check_features(trial.features(trial.mixed), owner="LabelExperts")
        readings = experts.readings(X)
        documents, n_documents = lessons.documents, lessons.documents.shape[0]
        sample = LateLabels(experts, documents[:, seen], documents[:, late], n_fresh=n_documents)
        picked = self._picked(experts, documents, seen, late)
        logits = {
            "taught": trial.experts()[0].logits(X)[:, late],
            "sample": sample.logits(readings),
            "oov": picked.logits(readings),
            "chance": generator.random((X.shape[0], len(late))),
        }
        has = trial.word_vectors.label_vectors(names)[1]
        if has.any():
            words = [name for name, known in zip(names, has, strict=True) if known]
            placed = NamedLabels.place(words, [labels[one] for one in seen], trial.word_vectors)
            # Without a vector there is no hint: such a label is as likely everywhere.
            logits["named"] = np.full_like(
                logits["oov"], logit(np.array(experts.typical_frequency))
            )
            logits["named"][:, has] = NamedScorer(experts, placed).logits(readings)
        tested = trial.split.target.select(trial.mixed)
        truth = tested.align(names)[0][:, : len(names)].toarray().astype(bool)
        found = {name: self._measured(truth, one) for name, one in logits.items()}
        for precision in PRECISIONS:
            given = sigmoid(logits["oov"]) >= experts.unseen_threshold(precision)
            found["oov"] |= reached(truth, given, precision)
        return found, trial.audit(given=trial.given())

    def _picked(
        self, experts: LabelExperts, documents: sp.csr_matrix, seen: IntArray, late: IntArray
    ) -> LateLabels:
        """Add the documents that hold late labels to those that were learned from."""
        holding = np.flatnonzero(np.asarray(documents[:, late].sum(axis=1)).ravel())
        before = sp.csr_matrix((documents.shape[0], len(late)))
        return LateLabels(
            experts,
            sp.csr_matrix(sp.vstack([documents[:, seen], documents[holding][:, seen]])),
            sp.csr_matrix(sp.vstack([before, documents[holding][:, late]])),
            n_fresh=len(holding),
        )

    def _measured(self, truth: NDArray[np.bool_], logits: Matrix) -> dict[str, Any]:
        """Measure ranks and probabilities."""
        found: dict[str, Any] = believed(truth, sigmoid(logits))
        if truth.any():
            found["E-MAP"] = 100 * example_map(truth, logits)
            found["C-MAP"] = 100 * concept_map(truth, logits)
        return found


def believed(truth: NDArray[np.bool_], probabilities: Matrix) -> dict[str, Any]:
    """Give calibration error and base rate (%), log-loss, expected for each true, the curve."""
    curve = reliability(truth, probabilities)
    filled = curve.counts > 0
    return {
        "calibration error": 100 * curve.expected_error,
        "log-loss": log_loss(truth, probabilities),
        "true": 100 * float(truth.mean()),
        "expected / true": float(probabilities.sum() / max(truth.sum(), 1)),
        "curve": {
            "counts": curve.counts[filled].tolist(),
            "predicted": curve.predicted[filled].round(6).tolist(),
            "observed": curve.observed[filled].round(6).tolist(),
        },
    }


def reached(
    truth: NDArray[np.bool_], given: NDArray[np.bool_], precision: float
) -> dict[str, float | None]:
    """Give the precision that was reached (%), and the share of true labels that were given."""
    right = float((truth & given).sum())
    asked = f"{100 * precision:.0f} %"
    return {
        f"reached of {asked}": 100 * right / given.sum() if given.any() else None,
        f"found at {asked}": 100 * right / max(truth.sum(), 1),
    }
