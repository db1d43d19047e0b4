"""What can be said of a collection: hold out items, make labels unseen on purpose, and measure.

In: an estimator that is not fitted, features and tag sets. Out: a `Validation`, which says how well
seen and unseen labels are ranked, and how likely unseen labels must be to be true.

Terms: a *draw* is one random choice of items to hold out (test rows) and of labels to make unseen
(*hidden* labels: no training item carries one, only tag sets hold them). A label is *given* where
its probability is high enough to suggest it. Logits and truth of a draw are tables of its held-out
items by labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from polyseme.base.folds import group_numbers
from polyseme.base.validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
)
from polyseme.documents.corpus import LabelCorpus
from polyseme.documents.label_sets import find_label_set_rows, join_corpora
from polyseme.fitting.name_weights import learn_name_weights
from polyseme.fitting.simple_rankers import simple_rankers
from polyseme.io.join import split_ids
from polyseme.metrics import concept_precision, example_precision, reliability
from polyseme.scoring.name_evidence import NameEvidence, NameWeights
from polyseme.space.calibration import (
    PRECISIONS,
    LogitsAndTruth,
    sigmoid,
    unseen_thresholds,
)
from polyseme.storage.array_checks import (
    WEIGHT_LIMIT,
    Fields,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Whole,
    require,
)
from polyseme.storage.checkpoints import OtherTrainingError, validation_checkpoint
from polyseme.storage.model_file import ModelFileError, remove_model

Matrix = NDArray[np.float64]
Features = NDArray[np.float64] | sp.csr_matrix

# What is drawn: so large a share of the items, or of their groups, is held out; so large a share of
# the labels on items is made unseen, fewer where they would be on more than this share of the
# items, which teach nothing then.
_HELD_OUT_SHARE = 0.25
_HIDDEN_SHARE = 0.2
_MOST_CARRYING = 0.45
# With fewer items (or groups) or labels that are on items and in tag sets none can be spared.
_FEWEST_ITEMS = 40
_FEWEST_LABELS = 8
# Of large data, the most items and tag sets that are trained with, and the most items that are
# tested: fewer above 2048 labels, so that tables of logits stay small, but 512 always.
MOST_TRAINED = 20_000
_MOST_TESTED = 4096
_TESTED_LABELS = 2048
_LEAST_TESTED = 512

# The label is likely enough by default from here on; see `ZeroShotTagger.predict`.
_DEFAULT_THRESHOLD = 0.5
# How many answers for each label their worth is measured by.
CLICKS = 10


class Ranker(Protocol):
    """What is validated: any estimator of scikit-learn's manners that gives logits of labels.

    With a parameter `unlabelled` of `fit`, a pool can be validated; with a method `learn` that
    takes verdicts (name of an item, label, answer) and X, what answers bring.
    """

    classes_: NDArray[np.object_]

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Any:
        """Learn from items (n, n_features), their labels and tag sets."""

    def decision_function(self, X: Features) -> Matrix:
        """Return logits, (n, n_classes), in the order of `classes_`."""


@dataclass(frozen=True)
class Measures:
    """How well some labels do on items that were held out.

    Attributes
    ----------
    example_map, concept_map : float
        E-MAP over items and C-MAP over labels, between 0 and 1; see `polyseme.metrics`.
    precision, recall : float
        Of all labels with a probability of at least 0.5: the share that is true, and of all true
        labels the share that is among them. NaN where there are none.
    n_items : int
        Items that carry such a label, of all draws.
    n_labels : int
        How many such labels were ranked at a time; the fewer, the easier is their order.
    """

    example_map: float
    concept_map: float
    precision: float
    recall: float
    n_items: int
    n_labels: int


@dataclass(frozen=True)
class Validation:
    """What was measured on items that were held out, with some of their labels made unseen.

    Attributes
    ----------
    seen, unseen : Measures
        Of labels that training items carried, and of labels that were left to the tag sets.
    thresholds : tuple of float, length 99
        How likely an unseen label must be for precisions of 0.01 to 0.99; infinity where held-out
        items cannot promise such a precision.
    labels : dict of str to (float or None, float or None)
        Average precision (C-MAP) of each label that held-out items carry, as a seen label and as
        one made unseen: means over the draws in which it was so.
    n_draws : int
        How often items and labels were drawn.
    curves : dict of str to tuple of (int, float, float)
        For "seen" and "unseen": how many labels were given a probability in each of 15 steps, what
        it was on average, and which share was true.
    baselines : dict of str to (float or None), length 4
        What simple rankers reach on the same items: E-MAP and C-MAP of seen labels, then of unseen
        ones.
    pool_gain : float or None
        What items without tags bring on labels that were made unseen, the mean of E-MAP and C-MAP,
        between -1 and 1; None without such items.
    click_gain : float or None
        What ten answers for each of these labels bring, likewise; None where it was not tried.
    name_weights : NameWeights or None
        By how much the likeness of items and labels' names counts; None without comparable names.
    name_gains : (float, float) or None
        What that brings on seen and on unseen labels, as `pool_gain`.
    examples : dict of str to tuple of (str, float, bool)
        For each label that was made unseen, the held-out items it was likeliest for: their names,
        probabilities, and whether they carry it; of the last draw that made it unseen, because
        probabilities of several small models are no one ranking. Empty unless they are asked for.
    """

    seen: Measures
    unseen: Measures
    thresholds: tuple[float, ...]
    labels: dict[str, tuple[float | None, float | None]]
    n_draws: int
    curves: dict[str, tuple[tuple[int, float, float], ...]]
    examples: dict[str, tuple[tuple[str, float, bool], ...]]
    baselines: dict[str, tuple[float | None, ...]] = field(default_factory=dict)
    pool_gain: float | None = None
    click_gain: float | None = None
    name_weights: NameWeights | None = None
    name_gains: tuple[float, float] | None = None

    def gain_over(self, baseline: Validation) -> float:
        """Return by how much unseen labels are ranked better than in another; see `pool_gain`.

        What could not be measured counts as no gain.
        """
        before = baseline.unseen
        after = self.unseen
        example_gain = after.example_map - before.example_map
        concept_gain = after.concept_map - before.concept_map
        gains = np.array([example_gain, concept_gain])
        known_gains = np.nan_to_num(gains)
        return float(known_gains.mean())

    def threshold(self, precision: float) -> float:
        """Return how likely an unseen label must be for a precision; infinity: nobody knows.

        The precision is rounded up to hundredths, to which `thresholds` belong.
        """
        # What is a rounding error above a hundredth is that hundredth.
        lowered_precision = precision - 1e-9
        place = int(np.searchsorted(PRECISIONS, lowered_precision))
        last_place = len(self.thresholds) - 1
        place = min(place, last_place)
        return self.thresholds[place]

    @property
    def highest_precision(self) -> float:
        """The highest precision that can be promised of unseen labels; 0 for none."""
        is_promised = np.isfinite(self.thresholds)
        places = np.flatnonzero(is_promised)
        if not len(places):
            return 0.0
        last_place = places[-1]
        return float(PRECISIONS[last_place])

    def __repr__(self) -> str:
        """Return the mean precision of rankings, in a line; `str` tells more."""
        seen_percent = 100 * self.seen.example_map
        unseen_percent = 100 * self.unseen.example_map
        precisions = f"E-MAP seen {seen_percent:.1f}, unseen {unseen_percent:.1f}"
        return f"Validation({self.n_draws} draws, {precisions})"

    def __str__(self) -> str:
        """Return what was measured as sentences for people, a line each."""
        lines = [
            f"seen labels: {_measures_in_words(self.seen)}",
            f"unseen labels: {_measures_in_words(self.unseen)}",
        ]
        for name, precisions in self.baselines.items():
            seen = _precisions_in_words(precisions[:2])
            unseen = _precisions_in_words(precisions[2:])
            lines.append(f"in comparison, {name}: seen labels {seen}; unseen labels {unseen}")
        best = f"the highest that can be promised of unseen labels is {self.highest_precision:.2f}"
        if not self.highest_precision:
            best = "none can be promised of unseen labels"
        lines.append(f"precision: {best}")
        if self.pool_gain is not None:
            pool_points = 100 * self.pool_gain
            use = "used" if self.pool_gain > 0 else "left out"
            lines.append(
                f"items without tags: {pool_points:+.1f} points on unseen labels, so they are {use}"
            )
        if self.name_gains is not None:
            seen_points, unseen_points = (100 * gain for gain in self.name_gains)
            use = (
                "used"
                if self.name_weights is not None and self.name_weights.are_used
                else "left out"
            )
            lines.append(
                f"names of labels: {seen_points:+.1f} points on seen and {unseen_points:+.1f} on "
                f"unseen labels, so they are {use}"
            )
        if self.click_gain is not None:
            click_points = 100 * self.click_gain
            lines.append(
                f"yes or no to {CLICKS} items for each unseen label: {click_points:+.1f} points"
            )
        return "\n".join(lines)

    def get_state(self) -> dict[str, Any]:
        """Return it as JSON values without the examples; what is not a number is None.

        This is the format in which models save it; `from_state` checks it.
        """
        thresholds = []
        for threshold in self.thresholds:
            thresholds.append(threshold if np.isfinite(threshold) else None)
        labels = {}
        for label, precisions in self.labels.items():
            labels[label] = list(precisions)
        baselines = {}
        for name, baseline_precisions in self.baselines.items():
            baselines[name] = list(baseline_precisions)
        curves = {}
        for kind, curve in self.curves.items():
            curves[kind] = [list(step) for step in curve]
        return {
            "seen": _with_none(asdict(self.seen)),
            "unseen": _with_none(asdict(self.unseen)),
            "thresholds": thresholds,
            "labels": labels,
            "n_draws": self.n_draws,
            "baselines": baselines,
            "pool_gain": self.pool_gain,
            "click_gain": self.click_gain,
            "name_weights": None if self.name_weights is None else self.name_weights.to_list(),
            "name_gains": None if self.name_gains is None else list(self.name_gains),
            "curves": curves,
        }

    @classmethod
    def from_state(cls, config: Mapping[str, Any]) -> Self:
        """Rebuild it from what `get_state` returned; a state that does not fit is refused."""
        _STATE_FIELDS.check(config)
        thresholds = [_or_else(threshold, np.inf) for threshold in config["thresholds"]]
        labels = {}
        for label, (seen_precision, unseen_precision) in config["labels"].items():
            labels[label] = (seen_precision, unseen_precision)
        curves = {}
        for kind, curve in config["curves"].items():
            steps = []
            for count, mean, share in curve:
                steps.append((count, mean, share))
            curves[kind] = tuple(steps)
        baselines = {}
        for name, precisions in config["baselines"].items():
            baselines[name] = tuple(precisions)
        name_weights = None
        name_gains = None
        if config["name_weights"] is not None and config["name_gains"] is not None:
            n_weights = len(config["name_weights"])
            require(n_weights % 2 == 0, "name_weights", "as many for each kind of labels")
            name_weights = NameWeights.from_list(config["name_weights"])
            seen_gain, unseen_gain = config["name_gains"]
            name_gains = (seen_gain, unseen_gain)
        return cls(
            seen=_measures_from_state(config["seen"]),
            unseen=_measures_from_state(config["unseen"]),
            thresholds=tuple(thresholds),
            labels=labels,
            n_draws=config["n_draws"],
            curves=curves,
            examples={},
            baselines=baselines,
            pool_gain=config["pool_gain"],
            click_gain=config["click_gain"],
            name_weights=name_weights,
            name_gains=name_gains,
        )


# A share of 0 to 1, or None for what could not be measured.
_SHARE = Maybe(Number(0, 1))
_MEASURES_FIELDS = Fields(
    {
        "example_map": _SHARE,
        "concept_map": _SHARE,
        "precision": _SHARE,
        "recall": _SHARE,
        "n_items": Whole(0),
        "n_labels": Whole(0),
    }
)
# What the state of a validation holds: the format of models on disk.
_STATE_FIELDS = Fields(
    {
        "seen": _MEASURES_FIELDS,
        "unseen": _MEASURES_FIELDS,
        "thresholds": ListOf(_SHARE, least=1),
        "labels": MappingOf(ListOf(_SHARE, 2)),
        "n_draws": Whole(0),
        "baselines": MappingOf(ListOf(_SHARE, 4)),
        "pool_gain": Maybe(Number(-1, 1)),
        "click_gain": Maybe(Number(-1, 1)),
        "name_weights": Maybe(ListOf(Number(-WEIGHT_LIMIT, WEIGHT_LIMIT), least=4)),
        "name_gains": Maybe(ListOf(Number(-1, 1), 2)),
        "curves": MappingOf(ListOf(ListOf(Number(0), 3))),
    }
)


def _with_none(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers with None for NaN, which JSON does not know."""
    with_none: dict[str, float | None] = {}
    for name, number in numbers.items():
        with_none[name] = None if np.isnan(number) else number
    return with_none


def _or_else(number: float | None, missing: float) -> float:
    """Return a number of a state, or what stands for it where it is None."""
    return missing if number is None else number


def _measures_from_state(config: Mapping[str, Any]) -> Measures:
    """Rebuild measures from a state."""
    numbers: dict[str, Any] = {}
    for name, number in config.items():
        numbers[name] = _or_else(number, np.nan)
    return Measures(**numbers)


def _precisions_in_words(precisions: Sequence[float | None]) -> str:
    """Return an E-MAP and a C-MAP, which is their order, as text."""
    texts = []
    for name, precision in zip(("E-MAP", "C-MAP"), precisions, strict=True):
        number = "-"
        if precision is not None:
            number = f"{precision:.3f}"
        texts.append(f"{name} {number}")
    return ", ".join(texts)


def _measures_in_words(measures: Measures) -> str:
    """Return all measures as text."""
    return (
        f"{_precision_and_recall(measures)}; E-MAP {measures.example_map:.3f}, "
        f"C-MAP {measures.concept_map:.3f} "
        f"({measures.n_labels} labels at a time, {measures.n_items} held-out items)"
    )


def _precision_and_recall(measures: Measures) -> str:
    """Return what suggestions at a probability of 0.5 are worth."""
    if np.isnan(measures.precision):
        return "none had a probability of 0.5 or more"
    return (
        f"at a probability of 0.5 or more, precision {measures.precision:.2f} and recall "
        f"{measures.recall:.2f}"
    )


def validate(
    estimator: Ranker,
    X: Features,
    corpus: LabelCorpus,
    label_sets: LabelCorpus,
    n_draws: int = 3,
    random_state: RandomState = None,
    variants: Callable[[Any], Sequence[Ranker]] = lambda fitted: [fitted],
    n_examples: int = 0,
    pool: Features | None = None,
    checkpoint: str | Path | None = None,
    label_sets_only: bool = False,
    names: NameEvidence | None = None,
    name_features: Features | None = None,
) -> list[Validation]:
    """Measure an estimator on a collection's own items, also on labels that are made unseen.

    Every draw holds out a quarter of the items, makes a fifth of the labels unseen by leaving out
    the items that carry them, fits a copy of the estimator to what is left, and ranks the labels of
    the held-out items. Documents of held-out items are left out of the label sets too.

    Parameters
    ----------
    estimator : Ranker
        Copies of it are fitted; itself it is left as it is.
    X : float64 array or csr_matrix, shape (n, n_features)
    corpus, label_sets : LabelCorpus
        The labels of each item, and the documents that teach what labels mean.
    n_draws : int
    random_state : int, numpy Generator or None
    variants : callable, optional
        Makes variants of a fitted copy, all of which are measured; by default itself. They know
        the same labels in the same order, as does the copy with a pool.
    n_examples : int
        How many items to name for each label that was made unseen.
    pool : float64 array or csr_matrix, shape (n_pool, n_features), optional
        Items without tags. One more copy is fitted with them and, as theirs, the features of the
        items that were left out because they carry a label that was made unseen.
    checkpoint : str or Path, optional
        Beside this folder every copy leaves the states of its training, and goes on from them when
        it is called again with the same data and seed; the estimator must have a parameter for it.
    label_sets_only : bool
        Whether the items' own tag sets teach nothing where they are not among the label sets; see
        `ZeroShotTagger.fit`.
    names : NameEvidence, optional
        How like items the names of labels are. By how much that counts is learned from the draws
        of the first variant, and all are measured with it; see `Validation.name_weights`.
    name_features : float64 array or csr_matrix, shape (n, n_all_features), optional
        The features that names are compared with, by default X.

    Returns
    -------
    list of Validation
        Of each variant, and with a pool of the copy that learned from it; empty where there are
        too few items or labels to spare any.
    """
    generator = as_generator(random_state)
    documents = corpus
    fit_options: dict[str, Any] = {}
    if label_sets_only:
        fit_options["label_sets_only"] = True
    else:
        # `documents` are `corpus` under the ids that these have among the label sets; what is true
        # is read from `corpus`.
        label_sets, documents = join_corpora(label_sets, corpus)
    set_of_item = find_label_set_rows(documents, label_sets)  # rows of label sets, -1 for none
    used_sets = label_sets.without_unused()

    draws: list[list[DrawScores]] = []  # of each variant, by draw
    likeness_draws: list[Matrix] = []  # the likeness of names, (n_views, n, n_labels), by draw
    compared_features = X if name_features is None else name_features
    click_gains: list[float] = []
    baseline_draws: dict[str, list[DrawScores]] = {}  # of each simple ranker, by its name
    for draw_number in range(n_draws):
        draw = _draw(corpus, used_sets.labels, generator)
        if draw is None:
            return []
        # The documents of test items teach nothing.
        test_sets = set_of_item[draw.test_rows]
        test_sets = test_sets[test_sets >= 0]
        is_taught = np.ones(len(label_sets), dtype=bool)
        is_taught[test_sets] = False
        with warnings.catch_warnings():
            # What is wrong with the data was said when they were read.
            warnings.simplefilter("ignore", PolysemeWarning)
            taught_rows = np.flatnonzero(is_taught)
            set_rows = _sample(taught_rows, MOST_TRAINED, generator)
            training_data = (
                X[draw.train_rows],
                documents.select(draw.train_rows),
                label_sets.select(set_rows),
            )
            draw_checkpoint = validation_checkpoint(checkpoint, f"draw-{draw_number}")
            try:
                fitted = _fitted(estimator, draw_checkpoint, training_data, **fit_options)
                rankers = [*variants(fitted)]
                if pool is not None:
                    unlabelled = _pool_of_draw(X, pool, draw, generator)
                    pool_checkpoint = validation_checkpoint(checkpoint, f"draw-{draw_number}-pool")
                    with_pool = _fitted(
                        estimator,
                        pool_checkpoint,
                        training_data,
                        unlabelled=unlabelled,
                        **fit_options,
                    )
                    rankers.append(with_pool)
            except ModelFileError:
                raise  # a checkpoint that cannot be read or written
            except InputError:
                return []  # so little is left that nothing can be learned from it

        X_test = X[draw.test_rows]
        test_corpus = corpus.select(draw.test_rows)
        ranker_scores = []
        for ranker in rankers:
            scores = DrawScores.of(ranker, X_test, test_corpus, draw.hidden)
            ranker_scores.append(scores)
        draws.append(ranker_scores)
        if names is not None:
            labels = ranker_scores[0].labels
            likeness = names.likeness_of(labels, compared_features[draw.test_rows])
            likeness_draws.append(likeness)
        n_features = X.shape[1]
        for name, simple_ranker in simple_rankers(n_features).items():
            simple_ranker.fit(*training_data)
            scores = DrawScores.of(simple_ranker, X_test, test_corpus, draw.hidden)
            baseline_scores = baseline_draws.setdefault(name, [])
            baseline_scores.append(scores)
        has_hidden = ranker_scores[0].is_unseen.any()
        if hasattr(fitted, "learn") and has_hidden:
            # Last, as it teaches the fitted copy what it was tested on.
            click_gain = _click_gain(fitted, X_test, test_corpus, draw.hidden)
            click_gains.append(click_gain)

    name_weights = None
    name_gains = None
    if names is not None:
        first_draws = [ranker_scores[0] for ranker_scores in draws]
        name_draws = []
        for draw_scores, likeness in zip(first_draws, likeness_draws, strict=True):
            name_draws.append(replace(draw_scores, logits=likeness.sum(axis=0)))
        baseline_draws["names alone"] = name_draws
        name_weights, name_gains = learn_name_weights(
            names, first_draws, likeness_draws, _mean_quality
        )
        for ranker_scores, likeness in zip(draws, likeness_draws, strict=True):
            ranker_scores[:] = [
                scores.with_names(names, likeness, name_weights) for scores in ranker_scores
            ]
    baselines = {}
    for name, baseline_scores in baseline_draws.items():
        baselines[name] = _mean_precisions(baseline_scores)
    validations = []
    for variant_draws in zip(*draws, strict=True):
        validation = _measured(variant_draws, n_examples)
        validation = replace(
            validation,
            click_gain=_mean_or_none(click_gains),
            baselines=baselines,
            name_weights=name_weights,
            name_gains=name_gains,
        )
        validations.append(validation)
    return validations


def _pool_of_draw(
    X: Features, pool: Features, draw: _Draw, generator: np.random.Generator
) -> Features:
    """Return the items without tags of a draw: the pool, and items that the draw left over.

    These are neither trained with nor tested, mostly as they carry a hidden label; what they carry
    is not looked at.
    """
    drawn_rows = [draw.train_rows, draw.test_rows]
    used_rows = np.concatenate(drawn_rows)
    n_items = X.shape[0]
    all_rows = np.arange(n_items)
    left_out = np.setdiff1d(all_rows, used_rows)
    left_out = _sample(left_out, MOST_TRAINED, generator)
    tables = [pool, X[left_out]]
    stack: Any = np.concatenate
    if sp.issparse(X):
        stack = sp.vstack
    unlabelled = stack(tables)
    n_unlabelled = unlabelled.shape[0]
    pool_rows = np.arange(n_unlabelled)
    pool_rows = _sample(pool_rows, MOST_TRAINED, generator)
    selected: Features = unlabelled[pool_rows]
    return selected


def _fitted(
    estimator: Ranker, checkpoint: Path | None, training_data: tuple[Any, ...], **options: Any
) -> Any:
    """Fit a copy of an estimator to items, their documents and label sets, and options of `fit`.

    It goes on from its checkpoint where there is one; one that other data left is removed.
    """
    copy: Any = clone(estimator)
    if checkpoint is None:
        return copy.fit(*training_data, **options)
    copy.set_params(checkpoint=checkpoint)
    try:
        return copy.fit(*training_data, **options)
    except OtherTrainingError:
        remove_model(checkpoint)
        return copy.fit(*training_data, **options)


def _click_gain(
    ranker: Any, X: Features, corpus: LabelCorpus, hidden_labels: Sequence[str]
) -> float:
    """Return what answers for some held-out items bring on the others, for hidden labels.

    Every other item may be asked about, the likeliest first; the ranker learns the true answers,
    and the mean of E-MAP and C-MAP is compared on the other half.

    Parameters
    ----------
    ranker : fitted Ranker with a method `learn`
        It has learned the answers afterwards.
    X : float64 array or csr_matrix, shape (n, n_features)
    corpus : LabelCorpus
        The true labels of these items.
    hidden_labels : sequence of str
    """
    n_items = len(corpus)
    rows = np.arange(n_items)
    answer_rows = rows[rows % 2 == 0]
    measured_rows = rows[rows % 2 == 1]
    before = DrawScores.of(ranker, X, corpus, hidden_labels)
    features, _ = split_ids(X)  # verdicts name rows by their numbers
    verdicts = []
    hidden_columns = np.flatnonzero(before.is_unseen)
    for column in hidden_columns.tolist():
        label = before.labels[column]
        logits = before.logits[answer_rows, column]
        likeliest_first = np.argsort(-logits, kind="stable")
        likeliest = likeliest_first[:CLICKS]
        asked_rows = answer_rows[likeliest]
        for row in asked_rows.tolist():
            is_true = bool(before.truth[row, column])
            verdict = (str(row), label, is_true)
            verdicts.append(verdict)
    ranker.learn(verdicts, features)
    measured_features = features[measured_rows]
    measured_corpus = corpus.select(measured_rows)
    after = DrawScores.of(ranker, measured_features, measured_corpus, hidden_labels)
    logits_after, truth = after.of_kind(is_unseen=True)
    logits_before, _ = before.of_kind(is_unseen=True)
    quality_before = _mean_quality(truth, logits_before[measured_rows])
    quality_after = _mean_quality(truth, logits_after)
    return float(quality_after - quality_before)


def _mean_quality(truth: NDArray[np.bool_], logits: Matrix) -> float:
    """Return the mean of E-MAP and C-MAP, each of which is 0 where there is nothing to measure."""
    means = []
    for metric in (example_precision, concept_precision):
        precisions = _without_warnings(metric, truth, logits)
        mean = 0.0
        if np.isfinite(precisions).any():
            mean = float(np.nanmean(precisions))
        means.append(mean)
    return sum(means) / len(means)


class _Draw(NamedTuple):
    """One random choice of items and labels; items are rows of the corpus."""

    train_rows: IntArray  # ascending; none carries a hidden label
    test_rows: IntArray  # ascending; all carry some label
    hidden: list[str]  # labels made unseen


def _draw(
    corpus: LabelCorpus, taught_labels: Sequence[str], generator: np.random.Generator
) -> _Draw | None:
    """Draw training rows, test rows and labels to be made unseen; None where there are too few.

    Only labels that the label sets teach can be made unseen. Items of one group are held out
    together.
    """
    n_items = len(corpus)
    indptr = corpus.matrix.indptr  # where the tags of each item begin among `indices`
    n_tags = np.diff(indptr)
    tagged_rows = np.flatnonzero(n_tags)
    taught_keys = set(map(corpus.key, taught_labels))
    keys = map(corpus.key, corpus.labels)
    is_taught = np.array([key in taught_keys for key in keys], dtype=bool)
    is_carried = corpus.counts > 0
    usable_columns = np.flatnonzero(is_carried & is_taught)
    n_usable = len(usable_columns)
    groups = group_numbers(corpus.groups, n_items)
    if groups is None:
        groups = np.arange(n_items)  # each item is its own
    tagged_groups = np.unique(groups[tagged_rows])
    n_groups = len(tagged_groups)
    n_spare = min(len(tagged_rows), n_groups)
    if n_spare < _FEWEST_ITEMS or n_usable < _FEWEST_LABELS:
        return None

    shuffled_groups = generator.permutation(tagged_groups)
    n_test_groups = int(_HELD_OUT_SHARE * n_groups)
    is_held_out = np.isin(groups, shuffled_groups[:n_test_groups])
    n_candidates = int(_HIDDEN_SHARE * n_usable)
    n_candidates = max(2, n_candidates)
    shuffled_columns = generator.permutation(usable_columns)
    candidates = shuffled_columns[:n_candidates]

    # Candidates are hidden in their order, as many as are on few enough items. An item is lost with
    # the first of its labels that is hidden, so what counts is the lowest rank among its labels;
    # those that are no candidates rank last.
    n_labels = len(corpus.labels)
    rank_of_label = np.full(n_labels, n_candidates)
    rank_of_label[candidates] = np.arange(n_candidates)
    tag_ranks = rank_of_label[corpus.matrix.indices]
    first_tags = indptr[tagged_rows]
    lowest_rank = np.full(n_items, n_candidates)
    # The minimum from each first tag to the next one; items without tags have none in between.
    lowest_rank[tagged_rows] = np.minimum.reduceat(tag_ranks, first_tags)
    items_by_rank = np.bincount(lowest_rank, minlength=n_candidates)
    n_carrying = np.cumsum(items_by_rank[:n_candidates])
    is_few_enough = n_carrying <= _MOST_CARRYING * n_items
    n_hidden = max(np.count_nonzero(is_few_enough), 1)
    hidden_labels = [corpus.labels[column] for column in candidates[:n_hidden]]

    carries_hidden = lowest_rank < n_hidden
    is_trained = ~is_held_out & ~carries_hidden
    train_rows = np.flatnonzero(is_trained)
    train_rows = _sample(train_rows, MOST_TRAINED, generator)
    most_by_labels = _MOST_TESTED * _TESTED_LABELS // n_usable
    n_tested = min(_MOST_TESTED, most_by_labels)
    n_tested = max(_LEAST_TESTED, n_tested)
    is_tested = is_held_out[tagged_rows]
    test_rows = _sample(tagged_rows[is_tested], n_tested, generator)
    return _Draw(train_rows, test_rows, hidden_labels)


def _sample(rows: IntArray, most: int, generator: np.random.Generator) -> IntArray:
    """Return all rows where there are no more than `most`, else a random sample, ascending."""
    if len(rows) <= most:
        return rows
    shuffled_rows = generator.permutation(rows)
    return np.sort(shuffled_rows[:most])


@dataclass(frozen=True)
class DrawScores:
    """How a ranker scored the held-out items of a draw, and what is true.

    Only labels that the ranker and the corpus both know are there.
    """

    labels: tuple[str, ...]
    logits: Matrix  # (n, n_labels)
    truth: NDArray[np.bool_]  # (n, n_labels): whether items carry labels
    is_unseen: NDArray[np.bool_]  # (n_labels,): which were made unseen
    ids: tuple[str, ...]  # of the items, (n,)

    @classmethod
    def of(
        cls, ranker: Ranker, X: Features, corpus: LabelCorpus, hidden_labels: Sequence[str]
    ) -> DrawScores:
        """Score items with a fitted ranker; labels that it does not know are passed over."""
        classes = [str(label) for label in ranker.classes_]
        n_classes = len(classes)
        aligned, _ = corpus.align(classes)
        class_tags = aligned[:, :n_classes].toarray()
        truth = class_tags.astype(bool)
        corpus_labels = set(corpus.labels)
        hidden = set(hidden_labels)
        columns = []
        labels = []
        is_unseen = []
        for column, label in enumerate(classes):
            if label in corpus_labels:
                columns.append(column)
                labels.append(label)
                is_unseen.append(label in hidden)
        logits = ranker.decision_function(X)
        return cls(
            labels=tuple(labels),
            logits=logits[:, columns],
            truth=truth[:, columns],
            is_unseen=np.array(is_unseen, dtype=bool),
            ids=corpus.ids,
        )

    def of_kind(self, *, is_unseen: bool) -> LogitsAndTruth:
        """Return logits and truth of the labels that were made unseen, or of the others."""
        columns = self.is_unseen == is_unseen
        return self.logits[:, columns], self.truth[:, columns]

    def with_names(self, names: NameEvidence, likeness: Matrix, weights: NameWeights) -> DrawScores:
        """Return it with what names add to the logits; `likeness` (n_views, n, n_labels)."""
        offsets = np.where(self.is_unseen, weights.other.offset, weights.seen.offset)
        logits = self.logits + offsets * names.have_vectors(self.labels)
        kind_slopes = zip(weights.seen.slopes, weights.other.slopes, strict=True)
        for view_likeness, (seen_slope, other_slope) in zip(likeness, kind_slopes, strict=True):
            logits += view_likeness * np.where(self.is_unseen, other_slope, seen_slope)
        return replace(self, logits=logits)

    def examples(self, n: int) -> dict[str, tuple[tuple[str, float, bool], ...]]:
        """Return the n likeliest items of each label that was made unseen and is on some item.

        They are triples of an item's id, the probability and whether the item carries the label.
        """
        examples: dict[str, tuple[tuple[str, float, bool], ...]] = {}
        if not n:
            return examples
        probabilities = sigmoid(self.logits)
        is_on_item = self.truth.any(axis=0)
        columns = np.flatnonzero(self.is_unseen & is_on_item)
        for column in columns:
            label_probabilities = probabilities[:, column]
            likeliest_first = np.argsort(-label_probabilities, kind="stable")
            likeliest = []
            for row in likeliest_first[:n].tolist():
                probability = float(label_probabilities[row])
                is_true = bool(self.truth[row, column])
                example = (self.ids[row], probability, is_true)
                likeliest.append(example)
            label = self.labels[column]
            examples[label] = tuple(likeliest)
        return examples


def _mean_precisions(draws: Sequence[DrawScores]) -> tuple[float | None, ...]:
    """Return E-MAP and C-MAP of seen labels, then of unseen ones; None where there are none."""
    precisions: list[float | None] = []
    for is_unseen in (False, True):
        tables = [draw.of_kind(is_unseen=is_unseen) for draw in draws]
        measures = _measures(tables)
        for precision in (measures.example_map, measures.concept_map):
            precisions.append(None if np.isnan(precision) else precision)
    return tuple(precisions)


def _measured(draws: Sequence[DrawScores], n_examples: int) -> Validation:
    """Measure all draws of one ranker together."""
    seen_precisions: dict[str, list[float]] = {}
    unseen_precisions: dict[str, list[float]] = {}
    examples = {}
    for draw in draws:
        precisions = _without_warnings(concept_precision, draw.truth, draw.logits)
        for column, label in enumerate(draw.labels):
            precision = float(precisions[column])
            if np.isnan(precision):
                continue  # no held-out item carries it
            is_unseen = draw.is_unseen[column]
            precisions_by_label = unseen_precisions if is_unseen else seen_precisions
            label_precisions = precisions_by_label.setdefault(label, [])
            label_precisions.append(precision)
        draw_examples = draw.examples(n_examples)
        examples.update(draw_examples)  # the last draw's stand; see `Validation.examples`
    mean_precisions = {}
    for label in sorted(seen_precisions.keys() | unseen_precisions.keys()):
        mean_as_seen = _mean_or_none(seen_precisions.get(label, []))
        mean_as_unseen = _mean_or_none(unseen_precisions.get(label, []))
        mean_precisions[label] = (mean_as_seen, mean_as_unseen)

    seen = [draw.of_kind(is_unseen=False) for draw in draws]
    unseen = [draw.of_kind(is_unseen=True) for draw in draws]
    thresholds = unseen_thresholds(unseen)
    return Validation(
        seen=_measures(seen),
        unseen=_measures(unseen),
        thresholds=tuple(thresholds.tolist()),
        labels=mean_precisions,
        n_draws=len(draws),
        curves={
            "seen": _reliability_curve(seen),
            "unseen": _reliability_curve(unseen),
        },
        examples=examples,
    )


def _mean_or_none(numbers: Sequence[float]) -> float | None:
    """Return the mean of numbers; None where there are none."""
    return float(np.mean(numbers)) if numbers else None


def _reliability_curve(draws: Sequence[LogitsAndTruth]) -> tuple[tuple[int, float, float], ...]:
    """Return how often labels of each probability are true, all labels and draws together.

    Steps are triples of a count, the mean probability and the share that is true, without those of
    no label; see `Validation.curves`.
    """
    all_logits = []
    all_truth = []
    for draw_logits, draw_truth in draws:
        all_logits.append(draw_logits.ravel())
        all_truth.append(draw_truth.ravel())
    logits = np.concatenate(all_logits)
    truth = np.concatenate(all_truth)
    if not len(logits):
        return ()
    probabilities = sigmoid(logits)
    reliability_steps = reliability(truth[:, None], probabilities[:, None])
    counts = reliability_steps.counts.tolist()
    predicted = reliability_steps.predicted.tolist()
    observed = reliability_steps.observed.tolist()
    steps = zip(counts, predicted, observed, strict=True)
    return tuple(step for step in steps if step[0])


def _without_warnings(metric: Any, truth: NDArray[np.bool_], logits: Matrix) -> Matrix:
    """Compute a metric by row or by label, without warnings about those with nothing true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        return np.asarray(metric(truth, logits))


def _measures(draws: Sequence[LogitsAndTruth]) -> Measures:
    """Measure the logits and truth of some labels, all draws together; NaN without any label."""
    item_precisions = [np.zeros(0)]
    label_precisions = [np.zeros(0)]
    n_draws = 0
    n_given = 0
    n_right = 0
    n_true = 0
    for logits, truth in draws:
        if not logits.shape[1]:
            continue
        n_draws += 1
        item_precisions.append(_without_warnings(example_precision, truth, logits))
        label_precisions.append(_without_warnings(concept_precision, truth, logits))
        is_given = sigmoid(logits) >= _DEFAULT_THRESHOLD
        is_right = truth & is_given
        n_given += int(is_given.sum())
        n_right += int(is_right.sum())
        n_true += int(truth.sum())
    of_items = np.concatenate(item_precisions)
    of_labels = np.concatenate(label_precisions)
    # Items without a true label, and labels without a true item, have no precision.
    of_items_with_label = of_items[~np.isnan(of_items)]
    of_labels_with_item = of_labels[~np.isnan(of_labels)]
    mean_n_labels = len(of_labels) / max(n_draws, 1)
    return Measures(
        example_map=_mean_or_nan(of_items_with_label),
        concept_map=_mean_or_nan(of_labels_with_item),
        precision=n_right / n_given if n_given else np.nan,
        recall=n_right / n_true if n_true else np.nan,
        n_items=len(of_items_with_label),
        n_labels=round(mean_n_labels),
    )


def _mean_or_nan(numbers: Matrix) -> float:
    """Return the mean of numbers (n,); NaN where there are none."""
    return float(numbers.mean()) if len(numbers) else np.nan
