"""The life of a tagger, beside a plain model of it: a hypothesis state machine.

Documents and labels come and go, answers are given and taken back, labels are blocked, renamed and
merged, the tagger is saved, loaded, and killed while it is saved or learns. After every step it must
know what a few dictionaries know; its scores must be probabilities, the same to the bit after
saving and loading and after undoing; and at the end another tagger that is told the outcome in one
go must agree. Each try is one life.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from torture import Tried

_LEARNED = [f"tag {letter}" for letter in "abcdefgh"]
_UNSEEN = ["unseen x", "unseen y"]
_NEW = ["new 1", "new 2", "Neue größe", "new 4"]
_BY_NAME = ["named 1", "named 2"]
_ITEMS = [f"item {number}" for number in range(5)]
_LIVES, _STEPS = 12, 14
_X = np.random.default_rng(3).normal(size=(len(_ITEMS), 5))

labels_of_documents = st.lists(
    st.sampled_from([*_LEARNED, *_UNSEEN, *_NEW]), min_size=1, max_size=4
)
documents = st.lists(labels_of_documents, min_size=1, max_size=3)
known = st.sampled_from([*_LEARNED, *_UNSEEN, *_NEW, *_BY_NAME])
verdicts = st.lists(
    st.tuples(st.sampled_from(_ITEMS), known, st.booleans()), min_size=1, max_size=4
)


@cache
def _fitted(priming: float) -> Path:
    """Fit a small tagger once; every life begins with a copy of its folder."""
    from polyseme import ZeroShotTagger
    from torture.models import _tiny_space

    rng = np.random.default_rng(0)
    halves = (_LEARNED[:5], _LEARNED[3:])
    sets = [rng.choice(halves[row % 2], size=3, replace=False).tolist() for row in range(30)]
    unseen = [["tag a", "unseen x"], ["tag h", "unseen x", "unseen y"]] * 3
    tagger = ZeroShotTagger(space=_tiny_space(priming=priming), n_validations=0, random_state=0)
    place = Path(tempfile.mkdtemp(prefix="life-")) / "model"
    tagger.fit(rng.normal(size=(30, 5)), sets, sets + unseen).save(place)
    return place


def _vectors() -> dict[str, np.ndarray]:
    """Return vectors of names; another name of a label means the same."""
    rng = np.random.default_rng(1)
    labels = [*_LEARNED, *_UNSEEN, *_BY_NAME]
    vectors = {label: rng.normal(size=4) for label in labels}
    for label in labels:
        for number in range(3):
            vectors[f"{label} renamed {number}"] = vectors[label]
    return vectors


class Life(RuleBasedStateMachine):
    """A tagger, and what it should know: documents, labels, names, verdicts."""

    n_lives = n_steps = 0

    def __init__(self) -> None:
        super().__init__()
        Life.n_lives += 1
        self.place = Path(tempfile.mkdtemp(prefix="life-"))

    @initialize(priming=st.sampled_from([0.0, 0.4]))
    def fit(self, priming: float) -> None:
        self.base = _fitted(priming)
        self.folder = self.place / "model"
        shutil.copytree(self.base, self.folder)
        self.tagger = self._loaded()
        store = self.tagger.store_
        # What is known: documents by id, the names that labels have now, and whose they were.
        self.documents = {id_: set(store.document(row)) for row, id_ in enumerate(store.ids)}
        self.first = list(self.documents)
        self.removed: set[str] = set()  # of the first documents
        self.learned = {label: label for label in [*_LEARNED, *_UNSEEN]}  # as fitted: as named
        self.names: dict[str, str] = {}  # other names of labels
        self.named: list[str] = []  # known by their names alone
        self.blocked: set[str] = set()
        self.said: dict[int, tuple[str, str, bool]] = {}  # verdicts in force, by number
        self.renamed: list[tuple[str, str, str]] = []
        self.comparable = True
        self.kept = list(self.documents)  # documents in the folder

    # ------------------------------------------------------------------ the plain model

    def _own(self, label: str) -> str:
        """Return the label that a name stands for."""
        while label in self.names:
            label = self.names[label]
        return label

    def _standing(self) -> dict[tuple[str, str], bool]:
        """Return the answers in force: of several the last."""
        return {(item, label): answer for item, label, answer in self.said.values()}

    def _answered(self) -> set[str]:
        return {self._own(label) for _, label in self._standing()}

    def _in_documents(self) -> set[str]:
        return set().union(*self.documents.values()) if self.documents else set()

    def _known(self) -> set[str]:
        learned = set(self.learned.values())
        return learned | self._in_documents() | set(self.named) | self._answered()

    # ------------------------------------------------------------------ the tagger

    def _loaded(self) -> Any:
        import polyseme

        return polyseme.load(self.folder)

    def _scores(self, tagger: Any = None) -> dict[tuple[str, int], float]:
        """Return the scores of all labels, by label and row."""
        tagger = self.tagger if tagger is None else tagger
        scores: dict[tuple[str, int], float] = {}
        labels = tagger.classes_.tolist()
        columns = tagger.predict_proba(_X).T.tolist()
        for label, column in zip(labels, columns, strict=True):
            for row, score in enumerate(column):
                scores[label, row] = score
        return scores

    def _table(self) -> Any:
        from polyseme.io import Table

        return Table(features=_X, ids=list(_ITEMS))

    def _killed(self, work: Callable[[], object], moment: int) -> bool:
        """Do work in another process that is killed at some file of it; say whether it was."""
        child = os.fork()
        if not child:
            left = moment

            def hook(event: str, _: object) -> None:
                nonlocal left
                if event in ("open", "os.rename", "os.remove", "os.mkdir", "sqlite3.connect"):
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(hook)
            try:
                work()
            finally:
                os._exit(0)
        return os.waitpid(child, 0)[1] != 0

    # ------------------------------------------------------------------ what happens

    @rule(new_documents=documents)
    def add_documents(self, new_documents: list[list[str]]) -> None:
        sets = [{self._own(label) for label in labels} for labels in new_documents]
        learned = set(self.learned.values())
        ids = self.tagger.add_documents(new_documents)
        with_learned_labels = [labels for labels in sets if labels & learned]
        assert len(ids) == len(with_learned_labels)
        assert not {*ids} & {*self.documents}
        self.documents |= dict(zip(ids, with_learned_labels, strict=True))
        self.named = [label for label in self.named if label not in self._in_documents()]

    @precondition(lambda self: len(self.documents) > 2)
    @rule(data=st.data())
    def remove_documents(self, data: Any) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.documents)), min_size=1, max_size=3))
        self.tagger.remove_documents(ids)
        for id_ in set(ids):
            del self.documents[id_]
        self.removed |= {*ids} & {*self.first}

    @rule(labels=st.lists(st.sampled_from(_BY_NAME), min_size=1, max_size=2, unique=True))
    def add_labels(self, labels: list[str]) -> None:
        before = self._known()
        added = self.tagger.add_labels(labels, _vectors())
        expected_labels = {label for label in labels if label not in before}
        assert {*added} == expected_labels
        self.named += added

    @rule(new_verdicts=verdicts)
    def learn(self, new_verdicts: list[tuple[str, str, bool]]) -> None:
        numbers = self.tagger.learn(new_verdicts, self._table())
        assert len(numbers) == len(new_verdicts)
        stored_verdicts = [(item, self._own(label), answer) for item, label, answer in new_verdicts]
        self.said |= dict(zip(numbers, stored_verdicts, strict=True))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def undo(self, data: Any) -> None:
        numbers = data.draw(st.lists(st.sampled_from(sorted(self.said)), min_size=1, unique=True))
        self.tagger.undo(numbers)
        for number in numbers:
            del self.said[number]

    @rule(new_verdicts=verdicts)
    def learn_and_undo(self, new_verdicts: list[tuple[str, str, bool]]) -> None:
        before = self._scores()
        self.tagger.undo(self.tagger.learn(new_verdicts, self._table()))
        assert self._scores() == pytest.approx(before, abs=1e-5), "undone, and other scores"

    @rule(label=known, undo=st.booleans())
    def block(self, label: str, undo: bool) -> None:
        stored_name = self._own(label)
        if stored_name in self._known():
            self.tagger.block([label], undo=undo)
            self.blocked = self.blocked - {stored_name} if undo else self.blocked | {stored_name}

    @rule(label=known, number=st.integers(0, 2))
    def rename(self, label: str, number: int) -> None:
        stored_name = self._own(label)
        name = f"{label} renamed {number}"
        documents = set(self.learned.values()) | self._in_documents()
        if stored_name in documents and name not in self._known() | set(self.names):
            self.tagger.rename(label, name)
            self._call("rename", stored_name, name)
            self.blocked = {
                name if blocked_name == stored_name else blocked_name
                for blocked_name in self.blocked
            }

    @rule(label=known, into=known)
    def merge(self, label: str, into: str) -> None:
        stored_name = self._own(label)
        target = self._own(into)
        documents = set(self.learned.values()) | self._in_documents()
        if stored_name != target and {stored_name, target} <= documents:
            self.tagger.merge(label, into)
            # A label that the first documents do not hold cannot stand for one that they do.
            learned = set(self.learned.values())
            self.comparable &= stored_name not in learned or target in learned
            self._call("merge", stored_name, target)

    @rule(label=known)
    def remove_labels(self, label: str) -> None:
        stored_name = self._own(label)
        if stored_name in self._known():
            self.tagger.remove_labels([label])
            for labels in self.documents.values():
                labels.discard(stored_name)
            self.named = [name for name in self.named if name != stored_name]
            self.said = {
                number: verdict
                for number, verdict in self.said.items()
                if self._own(verdict[1]) != stored_name
            }
            self.comparable = False  # documents may be left that nobody could add

    def _call(self, how: str, stored_name: str, name: str) -> None:
        """Note that a label is called otherwise from now on."""
        self.names[stored_name] = name
        self.renamed.append((how, stored_name, name))
        for labels in self.documents.values():
            if stored_name in labels:
                labels.remove(stored_name)
                labels.add(name)
        if how == "rename":
            self.learned = {
                first: name if now == stored_name else now for first, now in self.learned.items()
            }

    @rule()
    def save_and_load(self) -> None:
        before = self._scores()
        self.tagger.save(self.folder)
        self.tagger = self._loaded()
        assert self._scores() == pytest.approx(before, abs=1e-5), (
            "saved and loaded, and other scores"
        )
        self.kept = list(self.documents)

    @rule(moment=st.integers(0, 40))
    def killed_while_saving(self, moment: int) -> None:
        """Be killed while it is saved: the folder holds it as it was before, or as it is."""
        before = self._scores()
        killed = self._killed(lambda: self.tagger.save(self.folder), moment)
        loaded = self._loaded()
        assert list(loaded.store_.ids) in (self.kept, list(self.documents)), "neither old nor new"
        if not killed:
            assert self._scores(loaded) == pytest.approx(before, abs=1e-5), (
                "saved, and other scores"
            )
        # Another process may have saved it: what it has written may be saved over.
        self.tagger._digests = loaded._digests
        self.save_and_load()

    @rule(new_verdicts=verdicts, moment=st.integers(0, 12))
    def killed_while_learning(self, new_verdicts: list[tuple[str, str, bool]], moment: int) -> None:
        """Be killed while it learns: all answers are there or none."""
        self.save_and_load()
        n_before = self.tagger.verdicts_.count
        self._killed(lambda: self.tagger.learn(new_verdicts, self._table()), moment)
        self.tagger = self._loaded()
        n_more = self.tagger.verdicts_.count - n_before
        assert n_more in (0, len(new_verdicts)), f"{n_more} of {len(new_verdicts)} answers"
        if n_more:
            stored_verdicts = [
                (item, self._own(label), answer) for item, label, answer in new_verdicts
            ]
            self.said |= dict(
                zip(range(n_before + 1, n_before + 1 + n_more), stored_verdicts, strict=True)
            )

    # ------------------------------------------------------------------ what holds

    @invariant()
    def knows_what_the_plain_model_knows(self) -> None:
        Life.n_steps += 1
        tagger = self.tagger
        classes = set(tagger.classes_.tolist())
        assert len(classes) == len(tagger.classes_)
        assert classes == self._known()
        kinds = dict(zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True))
        expected = {
            now: "unseen" if first in _UNSEEN else "seen" for first, now in self.learned.items()
        }
        expected_kinds = {label: expected.get(label, "oov") for label in classes}
        assert kinds == expected_kinds
        store = tagger.store_
        documents = {id_: set(store.document(row)) for row, id_ in enumerate(store.ids)}
        assert documents == self.documents
        assert list(documents) == list(self.documents)
        standing = tagger.verdicts_.standing()
        assert {
            (verdict.item, self._own(verdict.label)): verdict.answer
            for verdict in sorted(standing, key=lambda verdict: verdict.number)
        } == self._by_own_names()
        assert {verdict.number for verdict in standing} <= {*self.said}

    def _by_own_names(self) -> dict[tuple[str, str], bool]:
        numbered_verdicts = sorted(self.said.items())
        return {(item, self._own(label)): answer for _, (item, label, answer) in numbered_verdicts}

    @invariant()
    def scores_are_probabilities_and_what_is_blocked_is_not_ranked(self) -> None:
        scores = self.tagger.predict_proba(_X)
        assert np.isfinite(scores).all()
        assert scores.min() >= 0
        assert scores.max() <= 1
        ranked, ordered = self.tagger.rank(_X, k=4)
        assert (np.diff(ordered, axis=1) <= 0).all()
        assert not {*ranked[ordered > 0].tolist()} & self.blocked

    def teardown(self) -> None:
        try:
            if hasattr(self, "tagger") and self.comparable:
                self._compare_with_one_told_in_one_go()
        finally:
            shutil.rmtree(self.place, ignore_errors=True)

    def _compare_with_one_told_in_one_go(self) -> None:
        """Have another tagger take the outcome at once."""
        import polyseme

        replayed: Any = polyseme.load(shutil.copytree(self.base, self.place / "other"))
        named = set(replayed.store_.labels)
        # Blocked before they are called otherwise: what is merged away takes no other with it.
        first = {now: label for label, now in self.learned.items()}
        replayed.block([first[label] for label in self.blocked if label in first])
        for how, stored_name, name in self.renamed:
            if stored_name in named and (how == "rename" or name in named):
                getattr(replayed, how)(stored_name, name)
                named = named - {stored_name} | {name} if how == "rename" else named
        # A later document may have the id of one that was removed.
        remaining = {*self.first} - self.removed
        later = {
            id_: sorted(labels) for id_, labels in self.documents.items() if id_ not in remaining
        }
        if later:
            replayed.add_documents([*later.values()])
        if self.removed:
            replayed.remove_documents(sorted(self.removed))
        if self.named:
            replayed.add_labels(self.named, _vectors())
        verdicts = [(item, label, answer) for (item, label), answer in self._by_own_names().items()]
        if verdicts:
            replayed.learn(verdicts, self._table())
        replayed.block(sorted((self.blocked & self._known()) - first.keys()))
        ours, theirs = (self._values(tagger) for tagger in (self.tagger, replayed))
        for label in self._known():
            assert np.allclose(ours[label], theirs[label], rtol=1e-5, atol=1e-7), label

    def _values(self, tagger: Any) -> dict[str, np.ndarray]:
        return dict(zip(tagger.classes_.tolist(), tagger.predict_proba(_X).T, strict=True))


def live(number: int, *, shrinking: bool = False) -> None:
    """Live some lives, drawn by a number; look for the shortest one that fails where asked."""
    quiet = settings(
        max_examples=_LIVES,
        stateful_step_count=_STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrinking else [Phase.generate],
        verbosity=Verbosity.normal,
        print_blob=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_state_machine_as_test(seed(number)(Life), settings=quiet)


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Live again and again; `python -m torture.life NUMBER` finds the shortest life that fails."""
    while True:
        number = rng.randrange(2**40)
        before = Life.n_lives
        try:
            live(number)
        except Exception as error:
            message = " ".join([*getattr(error, "__notes__", ()), f"{error!r:.300}"])
            yield Tried(f"lives {number}", f"raw {type(error).__name__}", False, message)
        else:
            for life in range(Life.n_lives - before):
                yield Tried(f"lives {number}, {life}", "holds", True)


if __name__ == "__main__":
    live(int(sys.argv[1]), shrinking=True)
