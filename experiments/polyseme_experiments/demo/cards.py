"""Test pictures as cards, and predictions with their evidence, in HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from polyseme.evidence import Evidence
from polyseme_experiments.demo.results import Card, DemoResults, Known, Reason, Tag
from polyseme_experiments.demo.thumbnails import Pictures

DRAWN_BY = {"noto": "Noto", "twemoji": "Twemoji"}


def picture(
    emoji: int, drawing: str, results: DemoResults, pictures: Pictures, size: int = 64
) -> str:
    """Give an image element for one drawing of an emoji."""
    name = escape(results.names[emoji])
    return (
        f'<img src="{pictures.uri(emoji, drawing)}" width="{size}" height="{size}" '
        f'alt="{name}" title="{name}" loading="lazy" decoding="async">'
    )


def chip(tag: Tag, *, missed: bool = False) -> str:
    """Give a list item for a tag: colour and shape by kind, a tick or a cross by truth."""
    if missed:
        spoken = f"({tag.kind}, missed)"
        return f'<li class="chip missed">{escape(tag.label)}<span class="vh"> {spoken}</span></li>'
    mark, word = ("✓", "right") if tag.right else ("✗", "wrong")
    return (
        f'<li class="chip {escape(tag.kind)} {word}"><b aria-hidden="true">{mark}</b>'
        f'{escape(tag.label)}<span class="vh"> ({escape(tag.kind)}, {word})</span></li>'
    )


def chips(tags: Iterable[Tag], *, missed: bool = False) -> str:
    """Give a list of tags."""
    return f'<ul class="chips">{"".join(chip(tag, missed=missed) for tag in tags)}</ul>'


def card(one: Card, results: DemoResults, pictures: Pictures) -> str:
    """Give the card of one test picture."""
    words = {tag.label for tag in (*one.tags, *one.unseen, *one.missed)}
    listed = escape("|".join([one.name, *sorted(words)]).lower())
    missed = (
        f'<div class="line"><span>missed</span>{chips(one.missed, missed=True)}</div>'
        if one.missed
        else ""
    )
    unseen = (
        f'<div class="line"><span>unseen only</span>{chips(one.unseen)}</div>' if one.unseen else ""
    )
    return (
        f'<article class="card" data-words="{listed}">'
        f"{picture(one.emoji, one.drawing, results, pictures)}"
        f"<div><h3>{escape(one.name)} <small>{escape(DRAWN_BY.get(one.drawing, one.drawing))}"
        f"</small></h3>{chips(one.tags)}{unseen}{missed}</div></article>"
    )


def cards(chosen: Sequence[Card], results: DemoResults, pictures: Pictures) -> str:
    """Give several cards in a grid."""
    inside = "\n".join(card(one, results, pictures) for one in chosen)
    return f'<div class="grid">{inside}</div>'


def reason(one: Reason, results: DemoResults, pictures: Pictures) -> str:
    """Give the evidence behind one prediction: parts that add up, and known tag lists nearby."""
    rank = f"ranked {_ordinal(one.place)} of {'all' if one.among == 'all' else 'the unseen'} tags"
    verdict = "and right" if one.tag.right else "but wrong"
    rows = "".join(_known(known, results, pictures) for known in one.known)
    return (
        '<article class="reason"><header>'
        f"{picture(one.emoji, one.drawing, results, pictures)}"
        f"<div><h3>{escape(one.name)}</h3>{chips([one.tag])}"
        f'<p class="note">{escape(rank)}, {verdict}</p></div></header>'
        f"{parts(one.evidence)}"
        '<p class="note">nearest known tag lists: whose, distance, share of votes</p>'
        f"<ol>{rows}</ol></article>"
    )


def parts(evidence: Evidence) -> str:
    """Draw the parts of a logit as bars, positive to the right and negative to the left.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    str
        A table: what, its bar, its number; then the sum.
    """
    tags = evidence.tags
    named = [
        ("how common the tag is", evidence.frequency, ""),
        ("the picture itself", evidence.features, ""),
        *((tag.tag, tag.part, f"<small>{tag.probability:.0%} likely</small>") for tag in tags),
        ("other tags" if tags else "its probable tags", evidence.other_tags, ""),
        ("known tag lists nearby", evidence.known, ""),
    ]
    values = [0.0, evidence.logit, *(value for _, value, _ in named)]
    scale = 100 / ((max(values) - min(values)) or 1.0)
    zero = -min(values) * scale
    rows = "".join(
        f'<tr><th scope="row"{" class=tag" if told else ""}>{escape(name)}{told}</th>'
        f"{_bar(value, zero, scale)}</tr>"
        for name, value, told in named
    )
    return (
        f'<table class="parts"><tbody>{rows}</tbody><tfoot><tr><th scope="row">sum'
        f"<small>probability {_probability(evidence.probability)}</small></th>"
        f"{_bar(evidence.logit, zero, scale)}</tr></tfoot></table>"
    )


def _bar(value: float, zero: float, scale: float) -> str:
    """Give two cells: a bar that begins at zero, and the number."""
    width = abs(value) * scale
    left = zero - (width if value < 0 else 0.0)
    sign = "minus" if value < 0 else "plus"
    return (
        f'<td class="bar"><div><i class="zero" style="left:{zero:.1f}%"></i>'
        f'<i class="{sign}" style="left:{left:.1f}%;width:{width:.1f}%"></i></div></td>'
        f"<td>{round(value, 2) + 0.0:+.2f}</td>"  # no minus before a zero
    )


def _probability(value: float) -> str:
    """Write a probability with as many digits as it needs."""
    return f"{value:.2f}" if value >= 0.01 else f"{value:.4f}"


def _known(known: Known, results: DemoResults, pictures: Pictures) -> str:
    """Give one known tag list: emoji, tags, distance and votes."""
    shown = "".join(picture(emoji, "noto", results, pictures, size=32) for emoji in known.emoji[:2])
    more = f" ({len(known.emoji)} emoji)" if len(known.emoji) > 2 else ""
    holds, word = ("holds", "✓") if known.holds else ("", "")
    spoken = '<span class="vh"> (holds the tag)</span>' if known.holds else ""
    return (
        f'<li class="{holds}"><span class="pics">{shown}</span>'
        f'<span class="tags"><b aria-hidden="true">{word}</b>{escape(", ".join(known.document))}'
        f"{more}{spoken}</span>"
        f'<span class="distance" title="one less the cosine">{known.distance:.2f}</span>'
        f'<span class="distance" title="share of the votes">{known.share:.0%}</span></li>'
    )


def _ordinal(place: int) -> str:
    """Write a small place as people say it."""
    words = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
    return words[place - 1] if place <= len(words) else f"number {place}"
