"""The demo's page: one HTML file that loads nothing from anywhere.

In: a `DemoResults` record and the emoji's pictures. Out: HTML text; everything that comes from the
data is escaped.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Callable
from functools import cache

import jinja2
import numpy as np
from numpy.typing import NDArray

from polyseme.scoring.evidence import Evidence
from polyseme_experiments.datasets import EmojiCorpus
from polyseme_experiments.demo.experiment import COLUMNS, DemoResults
from polyseme_experiments.report.tables import Cell
from polyseme_experiments.senses import JudgedSenses

N_SHOWN, N_MOSAIC = 24, 16
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
# Of the plot of senses, in pixels.
WIDTH, HEIGHT = 520, 380
SIZE = 30  # of a picture
MARGIN = np.array([34.0, 42.0])  # left and right, top and bottom: room for pictures and words
GAP = 3  # between two pictures
LETTER, LINE = 7.6, 18  # of the sense's words, rather too wide than too narrow

Pictures = Callable[[int, str], str]
Box = tuple[float, float, float, float]
Points = NDArray[np.float64]


def thumbnails(emoji: EmojiCorpus, quality: int = 72) -> Pictures:
    """Return a function from an emoji and a drawing to a small WebP picture as a data URI."""
    import PIL.Image

    sheets = {name: PIL.Image.open(path).convert("RGBA") for name, path in emoji.sheets.items()}

    @cache
    def picture(number: int, drawing: str) -> str:
        content = io.BytesIO()
        sheet = sheets[drawing]
        cell = sheet.crop(emoji.cell(number))
        cell.save(
            content,
            "WEBP",
            quality=quality,
            alpha_quality=80,
            method=6,
        )
        encoded = base64.b64encode(content.getvalue())
        text = encoded.decode("ascii")
        return f"data:image/webp;base64,{text}"

    return picture


def build_page(results: DemoResults, picture: Pictures) -> str:
    """Write the page; `picture` gives an emoji in a drawing as a data URI.

    The same results give the same text; only the footer's line of seconds changes between runs
    with one seed.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("polyseme_experiments.demo"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("page.html").render(
        results=results,
        picture=picture,
        columns=COLUMNS,
        ordinals=ORDINALS,
        wins=_wins(results),
        best=_best,
        bars=evidence_bars,
        plots=[(layout, sense_plot(layout)) for layout in results.maps],
        size=(WIDTH, HEIGHT, SIZE),
        n_shown=N_SHOWN,
        n_mosaic=N_MOSAIC,
    )


def _best(table: dict[str, dict[str, Cell]], column: str) -> float:
    """Return the largest mean of a column, as it is printed."""
    return max(round(row[column].mean or 0.0, 1) for row in table.values())


def _wins(results: DemoResults) -> str:
    """Return who is ahead, whoever it is, and where that is more than chance."""
    tables = (results.example, results.concept)
    leaders = Counter[str]()
    for table in tables:
        for column in COLUMNS:
            means = {name: row[column].mean or 0.0 for name, row in table.items()}
            leader = max(means, key=means.__getitem__)
            leaders[leader] += 1
    n_columns = leaders.total()
    ours, rival, *_ = results.example
    listed = " and ".join(f"{name} in {count}" for name, count in leaders.most_common())
    ahead = f"Best of the {n_columns} columns: {listed}."
    if len(leaders) == 1:
        ahead = f"Best in all {n_columns} columns: {next(iter(leaders))}."
    certain = [name for name, cell in results.differences.items() if _is_certain(cell)]
    columns = f"in “{'”, “'.join(certain)}” only" if certain else "in no column"
    if len(certain) == len(results.differences):
        columns = "in every column"
    return f"{ahead} In E-MAP {ours} and {rival} differ by more than two standard errors {columns}."


def _is_certain(difference: Cell) -> bool:
    """Return whether a difference is more than twice its standard error."""
    mean = difference.mean
    error = difference.error
    if mean is None or error is None:
        return False
    return abs(mean) > 2 * error


def evidence_bars(evidence: Evidence) -> list[tuple[str, str, float, float, float, float]]:
    """Lay out the parts of a logit as bars; the last one is their sum.

    Each is what it is, how likely a tag is, its value, and in percent of the width where zero is,
    where the bar begins, and how long it is.
    """
    tags = evidence.tags
    terms = [
        ("how common the tag is", "", evidence.frequency),
        ("the picture itself", "", evidence.features),
        *((tag.tag, f"{tag.probability:.0%} likely", tag.part) for tag in tags),
        ("other tags" if tags else "its probable tags", "", evidence.other_tags),
        ("known tag lists nearby", "", evidence.known),
        (
            "sum",
            f"probability {evidence.probability:.{2 if evidence.probability >= 0.01 else 4}f}",
            evidence.logit,
        ),
    ]
    values = [0.0, *(value for _, _, value in terms)]
    low = min(values)
    width = max(values) - low
    scale = 100 / (width or 1.0)
    zero = -low * scale
    bars = []
    for name, text, value in terms:
        start = zero + min(value, 0.0) * scale
        length = abs(value) * scale
        rounded = round(value, 2) + 0.0  # no minus zero
        bars.append((name, text, rounded, zero, start, length))
    return bars


def sense_plot(layout: JudgedSenses) -> dict[str, list[list[float] | tuple[str, float, float]]]:
    """Lay the concepts of one label out on a canvas, so that no picture hides another.

    Returns places of the "pictures" and of other labels' concepts ("background"); for each sense
    the corners of its "hulls", and its "words" with their place.
    """
    low = layout.points.min(axis=0)
    high = layout.points.max(axis=0)
    middle = (low + high) / 2
    canvas = np.array([WIDTH, HEIGHT], dtype=np.float64)
    scale = (canvas - 2 * MARGIN) / np.where(high > low, high - low, 1.0)
    # Both axes keep to one measure unless that would leave a thin line.
    scale = np.minimum(scale, 3.0 * scale.min())
    places = push_apart(canvas / 2 + (layout.points - middle) * scale)
    background = canvas / 2 + (layout.background - middle) * scale
    is_inside = (background > 4) & (background < canvas - 4)
    background = background[is_inside.all(axis=1)]
    half = SIZE / 2
    obstacles: list[Box] = [(x - half, y - half, x + half, y + half) for x, y in places]
    hulls = []
    names = []
    for sense, words in enumerate(layout.words):
        members = places[layout.senses == sense]
        hull = _hull(members)
        hulls.append(hull.round().tolist())
        text = ", ".join(words) or "other"
        box = _place_words(text, members, obstacles)
        obstacles.append(box)
        left, _, right, bottom = box
        names.append((text, (left + right) / 2, bottom - 5))
    return {
        "pictures": places.tolist(),
        "background": background.tolist(),
        "hulls": hulls,
        "words": names,
    }


def push_apart(places: Points, n_rounds: int = 600) -> Points:
    """Move pictures' centres (n, 2) apart until none hides another, the same for the same input."""
    positions = places.copy()
    # Identical places need a direction to part in: the golden angle spreads any number of them.
    angles = np.arange(len(positions)) * 2.399963
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    positions += 0.5 * directions
    limit = np.array([WIDTH, HEIGHT]) - MARGIN
    for _ in range(n_rounds):
        offsets = positions[:, None] - positions[None]
        overlaps = np.maximum(SIZE + GAP - np.abs(offsets), 0.0)
        is_hiding = (overlaps > 0).all(axis=2)
        np.fill_diagonal(is_hiding, False)
        if not is_hiding.any():
            break
        # The shorter way out, along one axis.
        is_shorter = overlaps <= overlaps[:, :, ::-1]
        is_pushed = is_hiding[:, :, None] & is_shorter
        pushes = np.where(is_pushed, np.sign(offsets) * overlaps, 0.0)
        # A share of the way, as all of them move at once.
        moves = 0.35 * pushes.sum(axis=1)
        positions = np.clip(positions + moves, MARGIN, limit)
    return positions


def _hull(members: Points) -> Points:
    """Return the corners of the smallest convex shape around pictures, (n_corners, 2)."""
    from scipy.spatial import ConvexHull

    half = SIZE / 2 - 4  # the outline's width makes up for it
    shifts = np.array([[-half, -half], [-half, half], [half, -half], [half, half]])
    corners = members[:, None] + shifts
    corners = corners.reshape(-1, 2)
    hull = ConvexHull(corners)
    return np.asarray(corners[hull.vertices])


def _place_words(text: str, members: Points, obstacles: list[Box]) -> Box:
    """Find the freest box for words over or under their sense's pictures (n, 2).

    The obstacles are boxes that should not be covered; of equals the first one wins.
    """
    half_width = LETTER * len(text) / 2
    low = members.min(axis=0) - SIZE / 2 - 5
    high = members.max(axis=0) + SIZE / 2 + 5
    middle = (low[0] + high[0]) / 2
    boxes = []
    for shift in (0.0, -40.0, 40.0, -80.0, 80.0):
        centre = middle + shift
        centre = max(centre, half_width + 4)
        centre = min(centre, WIDTH - half_width - 4)
        left = centre - half_width
        right = centre + half_width
        for top in (low[1] - LINE, high[1]):
            top = max(top, 2.0)
            top = min(top, HEIGHT - LINE - 2.0)
            bottom = top + LINE
            boxes.append((left, top, right, bottom))

    def covered_area(box: Box) -> float:
        return sum(_shared_area(box, neighbour) for neighbour in obstacles)

    return min(boxes, key=covered_area)


def _shared_area(first: Box, second: Box) -> float:
    """Return the area that two boxes share."""
    left = max(first[0], second[0])
    top = max(first[1], second[1])
    right = min(first[2], second[2])
    bottom = min(first[3], second[3])
    if right <= left:
        return 0.0
    if bottom <= top:
        return 0.0
    width = right - left
    height = bottom - top
    return width * height
