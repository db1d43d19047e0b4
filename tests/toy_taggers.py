"""What tests of taggers share: quick taggers, verdicts on the toy world, and comparisons."""

from __future__ import annotations

import copy

import numpy as np
from numpy.testing import assert_allclose

import polyseme
from polyseme import ConceptSpace, SpacePlan, ZeroShotTagger
from polyseme.feedback.verdict_log import VerdictLog


def points_of(tagger, X):
    return tagger.space_.points(tagger.transform(X))


PLAN = SpacePlan(hidden=16, code=12, document_batch=24, item_batch=16, probable_batch=8)


def tiny_tagger(n_steps=8, n_folds=2, **parameters):
    """Make a tagger that learns next to nothing, quickly."""
    space = ConceptSpace(n_folds=n_folds, n_steps=n_steps, plan=PLAN)
    return ZeroShotTagger(space=space, **({"random_state": 0} | parameters))


def column_of(tagger, label):
    return list(tagger.classes_).index(label)


def items_of(world, theme):
    """Return whether each new item is of a theme."""
    return np.array([item_theme == theme for item_theme in world.themes_test])


def raise_memory_error(*_):
    raise MemoryError


def copy_with_own_log(tagger):
    """Return a copy whose verdicts go to a new log in memory."""
    return copy.deepcopy(tagger).use_log(VerdictLog())


def verdicts_on(world, theme, label, n=4):
    """Return verdicts by row numbers: yes for items of a theme, no for items of other themes."""
    of_theme = items_of(world, theme)
    positive_rows = np.flatnonzero(of_theme)[:n]
    negative_rows = np.flatnonzero(~of_theme)[:n]
    positive = [(str(row), label, True) for row in positive_rows]
    negative = [(str(row), label, False) for row in negative_rows]
    return positive + negative


def folder_of(tagger):
    return tagger.verdicts_.file.parent


def assert_same(model, expected, new_items):
    """Check that two taggers know the same labels and score them alike."""
    assert list(model.classes_) == list(expected.classes_)
    expected_scores = expected.decision_function(new_items)
    assert_allclose(model.decision_function(new_items), expected_scores, atol=1e-5)


def load_without_cache(folder):
    """Load a tagger that finds no cached correction."""
    with VerdictLog(folder) as log:
        log.cache_corrections([])
    return polyseme.load(folder)
