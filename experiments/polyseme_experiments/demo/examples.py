"""Examples for the page, drawn by seed and never by hand: cards, reasons and completions.

In: a fitted tagger and the split. Out: records of what it says about test pictures and tag sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polyseme.evidence import Evidence
from polyseme.senses import SenseMap
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments.demo.results import Card, Completion, Known, Reason, Tag
from polyseme_experiments.demo.split import EmojiSplit

N_TAGS = 8
N_UNSEEN = 3
N_EVIDENCE = 5
N_KNOWN = 4
LEAST_PART = 0.05  # of a logit: what a tag must change it by to be named
# Which list a prediction is drawn from, its kind, whether it is right, and how many.
WANTED = (("unseen", "unseen", True, 2), ("all", "oov", True, 1), ("all", "unseen", False, 1))


def make_cards(
    tagger: ZeroShotTagger, split: EmojiSplit, generator: np.random.Generator
) -> tuple[Card, ...]:
    """Tag one drawing of every test emoji.

    Parameters
    ----------
    tagger : ZeroShotTagger
    split : EmojiSplit
    generator : numpy Generator
        Draws the order, and which of the two drawings is shown.

    Returns
    -------
    tuple of Card
        Emoji that carry an unseen or oov label first, each part in random order.
    """
    rows = split.rows(split.test)
    ranked, _ = tagger.rank(split.emoji.features[rows], k=len(tagger.classes_))
    kinds = dict(zip(tagger.classes_, tagger.kinds_.tolist(), strict=True))
    cards = []
    for one in generator.permutation(split.test).tolist():
        place = int(generator.choice(np.flatnonzero(split.emoji.group[rows] == one)))
        truth = set(split.emoji.documents[one])
        order = [Tag(label, kinds[label], label in truth) for label in ranked[place].tolist()]
        first = order[:N_TAGS]
        missed = sorted(truth - {tag.label for tag in first})
        cards.append(
            Card(
                one,
                split.emoji.drawing[rows[place]],
                split.emoji.names[one],
                tuple(first),
                tuple([tag for tag in order if tag.kind == "unseen"][:N_UNSEEN]),
                # A label that no training emoji carries is in no list and counts as unseen.
                tuple(Tag(label, kinds.get(label, "unseen"), True) for label in missed),
            )
        )
    return tuple(sorted(cards, key=lambda card: not card.hidden))


def find_reasons(
    tagger: ZeroShotTagger, split: EmojiSplit, cards: Sequence[Card], generator: np.random.Generator
) -> tuple[Reason, ...]:
    """Explain a few predictions: right ones of hidden labels, and a wrong one.

    Parameters
    ----------
    tagger : ZeroShotTagger
    split : EmojiSplit
    cards : sequence of Card
    generator : numpy Generator
        Draws the predictions among all that fit.

    Returns
    -------
    tuple of Reason
        Fewer where nothing fits.
    """
    found: list[Reason] = []
    used: set[int | str] = set()
    for among, kind, right, n_wanted in WANTED:
        fitting = [
            (card, place, tag)
            for card in cards
            for place, tag in enumerate(card.tags if among == "all" else card.unseen[:1])
            if (tag.kind, tag.right) == (kind, right)
        ]
        for choice in generator.permutation(len(fitting)).tolist():
            card, place, tag = fitting[choice]
            if n_wanted and used.isdisjoint({card.emoji, tag.label}):
                found.append(_reason(tagger, split, card, tag, place + 1, among))
                used |= {card.emoji, tag.label}
                n_wanted -= 1
    return tuple(found)


def _reason(
    tagger: ZeroShotTagger, split: EmojiSplit, card: Card, tag: Tag, place: int, among: str
) -> Reason:
    """Take the score of a picture's tag apart."""
    at = (split.emoji.group == card.emoji) & (np.array(split.emoji.drawing) == card.drawing)
    x = split.emoji.features[int(np.flatnonzero(at)[0])]
    evidence = _leading(tagger.explain(x, tag.label, k=N_EVIDENCE))
    known = tuple(
        Known(
            tuple(sorted({split.emoji_of(name) for name in one.document_ids})),
            one.document,
            one.distance,
            one.share,
            one.holds,
        )
        for one in evidence.neighbours[:N_KNOWN]
    )
    return Reason(card.emoji, card.drawing, card.name, tag, place, among, evidence, known)


def _leading(evidence: Evidence) -> Evidence:
    """Count tags that say next to nothing among the others."""
    named = tuple(one for one in evidence.tags if abs(one.part) >= LEAST_PART)
    rest = sum(one.part for one in evidence.tags) - sum(one.part for one in named)
    return replace(evidence, tags=named, other_tags=evidence.other_tags + rest)


def complete_senses(
    tagger: ZeroShotTagger, maps: Sequence[SenseMap], n_tags: int = 5, n_senses: int = 2
) -> tuple[tuple[Completion, ...], ...]:
    """Complete each label alone, and beside the word that tells each of its senses.

    Parameters
    ----------
    tagger : ZeroShotTagger
    maps : sequence of SenseMap
    n_tags : int
        Tags to suggest.
    n_senses : int
        The most senses of a label.

    Returns
    -------
    tuple of tuple of Completion
        One tuple per label.
    """
    rows = []
    for one in maps:
        given: list[tuple[str, ...]] = [(one.label,)]
        given += [(one.label, words[0]) for words in one.words[:n_senses] if words]
        rows.append(
            tuple(
                Completion(tags, tuple(tagger.complete(tags, k=n_tags)[0].tolist()))
                for tags in given
            )
        )
    return tuple(rows)
