"""A small world whose right answers are known by construction.

Every document belongs to one theme and holds some of its labels; every instance's features name its
theme, with noise. All labels of an instance's theme should therefore rank above all others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import RandomState, as_generator

THEMES: dict[str, tuple[str, ...]] = {
    "office": ("apple", "phone", "screen", "keyboard", "desk", "charger"),
    "kitchen": ("apple", "knife", "oven", "pie", "plate", "sink"),
    "beach": ("sand", "sea", "sun", "shell", "towel", "wave"),
    "street": ("bus", "car", "lamp", "crossing", "pavement", "tram"),
    "forest": ("fern", "moss", "oak", "owl", "path", "squirrel"),
}
AMBIGUOUS = "apple"
UNSEEN = ("charger", "sink", "wave", "tram")
OOV = {"owl": "forest", "shell": "beach"}


@dataclass(frozen=True)
class ToyWorld:
    """Documents and instances of a world with themes."""

    X: NDArray[np.float64]  # (n, n_features), training instances; none carries an unseen label
    documents: list[tuple[str, ...]]  # their labels, oov labels among them
    label_sets: list[tuple[str, ...]]  # label-only documents, with unseen labels but no oov label
    X_test: NDArray[np.float64]  # (n_test, n_features)
    themes_test: list[str]  # the theme of each test instance
    themes: dict[str, tuple[str, ...]]  # the labels of each theme; `apple` is in two of them
    unseen: tuple[str, ...]  # labels that no training instance carries
    oov: tuple[str, ...]  # labels that no label set holds

    def truth(self, labels: tuple[str, ...]) -> NDArray[np.bool_]:
        """Return which of the given labels belong to each test instance, (n_test, n_labels)."""
        return np.array([[label in self.themes[t] for label in labels] for t in self.themes_test])


def toy_world(
    *,
    n_documents: int = 300,
    n_test: int = 25,
    noise: float = 0.1,
    random_state: RandomState = None,
) -> ToyWorld:
    """Return a toy world: documents, as many instances, and test instances of every theme.

    `noise` is the standard deviation of the features around their theme.
    """
    generator = as_generator(random_state)
    names = list(THEMES)
    n_themes = len(names)
    corners = np.eye(n_themes)

    def instance(theme: str) -> NDArray[np.float64]:
        place = names.index(theme)
        corner = corners[place]
        deviations = generator.standard_normal(n_themes)
        noisy = noise * deviations
        features = corner + noisy
        return np.asarray(features)

    def document(theme: str, left_out: tuple[str, ...]) -> tuple[str, ...]:
        pool = [label for label in THEMES[theme] if label not in left_out]
        n_most = len(pool)
        size = generator.integers(3, n_most + 1)
        shuffled = generator.permutation(pool)
        labels = shuffled[:size]
        names = labels.tolist()
        return tuple(sorted(names))

    themes = [names[number % n_themes] for number in range(n_documents)]
    test_themes = [names[number % n_themes] for number in range(n_test)]
    return ToyWorld(
        X=np.array([instance(theme) for theme in themes]),
        documents=[document(theme, UNSEEN) for theme in themes],
        label_sets=[document(theme, tuple(OOV)) for theme in themes],
        X_test=np.array([instance(theme) for theme in test_themes]),
        themes_test=test_themes,
        themes=dict(THEMES),
        unseen=UNSEEN,
        oov=tuple(OOV),
    )
