"""A small model behind the service, with items to review."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from polyseme import ImageFeatures, ZeroShotTagger
from polyseme.io import Table
from polyseme.serve.app import Settings, create_app
from polyseme.serve.collection import Collection
from polyseme.serve.host import ModelHost


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory, world, tiny_space) -> Path:
    path = tmp_path_factory.mktemp("serve") / "toy"
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=1, random_state=0)
    tagger.fit(world.X, world.documents, label_sets=world.label_sets, label_sets_only=True).save(
        path
    )
    return path


@pytest.fixture(scope="session")
def pictures_model(tmp_path_factory, tiny_space) -> Path:
    """A model of red and blue pictures."""
    rng = np.random.default_rng(0)
    red, blue = np.array([220, 20, 30]), np.array([20, 30, 220])
    drawn = [
        np.clip((red, blue)[row % 2] + rng.normal(0, 9, (32, 32, 3)), 0, 255) for row in range(24)
    ]
    words = [["fire", "warm"], ["sea", "cold"]] * 12
    extractor = ImageFeatures(size=32, depth="pooled", n_jobs=1)
    tagger = ZeroShotTagger(tiny_space(n_steps=60), extractor, n_validations=0, random_state=0)
    folder = tmp_path_factory.mktemp("pictures") / "photos"
    tagger.fit(np.stack(drawn).astype(np.uint8), words).save(folder)
    return folder


@pytest.fixture
def model(saved_model, tmp_path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(saved_model, tmp_path / "toy"))


@pytest.fixture
def collection(world) -> Collection:
    ids = [f"item-{row}" for row in range(len(world.X_test))]
    tags = [("sand",) if theme == "beach" else () for theme in world.themes_test]
    return Collection(tuple(ids), Table(features=world.X_test, ids=ids), tags, None)


@pytest.fixture
def host(model, collection) -> ModelHost:
    return ModelHost(model, collection)


@pytest.fixture
def serving() -> Iterator[Callable[..., Any]]:
    """Start services that end with the test."""
    opened: list[TestClient] = []

    def start(*hosts: ModelHost, **settings: Any) -> TestClient:
        app = create_app(hosts, Settings(**({"watch": 0} | settings)))
        client = TestClient(app, "http://localhost", raise_server_exceptions=False)
        opened.append(client)
        return client.__enter__()

    yield start
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(host, serving) -> TestClient:
    return serving(host)
