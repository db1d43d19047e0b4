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

from polyseme.evidence import Evidence
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
        cell = sheets[drawing].crop(emoji.cell(number))
        cell.save(content, "WEBP", quality=quality, alpha_quality=80, method=6)
        return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode('ascii')}"

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
        plots=[(one, sense_plot(one)) for one in results.maps],
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
    leaders = Counter(
        max(table, key=lambda name: table[name][column].mean or 0.0)
        for table in tables
        for column in COLUMNS
    )
    n_columns, (own, rival) = leaders.total(), list(results.example)[:2]
    listed = " and ".join(f"{name} in {count}" for name, count in leaders.most_common())
    ahead = f"Best of the {n_columns} columns: {listed}."
    if len(leaders) == 1:
        ahead = f"Best in all {n_columns} columns: {next(iter(leaders))}."
    certain = [name for name, cell in results.differences.items() if _is_certain(cell)]
    columns = f"in “{'”, “'.join(certain)}” only" if certain else "in no column"
    if len(certain) == len(results.differences):
        columns = "in every column"
    return f"{ahead} In E-MAP {own} and {rival} differ by more than two standard errors {columns}."


def _is_certain(difference: Cell) -> bool:
    """Return whether a difference is more than twice its standard error."""
    if difference.mean is None or difference.error is None:
        return False
    return abs(difference.mean) > 2 * difference.error


def evidence_bars(evidence: Evidence) -> list[tuple[str, str, float, float, float, float]]:
    """Lay out the parts of a logit as bars; the last one is their sum.

    Each is what it is, how likely a tag is, its value, and in percent of the width where zero is,
    where the bar begins, and how long it is.
    """
    tags = evidence.tags
    parts = [
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
    values = [0.0, *(value for _, _, value in parts)]
    scale = 100 / ((max(values) - min(values)) or 1.0)
    zero = -min(values) * scale
    bars = [(zero, zero + min(value, 0.0) * scale, abs(value) * scale) for *_, value in parts]
    return [
        (name, text, round(value, 2) + 0.0, *bar)
        for (name, text, value), bar in zip(parts, bars, strict=True)
    ]


def sense_plot(one: JudgedSenses) -> dict[str, list[list[float] | tuple[str, float, float]]]:
    """Lay the concepts of one label out on a canvas, so that no picture hides another.

    Gives places of the "pictures" and of other labels' concepts ("background"); for each sense the
    corners of its "hulls", and its "words" with their place.
    """
    low, high = one.points.min(axis=0), one.points.max(axis=0)
    canvas = np.array([WIDTH, HEIGHT], dtype=np.float64)
    scale = (canvas - 2 * MARGIN) / np.where(high > low, high - low, 1.0)
    # Both axes keep to one measure unless that would leave a thin line.
    scale = np.minimum(scale, 3.0 * scale.min())
    places = push_apart(canvas / 2 + (one.points - (low + high) / 2) * scale)
    background = canvas / 2 + (one.background - (low + high) / 2) * scale
    background = background[((background > 4) & (background < canvas - 4)).all(axis=1)]
    half = SIZE / 2
    taken: list[Box] = [(x - half, y - half, x + half, y + half) for x, y in places]
    hulls, names = [], []
    for sense, words in enumerate(one.words):
        members = places[one.senses == sense]
        hulls.append(_hull(members).round().tolist())
        text = ", ".join(words) or "other"
        box = _place_words(text, members, taken)
        taken.append(box)
        names.append((text, (box[0] + box[2]) / 2, box[3] - 5))
    return {
        "pictures": places.tolist(),
        "background": background.tolist(),
        "hulls": hulls,
        "words": names,
    }


def push_apart(places: Points, n_rounds: int = 600) -> Points:
    """Move pictures (n, 2) apart until none hides another, the same for the same input."""
    moved = places.copy()
    # Identical places need a direction to part in: the golden angle spreads any number of them.
    angles = np.arange(len(moved)) * 2.399963
    moved += 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    limit = np.array([WIDTH, HEIGHT]) - MARGIN
    for _ in range(n_rounds):
        gaps = moved[:, None] - moved[None]
        lacking = np.maximum(SIZE + GAP - np.abs(gaps), 0.0)
        hiding = (lacking > 0).all(axis=2)
        np.fill_diagonal(hiding, False)
        if not hiding.any():
            break
        # The shorter way out, along one axis.
        shorter = lacking <= lacking[:, :, ::-1]
        pushes = np.where(hiding[:, :, None] & shorter, np.sign(gaps) * lacking, 0.0)
        moved = np.clip(moved + 0.35 * pushes.sum(axis=1), MARGIN, limit)
    return moved


def _hull(members: Points) -> Points:
    """Return the corners of the smallest convex shape around pictures, (n_corners, 2)."""
    from scipy.spatial import ConvexHull

    half = SIZE / 2 - 4  # the outline's width makes up for it
    shifts = np.array([[-half, -half], [-half, half], [half, -half], [half, half]])
    corners = (members[:, None] + shifts).reshape(-1, 2)
    return np.asarray(corners[ConvexHull(corners).vertices])


def _place_words(text: str, members: Points, taken: list[Box]) -> Box:
    """Find the freest box for words over or under their sense's pictures."""
    width = LETTER * len(text)
    low, high = members.min(axis=0) - SIZE / 2 - 5, members.max(axis=0) + SIZE / 2 + 5
    boxes = []
    for shift in (0.0, -40.0, 40.0, -80.0, 80.0):
        centre = min(max((low[0] + high[0]) / 2 + shift, width / 2 + 4), WIDTH - width / 2 - 4)
        for place in (low[1] - LINE, high[1]):
            top = min(max(place, 2.0), HEIGHT - LINE - 2.0)
            boxes.append((centre - width / 2, top, centre + width / 2, top + LINE))
    return min(boxes, key=lambda box: sum(_shared_area(box, other) for other in taken))


def _shared_area(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
