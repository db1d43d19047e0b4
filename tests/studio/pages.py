"""A browser on the studio: a model of pictures, a service, and pages of it."""

from __future__ import annotations

import base64
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from polyseme import ZeroShotTagger
from polyseme.media import Extracted, ImageFeatures
from polyseme.studio.app import Settings, create_app
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost

try:
    from playwright import sync_api as playwright
except ImportError:
    playwright = None

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

WIDE, NARROW = (1280, 800), (390, 844)
PATIENCE = 20_000  # milliseconds until something that never comes is called missing
COLOURS = {"office": "gray", "kitchen": "tan", "beach": "gold", "street": "navy", "forest": "green"}
EACH = 4  # pictures of a theme
NAMES = tuple(f"{theme}/{number}.png" for number in range(EACH) for theme in COLOURS)
OWN_TAGS = {"beach/3.png": ("sun", "parasol")}


def skip_without_browser() -> Any:
    """Skip the tests of a module where no browser can be driven; return `expect` of playwright."""
    if playwright is None:
        pytest.skip("playwright is not installed", allow_module_level=True)
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine", allow_module_level=True)
    playwright.expect.set_options(timeout=PATIENCE)
    return playwright.expect


# ---------------------------------------------------------------------- a model of pictures


@pytest.fixture(scope="session")
def looks(world) -> dict[str, np.ndarray]:
    """The features that stand for those of the network, for each theme."""
    rng = np.random.default_rng(0)
    return {theme: rng.normal(size=1280) for theme in world.themes}


@pytest.fixture(scope="session")
def saved_pictures(tmp_path_factory, world, looks, tiny_space, save_with_map) -> Path:
    """A saved tagger of pictures, and a folder for each theme with pictures of one colour."""
    from PIL import Image

    place = tmp_path_factory.mktemp("studio")
    features = world.X @ np.stack([looks[theme] for theme in world.themes])
    extractor = ImageFeatures()
    names = tuple(f"known-{row}" for row in range(len(features)))
    items = Extracted("image", extractor.preprocessing(), names, features.astype(np.float32))
    space = tiny_space()
    tagger = ZeroShotTagger(features=extractor, space=space, n_validations=1, random_state=0)
    tagger.fit(items, world.documents, label_sets=world.label_sets, label_sets_only=True)
    save_with_map(tagger, place / "toy")
    for theme, colour in COLOURS.items():
        (place / "photos" / theme).mkdir(parents=True)
        for number in range(EACH):
            size = (48 + 8 * number, 40)
            Image.new("RGB", size, colour).save(place / "photos" / theme / f"{number}.png")
    return place


@pytest.fixture
def place(saved_pictures, tmp_path) -> Path:
    """A copy of model and pictures that a test may change."""
    return Path(shutil.copytree(saved_pictures, tmp_path / "own"))


@pytest.fixture
def address(place, looks) -> Iterator[Callable[..., str]]:
    """Start services in threads that end with the test; return their addresses."""
    import uvicorn

    started: list[tuple[uvicorn.Server, threading.Thread]] = []

    def pictures_host(own_tags: Mapping[str, tuple[str, ...]]) -> ModelHost:
        rng = np.random.default_rng(1)
        rows = [looks[name.split("/")[0]] + 0.1 * rng.normal(size=1280) for name in NAMES]
        X = np.array(rows, dtype=np.float32)
        items = Extracted("image", ImageFeatures().preprocessing(), NAMES, X)
        tags = [own_tags.get(name, ()) for name in NAMES]
        files = {name: place / "photos" / name for name in NAMES}
        return ModelHost(place / "toy", Collection(NAMES, items, tags, files))

    def start(
        own_tags: Mapping[str, tuple[str, ...]] = OWN_TAGS,
        watch: float = 0,
        host: ModelHost | None = None,
        **settings: Any,
    ) -> str:
        app = create_app([host or pictures_host(own_tags)], Settings(watch=watch, **settings))
        # What connects before the server runs waits in the socket's queue.
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="error"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        started.append((server, thread))
        port = listener.getsockname()[1]
        return f"http://127.0.0.1:{port}"

    yield start
    for server, thread in started:
        server.should_exit = True
        thread.join()


# ---------------------------------------------------------------------- a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as runner:
        chromium = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Studio:
    """A page of the studio, and what went wrong on it."""

    def __init__(self, page: Any, base: str) -> None:
        self.page = page
        self.base = base
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._note_error)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._note_request)

    def _note_error(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _note_request(self, request: Any) -> None:
        url = urlsplit(request.url)
        is_local = url.scheme in ("blob", "data")
        if not is_local and f"{url.scheme}://{url.netloc}" != self.base:
            self.elsewhere.append(request.url)

    def open(self, path: str = "") -> None:
        """Go to a view, such as `#/ask`, and wait until it is complete."""
        self.page.goto(f"{self.base}/{path}")
        view = path.strip("#/").split("/")[0]
        self.ready(view or "map")

    def ready(self, view: str) -> None:
        self.page.wait_for_selector(f'html[data-ready="{view}"]', state="attached")

    def state(self, name: str) -> Any:
        """Return a part of the studio's state, such as `map.islands`."""
        return self.page.evaluate(f"() => window.__studio.{name}")

    def until(self, condition: str) -> None:
        """Wait until the studio's state fulfils a condition; check it after every frame."""
        self.page.evaluate(
            "() => new Promise((done) => { const look = () => { const studio = window.__studio;"
            f" if ({condition}) done(); else requestAnimationFrame(look); }}; look(); }})"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def find(self, role: str, name: str) -> Any:
        """Find an element by its exact name, or by its beginning where that ends in dots."""
        if name.endswith("…"):
            return self.page.get_by_role(role, name=re.compile(f"^{re.escape(name[:-1])}"))
        return self.page.get_by_role(role, name=name, exact=True)

    def choose(self, name: str) -> None:
        """Click the label of a radio button, as people do: the button itself may be hidden."""
        radio = self.find("radio", name)
        self.page.locator("label").filter(has=radio).click()
        playwright.expect(radio).to_be_checked()

    def enter(self, control: Any) -> None:
        """Press Tab until a control has the focus, as people do without a mouse, and Enter."""
        playwright.expect(control).to_be_visible()
        for _ in range(150):
            if control.evaluate("(element) => element === document.activeElement"):
                return self.press("Enter")
            self.press("Tab")
        raise AssertionError(f"Tab never reaches {control}")

    def go(self, view: str) -> None:
        """Go to another view by its tab."""
        tabs = self.page.get_by_role("navigation", name="Views")
        self.enter(tabs.get_by_role("link", name=view))
        self.ready(view.lower())

    def wait_until_saved(self) -> None:
        """Wait until the service has all answers."""
        self.until("studio.review && studio.review.waiting === 0 && !studio.review.failed")


@pytest.fixture
def studio(browser, address) -> Iterator[Callable[..., Studio]]:
    """Open pages on which nothing may go wrong and nothing may be fetched from elsewhere."""
    views: list[tuple[Studio, Any, tuple[str, ...]]] = []

    def open_studio(
        size: tuple[int, int] = WIDE,
        may_say: tuple[str, ...] = (),
        beside: Studio | None = None,
        **settings: Any,
    ) -> Studio:
        width, height = size
        viewport = {"width": width, "height": height}
        context = browser.new_context(viewport=viewport, accept_downloads=True)
        base = address(**settings) if beside is None else beside.base
        view = Studio(context.new_page(), base)
        views.append((view, context, may_say))
        return view

    yield open_studio
    for view, context, may_say in views:
        is_open = view.page.url.startswith("http")
        state_errors = view.state("errors") if is_open else []
        context.close()
        unexpected = without(may_say, view.errors)
        assert (unexpected, state_errors, view.elsewhere) == ([], [], [])


def without(fragments: tuple[str, ...], texts: list[str]) -> list[str]:
    """Return the texts that hold none of these fragments."""
    return [text for text in texts if not any(fragment in text for fragment in fragments)]


def tiles_of(page: Any, label: str) -> Any:
    """Find the pictures of a label's board."""
    return page.get_by_role("list", name=f"Items for {label}").get_by_role("listitem")


def name_of(tile: Any) -> str:
    """Return the name of a picture's item."""
    return tile.locator(".tile-name").inner_text()


def drop(page: Any, path: Path) -> None:
    """Drop a file on the view."""
    types = {".png": "image/png", ".md": "", ".html": "text/html"}
    media_type = types.get(path.suffix, "application/json")
    content = base64.b64encode(path.read_bytes()).decode()
    transfer = page.evaluate_handle(
        """([content, name, type]) => {
            const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type }));
            return transfer;
        }""",
        [content, path.name, media_type],
    )
    page.dispatch_event(".view-ask", "drop", {"dataTransfer": transfer})
