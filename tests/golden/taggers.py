"""What the default tagger answers: scores, evidence, growth, answers, and other ways to fit it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import polyseme
from golden import Case, models
from polyseme import ZeroShotTagger
from polyseme.label_changes import suggest_merges
from polyseme.metrics import evaluate_tagger
from polyseme.scoring.senses import label_senses
from polyseme.studio.refit import missing_items, own_label_sets
from polyseme_experiments.datasets import load_dataset

TAGS = [["keyboard"], [], ["sea", "sand"], ["oven"], []]
ANSWERS = [
    ("5", "charger", True),
    ("10", "charger", True),
    ("6", "charger", False),
    ("7", "wave", True),
    ("7", "surfboard", True),
    ("12", "surfboard", True),
    ("5", "surfboard", False),
]


def cases(folder: Path) -> dict[str, Case]:
    """Return the cases by name."""
    toy = models.world()
    X = toy.X_test
    tagger = models.toy_tagger()

    @cache
    def model() -> Path:
        tagger.save(folder / "model")
        return folder / "model"

    def changed() -> ZeroShotTagger:
        """Return a copy that a case may change."""
        copy = folder / f"copy-{len(list(folder.iterdir()))}"
        loaded = polyseme.load(model())
        loaded.save(copy)
        return polyseme.load(copy)

    return {
        "labels": lambda: labels_of(tagger),
        "logits": lambda: tagger.decision_function(X[:12]),
        "probabilities": lambda: tagger.predict_proba(X[:3]),
        "probabilities with tags": lambda: tagger.predict_proba(X[:5], TAGS),
        "probabilities of tags": lambda: tagger.predict_proba(None, TAGS[2:4]),
        "votes": lambda: tagger.predict_proba(X[:5], method="priming"),
        "rankings": lambda: tagger.rank(X[:10], k=6),
        "rankings by votes": lambda: tagger.rank(X[:5], k=4, method="priming"),
        "rankings of unseen labels": lambda: tagger.rank(X[:5], k=4, kinds=["unseen"]),
        "rankings with tags": lambda: tagger.rank(X[:5], k=4, tags=TAGS),
        "predictions": lambda: tagger.predict(X[:10], threshold=0.3),
        "predictions by precision": lambda: tagger.predict(X[:10], precision=0.6),
        "predictions of seen labels": lambda: tagger.predict(X[:5], precision=0.8, kinds=["seen"]),
        "thresholds": lambda: [tagger.thresholds(share) for share in (0.3, 0.5, 0.9)],
        "completions": lambda: [
            tagger.complete(["sea"], k=5),
            tagger.complete([["apple", "desk"], ["apple", "pie"], ["tram"]], k=4),
        ],
        "likeness of codes": lambda: cosines(tagger.transform(X[:6])),
        "likeness of directions": lambda: cosines(tagger.space_.points(tagger.transform(X[:6]))),
        "evidence": lambda: evidence(tagger, X),
        "evaluation": lambda: [
            evaluate_tagger(tagger, X, models.truth()),
            tagger.score(X, models.truth()),
        ],
        "validation": lambda: validation(tagger),
        "senses": lambda: senses(tagger),
        "similar labels": lambda: suggest_merges(tagger, most=5),
        "questions": lambda: questions(tagger, X),
        "items coded once": lambda: tagger.rank(tagger.encode(X), k=3),
        "items that are missing": lambda: missing_items(tagger, toy.X[:100]),
        "known tag sets": lambda: list(own_label_sets(tagger) or ())[:5],
        "saved and loaded": lambda: polyseme.load(model()).decision_function(X[:3]),
        "after documents": lambda: after_documents(changed(), X),
        "after labels by name": lambda: after_names(changed(), X),
        "after answers": lambda: after_answers(changed(), X),
        "after care for the vocabulary": lambda: after_care(changed(), X),
        "fit with names and a pool": lambda: fit_with_names_and_pool(X),
        "fit to an indicator matrix": lambda: fit_to_indicators(X),
        "fit to answers": lambda: fit_to_answers(X),
        "fit from a former model": lambda: fit_warm(tagger, X),
        "fit to sparse features": lambda: fit_to_sparse(X),
        "fit without features": lambda: fit_without_features(),
        "emoji": lambda: embedded_pictures(),
        "clips": lambda: embedded_sounds(),
    }


def labels_of(tagger: ZeroShotTagger) -> dict[str, Any]:
    """Return the labels of a tagger and what it counts."""
    return {
        "classes": tagger.classes_,
        "kinds": tagger.kinds_,
        "seen": tagger.seen_,
        "dropped": tagger.dropped_,
        "n_features": tagger.n_features_in_,
    }


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Return the cosines between rows."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units @ units.T


def evidence(tagger: ZeroShotTagger, X: np.ndarray) -> list[Any]:
    """Return the parts of some logits."""
    return [
        tagger.explain(X[0], "charger", k=3),
        tagger.explain(X[2], "sea", k=3, tags=["sand"]),
        tagger.explain(X[4], "owl", k=2),
        tagger.explain(None, "pie", k=2, tags=["apple", "oven"]),
    ]


def validation(tagger: ZeroShotTagger) -> dict[str, Any]:
    """Return what was measured on held-out items."""
    measured = tagger.validation_
    assert measured is not None
    return {
        "seen": measured.seen,
        "unseen": measured.unseen,
        "labels": measured.labels,
        "baselines": measured.baselines,
        "highest precision": measured.highest_precision,
        "click gain": measured.click_gain,
        "measured on": tagger.measured_on_,
    }


def senses(tagger: ZeroShotTagger) -> list[Any]:
    """Return the senses of two labels: their words and sizes."""
    results: list[Any] = []
    for label in ("apple", "sea"):
        sense_map = label_senses(tagger.store_, label, normalize=tagger.normalize_labels_)
        if sense_map is None:
            results.append(None)
        else:
            results.append([sense_map.words, np.bincount(sense_map.senses)])
    return results


def questions(tagger: ZeroShotTagger, X: np.ndarray) -> dict[str, Any]:
    """Return what each strategy asks."""
    queries = {}
    for strategy in ("active", "likeliest", "random"):
        queries[strategy] = list(tagger.ask(X, k=6, strategy=strategy))
    queries["of a label"] = list(tagger.ask(X, "charger", k=6))
    tags = [labels[:4] for labels in models.truth()]
    tags[0] = (*tags[0], "sea")
    queries["errors"] = list(tagger.ask(X, k=6, strategy="errors", tags=tags))
    return {name: [question[:5] for question in batch] for name, batch in queries.items()}


def after_documents(tagger: ZeroShotTagger, X: np.ndarray) -> dict[str, Any]:
    """Add documents with a new label, and remove them."""
    names = tagger.add_documents([["sea", "jellyfish"], ["sand", "jellyfish", "wave"]])
    grown = [names, tagger.classes_[-1], tagger.decision_function(X[:4])]
    tagger.remove_documents(names)
    return {"grown": grown, "removed": [len(tagger.classes_), tagger.decision_function(X[:1])]}


def after_names(tagger: ZeroShotTagger, X: np.ndarray) -> list[Any]:
    """Add labels by their names."""
    added = tagger.add_labels(["beach", "office", "sea"], models.theme_words())
    return [added, tagger.rank(X[:5], k=4, kinds=["oov"]), tagger.decision_function(X[:2])]


def after_answers(tagger: ZeroShotTagger, X: np.ndarray) -> dict[str, Any]:
    """Answer questions, ask again, and take the answers back."""
    numbers = tagger.learn(ANSWERS, X)
    learned = {
        "numbers": numbers,
        "new labels": tagger.classes_[-1:],
        "logits": tagger.decision_function(X[:8]),
        "evidence": tagger.explain(X[5], "charger", k=1),
        "questions": [question[:5] for question in tagger.ask(X, "charger", k=5)],
    }
    tagger.undo(numbers[:2])
    learned["two taken back"] = tagger.decision_function(X[:2])
    tagger.undo(numbers[2:])
    learned["all taken back"] = tagger.decision_function(X[:2])
    return learned


def after_care(tagger: ZeroShotTagger, X: np.ndarray) -> dict[str, Any]:
    """Block, rename, merge and remove labels."""
    tagger.block(["knife"])
    tagger.rename("sand", "shore")
    tagger.merge("tram", "bus")
    results = {"changed": [labels_of(tagger), tagger.decision_function(X[:5])]}
    tagger.block(["knife"], undo=True)
    tagger.remove_labels(["desk"])
    results["removed"] = [tagger.rank(X[:3], k=5), tagger.complete(["sand", "tram"], k=3)]
    return results


def fit_with_names_and_pool(X: np.ndarray) -> dict[str, Any]:
    """Fit with vectors of labels, and with items without tags."""
    toy = models.world()
    tagger = models.small_tagger(n_validations=1)
    words = models.theme_words()
    tagger.fit(toy.X[:200], toy.documents[:200], toy.label_sets, words, unlabelled=toy.X[200:])
    return {
        "labels": labels_of(tagger),
        "share of names": tagger.name_share_,
        "pooled": tagger.pooled_,
        "logits": tagger.decision_function(X[:5]),
        "validation": validation(tagger),
    }


def fit_to_indicators(X: np.ndarray) -> list[Any]:
    """Fit to a 0/1 matrix."""
    toy = models.world()
    labels = sorted({label for document in toy.documents for label in document})
    rows = [[label in document for label in labels] for document in toy.documents]
    tagger = models.small_tagger(normalize_labels=False).fit(toy.X, np.array(rows, dtype=int))
    return [tagger.classes_, tagger.predict(X[:5]), tagger.predict_proba(X[:2])]


def fit_to_answers(X: np.ndarray) -> list[Any]:
    """Fit to answers beside tag sets."""
    toy = models.world()
    answers = [("0", "sea", True), ("1", "knife", True), ("2", "towel", False)]
    log = models.toy_tagger(n_validations=0)
    log.learn(answers, toy.X)
    tagger = models.small_tagger()
    tagger.fit(toy.X, toy.documents, toy.label_sets, verdicts=log.verdicts_)
    return [labels_of(tagger), tagger.decision_function(X[:5])]


def fit_warm(former: ZeroShotTagger, X: np.ndarray) -> list[Any]:
    """Fit from a former model to more items and a new label."""
    toy = models.world()
    documents = [*toy.documents, ("sea", "jellyfish"), ("sand", "jellyfish")]
    items = np.concatenate([toy.X, X[2:3], X[7:8]])
    tagger = models.small_tagger(n_validations=1)
    sets = toy.label_sets
    tagger.fit(items, documents, sets, label_sets_only=True, warm_start_from=former)
    return [tagger.classes_[-3:], tagger.measured_on_, tagger.decision_function(X[:5])]


def fit_to_sparse(X: np.ndarray) -> Any:
    """Fit to a sparse table."""
    toy = models.world()
    features = sp.csr_matrix(np.where(toy.X > 0.2, toy.X, 0.0))
    tagger = models.small_tagger().fit(features, toy.documents)
    return tagger.decision_function(sp.csr_matrix(X[:3]))


def fit_without_features() -> Any:
    """Fit to documents alone."""
    tagger = models.small_tagger().fit(None, models.world().label_sets)
    return [tagger.complete(["sea"], k=6), tagger.complete([["apple"], ["bus", "car"]], k=4)]


def embedded_pictures() -> dict[str, Any]:
    """Fit to every eighth drawing of the emoji, and rank others."""
    emoji = load_dataset("emoji")
    documents = list(emoji.corpus)
    tagger = models.small_tagger(space=models.small_space(n_steps=40))
    tagger.fit(emoji.X[::8], documents[::8])
    labels, scores = tagger.rank(emoji.X[3:2000:400], k=5)
    return {
        "corpus": [len(documents), emoji.corpus.labels[:10], emoji.checksum],
        "labels": labels,
        "scores": scores,
        "quality": tagger.score(emoji.X[3::80], documents[3::80]),
    }


def embedded_sounds() -> dict[str, Any]:
    """Fit to the tag sets of the clips, and complete some."""
    clips = load_dataset("clips")
    documents = list(clips.corpus)
    tagger = models.small_tagger().fit(None, documents)
    starts = [document[:2] for document in documents[:5]]
    return {
        "corpus": [len(documents), clips.corpus.labels, clips.checksum],
        "completions": tagger.complete(starts, k=5),
    }
