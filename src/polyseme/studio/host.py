"""A served model: the tagger that answers, and how it is changed, saved and replaced.

In: a model's folder. Out: answers by the current tagger. Each request holds a snapshot; a change is
made to a copy, saved, and swapped in, so that no answer mixes two states.

Terms: a *host* is one served model. An *event* is a verdict or its undo in the model's log. A
*digest* names a state: 12 hexadecimal digits of the model file's hash, or the space's own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents.corpus import normalize_label
from polyseme.documents.label_names import extractor_names
from polyseme.documents.similar_labels import SimilarLabels
from polyseme.documents.tags import likely_tags
from polyseme.documents.word_vectors import WordVectors
from polyseme.feedback.verdict_log import Undo, Verdict, VerdictLog
from polyseme.io import Table
from polyseme.label_changes import suggest_merges
from polyseme.media.base import Extracted, MediaError, MediaFeatures
from polyseme.model_state import tagger_from_state
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.storage.model_file import MODEL_FILE
from polyseme.studio.batching import Batcher
from polyseme.studio.collection import Collection, UnknownItemError
from polyseme.studio.landscape import Anchor, Dots, Landscape, anchors, concept_positions
from polyseme.studio.refit import Refitting
from polyseme.studio.versions import Version, Versions
from polyseme.tagger import ZeroShotTagger, load

# Of one item: (n_features,). Of a sound as its extractor takes it apart: (n_segments, n_raw).
ItemFeatures = NDArray[np.float32]
T = TypeVar("T")

# Labels with a probability of 0, such as blocked ones, are not suggested.
_SMALLEST_PROBABILITY = 1e-300
# What clients choose stays bounded in memory.
MOST_EXTRACTED = 8  # files and texts that are turned into features together
_MOST_UNKNOWN_TAGS = 10_000
_MOST_PRECISIONS = 128
_EXAMPLE_NAMES = 20  # labels by whose names is found out whether the extractor reads names
_MOST_SIMILAR = 500  # pairs of labels for each reason
_HINTS = 3  # labels that may have been meant


class SuggestRequest(NamedTuple):
    """A request for tags of one item: features, tags or both, and which tags to return.

    Attributes
    ----------
    features : ItemFeatures or None
    tags : tuple of str
        The item's own; once checked by `ModelHost.check`, under the labels' own names.
    k : int
        How many labels to return at the most.
    threshold : float, optional
        The lowest probability that is returned.
    precision : float, optional
        The share of returned labels that should be true, by each label's threshold for it.
    kinds : tuple of str, optional
        Which of "seen", "unseen" and "oov" are returned; by default all.
    """

    features: ItemFeatures | None
    tags: tuple[str, ...] = ()
    k: int = 10
    threshold: float | None = None
    precision: float | None = None
    kinds: tuple[str, ...] | None = None


class Suggestion(NamedTuple):
    """A label that may be true of an item."""

    label: str
    probability: float
    kind: str


@dataclass(frozen=True)
class Snapshot:
    """The state of a tagger at one moment, with its lookup tables.

    Nobody changes its tagger: a change is made to a copy, which comes in another snapshot.
    """

    tagger: ZeroShotTagger
    digest: str  # of the file it was read from
    n_events: int  # verdicts and undos that it has learned from

    @property
    def version(self) -> str:
        """Name this state, in every answer."""
        return f"{self.digest}-{self.n_events}"

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each label: "seen", "unseen" or "oov"; in the order of `classes_`."""
        tagger = self.tagger
        return dict(zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True))

    @cached_property
    def document_counts(self) -> dict[str, int]:
        """How many known documents hold each label."""
        store = self.tagger.store_
        return dict(zip(store.labels, store.counts.tolist(), strict=True))

    @cached_property
    def answer_counts(self) -> dict[str, tuple[int, int]]:
        """How many standing verdicts say yes, and how many no, for each label that has some."""
        yes_and_no: dict[str, list[int]] = {}
        for verdicts in self.verdicts_by_item.values():
            for verdict in verdicts:
                label = self.current_label(verdict.label)
                counts = yes_and_no.setdefault(label, [0, 0])
                counts[0 if verdict.answer else 1] += 1
        return {label: (yes, no) for label, (yes, no) in yes_and_no.items()}

    @cached_property
    def verdicts_by_item(self) -> dict[str, list[Verdict]]:
        """The standing verdicts by item, in the order of the log."""
        by_item: dict[str, list[Verdict]] = {}
        for verdict in self.tagger.verdicts_.standing():
            by_item.setdefault(verdict.item, []).append(verdict)
        return by_item

    def current_label(self, label: str) -> str:
        """Return a label's current name, or its former one where it is unknown now."""
        return self.find_label(label) or label

    def reviewed_tags(self, collection: Collection) -> Iterator[tuple[str, list[str]]]:
        """Yield the name and the tags of each item that has any after the review.

        Own tags come first, without those that people refused, then those that they accepted.
        """
        for name in collection.ids:
            tags = list(dict.fromkeys(collection.tags_of(name)))
            for verdict in self.verdicts_by_item.get(name, ()):
                label = self.current_label(verdict.label)
                label_key = self.key(label)
                tags = [tag for tag in tags if self.key(self.current_label(tag)) != label_key]
                if verdict.answer:
                    tags.append(label)
            if tags:
                yield name, tags

    @property
    def reviewed(self) -> KeysView[str]:
        """The names of items with a standing verdict."""
        return self.verdicts_by_item.keys()

    @cached_property
    def n_undone(self) -> int:
        """How many answers were taken back."""
        return sum(isinstance(event, Undo) for event in self.tagger.verdicts_.events())

    @cached_property
    def document_rows(self) -> dict[str, int]:
        """The rows of known documents in the store, by their ids."""
        return {name: row for row, name in enumerate(self.tagger.store_.ids)}

    @cached_property
    def _label_by_key(self) -> dict[str, str]:
        return {self.key(label): label for label in self.kinds}

    def key(self, label: str) -> str:
        """Return the key by which spellings of labels are compared."""
        return normalize_label(label) if self.tagger.normalize_labels_ else label

    def find_label(self, label: str) -> str | None:
        """Return the label that a spelling or a former name stands for; None for an unknown one."""
        resolved_name = self.tagger.vocabulary_.resolve(label)
        return self._label_by_key.get(self.key(resolved_name))

    def label(self, name: str) -> str:
        """Return the label that `find_label` finds, or raise an `UnknownLabelError`."""
        label = self.find_label(name)
        if label is not None:
            return label
        key = self.key(name)
        close_keys = get_close_matches(key, self._label_by_key, _HINTS)
        hint = "."
        if close_keys:
            quoted = [f"'{self._label_by_key[close_key]}'" for close_key in close_keys]
            hint = f"; did you mean {' or '.join(quoted)}?"
        raise UnknownLabelError(f"There is no label '{name[:60]}'{hint}")

    @cached_property
    def _thresholds_by_precision(self) -> dict[float, dict[str, float]]:
        return {}

    def thresholds(self, precision: float) -> dict[str, float]:
        """Return the probability from which on each label is suggested for a precision.

        It is infinite for labels that cannot promise it.
        """
        cache = self._thresholds_by_precision
        if precision in cache:
            return cache[precision]
        with warnings.catch_warnings():
            # That no unseen label can promise it: the answer lacks them, which is what was asked.
            warnings.simplefilter("ignore", PolysemeWarning)
            thresholds = self.tagger.thresholds(precision)
        threshold_by_label = dict(zip(self.kinds, thresholds.tolist(), strict=True))
        if len(cache) >= _MOST_PRECISIONS:
            cache.clear()  # other threads hold the thresholds that they use
        cache[precision] = threshold_by_label
        return threshold_by_label


@dataclass(frozen=True, eq=False)
class Map:
    """Known documents on a plane; coordinates lie between -1 and 1."""

    store: KnownDocuments
    landscape: Landscape

    @cached_property
    def dots(self) -> Dots:
        """A dot for every label in every known document."""
        return concept_positions(self.store, self.landscape)

    @cached_property
    def anchors(self) -> list[Anchor]:
        """Where labels' captions stand."""
        return anchors(self.dots, self.store.labels)

    @cached_property
    def places(self) -> NDArray[np.float32]:
        """Where each distinct tag set lies, (n_sets, 2); `store.sets` has the set of a document."""
        return self.landscape.place(self.store.points)

    @cached_property
    def dot_bytes(self) -> bytes:
        """All dots as the studio reads them: three tables in turn, little endian.

        x and y of each dot (float32), the dots' labels, and their documents (uint32), as in `Dots`.
        """
        dots = self.dots
        coordinates = dots.xy.astype("<f4")
        labels = dots.labels.astype("<u4")
        documents = dots.documents.astype("<u4")
        return coordinates.tobytes() + labels.tobytes() + documents.tobytes()

    @cached_property
    def digest(self) -> str:
        """Name the picture, for caches of browsers."""
        return hashlib.sha256(self.dot_bytes).hexdigest()[:16]


class UnknownLabelError(InputError):
    """No label of that name is known."""


@dataclass
class Notices:
    """What the administrators of a host should know."""

    unknown_tags: Counter[str] = field(default_factory=Counter)  # in how many requests each was
    reload_error: str | None = None  # why the last reload was refused, a sentence


class ModelHost:
    """One model that answers, is changed and is replaced.

    Parameters
    ----------
    path : str or Path
        The model's folder, which `ZeroShotTagger.save` wrote.
    collection : Collection, optional
        The items that people review.
    words : WordVectors, optional
        Vectors of words, by which labels can be added by name, and compared.
    name : str, optional
        What it is called; by default as its folder.

    Attributes
    ----------
    scoring : Batcher
        Where requests for tags wait to be scored together.
    extraction : Batcher
        Where uploaded files and texts wait to be turned into features.
    versions : Versions
    notices : Notices
    """

    def __init__(
        self,
        path: str | Path,
        collection: Collection | None = None,
        words: WordVectors | None = None,
        name: str | None = None,
    ) -> None:
        self.path = Path(path).resolve()
        self.name = self.path.name if name is None else name
        if self.name in ("", ".", "..") or "/" in self.name:
            raise InputError(
                f"'{self.name}' cannot be the name of a model, which is a part of its address."
            )
        self.collection = collection
        self.words = words
        self.versions = Versions(self.path)
        self.notices = Notices()
        # Whoever puts another snapshot in place holds it; readers need no lock.
        self._writing = threading.RLock()
        self._saved_at = 0.0  # seconds since 1970
        self._loaded_stamp = self._stamp()
        self._snapshot = self._read()
        self.scoring: Batcher[SuggestRequest, tuple[Snapshot, list[Suggestion]]] = Batcher(
            self.suggest
        )
        self.extraction: Batcher[bytes | str, ItemFeatures] = Batcher(
            self._extract, largest=MOST_EXTRACTED, most_waiting=64
        )
        # The extractor, and whether it can read names of labels.
        self._name_reader: tuple[MediaFeatures, bool] | None = None
        self._map: Map | None = None
        self._similar: tuple[KnownDocuments, list[SimilarLabels]] | None = None
        self._refitting: Refitting | None = None
        self._making_refitting = threading.Lock()
        tagger = self._snapshot.tagger
        if _can_write(self.path):
            with self.versions.writing():
                self._keep("opened", "by the service", None, tagger)

    # ------------------------------------------------------------------ answers

    @property
    def snapshot(self) -> Snapshot:
        """The state that answers at this moment."""
        return self._snapshot

    @property
    def refitting(self) -> Refitting:
        """The refits of this model, made when somebody asks about them."""
        with self._making_refitting:
            if self._refitting is None:
                self._refitting = Refitting(self)
            return self._refitting

    @property
    def changed(self) -> str:
        """When the model on disk was last saved, in ISO 8601; the last that could be seen."""
        with suppress(OSError):
            file = self.path / MODEL_FILE
            self._saved_at = file.stat().st_mtime
        saved_at = datetime.fromtimestamp(self._saved_at, UTC)
        return saved_at.isoformat(timespec="seconds")

    @property
    def extractor(self) -> MediaFeatures | None:
        """What turns files into features; None where the model takes numbers."""
        return self._snapshot.tagger.features_

    @property
    def takes_texts(self) -> bool:
        """Whether an item of the model is a text, which may be sent as such."""
        extractor = self.extractor
        return extractor is not None and not extractor.names_are_paths

    @property
    def takes_names(self) -> bool:
        """Whether labels can be added by their names: by word vectors, or by the extractor."""
        if self.words is not None:
            return True
        extractor = self.extractor
        if extractor is None:
            return False
        if self._name_reader is None or self._name_reader[0] is not extractor:
            labels = self._snapshot.tagger.store_.labels[:_EXAMPLE_NAMES]
            reads_names = False
            with suppress(InputError):  # what it needs may not be installed
                reads_names = extractor_names(extractor, labels) is not None
            self._name_reader = (extractor, reads_names)
        return self._name_reader[1]

    def similar_labels(self) -> list[SimilarLabels]:
        """Return labels that may be one; computed again where the known documents have changed."""
        tagger = self._snapshot.tagger
        if self._similar is None or self._similar[0] is not tagger.store_:
            suggestions = suggest_merges(tagger, self.words, _MOST_SIMILAR)
            self._similar = (tagger.store_, suggestions)
        return self._similar[1]

    def items(self, rows: Sequence[ItemFeatures], names: Sequence[str] | None = None) -> Any:
        """Return the features of items, a row each, as the tagger takes them.

        Parameters
        ----------
        rows : sequence of ItemFeatures
            Checked by `check_features`.
        names : sequence of str, optional
            The items' names, where the tagger should know them.

        Returns
        -------
        X : array, Table or Extracted
        """
        extractor = self.extractor
        if extractor is None:
            features = np.stack(rows)
            if names is None:
                return features
            columns = getattr(self._snapshot.tagger, "feature_names_in_", None)
            column_names = None if columns is None else tuple(columns)
            return Table(features=features, columns=column_names, ids=list(names))
        if names is None:
            names = [str(number) for number in range(len(rows))]
        raw: Any = np.stack(rows) if extractor.raw_axes == 1 else list(rows)
        return Extracted(extractor.kind, extractor.preprocessing(), tuple(names), raw)

    def suggest(self, queries: Sequence[SuggestRequest]) -> list[tuple[Snapshot, list[Suggestion]]]:
        """Answer several requests at once, all by the same snapshot.

        Parameters
        ----------
        queries : sequence of SuggestRequest
            Checked by `check`.

        Returns
        -------
        list of (Snapshot, list of Suggestion)
            In the order of the requests; of each, the likeliest label first.
        """
        snapshot = self._snapshot
        # One call of `rank` takes items with features or without, and one choice of kinds.
        numbers_by_group: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for number, query in enumerate(queries):
            has_features = query.features is not None
            numbers_by_group[has_features, query.kinds].append(number)

        answer_by_number: dict[int, tuple[Snapshot, list[Suggestion]]] = {}
        for (_, kinds), numbers in numbers_by_group.items():
            group = [queries[number] for number in numbers]
            X, tags, n_ranked = self._ranking_input(group)
            labels, probabilities = snapshot.tagger.rank(X, n_ranked, tags, kinds=kinds)
            rankings = zip(numbers, labels.tolist(), probabilities.tolist(), strict=True)
            for number, item_labels, item_probabilities in rankings:
                query = queries[number]
                suggestions = _select_suggestions(snapshot, query, item_labels, item_probabilities)
                answer_by_number[number] = (snapshot, suggestions)
        return [answer_by_number[number] for number in range(len(queries))]

    def _ranking_input(
        self, queries: Sequence[SuggestRequest]
    ) -> tuple[Any, list[tuple[str, ...]] | None, int]:
        """Return the items, their tags, and how many labels to rank, as a tagger takes them.

        All of the requests have features, or none has; then X is None. Tags are None without any.
        """
        rows: list[ItemFeatures] = []
        own_tags: list[tuple[str, ...]] = []
        n_ranked = 0
        for query in queries:
            if query.features is not None:
                rows.append(query.features)
            own_tags.append(query.tags)
            # The item's own tags come first in the ranking, and are taken out of the answer.
            n_ranked = max(n_ranked, query.k + len(query.tags))
        X = self.items(rows) if rows else None
        tags = own_tags if any(own_tags) else None
        return X, tags, n_ranked

    def check(self, query: SuggestRequest) -> tuple[SuggestRequest, list[str]]:
        """Check a request before it is queued.

        Returns
        -------
        query : SuggestRequest
            With the labels that its tags stand for, each once, in place of the tags.
        unknown_tags : list of str
            Tags that stand for no label; they are counted for the administrators.

        Raises
        ------
        InputError
            With one sentence about what is wrong.
        """
        snapshot = self._snapshot
        label_by_tag = {tag: snapshot.find_label(tag) for tag in query.tags}
        labels = [label for label in label_by_tag.values() if label is not None]
        unknown_tags = [tag for tag, label in label_by_tag.items() if label is None]
        self._count_unknown_tags(unknown_tags)
        if query.features is None and not labels:
            if unknown_tags:
                raise InputError(f"None of the tags is known: {', '.join(unknown_tags[:5])}.")
            raise InputError("Give features, an item, a file or tags.")
        if query.features is not None:
            self.check_features(query.features)
        if query.precision is not None and query.features is None:
            raise InputError("A precision is promised of items; for tags alone give a threshold.")
        distinct_labels = tuple(dict.fromkeys(labels))
        return query._replace(tags=distinct_labels), unknown_tags

    def check_features(self, features: ItemFeatures) -> None:
        """Raise an `InputError` unless an item's features fit the model."""
        n_expected = self._snapshot.tagger.n_features_in_
        if not n_expected:
            raise InputError("This model was fitted without features; give tags.")
        extractor = self.extractor
        if extractor is None or extractor.raw_axes == 1:
            n_features = features.shape[-1]
            if features.ndim != 1 or n_features != n_expected:
                raise InputError(
                    f"This model takes {n_expected} features an item; got {n_features}."
                )
        elif features.ndim != 2:
            raise InputError(f"This model takes {extractor.noun}s: send a file, or name an item.")
        if not np.isfinite(features).all():
            raise InputError("Features must be finite; got NaN or infinity.")

    def _count_unknown_tags(self, unknown: Iterable[str]) -> None:
        """Count tags of a request that the vocabulary lacks, for the list of candidates."""
        counts = self.notices.unknown_tags
        for tag in unknown:
            if len(counts) < _MOST_UNKNOWN_TAGS or tag in counts:
                counts[tag] += 1

    def _extract(self, contents: Sequence[bytes | str]) -> list[Any]:
        """Return the features of uploaded files and of texts, or the error, for each in order.

        Extractors read files by their names; the copies are removed before this returns.
        """
        extractor = self.extractor
        assert extractor is not None
        items: list[Path | str] = []
        try:
            for content in contents:
                if isinstance(content, str):
                    items.append(content)
                    continue
                with tempfile.NamedTemporaryFile(prefix="polyseme-", delete=False) as file:
                    items.append(Path(file.name))
                    file.write(content)
            with extractor.single_threaded():
                rows = extractor.extract_batch(items)
        finally:
            for item in items:
                if isinstance(item, Path):
                    item.unlink(missing_ok=True)
        results: list[Any] = []
        for item, row in zip(items, rows, strict=True):
            if isinstance(row, MediaError):
                noun = "text" if isinstance(item, str) else "file"
                results.append(InputError(f"The {noun} {row}."))
            else:
                results.append(row)
        return results

    def warm(self) -> None:
        """Load everything that the first request needs; encoding the items may take minutes."""
        tagger = self._snapshot.tagger
        if self.collection is not None and tagger.n_features_in_:
            self.collection.warm(tagger)
        tagger.rank(None, 1, [[tagger.store_.labels[0]]])
        _ = self.takes_names  # the studio asks for it first
        example: Any = None
        if self.takes_texts:
            example = tagger.store_.labels[0]
        elif self.extractor is not None and self.extractor.kind == "image":
            example = np.zeros((8, 8, 3), dtype=np.uint8)
        if example is None:
            return
        assert self.extractor is not None
        with suppress(InputError):  # the libraries for pictures may not be installed
            with self.extractor.single_threaded():
                rows = self.extractor.extract_batch([example])
            row = rows[0]
            if not isinstance(row, MediaError):
                tagger.rank(self.items([row]), 1)

    async def close(self) -> None:
        """Answer the waiting requests, and end; a running refit is cancelled."""
        if self._refitting is not None:
            self._refitting.stop()
        await self.scoring.close()
        await self.extraction.close()

    # ------------------------------------------------------------------ the map

    def map(self, snapshot: Snapshot | None = None) -> Map:
        """Return the known documents of a snapshot, or of the current one, on a plane.

        Their layout is the saved one of the space; until `lay_out` has made one, a quick one by
        principal axes. The same map is returned until documents come or go.
        """
        snapshot = snapshot or self._snapshot
        store = snapshot.tagger.store_
        space_digest = snapshot.tagger.space_.digest_
        current = self._map
        if current is not None and current.store is store:
            return current
        landscape: Landscape | None = None
        if current is not None and current.landscape.digest == space_digest:
            landscape = current.landscape
        if landscape is None:
            n_axes = store.points.shape[1]
            landscape = Landscape.read(self.path, space_digest, n_axes)
        if landscape is None:
            landscape = Landscape.quick(store.points, space_digest)
        self._map = Map(store, landscape)
        return self._map

    def lay_out(self) -> None:
        """Replace the quick layout of the map by one that keeps neighbours together, and save it.

        It takes seconds and holds no lock: documents may come and go meanwhile. Where another space
        has been adopted meanwhile, the layout is of the former one and is dropped.
        """
        current = self.map()
        space_digest = current.landscape.digest
        if current.landscape.layout != "axes":
            return
        learned = Landscape.learn(current.store.points, space_digest)
        tagger = self._snapshot.tagger
        if learned.layout != "axes" and tagger.space_.digest_ == space_digest:
            learned.save(self.path)
            self._map = Map(tagger.store_, learned)

    def place(self, X: Any, tags: Sequence[Sequence[str]] | None) -> tuple[float, float]:
        """Return where an item or a tag set lies on the map, x and y between -1 and 1.

        X and tags hold one row each, as `ZeroShotTagger.transform` takes them.
        """
        tagger = self._snapshot.tagger
        points = tagger.space_.points(tagger.transform(X, tags))
        places = self.map().landscape.place(points)
        x, y = places[0].tolist()
        return x, y

    # ------------------------------------------------------------------ verdicts

    def learn(
        self,
        verdicts: Sequence[Verdict],
        rows: Mapping[str, ItemFeatures] | None = None,
        seen: int | None = None,
    ) -> tuple[int, ...]:
        """Learn from verdicts; they are on disk, and all scores have changed, when this returns.

        Returns their numbers in the log, by which they are undone, in the order of the verdicts.

        Parameters
        ----------
        verdicts : sequence of Verdict
        rows : mapping of str to float32 array, optional
            Features of items that are not in the collection, by the items' names.
        seen : int, optional
            The last event that whoever answers has seen; with a later answer that disagrees, a
            `ConflictError` is raised and nothing learned. See `ZeroShotTagger.learn`.

        Raises
        ------
        UnknownItemError
            Where nothing is known of an item. Names of items are never opened as files.
        """
        with self._writing:
            clone = copy(self._snapshot.tagger)
            numbers = clone.learn(verdicts, self._items_of_verdicts(verdicts, rows or {}), seen)
            self._use(clone, self._snapshot.digest)
        return numbers

    def _items_of_verdicts(
        self, verdicts: Sequence[Verdict], rows: Mapping[str, ItemFeatures]
    ) -> Any:
        """Return the items that verdicts are about, as the tagger takes them.

        Items are sent with their features or belong to the collection. Of items that were answered
        for before, the log has what is needed. Any other name is an `UnknownItemError`. None is
        returned where the log has all.
        """
        tagger = self._snapshot.tagger
        collection = self.collection
        if not tagger.n_features_in_:
            return None  # the tagger raises an error about it
        names = list(dict.fromkeys(verdict.item for verdict in verdicts))
        listed_names: list[str] = []
        if collection is not None:
            listed_names = [name for name in names if name in collection]
        unlisted_names = [name for name in names if name not in rows and name not in listed_names]
        answered_before = tagger.verdicts_.vector_keys(tagger.space_.digest_, unlisted_names)
        for name in unlisted_names:
            if name not in answered_before:
                raise UnknownItemError(
                    f"There is no item '{name[:60]}', and no features of it were sent."
                )
        features_by_name = {name: rows[name] for name in names if name in rows}
        if collection is not None:
            if not features_by_name:  # the usual case: items that are encoded already
                return collection.select(listed_names, tagger) if listed_names else None
            for name in listed_names:
                if name not in rows:
                    features_by_name[name] = collection.features_of(name)
        if not features_by_name:
            return None
        return self.items(list(features_by_name.values()), list(features_by_name))

    def undo(self, numbers: Sequence[int]) -> None:
        """Undo verdicts by the numbers that `learn` returned; it is on disk when this returns."""
        with self._writing:
            clone = copy(self._snapshot.tagger)
            clone.undo(numbers)
            self._use(clone, self._snapshot.digest)

    # ------------------------------------------------------------------ changes

    def change(
        self,
        action: str,
        detail: str,
        author: str | None,
        function: Callable[[ZeroShotTagger], T],
    ) -> T:
        """Change a copy of the tagger, save it, and use it for all later answers.

        Parameters
        ----------
        action, detail : str
            What is done, such as "rename", and to what, for the list of versions.
        author : str, optional
        function : callable
            Takes the tagger and changes it in place; what it raises leaves everything as it was.

        Returns
        -------
        result
            What the function returns.
        """
        with self._writing, self.versions.writing():
            if self.versions.current() != self._snapshot.digest:
                self._snapshot = self._read()  # another process has saved meanwhile
            clone = copy(self._snapshot.tagger)
            result = function(clone)
            clone.save(self.path)
            version = self._keep(action, detail, author, clone)
            self._use(clone, version.digest)
            stamp = self._stamp()
            if self.versions.current() == version.digest:
                self._loaded_stamp = stamp  # this is our own change
        return result

    def restore(self, number: int, author: str | None) -> None:
        """Restore a former version by its number; people's answers stay."""
        state = self.versions.state(number)

        def put_back(tagger: ZeroShotTagger) -> None:
            former = tagger_from_state(*state)
            log = VerdictLog(self.path)
            former.use_log(log)
            _take_over(tagger, former)

        self.change("restore", f"version {number}", author, put_back)

    def adopt(self, fitted: ZeroShotTagger, before: Snapshot, author: str | None) -> None:
        """Replace a tagger by the one that was fitted from it; answers since then stay.

        Parameters
        ----------
        fitted : ZeroShotTagger
        before : Snapshot
            What it was fitted from.
        author : str, optional

        Raises
        ------
        InputError
            Where the model was changed since then, other than by answers.
        """

        def put_in_place(tagger: ZeroShotTagger) -> None:
            if self._snapshot.digest != before.digest:
                raise InputError("the model was changed meanwhile; start the refit again.")
            log = VerdictLog(self.path)
            items = None if self.collection is None else self.collection.among(log.standing())
            fitted.use_log(log, items)
            self._check_feature_count(fitted)
            _take_over(tagger, fitted)

        self.change("refit", f"{len(fitted.store_.ids)} tag sets", author, put_in_place)

    def _keep(
        self, action: str, detail: str, author: str | None, tagger: ZeroShotTagger
    ) -> Version:
        """Store the model that is on disk as a version; see `Versions.keep`."""
        n_labels = len(tagger.classes_)
        n_documents = len(tagger.store_.ids)
        return self.versions.keep(action, detail, author, n_labels, n_documents)

    def _use(self, tagger: ZeroShotTagger, digest: str) -> None:
        """Use a tagger, saved under a digest, for all later answers."""
        self._snapshot = Snapshot(tagger, digest, tagger.verdicts_.count)

    # ------------------------------------------------------------------ reloading

    def refresh(self) -> bool:
        """Load a model or verdicts that others have written; return whether anything changed."""
        with self._writing:
            if self._stamp() != self._loaded_stamp:
                return self.reload()
            if self._snapshot.tagger.verdicts_.count == self._snapshot.n_events:
                return False
            clone = copy(self._snapshot.tagger)
            clone.refresh()
            self._use(clone, self._snapshot.digest)
            return True

    def reload(self) -> bool:
        """Load the model on disk beside the one in use, and swap them if it takes the same items.

        Returns whether another state answers now.

        Raises
        ------
        InputError
            Where the new one cannot be used; the old one goes on.
        """
        with self._writing:
            self._loaded_stamp = self._stamp()  # `refresh` does not try it again until it changes
            try:
                fresh = self._read()
                self._check_feature_count(fresh.tagger)
            except Exception as error:
                reason = str(error) or type(error).__name__
                sentence = f"A reload was refused, and the former model goes on: {reason}"
                self.notices.reload_error = sentence
                raise InputError(sentence) from error
            changed = fresh.version != self._snapshot.version
            self._snapshot = fresh
            self.notices.reload_error = None
            if _can_write(self.path):
                with self.versions.writing():
                    self._keep("reload", "found changed on disk", None, fresh.tagger)
            return changed

    def _stamp(self) -> tuple[int, ...]:
        """Return inode, size and time (ns) of the model file, which change whenever it is saved.

        Empty where there is none.
        """
        try:
            info = (self.path / MODEL_FILE).stat()
        except OSError:
            return ()
        return info.st_ino, info.st_size, info.st_mtime_ns

    def _read(self) -> Snapshot:
        """Read the model on disk."""
        digest = self.versions.current()
        tagger = load(self.path)
        if not isinstance(tagger, ZeroShotTagger):
            raise InputError(
                f"'{self.path.name}' is a model of the published method; the service takes the "
                "default tagger, which `polyseme fit` without --preset makes."
            )
        return Snapshot(tagger, digest, tagger.verdicts_.count)

    def _check_feature_count(self, tagger: ZeroShotTagger) -> None:
        """Raise unless a tagger takes as many features as callers send by now."""
        n_before = self._snapshot.tagger.n_features_in_
        if tagger.n_features_in_ != n_before:
            raise InputError(
                f"it takes {tagger.n_features_in_} features, and callers send {n_before}."
            )


def _take_over(tagger: ZeroShotTagger, fitted: ZeroShotTagger) -> None:
    """Move the state of a fitted tagger into one that was loaded from the model's folder.

    A save refuses to overwrite a folder that changed since it was loaded, which `_digests` tell;
    they stay.
    """
    digests = tagger._digests
    tagger.__dict__.clear()
    tagger.__dict__.update(fitted.__dict__)
    tagger._digests = digests


def _select_suggestions(
    snapshot: Snapshot,
    query: SuggestRequest,
    labels: Sequence[str],
    probabilities: Sequence[float],
) -> list[Suggestion]:
    """Return the labels of an item's ranking that are likely enough, without its own tags."""
    thresholds: dict[str, float] = {}
    if query.precision is not None:
        thresholds = snapshot.thresholds(query.precision)
    threshold = query.threshold or 0.0
    likely = likely_tags(
        labels,
        probabilities,
        thresholds,
        query.k,
        lowest=max(threshold, _SMALLEST_PROBABILITY),
        excluded=set(query.tags),
    )
    suggestions: list[Suggestion] = []
    for label, probability in likely:
        kind = snapshot.kinds[label]
        suggestions.append(Suggestion(label, probability, kind))
    return suggestions


def _can_write(folder: Path) -> bool:
    """Return whether versions can be kept in a folder."""
    return os.access(folder, os.W_OK)
