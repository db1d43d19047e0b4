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

from polyseme.base.estimator import copy_of
from polyseme.base.validation import FloatArray, InputError, check_features
from polyseme.documents.corpus import LabelCorpus
from polyseme.published.descriptors import CentredRows
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.kernels import column_statistics, scale_rows
from polyseme.published.mapping import InstanceMapper
from polyseme.published.priming import PrimingStore
from polyseme.published.tagger import PublishedTagger
from polyseme.scoring.known_documents import KnownDocuments
from polyseme_experiments.splits import INSTANCES, SEMANTICS, ZeroShotSplit, carries

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
    """The result of one check; a note reports something to know that is not wrong."""

    name: str  # what must hold, or what is noted
    looked_at: str  # and how much of it
    count: int  # of a check, the things that are wrong
    passed: bool
    detail: str  # what was found, in words
    note: bool = False

    @property
    def verdict(self) -> str:
        """In one word: "ok", "note" or "FAILED"."""
        if not self.passed:
            return "FAILED"
        return "note" if self.note else "ok"


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
        fields = [asdict(check) for check in self.checks]
        return _digest(fields)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        width = max((len(check.name) for check in self.checks), default=0)
        lines = []
        n_failed = 0
        for check in self.checks:
            name = check.name.ljust(width)
            verdict = check.verdict.ljust(6)
            line = f"{verdict}  {name}  {check.detail} ({check.looked_at})"
            lines.append(line)
            if not check.passed:
                n_failed += 1
        summary = "all checks hold" if self.passed else f"{n_failed} failed"
        lines.append(f"{summary}; digest {self.digest}")
        return lines

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
    examples = ", ".join(wrong[:5])
    n_wrong = len(wrong)
    if n_wrong > 5:
        examples += f" and {n_wrong - 5} more"
    detail = f"{failed}: {examples}"
    return Check(name, looked_at, n_wrong, False, detail)


def _digest(content: Any) -> str:
    """Return the SHA-256 of JSON values."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


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
    n_documents = len(split.target)
    if X is not None and len(X) != n_documents:
        raise InputError(
            f"`X` of `audit` has {len(X)} rows; expected one for each of the {n_documents} "
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
    names: dict[str, list[str]] = {}
    for corpus, sets in ((split.source, SEMANTICS), (split.target, INSTANCES)):
        for name in sets:
            names[name] = [corpus.ids[row] for row in getattr(split, name)]
    digest = _digest(names)
    sizes = ", ".join(f"{name} {len(ids)}" for name, ids in names.items())
    yield _note("sets", sizes, len(names), f"documents' names have the digest {digest[:16]}")

    has_unseen = carries(split.target, split.labels.unseen)
    for name in ("train", "validation"):
        rows = getattr(split, name)
        wrong = [split.target.ids[row] for row in rows[has_unseen[rows]]]
        yield _check(
            f"no unseen label in {name}",
            f"{len(rows)} instances, {len(split.labels.unseen)} unseen labels",
            wrong,
            "none carries one",
            "instances that carry one",
        )

    for kind, sets in (("instance", INSTANCES), ("semantics", SEMANTICS)):
        counts: Counter[str] = Counter()
        for name in sets:
            counts.update(names[name])
        looked_at = f"{', '.join(sets)}: {counts.total()} documents"
        repeated = [name for name, count in counts.items() if count > 1]
        yield _check(f"{kind} sets apart", looked_at, repeated, "none is in two", "in two sets")

    rows = np.union1d(split.semantics, split.semantics_validation)
    has_oov = carries(split.source, split.labels.oov)
    wrong = [split.source.ids[row] for row in rows[has_oov[rows]]]
    yield _check(
        "no oov label in semantics",
        f"{len(rows)} documents, {len(split.labels.oov)} oov labels",
        wrong,
        "none holds one",
        "documents that hold one",
    )

    is_known = split.own_documents()
    n_known = int(is_known.sum())
    detail = f"{n_known} have their own document among the known ones"
    yield _note("own documents", f"{len(is_known)} test instances", n_known, detail)
    if split.source is split.target:
        stopping = np.intersect1d(split.semantics_validation, split.test)
        looked_at = f"{len(split.semantics_validation)} documents of semantics_validation"
        detail = f"{len(stopping)} are those of test instances"
        yield _note("stopping documents", looked_at, len(stopping), detail)


def _of_groups(split: ZeroShotSplit) -> Iterator[Check]:
    """Check that no group of a test instance is among the training instances' groups."""
    groups = split.target.groups
    if groups is None:
        yield _note("test groups", "the target's documents", 0, "they name no groups")
        return
    test_groups = {groups[row] for row in split.test}
    train_groups = {groups[row] for row in split.train}
    trained = sorted(test_groups & train_groups)
    looked_at = f"{len(test_groups)} groups of {len(split.test)} test instances"
    if split.by_group:
        words = ("none has a training instance", "groups that have one")
        yield _check("no test group in train", looked_at, trained, *words)
    else:
        detail = f"{len(trained)} have a training instance"
        yield _note("test groups", looked_at, len(trained), detail)
    source_groups = split.source.groups
    if source_groups is not None:
        known_groups = {source_groups[row] for row in split.known_rows}
        shared = test_groups & known_groups
        detail = f"{len(shared)} have a known label document"
        yield _note("semantics groups", looked_at, len(shared), detail)


def _of_columns(split: ZeroShotSplit, feature_names: Sequence[str] | None) -> Check:
    """Check that no column of the features detects an unseen label."""
    if feature_names is None:
        raise InputError("`audit` needs `feature_names` to check the columns of detectors.")
    key = split.target.key
    hidden = {key(label) for label in split.labels.unseen}
    wrong = [name for name in feature_names if key(name) in hidden]
    return _check(
        "no detector of an unseen label",
        f"{len(feature_names)} columns",
        wrong,
        "no column is named after one",
        "columns named after one",
    )


def _of_inputs(split: ZeroShotSplit, inputs: FitInputs, X: Features | None) -> Iterator[Check]:
    """Check that `fit` got the split's rows, in the same order."""
    for name, documents_of in _DOCUMENTS.items():
        corpus: LabelCorpus | None = getattr(inputs, name)
        if corpus is None:
            continue
        expected = documents_of(split)
        differ = []
        for row, (actual_id, expected_id) in enumerate(zip(corpus.ids, expected.ids, strict=False)):
            same_labels = _labels_of(corpus, row) == _labels_of(expected, row)
            if actual_id != expected_id or not same_labels:
                differ.append(actual_id)
        if len(corpus) != len(expected):
            differ.append(f"{len(corpus)} documents instead of {len(expected)}")
        yield _check(
            f"given {name} are the split's",
            f"{len(corpus)} documents",
            differ,
            "names and labels agree",
            "documents that differ",
        )

    if inputs.X is not None and X is not None:
        actual_rows = _row_bytes(inputs.X)
        expected_rows = _row_bytes(X[split.train])
        differ = []
        for row, (actual, wanted) in enumerate(zip(actual_rows, expected_rows, strict=False)):
            if actual != wanted:
                differ.append(str(row))
        if len(actual_rows) != len(expected_rows):
            differ.append(f"{len(actual_rows)} rows instead of {len(expected_rows)}")
        digest = hashlib.sha256(b"".join(actual_rows)).hexdigest()
        yield _check(
            "given X is the split's",
            f"{len(actual_rows)} rows of {np.shape(inputs.X)[1]} features",
            differ,
            f"bit for bit, digest {digest[:16]}",
            "rows that differ",
        )


def _labels_of(corpus: LabelCorpus, row: int) -> frozenset[str]:
    """Return a document's labels in the form they are compared by."""
    return frozenset(map(corpus.key, corpus.document(row)))


def _of_repeats(split: ZeroShotSplit, X: Features, inputs: FitInputs | None) -> Check:
    """Look for training features that are those of a test instance; fail if its name is too."""
    features: Features = X[split.train]
    names = [split.target.ids[row] for row in split.train]
    if inputs is not None and inputs.X is not None and inputs.documents is not None:
        features = np.asarray(inputs.X)
        names = list(inputs.documents.ids)

    test_names: dict[bytes, set[str]] = {}
    test_rows = _row_bytes(X[split.test])
    for row, content in zip(split.test, test_rows, strict=True):
        test_names.setdefault(content, set()).add(split.target.ids[row])

    n_repeated = 0
    wrong = []
    for name, content in zip(names, _row_bytes(features), strict=False):
        if content in test_names:
            n_repeated += 1
            if name in test_names[content]:
                wrong.append(name)
    title = "no test row in train"
    looked_at = f"{len(names)} training and {len(split.test)} test rows"
    if wrong:
        return _check(title, looked_at, wrong, "", "instances in both")
    detail = f"{n_repeated} training rows equal the row of another instance that is tested"
    return _note(title, looked_at, n_repeated, detail)


def _row_bytes(X: Features) -> list[bytes]:
    """Return each row of features as bytes, whatever precision they come in."""
    rows = np.ascontiguousarray(X, dtype=np.float64) + 0.0  # makes -0.0 and 0.0 one value
    return [row.tobytes() for row in rows]


def _of_embedding(
    split: ZeroShotSplit, embedding: ConceptEmbedding, *, relearn_topics: bool
) -> Iterator[Check]:
    """Check vocabulary, idf, label descriptors and topics of a concept embedding."""
    key = split.source.key
    teaching = split.training_label_sets().without_unused()
    taught = [key(label) for label in teaching.labels]
    oov = {key(label) for label in split.labels.oov}
    vocabulary = [key(label) for label in embedding.classes_]
    looked_at = f"{len(vocabulary)} labels of the concept space"
    wrong = [label for label in vocabulary if label in oov]
    yield _check(
        "vocabulary without oov labels",
        looked_at,
        wrong,
        "none is oov",
        "oov labels among them",
    )
    one_sided = set(vocabulary) ^ set(taught)
    yield _check(
        "vocabulary taught",
        looked_at,
        sorted(one_sided - oov),
        "exactly those of the documents that teach",
        "labels on one side only",
    )

    descriptor = embedding.label_descriptor_
    refitted = copy_of(descriptor)
    if vocabulary == taught:
        refitted.fit(teaching.matrix)
    for name in ("idf_", "descriptors_"):
        learned = _numbers(getattr(descriptor, name, None))
        relearned = _numbers(getattr(refitted, name, None))
        title = f"{name.rstrip('_')} learned from semantics alone"
        yield _relearned(title, learned, relearned, len(teaching))

    context = embedding.context_descriptor_
    topics = context.topics_
    n_columns = topics.shape[1]
    wrong = []
    if n_columns != len(vocabulary):
        wrong.append(f"{n_columns} columns")
    yield _check(
        "topics over the vocabulary",
        f"{context.n_topics_} topics",
        wrong,
        "one column per label",
        f"not the {len(vocabulary)} labels",
    )
    title = "topics learned from semantics alone"
    if relearn_topics and isinstance(context.random_state, int):
        refitted_context = copy_of(context).fit(teaching.matrix)
        yield _relearned(title, topics, refitted_context.topics_, len(teaching))
    elif relearn_topics:
        looked_at = f"{topics.size} values, {len(teaching)} documents"
        yield _note(title, looked_at, 0, "their seed is not known")


def _numbers(learned: Any) -> Any:
    """Return learned numbers as one array, also those of sparse rows; None stays None."""
    if not isinstance(learned, CentredRows):
        return learned
    rows = learned.rows
    return np.concatenate([rows.data, rows.indices, learned.mean])


def _relearned(
    name: str, learned: NDArray[Any], relearned: NDArray[Any] | None, n_documents: int
) -> Check:
    """Check that what was learned is the same when it is learned again."""
    wrong = []
    if relearned is None or relearned.shape != learned.shape:
        wrong.append("the labels differ")
    elif not np.array_equal(learned, relearned):
        is_different = learned != relearned
        n_different = int(is_different.sum())
        wrong.append(f"{n_different} values differ")
    looked_at = f"{learned.size} values, {n_documents} documents"
    return _check(name, looked_at, wrong, _SAME, "not what these documents give")


def _of_ranker(split: ZeroShotSplit, fitted: object) -> Iterator[Check]:
    """Check the kinds of labels and the known documents of a tagger or baseline."""
    if getattr(fitted, "kinds_", None) is not None:
        yield from _of_kinds(split, fitted)
    store = getattr(fitted, "store_", None)
    if isinstance(store, (PrimingStore, KnownDocuments)):
        yield _of_store(split, store)


def _of_kinds(split: ZeroShotSplit, fitted: Any) -> Iterator[Check]:
    """Check where a tagger or baseline learned unseen and oov labels from."""
    key = split.target.key
    labels = [key(label) for label in getattr(fitted, "classes_", ())]
    unseen = {key(label) for label in split.labels.unseen}
    oov = {key(label) for label in split.labels.oov}
    is_learned = np.asarray(fitted.kinds_) == "seen"
    direct = np.asarray(getattr(fitted, "direct_", ()))
    if direct.dtype == bool and direct.shape == is_learned.shape:
        is_learned = is_learned | direct
    wrong = []
    for label, learned in zip(labels, is_learned, strict=True):
        if learned and label in unseen:
            wrong.append(label)
    looked_at = f"{len(labels)} labels"
    title = "no unseen label learned from instances"
    yield _check(title, looked_at, wrong, "none was", "labels that were")

    wrong = []
    for label, kind in zip(labels, fitted.kinds_, strict=True):
        if label in oov and kind != "oov":
            wrong.append(label)
    yield _check(
        "oov labels only from instances",
        looked_at,
        wrong,
        "none came from semantics documents",
        "labels that did not",
    )


def _of_store(split: ZeroShotSplit, store: PrimingStore | KnownDocuments) -> Check:
    """Check that known documents are semantics documents or training instances."""
    key = split.target.key
    allowed: dict[str, frozenset[str]] = {}
    for corpus in (split.known(), split.unmet_instances("train")):
        for row, name in enumerate(corpus.ids):
            allowed[name] = _labels_of(corpus, row)
    wrong = []
    for row, name in enumerate(store.ids):
        labels = frozenset(map(key, store.document(row)))
        if allowed.get(name) != labels:
            wrong.append(name)
    return _check(
        "known documents are the split's",
        f"{len(store.ids)} known documents",
        wrong,
        "all are semantics documents or training instances",
        "others",
    )


def _of_mappers(split: ZeroShotSplit, X: Features, fitted: object) -> Iterator[Check]:
    """Check the feature rows that the kernel regressions of a fitted model keep."""
    train = np.asarray(check_features(X[split.train], owner="audit"))
    for name, mapper in sorted(vars(fitted).items()):
        if not isinstance(mapper, InstanceMapper) or not hasattr(mapper, "X_fit_"):
            continue
        title = f"{name.rstrip('_')} keeps training rows alone"
        looked_at = f"{mapper.X_fit_.shape[0]} rows kept"
        if mapper.n_features_in_ != train.shape[1]:
            wrong = [f"{mapper.n_features_in_} features instead of {train.shape[1]}"]
            yield _check(title, looked_at, wrong, "", "fitted on other columns")
            continue
        wrong = _foreign_rows(mapper, train)
        yield _check(title, looked_at, wrong, "each is a training instance's", "rows that are not")
        if isinstance(fitted, PublishedTagger):
            yield _of_scales(split, train, mapper, fitted)


def _foreign_rows(mapper: InstanceMapper, train: FloatArray) -> list[str]:
    """Return the numbers of support rows that are no training instance's."""
    dtype = np.float64 if mapper.X_fit_.dtype == np.float64 else np.float32
    scaled = scale_rows(
        train,
        mapper.scaling,
        mapper.mean_,
        mapper.scale_,
        dtype,
    )
    allowed = {row.tobytes() for row in np.asarray(scaled)}
    support = mapper.X_fit_
    if not isinstance(support, np.ndarray):
        support = support.toarray()
    foreign = []
    for number, row in enumerate(support):
        if row.tobytes() not in allowed:
            foreign.append(str(number))
    return foreign


def _of_scales(
    split: ZeroShotSplit, train: FloatArray, mapper: InstanceMapper, tagger: PublishedTagger
) -> Check:
    """Check that the scales of features are those of the training rows with a label."""
    vocabulary = tagger.embedding_.classes_
    documents = split.instances("train").align(vocabulary)[0]
    matrix = documents[:, : len(vocabulary)]
    has_label = np.diff(matrix.indptr) > 0
    mean, scale = column_statistics(train[has_label], mapper.scaling)
    same_mean = np.array_equal(mapper.mean_, mean)
    same_scale = np.array_equal(mapper.scale_, scale)
    wrong = []
    if not same_mean or not same_scale:
        wrong.append("means or spreads differ")
    looked_at = f"{train.shape[1]} columns, {int(has_label.sum())} rows"
    title = "scales learned from training rows alone"
    return _check(title, looked_at, wrong, _SAME, "not what these rows give")
