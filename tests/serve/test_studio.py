"""The studio in a browser: every view, a person's whole way, by keys alone, wide and narrow."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

from polyseme import ZeroShotTagger, load
from polyseme.features import Extracted, ImageFeatures
from polyseme.serve.access import Tokens, new_token
from polyseme.serve.app import Settings, create_app
from polyseme.serve.collection import Collection
from polyseme.serve.host import ModelHost
from polyseme.serve.refit import RefitStatus, Refitting

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("there is no Chromium on this machine", allow_module_level=True)

WIDE, NARROW = (1280, 800), (390, 844)
PATIENCE = 20_000  # milliseconds until something that never comes is called missing
expect.set_options(timeout=PATIENCE)
COLOURS = {"office": "gray", "kitchen": "tan", "beach": "gold", "street": "navy", "forest": "green"}
EACH = 4  # pictures of a theme
OWN_TAGS = {"beach/3.png": ("sun", "parasol")}

# ---------------------------------------------------------------------- a model of pictures


@pytest.fixture(scope="session")
def looks(world) -> dict[str, np.ndarray]:
    """What the network is made to say of each theme."""
    rng = np.random.default_rng(0)
    return {theme: rng.normal(size=1280) for theme in world.themes}


@pytest.fixture(scope="session")
def saved_pictures(tmp_path_factory, world, looks, tiny_space) -> Path:
    """A saved tagger of pictures, and a folder for each theme with pictures of one colour."""
    from PIL import Image

    place = tmp_path_factory.mktemp("studio")
    raw = (world.X @ np.stack([looks[theme] for theme in world.themes])).astype(np.float32)
    extractor = ImageFeatures()
    names = tuple(f"known-{row}" for row in range(len(raw)))
    items = Extracted("image", extractor.preprocessing(), names, raw)
    space = tiny_space()
    tagger = ZeroShotTagger(features=extractor, space=space, n_validations=1, random_state=0)
    tagger.fit(items, world.documents, label_sets=world.label_sets, label_sets_only=True).save(
        place / "toy"
    )
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
    """Start services in threads that end with the test; give their addresses."""
    import uvicorn

    started: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(own_tags: Mapping[str, tuple[str, ...]] = OWN_TAGS, **settings: Any) -> str:
        rng = np.random.default_rng(1)
        names = [f"{theme}/{number}.png" for number in range(EACH) for theme in COLOURS]
        rows = [looks[name.split("/")[0]] + 0.1 * rng.normal(size=1280) for name in names]
        raw = np.array(rows, dtype=np.float32)
        X = Extracted("image", ImageFeatures().preprocessing(), tuple(names), raw)
        tags = [own_tags.get(name, ()) for name in names]
        files = {name: place / "photos" / name for name in names}
        host = ModelHost(place / "toy", Collection(tuple(names), X, tags, files))
        app = create_app([host], Settings(**({"watch": 0} | settings)))
        # What connects before the server runs waits in the socket's queue.
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        started.append((server, thread))
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for server, thread in started:
        server.should_exit = True
        thread.join()


# ---------------------------------------------------------------------- a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as runner:
        made = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


class Studio:
    """A page of the studio, and what went wrong on it."""

    def __init__(self, page: Any, base: str) -> None:
        self.page, self.base = page, base
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._follow)

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _follow(self, request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("blob", "data") and f"{url.scheme}://{url.netloc}" != self.base:
            self.elsewhere.append(request.url)

    def open(self, way: str = "") -> None:
        """Go to a view, such as `#/ask`, and wait until it stands."""
        self.page.goto(f"{self.base}/{way}")
        self.ready(way.strip("#/").split("/")[0] or "map")

    def ready(self, view: str) -> None:
        self.page.wait_for_selector(f'html[data-ready="{view}"]', state="attached")

    def hook(self, name: str) -> Any:
        """Return what the studio tells of itself, such as `map.islands`."""
        return self.page.evaluate(f"() => window.__studio.{name}")

    def until(self, condition: str) -> None:
        """Wait until the studio says so of itself; looked at after every frame."""
        self.page.evaluate(
            "() => new Promise((done) => { const look = () => { const studio = window.__studio;"
            f" if ({condition}) done(); else requestAnimationFrame(look); }}; look(); }})"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def named(self, role: str, name: str) -> Any:
        """Find what has just this name, or begins with it where that ends in dots."""
        if name.endswith("…"):
            return self.page.get_by_role(role, name=re.compile(f"^{re.escape(name[:-1])}"))
        return self.page.get_by_role(role, name=name, exact=True)

    def enter(self, wanted: Any) -> None:
        """Press Tab until a control has the focus, as one does without a mouse, and Enter."""
        expect(wanted).to_be_visible()
        for _ in range(150):
            if wanted.evaluate("(one) => one === document.activeElement"):
                return self.press("Enter")
            self.press("Tab")
        raise AssertionError(f"Tab never comes to {wanted}")

    def go(self, view: str) -> None:
        """Go to another view by its tab."""
        self.enter(self.page.get_by_role("navigation", name="Views").get_by_role("link", name=view))
        self.ready(view.lower())

    def saved(self) -> None:
        """Wait until the service has all answers."""
        self.until("studio.review && studio.review.waiting === 0 && !studio.review.failed")


@pytest.fixture
def studio(browser, address) -> Iterator[Callable[..., Studio]]:
    """Open pages on which nothing may go wrong and nothing may be fetched from elsewhere."""
    opened: list[tuple[Studio, Any, list[str]]] = []

    def make(
        size: tuple[int, int] = WIDE,
        may_say: tuple[str, ...] = (),
        beside: Studio | None = None,
        **settings: Any,
    ) -> Studio:
        viewport = {"width": size[0], "height": size[1]}
        context = browser.new_context(viewport=viewport, accept_downloads=True)
        base = address(**settings) if beside is None else beside.base
        made = Studio(context.new_page(), base)
        opened.append((made, context, list(may_say)))
        return made

    yield make
    for made, context, may_say in opened:
        told = made.hook("errors") if made.page.url.startswith("http") else []
        context.close()
        wrong = [one for one in made.errors if not any(part in one for part in may_say)]
        assert (wrong, told, made.elsewhere) == ([], [], [])


# ---------------------------------------------------------------------- the whole way


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_person_goes_the_whole_way_by_keys_alone(studio, place, size):
    one = studio(size)
    page = one.page
    one.open()

    # Find a label, and see its two senses.
    one.press("/")
    page.keyboard.type("appl")
    one.press("Enter")
    expect(one.named("heading", "apple")).to_be_visible()
    expect(one.named("heading", "2 senses")).to_be_visible()
    senses = one.named("button", "Sense…")
    expect(senses).to_have_count(2)
    told = " ".join(senses.all_inner_texts())
    assert "phone" in told and "knife" in told
    one.until("studio.map.islands === 2 && studio.map.highlighted > 0")

    # Give a picture, and see its tags and where it lands.
    one.go("Ask")
    with page.expect_file_chooser() as chooser:
        one.enter(one.named("button", "Choose a picture…"))
    chooser.value.set_files(place / "photos" / "beach" / "0.png")
    expect(page.get_by_role("region", name="Where it lands")).to_be_visible()
    rows = page.get_by_role("region", name="Suggested tags").locator("ol.ranking > li")
    expect(rows).to_have_count(15)

    # Review ten items.
    one.go("Review")
    one.press("/")
    page.keyboard.type("wave")
    one.press("Enter")
    tiles = page.get_by_role("list", name="Items for wave").get_by_role("listitem")
    expect(tiles).to_have_count(EACH * len(COLOURS))
    expect(tiles.first).to_be_focused()
    assert [tiles.nth(at).locator(".tile-name").inner_text()[:5] for at in range(EACH)] == [
        "beach"
    ] * EACH
    for at in range(10):
        expect(tiles.nth(at)).to_be_focused()
        one.press("y" if at < EACH else "n")
    one.saved()
    expect(page.get_by_text("10 answered")).to_be_visible()
    expect(page.locator('.tile[data-answer="no"]')).to_have_count(6)

    # Add a tag.
    one.go("Vocabulary")
    one.enter(one.named("button", "Add tags"))
    expect(one.named("dialog", "Add tags")).to_be_visible()
    one.press("Tab")
    expect(one.named("textbox", "Tag sets…")).to_be_focused()
    page.keyboard.type("deckchair, sand, sea")
    expect(page.get_by_text("New: deckchair.")).to_be_visible()
    one.enter(one.named("button", "Add 1 tag set"))
    expect(one.named("heading", "deckchair")).to_be_visible()

    # Watch it rank, answer, and undo.
    one.enter(page.locator("article").get_by_role("link", name="Review"))
    one.ready("review")
    tiles = page.get_by_role("list", name="Items for deckchair").get_by_role("listitem")
    expect(tiles.first).to_be_focused()
    first = [tiles.nth(at).locator(".tile-name").inner_text() for at in range(EACH)]
    assert {name.split("/")[0] for name in first} == {"beach"}
    one.press("y")
    one.saved()
    expect(tiles.first).to_have_attribute("data-answer", "yes")
    one.press("u")
    one.saved()
    expect(tiles.first).to_have_attribute("data-answer", "open")
    expect(tiles.first).to_be_focused()

    # Export, to a file and beside the pictures.
    export = page.locator("summary", has_text="Export")
    one.enter(export)
    with page.expect_download() as download:
        one.enter(one.named("button", "Answers…"))
    lines = [json.loads(line) for line in download.value.path().read_text("utf-8").splitlines()]
    assert [line["answer"] for line in lines] == [True] * EACH + [False] * 6
    assert {line["label"] for line in lines} == {"wave"}
    assert lines[0]["rank"] == 1
    one.enter(export)
    one.enter(one.named("button", "Sidecars…"))
    expect(page.get_by_text("4 tags would be written")).to_be_visible()
    one.enter(one.named("button", "Write the files"))
    expect(page.get_by_text("4 tags written beside 4 items.")).to_be_visible()
    written = sorted(path.parent.name for path in (place / "photos").rglob("*.xmp"))
    assert written == ["beach"] * EACH


# ---------------------------------------------------------------------- every view


def test_the_map_shows_every_concept_and_what_lies_together(studio, place):
    one = studio()
    page = one.page
    one.open()
    n_dots = sum(len(set(tags)) for tags in known_documents(place))
    assert one.hook("map.n") == n_dots
    assert one.hook("map.renderer") in ("webgl2", "2d")
    expect(page.get_by_text("All known tag sets")).to_be_visible()
    one.until("studio.map.full > 0 && studio.map.captions > 0")

    chart = page.get_by_role("application")
    chart.focus()
    one.press("+")
    one.until("studio.map.scale > 1.2")
    one.press("0")
    one.until("Math.abs(studio.map.scale - 1) < 0.05")
    one.press("v")
    expect(one.named("heading", "Tags they share")).to_be_visible()
    one.press("Escape")
    expect(one.named("heading", "All known tag sets")).to_be_visible()

    one.press("Enter")
    expect(page.get_by_text("Known tag set", exact=False).first).to_be_visible()
    one.named("link", "Ask with these tags").click()
    one.ready("ask")
    expect(page.locator("ol.ranking > li").first).to_be_visible()


def known_documents(place: Path) -> list[tuple[str, ...]]:
    """Return what the saved model knows."""
    from polyseme import load

    store = load(place / "toy").store_
    return [store.document(row) for row in range(len(store.ids))]


def test_asking_completes_explains_and_says_what_it_does_not_know(studio, place):
    one = studio()
    page = one.page
    one.open("#/ask")
    expect(page.get_by_role("slider", name="Precision")).to_be_disabled()
    box = page.get_by_role("combobox", name="Add a tag")
    for tag in ("sand", "canoe, red"):
        box.fill(tag)
        box.press("Enter")
    expect(page.get_by_text("No known tag set holds “canoe, red”")).to_be_visible()
    likeliest = page.locator("ol.ranking > li")
    beach = {"sea", "sun", "shell", "towel", "wave"}
    expect(likeliest.first).to_be_visible()
    assert {likeliest.nth(at).locator("a").inner_text() for at in range(3)} <= beach
    likeliest.first.get_by_role("button", name="Because").click()
    expect(page.get_by_role("list", name="Parts of the logit")).to_be_visible()
    likeliest.first.get_by_role("button", name="Add").click()
    expect(page.get_by_role("list", name="Tags given").get_by_role("listitem")).to_have_count(3)

    # A picture that is dropped goes with its tags, each a field of its own.
    with page.expect_response(re.compile("/suggest")) as told:
        drop(page, place / "photos" / "street" / "1.png")
    assert told.value.json()["unknown_tags"] == ["canoe, red"]
    expect(page.get_by_role("img", name="The picture 1.png")).to_be_visible()
    slider = page.get_by_role("slider", name="Precision")
    expect(slider).to_be_enabled()
    slider.fill("90")
    expect(page.get_by_text("Of the tags shown, 90\u00a0% should be true.")).to_be_visible()
    drop(page, place / "toy" / "model.safetensors")
    expect(page.get_by_text("This model takes a picture")).to_be_visible()


def drop(page: Any, path: Path) -> None:
    """Drop a file on the view."""
    kind = "image/png" if path.suffix == ".png" else "application/json"
    given = page.evaluate_handle(
        """([bytes, name, type]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], name, { type }));
            return data;
        }""",
        [list(path.read_bytes()), path.name, kind],
    )
    page.dispatch_event(".view-ask", "drop", {"dataTransfer": given})


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_reviewing_an_item_answers_for_its_tags_and_takes_new_ones(studio, size):
    one = studio(size)
    page = one.page
    one.open("#/review/item")
    tiles = page.locator(".board a.tile")
    expect(tiles).to_have_count(EACH * len(COLOURS))
    expect(tiles.first).to_contain_text("office/0.png")  # names that repeat have their folders
    fits = page.locator(".picture img").first.evaluate("(one) => getComputedStyle(one).objectFit")
    assert fits == "contain"
    search = page.get_by_role("searchbox", name="Search items")
    search.fill("parasol")
    expect(tiles).to_have_count(1)
    search.fill("")
    expect(tiles).to_have_count(EACH * len(COLOURS))
    page.get_by_role("link", name="beach/3.png").click()
    suggested = page.get_by_role("list", name="Suggested tags").get_by_role("listitem")
    expect(page.get_by_role("list", name="Own tags").get_by_role("listitem")).to_have_count(2)
    expect(suggested.first).to_be_focused()
    one.press("y", "n", "u")
    one.saved()
    assert [suggested.nth(at).get_attribute("data-answer") for at in range(2)] == ["yes", "open"]
    box = page.get_by_role("combobox", name="A further tag")
    box.fill("deckchair")
    box.press("Enter")
    expect(suggested.filter(has_text="deckchair")).to_have_attribute("data-answer", "yes")
    one.saved()
    one.named("link", "Next item").click()
    expect(page.locator("figcaption")).to_contain_text("street/3.png")
    one.named("link", "Previous item").click()
    expect(page.locator("figcaption")).to_contain_text("beach/3.png")
    expect(suggested.filter(has_text="deckchair")).to_have_attribute("data-answer", "yes")


def tiles_of(page: Any, label: str) -> Any:
    """Find the pictures of a label's board."""
    return page.get_by_role("list", name=f"Items for {label}").get_by_role("listitem")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_click_on_a_picture_opens_it_and_answers_nothing(studio, size):
    one = studio(size)
    page = one.page
    one.open("#/review/label/sand")
    tiles = tiles_of(page, "sand")
    second = tiles.nth(1)
    opened = one.named("dialog", "sand")
    second.get_by_role("button", name="Open").click()
    expect(opened.locator("img")).to_be_visible()
    expect(page.get_by_text("0 answered")).to_be_visible()
    assert {tiles.nth(at).get_attribute("data-answer") for at in range(EACH)} == {"open"}
    inside = "(one) => one.scrollWidth <= one.clientWidth"
    assert opened.evaluate(inside)  # nothing is cut off, on a phone neither
    opened.get_by_role("button", name="Yes", exact=True).click()
    expect(second).to_have_attribute("data-answer", "yes")
    one.press("Escape")
    expect(opened).to_have_count(0)

    # By keys: Enter opens what has the focus, and f closes it.
    expect(tiles.nth(2)).to_be_focused()
    one.press("Enter")
    expect(opened.locator("img")).to_be_visible()
    one.press("f")
    expect(opened).to_have_count(0)
    second.locator("img").click(button="right")
    expect(second).to_have_attribute("data-answer", "yes")
    # Pressed again, a button takes its answer back.
    second.get_by_role("button", name="Yes", exact=True).click()
    expect(second).to_have_attribute("data-answer", "open")
    one.saved()


def test_a_picture_can_be_opened_by_those_who_may_not_answer(studio, tmp_path):
    path = tmp_path / "tokens.json"
    reader = new_token(path, "ann", "read")
    one = studio(may_say=("401",), tokens=Tokens.read(path))
    page = one.page
    page.goto(one.base)
    page.get_by_role("dialog").get_by_label("Token", exact=True).fill(reader)
    one.press("Enter")
    one.ready("map")
    one.open("#/review/label/sand")
    tiles_of(page, "sand").first.get_by_role("button", name="Open").click()
    expect(one.named("dialog", "sand").locator("img")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pictures_without_tags_are_one_click_away(studio, size):
    n = EACH * len(COLOURS)
    one = studio(size)
    page = one.page
    one.open()
    one.named("link", f"{n - 1} pictures without tags").click()
    one.ready("review")
    tiles = page.locator(".board a.tile")
    expect(tiles).to_have_count(n - 1)
    expect(tiles.filter(has_text="beach/3.png")).to_have_count(0)
    expect(one.named("radio", f"Without tags ({n - 1})")).to_be_checked()
    tiles.first.click()
    expect(page.get_by_text(f"1 of {n - 1}", exact=True)).to_be_visible()
    one.named("link", "Items without tags").click()
    expect(tiles).to_have_count(n - 1)
    page.reload()
    one.ready("review")
    expect(tiles).to_have_count(n - 1)
    one.named("radio", f"All ({n})").check(force=True)
    expect(tiles).to_have_count(n)
    one.named("radio", "With answers (0)").check(force=True)
    expect(page.get_by_text("No item matches")).to_be_visible()
    one.open("#/review")
    expect(one.named("link", f"{n - 1} pictures without tags")).to_be_visible()


def test_no_link_leads_to_pictures_without_tags_where_there_are_none(studio):
    names = [f"{theme}/{number}.png" for theme in COLOURS for number in range(EACH)]
    one = studio(own_tags=dict.fromkeys(names, ("sand",)))
    one.open("#/review")
    expect(one.named("heading", "Least certain")).to_be_visible()
    expect(one.page.get_by_text("without tags")).to_have_count(0)


def test_errors_are_only_what_model_and_tags_disagree_on(studio):
    names = [f"{theme}/{number}.png" for theme in COLOURS for number in range(EACH)]
    right = {name: ("sand",) if "beach" in name else ("desk",) for name in names}
    one = studio(own_tags=right)
    page = one.page
    one.open("#/review/label/sand")
    one.named("radio", "Errors").check(force=True)
    expect(one.named("heading", "No “sand” looks wrong")).to_be_visible()

    mistaken = right | {"beach/1.png": ("desk",), "street/2.png": ("sand",)}
    del mistaken["beach/3.png"]  # without tags it is not wrong: nobody has tagged it yet
    other = studio(own_tags=mistaken)
    page = other.page
    other.open("#/review/label/sand")
    other.named("radio", "Errors").check(force=True)
    tiles = tiles_of(page, "sand")
    expect(tiles).to_have_count(2)
    expect(tiles.filter(has_text="2.png")).to_contain_text("has it, doubtful")
    expect(tiles.filter(has_text="1.png")).to_contain_text("perhaps missing")


def test_two_tabs_see_each_other_s_answers(studio):
    first = studio()
    second = studio(beside=first)
    for one in (first, second):
        one.open("#/review/label/sand")
        expect(tiles_of(one.page, "sand").first).to_be_focused()
    tiles, others = tiles_of(first.page, "sand"), tiles_of(second.page, "sand")
    first.press("y")
    expect(others.first).to_have_attribute("data-answer", "yes")
    expect(others.first).to_contain_text("Yes, in another tab")
    expect(second.page.get_by_text("0 answered")).to_be_visible()
    expect(tiles.first).not_to_contain_text("in another tab")
    first.press("u")
    expect(others.first).to_have_attribute("data-answer", "open")

    # An item's tags and the list of answers are brought up to date, too.
    first.saved()
    item = tiles.first.locator(".tile-name").get_attribute("title")
    first.open(f"#/review/item/{item.replace('/', '%2F')}")
    second.open("#/model")
    answers = second.page.get_by_role("region", name="Answers").get_by_role("listitem")
    expect(answers).to_have_count(1)
    row = first.page.get_by_role("list", name="Suggested tags").get_by_role("listitem").first
    row.get_by_role("button", name="Yes").click()
    expect(answers).to_have_count(2)


def test_an_answer_that_a_tab_has_not_seen_is_not_overwritten_unseen(studio):
    first = studio(may_say=("Failed to load resource",))
    second = studio(beside=first, may_say=("Failed to load resource",))
    for one in (first, second):
        one.open("#/review/label/sand")
        expect(tiles_of(one.page, "sand").first).to_be_focused()
    others = tiles_of(second.page, "sand")
    second.page.route("**/verdicts?after=*", lambda route: route.abort())
    first.press("y")
    first.saved()
    second.press("n")
    line = second.page.locator(".unsent .conflict")
    expect(line).to_contain_text("answered Yes in another tab meanwhile.")
    expect(others.first).to_have_attribute("data-answer", "yes")
    line.get_by_role("button", name="Leave Yes").click()
    expect(line).to_have_count(0)
    second.press("u")  # the answer of the other tab is not this one's to undo
    expect(second.page.get_by_role("button", name="Undo")).to_be_disabled()
    expect(others.first).to_have_attribute("data-answer", "yes")
    second.press("ArrowLeft", "n")  # it is seen now, and answered otherwise on purpose
    expect(others.first).to_have_attribute("data-answer", "no")
    second.saved()

    # Now the other one has not seen it; answered all the same, the former answer is replaced.
    first.page.route("**/verdicts?after=*", lambda route: route.abort())
    second.press("y")
    second.saved()
    tiles = tiles_of(first.page, "sand")
    first.press("n")
    line = first.page.locator(".unsent .conflict")
    line.get_by_role("button", name="No all the same").click()
    expect(tiles.nth(1)).to_have_attribute("data-answer", "no")
    first.saved()
    expect(line).to_have_count(0)
    second.open("#/model")
    answers = second.page.get_by_role("region", name="Answers").get_by_role("listitem")
    expect(answers).to_have_count(4)
    expect(answers.filter(has_text="replaced by a later answer")).to_have_count(2)
    expect(answers.get_by_role("button", name="Undo")).to_have_count(2)


@pytest.mark.parametrize("label", ["AC/DC", "a#b", "50%"])
def test_links_lead_to_labels_whatever_their_names(studio, label):
    one = studio(may_say=("404",))
    page = one.page
    verdict = {"item": "beach/0.png", "label": label, "answer": True}
    page.request.post(f"{one.base}/v1/models/toy/learn", data={"verdicts": [verdict]})
    one.open("#/review/item/beach%2F0.png")
    one.named("link", label).click()
    expect(one.named("heading", label)).to_be_visible()
    expect(tiles_of(page, label)).to_have_count(EACH * len(COLOURS) - 1)
    page.reload()
    one.ready("review")
    expect(one.named("heading", label)).to_be_visible()


def test_what_cannot_be_saved_stays_and_is_sent_again(studio):
    one = studio(may_say=("Failed to load resource",))
    page = one.page
    one.open("#/review/label/sand")
    tiles = page.get_by_role("list", name="Items for sand").get_by_role("listitem")
    expect(tiles.first).to_be_focused()
    page.route("**/learn", lambda route: route.abort())
    one.press("y")
    expect(page.get_by_role("alert").get_by_text("1 answer not saved.")).to_be_visible()
    page.unroute("**/learn")
    one.named("button", "Try again").click()
    one.saved()
    expect(page.get_by_text("not saved")).to_have_count(0)
    expect(tiles.first).to_have_attribute("data-sending", "false")


def test_the_vocabulary_is_cared_for_and_changes_are_undone(studio):
    one = studio()
    page = one.page
    one.open("#/vocabulary")
    page.get_by_role("searchbox", name="Search labels").fill("lamp")
    row = page.get_by_role("list", name="Labels").get_by_role("listitem")
    expect(row).to_have_count(1)
    row.get_by_role("link").click()
    one.named("button", "Rename").click()
    page.get_by_role("textbox", name="New name").fill("lantern")
    one.named("dialog", "Rename").get_by_role("button", name="Rename").click()
    expect(one.named("heading", "lantern")).to_be_visible()
    expect(page.get_by_text("Also: lamp")).to_be_visible()

    # While the page's clock stands still, what a toast offers does not go.
    page.clock.install()
    page.clock.pause_at(4_102_444_800_000)
    one.named("button", "Block").click()
    expect(page.get_by_text("“lantern” is no longer suggested.")).to_be_visible()
    expect(one.named("button", "Unblock")).to_be_visible()
    undo = page.get_by_role("status").get_by_role("button", name="Undo")
    expect(undo).to_have_count(1)  # of the latest change, not of the renaming before it
    undo.click()
    expect(one.named("button", "Block")).to_be_visible()
    page.clock.resume()

    one.named("radio", "Worth adding").check(force=True)
    page.get_by_role("button", name="Add parasol").click()
    expect(one.named("heading", "parasol")).to_be_visible()
    expect(page.get_by_text("1 yes, 0 no")).to_be_visible()

    # A tag without known company is not taken.
    one.named("button", "Add tags").click()
    one.named("textbox", "Tag sets…").fill("canoe, paddle")
    expect(page.get_by_text("holds no known tag")).to_be_visible()
    expect(one.named("button", "Add 1 tag set")).to_be_disabled()
    one.named("radio", "By name").check(force=True)
    expect(page.get_by_text("it was started without")).to_be_visible()


def test_labels_are_merged_removed_and_added_by_items(studio):
    one = studio()
    page = one.page
    one.open("#/vocabulary/lamp")
    one.named("button", "Merge…").click()
    merge = one.named("dialog", "Merge").get_by_role("button", name="Merge", exact=True)
    expect(merge).to_be_disabled()
    page.get_by_role("combobox", name="Merge into").fill("desk")
    page.get_by_role("option", name="desk").click()
    expect(page.get_by_text("“lamp” goes, “desk” stays")).to_be_visible()
    merge.click()
    expect(one.named("heading", "desk")).to_be_visible()
    expect(page.get_by_text("Also: lamp")).to_be_visible()

    one.named("button", "Remove…").click()
    remove = one.named("dialog", "Remove for good").get_by_role("button", name="Remove")
    expect(remove).to_be_disabled()
    page.get_by_role("textbox", name="Type desk to confirm").fill("Desk")
    remove.click()
    expect(one.named("heading", "No label chosen")).to_be_visible()

    one.named("button", "Add tags").click()
    one.named("radio", "By items").check(force=True)
    page.get_by_role("textbox", name="New tag").fill("canoe")
    expect(page.get_by_text("Choose items that should carry the tag.")).to_be_visible()
    page.get_by_role("button", name="beach/0.png").click()
    page.get_by_role("button", name="beach/1.png").click()
    expect(page.get_by_text("2 items chosen.")).to_be_visible()
    one.named("dialog", "Add tags").get_by_role("button", name="Add", exact=True).click()
    expect(one.named("heading", "canoe")).to_be_visible()
    expect(page.get_by_text("2 yes, 0 no")).to_be_visible()

    # What is known by these answers alone takes them along.
    one.named("button", "Rename").click()
    page.get_by_role("textbox", name="New name").fill("sail/boat")
    one.named("dialog", "Rename").get_by_role("button", name="Rename").click()
    expect(one.named("heading", "sail/boat")).to_be_visible()
    expect(page.get_by_text("2 yes, 0 no")).to_be_visible()
    one.named("button", "Merge…").click()
    page.get_by_role("combobox", name="Merge into").fill("wave")
    page.get_by_role("option", name="wave").click()
    merge.click()
    expect(one.named("heading", "wave")).to_be_visible()
    expect(page.get_by_text("Also: canoe, sail/boat")).to_be_visible()
    expect(page.get_by_text("2 yes, 0 no")).to_be_visible()


def test_the_model_view_measures_rolls_back_and_tells_of_trouble(studio, place):
    one = studio(may_say=("422",))
    page = one.page
    one.open("#/vocabulary/sand")
    one.named("button", "Block").click()
    expect(one.named("button", "Unblock")).to_be_visible()
    one.open("#/model")
    expect(page.get_by_role("img", name="Reliability")).to_be_visible()
    expect(page.get_by_role("row", name="E-MAP")).to_contain_text("%")
    versions = page.get_by_role("region", name="Versions").get_by_role("listitem")
    expect(versions).to_have_count(2)
    expect(versions.first).to_contain_text("2 · block sand")
    page.get_by_role("button", name="Roll back to version 1").click()
    one.named("dialog", "Back to version 1?").get_by_role("button", name="Roll back").click()
    expect(versions).to_have_count(3)
    expect(versions.first).to_contain_text("in use")

    (place / "toy" / "model.safetensors").write_text("{}")
    one.named("button", "Reload").click()
    expect(page.get_by_role("alert").get_by_text("A reload was refused")).to_be_visible()


def test_a_refit_is_refused_in_a_sentence_or_shows_how_far_it_is(studio, monkeypatch):
    one = studio(may_say=("422",))
    page = one.page
    one.open("#/model")
    one.named("button", "Refit").click()
    expect(page.get_by_text("that this model was fitted to are not among")).to_be_visible()

    go_on = threading.Event()

    def run(refitting, *given):
        refitting.status = RefitStatus("running", 1, 2)
        go_on.wait(PATIENCE / 1000)
        refitting.status = RefitStatus("done", 2, 2)

    monkeypatch.setattr(Refitting, "_run", run)
    monkeypatch.setattr("polyseme.serve.refit.training_data", lambda *given: {})
    one.named("button", "Refit").click()
    expect(page.get_by_text("Refitting: 1 round of 2.")).to_be_visible()
    expect(one.named("button", "Refit")).to_be_disabled()
    go_on.set()
    expect(page.get_by_text("The model was refitted.")).to_be_visible()


# ---------------------------------------------------------------------- tokens


def test_a_token_is_asked_for_and_its_scope_says_what_can_be_done(studio, tmp_path):
    path = tmp_path / "tokens.json"
    reader, reviewer = new_token(path, "ann", "read"), new_token(path, "bob", "review")
    one = studio(may_say=("401",), tokens=Tokens.read(path))
    page = one.page
    page.goto(one.base)
    field = page.get_by_role("dialog", name="A token, please").get_by_label("Token", exact=True)
    expect(field).to_be_focused()
    field.fill("not-a-token")
    field.press("Enter")
    again = page.get_by_role("dialog", name="Another token, please")
    again.get_by_label("Token", exact=True).fill(reader)
    again.get_by_role("button", name="Continue").click()
    one.ready("map")

    one.open("#/review/label/sand")
    expect(page.get_by_text("your token lacks the scope “review”")).to_be_visible()
    tile = page.get_by_role("list", name="Items for sand").get_by_role("listitem").first
    expect(tile.get_by_role("button", name="Yes", exact=True)).to_be_disabled()
    expect(tile.locator("img")).to_have_attribute("src", re.compile("^blob:"))
    one.press("y")
    expect(tile).to_have_attribute("data-answer", "open")
    one.open("#/vocabulary/sand")
    expect(one.named("button", "Add tags")).to_be_disabled()
    expect(one.named("button", "Remove…")).to_be_disabled()
    one.open("#/model")
    expect(one.named("button", "Reload")).to_be_disabled()

    page.evaluate("(token) => sessionStorage.setItem('polyseme.token', token)", reviewer)
    one.open("#/review/label/sand")
    page.reload()
    one.ready("review")
    expect(tile).to_be_focused()
    one.press("y")
    one.saved()
    one.open("#/model")
    expect(page.get_by_role("region", name="Answers")).to_contain_text("by bob")


@pytest.mark.parametrize("label", ["AC/DC", "a//b/rename", "..", "100%", "what?#"])
def test_any_label_can_be_looked_at_renamed_blocked_and_removed(studio, place, label):
    tagger = load(place / "toy")
    tagger.add_documents([[label, "sand"]])
    tagger.save(place / "toy")
    one = studio()
    page, name = one.page, quote(label, safe="")
    one.open(f"#/map/label/{name}")
    expect(page.get_by_role("heading", name=label, exact=True)).to_be_visible()
    one.open(f"#/review/label/{name}")
    expect(page.get_by_role("list", name=f"Items for {label}")).to_be_visible()
    one.open(f"#/vocabulary/{name}")
    one.named("button", "Rename").click()
    page.get_by_role("textbox", name="New name").fill("rock/roll")
    one.named("dialog", "Rename").get_by_role("button", name="Rename").click()
    expect(one.named("heading", "rock/roll")).to_be_visible()
    expect(page.get_by_text(f"Also: {label}")).to_be_visible()
    one.named("button", "Block").click()
    expect(one.named("button", "Unblock")).to_be_visible()
    one.named("button", "Remove…").click()
    page.get_by_role("textbox", name="Type rock/roll to confirm").fill("rock/roll")
    one.named("dialog", "Remove for good").get_by_role("button", name="Remove").click()
    expect(one.named("heading", "No label chosen")).to_be_visible()
