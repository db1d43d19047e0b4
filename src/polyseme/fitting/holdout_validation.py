"""What can be said of a collection: hold out items, make labels unseen on purpose, and measure.

In: an estimator that is not fitted, features and tag sets. Out: a `Validation`, which says how well
seen and unseen labels are ranked, and how likely unseen labels must be to be true.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self

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
from polyseme.fitting.simple_rankers import simple_rankers
from polyseme.io.join import split_ids
from polyseme.metrics import concept_precision, example_precision, reliability
from polyseme.space.calibration import PRECISIONS, sigmoid
from polyseme.storage.array_checks import Fields, ListOf, MappingOf, Maybe, Number, Whole
from polyseme.storage.checkpoints import OtherTrainingError, validation_checkpoint
from polyseme.storage.model_file import ModelFileError, remove_model

Matrix = NDArray[np.float64]
Features = NDArray[np.float64] | sp.csr_matrix

# Shares of the items that are held out, and of the labels on items that are made unseen; and on
# how many of the items these may be, at the most.
_ITEMS, _LABELS, _CARRYING = 0.25, 0.2, 0.45
# The fewest items and labels that can be spared from, and how much is looked at in large data.
_FEWEST_ITEMS, _FEWEST_LABELS = 40, 8
MOST_TRAINED, _MOST_TESTED = 20_000, 4096
# A precision is believed from so many given labels on, more where it is high: 20, and 10 wrong ones
# that would be expected. As many labels is worth what recalibrated probabilities expect.
_FEWEST_GIVEN, _FEWEST_WRONG, _EXPECTED = 20, 10, 20
# No promise rests on fewer labels than this, weighted by their shares of all that are given.
_FEWEST_SHARING = 3
# Standard errors over labels by which a precision must be exceeded: the lower bound of 95 %.
_CAUTION = 1.64
_MOST_READ = 200_000
# The label is likely enough by default from here on; see `ZeroShotTagger.predict`.
_CUT = 0.5
# How many answers for each label their worth is measured by.
CLICKS = 10


class Ranker(Protocol):
    """What is validated: any estimator of scikit-learn's manners that gives logits of labels."""

    classes_: NDArray[np.object_]

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Any:
        """Learn from items and tag sets."""

    def decision_function(self, X: Features) -> Matrix:
        """Return logits, (n, n_classes)."""


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
        Average precision (C-MAP) of each label that held-out items carry: seen, and made unseen.
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
    examples : dict of str to tuple of (str, float, bool)
        For each label that was made unseen, the held-out items it was likeliest for: their names,
        probabilities, and whether they carry it. Empty unless they are asked for.
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

    def gain_over(self, baseline: Validation) -> float:
        """Return by how much unseen labels are ranked better than in another; see `pool_gain`."""
        example_gain = self.unseen.example_map - baseline.unseen.example_map
        concept_gain = self.unseen.concept_map - baseline.unseen.concept_map
        gains = np.nan_to_num([example_gain, concept_gain])
        return float(gains.mean())

    def threshold(self, precision: float) -> float:
        """Return how likely an unseen label must be for a precision; infinity: nobody knows."""
        step = int(np.searchsorted(PRECISIONS, precision - 1e-9))
        last = len(self.thresholds) - 1
        return self.thresholds[min(step, last)]

    @property
    def highest_precision(self) -> float:
        """The highest precision that can be promised of unseen labels; 0 for none."""
        promised = np.flatnonzero(np.isfinite(self.thresholds))
        if not len(promised):
            return 0.0
        return float(PRECISIONS[promised[-1]])

    def __repr__(self) -> str:
        """Return the mean precision of rankings, in a line; `str` tells more."""
        seen = 100 * self.seen.example_map
        unseen = 100 * self.unseen.example_map
        return f"Validation({self.n_draws} draws, E-MAP seen {seen:.1f}, unseen {unseen:.1f})"

    def __str__(self) -> str:
        lines = [
            f"seen labels: {_measures_in_words(self.seen)}",
            f"unseen labels: {_measures_in_words(self.unseen)}",
        ]
        for name, values in self.baselines.items():
            seen = _maps(values[:2])
            unseen = _maps(values[2:])
            lines.append(f"in comparison, {name}: seen labels {seen}; unseen labels {unseen}")
        best = f"the highest that can be promised of unseen labels is {self.highest_precision:.2f}"
        if not self.highest_precision:
            best = "none can be promised of unseen labels"
        lines.append(f"precision: {best}")
        if self.pool_gain is not None:
            used = "used" if self.pool_gain > 0 else "left out"
            lines.append(
                f"items without tags: {100 * self.pool_gain:+.1f} points on unseen labels, so they "
                f"are {used}"
            )
        if self.click_gain is not None:
            lines.append(
                f"yes or no to {CLICKS} items for each unseen label: "
                f"{100 * self.click_gain:+.1f} points"
            )
        return "\n".join(lines)

    def get_state(self) -> dict[str, Any]:
        """Return it as JSON values without the examples; what is not a number is None."""
        return {
            "seen": _plain(asdict(self.seen)),
            "unseen": _plain(asdict(self.unseen)),
            "thresholds": [value if np.isfinite(value) else None for value in self.thresholds],
            "labels": {label: list(pair) for label, pair in self.labels.items()},
            "n_draws": self.n_draws,
            "baselines": {name: list(values) for name, values in self.baselines.items()},
            "pool_gain": self.pool_gain,
            "click_gain": self.click_gain,
            "curves": {name: [list(step) for step in curve] for name, curve in self.curves.items()},
        }

    @classmethod
    def from_state(cls, config: Mapping[str, Any]) -> Self:
        """Rebuild it from `get_state`."""
        _VALUES.check(config)
        curves = {}
        for name, curve in config["curves"].items():
            curves[name] = tuple((count, mean, share) for count, mean, share in curve)
        return cls(
            seen=_measures_of(config["seen"]),
            unseen=_measures_of(config["unseen"]),
            thresholds=tuple(_number(value, np.inf) for value in config["thresholds"]),
            labels={label: (seen, unseen) for label, (seen, unseen) in config["labels"].items()},
            n_draws=config["n_draws"],
            curves=curves,
            examples={},
            baselines={name: tuple(values) for name, values in config["baselines"].items()},
            pool_gain=config["pool_gain"],
            click_gain=config["click_gain"],
        )


_SHARE = Maybe(Number(0, 1))
_MEASURES = Fields(
    {
        "example_map": _SHARE,
        "concept_map": _SHARE,
        "precision": _SHARE,
        "recall": _SHARE,
        "n_items": Whole(0),
        "n_labels": Whole(0),
    }
)
# What the state of a validation holds.
_VALUES = Fields(
    {
        "seen": _MEASURES,
        "unseen": _MEASURES,
        "thresholds": ListOf(_SHARE, least=1),
        "labels": MappingOf(ListOf(_SHARE, 2)),
        "n_draws": Whole(0),
        "baselines": MappingOf(ListOf(_SHARE, 4)),
        "pool_gain": Maybe(Number(-1, 1)),
        "click_gain": Maybe(Number(-1, 1)),
        "curves": MappingOf(ListOf(ListOf(Number(0), 3))),
    }
)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with None for NaN, which JSON does not know."""
    plain = dict(values)
    for name, value in values.items():
        if value != value:
            plain[name] = None
    return plain


def _number(value: float | None, missing: float) -> float:
    """Return a value of a state, or what stands for it where it is None."""
    return missing if value is None else value


def _measures_of(config: Mapping[str, Any]) -> Measures:
    """Rebuild measures from a state."""
    values: dict[str, Any] = {name: _number(value, np.nan) for name, value in config.items()}
    return Measures(**values)


def _maps(values: Sequence[float | None]) -> str:
    """Return an E-MAP and a C-MAP as text."""
    texts = []
    for name, value in zip(("E-MAP", "C-MAP"), values, strict=True):
        number = "-" if value is None else f"{value:.3f}"
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
        Makes variants of a fitted copy, all of which are measured; by default itself.
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

    Returns
    -------
    list of Validation
        Of each variant, and with a pool of the copy that learned from it; empty where there are
        too few items or labels to spare any.
    """
    generator = as_generator(random_state)
    documents = corpus
    options: dict[str, Any] = {}
    if label_sets_only:
        options["label_sets_only"] = True
    else:
        label_sets, documents = join_corpora(label_sets, corpus)
    rows_of_sets = find_label_set_rows(documents, label_sets)
    taught = label_sets.without_unused().labels

    draws: list[list[_Scores]] = []
    click_gains: list[float] = []
    simple_draws: dict[str, list[_Scores]] = {}
    for number in range(n_draws):
        draw = _draw(corpus, taught, generator)
        if draw is None:
            return []
        train_rows, test_rows, hidden = draw
        test_sets = rows_of_sets[test_rows]
        is_taught = np.ones(len(label_sets), dtype=bool)
        is_taught[test_sets[test_sets >= 0]] = False
        with warnings.catch_warnings():
            # What is wrong with the data was said when they were read.
            warnings.simplefilter("ignore", PolysemeWarning)
            set_rows = _sample(np.flatnonzero(is_taught), MOST_TRAINED, generator)
            training_data = (
                X[train_rows],
                documents.select(train_rows),
                label_sets.select(set_rows),
            )
            try:
                checkpoint_of_draw = validation_checkpoint(checkpoint, f"draw-{number}")
                fitted = _fitted(estimator, checkpoint_of_draw, training_data, **options)
                rankers = [*variants(fitted)]
                if pool is not None:
                    used_rows = np.concatenate([train_rows, test_rows])
                    left_out = np.setdiff1d(np.arange(len(corpus)), used_rows)
                    left_out = _sample(left_out, MOST_TRAINED, generator)
                    unlabelled = _stacked(pool, X[left_out])
                    pool_rows = np.arange(unlabelled.shape[0])
                    pool_rows = _sample(pool_rows, MOST_TRAINED, generator)
                    pool_options = options | {"unlabelled": unlabelled[pool_rows]}
                    pool_checkpoint = validation_checkpoint(checkpoint, f"draw-{number}-pool")
                    with_pool = _fitted(estimator, pool_checkpoint, training_data, **pool_options)
                    rankers.append(with_pool)
            except ModelFileError:
                raise
            except InputError:
                return []  # so little is left that nothing can be learned from it

        X_test = X[test_rows]
        test_corpus = corpus.select(test_rows)
        scores = [_Scores.of(ranker, X_test, test_corpus, hidden) for ranker in rankers]
        draws.append(scores)
        for name, ranker in simple_rankers(X.shape[1]).items():
            ranker.fit(*training_data)
            simple_scores = _Scores.of(ranker, X_test, test_corpus, hidden)
            simple_draws.setdefault(name, []).append(simple_scores)
        if hasattr(fitted, "learn") and scores[0].unseen.any():
            click_gains.append(_click_gain(fitted, X_test, test_corpus, hidden))

    mean_click_gain = float(np.mean(click_gains)) if click_gains else None
    baselines = {name: _mean_precisions(scores) for name, scores in simple_draws.items()}
    validations = []
    for variant_draws in zip(*draws, strict=True):
        validation = _measured(variant_draws, n_examples)
        validation = replace(validation, click_gain=mean_click_gain, baselines=baselines)
        validations.append(validation)
    return validations


def _stacked(first: Features, second: Features) -> Any:
    """Return the rows of two tables of features as one table."""
    stack: Any = sp.vstack if sp.issparse(second) else np.concatenate
    return stack([first, second])


def _fitted(
    estimator: Ranker, checkpoint: Path | None, training_data: tuple[Any, ...], **options: Any
) -> Any:
    """Fit a copy of an estimator; a state of other data is never in its way."""
    copy: Any = clone(estimator)
    if checkpoint is None:
        return copy.fit(*training_data, **options)
    copy.set_params(checkpoint=checkpoint)
    try:
        return copy.fit(*training_data, **options)
    except OtherTrainingError:
        remove_model(checkpoint)
        return copy.fit(*training_data, **options)


def _click_gain(ranker: Any, X: Features, corpus: LabelCorpus, hidden: Sequence[str]) -> float:
    """Return what answers for some held-out items bring on the others, for labels made unseen."""
    rows = np.arange(len(corpus))
    answer_rows = rows[rows % 2 == 0]
    measured_rows = rows[rows % 2 == 1]
    before = _Scores.of(ranker, X, corpus, hidden)
    X, _ = split_ids(X)  # rows are named by their numbers
    answers = []
    for column in np.flatnonzero(before.unseen).tolist():
        label = before.labels[column]
        logits = before.logits[answer_rows, column]
        falling = np.argsort(-logits, kind="stable")
        asked_rows = answer_rows[falling[:CLICKS]]
        for row in asked_rows.tolist():
            is_true = bool(before.truth[row, column])
            answers.append((str(row), label, is_true))
    ranker.learn(answers, X)
    after = _Scores.of(ranker, X[measured_rows], corpus.select(measured_rows), hidden)
    truth = after.truth[:, after.unseen]
    logits_before = before.logits[measured_rows][:, after.unseen]
    logits_after = after.logits[:, after.unseen]
    quality_before = _mean_quality(truth, logits_before)
    quality_after = _mean_quality(truth, logits_after)
    return float(quality_after - quality_before)


def _mean_quality(truth: NDArray[np.bool_], logits: Matrix) -> float:
    """Return the mean of E-MAP and C-MAP, each of which is 0 where there is nothing to measure."""
    means = []
    for metric in (example_precision, concept_precision):
        values = _quietly(metric, truth, logits)
        mean = 0.0
        if np.isfinite(values).any():
            mean = float(np.nanmean(values))
        means.append(mean)
    return sum(means) / len(means)


def _draw(
    corpus: LabelCorpus, taught: Sequence[str], generator: np.random.Generator
) -> tuple[IntArray, IntArray, list[str]] | None:
    """Draw training rows, test rows and labels to be made unseen; None where there are too few.

    Only labels that the label sets teach can be made unseen.
    """
    carried = np.flatnonzero(np.diff(corpus.matrix.indptr))
    taught_keys = {corpus.key(label) for label in taught}
    is_taught = np.array([corpus.key(label) in taught_keys for label in corpus.labels], dtype=bool)
    used = np.flatnonzero((corpus.counts > 0) & is_taught)
    numbers = group_numbers(corpus.groups, len(corpus))
    groups = np.arange(len(corpus)) if numbers is None else numbers
    n_groups = len(np.unique(groups[carried]))
    if min(len(carried), n_groups) < _FEWEST_ITEMS or len(used) < _FEWEST_LABELS:
        return None
    order = generator.permutation(np.unique(groups[carried]))
    held_out = np.isin(groups, order[: int(_ITEMS * n_groups)])
    n_candidates = max(2, int(_LABELS * len(used)))
    candidates = generator.permutation(used)[:n_candidates]
    # The first so many labels are on the items whose first label is one of them.
    rank_of_label = np.full(len(corpus.labels), n_candidates)
    rank_of_label[candidates] = np.arange(n_candidates)
    first_rank = np.full(len(corpus), n_candidates)
    tag_ranks = rank_of_label[corpus.matrix.indices]
    first_rank[carried] = np.minimum.reduceat(tag_ranks, corpus.matrix.indptr[carried])
    n_first = np.bincount(first_rank, minlength=n_candidates)[:n_candidates]
    n_carrying = np.cumsum(n_first)
    n_hidden = max(np.count_nonzero(n_carrying <= _CARRYING * len(corpus)), 1)
    hidden = [corpus.labels[column] for column in candidates[:n_hidden]]

    carries_hidden = first_rank < n_hidden
    train_rows = np.flatnonzero(~held_out & ~carries_hidden)
    train_rows = _sample(train_rows, MOST_TRAINED, generator)
    n_tested = max(512, min(_MOST_TESTED, _MOST_TESTED * 2048 // len(used)))
    test_rows = _sample(carried[held_out[carried]], n_tested, generator)
    return train_rows, test_rows, hidden


def _sample(rows: IntArray, most: int, generator: np.random.Generator) -> IntArray:
    """Return all rows where there are no more than `most`, else a random sample of so many."""
    if len(rows) <= most:
        return rows
    return np.sort(generator.permutation(rows)[:most])


@dataclass(frozen=True)
class _Scores:
    """Logits (n, n_labels) of held-out items, what is true, and which labels were made unseen."""

    labels: tuple[str, ...]
    logits: Matrix
    truth: NDArray[np.bool_]
    unseen: NDArray[np.bool_]  # (n_labels,)
    ids: tuple[str, ...]  # (n,)

    @classmethod
    def of(cls, ranker: Ranker, X: Features, corpus: LabelCorpus, hidden: Sequence[str]) -> _Scores:
        """Score items with a fitted ranker; labels that it does not know are passed over."""
        classes = [str(label) for label in ranker.classes_]
        aligned, _ = corpus.align(classes)
        truth = aligned[:, : len(classes)].toarray().astype(bool)
        carried = set(corpus.labels)
        columns = np.flatnonzero([label in carried for label in classes])
        labels = tuple(classes[column] for column in columns)
        hidden_labels = set(hidden)
        unseen = np.array([label in hidden_labels for label in labels], dtype=bool)
        logits = ranker.decision_function(X)[:, columns]
        return cls(labels, logits, truth[:, columns], unseen, corpus.ids)

    def examples(self, n: int) -> dict[str, tuple[tuple[str, float, bool], ...]]:
        """Return the n likeliest items of each label that was made unseen and is on some item."""
        examples: dict[str, tuple[tuple[str, float, bool], ...]] = {}
        if not n:
            return examples
        probabilities = sigmoid(self.logits)
        for column in np.flatnonzero(self.unseen & self.truth.any(axis=0)):
            label_probabilities = probabilities[:, column]
            falling = np.argsort(-label_probabilities, kind="stable")
            likeliest = []
            for row in falling[:n].tolist():
                probability = float(label_probabilities[row])
                is_true = bool(self.truth[row, column])
                likeliest.append((self.ids[row], probability, is_true))
            label = self.labels[column]
            examples[label] = tuple(likeliest)
        return examples


def _mean_precisions(draws: Sequence[_Scores]) -> tuple[float | None, ...]:
    """Return E-MAP and C-MAP of seen labels, then of unseen ones; None where there are none."""
    values: dict[str, Any] = {}
    for kind, is_unseen in (("seen", False), ("unseen", True)):
        measures = _of_labels(_of_kind(draws, is_unseen=is_unseen))
        values[f"{kind} E-MAP"] = measures.example_map
        values[f"{kind} C-MAP"] = measures.concept_map
    return tuple(_plain(values).values())


def _of_kind(
    draws: Sequence[_Scores], *, is_unseen: bool
) -> list[tuple[Matrix, NDArray[np.bool_]]]:
    """Return logits and truth of the labels of each draw that were made unseen, or were not."""
    selected = []
    for draw in draws:
        columns = draw.unseen == is_unseen
        selected.append((draw.logits[:, columns], draw.truth[:, columns]))
    return selected


def _measured(draws: Sequence[_Scores], n_examples: int) -> Validation:
    """Measure all draws together."""
    precisions: dict[str, tuple[list[float], list[float]]] = {}
    examples = {}
    for draw in draws:
        values = _quietly(concept_precision, draw.truth, draw.logits)
        for label, value, is_unseen in zip(draw.labels, values, draw.unseen, strict=True):
            if not np.isnan(value):
                as_seen, as_unseen = precisions.setdefault(label, ([], []))
                values_of_kind = as_unseen if is_unseen else as_seen
                values_of_kind.append(float(value))
        examples.update(draw.examples(n_examples))
    quality = {}
    for label, (as_seen, as_unseen) in sorted(precisions.items()):
        quality[label] = (_mean(as_seen), _mean(as_unseen))

    seen = _of_kind(draws, is_unseen=False)
    unseen = _of_kind(draws, is_unseen=True)
    return Validation(
        seen=_of_labels(seen),
        unseen=_of_labels(unseen),
        thresholds=tuple(unseen_thresholds(unseen).tolist()),
        labels=quality,
        n_draws=len(draws),
        curves={"seen": _curve(seen), "unseen": _curve(unseen)},
        examples=examples,
    )


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of values; None where there are none."""
    return float(np.mean(values)) if values else None


def _curve(
    draws: Sequence[tuple[Matrix, NDArray[np.bool_]]],
) -> tuple[tuple[int, float, float], ...]:
    """Return how often labels of each probability are true."""
    draws = [(logits, truth) for logits, truth in draws if logits.size]
    if not draws:
        return ()
    truth = np.concatenate([draw_truth.ravel() for _, draw_truth in draws])
    logits = np.concatenate([draw_logits.ravel() for draw_logits, _ in draws])
    probabilities = sigmoid(logits)
    steps = reliability(truth[:, None], probabilities[:, None])
    counts = steps.counts.tolist()
    predicted = steps.predicted.tolist()
    observed = steps.observed.tolist()
    curve = zip(counts, predicted, observed, strict=True)
    return tuple(step for step in curve if step[0])


def _quietly(metric: Any, truth: NDArray[np.bool_], logits: Matrix) -> Matrix:
    """Compute a metric by row or by label, without warnings about those with nothing true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        return np.asarray(metric(truth, logits))


def _of_labels(draws: Sequence[tuple[Matrix, NDArray[np.bool_]]]) -> Measures:
    """Measure the logits and truth of some labels, all draws together; NaN without any label."""
    draws = [(logits, truth) for logits, truth in draws if logits.shape[1]]
    if not draws:
        return Measures(np.nan, np.nan, np.nan, np.nan, 0, 0)
    item_values = []
    label_values = []
    n_suggested = 0
    n_right = 0
    n_true = 0
    for logits, truth in draws:
        item_values.append(_quietly(example_precision, truth, logits))
        label_values.append(_quietly(concept_precision, truth, logits))
        suggested = sigmoid(logits) >= _CUT
        n_suggested += int(suggested.sum())
        n_right += int(truth[suggested].sum())
        n_true += int(truth.sum())
    of_items = np.concatenate(item_values)
    of_labels = np.concatenate(label_values)
    # Items without a true label, and labels without a true item, have no precision.
    items = of_items[~np.isnan(of_items)]
    labels = of_labels[~np.isnan(of_labels)]
    return Measures(
        example_map=float(items.mean()) if len(items) else np.nan,
        concept_map=float(labels.mean()) if len(labels) else np.nan,
        precision=n_right / n_suggested if n_suggested else np.nan,
        recall=n_right / n_true if n_true else np.nan,
        n_items=len(items),
        n_labels=round(len(of_labels) / len(draws)),
    )


def unseen_thresholds(draws: Sequence[tuple[Matrix, NDArray[np.bool_]]]) -> Matrix:
    """Find how likely unseen labels must be for each of `PRECISIONS`, infinity for nobody knows.

    A threshold holds when the lower bound (95 %, over labels) of the share of true labels above it
    reaches the precision; few labels are helped out by what recalibrated probabilities expect.

    On five splits of each of six corpora this gave 0.14 to 0.33 for 0.2 (in 23 of the 30; none in
    the others) and 0.46 and 0.57 for 0.5 (in 7), where probabilities taken at their word gave 0.12
    to 0.28 and 0.29 to 0.52; `polyseme reproduce precision` has the table.

    Parameters
    ----------
    draws : sequence of (float64 array, bool array), shapes (n, n_labels)
        Logits of labels that were made unseen, and whether they are true.

    Returns
    -------
    float64 array, shape (99,)
    """
    thresholds = np.full(len(PRECISIONS), np.inf)
    logits = np.concatenate([draw_logits.ravel() for draw_logits, _ in draws])
    truth = np.concatenate([draw_truth.ravel() for _, draw_truth in draws]).astype(np.float64)
    labels = _label_numbers([draw_logits.shape for draw_logits, _ in draws])

    # Only the likeliest are read, from the likeliest on.
    candidates = np.arange(len(logits))
    if len(logits) > _MOST_READ:
        first_read = len(logits) - _MOST_READ
        least = np.partition(logits, first_read)[first_read]
        candidates = np.flatnonzero(logits >= least)
    falling = np.argsort(-logits[candidates], kind="stable")
    order = candidates[falling[:_MOST_READ]]
    order = order[np.isfinite(logits[order])]
    if len(order) < _FEWEST_GIVEN or not truth[order].any():
        return thresholds
    logits = logits[order]
    truth = truth[order]
    labels = labels[order]

    n_read = len(logits)
    expected_hits = np.cumsum(_recalibrated(logits, truth))
    expected = expected_hits / np.arange(1, n_read + 1)
    hits = np.cumsum(truth)
    sizes = np.geomspace(_FEWEST_GIVEN, n_read, 100).astype(np.int64)
    # Labels that are equally likely are given together or not at all.
    is_last = np.append(np.diff(logits) < 0, True)
    last = np.flatnonzero(is_last)
    ends = np.searchsorted(last, sizes - 1)
    for end in np.unique(last[ends]):
        size = end + 1
        # precision = (hits + e * expected) / (size + e)
        expected_part = _EXPECTED * expected[end]
        precision = (hits[end] + expected_part) / (size + _EXPECTED)
        deviations = np.bincount(labels[:size], weights=truth[:size] - precision)
        deviation = np.sqrt(np.square(deviations).sum())
        bound = precision - _CAUTION * deviation / (size + _EXPECTED)
        n_wrong = size * (1 - PRECISIONS)
        # How many labels share the entries, in effect: the inverse Simpson index.
        label_counts = np.bincount(labels[:size])
        n_labels = size**2 / np.square(label_counts).sum()
        is_reached = (bound >= PRECISIONS) & (n_wrong >= _FEWEST_WRONG)
        if n_labels >= _FEWEST_SHARING:
            thresholds[is_reached] = sigmoid(logits[end])
    # What is promised for a precision must hold for lower ones too.
    falling_precisions = thresholds[::-1]
    return np.minimum.accumulate(falling_precisions)[::-1]


def _label_numbers(shapes: Sequence[tuple[int, ...]]) -> IntArray:
    """Return a number for the label of each entry of several tables, row by row.

    Labels of every table have numbers of their own.
    """
    n_before = 0
    numbers = []
    for n_items, n_labels in shapes:
        numbers.append(np.tile(n_before + np.arange(n_labels), n_items))
        n_before += n_labels
    return np.concatenate(numbers)


def _recalibrated(logits: Matrix, truth: Matrix) -> Matrix:
    """Return probabilities by one slope and one intercept for all labels (Platt), (n,)."""
    from sklearn.linear_model import LogisticRegression

    if truth.all():
        return np.asarray(truth)
    column = logits[:, None]
    model = LogisticRegression(C=1e3).fit(column, truth)
    probabilities = model.predict_proba(column)
    return np.asarray(probabilities[:, 1])
