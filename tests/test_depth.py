"""How deep the package is: frames to the mathematics, files that one model passes through.

Frames and files are counted while the package runs, so that a call that is only moved counts on.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
from fastapi.testclient import TestClient
from sklearn.base import BaseEstimator

import polyseme
from polyseme import ZeroShotTagger
from polyseme.studio.app import Settings, create_app
from polyseme.studio.host import ModelHost

PACKAGE = str(Path(polyseme.__file__).parent) + "/"
# What a tagger does not need in order to rank: media, the published method, what surrounds a fit,
# batches, commands, the service.
OUTER = {"media", "published", "fitting", "fit_stages", "model_state", "batch", "cli", "studio"}
# One file for each idea that a life meets: 6 of `base`, 4 of `storage`, 5 of `documents` and `io`, 3
# of `feedback`, 5 of `fitting`, 5 of `scoring`, 10 of `space`, 7 of the service, and 7 at the root.
# Whatever is asked of a service once it runs, such as a refit, is loaded when it is asked for.
MOST_FILES = 52


def file_of(code: CodeType) -> str:
    """Return the file of ours that code is in; nothing for code of others."""
    name = code.co_filename
    return name.removeprefix(PACKAGE) if name.startswith(PACKAGE) else ""


def name_of(frame: FrameType) -> str:
    """Return the file and function of a frame."""
    return f"{file_of(frame.f_code)}:{frame.f_code.co_name}"


def our_frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of ours on a stack, the outermost first."""
    frames = []
    while frame is not None:
        if file_of(frame.f_code):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


@contextmanager
def profiled(look: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    """Look at every call and return of this thread and of those that are started meanwhile."""
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def is_table(value: object, n_columns: int | None) -> bool:
    """Whether a value is, or holds, a table of numbers; of so many columns where these count."""
    if isinstance(value, tuple):
        return any(is_table(element, n_columns) for element in value)
    if not isinstance(value, np.ndarray) or value.ndim < 2 or value.dtype.kind != "f":
        return False
    return n_columns is None or value.shape[-1] == n_columns


class DeepestTable:
    """The longest chain of our frames at whose end a table of numbers was computed.

    A function that returns or yields a table computes it or asks for it one frame deeper, whatever
    library multiplies: the deepest such function has the product.
    """

    def __init__(self, n_columns: int | None, before: Callable[[], list[str]] = list) -> None:
        self.n_columns = n_columns
        self.before = before  # names of frames that wait for this stack elsewhere
        self.chain: list[str] = []

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        """Look at one event."""
        if event != "return" or not file_of(frame.f_code):
            return
        if is_table(value, self.n_columns):
            names = [name_of(our_frame) for our_frame in our_frames(frame)]
            chain = [*(name for name in self.before() if name not in names), *names]
            self.chain = max(self.chain, chain, key=len)


def test_ranking_reaches_the_scores_of_labels_in_six_frames(toy_tagger, world):
    deepest = DeepestTable(len(toy_tagger.classes_))
    with profiled(deepest):
        toy_tagger.rank(world.X_test[:1])
    assert deepest.chain[0].endswith(":rank")
    assert len(deepest.chain) <= 6, deepest.chain


def test_ranking_reaches_every_product_in_six_frames(toy_tagger, world):
    deepest = DeepestTable(None)
    with profiled(deepest):
        toy_tagger.rank(world.X_test[:1])
    assert len(deepest.chain) <= 6, deepest.chain


class Waiting:
    """The frames of ours that wait for an answer in an event loop, around an application."""

    def __init__(self, app: Callable[..., object]) -> None:
        self.app = app
        self.loop: asyncio.AbstractEventLoop | None = None
        self.request: asyncio.Task[object] | None = None
        self.earlier: set[asyncio.Task[object]] = set()

    async def __call__(self, scope, receive, send):
        """Answer a request; note which tasks are older than it."""
        if scope["type"] == "http":
            self.loop = asyncio.get_running_loop()
            self.request = asyncio.current_task()
            self.earlier = asyncio.all_tasks()
        await self.app(scope, receive, send)

    def names(self) -> list[str]:
        """Return the frames of ours that wait, those of the request first."""
        if self.loop is None:
            return []
        names = []
        for task in (self.request, *(asyncio.all_tasks(self.loop) - self.earlier)):
            coroutine = task.get_coro()
            while inspect.iscoroutine(coroutine):
                frame = coroutine.cr_frame
                if frame is not None and file_of(frame.f_code):
                    names.append(name_of(frame))
                coroutine = coroutine.cr_await
        return names


def suggest(client: TestClient, world) -> None:
    """Ask a service for tags."""
    body = {"features": world.X_test[0].tolist(), "k": 3}
    response = client.post("/v1/models/model/suggest", json=body)
    assert response.status_code == 200, response.text


def test_a_suggestion_by_rest_reaches_the_scores_of_labels_in_ten_frames(
    toy_tagger, world, own_tagger, tmp_path
):
    waiting = Waiting(create_app([ModelHost(tmp_path / "model")], Settings(watch=0)))
    deepest = DeepestTable(len(toy_tagger.classes_), waiting.names)
    with profiled(deepest), TestClient(waiting, "http://localhost") as client:
        suggest(client, world)  # what is loaded and cached by the first one is no part of asking
        deepest.chain = []
        suggest(client, world)
    assert len(deepest.chain) <= 10, deepest.chain


def test_importing_the_tagger_loads_few_modules_and_no_outer_one():
    code = "import sys, polyseme.tagger; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [name for name in done.stdout.split() if name.split(".")[0] == "polyseme"]
    outer = [name for name in modules if OUTER & set(name.split("."))]
    assert not outer
    assert len(modules) <= 25, modules


def test_the_tagger_has_few_public_methods():
    methods = set()
    for base in ZeroShotTagger.__mro__:
        if base.__module__.split(".")[0] != "polyseme":
            continue
        for name, value in vars(base).items():
            if isinstance(value, (property, classmethod, staticmethod)) or callable(value):
                methods.add(name)
    public = {name for name in methods if not name.startswith("_")} - set(dir(BaseEstimator))
    assert len(public) <= 24, f"{len(public)}: {sorted(public)}"


def live(world, unfitted: ZeroShotTagger, folder: Path) -> None:
    """Lead one life of a model: fit, rank, explain, learn, save, load, serve."""
    tagger = unfitted.fit(world.X, world.documents, world.label_sets)
    tagger.rank(world.X_test)
    tagger.explain(world.X_test[0], "charger")
    tagger.learn([("0", "charger", True)], world.X_test)
    tagger.save(folder / "model")
    polyseme.load(folder / "model").rank(world.X_test)
    app = create_app([ModelHost(folder / "model")], Settings(watch=0))
    with TestClient(app, "http://localhost") as client:
        suggest(client, world)


def test_a_model_passes_through_few_files_in_its_life(world, tiny_space, tmp_path):
    def unfitted() -> ZeroShotTagger:
        return ZeroShotTagger(tiny_space(n_steps=40), n_validations=1, random_state=0)

    files = set()

    def look(frame: FrameType, event: str, value: object) -> None:
        # Bodies of modules and classes are no functions.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            files.add(file_of(frame.f_code))

    live(world, unfitted(), tmp_path / "first")  # imports run functions of their own
    with profiled(look):
        live(world, unfitted(), tmp_path / "second")
    files -= {""}
    assert len(files) <= MOST_FILES, f"{len(files)}: {sorted(files)}"
