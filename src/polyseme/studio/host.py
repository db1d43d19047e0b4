"""A served model: the tagger that answers, and how it is changed, saved and replaced.

In: a model's folder. Out: answers by the current tagger. Each request holds a snapshot; a change is
made to a copy, saved, and swapped in, so that no answer mixes two states.
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
from polyseme.documents.tags import likely_tags
from polyseme.documents.vocabulary import similar_labels
from polyseme.documents.word_vectors import WordVectors
from polyseme.feedback.verdict_log import Undo, Verdict, VerdictLog
from polyseme.io import Table
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

Row = NDArray[np.float32]
T = TypeVar("T")

# Labels without any chance are not suggested.
_SMALLEST = 1e-300
_MOST_UNKNOWN_TAGS = 10_000
_MOST_SIMILAR = 500
_MOST_PRECISIONS = 128
_HINTS = 3  # labels that may have been meant


class SuggestRequest(NamedTuple):
    """A request for tags of one item: features, tags or both, and which tags to return."""

    features: Row | None
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
    """The state of a tagger at one moment, with its lookup tables."""

    tagger: ZeroShotTagger
    digest: str  # of the files it was read from
    n_events: int  # verdicts and undos that it has learned from

    @property
    def version(self) -> str:
        """Name this state, in every answer."""
        return f"{self.digest}-{self.n_events}"

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each label."""
        tagger = self.tagger
        return dict(zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True))

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many known documents hold each label."""
        store = self.tagger.store_
        return dict(zip(store.labels, store.counts.tolist(), strict=True))

    @cached_property
    def answers(self) -> dict[str, tuple[int, int]]:
        """Numbers of yes and of no for each label."""
        yes_and_no: dict[str, list[int]] = {}
        for verdicts in self.verdicts_by_item.values():
            for verdict in verdicts:
                label = self.current_label(verdict.label)
                counts = yes_and_no.setdefault(label, [0, 0])
                counts[0 if verdict.answer else 1] += 1
        return {label: (yes, no) for label, (yes, no) in yes_and_no.items()}

    @cached_property
    def verdicts_by_item(self) -> dict[str, list[Verdict]]:
        """The standing verdicts by item."""
        by_item: dict[str, list[Verdict]] = {}
        for verdict in self.tagger.verdicts_.standing():
            by_item.setdefault(verdict.item, []).append(verdict)
        return by_item

    def current_label(self, label: str) -> str:
        """Return a label's current name, or its former one where it is unknown now."""
        return self.find_label(label) or label

    def accepted(self, collection: Collection) -> Iterator[tuple[str, list[str]]]:
        """Yield items with their own tags, with accepted ones and without refused ones."""
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
        """Items with a standing verdict."""
        return self.verdicts_by_item.keys()

    @cached_property
    def n_undone(self) -> int:
        """How many answers were taken back."""
        return sum(isinstance(event, Undo) for event in self.tagger.verdicts_.events())

    @cached_property
    def similar(self) -> dict[str, list[tuple[str, float]]]:
        """Labels that are used alike, of both of each pair."""
        store = self.tagger.store_
        pairs = similar_labels(store.matrix, store.labels, _MOST_SIMILAR)
        similar: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for first, second, similarity in pairs:
            similar[first].append((second, similarity))
            similar[second].append((first, similarity))
        return dict(similar)

    @cached_property
    def documents(self) -> dict[str, int]:
        """The numbers of known documents, by their names."""
        return {name: row for row, name in enumerate(self.tagger.store_.ids)}

    @cached_property
    def _names(self) -> dict[str, str]:
        return {self.key(label): label for label in self.kinds}

    def key(self, label: str) -> str:
        """Return the key by which labels are compared."""
        return normalize_label(label) if self.tagger.normalize_labels_ else label

    def find_label(self, label: str) -> str | None:
        """Return a label under its own name; None where it is not known."""
        return self._names.get(self.key(self.tagger.vocabulary_.resolve(label)))

    def label(self, name: str) -> str:
        """Return a label under its own name, or raise an `UnknownLabelError`."""
        label = self.find_label(name)
        if label is not None:
            return label
        key = self.key(name)
        close_keys = get_close_matches(key, self._names, _HINTS)
        hint = "."
        if close_keys:
            quoted = [f"'{self._names[close_key]}'" for close_key in close_keys]
            hint = f"; did you mean {' or '.join(quoted)}?"
        raise UnknownLabelError(f"There is no label '{name[:60]}'{hint}")

    @cached_property
    def _thresholds(self) -> dict[float, dict[str, float]]:
        return {}

    def thresholds(self, precision: float) -> dict[str, float]:
        """Return the threshold of each label for a precision."""
        cache = self._thresholds
        thresholds = cache.get(precision)
        if thresholds is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PolysemeWarning)
                values = self.tagger.thresholds(precision)
            thresholds = dict(zip(self.kinds, values.tolist(), strict=True))
            if len(cache) >= _MOST_PRECISIONS:
                cache.clear()  # other threads hold the thresholds that they use
            cache[precision] = thresholds
        return thresholds


@dataclass(frozen=True, eq=False)
class Map:
    """Known documents on a plane."""

    store: KnownDocuments
    landscape: Landscape

    @cached_property
    def dots(self) -> Dots:
        """Every label in every known document."""
        return concept_positions(self.store, self.landscape)

    @cached_property
    def anchors(self) -> list[Anchor]:
        """Where labels' captions stand."""
        return anchors(self.dots, self.store.labels)

    @cached_property
    def places(self) -> NDArray[np.float32]:
        """Where each distinct tag set lies, (n_sets, 2)."""
        return self.landscape.place(self.store.points)

    @cached_property
    def points(self) -> bytes:
        """All dots as bytes: x and y in turn (float32), labels and documents (uint32)."""
        dots = self.dots
        places = dots.xy.astype("<f4")
        labels = dots.labels.astype("<u4")
        documents = dots.documents.astype("<u4")
        return places.tobytes() + labels.tobytes() + documents.tobytes()

    @cached_property
    def digest(self) -> str:
        """Name the picture, for caches."""
        return hashlib.sha256(self.points).hexdigest()[:16]


class UnknownLabelError(InputError):
    """No label of that name is known."""


@dataclass
class Notices:
    """What the administrators of a host should know."""

    unknown_tags: Counter[str] = field(default_factory=Counter)  # unknown tags in requests
    reload_error: str | None = None  # why the last reload was refused


class ModelHost:
    """One model that answers, is changed and is replaced.

    Parameters
    ----------
    path : str or Path
        The model's folder, which `ZeroShotTagger.save` wrote.
    collection : Collection, optional
        The items that people review.
    words : WordVectors, optional
        Vectors of words, by which labels can be added by name.
    name : str, optional
        What it is called; by default as its folder.
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
        self._writing = threading.RLock()
        self._saved = 0.0
        self._looked_at = self._stamp()
        self._snapshot = self._read()
        self.scoring: Batcher[SuggestRequest, tuple[Snapshot, list[Suggestion]]] = Batcher(
            self.suggest
        )
        self.looking: Batcher[bytes, Row] = Batcher(self._extract_files, largest=8, most_waiting=64)
        self._map: Map | None = None
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
        """When the model on disk was last saved, as far as one can see."""
        with suppress(OSError):
            file = self.path / MODEL_FILE
            self._saved = file.stat().st_mtime
        saved_at = datetime.fromtimestamp(self._saved, UTC)
        return saved_at.isoformat(timespec="seconds")

    @property
    def extractor(self) -> MediaFeatures | None:
        """What turns files into numbers; None where the model takes numbers."""
        return self._snapshot.tagger.features_

    def items(self, rows: Sequence[Row], names: Sequence[str] | None = None) -> Any:
        """Return rows of features as a tagger takes items: a table or an extraction."""
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
        """
        snapshot = self._snapshot
        numbers_by_group: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for number, query in enumerate(queries):
            has_features = query.features is not None
            numbers_by_group[has_features, query.kinds].append(number)

        answers: dict[int, tuple[Snapshot, list[Suggestion]]] = {}
        for (has_features, kinds), numbers in numbers_by_group.items():
            group = [queries[number] for number in numbers]
            tags = [query.tags for query in group]
            X = None
            if has_features:
                rows = [query.features for query in group if query.features is not None]
                X = self.items(rows)
            # The item's own tags come first, and are taken out of the answer.
            most = max(query.k + len(query.tags) for query in group)
            given_tags = tags if any(tags) else None
            labels, scores = snapshot.tagger.rank(X, most, given_tags, kinds=kinds)
            rankings = zip(numbers, labels.tolist(), scores.tolist(), strict=True)
            for number, item_labels, item_scores in rankings:
                query = queries[number]
                suggestions = _select_suggestions(snapshot, query, item_labels, item_scores)
                answers[number] = (snapshot, suggestions)
        return [answers[number] for number in range(len(queries))]

    def check(self, query: SuggestRequest) -> tuple[SuggestRequest, list[str]]:
        """Check a request before it is queued; return it with known tags, and the unknown tags.

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
            self.check_row(query.features)
        if query.precision is not None and query.features is None:
            raise InputError("A precision is promised of items; for tags alone give a threshold.")
        distinct_labels = tuple(dict.fromkeys(labels))
        return query._replace(tags=distinct_labels), unknown_tags

    def check_row(self, row: Row) -> None:
        """Raise unless a row of features fits the model."""
        if not self._snapshot.tagger.n_features_in_:
            raise InputError("This model was fitted without features; give tags.")
        extractor = self.extractor
        if extractor is None or extractor.raw_axes == 1:
            n_features = row.shape[-1]
            wanted = self._snapshot.tagger.n_features_in_
            if row.ndim != 1 or n_features != wanted:
                raise InputError(f"This model takes {wanted} features an item; got {n_features}.")
        elif row.ndim != 2:
            raise InputError(f"This model takes {extractor.noun}s: send a file, or name an item.")
        if not np.isfinite(row).all():
            raise InputError("Features must be finite; got NaN or infinity.")

    def _count_unknown_tags(self, unknown: Iterable[str]) -> None:
        """Count tags of requests that the vocabulary lacks."""
        counts = self.notices.unknown_tags
        for tag in unknown:
            if len(counts) < _MOST_UNKNOWN_TAGS or tag in counts:
                counts[tag] += 1

    def _extract_files(self, files: Sequence[bytes]) -> list[Any]:
        """Return the features of uploaded files, or the error for each."""
        extractor = self.extractor
        assert extractor is not None
        paths: list[Path] = []
        try:
            for data in files:
                with tempfile.NamedTemporaryFile(prefix="polyseme-", delete=False) as file:
                    paths.append(Path(file.name))
                    file.write(data)
            with extractor.single_threaded():
                rows = extractor.extract_batch(paths)
        finally:
            for path in paths:
                path.unlink(missing_ok=True)
        results: list[Any] = []
        for row in rows:
            if isinstance(row, MediaError):
                results.append(InputError(f"The file {row}."))
            else:
                results.append(row)
        return results

    def warm(self) -> None:
        """Load everything that the first request needs."""
        tagger = self._snapshot.tagger
        if self.collection is not None and tagger.n_features_in_:
            self.collection.warm(tagger)
        tagger.rank(None, 1, [[tagger.store_.labels[0]]])
        extractor = self.extractor
        if extractor is not None and extractor.kind == "image":
            with suppress(InputError):  # the libraries for pictures may not be installed
                extractor.extract_batch([np.zeros((8, 8, 3), dtype=np.uint8)])

    async def close(self) -> None:
        """Answer the waiting requests, and end; a running refit is cancelled."""
        if self._refitting is not None:
            self._refitting.stop()
        await self.scoring.close()
        await self.looking.close()

    # ------------------------------------------------------------------ the map

    def map(self, snapshot: Snapshot | None = None) -> Map:
        """Return the known documents on a plane: at once by their axes, better when laid out."""
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
        """Return where one item, or one tag set, lies on the map."""
        tagger = self._snapshot.tagger
        points = tagger.space_.points(tagger.transform(X, tags))
        places = self.map().landscape.place(points)
        x, y = places[0].tolist()
        return x, y

    # ------------------------------------------------------------------ verdicts

    def learn(
        self,
        verdicts: Sequence[Verdict],
        rows: Mapping[str, Row] | None = None,
        seen: int | None = None,
    ) -> tuple[int, ...]:
        """Learn from verdicts; they are on disk, and all scores have changed, when this returns.

        Parameters
        ----------
        verdicts : sequence of Verdict
        rows : mapping of str to float32 array, optional
            Features of items that are not in the collection.
        seen : int, optional
            The last event that whoever answers has seen; see `ZeroShotTagger.learn`.

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

    def _items_of_verdicts(self, verdicts: Sequence[Verdict], rows: Mapping[str, Row]) -> Any:
        """Return the items that verdicts are about, as the tagger takes them.

        Items are sent with their features or belong to the collection. Of items that were answered
        for before, the log has what is needed. Any other name is an `UnknownItemError`.
        """
        tagger = self._snapshot.tagger
        collection = self.collection
        if not tagger.n_features_in_:
            return None  # the tagger raises an error about it
        names = list(dict.fromkeys(verdict.item for verdict in verdicts))
        listed: list[str] = []
        if collection is not None:
            listed = [name for name in names if name in collection]
        unlisted = [name for name in names if name not in rows and name not in listed]
        answered_before = tagger.verdicts_.vector_keys(tagger.space_.digest_, unlisted)
        for name in unlisted:
            if name not in answered_before:
                raise UnknownItemError(
                    f"There is no item '{name[:60]}', and no features of it were sent."
                )
        features = {name: rows[name] for name in names if name in rows}
        if collection is not None:
            if not features:
                return collection.select(listed, tagger) if listed else None
            for name in listed:
                if name not in rows:
                    features[name] = collection.row(name)
        if not features:
            return None
        return self.items(list(features.values()), list(features))

    def undo(self, numbers: Sequence[int]) -> None:
        """Undo verdicts by their numbers."""
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
            What is done, for the list of versions.
        author : str, optional
        function : callable
            Takes the tagger and changes it in place; what it raises leaves everything as it was.
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
                self._looked_at = stamp  # this is our own change
        return result

    def restore(self, number: int, author: str | None) -> None:
        """Restore a former version; people's answers stay."""
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
            self._check_features(fitted)
            _take_over(tagger, fitted)

        self.change("refit", f"{len(fitted.store_.ids)} tag sets", author, put_in_place)

    def _keep(
        self, action: str, detail: str, author: str | None, tagger: ZeroShotTagger
    ) -> Version:
        """Return the version under which the model on disk is stored."""
        n_labels = len(tagger.classes_)
        n_documents = len(tagger.store_.ids)
        return self.versions.keep(action, detail, author, n_labels, n_documents)

    def _use(self, tagger: ZeroShotTagger, digest: str) -> None:
        """Use a tagger for all later answers."""
        self._snapshot = Snapshot(tagger, digest, tagger.verdicts_.count)

    # ------------------------------------------------------------------ reloading

    def refresh(self) -> bool:
        """Load what others have written to the model's folder; return whether anything changed."""
        with self._writing:
            if self._stamp() != self._looked_at:
                return self.reload()
            if self._snapshot.tagger.verdicts_.count == self._snapshot.n_events:
                return False
            clone = copy(self._snapshot.tagger)
            clone.refresh()
            self._use(clone, self._snapshot.digest)
            return True

    def reload(self) -> bool:
        """Load the model on disk beside the one in use, and swap them if it takes the same items.

        Raises
        ------
        InputError
            Where the new one cannot be used; the old one goes on.
        """
        with self._writing:
            self._looked_at = self._stamp()  # `refresh` does not try it again until it changes
            try:
                fresh = self._read()
                self._check_features(fresh.tagger)
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
        """Return what changes whenever the model on disk does; nothing where there is none."""
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

    def _check_features(self, tagger: ZeroShotTagger) -> None:
        """Raise unless a tagger takes the features that callers send."""
        n_before = self._snapshot.tagger.n_features_in_
        if tagger.n_features_in_ != n_before:
            raise InputError(
                f"it takes {tagger.n_features_in_} features, and callers send {n_before}."
            )


def _take_over(tagger: ZeroShotTagger, fitted: ZeroShotTagger) -> None:
    """Let a tagger have learned what another one has; it is still the one that was loaded."""
    digests = tagger._digests
    tagger.__dict__.clear()
    tagger.__dict__.update(fitted.__dict__)
    tagger._digests = digests


def _select_suggestions(
    snapshot: Snapshot, query: SuggestRequest, labels: Sequence[str], scores: Sequence[float]
) -> list[Suggestion]:
    """Return the labels that are likely enough, without the item's own tags."""
    thresholds: dict[str, float] = {}
    if query.precision is not None:
        thresholds = snapshot.thresholds(query.precision)
    least = query.threshold or 0.0
    lowest = max(least, _SMALLEST)
    own_tags = set(query.tags)
    likely = likely_tags(labels, scores, thresholds, query.k, lowest=lowest, excluded=own_tags)
    suggestions: list[Suggestion] = []
    for label, score in likely:
        kind = snapshot.kinds[label]
        suggestions.append(Suggestion(label, score, kind))
    return suggestions


def _can_write(folder: Path) -> bool:
    """Return whether versions can be kept in a folder."""
    return os.access(folder, os.W_OK)
