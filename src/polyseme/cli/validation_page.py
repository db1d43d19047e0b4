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
    """Draw a validation as an HTML page."""
    best = validation.highest_precision
    promise = (
        f"Of suggested unseen tags a share of up to {best:.0%} can be promised to be true."
        if best
        else "No share of suggested unseen tags can be promised to be true."
    )
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{validation.n_draws} times a quarter of the items was held out, and some tags were "
        "hidden from training by leaving out the items that carry them. What follows was "
        f"measured on the items held out. {promise}</p>",
        _summary(validation),
        _gains(validation),
        "<h2>Can probabilities be believed?</h2><p>On the diagonal, half of the tags with a "
        "probability of one half are true; below it fewer are.</p>",
        _curves(validation),
        "<h2>Tag by tag</h2><p>C-MAP of each tag: how high the items that carry it stand when all "
        "are ordered by it. The gap between the bars is what tagged items, or a few clicks, could "
        "bring to a tag that has none.</p>",
        _labels(validation),
        "<h2>Hidden tags and the items they were likeliest for</h2>",
        _examples(validation),
    ]
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    head += f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(body)}</body></html>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table whose cells are HTML already; all columns but the first hold numbers."""
    lines = [_table_row("th", header)]
    for row in rows:
        lines.append(_table_row("td", row))
    return f"<table>{''.join(lines)}</table>"


def _table_row(tag: str, cells: Sequence[str]) -> str:
    """Write one row of a table; all cells but the first hold numbers."""
    html = f"<{tag}>{cells[0]}</{tag}>"
    for cell in cells[1:]:
        html += f"<{tag} class='n'>{cell}</{tag}>"
    return f"<tr>{html}</tr>"


def _share(value: float | None) -> str:
    """Write a share in percent; a dash where there is none."""
    if value is None or np.isnan(value):
        return _NONE
    return f"{100 * value:.0f} %"


def _summary(validation: Validation) -> str:
    """Write the measures of seen and unseen tags beside each other."""

    def row(name: str, of: str) -> tuple[str, ...]:
        seen = getattr(validation.seen, of)
        unseen = getattr(validation.unseen, of)
        return name, _share(seen), _share(unseen)

    return _table(
        ("", "seen tags", "tags made unseen"),
        [
            row("true among suggestions of 50 % or more (precision)", "precision"),
            row("found of all true tags by these (recall)", "recall"),
            row("E-MAP: how high an item's tags stand in its ranking", "example_map"),
            row("C-MAP: how high a tag's items stand in its ranking", "concept_map"),
            ("tags in a ranking", str(validation.seen.n_labels), str(validation.unseen.n_labels)),
            (
                "held-out items that carry one",
                str(validation.seen.n_items),
                str(validation.unseen.n_items),
            ),
        ],
    )


def _gains(validation: Validation) -> str:
    """Write the gain for unseen tags by items without tags and by a few answers."""
    gains = [
        ("items without tags (fit --unlabelled)", validation.pool_gain),
        (f"yes or no to {CLICKS} items for each tag (ask, learn)", validation.click_gain),
    ]
    rows = [(name, f"{100 * gain:+.1f}") for name, gain in gains if gain is not None]
    if not rows:
        return ""
    return (
        "<h2>What would bring more?</h2><p>Points that the mean of E-MAP and C-MAP of hidden tags "
        f"rose by, on items held out.</p>{_table(('', 'points'), rows)}"
    )


def _curves(validation: Validation) -> str:
    """Draw how often tags of each probability are true."""
    size = 320
    colours = {"seen": "#2f6f9f", "unseen": "#c2702d"}
    shapes = [f"<path d='M0 {size}L{size} 0' stroke='#9aa7b5' stroke-dasharray='4'/>"]
    for place, (name, curve) in enumerate(validation.curves.items()):
        points = []
        for _, predicted, observed in curve:
            x = size * predicted
            y = size * (1 - observed)
            points.append(f"{x:.1f},{y:.1f}")
        colour = colours[name]
        line = f"<polyline points='{' '.join(points)}' fill='none'"
        shapes.append(f"{line} stroke='{colour}' stroke-width='2'/>")
        shapes.append(f"<text x='8' y='{18 + 18 * place}' fill='{colour}'>{name}</text>")
    return (
        f"<svg viewBox='-24 -6 {size + 30} {size + 30}' width='{size + 30}' role='img' "
        "aria-label='Share of true tags by probability'>"
        f"<rect width='{size}' height='{size}' fill='none' stroke='#9aa7b5'/>"
        f"<text x='{size / 2 - 35}' y='{size + 18}' fill='#7b8794'>probability</text>"
        f"<text transform='translate(-8 {size / 2 + 35}) rotate(-90)' fill='#7b8794'>share true"
        f"</text>{''.join(shapes)}</svg>"
    )


def _labels(validation: Validation) -> str:
    """Write the quality of each tag, seen and unseen, the best first."""

    def bar(value: float | None, kind: str) -> str:
        if value is None:
            return _NONE
        return (
            f"<span class='bar {kind}'><i style='width:{100 * value:.0f}%'></i></span> {value:.2f}"
        )

    pairs = validation.labels.items()
    ordered = sorted(pairs, key=lambda pair: (-(pair[1][0] or pair[1][1] or 0.0), pair[0]))
    return _table(
        ("tag", "seen", "made unseen"),
        [(escape(label), bar(seen, "s"), bar(unseen, "u")) for label, (seen, unseen) in ordered],
    )


def _examples(validation: Validation) -> str:
    """Write hidden tags with their likeliest items, right and wrong."""
    lines = []
    for label, items in sorted(validation.examples.items()):
        listed = ", ".join(
            f"<span class='{'yes' if true else 'no'}'>{'✓' if true else '✗'} {escape(name)} "
            f"<small>{likely:.2f}</small></span>"
            for name, likely, true in items
        )
        lines.append(f"<li><b>{escape(label)}</b>: {listed}</li>")
    return f"<ul>{''.join(lines)}</ul>"
