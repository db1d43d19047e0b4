"""From a matplotlib figure to an inline SVG element.

In: a function that paints on a figure. Out: SVG text whose colours follow the page's variables,
whose ids begin with the plot's name, and which is the same for the same input.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LINE, CARD = "#1f2328", "#5f6670", "#e4e1db", "#ffffff"
# Distinguishable with any of the common colour-vision deficiencies.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#56b4e9", "#882255", "#7f8790")
MARKERS = "osD^vPX*"
STYLE = Path(__file__).with_name("report.mplstyle")
# Ids of artists: text that stands out from what lies below it, and a tooltip's text.
HALO, TIP = "halo", "tip:"

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VARIABLES = {INK: "ink", SOFT: "soft", LINE: "line", CARD: "card"}
_VARIABLES |= {colour: f"m{number}" for number, colour in enumerate(SERIES)}
_HALO_STYLE = f"paint-order: stroke; stroke: {CARD}; stroke-width: 3px; stroke-linejoin: round"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif"


def words(text: str) -> str:
    """Return a text on one line without the characters that XML has no place for."""
    return " ".join(_UNPRINTABLE.sub("\ufffd", text).split())


def colour_of(place: int) -> str:
    """Return the colour of the series at a place; they begin anew after the last."""
    return SERIES[place % len(SERIES)]


def add_axes(figure: Figure, title: str = "", *, x: str = "", y: str = "", grid: str = "y") -> Axes:
    """Draw the axes of a figure with their names."""
    axes = figure.add_subplot()
    axes.set_title(words(title))
    axes.set_xlabel(words(x))
    axes.set_ylabel(words(y))
    if grid:
        axes.grid(axis="x" if grid == "x" else "y")
    return axes


def draw(
    paint: Callable[[Figure], None], *, name: str, label: str, size: tuple[float, float]
) -> str:
    """Draw a figure as an SVG element, whatever matplotlib's settings are.

    `paint` takes the empty figure, whose `size` is in inches of 72 pixels. An artist whose gid is
    `HALO` stands out from what lies below it; one whose gid begins with `TIP` shows the rest as a
    tooltip. `name` begins all ids; `label` says what the picture shows, for who cannot see it.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    text = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        # The reader's fonts draw the text, so it does not matter which letters matplotlib's lack.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        matplotlib.rcdefaults()
        style = matplotlib.rc_params_from_file(STYLE, use_default_template=False)
        matplotlib.rcParams.update(style)
        matplotlib.rcParams["svg.hashsalt"] = name
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing)
    return _inline(text.getvalue(), name, words(label))


def _inline(text: str, name: str, label: str) -> str:
    """Make the file that matplotlib writes fit to stand in a page beside others."""
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<(metadata|style).*?</\1>|<metadata/>|<!--.*?-->", "", svg, flags=re.DOTALL)
    size = re.search(r'viewBox="0 0 ([\d.]+ [\d.]+)"', svg)
    assert size is not None  # matplotlib always writes one
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[1]}" role="img" '
        f'aria-label="{escape(label)}" class="plot" font-family="{_FONT}" '
        'stroke-linejoin="round">'
    )
    svg = head + svg[svg.index(">") + 1 :].strip()
    svg = re.sub(rf'<g id="{TIP}([^"]*)">', r"<g><title>\1</title>", svg)
    svg = svg.replace(f'<g id="{HALO}">', f'<g style="{_HALO_STYLE}">')
    # Ids are kept where something refers to them, and begin with the plot's name.
    used = {*re.findall(r"url\(#([^)]+)\)", svg), *re.findall(r'href="#([^"]+)"', svg)}
    svg = re.sub(r' id="([^"]*)"', lambda at: f' id="{name}-{at[1]}"' * (at[1] in used), svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = re.sub(r"font(?:-family)?: [^;\"]*'DejaVu Sans'[^;\"]*", _font_size, svg)
    svg = re.sub(r'\b(d|x|y|transform|width|height|points|style)="([^"]*)"', _shorter, svg)
    for colour, variable in _VARIABLES.items():
        svg = re.sub(rf'{colour}(?=[;"])', f"var(--{variable}, {colour})", svg)
    return re.sub(r">\s+<", "><", svg)


def _font_size(match: re.Match[str]) -> str:
    """Leave the font to the page, and keep its size and weight."""
    sized = re.search(r"font: (.*px) ", match[0])
    if sized is None:
        return ""
    description = sized[1]
    weight = "bold " if "bold" in description else ""
    *_, size = description.split()
    return f"font: {weight}{size} {_FONT}"


def _shorter(match: re.Match[str]) -> str:
    """Write an attribute's numbers with two decimals."""
    name = match[1]
    attribute = match[2]
    value = re.sub(r"-?\d+\.\d{3,}", _two_decimals, attribute)
    words = value.split()
    value = " ".join(words)
    return f'{name}="{value}"'


def _two_decimals(match: re.Match[str]) -> str:
    """Write a number with two decimals."""
    number = float(match[0])
    return f"{number:.2f}"
