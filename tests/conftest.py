"""Shared small worlds and settings; nothing here seeds anything globally."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from polyseme import ConceptEmbedding, ContextDescriptor, InstanceMapper, TrainingPlan
from polyseme.datasets.toy import ToyWorld, toy_world
from polyseme.tagger import ZeroShotTagger

# Test processes share two cores; one thread each keeps them out of each other's way.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def world() -> ToyWorld:
    return toy_world(random_state=0)


@pytest.fixture(scope="session")
def tiny_embedding() -> Callable[..., ConceptEmbedding]:
    def make(**parameters: Any) -> ConceptEmbedding:
        plan = TrainingPlan(max_epochs=4, batch_size=128, min_steps=5)
        settings: dict[str, Any] = {
            "n_components": 8,
            "hidden_sizes": (16,),
            "context_descriptor": ContextDescriptor(n_topics=5, n_iter=50),
            "training": plan,
            "random_state": 0,
        }
        return ConceptEmbedding(**(settings | parameters))

    return make


@pytest.fixture(scope="session")
def trained_embedding() -> ConceptEmbedding:
    """An untrained embedding whose plan is long enough for the toy world to be solved."""
    return ConceptEmbedding(
        n_components=24,
        hidden_sizes=(32, 32),
        context_descriptor=ContextDescriptor(n_topics=6, n_iter=200),
        training=TrainingPlan(max_epochs=12, batch_size=256, patience=12, learning_rate=3e-3),
    )


@pytest.fixture(scope="session")
def toy_tagger(world: ToyWorld, trained_embedding: ConceptEmbedding) -> ZeroShotTagger:
    """A fitted tagger; tests must not change it (load a saved copy to do so)."""
    tagger = ZeroShotTagger(
        embedding=trained_embedding,
        mapper=InstanceMapper(kind="kernel-ridge"),
        random_state=0,
    )
    return tagger.fit(world.X, world.documents, world.semantics)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real corpora; tests that need it are skipped where there is none."""
    found = os.environ.get("POLYSEME_DATA")
    if not found or not Path(found).is_dir():
        pytest.skip("real corpora are not here: POLYSEME_DATA names no folder")
    return Path(found)
