"""A refit in the background: a served model is fitted again to the items that people review.

In: the current model, the collection with its tags, and people's answers. Out: a fitted model in
its place, or one sentence that says why not; meanwhile the former one answers.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from polyseme.base.estimator import copy_of
from polyseme.base.validation import InputError
from polyseme.documents.corpus import LabelCorpus
from polyseme.fitting.warm_start import feature_digests, name_digests
from polyseme.scoring.encoded import EncodedItems, item_names
from polyseme.tagger import ZeroShotTagger

if TYPE_CHECKING:
    from polyseme.studio.collection import Collection
    from polyseme.studio.host import ModelHost, Snapshot

# The largest share of the items of the former fit that may be missing among those of the service.
_MOST_MISSING = 0.1
_log = logging.getLogger("polyseme.studio")


class RefitRunningError(InputError):
    """A refit is running already."""


class _StoppedError(Exception):
    """The service ends, and with it the training."""


@dataclass(frozen=True)
class RefitStatus:
    """How far a refit is.

    Attributes
    ----------
    state : {"none", "running", "done", "failed"}
    rounds_done, rounds : int
        Of the training; 0 before it begins.
    reason : str or None
        Why it failed, in a sentence.
    """

    state: Literal["none", "running", "done", "failed"] = "none"
    rounds_done: int = 0
    rounds: int = 0
    reason: str | None = None


class Refitting:
    """The refits of one model, one at a time, in a thread.

    Parameters
    ----------
    host : ModelHost

    Attributes
    ----------
    status : RefitStatus
        Of the refit that runs, or of the last one; replaced, never changed.
    """

    def __init__(self, host: ModelHost) -> None:
        self.host = host
        self.status = RefitStatus()
        self._starting = threading.Lock()
        self._must_stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, author: str | None = None) -> None:
        """Start a refit, and return at once.

        Parameters
        ----------
        author : str, optional
            For the list of versions.

        Raises
        ------
        RefitRunningError
            Where one is running.
        InputError
            Where the items do not suffice for a fit.
        """
        with self._starting:
            if self.status.state == "running":
                raise RefitRunningError("A refit of this model is running already.")
            before = self.host.snapshot
            data = training_data(before, self.host.collection)
            self._must_stop.clear()
            self.status = RefitStatus("running")
            self._thread = threading.Thread(
                target=self._run, args=(before, data, author), name="refit", daemon=True
            )
            self._thread.start()

    def wait(self) -> RefitStatus:
        """Return the status once no refit is running."""
        if self._thread is not None:
            self._thread.join()
        return self.status

    def stop(self) -> None:
        """Stop a refit at the end of its round; the model stays as it is."""
        self._must_stop.set()

    def _run(self, before: Snapshot, data: dict[str, Any], author: str | None) -> None:
        """Fit a tagger to `training_data` and use it; if anything fails, the former one goes on."""
        try:
            fitted = new_tagger(before.tagger)
            fitted.fit(**data, warm_start_from=before.tagger, progress=self._note_progress)
            self.host.adopt(fitted, before, author)
        except _StoppedError:
            self.status = RefitStatus("failed", reason="The service ended.")
        except Exception as error:
            reason = str(error) or type(error).__name__
            self.status = replace(self.status, state="failed", reason=f"Not refitted: {reason}")
            if not isinstance(error, InputError):
                _log.exception("%s: the refit failed", self.host.name)
        else:
            self.status = replace(self.status, state="done")
            self._make_ready()

    def _make_ready(self) -> None:
        """Encode the items and lay out the map, so that no request has to wait for it."""
        try:
            self.host.warm()
            self.host.lay_out()
        except Exception:
            _log.exception("%s: the refitted model could not be made ready", self.host.name)

    def _note_progress(self, done: int, total: int) -> None:
        """Note how many rounds of the training are done; raise to end it where it must stop."""
        if self._must_stop.is_set():
            raise _StoppedError
        self.status = RefitStatus("running", done, total)


def new_tagger(former: ZeroShotTagger) -> ZeroShotTagger:
    """Return a tagger that is not fitted yet, with the parameters of a fitted one.

    It saves no checkpoint: where a refit is cut short, the former model is still there.
    """
    extractor = former.features_
    return ZeroShotTagger(
        space=copy_of(former.space_).set_params(checkpoint=None),
        features=None if extractor is None else copy_of(extractor),
        normalize_labels=former.normalize_labels_,
        vocabulary=former.vocabulary_,
        random_state=0,
    )


def training_data(snapshot: Snapshot, collection: Collection | None) -> dict[str, Any]:
    """Return the arguments of `ZeroShotTagger.fit` for a refit.

    Items have their own tags, with accepted ones and without refused ones. Items without any tag
    are the pool. Label sets are the known documents that were no items' own.

    Parameters
    ----------
    snapshot : Snapshot
        The state that the refit starts from.
    collection : Collection, optional

    Raises
    ------
    InputError
        Where items of the former fit are missing, so that what it learned of them would be lost,
        where no item has a tag, or where the label sets of the former fit are not known.
    """
    tagger = snapshot.tagger
    if collection is None or not tagger.n_features_in_:
        raise InputError("A refit needs the items with their tags; start the service with --items.")
    tags_by_name = dict(snapshot.reviewed_tags(collection))
    if not tags_by_name:
        raise InputError("None of the items has a tag, so there is nothing to fit to.")
    advice = "fit it by `polyseme fit --update` with all items"
    all_items = collection.select(collection.ids)
    n_missing, n_former = missing_items(tagger, all_items)
    if n_missing > _MOST_MISSING * n_former:
        raise InputError(
            f"{n_missing:,} of the {n_former:,} items that this model was fitted to are not among "
            f"the items of the service; {advice}."
        )
    label_sets = own_label_sets(tagger)
    if label_sets is None:
        raise InputError(
            "What taught this model what labels mean cannot be told from its items' own tags; "
            f"{advice}."
        )
    names = list(tags_by_name)
    labels = LabelCorpus.from_documents(
        tags_by_name.values(), ids=names, normalize=tagger.normalize_labels_
    )
    untagged_names = [name for name in collection.ids if name not in tags_by_name]
    return {
        "X": collection.select(names),
        "y": labels,
        "label_sets": label_sets if len(label_sets) else None,
        "unlabelled": collection.select(untagged_names) if untagged_names else None,
    }


def missing_items(tagger: ZeroShotTagger, X: Any) -> tuple[int, int]:
    """Count the items of the last fit that are not among X, and all items that it had.

    Items X, as the tagger takes them, are the same by their features or by their names. The tagger
    keeps digests of both (`document_keys_`), not the features themselves.
    """
    features: Any = tagger._features_of(X)
    if isinstance(features, EncodedItems):
        features = features.features
    keys = tagger.document_keys_
    are_items = keys.of_items
    names = item_names(X, tagger.features_) or ()
    fitted_features = keys.items[are_items]
    fitted_names = keys.names[are_items]
    are_present = np.isin(fitted_features, feature_digests(tagger.space_.own_columns(features)))
    are_present |= np.isin(fitted_names, name_digests(names))
    n_items = int(are_items.sum())
    n_present = int(are_present.sum())
    return n_items - n_present, n_items


def own_label_sets(tagger: ZeroShotTagger) -> LabelCorpus | None:
    """Return the known tag sets that are no item's own; None where that is not known.

    Those of the last fit without the ones of its items, and all that were added since.
    """
    store = tagger.store_
    keys = tagger.document_keys_
    are_documents = keys.documents  # other keys are of items without tags
    are_items = keys.of_items[are_documents]
    # Where documents were removed since, or items brought labels of their own, keys and documents
    # do not go together any more.
    are_oov = tagger.space_.seen_columns >= tagger.n_vocabulary_
    if int(are_documents.sum()) != tagger.n_fitted_ or are_oov.any():
        return None
    # Documents of the fit come first in the store, those that were added since after them.
    n_added = len(store.ids) - len(are_items)
    are_label_sets = np.append(~are_items, np.ones(n_added, bool))
    set_rows = np.flatnonzero(are_label_sets).tolist()
    return LabelCorpus.from_documents(
        [store.document(row) for row in set_rows],
        ids=[store.ids[row] for row in set_rows],
        normalize=tagger.normalize_labels_,
    )
