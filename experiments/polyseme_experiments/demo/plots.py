"""A label's senses as a picture: inline SVG with emoji at the places of their concepts.

In: a `SenseMap` and the emoji's pictures. Out: an SVG element that loads nothing.
"""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from polyseme.senses import SenseMap
from polyseme_experiments.demo.results import DemoResults
from polyseme_experiments.demo.thumbnails import Pictures

WIDTH, HEIGHT = 520, 380
SIZE = 30  # of a picture
MARGIN = (34, 42)  # left and right, top and bottom: room for pictures and words
GAP = 3  # between two pictures
LETTER = 7.6  # width of a letter of the sense's words, rather too wide than too narrow
LINE = 18

Box = tuple[float, float, float, float]


def sense_plot(one: SenseMap, results: DemoResults, pictures: Pictures, drawing: str) -> str:
    """Draw the concepts of one label.

    Parameters
    ----------
    one : SenseMap
    results : DemoResults
        Knows the emoji's names.
    pictures : Pictures
    drawing : str
        Which drawing of each emoji to show.

    Returns
    -------
    str
        An SVG element.
    """
    places, background = _to_canvas(one)
    places = _push_apart(places)
    described = "; ".join(
        f"{', '.join(words) or 'other'}: {int((one.senses == sense).sum())} emoji"
        for sense, words in enumerate(one.words)
    )
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(f"Concepts of {one.label}: {described}")}">',
        '<g class="others">',
        *(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="1.6"/>' for x, y in background),
        "</g>",
    ]
    taken = [_picture_box(x, y) for x, y in places]
    for sense, words in enumerate(one.words):
        members = places[one.senses == sense]
        corners = " ".join(f"{x:.0f},{y:.0f}" for x, y in _hull(members))
        parts.append(f'<polygon class="sense s{sense}" points="{corners}"/>')
        text = ", ".join(words) or "other"
        left, top, right, bottom = _place_words(text, members, taken)
        taken.append((left, top, right, bottom))
        parts.append(
            f'<text class="s{sense}" x="{(left + right) / 2:.1f}" y="{bottom - 5:.1f}" '
            f'text-anchor="middle">{escape(text)}</text>'
        )
    for emoji, (x, y) in zip(one.owners.tolist(), places, strict=True):
        parts.append(
            f'<image href="{pictures.uri(emoji, drawing)}" x="{x - SIZE / 2:.1f}" '
            f'y="{y - SIZE / 2:.1f}" width="{SIZE}" height="{SIZE}">'
            f"<title>{escape(results.names[emoji])}</title></image>"
        )
    return "".join([*parts, "</svg>"])


def _to_canvas(one: SenseMap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale concepts, and those of other labels that fall on the canvas, to its size."""
    low, high = one.points.min(axis=0), one.points.max(axis=0)
    margin = np.array(MARGIN, dtype=np.float64)
    room = np.array([WIDTH, HEIGHT]) - 2 * margin
    scale = room / np.where(high > low, high - low, 1.0)
    # Both axes keep to one measure unless that would leave a thin line.
    scale = np.minimum(scale, 3.0 * scale.min())
    middle = np.array([WIDTH, HEIGHT]) / 2
    places = middle + (one.points - (low + high) / 2) * scale
    background = middle + (one.background - (low + high) / 2) * scale
    inside = ((background > 4) & (background < np.array([WIDTH, HEIGHT]) - 4)).all(axis=1)
    return places, background[inside]


def _push_apart(places: NDArray[np.float64], n_rounds: int = 600) -> NDArray[np.float64]:
    """Move pictures apart until none hides another; the same input gives the same output."""
    moved = places.copy()
    # Identical places need a direction to part in: the golden angle spreads any number of them.
    angles = np.arange(len(moved)) * 2.399963
    moved += 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    margin = np.array(MARGIN, dtype=np.float64)
    limit = np.array([WIDTH, HEIGHT]) - margin
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
        moved = np.clip(moved + 0.35 * pushes.sum(axis=1), margin, limit)
    return moved


def _picture_box(x: float, y: float) -> Box:
    """Give left, top, right and bottom of the picture around a place."""
    return x - SIZE / 2, y - SIZE / 2, x + SIZE / 2, y + SIZE / 2


def _hull(members: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the corners of the smallest convex shape around pictures, shape (n_corners, 2)."""
    from scipy.spatial import ConvexHull

    half = SIZE / 2 - 4  # the outline's width makes up for it
    shifts = np.array([[-half, -half], [-half, half], [half, -half], [half, half]])
    corners = (members[:, None] + shifts).reshape(-1, 2)
    return np.asarray(corners[ConvexHull(corners).vertices])


def _place_words(text: str, members: NDArray[np.float64], taken: list[Box]) -> Box:
    """Find a free box for words over, under or beside their sense's pictures."""
    width = LETTER * len(text)
    low, high = members.min(axis=0) - SIZE / 2 - 5, members.max(axis=0) + SIZE / 2 + 5
    middle = (low[0] + high[0]) / 2
    tries = []
    for shift in (0.0, -40.0, 40.0, -80.0, 80.0):
        centre = min(max(middle + shift, width / 2 + 4), WIDTH - width / 2 - 4)
        for place in (low[1] - LINE, high[1]):
            top = min(max(place, 2.0), HEIGHT - LINE - 2.0)
            tries.append((centre - width / 2, top, centre + width / 2, top + LINE))
    return min(tries, key=lambda box: sum(_shared_area(box, other) for other in taken))


def _shared_area(one: Box, other: Box) -> float:
    """Give the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
