"""Shared small worlds and settings; nothing here seeds anything globally."""

from __future__ import annotations

import gc
import json
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

import polyseme
from polyseme import ConceptSpace, PublishedTagger, SpacePlan, ZeroShotTagger
from polyseme.cli import main
from polyseme.documents.toy import ToyWorld, toy_world
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.published.training import TrainingPlan
from polyseme.tagger import Tagger

# Tests pass on a busy machine: no clock decides, neither over an example nor over their making.
settings.register_profile(
    "no_clocks", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("no_clocks")


class CommandResult(NamedTuple):
    """What a command returned and printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records that were printed as lines of JSON."""
        return [json.loads(line) for line in self.stdout.splitlines()]


# Test processes share two cores; one thread each keeps them out of each other's way.
torch.set_num_threads(1)

# Tests start hundreds of processes, which would all compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


# Files of half a minute and more. Test processes take them first, so that both end together.
SLOW_FILES = (
    "batch/test_ray.py",
    "torture/test_torture.py",
    "studio/test_studio.py",
    "test_docs.py",
    "batch/test_ray_training.py",
    "experiments/test_reproduce.py",
    "golden/test_golden.py",
    "experiments/test_trials.py",
    "cli/test_cli.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Let test processes take files in the order of the tests, not those with most tests first."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of slow files first."""
    tests = Path(__file__).parent
    slow_files = [tests / file for file in SLOW_FILES]

    def position(item: pytest.Item) -> int:
        return slow_files.index(item.path) if item.path in slow_files else len(slow_files)

    items.sort(key=position)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without looking for garbage.

    Modules and tests last until the end: to look through all of them again and again would take a
    third of the time of the collection, and of the tests whatever `freeze` spares them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def world() -> ToyWorld:
    return toy_world(random_state=0)


@pytest.fixture(scope="session")
def new_items(world: ToyWorld) -> np.ndarray:
    """Features of the toy world's new items."""
    return world.X_test


@pytest.fixture(scope="session")
def tiny_space() -> Callable[..., ConceptSpace]:
    """Return unfitted spaces that learn the toy world in a second."""

    def make(**parameters: Any) -> ConceptSpace:
        plan = SpacePlan(hidden=32, code=32, document_batch=64, item_batch=48, probable_batch=24)
        settings: dict[str, Any] = {"n_folds": 3, "n_steps": 120, "plan": plan}
        settings |= parameters
        return ConceptSpace(**settings)

    return make


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
        settings |= parameters
        return ConceptEmbedding(**settings)

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
def toy_tagger(world: ToyWorld, tiny_space: Callable[..., ConceptSpace]) -> ZeroShotTagger:
    """A fitted tagger; tests must not change it (load a saved copy to do so)."""
    tagger = ZeroShotTagger(space=tiny_space(), random_state=0)
    return tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)


@pytest.fixture
def own_tagger(toy_tagger: ZeroShotTagger, tmp_path: Path) -> Tagger:
    """A copy of the fitted tagger that a test may change."""
    # A tagger that was saved has its verdicts in that folder from then on, so a copy is saved.
    copy(toy_tagger).save(tmp_path / "model")
    return polyseme.load(tmp_path / "model")


@pytest.fixture(scope="session")
def theme_words(world: ToyWorld) -> dict[str, np.ndarray]:
    """Vectors of the toy world's words and themes: a direction for each theme, and noise."""
    rng = np.random.default_rng(0)
    vectors: dict[str, np.ndarray] = {}
    for theme, labels in world.themes.items():
        vectors[theme] = rng.normal(size=12)
        for label in labels:
            noisy = vectors[theme] + 0.2 * rng.normal(size=12)
            vectors[label] = vectors.get(label, 0) + noisy
    return vectors


@pytest.fixture(scope="session")
def published_tagger(world: ToyWorld, trained_embedding: ConceptEmbedding) -> PublishedTagger:
    """A fitted tagger of the published method; tests must not change it either."""
    tagger = PublishedTagger(
        embedding=trained_embedding,
        mapper=InstanceMapper(kind="kernel-ridge"),
        random_state=0,
    )
    return tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command in this process; return exit code, stdout and stderr."""

    def call(*words: object) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["polyseme", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        code = int(ended.value.code or 0)
        printed = capsys.readouterr()
        return CommandResult(code, printed.out, printed.err)

    return call


@pytest.fixture
def succeed(run: Callable[..., CommandResult]) -> Callable[..., CommandResult]:
    """Run a command that must succeed; return its result."""

    def call(*words: object) -> CommandResult:
        result = run(*words)
        assert result.code == 0, result.stderr
        return result

    return call


@pytest.fixture
def fail(run: Callable[..., CommandResult]) -> Callable[..., str]:
    """Run a command that must fail; return its sentence, which is the last line."""

    def call(*words: object) -> str:
        result = run(*words)
        assert result.code == 1, result.stderr
        assert result.stdout == ""
        return result.stderr.splitlines()[-1]

    return call


@pytest.fixture(scope="session")
def most_bytes() -> Callable[..., tuple[Any, int]]:
    """Call a function; return what it returns and its peak memory in bytes."""

    def measure(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
        tracemalloc.start()
        try:
            return function(*arguments), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real corpora; tests that need it are skipped where there is none."""
    folder = os.environ.get("POLYSEME_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real corpora are not here: POLYSEME_DATA names no folder")
    return Path(folder)
