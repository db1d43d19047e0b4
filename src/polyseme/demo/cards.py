"""Test pictures as cards, and predictions with their reasons, in HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from polyseme.demo.results import Card, DemoResults, Neighbour, Reason, Tag
from polyseme.demo.thumbnails import Pictures

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
    """Give the nearest known concepts behind one prediction."""
    rank = f"ranked {_ordinal(one.place)} of {'all' if one.among == 'all' else 'the unseen'} tags"
    verdict = "and right" if one.tag.right else "but wrong"
    rows = "".join(_neighbour(known, results, pictures, one.drawing) for known in one.neighbours)
    return (
        '<article class="reason"><header>'
        f"{picture(one.emoji, one.drawing, results, pictures)}"
        f"<div><h3>{escape(one.name)}</h3>{chips([one.tag])}"
        f'<p class="note">{escape(rank)}, {verdict}</p></div></header>'
        f'<p class="note">nearest places where <em>{escape(one.tag.label)}</em> is known:</p>'
        f"<ol>{rows}</ol></article>"
    )


def _neighbour(known: Neighbour, results: DemoResults, pictures: Pictures, drawing: str) -> str:
    """Give one known concept: emoji, tags and distance."""
    shown = "".join(
        picture(emoji, drawing, results, pictures, size=32) for emoji in known.emoji[:3]
    )
    more = f" and {len(known.emoji) - 3} more" if len(known.emoji) > 3 else ""
    tags = ", ".join(known.document)
    return (
        f'<li><span class="pics">{shown}</span><span class="tags">{escape(tags)}{more}</span>'
        f'<span class="distance" title="distance in the concept space">{known.distance:.2f}'
        "</span></li>"
    )


def _ordinal(place: int) -> str:
    """Write a small place as people say it."""
    words = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
    return words[place - 1] if place <= len(words) else f"number {place}"
