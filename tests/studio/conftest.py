"""A small model behind the service, with items to review."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from notes import write_notes
from pages import address, browser, looks, place, saved_pictures, studio  # noqa: F401  # fixtures
from rest import ModelClient

from polyseme import ImageFeatures, ZeroShotTagger
from polyseme.cli.serving import read_collection
from polyseme.documents.corpus import LabelCorpus
from polyseme.io import Table
from polyseme.media import Extracted, TextFeatures
from polyseme.media.keywords import keywords_of
from polyseme.studio.access import Tokens, new_token
from polyseme.studio.app import Settings, create_app
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost
from polyseme.studio.landscape import Landscape


@pytest.fixture(scope="session")
def save_with_map() -> Callable[[ZeroShotTagger, Path], None]:
    """Save a tagger and the layout of its map.

    A service lays out the map of a model that has none, which takes longer than most tests.
    """

    def save(tagger: ZeroShotTagger, folder: Path) -> None:
        tagger.save(folder)
        points = tagger.store_.points
        landscape = Landscape.learn(points, tagger.space_.digest_)
        landscape.save(folder)

    return save


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory, world, tiny_space, save_with_map) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    path = folder / "toy"
    tagger = ZeroShotTagger(tiny_space(), n_validations=1, random_state=0)
    tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    save_with_map(tagger, path)
    return path


@pytest.fixture(scope="session")
def pictures_model(tmp_path_factory, tiny_space) -> Path:
    """A model of red and blue pictures."""
    rng = np.random.default_rng(0)
    colours = np.array([[220, 20, 30], [20, 30, 220]] * 12)
    noise = rng.normal(0, 9, (24, 32, 32, 3))
    pictures = np.clip(colours[:, None, None] + noise, 0, 255).astype(np.uint8)
    documents = [["fire", "warm"], ["sea", "cold"]] * 12
    extractor = ImageFeatures(size=32, depth="pooled", n_jobs=1)
    space = tiny_space(n_steps=60)
    tagger = ZeroShotTagger(space, extractor, n_validations=0, random_state=0)
    folder = tmp_path_factory.mktemp("pictures") / "photos"
    tagger.fit(pictures, documents).save(folder)
    return folder


@pytest.fixture(scope="session")
def saved_notes(tmp_path_factory, tiny_space, save_with_map) -> Path:
    """A folder of notes with tags in their front matter, and a model that was fitted to them."""
    pytest.importorskip("yaml", reason="the extra text is not installed")
    folder = tmp_path_factory.mktemp("texts")
    write_notes(folder / "notes")
    paths = sorted((folder / "notes").iterdir())
    extractor = TextFeatures(n_topics=8, n_jobs=1, random_state=0)
    documents = [keywords_of(path, "text").tags for path in paths]
    is_tagged = [bool(tags) for tags in documents]
    tagged_paths = [path for path, has_tags in zip(paths, is_tagged, strict=True) if has_tags]
    names = [path.name for path in tagged_paths]
    raw = extractor.raw(tagged_paths)
    items = Extracted("text", extractor.preprocessing(), tuple(names), raw)
    corpus = LabelCorpus.from_documents(filter(None, documents), ids=names)
    tagger = ZeroShotTagger(tiny_space(n_steps=60), extractor, n_validations=0, random_state=0)
    save_with_map(tagger.fit(items, corpus), folder / "toy")
    return folder


@pytest.fixture
def notes(saved_notes, tmp_path) -> Path:
    """A copy of notes and model that a test may change."""
    return Path(shutil.copytree(saved_notes, tmp_path / "texts"))


@pytest.fixture
def notes_host(notes) -> ModelHost:
    """The model of notes, with the notes as items."""
    host = ModelHost(notes / "toy")
    tagger = host.snapshot.tagger
    host.collection = read_collection(tagger, host.path, notes / "notes", None, None)
    return host


@pytest.fixture
def model(saved_model, tmp_path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(saved_model, tmp_path / "toy"))


@pytest.fixture
def collection(world) -> Collection:
    """The test items of the toy world; those at the beach have a tag."""
    ids = [f"item-{row}" for row in range(len(world.X_test))]
    tags_by_theme = {"beach": ("sand",)}
    tags = [tags_by_theme.get(theme, ()) for theme in world.themes_test]
    table = Table(features=world.X_test, ids=ids)
    return Collection(tuple(ids), table, tags, None)


@pytest.fixture
def host(model, collection) -> ModelHost:
    return ModelHost(model, collection)


@pytest.fixture
def serving() -> Iterator[Callable[..., Any]]:
    """Start services that end with the test."""
    with ExitStack() as clients:

        def start(*hosts: ModelHost, watch: float = 0, **settings: Any) -> TestClient:
            all_settings = Settings(watch=watch, **settings)
            app = create_app(hosts, all_settings)
            client = TestClient(app, "http://localhost", raise_server_exceptions=False)
            return clients.enter_context(client)

        yield start


@pytest.fixture
def client(host, serving) -> TestClient:
    return serving(host)


@pytest.fixture
def toy(client) -> ModelClient:
    """Requests to the model that must succeed."""
    return ModelClient(client)


@pytest.fixture
def tokens(tmp_path) -> dict[str, str]:
    """A token of every scope."""
    file = tmp_path / "tokens.json"
    return {scope: new_token(file, scope, scope) for scope in ("read", "review", "admin")}


@pytest.fixture
def guarded_client(host, serving, tokens, tmp_path) -> TestClient:
    """A service that asks for a token."""
    return serving(host, tokens=Tokens.read(tmp_path / "tokens.json"))


@pytest.fixture
def bearer(tokens) -> Callable[[str], dict[str, str]]:
    """Return the headers of a caller with a scope."""
    return lambda scope: {"authorization": f"Bearer {tokens[scope]}"}
