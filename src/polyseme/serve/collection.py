"""The items that people review: what is known of each, and answers about all of them at once.

In: ids, features, tags and files of items. Out: what to look at next, what is suggested for one of
them, and its picture or sound. Items are coded once for a space; an answer costs no more than the
label it is about.
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

from polyseme._validation import InputError, first_few
from polyseme.corpus import LabelCorpus, normalize_label
from polyseme.encoded import EncodedItems
from polyseme.features import AudioFeatures, ImageFeatures
from polyseme.features.base import Extracted, MediaError, check_file
from polyseme.feedback import Question
from polyseme.io import Table
from polyseme.tagger import ZeroShotTagger
from polyseme.verdicts import Verdict

# What a browser is told of a sound, by the ending of its file's name.
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
        for what, given in (("rows of features", X), ("tag sets", tags)):
            n = len(self) if given is None else _n_rows(given)
            if n != len(self):
                raise InputError(f"There are {len(self)} items and {n} {what}; give one each.")
        self._X, self.most_bytes = X, most_bytes
        self._tags = tuple(tuple(one) for one in tags) if tags else ((),) * len(self)
        self._files = {name: Path(file) for name, file in (files or {}).items()}
        self.media = self._kind_of_media()
        self._pictures = _Cache(cache_bytes)
        self._coding = threading.Lock()
        self._items: EncodedItems | None = None
        self._known: tuple[Any, Any, LabelCorpus] | None = None

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Collection({len(self)} items, media: {self.media})"

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    # ------------------------------------------------------------------ what is known of items

    def tags_of(self, name: str) -> tuple[str, ...]:
        """Return the tags that an item has already."""
        return self._tags[self._row(name)]

    @cached_property
    def tag_counts(self) -> Counter[str]:
        """How many items have each tag, as it is spelled."""
        return Counter(tag for tags in self._tags for tag in dict.fromkeys(tags))

    @cached_property
    def n_untagged(self) -> int:
        """How many items have no tags of their own."""
        return self._tags.count(())

    def find(self, query: str = "", tagged: bool | None = None) -> list[str]:
        """Return the items in whose id or tags all words of a query stand, in their order.

        Parameters
        ----------
        query : str
        tagged : bool, optional
            Of items with tags of their own alone, or of those without; by default of all.
        """
        names: Sequence[str] = self.ids
        if tagged is not None:
            names = [
                name
                for name, tags in zip(self.ids, self._tags, strict=True)
                if bool(tags) == tagged
            ]
        words = normalize_label(query).split()
        if not words:
            return list(names)
        texts = self._texts
        return [name for name in names if all(word in texts[self._rows[name]] for word in words)]

    def n_reviewed(self, answered: Names[str]) -> int:
        """Count the items among those that were answered for."""
        return sum(name in self._rows for name in answered)

    def row(self, name: str) -> NDArray[np.float32]:
        """Return the numbers of an item, as an extractor makes them of its file or as they came."""
        row, X = self._row(name), self._X
        if isinstance(X, Extracted):
            return np.asarray(X.raw[row], dtype=np.float32)
        features: Any = X.features if isinstance(X, Table) else X
        numbers: Any = features[[row]]
        dense = numbers.toarray() if sp.issparse(features) else numbers
        return np.asarray(dense, dtype=np.float32).ravel()

    def select(self, names: Sequence[str], tagger: ZeroShotTagger | None = None) -> Any:
        """Return some items with their ids, as taggers take them.

        Where they are coded in the space of a tagger they are returned so, for this tagger alone.
        """
        rows, items = [self._row(name) for name in names], self._items
        if tagger is not None and items is not None and items.space == tagger.space_.digest_:
            return items[rows]
        X = self._X[rows]
        if isinstance(X, Extracted):
            return Extracted(X.kind, X.preprocessing, tuple(names), X.raw)
        features, columns = (X.features, X.columns) if isinstance(X, Table) else (X, None)
        return Table(features=features, columns=columns, ids=list(names))

    def among(self, verdicts: Iterable[Verdict]) -> Any:
        """Return the items that verdicts are about, as taggers take them; None without any."""
        names = list(dict.fromkeys(one.item for one in verdicts if one.item in self._rows))
        return self.select(names) if names else None

    def _row(self, name: str) -> int:
        """Find an item."""
        if name not in self._rows:
            raise UnknownItemError(f"There is no item '{name[:60]}'.")
        return self._rows[name]

    @cached_property
    def _texts(self) -> list[str]:
        """What items are found by."""
        described = zip(self.ids, self._tags, strict=True)
        return [" ".join(map(normalize_label, (name, *tags))) for name, tags in described]

    # ------------------------------------------------------------------ what a model says of them

    def items(self, tagger: ZeroShotTagger) -> EncodedItems:
        """Return the items coded in a tagger's space; they are coded once, which may take long."""
        with self._coding:
            if self._items is None or self._items.space != tagger.space_.digest_:
                self._items = None
                self._items = tagger.encode(self._X, self.ids, self.most_bytes)
            return self._items

    def warm(self, tagger: ZeroShotTagger) -> None:
        """Code all items, and read all labels, so that nobody waits for it."""
        tagger.ask(self.items(tagger), k=1, strategy="likeliest")

    def ask(
        self, tagger: ZeroShotTagger, label: str | None, k: int, strategy: str
    ) -> list[Question]:
        """Return what to look at next; see `ZeroShotTagger.ask`."""
        own = None
        if self.tag_counts or strategy == "errors":
            own = self._known_tags(tagger)
        return tagger.ask(self.items(tagger), label, k, strategy, own)

    def suggest(self, tagger: ZeroShotTagger, name: str, k: int) -> list[tuple[str, float, str]]:
        """Return the k likeliest labels that an item does not have, with probability and kind."""
        row = self._row(name)
        resolve = tagger.vocabulary_.resolve
        own = {normalize_label(resolve(tag)) for tag in self._tags[row]}
        labels, scores = tagger.rank(self.items(tagger)[row], k + len(own))
        kinds = dict(zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True))
        found = zip(labels[0].tolist(), scores[0].tolist(), strict=True)
        left = [(one, score) for one, score in found if score > 0]
        left = [(one, score) for one, score in left if normalize_label(one) not in own]
        return [(one, score, kinds[one]) for one, score in left[:k]]

    def _known_tags(self, tagger: ZeroShotTagger) -> LabelCorpus:
        """Return the items' own tags that a tagger knows, under their labels' own names."""
        labels, words, known = tagger.classes_, tagger.vocabulary_, self._known
        if known is None or known[0] is not labels or known[1] is not words:
            given = self._corpus(tagger.normalize_labels_)
            known = (labels, words, words.apply(given).restrict(labels.tolist()))
            self._known = known
        return known[2]

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
        return None if file is None or _kind_of(file) != self.media else file

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
            told = error if isinstance(error, MediaError) else "cannot be read"
            raise InputError(f"The file of '{name[:60]}' {told}.") from error

    def _kind_of_media(self) -> str | None:
        """Return what most files are: "image" or "audio"; None where there are none of either."""
        if isinstance(self._X, Extracted) and self._files:
            return self._X.kind
        kinds = Counter(_kind_of(file) for file in self._files.values())
        kinds.pop(None, None)
        return max(kinds, key=lambda kind: kinds[kind]) if kinds else None


def _n_rows(given: Any) -> int:
    """Count rows of anything that has some."""
    return int(given.shape[0]) if hasattr(given, "shape") else len(given)


def _kind_of(file: Path) -> str | None:
    """Return what a file is by its name: "image", "audio" or neither."""
    suffix = file.suffix.lower()
    if suffix in SOUNDS and suffix in AudioFeatures.suffixes:
        return "audio"
    return "image" if suffix in ImageFeatures.suffixes else None


def _small_picture(file: Path, side: int) -> bytes:
    """Draw a picture file no larger than so many pixels a side, as JPEG."""
    from polyseme.features.pictures import read_thumbnail

    return read_thumbnail(file, size=side, quality=_QUALITY)


class _Cache:
    """Bytes by key, the least lately used ones forgotten where they are too many."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.n_bytes = most_bytes, 0
        self._held: OrderedDict[Any, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """Return what is held, or make it; several threads may make the same."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        made = make()
        with self._lock:
            self.n_bytes += len(made) - len(self._held.pop(key, b""))
            self._held[key] = made
            while self.n_bytes > self.most_bytes and self._held:
                self.n_bytes -= len(self._held.popitem(last=False)[1])
        return made
