"""What the demo found: plain records that the experiment fills in and the page shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyseme.evidence import Evidence
from polyseme.senses import SenseMap

KINDS = ("seen", "unseen", "oov")
COLUMNS = (*KINDS, "all")


@dataclass(frozen=True)
class Score:
    """A mean with what it was taken over.

    Attributes
    ----------
    value : float
        In 0..1, larger is better.
    error : float or None
        Standard error over test emoji; None where it was not computed.
    n : int
        Test emoji (E-MAP) or labels (C-MAP) in the mean.
    """

    value: float
    error: float | None
    n: int


@dataclass(frozen=True)
class MethodScores:
    """The scores of one method.

    Attributes
    ----------
    name : str
        What the table calls it.
    example, concept : dict of str to Score
        E-MAP and C-MAP by kind of label; "all" ranks all labels together.
    """

    name: str
    example: dict[str, Score]
    concept: dict[str, Score]


@dataclass(frozen=True)
class Tag:
    """A label with its kind, and whether the picture truly carries it."""

    label: str
    kind: str
    right: bool


@dataclass(frozen=True)
class Card:
    """One test picture and what the tagger says about it.

    Attributes
    ----------
    emoji, drawing, name : int, str, str
        The picture.
    tags : tuple of Tag
        The tags ranked first among all.
    unseen : tuple of Tag
        The tags ranked first among the unseen ones.
    missed : tuple of Tag
        True tags that are not among `tags`.
    """

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


@dataclass(frozen=True)
class Known:
    """A known tag list near a picture.

    Attributes
    ----------
    emoji : tuple of int
        The emoji that have just these tags.
    document : tuple of str
        The tags.
    distance : float
        One less the cosine of the two codes.
    share : float
        Its share of all votes.
    holds : bool
        Whether it holds the tag that is explained.
    """

    emoji: tuple[int, ...]
    document: tuple[str, ...]
    distance: float
    share: float
    holds: bool


@dataclass(frozen=True)
class Reason:
    """Why a picture was given a tag.

    Attributes
    ----------
    emoji, drawing, name : int, str, str
        The picture.
    tag : Tag
    place : int
        The tag's rank, from 1.
    among : str
        What it is the rank among: "all" tags or the "unseen" ones.
    evidence : Evidence
        The parts of the tag's logit.
    known : tuple of Known
        The nearest known tag lists, from near to far.
    """

    emoji: int
    drawing: str
    name: str
    tag: Tag
    place: int
    among: str
    evidence: Evidence
    known: tuple[Known, ...]


@dataclass(frozen=True)
class Completion:
    """Tags that go with some given ones."""

    given: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class DemoResults:
    """Everything the page shows.

    Attributes
    ----------
    seed : int
        The seed of the split and the training.
    names : tuple of str
        The name of every emoji of the corpus, by position.
    n_train, n_taught, n_test : int
        Emoji whose tags teach meaning, those of them whose pictures were shown, and test emoji.
    n_labels : int
        Labels that are ranked.
    unseen, oov : tuple of str
        The hidden labels: those of no picture shown, and those of no semantics document.
    methods : tuple of MethodScores
        The tagger first.
    differences : dict of str to Score
        E-MAP of the first method less that of the second, over the same test emoji.
    cards : tuple of Card
        One per test emoji, in the order they are shown.
    maps, reasons, completions : tuples
        What the further sections show.
    sense_range : (int, int)
        How many emoji a label shown in `maps` may have.
    settings : tuple of (str, str)
        Settings and versions for the footer.
    seconds : dict of str to float
        How long each step took; the only part that differs between runs.
    """

    seed: int
    names: tuple[str, ...]
    n_train: int
    n_taught: int
    n_test: int
    n_labels: int
    unseen: tuple[str, ...]
    oov: tuple[str, ...]
    methods: tuple[MethodScores, ...]
    differences: dict[str, Score]
    cards: tuple[Card, ...]
    maps: tuple[SenseMap, ...]
    reasons: tuple[Reason, ...]
    completions: tuple[tuple[Completion, ...], ...]
    sense_range: tuple[int, int]
    settings: tuple[tuple[str, str], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
