"""From a matplotlib figure to an inline SVG element that keeps to itself.

In: a function that paints on a figure. Out: SVG text whose colours follow the page, whose ids
begin with the plot's name, and which is the same for the same input.
"""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyseme._validation import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, LINE, CARD = "#1f2328", "#5f6670", "#e4e1db", "#ffffff"
# Told apart by readers with any of the common colour-vision deficiencies.
SERIES = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#aa4499",
    "#b8860b",
    "#56b4e9",
    "#882255",
    "#7f8790",
)
MARKERS = "osD^vPX*"
# Typed loosely: matplotlib types each setting by its name.
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "polyseme",
    "text.parse_math": False,  # a label may hold a dollar sign
    "axes.unicode_minus": True,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": CARD,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.1,
    "savefig.facecolor": CARD,
    "hatch.linewidth": 0.6,
    "hatch.color": CARD,
}
HALO, TIP = "halo", "tip:"

_NAME = re.compile(r"[a-z][a-zA-Z0-9-]*")
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_VARIABLES = {
    INK: "ink",
    SOFT: "soft",
    LINE: "line",
    CARD: "card",
    **{colour: f"m{number}" for number, colour in enumerate(SERIES)},
}


def words(text: str) -> str:
    """Give a text on one line without the characters that XML has no place for."""
    return " ".join(_UNPRINTABLE.sub("\ufffd", text).split())


def colour_of(place: int) -> str:
    """Give the colour of the series at a place; they begin anew after the last."""
    return SERIES[place % len(SERIES)]


def draw(
    paint: Callable[[Figure], None], *, name: str, label: str, size: tuple[float, float]
) -> str:
    """Draw a figure as SVG.

    Parameters
    ----------
    paint : callable
        Takes the empty figure. An artist whose gid is `HALO` stands out from what lies below it;
        one whose gid begins with `TIP` shows the rest of the gid to who points at it.
    name : str
        Begins all ids; letters, digits and hyphens, a small letter first.
    label : str
        What the picture shows, for who cannot see it.
    size : (float, float)
        Width and height in inches of 72 pixels.

    Returns
    -------
    str
        An SVG element.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"`name` of a plot must be letters, digits and hyphens, a small letter first; got "
            f"{name!r}."
        )
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    text = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        # The reader's fonts draw the text, so it does not matter which letters matplotlib's lack.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing)
    return _tidy(text.getvalue(), name, words(label))


def _tidy(text: str, name: str, label: str) -> str:
    """Make the file that matplotlib writes fit to stand in a page beside others."""
    ET.register_namespace("", _SVG)
    root = ET.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}style", f"{{{_SVG}}}metadata"):
                parent.remove(child)
    _rename(root, name)
    for element in root.iter():
        _restyle(element)
    for group in root.iter(f"{{{_SVG}}}g"):
        _share_style(group)
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    root.attrib.update(
        {
            "viewBox": f"0 0 {width} {height}",
            "role": "img",
            "aria-label": label,
            "class": "plot",
            "font-family": "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif",
            "stroke-linejoin": "round",
        }
    )
    return ET.tostring(root, encoding="unicode", short_empty_elements=True).strip()


def _rename(root: ET.Element, name: str) -> None:
    """Keep only the ids that something refers to, under the plot's name; serve tips and halos."""
    text = ET.tostring(root, encoding="unicode")
    used = {*re.findall(r"url\(#([^)]+)\)", text), *re.findall(r'href="#([^"]+)"', text)}
    new: dict[str, str] = {}
    for element in root.iter():
        old = element.attrib.pop("id", "")
        if old in used:
            new[old] = f"{name}-{len(new)}"
            element.set("id", new[old])
        elif old.startswith(TIP):
            tip = ET.Element(f"{{{_SVG}}}title")
            tip.text = old.removeprefix(TIP)
            element.insert(0, tip)
        elif old == HALO:
            element.set(
                "style",
                f"paint-order: stroke; stroke: {CARD}; stroke-width: 3px; stroke-linejoin: round",
            )
    for element in root.iter():
        target = element.attrib.pop(f"{{{_XLINK}}}href", None)
        if target is not None:
            element.set("href", f"#{new[target[1:]]}")
        if "clip-path" in element.attrib:
            element.set("clip-path", f"url(#{new[element.attrib['clip-path'][5:-1]]})")
        style = element.get("style", "")
        if "url(#" in style:
            element.set("style", re.sub(r"#([^)]+)", lambda at: f"#{new[at[1]]}", style))


def _restyle(element: ET.Element) -> None:
    """Shorten numbers, leave the font to the page, and let colours follow it."""
    if element.tag != f"{{{_SVG}}}title":
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None
    for key in ("d", "x", "y", "transform", "width", "height", "points"):
        if key in element.attrib:
            shorter = _NUMBER.sub(lambda at: f"{float(at[0]):.2f}", element.attrib[key])
            element.set(key, " ".join(shorter.split()))
    transform = element.get("transform", "")
    if re.match(r"rotate\(-?0 ", transform):
        del element.attrib["transform"]
    style = element.get("style")
    if style is not None:
        style = re.sub(r"font-family: [^;]*(; |$)", "", style)
        style = _NUMBER.sub(lambda at: f"{float(at[0]):.2f}", style)
        element.set("style", re.sub(r"#[0-9a-f]{6}", _variable, style))


def _variable(found: re.Match[str]) -> str:
    """Write a colour as the page's variable, with itself where there is no page."""
    colour = found[0]
    return f"var(--{_VARIABLES[colour]}, {colour})" if colour in _VARIABLES else colour


def _share_style(group: ET.Element) -> None:
    """Move a style that all markers of a group have to the group."""
    children = list(group)
    styles = {child.get("style", "") for child in children}
    markers = all(child.tag == f"{{{_SVG}}}use" for child in children)
    if len(children) > 1 and markers and len(styles) == 1 and "style" not in group.attrib:
        group.set("style", styles.pop())
        for child in children:
            child.attrib.pop("style", None)
