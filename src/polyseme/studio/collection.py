"""The items that people review: their tags, files and suggestions.

In: ids, features, tags and files of items. Out: questions for active learning, suggestions for an
item, and its picture or sound. Items are encoded once for a space; after an answer only the label
that it is about is scored again.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import InputError, first_few
from polyseme.documents.corpus import LabelCorpus, normalize_label
from polyseme.feedback.active_learning import Question
from polyseme.feedback.verdict_log import Verdict
from polyseme.io import Table
from polyseme.media import AudioFeatures, ImageFeatures
from polyseme.media.base import Extracted, MediaError, check_file
from polyseme.scoring.encoded import EncodedItems
from polyseme.tagger import ZeroShotTagger

# Media types of sounds by the suffix of the file.
SOUNDS = dict.fromkeys((".wav", ".wave"), "audio/wav")
SOUNDS |= {".flac": "audio/flac", ".mp3": "audio/mpeg", ".aac": "audio/aac"}
SOUNDS |= dict.fromkeys((".ogg", ".oga", ".opus"), "audio/ogg")
SOUNDS |= dict.fromkeys((".aif", ".aiff"), "audio/aiff")
SOUNDS |= dict.fromkeys((".m4a", ".m4b"), "audio/mp4")
PICTURE = "image/jpeg"
MOST_PIXELS = 2048  # a side
_SOUND_BYTES = 2**28
_QUALITY = 85


class UnknownItemError(InputError):
    """No item of that name is there."""


class Collection:
    """Items that people review.

    Parameters
    ----------
    ids : sequence of str
        The items' names, each once.
    X : array, scipy sparse, Table or Extracted, n rows
        Their features, as the model takes them.
    tags : sequence of collections of str, optional
        The tags that each has already.
    files : mapping of str to path, optional
        The pictures or sounds of items, by their names. No other file is ever opened.
    most_bytes : int
        What codes and logits of the items may take in memory; see `ZeroShotTagger.encode`.
    cache_bytes : int
        What small pictures may take.
    """

    def __init__(
        self,
        ids: Sequence[str],
        X: Any,
        tags: Sequence[Names[str]] | None = None,
        files: Mapping[str, str | Path] | None = None,
        most_bytes: int = 2**30,
        cache_bytes: int = 2**26,
    ) -> None:
        self.ids = tuple(ids)
        self._rows = {name: row for row, name in enumerate(self.ids)}
        if len(self._rows) < len(self.ids):
            twice = [name for name, count in Counter(self.ids).items() if count > 1]
            raise InputError(f"Items are named twice: {first_few(twice)}; give each an id.")
        self._check_length("rows of features", X)
        self._check_length("tag sets", tags)
        self._X = X
        self.most_bytes = most_bytes
        self._tags: tuple[tuple[str, ...], ...] = ((),) * len(self)
        if tags:
            self._tags = tuple(tuple(tag_set) for tag_set in tags)
        self._files = {name: Path(file) for name, file in (files or {}).items()}
        self.media = self._kind_of_media()
        self._pictures = _Cache(cache_bytes)
        self._coding = threading.Lock()
        self._items: EncodedItems | None = None
        self._known: tuple[Any, Any, LabelCorpus] | None = None

    def _check_length(self, noun: str, values: Any) -> None:
        """Raise unless there is one value for each item; None stands for as many as needed."""
        if values is None:
            return
        n = _n_rows(values)
        if n != len(self):
            raise InputError(f"There are {len(self)} items and {n} {noun}; give one each.")

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Collection({len(self)} items, media: {self.media})"

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    # ------------------------------------------------------------------ items and their tags

    def tags_of(self, name: str) -> tuple[str, ...]:
        """Return the tags that an item has already."""
        return self._tags[self._row(name)]

    @cached_property
    def tag_counts(self) -> Counter[str]:
        """How many items have each tag, as it is spelled."""
        counts: Counter[str] = Counter()
        for tags in self._tags:
            distinct_tags = list(dict.fromkeys(tags))
            counts.update(distinct_tags)
        return counts

    @cached_property
    def n_untagged(self) -> int:
        """How many items have no tags of their own."""
        return self._tags.count(())

    def find(self, query: str = "", tagged: bool | None = None) -> list[str]:
        """Return the items whose id or tags contain all words of a query, in order.

        Parameters
        ----------
        query : str
        tagged : bool, optional
            Of items with tags of their own alone, or of those without; by default of all.
        """
        names: Sequence[str] = self.ids
        if tagged is not None:
            pairs = zip(self.ids, self._tags, strict=True)
            names = [name for name, tags in pairs if bool(tags) == tagged]
        words = normalize_label(query).split()
        if not words:
            return list(names)
        texts = self._texts
        matches: list[str] = []
        for name in names:
            text = texts[self._rows[name]]
            if all(word in text for word in words):
                matches.append(name)
        return matches

    def n_reviewed(self, answered: Names[str]) -> int:
        """Count the items among those that were answered for."""
        return sum(name in self._rows for name in answered)

    def row(self, name: str) -> NDArray[np.float32]:
        """Return the numbers of an item, as an extractor makes them of its file or as they came."""
        row = self._row(name)
        X = self._X
        if isinstance(X, Extracted):
            return np.asarray(X.raw[row], dtype=np.float32)
        features: Any = X.features if isinstance(X, Table) else X
        numbers: Any = features[[row]]
        if sp.issparse(features):
            numbers = numbers.toarray()
        return np.asarray(numbers, dtype=np.float32).ravel()

    def select(self, names: Sequence[str], tagger: ZeroShotTagger | None = None) -> Any:
        """Return some items with their ids, as taggers take them.

        Items that are encoded in the space of a given tagger are returned encoded, for this tagger
        alone.
        """
        rows = [self._row(name) for name in names]
        items = self._items
        space_digest = None if tagger is None else tagger.space_.digest_
        if items is not None and items.space_digest == space_digest:
            return items[rows]
        X = self._X[rows]
        ids = list(names)
        if isinstance(X, Extracted):
            return Extracted(X.kind, X.preprocessing, tuple(ids), X.raw)
        if isinstance(X, Table):
            return Table(features=X.features, columns=X.columns, ids=ids)
        return Table(features=X, columns=None, ids=ids)

    def among(self, verdicts: Iterable[Verdict]) -> Any:
        """Return the items that verdicts are about, as taggers take them; None without any."""
        names: dict[str, None] = {}
        for verdict in verdicts:
            if verdict.item in self._rows:
                names[verdict.item] = None
        if not names:
            return None
        return self.select(list(names))

    def _row(self, name: str) -> int:
        """Find an item."""
        row = self._rows.get(name)
        if row is None:
            shown_name = name[:60]
            raise UnknownItemError(f"There is no item '{shown_name}'.")
        return row

    @cached_property
    def _texts(self) -> list[str]:
        """What items are found by."""
        texts: list[str] = []
        for name, tags in zip(self.ids, self._tags, strict=True):
            words = [normalize_label(text) for text in (name, *tags)]
            texts.append(" ".join(words))
        return texts

    # ------------------------------------------------------------------ scores of a model

    def items(self, tagger: ZeroShotTagger) -> EncodedItems:
        """Return the items coded in a tagger's space; they are coded once, which may take long."""
        with self._coding:
            if self._items is None or self._items.space_digest != tagger.space_.digest_:
                self._items = None
                self._items = tagger.encode(self._X, self.ids, self.most_bytes)
            return self._items

    def warm(self, tagger: ZeroShotTagger) -> None:
        """Encode all items and score all labels, so that no request has to wait for it."""
        tagger.ask(self.items(tagger), k=1, strategy="likeliest")

    def ask(
        self, tagger: ZeroShotTagger, label: str | None, k: int, strategy: str
    ) -> list[Question]:
        """Return the questions to ask next; see `ZeroShotTagger.ask`."""
        known_tags = None
        if self.tag_counts or strategy == "errors":
            known_tags = self._known_tags(tagger)
        return tagger.ask(self.items(tagger), label, k, strategy, known_tags)

    def suggest(self, tagger: ZeroShotTagger, name: str, k: int) -> list[tuple[str, float, str]]:
        """Return the k likeliest labels that an item does not have, with probability and kind."""
        row = self._row(name)
        own_keys: set[str] = set()
        for tag in self._tags[row]:
            label = tagger.vocabulary_.resolve(tag)
            own_keys.add(normalize_label(label))
        items = self.items(tagger)
        labels, scores = tagger.rank(items[row], k + len(own_keys))
        kinds = dict(zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True))
        suggestions: list[tuple[str, float, str]] = []
        item_labels = labels[0].tolist()
        item_scores = scores[0].tolist()
        for label, score in zip(item_labels, item_scores, strict=True):
            is_own = normalize_label(label) in own_keys
            if score > 0 and not is_own:
                suggestions.append((label, score, kinds[label]))
        return suggestions[:k]

    def _known_tags(self, tagger: ZeroShotTagger) -> LabelCorpus:
        """Return the items' own tags that a tagger knows, under their labels' own names."""
        labels = tagger.classes_
        vocabulary = tagger.vocabulary_
        cached = self._known
        if cached is None or cached[0] is not labels or cached[1] is not vocabulary:
            item_tags = self._corpus(tagger.normalize_labels_)
            known_tags = vocabulary.apply(item_tags).restrict(labels.tolist())
            cached = (labels, vocabulary, known_tags)
            self._known = cached
        return cached[2]

    def _corpus(self, normalize: bool) -> LabelCorpus:
        """Return the items' own tags as documents."""
        return LabelCorpus.from_documents(self._tags, ids=self.ids, normalize=normalize)

    # ------------------------------------------------------------------ pictures and sounds

    def has_media(self, name: str) -> bool:
        """Return whether an item has a picture or a sound that can be shown."""
        return self.file_of(name) is not None

    def file_of(self, name: str) -> Path | None:
        """Return the file of an item's picture or sound; None where it has none."""
        self._row(name)
        file = self._files.get(name)
        if file is None or _kind_of(file) != self.media:
            return None
        return file

    def picture(self, name: str, size: int) -> tuple[bytes, str]:
        """Return a picture no larger than a size in its own proportions, or a sound as it is.

        Parameters
        ----------
        name : str
        size : int
            Pixels of the longer side at the most, up to 2048.

        Returns
        -------
        content : bytes
        kind : str
            Its media type, such as "image/jpeg".
        """
        file = self.file_of(name)
        if file is None:
            raise InputError(f"The item '{name[:60]}' has no picture or sound.")
        try:
            n_bytes = check_file(file)
            if self.media == "audio":
                if n_bytes > _SOUND_BYTES:
                    raise MediaError(f"has more than {_SOUND_BYTES >> 20} MiB")
                return file.read_bytes(), SOUNDS[file.suffix.lower()]
            side = max(1, min(size, MOST_PIXELS))
            state = file.stat()
            key = (file, side, state.st_mtime_ns, state.st_size)
            return self._pictures.get(key, lambda: _small_picture(file, side)), PICTURE
        except (MediaError, OSError) as error:
            reason = error if isinstance(error, MediaError) else "cannot be read"
            raise InputError(f"The file of '{name[:60]}' {reason}.") from error

    def _kind_of_media(self) -> str | None:
        """Return the kind of most files, "image" or "audio"; None where there are neither."""
        if isinstance(self._X, Extracted) and self._files:
            return self._X.kind
        counts = Counter(_kind_of(file) for file in self._files.values())
        counts.pop(None, None)
        if not counts:
            return None
        return max(counts, key=lambda kind: counts[kind])


def _n_rows(values: Any) -> int:
    """Count rows of anything that has some."""
    if hasattr(values, "shape"):
        return int(values.shape[0])
    return len(values)


def _kind_of(file: Path) -> str | None:
    """Return the kind of a file by its name: "image", "audio" or neither."""
    suffix = file.suffix.lower()
    if suffix in SOUNDS and suffix in AudioFeatures.suffixes:
        return "audio"
    return "image" if suffix in ImageFeatures.suffixes else None


def _small_picture(file: Path, side: int) -> bytes:
    """Return a picture file as JPEG, of at most `side` pixels a side."""
    from polyseme.media.pictures import read_thumbnail

    return read_thumbnail(file, size=side, quality=_QUALITY)


class _Cache:
    """Bytes by key, the least lately used ones forgotten where they are too many."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.n_bytes = 0
        self._held: OrderedDict[Any, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """Return the cached bytes, or make them; several threads may make the same ones."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        content = make()
        with self._lock:
            former = self._held.pop(key, b"")
            self.n_bytes += len(content) - len(former)
            self._held[key] = content
            while self.n_bytes > self.most_bytes and self._held:
                _, oldest = self._held.popitem(last=False)
                self.n_bytes -= len(oldest)
        return content
