"""What the published method answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import polyseme
from golden import Case, models
from polyseme import PublishedTagger


def cases(folder: Path) -> dict[str, Case]:
    """Return the cases by name."""
    toy = models.world()
    X = toy.X_test
    results: dict[str, Case] = {}
    settings = {
        "kernel ridge": ("kernel-ridge", {}),
        "density": ("kernel-ridge", {"relatedness": "density"}),
        "nu-SVR": ("nu-svr", {}),
    }
    for name, (kind, parameters) in settings.items():
        tagger = models.small_published(kind, **parameters)
        tagger.fit(toy.X, toy.documents, toy.label_sets, label_sets_only=True)
        results |= asked(name, tagger, X, folder)
    return results


def asked(name: str, tagger: PublishedTagger, X: np.ndarray, folder: Path) -> dict[str, Case]:
    """Return the cases of one tagger."""

    def loaded() -> PublishedTagger:
        path = folder / name.replace(" ", "-")
        tagger.save(path)
        return polyseme.load(path)

    return {
        f"labels, {name}": lambda: [tagger.classes_, tagger.kinds_, tagger.seen_, tagger.dropped_],
        f"points, {name}": lambda: tagger.points(X[:5]),
        f"scores, {name}": lambda: tagger.decision_function(X[:5]),
        f"rankings, {name}": lambda: tagger.rank(X[:5], k=5),
        f"explanation, {name}": lambda: tagger.explain(X[0], "charger", k=3),
        f"completions, {name}": lambda: tagger.complete([["sea", "sun"], ["apple"]], k=4),
        f"saved and loaded, {name}": lambda: loaded().decision_function(X[:1]),
        f"growth, {name}": lambda: growth(loaded(), X),
    }


def growth(tagger: PublishedTagger, X: np.ndarray) -> Any:
    """Add documents with a new label, and remove them."""
    names = tagger.add_documents([["sea", "jellyfish"], ["sand", "jellyfish", "wave"]])
    grown = [names, tagger.classes_[-1], tagger.decision_function(X[:2])]
    tagger.remove_documents(names)
    return [grown, tagger.decision_function(X[:1])]
