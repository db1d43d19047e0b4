"""The vocabulary: blocked labels, aliases, and implications.

In: a small TOML file or lists of labels. Out: a `Vocabulary`, which is applied to tag sets before
learning, to tags that users pass, and to the scores of labels.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.text import error_text, is_text
from polyseme.base.validation import InputError, IntArray, check_number, check_path, first_few
from polyseme.documents.corpus import LabelCorpus, normalize_label

_MOST_BYTES = 2**24
# Labels of fewer documents are compared with no other, and of more labels than this only the
# commonest by their use, where cosines beyond the last number are the same use.
_FEWEST_USES = 3
_MOST_COMPARED = 4000
_SAME_USE = 0.97


@dataclass(frozen=True)
class Vocabulary:
    """Blocked labels, aliases and implications that people set.

    Attributes
    ----------
    blocked : tuple of str
        Labels that are never suggested; they are learned all the same, and may be given.
    aliases : dict of str to str
        Other names of labels: "cards" for "card".
    implies : dict of str to tuple of str
        Labels that follow from a label: "bird" implies "animal".

    Examples
    --------
    >>> words = Vocabulary(aliases={"cards": "card"}, implies={"bird": ("animal",)})
    >>> [sorted(words.complete(tags)) for tags in (["cards", "king"], ["bird"])]
    [['card', 'king'], ['animal', 'bird']]
    """

    blocked: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    implies: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        counts = f"{len(self.blocked)} blocked, {len(self.aliases)} other names"
        return f"Vocabulary({counts}, {len(self.implies)} implications)"

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read a TOML file: a list `blocked`, and tables `[aliases]` and `[implies]`.

        Parameters
        ----------
        path : str or Path
        """
        file = Path(path)
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise InputError(f"{file} is larger than {_MOST_BYTES >> 20} MiB; shorten it.")
            content = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"The vocabulary {file} cannot be read: {error_text(error)}."
            ) from error
        return cls.from_state(content, str(file))

    @classmethod
    def from_state(cls, content: Mapping[str, Any], where: str = "A vocabulary") -> Vocabulary:
        """Make one of plain values, as `get_state` gives and a file holds them."""
        tables = content if isinstance(content, Mapping) else {"no table": content}
        unknown = set()
        for name in map(str, tables):
            if name not in ("blocked", "aliases", "implies"):
                unknown.add(name if is_text(name) else "?")
        blocked = tables.get("blocked", [])
        aliases = tables.get("aliases", {})
        implies = tables.get("implies", {})
        is_sound = isinstance(aliases, Mapping) and isinstance(implies, Mapping)
        implied_lists: dict[str, Any] = {}
        if is_sound:
            for label, implied in implies.items():
                implied_lists[label] = [implied] if isinstance(implied, str) else implied
        if (
            unknown
            or not is_sound
            or not _are_labels(blocked)
            or not _are_labels([*aliases, *aliases.values(), *implies])
            or not all(map(_are_labels, implied_lists.values()))
        ):
            raise InputError(
                f"{where} holds a list of labels as `blocked`, a table of other names as "
                f'[aliases] (cards = "card") and one of lists as [implies] (bird = ["animal"])'
                + (f"; unknown: {first_few(sorted(unknown)):.80}." if unknown else ".")
            )
        implied_tuples = {label: tuple(implied) for label, implied in implied_lists.items()}
        vocabulary = cls(tuple(blocked), dict(aliases), implied_tuples)
        try:
            vocabulary.resolve("")
        except InputError as error:
            raise InputError(f"{where} cannot be used: {error}") from error
        return vocabulary

    def get_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        implies = {label: list(implied) for label, implied in self.implies.items()}
        return {"blocked": list(self.blocked), "aliases": dict(self.aliases), "implies": implies}

    @cached_property
    def _names(self) -> dict[str, str]:
        """The label of each alias, by the alias's key."""
        links = {normalize_label(name): label for name, label in self.aliases.items()}
        names: dict[str, str] = {}
        for key in links:
            passed: dict[str, None] = {}
            while key in links and key not in names:
                label = links[key]
                if key in passed:
                    raise InputError(f"Aliases of a vocabulary lead round in a circle: {label}.")
                passed[key] = None
                key = normalize_label(label)
            if passed:
                names |= dict.fromkeys(passed, names.get(key, label))
        return names

    @cached_property
    def _implied(self) -> dict[str, tuple[str, ...]]:
        """The labels that each label implies directly, by its key."""
        return {normalize_label(key): labels for key, labels in self.implies.items()}

    def __bool__(self) -> bool:
        return bool(self.blocked or self.aliases or self.implies)

    # ------------------------------------------------------------------ changes

    def with_blocked(self, labels: Iterable[str], *, undo: bool = False) -> Vocabulary:
        """Return it with more labels blocked, or with fewer."""
        label_by_key = {normalize_label(label): label for label in labels}
        blocked: list[str] = []
        for label in self.blocked:
            key = normalize_label(label)
            if key not in label_by_key:
                blocked.append(label)
        if not undo:
            blocked += label_by_key.values()
        return replace(self, blocked=tuple(blocked))

    def naming(self, name: str, label: str) -> Vocabulary:
        """Return it with another name for a label."""
        key = normalize_label(label)
        aliases = {}
        for alias, target in self.aliases.items():
            if normalize_label(alias) != key:
                aliases[alias] = target
        aliases[name] = label
        vocabulary = replace(self, aliases=aliases)
        vocabulary.resolve(name)  # refuses a circle
        return vocabulary

    def renaming(self, label: str, name: str) -> Vocabulary:
        """Return it with a label under a new name; blocks and implications follow.

        Parameters
        ----------
        label, name : str
            Its former name, which becomes an alias, and its new one.
        """
        old_key = normalize_label(label)

        def new_name(former_name: str) -> str:
            return name if normalize_label(former_name) == old_key else former_name

        blocked = tuple(map(new_name, self.blocked))
        implies = {}
        for implying, implied in self.implies.items():
            implies[new_name(implying)] = tuple(map(new_name, implied))
        vocabulary = replace(self, blocked=blocked, implies=implies)
        if old_key == normalize_label(name):
            return vocabulary
        return vocabulary.naming(label, name)

    # ------------------------------------------------------------------ use

    def resolve(self, label: str) -> str:
        """Return the label that a name stands for."""
        return self._names.get(normalize_label(label), label)

    def implied(self, label: str) -> set[str]:
        """Return all labels that a label implies, directly or by way of others."""
        implied_by_key: dict[str, str] = {}
        waiting = [label]
        while waiting:
            key = normalize_label(waiting.pop())
            for name in self._implied.get(key, ()):
                implied = self.resolve(name)
                implied_key = normalize_label(implied)
                if implied_key not in implied_by_key:
                    implied_by_key[implied_key] = implied
                    waiting.append(implied)
        implied_by_key.pop(normalize_label(label), None)
        return set(implied_by_key.values())

    def complete(self, tags: Collection[str]) -> list[str]:
        """Return a tag set under its labels' own names, with implied labels."""
        labels = [self.resolve(tag) for tag in tags]
        completed = dict.fromkeys(labels)
        for label in labels:
            implied = self.implied(label)
            implied_names = dict.fromkeys(implied)
            completed |= implied_names
        return list(completed)

    def apply(self, corpus: LabelCorpus) -> LabelCorpus:
        """Return documents under their labels' own names, with implied labels.

        Parameters
        ----------
        corpus : LabelCorpus

        Returns
        -------
        LabelCorpus
            The same documents; itself where there is nothing to do.
        """
        if not (self.aliases or self.implies):
            return corpus
        labels = [self.resolve(label) for label in corpus.labels]
        column_by_key: dict[str, int] = {}
        name_by_key: dict[str, str] = {}
        sources: list[int] = []
        targets: list[int] = []
        for source, label in enumerate(labels):
            implied = self.implied(label)
            name_by_key |= {corpus.key(name): name for name in implied}
            for name in (label, *sorted(implied)):
                key = corpus.key(name)
                target = column_by_key.setdefault(key, len(column_by_key))
                sources.append(source)
                targets.append(target)
        # Where a label is implied as well, its own spelling counts.
        name_by_key |= {corpus.key(label): label for label in labels}
        names = [name_by_key[key] for key in column_by_key]

        weights = np.ones(len(sources), dtype=np.int32)
        shape = (len(labels), len(column_by_key))
        target_by_source = sp.csr_matrix((weights, (sources, targets)), shape)
        counts = corpus.matrix.astype(np.int32) @ target_by_source
        completed = LabelCorpus.from_indicator(
            counts.astype(bool), names, ids=corpus.ids, normalize=corpus.normalize
        )
        return replace(
            completed, groups=corpus.groups, splits=corpus.splits, numbered=corpus.numbered
        )

    def implied_columns(self, labels: Sequence[str]) -> list[tuple[int, int]]:
        """Return pairs of columns where the score of the first may raise the second's."""
        if not (self.aliases or self.implies):
            return []
        column_by_key = {normalize_label(label): column for column, label in enumerate(labels)}
        pairs = []
        for column, label in enumerate(labels):
            resolved = self.resolve(label)
            for name in {resolved, *self.implied(resolved)}:
                target = column_by_key.get(normalize_label(name), column)
                if target != column:
                    pairs.append((column, target))
        return sorted(pairs)


def similar_labels(
    documents: sp.csr_matrix, labels: Sequence[str], most: int = 20
) -> list[tuple[str, str, float]]:
    """Suggest labels that may be one, such as card and cards, by the labels beside them.

    Pairs are labels whose names differ in endings or punctuation alone, and labels that go with
    nearly the same others.

    Parameters
    ----------
    documents : csr_matrix of bool, shape (n_documents, n_labels)
        Such as `store_.matrix` of a tagger.
    labels : sequence of str, length n_labels
        Its columns, `store_.labels`.
    most : int
        How many pairs to return.

    Returns
    -------
    list of (str, str, float)
        The rarer label, the commoner one, and the cosine of how often others stand beside them;
        the most alike first.
    """
    check_number("most", most, owner="similar_labels", low=1, whole=True)
    table = sp.csr_matrix(documents, dtype=np.float64)
    counts: NDArray[np.float64] = np.asarray(table.sum(axis=0), dtype=np.float64).ravel()
    profiles = _profiles(table)
    is_frequent = counts >= _FEWEST_USES
    pairs = _pairs_by_name(labels, np.flatnonzero(is_frequent))
    pairs |= _pairs_by_use(profiles, counts, is_frequent)

    suggestions: list[tuple[str, str, float]] = []
    for pair in pairs:
        rarer, commoner = sorted(pair, key=lambda column: (counts[column], labels[column]))
        product = profiles[[rarer]] @ profiles[[commoner]].T
        cosine = float(product.toarray()[0, 0])
        suggestions.append((labels[rarer], labels[commoner], cosine))
    suggestions.sort(key=lambda suggestion: (-suggestion[2], suggestion))
    return suggestions[:most]


def _profiles(table: sp.csr_matrix) -> sp.csr_matrix:
    """Return how often each label stands beside each other one, (n_labels, n_labels), length 1."""
    product = table.T @ table
    beside = sp.csr_matrix(product)
    beside.setdiag(0)
    beside.eliminate_zeros()
    squares = beside.multiply(beside)
    sums = squares.sum(axis=1)
    squared_lengths = np.asarray(sums).ravel()
    lengths = np.sqrt(squared_lengths)
    divisors = np.maximum(lengths, 1e-12)
    scales = sp.diags_array(1 / divisors)
    return sp.csr_matrix(scales @ beside)


def _pairs_by_name(labels: Sequence[str], columns: IntArray) -> set[tuple[int, int]]:
    """Return the pairs of columns whose labels have the same stem."""
    columns_by_stem: dict[str, list[int]] = {}
    for column in columns.tolist():
        label = labels[column]
        stem = _stem(label)
        same_stem = columns_by_stem.setdefault(stem, [])
        same_stem.append(column)
    pairs: set[tuple[int, int]] = set()
    for same_stem in columns_by_stem.values():
        new_pairs = combinations(same_stem, 2)
        pairs.update(new_pairs)
    return pairs


def _pairs_by_use(
    profiles: sp.csr_matrix, counts: NDArray[np.float64], is_frequent: NDArray[np.bool_]
) -> set[tuple[int, int]]:
    """Return the pairs of columns of frequent labels that go with nearly the same others."""
    has_company = np.diff(profiles.indptr) > 0
    columns = np.flatnonzero(is_frequent & has_company)
    by_count = np.argsort(-counts[columns], kind="stable")
    most_used = by_count[:_MOST_COMPARED]
    columns = columns[most_used]
    compared = profiles[columns]
    products = compared @ compared.T
    upper = np.triu(products.toarray(), 1)
    places = np.argwhere(upper > _SAME_USE)
    pairs = columns[places].tolist()
    return {(first, second) for first, second in pairs}


def _stem(label: str) -> str:
    """Return a label's letters and digits without an English plural's ending."""
    letters = [letter for letter in normalize_label(label) if letter.isalnum()]
    plain = "".join(letters)
    n_letters = len(plain)
    for ending in ("es", "s"):
        is_long = n_letters > len(ending) + 2
        if is_long and plain.endswith(ending):
            return plain.removesuffix(ending)
    if n_letters > 3:
        return plain.removesuffix("e")
    return plain


def as_vocabulary(vocabulary: Vocabulary | str | Path | None) -> Vocabulary:
    """Return a vocabulary, or load its file; none is an empty one."""
    if vocabulary is None:
        return Vocabulary()
    if isinstance(vocabulary, Vocabulary):
        return vocabulary
    return Vocabulary.read(check_path(vocabulary, subject="A vocabulary's file"))


def _are_labels(values: object) -> bool:
    """Return whether values are a list of labels."""
    return isinstance(values, list) and all(
        isinstance(value, str) and value.strip() and is_text(value) for value in values
    )
