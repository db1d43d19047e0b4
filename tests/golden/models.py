"""Small worlds, and taggers that learn them in a fraction of a second.

This is the one place that names parameters of a fit; the cases only ask.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from polyseme import ConceptSpace, PublishedTagger, SpacePlan, ZeroShotTagger
from polyseme.documents.toy import ToyWorld, toy_world
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.published.training import TrainingPlan


@cache
def world() -> ToyWorld:
    """Return the toy world."""
    return toy_world(random_state=0)


def truth() -> list[tuple[str, ...]]:
    """Return the labels of the test items."""
    return [world().themes[theme] for theme in world().themes_test]


def small_space(**parameters: Any) -> ConceptSpace:
    """Return an unfitted space that learns the toy world."""
    plan = SpacePlan(hidden=32, code=32, document_batch=64, item_batch=48, probable_batch=24)
    return ConceptSpace(**({"n_folds": 3, "n_steps": 60, "plan": plan} | parameters))


def small_tagger(**parameters: Any) -> ZeroShotTagger:
    """Return an unfitted tagger that learns the toy world."""
    settings = {"space": small_space(), "n_validations": 0, "random_state": 0}
    return ZeroShotTagger(**(settings | parameters))


def toy_tagger(n_validations: int = 1) -> ZeroShotTagger:
    """Return a tagger of the toy world, with seen, unseen and oov labels."""
    toy = world()
    tagger = small_tagger(n_validations=n_validations)
    return tagger.fit(toy.X, toy.documents, toy.label_sets, label_sets_only=True)


def small_published(kind: str, **parameters: Any) -> PublishedTagger:
    """Return an unfitted tagger of the published method."""
    embedding = ConceptEmbedding(
        n_components=8,
        hidden_sizes=(16,),
        context_descriptor=ContextDescriptor(n_topics=5, n_iter=50),
        training=TrainingPlan(max_epochs=4, batch_size=128, min_steps=5),
        random_state=0,
    )
    mapper = InstanceMapper(kind=kind)
    return PublishedTagger(embedding=embedding, mapper=mapper, random_state=0, **parameters)


@cache
def theme_words() -> dict[str, np.ndarray]:
    """Return vectors of the toy world's words and themes."""
    rng = np.random.default_rng(0)
    vectors: dict[str, np.ndarray] = {}
    for theme, labels in world().themes.items():
        vectors[theme] = rng.normal(size=12)
        for label in labels:
            noisy = vectors[theme] + 0.2 * rng.normal(size=12)
            vectors[label] = vectors.get(label, 0) + noisy
    return vectors
