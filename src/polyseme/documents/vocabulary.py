"""The vocabulary: blocked labels, aliases, and implications.

In: a small TOML file or lists of labels. Out: a `Vocabulary`, which is applied to tag sets before
learning, to tags that users pass, and to the scores of labels.

Terms: an *alias* is another name of a label; *resolving* a name follows aliases to the label. The
*key* of a name is its normalised spelling, by which names are compared. A label *implies* others
directly, or by way of those that it implies.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyseme.base.text import error_text, is_text
from polyseme.base.validation import InputError, check_path, first_few
from polyseme.documents.corpus import LabelCorpus, normalize_label

_MOST_BYTES = 2**24  # of a vocabulary's file
_FIELDS = ("blocked", "aliases", "implies", "separator", "suggest_branches")
_MOST_SEPARATOR_LETTERS = 8


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
    separator : str
        What stands between the parts of a label that is a path, such as "people|adults". A path
        implies what lies above it, "people". Without a separator no label is a path.
    suggest_branches : bool
        Whether labels that others lie below are suggested.

    Examples
    --------
    >>> words = Vocabulary(aliases={"cards": "card"}, implies={"bird": ("animal",)})
    >>> [sorted(words.complete(tags)) for tags in (["cards", "king"], ["bird"])]
    [['card', 'king'], ['animal', 'bird']]
    """

    blocked: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    implies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    separator: str = "|"
    suggest_branches: bool = True

    def __repr__(self) -> str:
        """Return its size, in a line."""
        counts = f"{len(self.blocked)} blocked, {len(self.aliases)} other names"
        return f"Vocabulary({counts}, {len(self.implies)} implications)"

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read a TOML file: `blocked`, `separator`, `suggest_branches`, `[aliases]`, `[implies]`.

        These names are fixed; unknown ones are refused.

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
        """Make one of plain values, as `get_state` returns and a file holds them.

        Anything may have written them, so that all is checked. `where` is what errors call it.
        """
        tables = content if isinstance(content, Mapping) else {"no table": content}
        unknown_names = set()
        for name in map(str, tables):
            if name not in _FIELDS:
                unknown_names.add(name if is_text(name) else "?")
        blocked = tables.get("blocked", [])
        aliases = tables.get("aliases", {})
        implies = tables.get("implies", {})
        separator = tables.get("separator", cls.separator)
        suggest_branches = tables.get("suggest_branches", True)
        are_tables = isinstance(aliases, Mapping) and isinstance(implies, Mapping)
        implied_lists: dict[str, Any] = {}
        if are_tables:
            for label, implied in implies.items():
                implied_lists[label] = [implied] if isinstance(implied, str) else implied
        if (
            unknown_names
            or not are_tables
            or not isinstance(separator, str)
            or not is_text(separator)
            or len(separator) > _MOST_SEPARATOR_LETTERS
            or not isinstance(suggest_branches, bool)
            or not _are_labels(blocked)
            or not _are_labels([*aliases, *aliases.values(), *implies])
            or not all(map(_are_labels, implied_lists.values()))
        ):
            ending = "."
            if unknown_names:
                ending = f"; unknown: {first_few(sorted(unknown_names)):.80}."
            raise InputError(
                f"{where} holds a list of labels as `blocked`, a table of other names as "
                f'[aliases] (cards = "card") and one of lists as [implies] (bird = ["animal"]); it '
                "may hold a short text as `separator` and true or false as `suggest_branches`"
                f"{ending}"
            )
        implied_tuples = {label: tuple(implied) for label, implied in implied_lists.items()}
        vocabulary = cls(tuple(blocked), dict(aliases), implied_tuples, separator, suggest_branches)
        try:
            vocabulary.resolve("")  # refuses aliases in a circle
        except InputError as error:
            raise InputError(f"{where} cannot be used: {error}") from error
        return vocabulary

    def get_state(self) -> dict[str, Any]:
        """Return it as plain values, which models on disk hold; see `from_state`."""
        implies = {label: list(implied) for label, implied in self.implies.items()}
        return {
            "blocked": list(self.blocked),
            "aliases": dict(self.aliases),
            "implies": implies,
            "separator": self.separator,
            "suggest_branches": self.suggest_branches,
        }

    @cached_property
    def _label_by_alias(self) -> dict[str, str]:
        """The label that each alias leads to in the end, by the alias's key.

        An alias may lead to another alias; a circle is refused.
        """
        target_by_key = {normalize_label(name): label for name, label in self.aliases.items()}
        label_by_alias: dict[str, str] = {}
        for key in target_by_key:
            passed_keys: dict[str, None] = {}  # on the way to the label
            while key in target_by_key and key not in label_by_alias:
                label = target_by_key[key]
                if key in passed_keys:
                    raise InputError(f"Aliases of a vocabulary lead round in a circle: {label}.")
                passed_keys[key] = None
                key = normalize_label(label)
            if passed_keys:
                final_label = label_by_alias.get(key, label)
                label_by_alias |= dict.fromkeys(passed_keys, final_label)
        return label_by_alias

    @cached_property
    def _implied_by_key(self) -> dict[str, tuple[str, ...]]:
        """The names that each label implies directly, by the label's key."""
        return {normalize_label(key): labels for key, labels in self.implies.items()}

    def __bool__(self) -> bool:
        return bool(self.blocked or self.aliases or self.implies)

    def has_paths(self, labels: Iterable[str]) -> bool:
        """Return whether some label is a path."""
        return any(self.ancestors(label) for label in labels)

    def ancestors(self, label: str) -> list[str]:
        """Return what lies above a label, the nearest first; empty for a flat one."""
        if not self.separator or self.separator not in label:
            return []
        from polyseme.base.paths import ancestors  # flat vocabularies need none of it

        return ancestors(label, self.separator)

    def below(self, branch: str, labels: Iterable[str]) -> list[str]:
        """Return the labels that lie below a branch, in their order."""
        key = normalize_label(branch)
        return [label for label in labels if key in map(normalize_label, self.ancestors(label))]

    def are_suggested(
        self, labels: Sequence[str], key: Callable[[str], str] = normalize_label
    ) -> list[bool]:
        """Return which labels may be suggested: those that neither are blocked nor lie below one.

        Without `suggest_branches`, labels that others lie below are not suggested either. `key`
        returns what labels are compared by.
        """
        blocked_keys = set(map(key, self.blocked))
        branch_keys: set[str] = set()
        if not self.suggest_branches:
            for label in labels:
                branch_keys.update(map(key, self.ancestors(label)))
        are_suggested = []
        for label in labels:
            lineage = map(key, [label, *self.ancestors(label)])
            is_blocked = not blocked_keys.isdisjoint(lineage)
            is_branch = key(label) in branch_keys
            are_suggested.append(not (is_blocked or is_branch))
        return are_suggested

    # ------------------------------------------------------------------ changes

    def with_blocked(self, labels: Iterable[str], *, undo: bool = False) -> Vocabulary:
        """Return it with more labels blocked; with `undo` with these labels free again."""
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
        """Return it with `name` as another name for a label, which is no alias itself any more."""
        label_key = normalize_label(label)
        aliases = {}
        for alias, target in self.aliases.items():
            if normalize_label(alias) != label_key:
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
        """Return the label that a name stands for; the name itself where it is no alias."""
        return self._label_by_alias.get(normalize_label(label), label)

    def implied(self, label: str) -> set[str]:
        """Return all labels that a label implies, directly or by way of others, not itself.

        A path implies what lies above it.
        """
        label_by_key: dict[str, str] = {}  # those found so far
        unfollowed = [label]
        while unfollowed:
            implying = unfollowed.pop()
            key = normalize_label(implying)
            for name in (*self._implied_by_key.get(key, ()), *self.ancestors(implying)):
                implied_label = self.resolve(name)
                implied_key = normalize_label(implied_label)
                if implied_key not in label_by_key:
                    label_by_key[implied_key] = implied_label
                    unfollowed.append(implied_label)
        own_key = normalize_label(label)
        label_by_key.pop(own_key, None)  # labels may imply each other
        return set(label_by_key.values())

    def complete(self, tags: Collection[str]) -> list[str]:
        """Return a tag set under its labels' own names, with implied labels behind, each once."""
        labels = [self.resolve(tag) for tag in tags]
        completed = dict.fromkeys(labels)  # a set in order
        for label in labels:
            implied_labels = self.implied(label)
            completed |= dict.fromkeys(implied_labels)
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
        if not (self.aliases or self.implies or self.has_paths(corpus.labels)):
            return corpus
        labels = [self.resolve(label) for label in corpus.labels]
        # Each label of the corpus, a source, goes to its own column and to those it implies.
        target_by_key: dict[str, int] = {}
        name_by_key: dict[str, str] = {}
        sources: list[int] = []
        targets: list[int] = []
        for source, label in enumerate(labels):
            implied_labels = self.implied(label)
            for implied_label in implied_labels:
                name_by_key[corpus.key(implied_label)] = implied_label
            for name in (label, *sorted(implied_labels)):
                next_target = len(target_by_key)
                target = target_by_key.setdefault(corpus.key(name), next_target)
                sources.append(source)
                targets.append(target)
        # Where a label is implied as well, its own spelling counts.
        for label in labels:
            name_by_key[corpus.key(label)] = label
        names = [name_by_key[key] for key in target_by_key]

        weights = np.ones(len(sources), dtype=np.int32)
        shape = (len(labels), len(target_by_key))
        targets_of_sources = sp.csr_matrix((weights, (sources, targets)), shape)
        counts = corpus.matrix.astype(np.int32) @ targets_of_sources
        completed = LabelCorpus.from_indicator(
            counts.astype(bool), names, ids=corpus.ids, normalize=corpus.normalize
        )
        return replace(
            completed, groups=corpus.groups, splits=corpus.splits, numbered=corpus.numbered
        )

    def implied_columns(self, labels: Sequence[str]) -> list[tuple[int, int]]:
        """Return pairs of columns where the score of the first may raise the second's.

        The first label is an alias of the second, or implies it. Columns are places in `labels`;
        the pairs are sorted.
        """
        if not (self.aliases or self.implies or self.has_paths(labels)):
            return []
        column_by_key = {normalize_label(label): column for column, label in enumerate(labels)}
        pairs = []
        for column, label in enumerate(labels):
            own_label = self.resolve(label)
            implied_labels = self.implied(own_label)
            for name in {own_label, *implied_labels}:
                key = normalize_label(name)
                target = column_by_key.get(key, column)
                if target != column:
                    pair = (column, target)
                    pairs.append(pair)
        return sorted(pairs)


def as_vocabulary(vocabulary: Vocabulary | str | Path | None) -> Vocabulary:
    """Return a vocabulary as it is, one read from a file, or an empty one for None."""
    if vocabulary is None:
        return Vocabulary()
    if isinstance(vocabulary, Vocabulary):
        return vocabulary
    return Vocabulary.read(check_path(vocabulary, subject="A vocabulary's file"))


def _are_labels(values: object) -> bool:
    """Return whether values are a list of texts, none of them blank."""
    if not isinstance(values, list):
        return False
    for value in values:
        if not isinstance(value, str):
            return False
        is_blank = not value.strip()
        if is_blank or not is_text(value):
            return False
    return True
