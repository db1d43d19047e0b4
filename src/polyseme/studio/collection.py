"""The items that people review: their tags, files and suggestions.

In: ids, features, tags and files of items. Out: questions for active learning, suggestions for an
item, and what a browser shows of it. Items are encoded once for a space; after an answer only the
label that it is about is scored again.

Terms: the *name* of an item is its id, for a file its path below the folder. Its *row* is its place
in `ids` and in the features. Its own *tags* are those it had before the review, as they are spelled
there; a *label* is what a tagger calls a tag.
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
from polyseme.media import extractor_class, extractor_classes
from polyseme.media.base import MOST_PREVIEW_BYTES, Extracted, MediaError, check_file
from polyseme.scoring.encoded import EncodedItems
from polyseme.tagger import ZeroShotTagger

MOST_PIXELS = 2048  # of a side of a picture that is sent
_CACHED_BYTES = 2**20  # of a preview; a larger one, such as a sound, would drive out many others


class UnknownItemError(InputError):
    """No item of that name is there."""


class Collection:
    """Items that people review.

    Parameters
    ----------
    ids : sequence of str
        The items' names, each once.
    X : array, scipy sparse, Table or Extracted, n rows
        Their features, as the model takes them, in the order of `ids`; never changed.
    tags : sequence of collections of str, optional
        The tags that each has already.
    files : mapping of str to path, optional
        The pictures, sounds or texts of items, by their names. No other file is ever opened.
    most_bytes : int
        What codes and logits of the items may take in memory; see `ZeroShotTagger.encode`.
    cache_bytes : int
        What small previews, of pictures and texts, may take.

    Attributes
    ----------
    media : str or None
        The kind of the files that are shown, such as "image"; None where there are none.
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
        self._row_by_name = {name: row for row, name in enumerate(self.ids)}
        if len(self._row_by_name) < len(self.ids):
            name_counts = Counter(self.ids)
            repeated_names = [name for name, count in name_counts.items() if count > 1]
            raise InputError(
                f"Items are named twice: {first_few(repeated_names)}; give each an id."
            )
        self._check_length("rows of features", X)
        self._check_length("tag sets", tags)
        self._X = X
        self.most_bytes = most_bytes
        # By row.
        self._tags: tuple[tuple[str, ...], ...] = ((),) * len(self)
        if tags:
            self._tags = tuple(tuple(tag_set) for tag_set in tags)
        self._files: dict[str, Path] = {}
        if files is not None:
            self._files = {name: Path(file) for name, file in files.items()}
        self.media = self._commonest_kind()
        self._previews = _Cache(cache_bytes)
        self._encoding = threading.Lock()
        # Of one space: replaced when items of another one are asked for.
        self._encoded: EncodedItems | None = None
        # The tagger's labels and vocabulary, and the own tags under the labels' names.
        self._corpus_cache: tuple[Any, Any, LabelCorpus] | None = None

    def _check_length(self, noun: str, values: Any) -> None:
        """Raise unless there is one value for each item; None stands for as many as needed.

        `noun` says what the values are, in the plural.
        """
        if values is None:
            return
        n_values = _n_rows(values)
        if n_values != len(self):
            raise InputError(f"There are {len(self)} items and {n_values} {noun}; give one each.")

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Collection({len(self)} items, media: {self.media})"

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, name: object) -> bool:
        return name in self._row_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    # ------------------------------------------------------------------ items and their tags

    def tags_of(self, name: str) -> tuple[str, ...]:
        """Return the tags that an item has already."""
        return self._tags[self._row_of(name)]

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
        """Return the names of items whose id or tags contain all words of a query, in order.

        Parameters
        ----------
        query : str
            Words, in any case, that may be parts of words; an empty one matches all items.
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
        texts = self._search_texts
        matches: list[str] = []
        for name in names:
            text = texts[self._row_by_name[name]]
            if all(word in text for word in words):
                matches.append(name)
        return matches

    def n_reviewed(self, answered: Names[str]) -> int:
        """Count the items of this collection among names that people have answered for."""
        return sum(name in self._row_by_name for name in answered)

    def features_of(self, name: str) -> NDArray[np.float32]:
        """Return the features of an item, dense: as they came, or raw as an extractor made them.

        The shape is (n_features,); for sound (n_segments, n_raw). Callers may not change it.
        """
        row = self._row_of(name)
        X = self._X
        if isinstance(X, Extracted):
            return np.asarray(X.raw[row], dtype=np.float32)
        features: Any = X.features if isinstance(X, Table) else X
        numbers: Any = features[[row]]
        if sp.issparse(features):
            numbers = numbers.toarray()
        return np.asarray(numbers, dtype=np.float32).ravel()

    def select(self, names: Sequence[str], tagger: ZeroShotTagger | None = None) -> Any:
        """Return some items with their ids, as taggers take them, in the order of their names.

        With a tagger, items that are encoded in its space already are returned encoded; only that
        tagger takes them.
        """
        rows = [self._row_of(name) for name in names]
        encoded = self._encoded
        space_digest = None if tagger is None else tagger.space_.digest_
        if encoded is not None and encoded.space_digest == space_digest:
            return encoded[rows]
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
            if verdict.item in self._row_by_name:
                names[verdict.item] = None
        if not names:
            return None
        return self.select(list(names))

    def _row_of(self, name: str) -> int:
        """Return the row of an item, or raise an `UnknownItemError`."""
        row = self._row_by_name.get(name)
        if row is None:
            shown_name = name[:60]
            raise UnknownItemError(f"There is no item '{shown_name}'.")
        return row

    @cached_property
    def _search_texts(self) -> list[str]:
        """What `find` searches, by row: an item's id and its tags, in lower case."""
        texts: list[str] = []
        for name, tags in zip(self.ids, self._tags, strict=True):
            words = [normalize_label(text) for text in (name, *tags)]
            texts.append(" ".join(words))
        return texts

    # ------------------------------------------------------------------ scores of a model

    def items(self, tagger: ZeroShotTagger) -> EncodedItems:
        """Return all items encoded in a tagger's space, by row; the first call may take minutes."""
        with self._encoding:
            if self._encoded is None or self._encoded.space_digest != tagger.space_.digest_:
                self._encoded = None  # first, so that two spaces never lie in memory at a time
                self._encoded = tagger.encode(self._X, self.ids, self.most_bytes)
            return self._encoded

    def warm(self, tagger: ZeroShotTagger) -> None:
        """Encode all items and score all labels, so that no request has to wait for it."""
        tagger.ask(self.items(tagger), k=1, strategy="likeliest")

    def ask(
        self, tagger: ZeroShotTagger, label: str | None, k: int, strategy: str
    ) -> list[Question]:
        """Return the k questions to ask next, the first one first; see `ZeroShotTagger.ask`.

        Items that carry a tag already are not asked about it, but with the strategy "errors".
        """
        known_tags = None
        if self.tag_counts or strategy == "errors":
            known_tags = self._known_tags(tagger)
        return tagger.ask(self.items(tagger), label, k, strategy, known_tags)

    def suggest(self, tagger: ZeroShotTagger, name: str, k: int) -> list[tuple[str, float, str]]:
        """Return the k likeliest labels that an item does not have, the likeliest first.

        Each with its probability and its kind: "seen", "unseen" or "oov".
        """
        row = self._row_of(name)
        own_keys: set[str] = set()
        for tag in self._tags[row]:
            label = tagger.vocabulary_.resolve(tag)
            own_keys.add(normalize_label(label))
        item = self.items(tagger)[row]
        labels, probabilities = tagger.rank(item, k + len(own_keys))
        all_labels = tagger.classes_.tolist()
        all_kinds = tagger.kinds_.tolist()
        kind_by_label = dict(zip(all_labels, all_kinds, strict=True))
        suggestions: list[tuple[str, float, str]] = []
        ranking = zip(labels[0].tolist(), probabilities[0].tolist(), strict=True)
        for label, probability in ranking:
            is_own = normalize_label(label) in own_keys
            if probability > 0 and not is_own:
                suggestions.append((label, probability, kind_by_label[label]))
        return suggestions[:k]

    def _known_tags(self, tagger: ZeroShotTagger) -> LabelCorpus:
        """Return the items' own tags that a tagger knows, by row, under their labels' own names.

        The same until labels are added, renamed, merged, blocked or removed.
        """
        labels = tagger.classes_
        vocabulary = tagger.vocabulary_
        cached = self._corpus_cache
        # A change of either makes a new object, so that identity tells.
        if cached is not None and cached[0] is labels and cached[1] is vocabulary:
            return cached[2]
        own_tags = LabelCorpus.from_documents(
            self._tags, ids=self.ids, normalize=tagger.normalize_labels_
        )
        known_tags = vocabulary.apply(own_tags).restrict(labels.tolist())
        self._corpus_cache = (labels, vocabulary, known_tags)
        return known_tags

    # ------------------------------------------------------------------ pictures, sounds, texts

    def has_media(self, name: str) -> bool:
        """Return whether an item has a file that can be shown."""
        return self.file_of(name) is not None

    def file_of(self, name: str) -> Path | None:
        """Return the file of an item's picture, sound or text; None where it has none to show."""
        self._row_of(name)  # raises for a name that is no item's
        file = self._files.get(name)
        if file is None or _kind_of(file) != self.media:
            return None
        return file

    def preview(self, name: str, size: int) -> tuple[bytes, str]:
        """Return what a browser shows of an item: a small picture, a sound, a text's beginning.

        Parameters
        ----------
        name : str
        size : int
            Pixels of a picture's longer side at the most, up to 2048; it keeps its proportions. Of
            a text as much as fits on a page of that size.

        Returns
        -------
        content : bytes
        media_type : str
            Such as "image/jpeg".
        """
        file = self.file_of(name)
        if file is None:
            raise InputError(f"The item '{name[:60]}' has no file to show.")
        assert self.media is not None
        extractor = extractor_class(self.media)
        media_type = extractor.preview_types[file.suffix.lower()]
        side = max(1, min(size, MOST_PIXELS))
        try:
            n_bytes = check_file(file)
            # A file that is written anew has a preview of its own.
            cache_key = (file, side, file.stat().st_mtime_ns, n_bytes)
            content = self._previews.get(cache_key, lambda: extractor.preview(file, side))
            if len(content) > MOST_PREVIEW_BYTES:
                raise MediaError(f"has a preview of more than {MOST_PREVIEW_BYTES >> 20} MiB")
            return content, media_type
        except (MediaError, OSError) as error:
            reason = error if isinstance(error, MediaError) else "cannot be read"
            raise InputError(f"The file of '{name[:60]}' {reason}.") from error

    def _commonest_kind(self) -> str | None:
        """Return the kind of media of the features or else of most files; None without files."""
        if isinstance(self._X, Extracted) and self._files:
            return self._X.kind
        counts: Counter[str] = Counter()
        for file in self._files.values():
            kind = _kind_of(file)
            if kind is not None:
                counts[kind] += 1
        if not counts:
            return None
        return max(counts, key=lambda kind: counts[kind])


def _n_rows(values: Any) -> int:
    """Count rows of anything that has some."""
    if hasattr(values, "shape"):
        return int(values.shape[0])
    return len(values)


def _kind_of(file: Path) -> str | None:
    """Return the kind of media by whose extractor a browser can show a file; None for no kind."""
    suffix = file.suffix.lower()
    for kind, extractor in extractor_classes().items():
        if suffix in extractor.preview_types:
            return kind
    return None


class _Cache:
    """Small previews by file and size; those that were not asked for the longest go first.

    Attributes
    ----------
    n_bytes : int
        What is held now; never above `most_bytes` after a call.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.n_bytes = 0
        # The one asked for last is the last one.
        self._held: OrderedDict[Any, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """Return the cached bytes, or make them; several threads may make the same ones.

        Large ones are not held.
        """
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        content = make()
        if len(content) > _CACHED_BYTES:
            return content
        with self._lock:
            former = self._held.pop(key, b"")
            self.n_bytes += len(content) - len(former)
            self._held[key] = content
            while self.n_bytes > self.most_bytes and self._held:
                _, oldest = self._held.popitem(last=False)
                self.n_bytes -= len(oldest)
        return content
