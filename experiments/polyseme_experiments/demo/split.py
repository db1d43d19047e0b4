"""What the demo hides: test emoji, unseen labels and oov labels.

In: the emoji and a seed. Out: an `EmojiSplit`: what teaches meaning, what is shown as pictures and
what is tested.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError, RandomState, as_generator
from polyseme.documents.corpus import LabelCorpus
from polyseme_experiments.datasets.emoji import DRAWINGS, EmojiCorpus
from polyseme_experiments.splits import carries, labels_by_document_share

_PERSONS = {"man", "woman", "men", "women", "person", "people", "boy", "girl", "male", "female"}


@dataclass(frozen=True)
class SplitSettings:
    """How much is hidden."""

    test_share: float = 0.25  # of the emoji
    label_share: float = 0.25  # of the labels, hidden from the pictures
    document_share: tuple[float, float] = (0.25, 0.45)  # training emoji that carry one of them
    n_oov: int = 6  # labels hidden from the semantics documents as well
    min_oov: int = 12  # training emoji without an unseen label that carry each of those


@dataclass(frozen=True, eq=False)
class EmojiSplit:
    """Emoji and labels by what the tagger may know of them."""

    emoji: EmojiCorpus
    train: NDArray[np.int64]  # emoji whose tags teach meaning
    taught: NDArray[np.int64]  # those of them without an unseen label: their pictures are shown
    test: NDArray[np.int64]  # emoji of which nothing is known
    unseen: tuple[str, ...]  # labels hidden from the pictures
    oov: tuple[str, ...]  # labels hidden from the semantics documents

    def semantics(self) -> LabelCorpus:
        """Return the tag sets that teach meaning: training emoji, without oov labels."""
        return _corpus(self.emoji, self.train, without=self.oov)

    def rows(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of both drawings of some emoji."""
        return np.flatnonzero(np.isin(self.emoji.group, chosen))

    def pictures(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.float32], LabelCorpus]:
        """Return features and tag sets of both drawings of some emoji, one row a drawing."""
        rows = self.rows(chosen)
        owners = self.emoji.group[rows]
        ids = []
        documents = []
        for row, owner in zip(rows, owners, strict=True):
            ids.append(f"{self.emoji.ids[owner]}/{self.emoji.drawing[row]}")
            documents.append(self.emoji.documents[owner])
        corpus = LabelCorpus.from_documents(documents, ids=ids)
        return self.emoji.features[rows], _grouped(corpus, self.emoji, owners)

    def emoji_of(self, name: str) -> int:
        """Return which emoji a document is about, by its name."""
        return self._places[name.split("/")[0]]

    @cached_property
    def _places(self) -> dict[str, int]:
        """Where each emoji stands in the corpus."""
        return {name: number for number, name in enumerate(self.emoji.ids)}

    def repeated(self) -> tuple[str, ...]:
        """Name the documents to remove, so that every training emoji is known exactly once.

        An emoji shown as pictures has a semantics document and one for each drawing. One is kept:
        a drawing's where it holds oov labels, which the semantics document lacks.
        """
        names: list[str] = []
        for emoji in self.taught:
            emoji_id = self.emoji.ids[emoji]
            drawings = [f"{emoji_id}/{drawing}" for drawing in DRAWINGS]
            has_oov = not set(self.oov).isdisjoint(self.emoji.documents[emoji])
            names += [emoji_id, *drawings[1:]] if has_oov else drawings
        return tuple(names)


def families(names: Sequence[str]) -> NDArray[np.int64]:
    """Return one number to all emoji whose Unicode names differ only in a person's gender, (n,)."""
    numbers: dict[str, int] = {}
    family = []
    for name in names:
        folded = name.casefold()
        words = re.split(r"[\s:,-]+", folded)
        neutral_words = []
        for word in words:
            if word not in _PERSONS:
                neutral_words.append(word)
        key = " ".join(neutral_words) or name
        number = numbers.setdefault(key, len(numbers))
        family.append(number)
    return np.array(family, dtype=np.int64)


def draw_split(
    emoji: EmojiCorpus, settings: SplitSettings | None = None, random_state: RandomState = None
) -> EmojiSplit:
    """Draw test emoji and hidden labels; emoji without any label are on neither side."""
    settings = settings or SplitSettings()
    generator = as_generator(random_state)
    labelled = np.flatnonzero([len(labels) > 0 for labels in emoji.documents])
    # Whole families go to one side: a woman teacher would give away a man teacher.
    family = families([emoji.names[number] for number in labelled])
    place = generator.permutation(family.max() + 1)[family]
    n_test = round(settings.test_share * len(labelled))
    last_place = np.sort(place)[n_test - 1]
    is_test = place <= last_place
    test = labelled[is_test]
    train = labelled[~is_test]
    corpus = _corpus(emoji, train)
    unseen = labels_by_document_share(
        corpus,
        unseen_share=settings.label_share,
        document_share=settings.document_share,
        random_state=generator,
    ).unseen
    taught = train[~carries(corpus, unseen)]
    counts: Counter[str] = Counter()
    for number in taught:
        counts.update(emoji.documents[number])
    frequent = sorted(label for label, count in counts.items() if count >= settings.min_oov)
    if len(frequent) < settings.n_oov:
        raise InputError(
            f"Only {len(frequent)} labels are on {settings.min_oov} or more training pictures' "
            f"emoji, but `n_oov` is {settings.n_oov}; lower `min_oov` or `n_oov`."
        )
    places = generator.choice(len(frequent), settings.n_oov, replace=False)
    oov = tuple(frequent[place] for place in sorted(places.tolist()))
    # An emoji with nothing but oov labels has no place in the concept space.
    with_meaning = [number for number in train if set(emoji.documents[number]) - set(oov)]
    train = np.array(with_meaning, dtype=np.int64)
    taught = np.intersect1d(taught, train)
    return EmojiSplit(emoji, train, taught, test, unseen, oov)


def _corpus(
    emoji: EmojiCorpus, chosen: NDArray[np.int64], without: Collection[str] = ()
) -> LabelCorpus:
    """Make a corpus of some emoji, named by their ids, without some labels."""
    documents = []
    ids = []
    for number in chosen:
        labels = [label for label in emoji.documents[number] if label not in without]
        documents.append(labels)
        ids.append(emoji.ids[number])
    corpus = LabelCorpus.from_documents(documents, ids=ids)
    return _grouped(corpus, emoji, chosen)


def _grouped(corpus: LabelCorpus, emoji: EmojiCorpus, owners: NDArray[np.int64]) -> LabelCorpus:
    """Return which documents are of one family: they must not be divided between folds."""
    numbers = families(emoji.names)[owners]
    return replace(corpus, groups=tuple(f"family {number}" for number in numbers))
