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
AMBIGUOUS = "apple"  # the label of two themes
UNSEEN = ("charger", "sink", "wave", "tram")  # which no training instance carries
OOV = {"owl": "forest", "shell": "beach"}  # labels that no label set holds, with their themes
_FEWEST_LABELS = 3  # of a document


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
        rows = []
        for theme in self.themes_test:
            theme_labels = self.themes[theme]
            row = [label in theme_labels for label in labels]
            rows.append(row)
        return np.array(rows)


def toy_world(
    *,
    n_documents: int = 300,
    n_test: int = 25,
    noise: float = 0.1,
    random_state: RandomState = None,
) -> ToyWorld:
    """Return a toy world: documents, as many instances, and test instances of every theme.

    Parameters
    ----------
    n_documents, n_test : int
        How many training and test instances; themes take turns.
    noise : float
        The standard deviation of the features around their theme.
    random_state : int, generator or None
        The numbers are drawn in a fixed order, so that a seed always gives the same world.
    """
    generator = as_generator(random_state)
    theme_names = list(THEMES)
    n_themes = len(theme_names)
    centres = np.eye(n_themes)  # of the features of each theme

    def draw_features(theme: str) -> NDArray[np.float64]:
        place = theme_names.index(theme)
        deviations = generator.standard_normal(n_themes)
        features = centres[place] + noise * deviations
        return np.asarray(features)

    def draw_document(theme: str, left_out: tuple[str, ...]) -> tuple[str, ...]:
        candidates = [label for label in THEMES[theme] if label not in left_out]
        n_candidates = len(candidates)
        size = generator.integers(_FEWEST_LABELS, n_candidates + 1)
        shuffled = generator.permutation(candidates)
        labels = shuffled[:size].tolist()
        return tuple(sorted(labels))

    themes = [theme_names[number % n_themes] for number in range(n_documents)]
    test_themes = [theme_names[number % n_themes] for number in range(n_test)]
    return ToyWorld(
        X=np.array([draw_features(theme) for theme in themes]),
        documents=[draw_document(theme, UNSEEN) for theme in themes],
        label_sets=[draw_document(theme, tuple(OOV)) for theme in themes],
        X_test=np.array([draw_features(theme) for theme in test_themes]),
        themes_test=test_themes,
        themes=dict(THEMES),
        unseen=UNSEEN,
        oov=tuple(OOV),
    )
