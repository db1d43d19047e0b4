"""Proof that what a split hides did not reach training.

In: a split, and as far as there are any the features, what was handed to `fit`, and the fitted
model. Out: a `Receipt` of everything that was checked.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.corpus import LabelCorpus
from polyseme.splits.labels import carries
from polyseme.splits.split import INSTANCES, SEMANTICS, ZeroShotSplit
from polyseme_experiments.audit.learned import check_embedding, check_mappers, check_ranker
from polyseme_experiments.audit.receipt import Check, Receipt, check, note

# What `fit` should have got, by the names of `Given`.
_DOCUMENTS: dict[str, Callable[[ZeroShotSplit], LabelCorpus]] = {
    "documents": lambda split: split.instances("train"),
    "semantics": ZeroShotSplit.known,
    "teaching": ZeroShotSplit.teaching,
    "held_out": ZeroShotSplit.held_out,
}


@dataclass(frozen=True, eq=False)
class Given:
    """What was handed to `fit`; what is None is not looked at.

    Attributes
    ----------
    X : array, shape (n, n_features), or None
        The training features.
    documents : LabelCorpus or None
        The training instances' documents.
    semantics : LabelCorpus or None
        The known label documents.
    teaching, held_out : LabelCorpus or None
        The documents that taught the concept space and those that stopped its training.
    """

    X: NDArray[np.generic] | None = None
    documents: LabelCorpus | None = None
    semantics: LabelCorpus | None = None
    teaching: LabelCorpus | None = None
    held_out: LabelCorpus | None = None


def audit(
    split: ZeroShotSplit,
    *,
    X: NDArray[np.generic] | None = None,
    feature_names: Sequence[str] | None = None,
    detectors: bool = False,
    given: Given | None = None,
    fitted: object = None,
    relearn_topics: bool = False,
) -> Receipt:
    """Check a split, what was handed to `fit`, and what was learned.

    Parameters
    ----------
    split : ZeroShotSplit
    X : array, shape (n_documents, n_features), optional
        The features of all instances of `split.target`, with the columns that are used.
    feature_names : sequence of str, optional
        Their columns.
    detectors : bool
        Whether a column was trained on the label of the same name, so that none may be named
        after an unseen label.
    given : Given, optional
        What was handed to `fit`.
    fitted : ConceptEmbedding, tagger or baseline, optional
        What was learned. Whatever can be learned again at once (idf, label descriptors, scales of
        the features) is, from the split alone, and must be the same bit for bit.
    relearn_topics : bool
        Whether topics are learned again too, which takes seconds.

    Returns
    -------
    Receipt
        Notes say what should be known but is no leak, such as how many test documents are known.
    """
    if X is not None and len(X) != len(split.target):
        raise InputError(
            f"`X` of `audit` has {len(X)} rows; expected one for each of the {len(split.target)} "
            "documents of the split's target."
        )
    checks = [*_of_split(split), *_of_groups(split)]
    if detectors:
        checks.append(_of_columns(split, feature_names))
    if given is not None:
        checks += _of_given(split, given, X)
    if X is not None:
        checks.append(_of_repeats(split, X, given))
    if fitted is not None:
        embedding = getattr(fitted, "embedding_", fitted)
        checks += check_embedding(split, embedding, relearn_topics=relearn_topics)
        checks += check_ranker(split, fitted)
        if X is not None:
            checks += check_mappers(split, X, fitted)
    return Receipt(tuple(checks))


# ---------------------------------------------------------------------- the split


def _of_split(split: ZeroShotSplit) -> Iterator[Check]:
    """Check the sets themselves."""
    names = {name: _ids(split, name) for name in SEMANTICS + INSTANCES}
    digest = hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()
    sizes = ", ".join(f"{name} {len(ids)}" for name, ids in names.items())
    yield note("sets", sizes, len(names), f"documents' names have the digest {digest[:16]}")
    hidden = carries(split.target, split.labels.unseen)
    for part in ("train", "validation"):
        rows = getattr(split, part)
        yield check(
            f"no unseen label in {part}",
            f"{len(rows)} instances, {len(split.labels.unseen)} unseen labels",
            [split.target.ids[row] for row in rows[hidden[rows]]],
            "none carries one",
            "instances that carry one",
        )
    yield _disjoint("instance sets apart", names, INSTANCES)
    yield _disjoint("semantics sets apart", names, SEMANTICS)
    outside = carries(split.source, split.labels.oov)
    taught = np.union1d(split.semantics, split.semantics_validation)
    yield check(
        "no oov label in semantics",
        f"{len(taught)} documents, {len(split.labels.oov)} oov labels",
        [split.source.ids[row] for row in taught[outside[taught]]],
        "none holds one",
        "documents that hold one",
    )
    own = split.own_documents()
    yield note(
        "own documents",
        f"{len(own)} test instances",
        int(own.sum()),
        f"{int(own.sum())} have their own document among the known ones",
    )
    if split.source is split.target:
        stopping = len(np.intersect1d(split.semantics_validation, split.test))
        yield note(
            "stopping documents",
            f"{len(split.semantics_validation)} documents of semantics_validation",
            stopping,
            f"{stopping} are those of test instances",
        )


def _ids(split: ZeroShotSplit, name: str) -> list[str]:
    """Name the documents of one set."""
    corpus = split.source if name in SEMANTICS else split.target
    return [corpus.ids[row] for row in getattr(split, name)]


def _disjoint(name: str, ids: dict[str, list[str]], sets: Sequence[str]) -> Check:
    """Check that no document is in two sets."""
    every = Counter(one for part in sets for one in ids[part])
    twice = [one for one, times in every.items() if times > 1]
    return check(
        name,
        f"{', '.join(sets)}: {every.total()} documents",
        twice,
        "none is in two",
        "in two sets",
    )


def _of_groups(split: ZeroShotSplit) -> Iterator[Check]:
    """Check that no group of a test instance is among the training instances' groups."""
    groups = split.target.groups
    if groups is None:
        yield note("test groups", "the target's documents", 0, "they name no groups")
        return
    tested = {groups[row] for row in split.test}
    trained = sorted(tested & {groups[row] for row in split.train})
    looked_at = f"{len(tested)} groups of {len(split.test)} test instances"
    if split.by_group:
        yield check(
            "no test group in train",
            looked_at,
            trained,
            "none has a training instance",
            "groups that have one",
        )
    else:
        yield note(
            "test groups", looked_at, len(trained), f"{len(trained)} have a training instance"
        )
    if split.source.groups is not None:
        taught = {split.source.groups[row] for row in split.known_rows}
        shared = len(tested & taught)
        yield note("semantics groups", looked_at, shared, f"{shared} have a known label document")


def _of_columns(split: ZeroShotSplit, feature_names: Sequence[str] | None) -> Check:
    """Check that no column of the features detects an unseen label."""
    if feature_names is None:
        raise InputError("`audit` needs `feature_names` to check the columns of detectors.")
    key = split.target.key
    hidden = {key(label) for label in split.labels.unseen}
    return check(
        "no detector of an unseen label",
        f"{len(feature_names)} columns",
        [name for name in feature_names if key(name) in hidden],
        "no column is named after one",
        "columns named after one",
    )


# ---------------------------------------------------------------------- what was handed over


def _of_given(split: ZeroShotSplit, given: Given, X: NDArray[np.generic] | None) -> Iterator[Check]:
    """Check that `fit` got the split's rows, in the same order."""
    for name, of_split in _DOCUMENTS.items():
        corpus: LabelCorpus | None = getattr(given, name)
        if corpus is not None:
            yield _same_documents(f"given {name} are the split's", corpus, of_split(split))
    if given.X is not None and X is not None:
        rows, expected = _row_bytes(given.X), _row_bytes(X[split.train])
        differ = [
            str(place)
            for place, (one, other) in enumerate(zip(rows, expected, strict=False))
            if one != other
        ]
        if len(rows) != len(expected):
            differ.append(f"{len(rows)} rows instead of {len(expected)}")
        digest = hashlib.sha256(b"".join(rows)).hexdigest()
        yield check(
            "given X is the split's",
            f"{len(rows)} rows of {np.shape(given.X)[1]} features",
            differ,
            f"bit for bit, digest {digest[:16]}",
            "rows that differ",
        )


def _same_documents(name: str, given: LabelCorpus, wanted: LabelCorpus) -> Check:
    """Check that two corpora hold the same documents under the same names."""
    differ = [
        one
        for row, (one, other) in enumerate(zip(given.ids, wanted.ids, strict=False))
        if one != other or _label_set(given, row) != _label_set(wanted, row)
    ]
    if len(given) != len(wanted):
        differ.append(f"{len(given)} documents instead of {len(wanted)}")
    return check(
        name, f"{len(given)} documents", differ, "names and labels agree", "documents that differ"
    )


def _label_set(corpus: LabelCorpus, row: int) -> frozenset[str]:
    """Give a document's labels in the form they are compared by."""
    return frozenset(corpus.key(label) for label in corpus.document(row))


def _of_repeats(split: ZeroShotSplit, X: NDArray[np.generic], given: Given | None) -> Check:
    """Look for training features that are those of a test instance; fail if its name is too."""
    features: NDArray[np.generic] = X[split.train]
    names = [split.target.ids[row] for row in split.train]
    if given is not None and given.X is not None and given.documents is not None:
        features, names = np.asarray(given.X), list(given.documents.ids)
    tested: dict[bytes, set[str]] = {}
    for row, one in zip(split.test, _row_bytes(X[split.test]), strict=True):
        tested.setdefault(one, set()).add(split.target.ids[row])
    met = [
        (name, tested[one])
        for name, one in zip(names, _row_bytes(features), strict=False)
        if one in tested
    ]
    looked_at = f"{len(names)} training and {len(split.test)} test rows"
    same = [name for name, others in met if name in others]
    if same:
        return check("no test row in train", looked_at, same, "", "instances in both")
    return note(
        "no test row in train",
        looked_at,
        len(met),
        f"{len(met)} training rows equal the row of another instance that is tested",
    )


def _row_bytes(X: NDArray[np.generic]) -> list[bytes]:
    """Give each row of features as bytes, whatever precision they come in."""
    rows = np.ascontiguousarray(X, dtype=np.float64) + 0.0  # makes -0.0 and 0.0 one value
    return [row.tobytes() for row in rows]
