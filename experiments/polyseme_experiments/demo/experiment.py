"""The demo's experiment: hide labels, train, tag the test emoji, and explain some tags.

In: the emoji and a seed. Out: one `DemoResults` record, which `page` turns into HTML. Examples are
drawn by seed and never by hand.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.base.machine import one_thread
from polyseme.metrics import concept_precision, example_precision
from polyseme.scoring.evidence import Evidence
from polyseme.scoring.known_documents import Neighbour
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments.baselines import Popularity, TunedCosta
from polyseme_experiments.datasets import EmojiCorpus
from polyseme_experiments.demo.split import EmojiSplit, SplitSettings, draw_split
from polyseme_experiments.report.tables import Cell
from polyseme_experiments.senses import JudgedSenses, SenseRule, find_senses

COLUMNS = ("seen", "unseen", "oov", "all")
N_TAGS, N_UNSEEN, N_EVIDENCE, N_KNOWN, N_COMPLETED = 8, 3, 5, 4, 5
LEAST_PART = 0.05  # of a logit: what a tag must change it by to be named
# Which list an explained prediction is drawn from, its kind, whether it is right, and how many.
EXPLAINED = (("unseen", "unseen", True, 2), ("all", "oov", True, 1), ("all", "unseen", False, 1))

Scores = dict[str, dict[str, Cell]]


class Tag(NamedTuple):
    """A label with its kind, whether the picture truly carries it, and how probable it was."""

    label: str
    kind: str
    right: bool
    probability: float = math.nan


class Card(NamedTuple):
    """One test picture: tags ranked first among all and among unseen ones, true tags missed."""

    emoji: int
    drawing: str
    name: str
    tags: tuple[Tag, ...]
    unseen: tuple[Tag, ...]
    missed: tuple[Tag, ...]

    @property
    def hidden(self) -> bool:
        """Whether the picture carries a label that was hidden."""
        return any(tag.right and tag.kind != "seen" for tag in (*self.tags, *self.missed))


class Reason(NamedTuple):
    """Why a picture (of `card`) was given a tag, ranked at `place` among "all" or "unseen" tags."""

    card: Card
    tag: Tag
    place: int
    among: str
    evidence: Evidence
    known: tuple[tuple[Neighbour, tuple[int, ...]], ...]  # tag lists nearby, and whose they are


class Completion(NamedTuple):
    """Tags that go with some given ones."""

    given: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class DemoResults:
    """Everything the page shows."""

    seed: int
    split: EmojiSplit
    n_labels: int
    unseen: tuple[str, ...]  # labels of no picture shown
    oov: tuple[str, ...]  # labels of no semantics document
    example: Scores  # E-MAP in percent by method and kind of label
    concept: Scores  # C-MAP likewise; "all" ranks all labels together
    differences: dict[str, Cell]  # E-MAP of the first method less the second's
    cards: tuple[Card, ...]  # one per test emoji, in the order they are shown
    maps: tuple[JudgedSenses, ...]
    reasons: tuple[Reason, ...]
    completions: tuple[tuple[Completion, ...], ...]
    sense_range: tuple[int, int]  # how many emoji a label in `maps` may have
    settings: tuple[tuple[str, str], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)  # all that differs between runs


def run_experiment(
    emoji: EmojiCorpus,
    *,
    seed: int,
    log: Callable[[str], None],
    hiding: SplitSettings | None = None,
    rule: SenseRule | None = None,
    **parameters: Any,
) -> DemoResults:
    """Split, train, measure and choose examples; the seed decides all of it.

    How much is hidden, which labels' senses are drawn and the tagger's parameters may be others
    than the demo's.
    """
    hiding, rule = hiding or SplitSettings(), rule or SenseRule()
    seconds: dict[str, float] = {}

    @contextmanager
    def step(name: str, message: str) -> Iterator[None]:
        log(message)
        start = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - start
        log(f"  {seconds[name]:.0f} s")

    # Streams of their own, so that a change to one choice leaves the others as they are.
    split_seed, example_seed, sense_seed = np.random.SeedSequence(seed).spawn(3)
    with one_thread():
        split = draw_split(emoji, hiding, np.random.default_rng(split_seed))
        log(
            f"{len(split.train)} training emoji, {len(split.taught)} of them shown as pictures; "
            f"{len(split.test)} test emoji"
        )
        semantics = split.semantics()
        X, documents = split.pictures(split.taught)
        X_test, _ = split.pictures(split.test)
        tagger = ZeroShotTagger(**{"random_state": seed} | parameters)
        with step("polyseme", "polyseme: learning one space from tag lists and pictures"):
            tagger.fit(X, documents, semantics, label_sets_only=True)
            tagger.remove_documents(split.repeated())
        scores = {"polyseme": tagger.predict_proba(X_test)}
        baselines = {"tuned COSTA": TunedCosta(random_state=seed), "popularity": Popularity()}
        for name, baseline in baselines.items():
            with step(name, f"{name}: learning"):
                # In tuned COSTA's favour: on emoji it chooses better settings without families.
                baseline.fit(
                    X,
                    replace(documents, groups=None),
                    replace(semantics, groups=None),
                    label_sets_only=True,
                )
                order = [list(baseline.classes_).index(label) for label in tagger.classes_]
                scores[name] = baseline.decision_function(X_test)[:, order]
        # A label that only ever stands beside an unseen one is on no picture either.
        labels = np.array(tagger.classes_)
        unseen, oov = (tuple(labels[tagger.kinds_ == kind].tolist()) for kind in ("unseen", "oov"))
        log(f"{len(unseen)} unseen and {len(oov)} oov tags")
        example, concept, differences = _measure(split, tagger, scores)
        with step("examples", "choosing examples and labels with several senses"):
            generator = np.random.default_rng(example_seed)
            cards = _cards(tagger, split, generator)
            reasons = _reasons(tagger, split, cards, generator)
            owners = np.array([split.emoji_of(name) for name in tagger.store_.ids])
            generator = np.random.default_rng(sense_seed)
            maps = find_senses(tagger.store_.concepts(), owners, emoji.categories, rule, generator)
            completions = _completions(tagger, maps)
    return DemoResults(
        seed=seed,
        split=split,
        n_labels=len(tagger.classes_),
        unseen=unseen,
        oov=oov,
        example=example,
        concept=concept,
        differences=differences,
        cards=cards,
        maps=maps,
        reasons=reasons,
        completions=completions,
        sense_range=(rule.fewest, rule.most),
        settings=_settings(tagger, hiding, parameters),
        seconds=seconds,
    )


def _measure(
    split: EmojiSplit, tagger: ZeroShotTagger, scores: Mapping[str, NDArray[np.float64]]
) -> tuple[Scores, Scores, dict[str, Cell]]:
    """Measure every method, and the first one's lead over the second on the same emoji.

    `scores` are those of the test pictures, (n_pictures, n_labels), by method. Returned are E-MAP
    and C-MAP by method and kind of label, and the leads by kind of label.
    """
    _, documents = split.pictures(split.test)
    n_labels = len(tagger.classes_)
    aligned, _ = documents.align(tagger.classes_)
    truth = aligned[:, :n_labels].toarray()
    groups = split.emoji.group[split.rows(split.test)]
    example: Scores = {name: {} for name in scores}
    concept: Scores = {name: {} for name in scores}
    leads = {}
    for column in COLUMNS:
        is_measured = np.full(n_labels, True)
        if column != "all":
            is_measured = tagger.kinds_ == column
        column_truth = truth[:, is_measured]
        quality_by_method = {}
        for name, method_scores in scores.items():
            column_scores = method_scores[:, is_measured]
            by_picture = 100 * example_precision(column_truth, column_scores)
            by_emoji = group_means(by_picture, groups)
            quality_by_method[name] = by_emoji
            example[name][column] = Cell.of(by_emoji.tolist(), digits=1)
            by_label = 100 * concept_precision(column_truth, column_scores)
            mean = Cell.of(by_label.tolist(), digits=1)
            concept[name][column] = replace(mean, error=None)
        first, second, *_ = quality_by_method.values()
        lead = first - second
        leads[column] = Cell.of(lead.tolist(), digits=1)
    return example, concept, leads


def group_means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average values (n,) within groups (n,), in the order of the groups' numbers; NaN stays."""
    _, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.bincount(places, weights=values) / sizes


def _cards(
    tagger: ZeroShotTagger, split: EmojiSplit, generator: np.random.Generator
) -> tuple[Card, ...]:
    """Tag one drawing of every test emoji; those with a hidden label first, in random order."""
    rows = split.rows(split.test)
    groups = split.emoji.group[rows]
    features = split.emoji.features[rows]
    ranked_labels, probabilities = tagger.rank(features, k=len(tagger.classes_))
    kind_by_label = dict(zip(tagger.classes_, tagger.kinds_.tolist(), strict=True))
    cards = []
    for emoji in generator.permutation(split.test).tolist():
        places = np.flatnonzero(groups == emoji)
        place = int(generator.choice(places))
        truth = set(split.emoji.documents[emoji])
        ranked_tags = []
        ranking = zip(ranked_labels[place].tolist(), probabilities[place].tolist(), strict=True)
        for label, probability in ranking:
            tag = Tag(label, kind_by_label[label], label in truth, probability)
            ranked_tags.append(tag)
        first_tags = ranked_tags[:N_TAGS]
        unseen_tags = [tag for tag in ranked_tags if tag.kind == "unseen"]
        missed_tags = []
        for label in sorted(truth - {tag.label for tag in first_tags}):
            # A label that no training emoji carries is in no list and counts as unseen.
            kind = kind_by_label.get(label, "unseen")
            missed_tags.append(Tag(label, kind, True))
        card = Card(
            emoji,
            split.emoji.drawing[rows[place]],
            split.emoji.names[emoji],
            tuple(first_tags),
            tuple(unseen_tags[:N_UNSEEN]),
            tuple(missed_tags),
        )
        cards.append(card)
    return tuple(sorted(cards, key=lambda card: not card.hidden))


def _reasons(
    tagger: ZeroShotTagger, split: EmojiSplit, cards: Sequence[Card], generator: np.random.Generator
) -> tuple[Reason, ...]:
    """Explain a few predictions, drawn at random: right ones of hidden labels, and a wrong one."""
    reasons: list[Reason] = []
    used: set[int | str] = set()
    for among, kind, right, n_wanted in EXPLAINED:
        fitting = []
        for card in cards:
            tags = card.tags if among == "all" else card.unseen[:1]
            for place, tag in enumerate(tags, start=1):
                if tag.kind == kind and tag.right == right:
                    fitting.append((card, place, tag))
        for choice in generator.permutation(len(fitting)).tolist():
            card, place, tag = fitting[choice]
            if n_wanted and used.isdisjoint({card.emoji, tag.label}):
                evidence = _evidence(tagger, split, card, tag.label)
                neighbours = []
                for neighbour in evidence.neighbours[:N_KNOWN]:
                    owners = {split.emoji_of(name) for name in neighbour.document_ids}
                    neighbours.append((neighbour, tuple(sorted(owners))))
                reason = Reason(card, tag, place, among, evidence, tuple(neighbours))
                reasons.append(reason)
                used |= {card.emoji, tag.label}
                n_wanted -= 1
    return tuple(reasons)


def _evidence(tagger: ZeroShotTagger, split: EmojiSplit, card: Card, label: str) -> Evidence:
    """Take a score apart; tags that say next to nothing count among the others."""
    drawings = np.array(split.emoji.drawing)
    is_card = (split.emoji.group == card.emoji) & (drawings == card.drawing)
    row = np.flatnonzero(is_card)[0]
    features = split.emoji.features[row]
    evidence = tagger.explain(features, label, k=N_EVIDENCE)
    named_tags = [tag for tag in evidence.tags if abs(tag.part) >= LEAST_PART]
    sum_of_all = sum(tag.part for tag in evidence.tags)
    sum_of_named = sum(tag.part for tag in named_tags)
    # Summed before it is added: the order decides the last digit.
    remainder = sum_of_all - sum_of_named
    other_tags = evidence.other_tags + remainder
    return replace(evidence, tags=tuple(named_tags), other_tags=other_tags)


def _completions(
    tagger: ZeroShotTagger, maps: Sequence[JudgedSenses], n_senses: int = 2
) -> tuple[tuple[Completion, ...], ...]:
    """Complete each label alone, and beside the word that names each of its first senses."""
    rows = []
    for sense_map in maps:
        label = sense_map.label
        queries: list[tuple[str, ...]] = [(label,)]
        for words in sense_map.words[:n_senses]:
            if words:
                first_word = words[0]
                queries.append((label, first_word))
        completions = []
        for query in queries:
            tags, *_ = tagger.complete(query, k=N_COMPLETED)
            names = tuple(tags.tolist())
            completions.append(Completion(query, names))
        rows.append(tuple(completions))
    return tuple(rows)


def _settings(
    tagger: ZeroShotTagger, hiding: SplitSettings, parameters: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """List settings and versions for the footer."""
    members = tagger.space_.members_
    arguments = ", ".join(f"{name}={value!r}" for name, value in sorted(parameters.items()))
    test_share = f"{hiding.test_share:.0%}"
    packages = ("polyseme", "numpy", "scikit-learn", "torch", "pillow")
    return (
        ("tagger", f"ZeroShotTagger({arguments}), all else the library's defaults"),
        ("concept space", f"{len(members)} members of {members.shape.code} dimensions"),
        ("test emoji", f"{test_share}, with all drawings and gender variants of each"),
        ("tags", "on at least 10 emoji"),
        ("Python", platform.python_version()),
        *((package, version(package)) for package in packages),
    )
