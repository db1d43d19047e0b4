"""Take the pictures of the studio's page: `python deploy/studio_pictures.py ADDRESS PHOTOS OUT`.

In: the address of a service that `docs/studio.md` leads to ("Start", with drawn emoji), which
nobody has answered yet, and the folder of its pictures. Out: `studio-*.png` in a folder. The
answers are given, and the tag *moon* added, as the page tells it; so it is a model to throw away.
It needs playwright, Chromium and Pillow.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

DESKTOP = {"width": 1280, "height": 800}
ITEM = "noto/1F428.png"  # a koala without tags


class Camera:
    """A page of the studio, and pictures of it.

    Parameters
    ----------
    page : Page
    address : str
    out : Path
        The folder that pictures are written to.
    """

    def __init__(self, page: Any, address: str, out: Path) -> None:
        self.page = page
        self.address = address.rstrip("/")
        self.out = out

    def open(self, view: str, path: str = "") -> None:
        """Open a view, and wait until it is complete."""
        self.page.goto(f"{self.address}/#/{view}{path}")
        self.page.wait_for_selector(f'html[data-ready="{view}"]', state="attached")

    def take(self, name: str) -> None:
        """Write what the page shows as a picture, with all its colours, as small as it gets."""
        self.page.wait_for_timeout(1500)  # pictures and transitions
        path = self.out / f"studio-{name}.png"
        self.page.screenshot(path=path)
        picture = Image.open(path).convert("RGB")
        picture.save(path, optimize=True)

    def answer(self, label: str, answers: list[bool]) -> None:
        """Answer for the first items of a label's board, by keys."""
        self.open("review", f"/label/{label}")
        expect(self.tiles(label).first).to_be_visible()
        for is_yes in answers:
            self.page.keyboard.press("y" if is_yes else "n")
            self.page.wait_for_timeout(300)
        self.page.wait_for_function("() => window.__studio.review.waiting === 0")
        self.page.evaluate("() => window.scrollTo(0, 0)")

    def tiles(self, label: str) -> Any:
        """Find the tiles of a label's board."""
        board = self.page.get_by_role("list", name=f"Items for {label}")
        return board.get_by_role("listitem")


def look_around(camera: Camera) -> None:
    """Take the map, and the two senses of night."""
    camera.open("map")
    camera.page.wait_for_timeout(4000)  # the layout, and its captions
    camera.take("map")
    camera.page.keyboard.press("/")
    camera.page.keyboard.type("night")
    camera.page.wait_for_timeout(800)
    camera.page.keyboard.press("Enter")
    camera.take("senses")


def ask(camera: Camera, picture: Path) -> None:
    """Take a picture's tags, and why it has the second of them."""
    page = camera.page
    camera.open("ask")
    page.set_input_files("input[type=file]", picture)
    likeliest = page.locator("ol.ranking > li")
    expect(likeliest.first).to_be_visible()
    likeliest.nth(1).get_by_role("button", name="Because").click()
    expect(page.get_by_role("list", name="Parts of the logit")).to_be_visible()
    camera.take("ask")


def review(camera: Camera, tags_by_file: dict[str, list[str]]) -> None:
    """Take ten answers for heart, as the drawings' own tags have them."""
    camera.open("review", "/label/heart")
    tiles = camera.tiles("heart")
    expect(tiles.first).to_be_visible()
    titles = tiles.locator(".tile-name").evaluate_all("(names) => names.map((name) => name.title)")
    camera.answer("heart", ["heart" in tags_by_file.get(title, ()) for title in titles[:10]])
    camera.take("review")
    camera.open("review", f"/item/{ITEM}")
    expect(camera.page.get_by_role("list", name="Suggested tags")).to_be_visible()
    camera.page.keyboard.press("y")
    camera.page.keyboard.press("y")
    camera.page.evaluate("() => window.scrollTo(0, 0)")
    camera.take("item")


def add_moon(camera: Camera) -> None:
    """Take the dialog that adds moon, and its board after four answers."""
    page = camera.page
    camera.open("vocabulary")
    page.get_by_role("button", name="Add tags").click()
    sets = page.get_by_role("textbox", name=re.compile("^Tag sets"))
    sets.fill("moon, night, space, weather")
    add = page.get_by_role("button", name="Add 1 tag set")
    expect(add).to_be_enabled()
    camera.take("add")
    add.click()
    expect(page.get_by_role("heading", name="moon")).to_be_visible()
    page.get_by_role("button", name="Dismiss").click()
    camera.answer("moon", [True] * 4)
    camera.take("rank")


def export(camera: Camera) -> None:
    """Take the menu of exports."""
    camera.open("review")
    camera.page.get_by_text("Export").click()
    camera.take("export")


def main(address: str, photos: Path, out: Path) -> None:
    """Take all pictures."""
    lines = (photos / "tags.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    tags_by_file = {record["file"]: record["labels"] for record in records}
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        camera = Camera(browser.new_page(viewport=DESKTOP), address, out)
        camera.page.set_default_timeout(60_000)
        look_around(camera)
        ask(camera, photos / "twemoji" / "1F41E.png")
        review(camera, tags_by_file)
        add_moon(camera)
        export(camera)
        camera.open("model")
        camera.take("model")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
