"""Taggers of the toy world, and fits to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyseme import ConceptSpace, ZeroShotTagger
from polyseme.documents.toy import ToyWorld


def tiny_tagger(tiny_space: Callable[..., ConceptSpace], **parameters: Any) -> ZeroShotTagger:
    """Return an unfitted tagger whose space learns in a second, without validation."""
    space = tiny_space(**parameters)
    return ZeroShotTagger(space=space, n_validations=0, random_state=0)


def fit_world(model: Any, world: ToyWorld) -> Any:
    """Fit a model to the toy world's items; label sets alone teach what labels mean."""
    return model.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
