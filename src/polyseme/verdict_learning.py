"""Learning from verdicts at once, and asking for more: yes and no to single labels of items.

In: verdicts, and items. Out: a tagger whose scores agree with them, and questions.

Terms: a *verdict* is a yes or no to one label of one item, an event with a *number* in the log;
it *stands* unless it was undone or answered again. Items are known by *name*: their id, file or
row number. An item's *vector* (its random projection, then its code) is kept in the log with its
first verdict, so that labels can be corrected without its features.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import (
    InputError,
    RandomState,
    as_generator,
    check_fitted,
    check_iterable,
    check_number,
    first_few,
)
from polyseme.documents.corpus import Documents
from polyseme.documents.tags import carried_labels
from polyseme.fitted_tagger import FittedTagger
from polyseme.scoring.encoded import item_names, item_vectors, table_rows
from polyseme.scoring.scorer import Items

if TYPE_CHECKING:
    from polyseme.feedback.active_learning import Question
    from polyseme.feedback.corrections import Corrections
    from polyseme.feedback.verdict_log import Verdict, VerdictLog


class VerdictLearning(FittedTagger):
    """The methods of a tagger that are about verdicts."""

    def learn(
        self,
        verdicts: Iterable[Verdict | tuple[Any, ...]],
        X: object = None,
        seen: int | None = None,
    ) -> tuple[int, ...]:
        """Learn from yes or no to single labels of items, at once and without training.

        A label's logits are corrected in closed form (see `polyseme.scoring.correction_fit`);
        others stay as they are. Labels may be seen, unseen, blocked or not known at all: then they
        are new, and known by these answers alone. Verdicts are events in `verdicts_`, which the
        next fit learns from.

        Parameters
        ----------
        verdicts : iterable of Verdict, or of tuples that begin with item, label and answer
            Items are ids of X, its files, or numbers of its rows. Without X they are items that
            verdicts were given on before; an item's name is never opened as a file.
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        seen : int, optional
            The number of the last event of `verdicts_` that whoever answers has seen: where others
            have since said otherwise, a `ConflictError` is raised and nothing is taken.

        Returns
        -------
        tuple of int
            The verdicts' numbers, for `undo`.
        """
        from polyseme.feedback.standing_verdicts import as_verdict

        check_fitted(self, "store_")
        self._check_featured()
        check_iterable(verdicts, "verdicts")
        space_digest = self.space_.digest_
        checked_verdicts = [as_verdict(verdict, space_digest) for verdict in verdicts]
        new_verdicts = self._with_resolved_labels(checked_verdicts)
        self.refresh()  # others may have answered for these items since
        items = list(dict.fromkeys(verdict.item for verdict in new_verdicts))
        vectors = self._new_vectors(items, X)
        log = self.verdicts_
        numbers = log.append(new_verdicts, vectors, space_digest, seen, self._key_of_name)
        self.refresh()
        return tuple(numbers)

    def _with_resolved_labels(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return verdicts under their labels' own names, tidied as those of documents are."""
        if not verdicts:
            return []
        labels = {verdict.label for verdict in verdicts}
        names = self._names(sorted(labels))
        name_by_key = {self._key(name): name for name in names}
        resolved_verdicts = []
        for verdict in verdicts:
            key = self._key(verdict.label)
            name = name_by_key[key]
            label = self.vocabulary_.resolve(name)
            resolved_verdicts.append(verdict._replace(label=label))
        return resolved_verdicts

    def _new_vectors(self, names: list[str], X: object) -> dict[str, NDArray[np.float32]]:
        """Compute the vectors of those of some items that have none in the log yet, by name.

        Parameters
        ----------
        names : list of str
            The items that verdicts are about, each once.
        X : as for `learn`
            Must have those items that are new. Where it has no ids, and an item is known by its
            row's number, the row must have the features that it had then.
        """
        feedback = self._corrections.feedback
        known_vectors = feedback.vectors(names)
        new_names = [name for name in names if name not in known_vectors]
        if X is None:
            if new_names:
                raise InputError(
                    f"Nothing is known of the item '{first_few(new_names[:1])}'; give `X` with its "
                    "features, or its file."
                )
            return {}
        features = self._features_of(X)
        ids = item_names(X, self.features_)
        all_names = map(str, range(features.shape[0])) if ids is None else ids
        row_by_name = {name: row for row, name in enumerate(all_names)}
        missing_names = [name for name in new_names if name not in row_by_name]
        if missing_names:
            naming = "the numbers of their rows, from 0" if ids is None else "their ids"
            raise InputError(
                f"X has no item '{first_few(missing_names[:1])}'; verdicts name items by {naming}."
            )
        if ids is None:
            known_rows = {name: row_by_name[name] for name in known_vectors if name in row_by_name}
            feedback.check_rows(known_rows, partial(self._project, features))
        if not new_names:
            return {}
        new_rows = [row_by_name[name] for name in new_names]
        new_features = table_rows(features, new_rows)
        new_vectors = item_vectors(self.space_, new_features)
        return dict(zip(new_names, new_vectors, strict=True))

    def undo(self, numbers: Iterable[int]) -> Self:
        """Undo verdicts; every score is then as if they had never been given.

        Parameters
        ----------
        numbers : iterable of int
            As `learn` gave them.
        """
        check_fitted(self, "store_")
        self.verdicts_.undo(numbers)
        self.refresh()
        return self

    def use_log(self, log: VerdictLog, X: object = None) -> Self:
        """Learn from the verdicts of another log, in place of those it has.

        Parameters
        ----------
        log : VerdictLog
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
            Items with ids: those of them that verdicts are about and that the space has not coded
            yet are coded. By default verdicts on such items do not count.
        """
        from polyseme.feedback.standing_verdicts import Feedback

        check_fitted(self, "store_")
        space_digest = self.space_.digest_
        feedback = Feedback(log, space_digest)
        ids = None if X is None else item_names(X, self.features_)
        if ids is not None:
            answered_items = feedback.items()
            coded_items = log.vector_keys(space_digest, answered_items)
            uncoded_items = answered_items.keys() - coded_items.keys()
            rows = [row for row, name in enumerate(ids) if name in uncoded_items]
            if rows:
                features = self._features_of(X)
                new_features = table_rows(features, rows)
                vectors = item_vectors(self.space_, new_features)
                row_ids = [ids[row] for row in rows]
                vector_by_id = dict(zip(row_ids, vectors, strict=True))
                log.append([], vector_by_id, space_digest)
                feedback, _ = feedback.refreshed()
        # Labels that only the former log had lose their corrections.
        labels = {*self._corrections.feedback.labels, *feedback.labels}
        corrections = self._corrections.with_feedback(feedback)
        self._use_corrections(corrections, labels)
        return self

    def refresh(self) -> bool:
        """Learn from verdicts that others have added to `verdicts_` or taken back since.

        Every score is then as if the tagger were loaded anew. `learn` and `undo` do this as well;
        where nothing is new it costs next to nothing.

        Returns
        -------
        bool
            Whether anything has changed.

        Notes
        -----
        This method, `learn`, `undo` and all that change labels or documents replace what they
        change: a shallow copy of a tagger can learn while other threads rank and ask with the
        original, and then take its place.
        """
        check_fitted(self, "store_")
        corrections, labels = self._corrections.refreshed()
        if corrections is not self._corrections:
            self._use_corrections(corrections, labels)
        return bool(labels)

    def _use_corrections(self, corrections: Corrections, labels: Collection[str]) -> None:
        """Correct the labels that verdicts have changed for; if that fails, nothing changes."""
        self._update(labels, _corrections=corrections)
        # Other processes that open the same log find the fitted corrections there.
        self._corrections = self._corrections.stored()

    def _project(self, features: Items, rows: Sequence[int]) -> NDArray[np.float32]:
        """Return the random projections of some rows of features, (n_rows, projection_size)."""
        row_features = table_rows(features, rows)
        return self.space_.project(row_features)

    def ask(
        self,
        X: object,
        label: str | None = None,
        k: int = 30,
        strategy: str = "active",
        tags: Documents | None = None,
        random_state: RandomState = 0,
    ) -> list[Question]:
        """Select what to ask next: which label of which item is worth a yes or no.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        label : str, optional
            Ask about this label alone; by default about any.
        k : int
            How many questions.
        strategy : {"active", "likeliest", "random", "errors"}
            Half of the items the likeliest, half those it is least certain of; the likeliest; any;
            or tags that are perhaps missing or doubtful, for which `tags` must be given.
        tags : as y of `fit`, optional
            The tags that items have: they are not asked about, but where errors are looked for.
        random_state : int, numpy Generator or None

        Returns
        -------
        list of Question
            What was answered before is not asked again.

        Notes
        -----
        Errors are only what the model really disagrees with, which may be nothing. A tag that an
        item has is doubtful where its probability is below one half and its logit two standard
        deviations below the mean of the other items that have it. A tag is perhaps missing where
        its probability is at least one half and its logit five standard deviations above the mean
        of the other items without it. Items without any tag are left out: nobody has tagged them.
        Items of the training are scored by all members of the ensemble, most of which have seen
        their tags. On tags with errors made on purpose such lists are as precise as those of a
        model that has not seen the items, or more so; see `Spread` in
        `polyseme.feedback.active_learning`.
        """
        from polyseme.feedback.active_learning import check_strategy
        from polyseme.feedback.questions import select_questions

        check_number("k", k, owner="ask", low=1, whole=True)
        check_strategy(strategy, tagged=tags is not None)
        check_fitted(self, "store_")
        features = self._features_of(X)
        n_items = features.shape[0]
        names = item_names(X, self.features_)
        if names is None:
            names = [str(row) for row in range(n_items)]
        column = None
        if label is not None:
            column = self._column(label)
            if not self._scorer.in_use[column]:
                raise InputError(
                    f"'{label}' is blocked or was removed, so that nothing is asked about it."
                )
        carried_tags = None  # 0/1, (n_items, n_classes)
        if tags is not None:
            classes = self.classes_.tolist()
            carried_tags = carried_labels(
                X, tags, classes, self.vocabulary_, normalize=self.normalize_labels_
            )
            n_tag_sets = carried_tags.shape[0]
            if n_tag_sets != n_items:
                raise InputError(f"`tags` has {n_tag_sets} tag sets for {n_items} items.")
        return select_questions(
            self._scorer,
            features,
            names,
            self.classes_,
            column,
            carried_tags,
            self._corrections.feedback.triples(),
            self._answered_column,
            k,
            strategy,
            as_generator(random_state),
        )
