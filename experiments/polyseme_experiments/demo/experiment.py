"""The demo's experiment: hide labels, train, tag the test emoji, and say why.

In: the emoji and a seed. Out: one `DemoResults` record, which `page` turns into HTML.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._threads import one_thread
from polyseme.baselines import Popularity, TunedCosta
from polyseme.metrics import concept_precision, example_precision
from polyseme.senses import SenseRule, find_senses
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments.datasets import EmojiCorpus
from polyseme_experiments.demo.examples import complete_senses, find_reasons, make_cards
from polyseme_experiments.demo.results import COLUMNS, DemoResults, MethodScores, Score
from polyseme_experiments.demo.split import EmojiSplit, SplitSettings, draw_split

Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoSettings:
    """What the demo does.

    Attributes
    ----------
    split : SplitSettings
        How much is hidden.
    senses : SenseRule
        Which labels the pictures of the concept space show.
    tagger : dict
        Parameters of `ZeroShotTagger` that are not the library's defaults.
    """

    split: SplitSettings = field(default_factory=SplitSettings)
    senses: SenseRule = field(default_factory=SenseRule)
    tagger: dict[str, Any] = field(default_factory=dict)


class _Stopwatch:
    """Tell what is being done and note how long each step took."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    def start(self, message: str) -> None:
        """Announce a step."""
        self.say(message)
        self._start = time.perf_counter()

    def stop(self, step: str, remark: str = "") -> None:
        """Note the seconds of the step that ends here."""
        self.seconds[step] = time.perf_counter() - self._start
        self.say(f"  {self.seconds[step]:.0f} s{remark}")


def run_experiment(
    emoji: EmojiCorpus, *, seed: int, say: Say, settings: DemoSettings | None = None
) -> DemoResults:
    """Run the demo's experiment.

    Parameters
    ----------
    emoji : EmojiCorpus
    seed : int
        Seeds the split, the training and every choice of examples.
    say : callable
        Takes progress lines.
    settings : DemoSettings, optional

    Returns
    -------
    DemoResults
    """
    with one_thread():
        return _run(emoji, seed, settings or DemoSettings(), _Stopwatch(say))


def _run(emoji: EmojiCorpus, seed: int, settings: DemoSettings, watch: _Stopwatch) -> DemoResults:
    """Split, train, measure and choose examples."""
    # Streams of their own, so that a change to one choice leaves the others as they are.
    split_seed, example_seed, sense_seed = np.random.SeedSequence(seed).spawn(3)
    split = draw_split(emoji, settings.split, np.random.default_rng(split_seed))
    watch.say(
        f"{len(split.train)} training emoji, {len(split.taught)} of them shown as pictures; "
        f"{len(split.test)} test emoji"
    )
    tagger, scores = _train(split, settings, seed, watch)
    kinds = [len(_of_kind(tagger, kind)) for kind in ("unseen", "oov")]
    watch.say(f"{kinds[0]} unseen and {kinds[1]} oov tags")
    methods, differences = _measure(split, tagger, scores)
    watch.start("choosing examples and labels with several senses")
    generator = np.random.default_rng(example_seed)
    cards = make_cards(tagger, split, generator)
    reasons = find_reasons(tagger, split, cards, generator)
    owners = np.array([split.emoji_of(name) for name in tagger.store_.ids])
    generator = np.random.default_rng(sense_seed)
    maps = find_senses(tagger.concepts(), owners, emoji.categories, settings.senses, generator)
    completions = complete_senses(tagger, maps)
    watch.stop("examples")
    return DemoResults(
        seed=seed,
        names=tuple(emoji.names),
        n_train=len(split.train),
        n_taught=len(split.taught),
        n_test=len(split.test),
        n_labels=len(tagger.classes_),
        # A label that only ever stands beside an unseen one is on no picture either.
        unseen=_of_kind(tagger, "unseen"),
        oov=_of_kind(tagger, "oov"),
        methods=methods,
        differences=differences,
        cards=cards,
        maps=maps,
        reasons=reasons,
        completions=completions,
        sense_range=(settings.senses.fewest, settings.senses.most),
        settings=_settings(tagger, settings),
        seconds=watch.seconds,
    )


def _train(
    split: EmojiSplit, settings: DemoSettings, seed: int, watch: _Stopwatch
) -> tuple[ZeroShotTagger, dict[str, NDArray[np.float64]]]:
    """Fit the tagger and the baselines; score the test pictures over the tagger's labels."""
    semantics = split.semantics()
    X, documents = split.pictures(split.taught)
    X_test, _ = split.pictures(split.test)
    tagger = ZeroShotTagger(**({"random_state": seed} | settings.tagger))
    watch.start("polyseme: learning one space from tag lists and pictures")
    tagger.fit(X, documents, semantics).remove_documents(split.repeated())
    space = tagger.space_
    watch.stop("polyseme", f", {len(space.members_)} members, {space.plan_.n_steps} steps each")
    scores = {"polyseme": tagger.predict_proba(X_test)}
    baselines = {"tuned COSTA": TunedCosta(random_state=seed), "popularity": Popularity()}
    for name, baseline in baselines.items():
        watch.start(f"{name}: learning")
        # In tuned COSTA's favour: on emoji it chooses better settings without families.
        baseline.fit(X, replace(documents, groups=None), replace(semantics, groups=None))
        order = [list(baseline.classes_).index(label) for label in tagger.classes_]
        scores[name] = baseline.decision_function(X_test)[:, order]
        watch.stop(name)
    return tagger, scores


def _measure(
    split: EmojiSplit, tagger: ZeroShotTagger, scores: dict[str, NDArray[np.float64]]
) -> tuple[tuple[MethodScores, ...], dict[str, Score]]:
    """Measure every method, and the first one's lead over the second on the same emoji."""
    _, documents = split.pictures(split.test)
    aligned, _ = documents.align(tagger.classes_)
    truth = aligned[:, : len(tagger.classes_)].toarray()
    groups = split.emoji.group[split.rows(split.test)]
    methods, each = [], []
    for name, table in scores.items():
        example, concept, by_emoji = {}, {}, {}
        for column in COLUMNS:
            chosen = (
                np.full(len(tagger.kinds_), True) if column == "all" else (tagger.kinds_ == column)
            )
            by_emoji[column] = group_means(
                example_precision(truth[:, chosen], table[:, chosen]), groups
            )
            example[column] = mean_score(by_emoji[column])
            by_label = concept_precision(truth[:, chosen], table[:, chosen])
            by_label = by_label[np.isfinite(by_label)]
            concept[column] = Score(float(by_label.mean()), None, len(by_label))
        methods.append(MethodScores(name, example, concept))
        each.append(by_emoji)
    differences = {column: mean_score(each[0][column] - each[1][column]) for column in COLUMNS}
    return tuple(methods), differences


def group_means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average values within groups, in the order of the groups' numbers.

    Parameters
    ----------
    values : float64 array, shape (n,)
        NaN, in all rows of a group or in none, where there is nothing to average.
    groups : int64 array, shape (n,)

    Returns
    -------
    float64 array, shape (n_groups,)
    """
    _, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.bincount(places, weights=values) / sizes


def mean_score(values: NDArray[np.float64]) -> Score:
    """Average what is not NaN, with the standard error of the mean.

    Parameters
    ----------
    values : float64 array, shape (n,)

    Returns
    -------
    Score
    """
    kept = values[np.isfinite(values)]
    if not len(kept):
        return Score(float("nan"), None, 0)
    error = float(kept.std(ddof=1) / np.sqrt(len(kept))) if len(kept) > 1 else None
    return Score(float(kept.mean()), error, len(kept))


def _of_kind(tagger: ZeroShotTagger, kind: str) -> tuple[str, ...]:
    """Give the tagger's labels of one kind."""
    return tuple(np.array(tagger.classes_)[tagger.kinds_ == kind].tolist())


def _settings(tagger: ZeroShotTagger, settings: DemoSettings) -> tuple[tuple[str, str], ...]:
    """List settings and versions for the footer."""
    members = tagger.space_.members_
    given = ", ".join(f"{name}={value!r}" for name, value in sorted(settings.tagger.items()))
    described = [
        ("tagger", f"ZeroShotTagger({given}), all else the library's defaults"),
        ("concept space", f"{len(members)} members of {members.shape.code} dimensions"),
        (
            "test emoji",
            f"{settings.split.test_share:.0%}, with all drawings and gender variants of each",
        ),
        ("tags", "on at least 10 emoji"),
        ("Python", platform.python_version()),
    ]
    for package in ("polyseme", "numpy", "scikit-learn", "torch", "pillow"):
        try:
            described.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return tuple(described)
