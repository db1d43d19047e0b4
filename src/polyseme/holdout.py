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

from polyseme._folds import group_numbers
from polyseme._validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
    without_ids,
)
from polyseme.calibration import PRECISIONS, sigmoid
from polyseme.checkpoints import OtherTrainingError, part_of
from polyseme.corpus import LabelCorpus
from polyseme.documents import join_corpora, met_documents
from polyseme.metrics import concept_precision, example_precision, reliability
from polyseme.persistence import ModelFileError, remove_model
from polyseme.schema import Fields, Maybe, Number, Several, Table, Whole
from polyseme.simple_rankers import simple_rankers

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

    def gain_over(self, other: Validation) -> float:
        """Return by how much unseen labels are ranked better than in another; see `pool_gain`."""
        mine, others = (
            np.array([one.unseen.example_map, one.unseen.concept_map]) for one in (self, other)
        )
        return float(np.nan_to_num(mine - others).mean())

    def threshold(self, precision: float) -> float:
        """Return how likely an unseen label must be for a precision; infinity: nobody knows."""
        place = int(np.searchsorted(PRECISIONS, precision - 1e-9))
        return self.thresholds[min(place, len(self.thresholds) - 1)]

    @property
    def highest_precision(self) -> float:
        """The highest precision that can be promised of unseen labels; 0 for none."""
        known = np.flatnonzero(np.isfinite(self.thresholds))
        return float(PRECISIONS[known[-1]]) if len(known) else 0.0

    def __repr__(self) -> str:
        """Return the mean precision of rankings, in a line; `str` tells more."""
        seen, unseen = (100 * part.example_map for part in (self.seen, self.unseen))
        return f"Validation({self.n_draws} draws, E-MAP seen {seen:.1f}, unseen {unseen:.1f})"

    def __str__(self) -> str:
        lines = [
            f"{name} labels: {_precision_and_recall(part)}; E-MAP {part.example_map:.3f}, "
            f"C-MAP {part.concept_map:.3f} "
            f"({part.n_labels} labels at a time, {part.n_items} held-out items)"
            for name, part in (("seen", self.seen), ("unseen", self.unseen))
        ]
        for name, values in self.baselines.items():
            seen, unseen = (_maps(values[:2]), _maps(values[2:]))
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
        parts: dict[str, Any] = {
            name: Measures(**{k: np.nan if v is None else v for k, v in config[name].items()})  # type: ignore[arg-type]
            for name in ("seen", "unseen")
        }
        return cls(
            **parts,
            thresholds=tuple(np.inf if one is None else one for one in config["thresholds"]),
            labels={label: (pair[0], pair[1]) for label, pair in config["labels"].items()},
            n_draws=config["n_draws"],
            curves={
                name: tuple((step[0], step[1], step[2]) for step in curve)
                for name, curve in config["curves"].items()
            },
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
        "thresholds": Several(_SHARE, least=1),
        "labels": Table(Several(_SHARE, 2)),
        "n_draws": Whole(0),
        "baselines": Table(Several(_SHARE, 4)),
        "pool_gain": Maybe(Number(-1, 1)),
        "click_gain": Maybe(Number(-1, 1)),
        "curves": Table(Several(Several(Number(0), 3))),
    }
)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return NaN as None, which JSON knows."""
    return {name: None if value != value else value for name, value in values.items()}


def _maps(values: Sequence[float | None]) -> str:
    """Return an E-MAP and a C-MAP as text."""
    parts = zip(("E-MAP", "C-MAP"), values, strict=True)
    return ", ".join(f"{name} {'-' if value is None else f'{value:.3f}'}" for name, value in parts)


def _precision_and_recall(part: Measures) -> str:
    """Return what suggestions at a probability of 0.5 are worth."""
    if np.isnan(part.precision):
        return "none had a probability of 0.5 or more"
    return (
        f"at a probability of 0.5 or more, precision {part.precision:.2f} and recall "
        f"{part.recall:.2f}"
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
    documents, options = corpus, dict[str, Any]()
    if label_sets_only:
        options["label_sets_only"] = True
    else:
        label_sets, documents = join_corpora(label_sets, corpus)
    rows_of_sets = met_documents(documents, label_sets)
    taught = label_sets.without_unused().labels
    draws, clicks = [], []
    simple_draws: dict[str, list[_Scores]] = {}
    for number in range(n_draws):
        drawn = _draw(corpus, taught, generator)
        if drawn is None:
            return []
        trained, tested, hidden = drawn
        known = np.ones(len(label_sets), dtype=bool)
        known[rows_of_sets[tested][rows_of_sets[tested] >= 0]] = False
        with warnings.catch_warnings():
            # What is wrong with the data was said when they were read.
            warnings.simplefilter("ignore", PolysemeWarning)
            chosen = _some(np.flatnonzero(known), MOST_TRAINED, generator)
            given = (X[trained], documents.select(trained), label_sets.select(chosen))
            try:
                copy = _fitted(estimator, part_of(checkpoint, f"draw-{number}"), given, **options)
                rankers = [*variants(copy)]
                if pool is not None:
                    others = np.setdiff1d(np.arange(len(corpus)), np.concatenate([trained, tested]))
                    others = _some(others, MOST_TRAINED, generator)
                    stack: Any = sp.vstack if sp.issparse(X) else np.concatenate
                    both = stack([pool, X[others]])
                    rows = _some(np.arange(both.shape[0]), MOST_TRAINED, generator)
                    place = part_of(checkpoint, f"draw-{number}-pool")
                    with_pool = options | {"unlabelled": both[rows]}
                    rankers.append(_fitted(estimator, place, given, **with_pool))
            except ModelFileError:
                raise
            except InputError:
                return []  # so little is left that nothing can be learned from it
        chosen_items = corpus.select(tested)
        scores = [_Scores.of(ranker, X[tested], chosen_items, hidden) for ranker in rankers]
        draws.append(scores)
        for name, ranker in simple_rankers(X.shape[1]).items():
            ranker.fit(*given)
            simple = _Scores.of(ranker, X[tested], chosen_items, hidden)
            simple_draws.setdefault(name, []).append(simple)
        if hasattr(copy, "learn") and scores[0].unseen.any():
            clicks.append(_click_gain(copy, X[tested], chosen_items, hidden))
    click_gain = float(np.mean(clicks)) if clicks else None
    baselines = {name: _mean_precisions(of_ranker) for name, of_ranker in simple_draws.items()}
    return [
        replace(_measured(of_variant, n_examples), click_gain=click_gain, baselines=baselines)
        for of_variant in zip(*draws, strict=True)
    ]


def _fitted(
    estimator: Ranker, checkpoint: Path | None, given: tuple[Any, ...], **options: Any
) -> Any:
    """Fit a copy of an estimator; a state of other data is never in its way."""
    copy: Any = clone(estimator)
    if checkpoint is None:
        return copy.fit(*given, **options)
    copy.set_params(checkpoint=checkpoint)
    try:
        return copy.fit(*given, **options)
    except OtherTrainingError:
        remove_model(checkpoint)
        return copy.fit(*given, **options)


def _click_gain(ranker: Any, X: Features, corpus: LabelCorpus, hidden: Sequence[str]) -> float:
    """Return what answers for some held-out items bring on the others, for labels made unseen."""
    asked, measured = np.arange(len(corpus)) % 2 == 0, np.arange(len(corpus)) % 2 == 1
    before = _Scores.of(ranker, X, corpus, hidden)
    X, _ = without_ids(X)  # rows are named by their numbers
    answers = [
        (str(row), label, bool(before.truth[row, column]))
        for column, label in enumerate(before.labels)
        if before.unseen[column]
        for row in np.flatnonzero(asked)[
            np.argsort(-before.logits[asked, column], kind="stable")[:CLICKS]
        ].tolist()
    ]
    ranker.learn(answers, X)
    after = _Scores.of(ranker, X[measured], corpus.select(np.flatnonzero(measured)), hidden)
    pairs = []
    for scores in (before.logits[measured], after.logits):
        true = after.truth[:, after.unseen]
        parts = (
            _quietly(metric, true, scores[:, after.unseen])
            for metric in (example_precision, concept_precision)
        )
        means = [float(np.nanmean(part)) if np.isfinite(part).any() else 0.0 for part in parts]
        pairs.append(sum(means) / len(means))
    return float(pairs[1] - pairs[0])


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
    labels = generator.permutation(used)[: max(2, int(_LABELS * len(used)))]
    # The first so many labels are on the items whose first label is one of them.
    place = np.full(len(corpus.labels), len(labels))
    place[labels] = np.arange(len(labels))
    first = np.full(len(corpus), len(labels))
    first[carried] = np.minimum.reduceat(
        place[corpus.matrix.indices], corpus.matrix.indptr[carried]
    )
    n_carrying = np.cumsum(np.bincount(first, minlength=len(labels))[: len(labels)])
    labels = labels[: max(np.count_nonzero(n_carrying <= _CARRYING * len(corpus)), 1)]
    carrying = first < len(labels)
    trained = _some(np.flatnonzero(~held_out & ~carrying), MOST_TRAINED, generator)
    most = max(512, min(_MOST_TESTED, _MOST_TESTED * 2048 // len(used)))
    tested = _some(carried[held_out[carried]], most, generator)
    return trained, tested, [corpus.labels[column] for column in labels]


def _some(rows: IntArray, most: int, generator: np.random.Generator) -> IntArray:
    """Return all rows, or so many of them."""
    return rows if len(rows) <= most else np.sort(generator.permutation(rows)[:most])


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
        """Let a fitted ranker score items; labels that it does not know are passed over."""
        classes = [str(label) for label in ranker.classes_]
        truth = corpus.align(classes)[0][:, : len(classes)].toarray().astype(bool)
        carried = set(corpus.labels)
        kept = np.flatnonzero([label in carried for label in classes])
        labels = tuple(classes[column] for column in kept)
        made_unseen = set(hidden)
        unseen = np.array([label in made_unseen for label in labels], dtype=bool)
        return cls(labels, ranker.decision_function(X)[:, kept], truth[:, kept], unseen, corpus.ids)

    def examples(self, n: int) -> dict[str, tuple[tuple[str, float, bool], ...]]:
        """Name the n likeliest items of each label that was made unseen and is on some item."""
        chosen = np.flatnonzero(self.unseen & self.truth.any(axis=0)) if n else ()
        likely = sigmoid(self.logits)
        return {
            self.labels[column]: tuple(
                (self.ids[row], float(likely[row, column]), bool(self.truth[row, column]))
                for row in np.argsort(-likely[:, column], kind="stable")[:n].tolist()
            )
            for column in chosen
        }


def _mean_precisions(draws: Sequence[_Scores]) -> tuple[float | None, ...]:
    """Return E-MAP and C-MAP of seen labels, then of unseen ones; None where there are none."""
    values = []
    for unseen in (False, True):
        columns = [draw.unseen == unseen for draw in draws]
        parts = zip(draws, columns, strict=True)
        measures = _of_labels(
            [(draw.logits[:, chosen], draw.truth[:, chosen]) for draw, chosen in parts]
        )
        values += [measures.example_map, measures.concept_map]
    return tuple(None if np.isnan(value) else value for value in values)


def _measured(draws: Sequence[_Scores], n_examples: int) -> Validation:
    """Measure all draws together."""
    quality: dict[str, tuple[list[float], list[float]]] = {}
    for draw in draws:
        values = _quietly(concept_precision, draw.truth, draw.logits)
        for label, value, hidden in zip(draw.labels, values, draw.unseen, strict=True):
            if not np.isnan(value):
                quality.setdefault(label, ([], []))[int(hidden)].append(float(value))
    pairs = {
        label: tuple(float(np.mean(one)) if one else None for one in pair)
        for label, pair in sorted(quality.items())
    }
    seen = [(draw.logits[:, ~draw.unseen], draw.truth[:, ~draw.unseen]) for draw in draws]
    unseen = [(draw.logits[:, draw.unseen], draw.truth[:, draw.unseen]) for draw in draws]
    return Validation(
        _of_labels(seen),
        _of_labels(unseen),
        tuple(unseen_thresholds(unseen).tolist()),
        pairs,  # type: ignore[arg-type]  # two of them
        len(draws),
        {"seen": _curve(seen), "unseen": _curve(unseen)},
        {label: items for draw in draws for label, items in draw.examples(n_examples).items()},
    )


def _curve(
    draws: Sequence[tuple[Matrix, NDArray[np.bool_]]],
) -> tuple[tuple[int, float, float], ...]:
    """Return how often labels of each probability are true."""
    parts = [(sigmoid(logits), true) for logits, true in draws if logits.size]
    if not parts:
        return ()
    steps = reliability(
        np.concatenate([true.ravel() for _, true in parts])[:, None],
        np.concatenate([likely.ravel() for likely, _ in parts])[:, None],
    )
    columns = (steps.counts.tolist(), steps.predicted.tolist(), steps.observed.tolist())
    return tuple(step for step in zip(*columns, strict=True) if step[0])


def _quietly(metric: Any, truth: NDArray[np.bool_], logits: Matrix) -> Matrix:
    """Compute a metric a row or a label, without a word about those with nothing true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        return np.asarray(metric(truth, logits))


def _of_labels(draws: Sequence[tuple[Matrix, NDArray[np.bool_]]]) -> Measures:
    """Measure the logits and truth of some labels, all draws together; NaN without any label."""
    draws = [(logits, truth) for logits, truth in draws if logits.shape[1]]
    if not draws:
        return Measures(np.nan, np.nan, np.nan, np.nan, 0, 0)
    of_items = np.concatenate([_quietly(example_precision, true, z) for z, true in draws])
    of_labels = np.concatenate([_quietly(concept_precision, true, z) for z, true in draws])
    suggested = [sigmoid(z) >= _CUT for z, _ in draws]
    given = sum(int(likely.sum()) for likely in suggested)
    right = sum(int(true[likely].sum()) for likely, (_, true) in zip(suggested, draws, strict=True))
    true = sum(int(true.sum()) for _, true in draws)
    items, labels = of_items[~np.isnan(of_items)], of_labels[~np.isnan(of_labels)]
    return Measures(
        float(items.mean()) if len(items) else np.nan,
        float(labels.mean()) if len(labels) else np.nan,
        right / given if given else np.nan,
        right / true if true else np.nan,
        len(items),
        round(len(of_labels) / len(draws)),
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
    logits = np.concatenate([z.ravel() for z, _ in draws])
    truth = np.concatenate([true.ravel() for _, true in draws]).astype(np.float64)
    first = np.cumsum([0, *(z.shape[1] for z, _ in draws)])
    labels = np.concatenate(
        [
            np.broadcast_to(start + np.arange(z.shape[1]), z.shape).ravel()
            for start, (z, _) in zip(first, draws, strict=False)
        ]
    )
    chosen = np.arange(len(logits))
    if len(logits) > _MOST_READ:
        least = np.partition(logits, len(logits) - _MOST_READ)[len(logits) - _MOST_READ]
        chosen = np.flatnonzero(logits >= least)
    order = chosen[np.argsort(-logits[chosen], kind="stable")[:_MOST_READ]]
    order = order[np.isfinite(logits[order])]
    if len(order) < _FEWEST_GIVEN or not truth[order].any():
        return thresholds
    logits, truth, labels = logits[order], truth[order], labels[order]
    expected = np.cumsum(_recalibrated(logits, truth)) / np.arange(1, len(logits) + 1)
    hits = np.cumsum(truth)
    sizes = np.unique(np.geomspace(_FEWEST_GIVEN, len(logits), 100).astype(np.int64))
    # Labels that are equally likely are given together or not at all.
    last = np.append(np.flatnonzero(np.diff(logits) < 0), len(logits) - 1)
    sizes = np.unique(last[np.searchsorted(last, sizes - 1)] + 1)
    for size in sizes:
        precision = (hits[size - 1] + _EXPECTED * expected[size - 1]) / (size + _EXPECTED)
        by_label = np.bincount(labels[:size], weights=truth[:size] - precision)
        bound = precision - _CAUTION * np.sqrt((by_label**2).sum()) / (size + _EXPECTED)
        believed = size * (1 - PRECISIONS) >= _FEWEST_WRONG
        n_labels = size**2 / np.square(np.bincount(labels[:size])).sum()
        reached = (bound >= PRECISIONS) & believed & (n_labels >= _FEWEST_SHARING)
        thresholds[reached] = sigmoid(np.array(logits[size - 1]))
    # What is promised for a precision must hold for lower ones too.
    return np.minimum.accumulate(thresholds[::-1])[::-1]


def _recalibrated(logits: Matrix, truth: Matrix) -> Matrix:
    """Return probabilities by one slope and one intercept for all labels (Platt), (n,)."""
    from sklearn.linear_model import LogisticRegression

    if truth.all():
        return np.asarray(truth)
    model = LogisticRegression(C=1e3).fit(logits[:, None], truth)
    return np.asarray(model.predict_proba(logits[:, None])[:, 1])
