"""The page of `polyseme validate`: the expected quality of seen and unseen tags.

In: a `Validation`. Out: one HTML page that loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from polyseme.fitting.holdout_validation import CLICKS, Validation

_NONE = "&ndash;"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b2733; background: #fff }
h1 { font-size: 1.6rem }
h2 { font-size: 1.2rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #d8dee6 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.bar { background: #e6ebf1; border-radius: 3px; width: 8rem; height: .8rem; display: inline-block }
.bar i { display: block; height: 100%; border-radius: 3px; background: #2f6f9f }
.bar.u i { background: #c2702d }
.yes { color: #1d7a3d }
.no { color: #a3342c }
svg { max-width: 100% }
ul { list-style: none; padding: 0 }
li { margin: .2rem 0 }
small { color: #5a6775 }
@media (prefers-color-scheme: dark) {
  body { color: #e3e8ee; background: #161b21 }
  th, td { border-color: #333c47 }
  .bar { background: #2b343f }
  .yes { color: #6cc48a }
  .no { color: #e58b83 }
  small { color: #9aa7b5 }
}
"""


def validation_page(validation: Validation, title: str) -> str:
    """Return a validation as the text of an HTML page, which loads nothing from elsewhere."""
    promise = "The model can promise no precision for unseen tags."
    best = validation.highest_precision
    if best:
        promise = f"For unseen tags the model can promise a precision of up to {best:.0%}."
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{validation.n_draws} times, a quarter of the items was held out, and some tags were "
        "hidden from training by leaving out the items that carry them. All figures were "
        f"measured on the items held out. {promise}</p>",
        _measure_table(validation),
        _gain_section(validation),
        "<h2>Can probabilities be believed?</h2><p>On the diagonal, half of the tags with a "
        "probability of one half are true; below it fewer are.</p>",
        _reliability_curves(validation),
        "<h2>Tag by tag</h2><p>C-MAP of each tag: how high the items that carry it stand when all "
        "are ordered by its score. The gap between the bars is what tagged items, or a few clicks, "
        "could gain for a tag that has none.</p>",
        _label_table(validation),
        "<h2>Hidden tags and the items they were likeliest for</h2>",
        _example_list(validation),
    ]
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    head += f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    body_html = "".join(body)
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body_html}</body></html>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are HTML already; all columns but the first hold numbers."""
    html = _table_row("th", header)
    for row in rows:
        html += _table_row("td", row)
    return f"<table>{html}</table>"


def _table_row(tag: str, cells: Sequence[str]) -> str:
    """Return one row of a table, whose cells have the tag "th" or "td"."""
    html = f"<{tag}>{cells[0]}</{tag}>"
    for cell in cells[1:]:
        html += f"<{tag} class='n'>{cell}</{tag}>"
    return f"<tr>{html}</tr>"


def _percent(share: float | None) -> str:
    """Return a share in percent; a dash where there is none."""
    if share is None or np.isnan(share):
        return _NONE
    return f"{100 * share:.0f} %"


def _measure_table(validation: Validation) -> str:
    """Return the measures of seen and unseen tags beside each other."""
    seen = validation.seen
    unseen = validation.unseen

    def row(description: str, measure: str) -> tuple[str, ...]:
        seen_share = getattr(seen, measure)
        unseen_share = getattr(unseen, measure)
        return description, _percent(seen_share), _percent(unseen_share)

    return _table(
        ("", "seen tags", "tags made unseen"),
        [
            row("true among suggestions of 50 % or more (precision)", "precision"),
            row("true tags that are among these suggestions (recall)", "recall"),
            row("E-MAP: how high an item's tags stand in its ranking", "example_map"),
            row("C-MAP: how high a tag's items stand in its ranking", "concept_map"),
            ("tags in a ranking", str(seen.n_labels), str(unseen.n_labels)),
            ("held-out items that carry one", str(seen.n_items), str(unseen.n_items)),
        ],
    )


def _gain_section(validation: Validation) -> str:
    """Return the gains for unseen tags by items without tags and by answers; empty without any."""
    gains = [
        ("items without tags (fit --unlabelled)", validation.pool_gain),
        (f"yes or no to {CLICKS} items for each tag (ask, learn)", validation.click_gain),
    ]
    rows = []
    for description, gain in gains:
        if gain is not None:
            rows.append((description, f"{100 * gain:+.1f}"))
    if not rows:
        return ""
    table = _table(("", "points"), rows)
    return (
        "<h2>What would improve the rankings?</h2><p>Points that the mean of E-MAP and C-MAP of "
        f"hidden tags rose by, on items held out.</p>{table}"
    )


def _reliability_curves(validation: Validation) -> str:
    """Return a drawing (SVG) of the share of true tags by probability, for seen and unseen tags."""
    size = 320  # pixels a side
    colours = {"seen": "#2f6f9f", "unseen": "#c2702d"}
    shapes = [f"<path d='M0 {size}L{size} 0' stroke='#9aa7b5' stroke-dasharray='4'/>"]
    for number, (kind, curve) in enumerate(validation.curves.items()):
        points = []
        # A step of probabilities: how many there are, their mean, and the share that is true.
        for _, predicted, observed in curve:
            x = size * predicted
            y = size * (1 - observed)
            points.append(f"{x:.1f},{y:.1f}")
        colour = colours[kind]
        caption_y = 18 + 18 * number
        line = f"<polyline points='{' '.join(points)}' fill='none'"
        shapes.append(f"{line} stroke='{colour}' stroke-width='2'/>")
        shapes.append(f"<text x='8' y='{caption_y}' fill='{colour}'>{kind}</text>")
    return (
        f"<svg viewBox='-24 -6 {size + 30} {size + 30}' width='{size + 30}' role='img' "
        "aria-label='Share of true tags by probability'>"
        f"<rect width='{size}' height='{size}' fill='none' stroke='#9aa7b5'/>"
        f"<text x='{size / 2 - 35}' y='{size + 18}' fill='#7b8794'>probability</text>"
        f"<text transform='translate(-8 {size / 2 + 35}) rotate(-90)' fill='#7b8794'>share true"
        f"</text>{''.join(shapes)}</svg>"
    )


def _label_table(validation: Validation) -> str:
    """Return the C-MAP of each tag where it is seen, and where it was made unseen; best first."""

    def sort_key(item: tuple[str, tuple[float | None, float | None]]) -> tuple[float, str]:
        label, (seen, unseen) = item
        c_map = seen or unseen or 0.0
        return -c_map, label

    rows = []
    for label, (seen, unseen) in sorted(validation.labels.items(), key=sort_key):
        seen_bar = _bar(seen, "s")
        unseen_bar = _bar(unseen, "u")
        rows.append((escape(label), seen_bar, unseen_bar))
    return _table(("tag", "seen", "made unseen"), rows)


def _bar(c_map: float | None, css_class: str) -> str:
    """Return a bar with its number, in the colour of a class of `_STYLE`; a dash for none."""
    if c_map is None:
        return _NONE
    width = f"{100 * c_map:.0f}%"
    return f"<span class='bar {css_class}'><i style='width:{width}'></i></span> {c_map:.2f}"


def _example_list(validation: Validation) -> str:
    """Return hidden tags with their likeliest items, right and wrong."""
    html = ""
    for label, examples in sorted(validation.examples.items()):
        items = []
        for name, probability, is_true in examples:
            css_class = "yes" if is_true else "no"
            sign = "✓" if is_true else "✗"
            items.append(
                f"<span class='{css_class}'>{sign} {escape(name)} "
                f"<small>{probability:.2f}</small></span>"
            )
        listed_items = ", ".join(items)
        html += f"<li><b>{escape(label)}</b>: {listed_items}</li>"
    return f"<ul>{html}</ul>"
