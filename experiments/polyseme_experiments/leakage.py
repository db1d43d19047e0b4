"""Leakage audit: proof that what a split hides did not reach training.

In: a split, and as far as they exist the features, what was handed to `fit`, and the fitted model.
Out: a `LeakageReport` of everything that was checked.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._estimator import copy_of
from polyseme._validation import InputError, check_features
from polyseme.corpus import LabelCorpus
from polyseme.published.descriptors import CentredRows
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.kernels import column_statistics, scale_rows
from polyseme.published.mapping import InstanceMapper
from polyseme.published.priming import PrimingStore
from polyseme.published.tagger import PublishedTagger
from polyseme.splits import INSTANCES, SEMANTICS, ZeroShotSplit, carries
from polyseme.store import ConceptStore

Features = NDArray[np.generic]
_SAME = "the same when learned again, bit for bit"
# What `fit` should have got, by the names of `FitInputs`.
_DOCUMENTS: dict[str, Callable[[ZeroShotSplit], LabelCorpus]] = {
    "documents": lambda split: split.instances("train"),
    "semantics": ZeroShotSplit.known,
    "teaching": ZeroShotSplit.training_label_sets,
    "held_out": ZeroShotSplit.validation_label_sets,
}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; a note only says something that should be known."""

    name: str  # what must hold, or what is noted
    looked_at: str  # and how much of it
    count: int  # of a check, the things that are wrong
    passed: bool
    detail: str  # what was found, in words
    note: bool = False

    @property
    def verdict(self) -> str:
        """In one word: "ok", "note" or "FAILED"."""
        return "FAILED" if not self.passed else "note" if self.note else "ok"


@dataclass(frozen=True)
class LeakageReport:
    """The result of an audit."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)

    @property
    def digest(self) -> str:
        """SHA-256 over the checks."""
        listed = [asdict(check) for check in self.checks]
        return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        width = max((len(check.name) for check in self.checks), default=0)
        listed = [
            f"{check.verdict:<6}  {check.name:<{width}}  {check.detail} ({check.looked_at})"
            for check in self.checks
        ]
        n_failed = sum(not check.passed for check in self.checks)
        verdict = "all checks hold" if self.passed else f"{n_failed} failed"
        return [*listed, f"{verdict}; digest {self.digest}"]

    def require(self) -> None:
        """Raise an `InputError` that names the first failed check, if there is one."""
        for check in self.checks:
            if not check.passed:
                raise InputError(
                    f"The audit failed at '{check.name}': {check.detail} ({check.looked_at})."
                )


def _check(name: str, looked_at: str, wrong: list[str], ok: str, failed: str) -> Check:
    """Make a check from the list of what is wrong, of which the first five are named."""
    if not wrong:
        return Check(name, looked_at, 0, True, ok)
    named = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if wrong[5:] else "")
    return Check(name, looked_at, len(wrong), False, f"{failed}: {named}")


def _note(name: str, looked_at: str, count: int, detail: str) -> Check:
    """Make a note: something that should be known but is not wrong."""
    return Check(name, looked_at, count, True, detail, note=True)


@dataclass(frozen=True, eq=False)
class FitInputs:
    """What was handed to `fit`; what is None is not looked at."""

    X: Features | None = None  # of the training instances, (n, n_features)
    documents: LabelCorpus | None = None  # theirs
    semantics: LabelCorpus | None = None  # the known label documents
    teaching: LabelCorpus | None = None  # those that taught the concept space
    held_out: LabelCorpus | None = None  # those that stopped its training


def audit(
    split: ZeroShotSplit,
    *,
    X: Features | None = None,
    feature_names: Sequence[str] | None = None,
    detectors: bool = False,
    inputs: FitInputs | None = None,
    fitted: object = None,
    relearn_topics: bool = False,
) -> LeakageReport:
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
    inputs : FitInputs, optional
        What was handed to `fit`.
    fitted : ConceptEmbedding, tagger or baseline, optional
        What was learned. Whatever can be learned again at once (idf, label descriptors, scales of
        the features) is, from the split alone, and must be the same bit for bit.
    relearn_topics : bool
        Whether topics are learned again too, which takes seconds.

    Returns
    -------
    LeakageReport
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
    if inputs is not None:
        checks += _of_inputs(split, inputs, X)
    if X is not None:
        checks.append(_of_repeats(split, X, inputs))
    if fitted is not None:
        embedding = getattr(fitted, "embedding_", fitted)
        if isinstance(embedding, ConceptEmbedding):
            checks += _of_embedding(split, embedding, relearn_topics=relearn_topics)
        checks += _of_ranker(split, fitted)
        if X is not None:
            checks += _of_mappers(split, X, fitted)
    return LeakageReport(tuple(checks))


def _of_split(split: ZeroShotSplit) -> Iterator[Check]:
    """Check the sets themselves."""
    names = {
        name: [corpus.ids[row] for row in getattr(split, name)]
        for corpus, sets in ((split.source, SEMANTICS), (split.target, INSTANCES))
        for name in sets
    }
    digest = hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()
    sizes = ", ".join(f"{name} {len(ids)}" for name, ids in names.items())
    yield _note("sets", sizes, len(names), f"documents' names have the digest {digest[:16]}")
    hidden = carries(split.target, split.labels.unseen)
    for part in ("train", "validation"):
        rows = getattr(split, part)
        yield _check(
            f"no unseen label in {part}",
            f"{len(rows)} instances, {len(split.labels.unseen)} unseen labels",
            [split.target.ids[row] for row in rows[hidden[rows]]],
            "none carries one",
            "instances that carry one",
        )
    for kind, sets in (("instance", INSTANCES), ("semantics", SEMANTICS)):
        counts = Counter(name for part in sets for name in names[part])
        looked_at = f"{', '.join(sets)}: {counts.total()} documents"
        twice = [name for name, times in counts.items() if times > 1]
        yield _check(f"{kind} sets apart", looked_at, twice, "none is in two", "in two sets")
    learned = np.union1d(split.semantics, split.semantics_validation)
    outside = carries(split.source, split.labels.oov)
    yield _check(
        "no oov label in semantics",
        f"{len(learned)} documents, {len(split.labels.oov)} oov labels",
        [split.source.ids[row] for row in learned[outside[learned]]],
        "none holds one",
        "documents that hold one",
    )
    own = split.own_documents()
    n_own = int(own.sum())
    detail = f"{n_own} have their own document among the known ones"
    yield _note("own documents", f"{len(own)} test instances", n_own, detail)
    if split.source is split.target:
        stopping = len(np.intersect1d(split.semantics_validation, split.test))
        looked_at = f"{len(split.semantics_validation)} documents of semantics_validation"
        detail = f"{stopping} are those of test instances"
        yield _note("stopping documents", looked_at, stopping, detail)


def _of_groups(split: ZeroShotSplit) -> Iterator[Check]:
    """Check that no group of a test instance is among the training instances' groups."""
    groups = split.target.groups
    if groups is None:
        yield _note("test groups", "the target's documents", 0, "they name no groups")
        return
    tested = {groups[row] for row in split.test}
    trained = sorted(tested & {groups[row] for row in split.train})
    looked_at = f"{len(tested)} groups of {len(split.test)} test instances"
    if split.by_group:
        words = ("none has a training instance", "groups that have one")
        yield _check("no test group in train", looked_at, trained, *words)
    else:
        detail = f"{len(trained)} have a training instance"
        yield _note("test groups", looked_at, len(trained), detail)
    if split.source.groups is not None:
        shared = len(tested & {split.source.groups[row] for row in split.known_rows})
        yield _note("semantics groups", looked_at, shared, f"{shared} have a known label document")


def _of_columns(split: ZeroShotSplit, feature_names: Sequence[str] | None) -> Check:
    """Check that no column of the features detects an unseen label."""
    if feature_names is None:
        raise InputError("`audit` needs `feature_names` to check the columns of detectors.")
    key = split.target.key
    hidden = {key(label) for label in split.labels.unseen}
    wrong = [name for name in feature_names if key(name) in hidden]
    words = ("no column is named after one", "columns named after one")
    return _check("no detector of an unseen label", f"{len(feature_names)} columns", wrong, *words)


def _of_inputs(split: ZeroShotSplit, inputs: FitInputs, X: Features | None) -> Iterator[Check]:
    """Check that `fit` got the split's rows, in the same order."""
    for name, of_split in _DOCUMENTS.items():
        corpus: LabelCorpus | None = getattr(inputs, name)
        if corpus is not None:
            wanted = of_split(split)
            differ = [
                own
                for row, (own, other) in enumerate(zip(corpus.ids, wanted.ids, strict=False))
                if own != other or _labels_of(corpus, row) != _labels_of(wanted, row)
            ]
            if len(corpus) != len(wanted):
                differ.append(f"{len(corpus)} documents instead of {len(wanted)}")
            words = ("names and labels agree", "documents that differ")
            title = f"given {name} are the split's"
            yield _check(title, f"{len(corpus)} documents", differ, *words)
    if inputs.X is not None and X is not None:
        rows, expected = _row_bytes(inputs.X), _row_bytes(X[split.train])
        pairs = enumerate(zip(rows, expected, strict=False))
        differ = [str(place) for place, (own, other) in pairs if own != other]
        if len(rows) != len(expected):
            differ.append(f"{len(rows)} rows instead of {len(expected)}")
        digest = hashlib.sha256(b"".join(rows)).hexdigest()
        looked_at = f"{len(rows)} rows of {np.shape(inputs.X)[1]} features"
        words = (f"bit for bit, digest {digest[:16]}", "rows that differ")
        yield _check("given X is the split's", looked_at, differ, *words)


def _labels_of(corpus: LabelCorpus, row: int) -> frozenset[str]:
    """Return a document's labels in the form they are compared by."""
    return frozenset(map(corpus.key, corpus.document(row)))


def _of_repeats(split: ZeroShotSplit, X: Features, inputs: FitInputs | None) -> Check:
    """Look for training features that are those of a test instance; fail if its name is too."""
    features: Features = X[split.train]
    names = [split.target.ids[row] for row in split.train]
    if inputs is not None and inputs.X is not None and inputs.documents is not None:
        features, names = np.asarray(inputs.X), list(inputs.documents.ids)
    tested: dict[bytes, set[str]] = {}
    for row, content in zip(split.test, _row_bytes(X[split.test]), strict=True):
        tested.setdefault(content, set()).add(split.target.ids[row])
    pairs = zip(names, _row_bytes(features), strict=False)
    repeated = [(name, tested[content]) for name, content in pairs if content in tested]
    looked_at = f"{len(names)} training and {len(split.test)} test rows"
    same = [name for name, others in repeated if name in others]
    if same:
        return _check("no test row in train", looked_at, same, "", "instances in both")
    detail = f"{len(repeated)} training rows equal the row of another instance that is tested"
    return _note("no test row in train", looked_at, len(repeated), detail)


def _row_bytes(X: Features) -> list[bytes]:
    """Return each row of features as bytes, whatever precision they come in."""
    rows = np.ascontiguousarray(X, dtype=np.float64) + 0.0  # makes -0.0 and 0.0 one value
    return [row.tobytes() for row in rows]


def _of_embedding(
    split: ZeroShotSplit, embedding: ConceptEmbedding, *, relearn_topics: bool
) -> Iterator[Check]:
    """Check vocabulary, idf, label descriptors and topics of a concept embedding."""
    key, teaching = split.source.key, split.training_label_sets().without_unused()
    documents = [key(label) for label in teaching.labels]
    oov = {key(label) for label in split.labels.oov}
    vocabulary = [key(label) for label in embedding.classes_]
    looked_at = f"{len(vocabulary)} labels of the concept space"
    wrong = [label for label in vocabulary if label in oov]
    words = ("none is oov", "oov labels among them")
    yield _check("vocabulary without oov labels", looked_at, wrong, *words)
    wrong = sorted((set(vocabulary) ^ set(documents)) - oov)
    words = ("exactly those of the documents that teach", "labels on one side only")
    yield _check("vocabulary taught", looked_at, wrong, *words)
    again = copy_of(embedding.label_descriptor_)
    if vocabulary == documents:
        again.fit(teaching.matrix)
    for name in ("idf_", "descriptors_"):
        both = (embedding.label_descriptor_, again)
        learned, relearned = (_numbers(getattr(one, name, None)) for one in both)
        title = f"{name.rstrip('_')} learned from semantics alone"
        yield _relearned(title, learned, relearned, len(teaching))
    context = embedding.context_descriptor_
    n_columns = context.topics_.shape[1]
    wrong = [] if n_columns == len(vocabulary) else [f"{n_columns} columns"]
    words = ("one column per label", f"not the {len(vocabulary)} labels")
    yield _check("topics over the vocabulary", f"{context.n_topics_} topics", wrong, *words)
    title, topics = "topics learned from semantics alone", context.topics_
    if relearn_topics and isinstance(context.random_state, int):
        yield _relearned(
            title, topics, copy_of(context).fit(teaching.matrix).topics_, len(teaching)
        )
    elif relearn_topics:
        looked_at = f"{topics.size} values, {len(teaching)} documents"
        yield _note(title, looked_at, 0, "their seed is not known")


def _numbers(learned: Any) -> Any:
    """Return learned numbers as one array, also those of sparse rows; None stays None."""
    if isinstance(learned, CentredRows):
        return np.concatenate([learned.rows.data, learned.rows.indices, learned.mean])
    return learned


def _relearned(
    name: str, learned: NDArray[Any], again: NDArray[Any] | None, n_documents: int
) -> Check:
    """Check that what was learned is the same when it is learned again."""
    wrong = []
    if again is None or again.shape != learned.shape:
        wrong = ["the labels differ"]
    elif not np.array_equal(learned, again):
        wrong = [f"{int((learned != again).sum())} values differ"]
    looked_at = f"{learned.size} values, {n_documents} documents"
    return _check(name, looked_at, wrong, _SAME, "not what these documents give")


def _of_ranker(split: ZeroShotSplit, fitted: object) -> Iterator[Check]:
    """Check the kinds of labels and the known documents of a tagger or baseline."""
    key = split.target.key
    labels = [key(label) for label in getattr(fitted, "classes_", ())]
    kinds = getattr(fitted, "kinds_", None)
    if kinds is not None:
        unseen, oov = ({*map(key, some)} for some in (split.labels.unseen, split.labels.oov))
        shown = np.asarray(kinds) == "seen"
        direct = np.asarray(getattr(fitted, "direct_", ()))
        if direct.dtype == bool and direct.shape == shown.shape:
            shown = shown | direct
        pairs = zip(labels, shown, strict=True)
        wrong = [label for label, is_shown in pairs if is_shown and label in unseen]
        title, looked_at = "no unseen label learned from instances", f"{len(labels)} labels"
        yield _check(title, looked_at, wrong, "none was", "labels that were")
        kinds_of = zip(labels, kinds, strict=True)
        wrong = [label for label, kind in kinds_of if label in oov and kind != "oov"]
        words = ("none came from semantics documents", "labels that did not")
        yield _check("oov labels only from instances", looked_at, wrong, *words)
    known = getattr(fitted, "store_", None)
    if isinstance(known, (PrimingStore, ConceptStore)):
        allowed = {
            name: _labels_of(corpus, row)
            for corpus in (split.known(), split.unmet_instances("train"))
            for row, name in enumerate(corpus.ids)
        }
        wrong = [
            name
            for row, name in enumerate(known.ids)
            if allowed.get(name) != frozenset(map(key, known.document(row)))
        ]
        words = ("all are semantics documents or training instances", "others")
        looked_at = f"{len(known.ids)} known documents"
        yield _check("known documents are the split's", looked_at, wrong, *words)


def _of_mappers(split: ZeroShotSplit, X: Features, fitted: object) -> Iterator[Check]:
    """Check the feature rows that the kernel regressions of a fitted model keep."""
    train = np.asarray(check_features(X[split.train], owner="audit"))
    for name, mapper in sorted(vars(fitted).items()):
        if not (isinstance(mapper, InstanceMapper) and hasattr(mapper, "X_fit_")):
            continue
        title = f"{name.rstrip('_')} keeps training rows alone"
        looked_at = f"{mapper.X_fit_.shape[0]} rows kept"
        if mapper.n_features_in_ != train.shape[1]:
            wrong = [f"{mapper.n_features_in_} features instead of {train.shape[1]}"]
            yield _check(title, looked_at, wrong, "", "fitted on other columns")
            continue
        dtype = np.float64 if mapper.X_fit_.dtype == np.float64 else np.float32
        scaled = scale_rows(train, mapper.scaling, mapper.mean_, mapper.scale_, dtype)
        allowed = {row.tobytes() for row in np.asarray(scaled)}
        kept = mapper.X_fit_ if isinstance(mapper.X_fit_, np.ndarray) else mapper.X_fit_.toarray()
        wrong = [str(place) for place, row in enumerate(kept) if row.tobytes() not in allowed]
        yield _check(title, looked_at, wrong, "each is a training instance's", "rows that are not")
        if isinstance(fitted, PublishedTagger):
            vocabulary = fitted.embedding_.classes_
            documents = split.instances("train").align(vocabulary)[0]
            placed = np.diff(documents[:, : len(vocabulary)].indptr) > 0
            again = column_statistics(train[placed], mapper.scaling)
            same = all(map(np.array_equal, (mapper.mean_, mapper.scale_), again))
            looked_at = f"{train.shape[1]} columns, {int(placed.sum())} rows"
            wrong = [] if same else ["means or spreads differ"]
            title = "scales learned from training rows alone"
            yield _check(title, looked_at, wrong, _SAME, "not what these rows give")
