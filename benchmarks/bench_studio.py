"""What the studio's map costs where the processor draws: its first picture, and moving it.

python benchmarks/bench_studio.py --out benchmarks
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from _reporting import Ratio, Report, Table, command_line
from _synthetic import make_themes, synthetic_matrix

from polyseme.documents.toy import toy_world
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.space.concept_space import ConceptSpace
from polyseme.studio.app import Settings, create_app
from polyseme.studio.host import Map, ModelHost
from polyseme.studio.landscape import Landscape
from polyseme.tagger import ZeroShotTagger


class Amount(NamedTuple):
    """Dots on the map, how often the page is opened, and for how long the map is moved."""

    dots: tuple[int, ...]
    rounds: int
    seconds: float


AMOUNTS = {
    "full": Amount((20_000, 200_000, 500_000, 1_000_000), 3, 4.0),
    "quick": Amount((2_000, 4_000), 1, 0.5),
}
N_LABELS, N_AXES, N_ISLANDS = 1000, 64, 200
SCREEN = {"width": 1280, "height": 800}
# Of the largest map that is promised: seconds to the first picture, and pictures a second.
FIRST, MOVING = 3.0, 5.0
TEXT = """\
The studio on {width} by {height} pixels in Debian's Chromium, which has no graphics card here: \
WebGL2 is computed by the processor (SwiftShader), on the same cores that serve the map. Tag sets \
of about five labels each lie on {islands} islands. A page is opened anew for each round, and the \
median counts; the service has the map ready. While the map is moved, only so many dots are drawn \
as keep it smooth; when it rests, all are."""
# All in the page: no call into it may cost a frame.
OPENED = """() => new Promise((done) => {
  const look = () => {
    const { map } = window.__studio;
    if (!map.full) return requestAnimationFrame(look);
    map.points.finish();
    done({ first: performance.now() / 1000, renderer: map.renderer, n: map.n });
  };
  look();
})"""
MOVED = """(seconds) => new Promise((done) => {
  const { map } = window.__studio;
  const begin = performance.now();
  const frames = map.points.frames;
  const step = () => {
    const passed = (performance.now() - begin) / 1000;
    if (passed > seconds) {
      map.points.finish();
      const rate = (map.points.frames - frames) / ((performance.now() - begin) / 1000);
      return done({ rate, dots: Math.min(map.n, Math.round(map.points.budget)) });
    }
    map.points.pan(8 * Math.cos(passed * 3), 8 * Math.sin(passed * 3));
    requestAnimationFrame(step);
  };
  step();
})"""
AT_REST = """(rounds) => {
  const { points } = window.__studio.map;
  points.isMoving = false;
  points.finish();
  const begin = performance.now();
  for (let i = 0; i < rounds; i += 1) { points.draw(); points.finish(); }
  return (performance.now() - begin) / 1000 / rounds;
}"""


class Wide(ModelHost):
    """A small model with a large map."""

    wide: Map

    def map(self, snapshot: object = None) -> Map:
        """Return the large map."""
        return self.wide

    def lay_out(self) -> None:
        """Leave it as it is."""


def measure(size: str) -> Report:
    """Time the first picture of the map, and how it moves."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Chromium; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    amount = AMOUNTS[size]
    report = Report("studio", "The studio's map", TEXT.format(islands=N_ISLANDS, **SCREEN))
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as runner:
        path = Path(folder) / "toy"
        world = toy_world(random_state=0)
        space = ConceptSpace(n_steps=20)
        tagger = ZeroShotTagger(space, n_validations=0, random_state=0)
        tagger.fit(world.X, world.documents).save(path)
        browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for dots in amount.dots:
            host = Wide(path)
            host.wide = wide_map(dots)
            with serving(host) as address:
                rounds = [look(browser, address, amount.seconds) for _ in range(amount.rounds)]
            middle = {name: median(figures[name] for figures in rounds) for name in rounds[0]}
            columns = ("n", "bytes", "first", "rate", "dots", "rest")
            rows.append([middle[name] for name in columns])
        browser.close()
    columns = ["dots", "MB sent", "first picture, seconds", "moving, pictures a second"]
    columns += ["dots drawn while moving", "a picture of all dots, seconds"]
    note = "The first picture is complete: all dots, counted from the start of the navigation."
    report.tables.append(Table("The map in a browser", "dots", columns, rows, note))
    promised = rows[amount.dots.index(500_000)] if size == "full" else rows[-1]
    title = f"map of {promised[0]:,} dots"
    report.ratios += [
        Ratio(f"{title}: first picture", round(promised[2], 2), FIRST, at_least=False, unit=" s"),
        Ratio(f"{title}: pictures a second while moving", round(promised[3], 1), MOVING, unit=""),
    ]
    return report


def wide_map(n_dots: int) -> Map:
    """Make a map with so many dots, and have it ready."""
    rng = np.random.default_rng(0)
    themes = make_themes(N_LABELS, 0)
    matrix = synthetic_matrix(n_dots // 4, themes, 0)
    matrix = matrix[: int(np.searchsorted(matrix.indptr, n_dots, side="right")) - 1]
    n = matrix.shape[0]
    centres = rng.normal(size=(N_ISLANDS, N_AXES)).astype(np.float32)
    points = centres[rng.integers(N_ISLANDS, size=n)]
    points += 0.7 * rng.standard_normal(points.shape, dtype=np.float32)
    points /= np.linalg.norm(points, axis=1)[:, None]
    labels = tuple(f"label {number}" for number in range(themes.n_labels))
    ids = tuple(map(str, range(n)))
    store = KnownDocuments(labels, len(labels), ids, matrix, np.arange(n), points)
    wide = Map(store, Landscape.learn(points, ""))
    assert wide.anchors and wide.digest  # laid out, named and packed
    return wide


@contextmanager
def serving(host: ModelHost) -> Iterator[str]:
    """Serve a model in a thread."""
    import uvicorn

    settings = Settings(watch=0)
    app = create_app([host], settings)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run,
        args=([listening],),
        daemon=True,
    )
    thread.start()
    _, port = listening.getsockname()
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def look(browser: Any, address: str, seconds: float) -> dict[str, float]:
    """Open the studio, move its map, and give what it took."""
    context = browser.new_context(viewport=SCREEN)
    page = context.new_page()
    page.set_default_timeout(120_000)
    sent = [0]
    page.on(
        "response", lambda response: sent.append(int(response.headers.get("content-length", 0)))
    )
    page.goto(address)
    page.wait_for_selector('html[data-ready="map"]', state="attached")
    opened = page.evaluate(OPENED)
    assert opened["renderer"] == "webgl2", opened
    moving = page.evaluate(MOVED, seconds)
    at_rest = page.evaluate(AT_REST, 3)
    context.close()
    return {
        "n": opened["n"],
        "bytes": sum(sent) / 1e6,
        "first": opened["first"],
        "rate": moving["rate"],
        "dots": moving["dots"],
        "rest": at_rest,
    }


if __name__ == "__main__":
    command_line(measure)
