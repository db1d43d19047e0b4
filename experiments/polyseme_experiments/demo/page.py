"""The demo's page: one HTML file that loads nothing from anywhere.

In: a `DemoResults` record and the emoji's pictures. Out: HTML text; everything that comes from the
data is escaped.
"""

from __future__ import annotations

from html import escape
from importlib import resources
from string import Template

from polyseme.senses import SenseMap
from polyseme_experiments.demo.cards import cards, reason
from polyseme_experiments.demo.plots import sense_plot
from polyseme_experiments.demo.results import COLUMNS, Completion, DemoResults, MethodScores, Score
from polyseme_experiments.demo.thumbnails import Pictures

N_SHOWN = 24
SOURCES = (
    (
        "Noto Emoji",
        "copyright Google LLC",
        "https://github.com/googlefonts/noto-emoji",
        "Apache License 2.0",
        "https://www.apache.org/licenses/LICENSE-2.0",
    ),
    (
        "Twemoji",
        "copyright Twitter, Inc and other contributors",
        "https://github.com/jdecked/twemoji",
        "CC-BY 4.0",
        "https://creativecommons.org/licenses/by/4.0/",
    ),
)


def build_page(results: DemoResults, pictures: Pictures) -> str:
    """Write the page.

    Parameters
    ----------
    results : DemoResults
    pictures : Pictures
        Gives every emoji's picture as a data URI.

    Returns
    -------
    str
        HTML. The same results give the same text; only the footer's line of seconds changes
        between runs with one seed.
    """
    return Template(_read("page.html")).substitute(
        css=_read("page.css").strip(),
        script=_read("page.js").strip(),
        mosaic=_mosaic(results, pictures),
        introduction=_introduction(results),
        facts=_facts(results),
        scores=_scores(results),
        cards=_cards(results, pictures),
        senses=_senses(results, pictures),
        completions=_completions(results),
        reasons=_reasons(results, pictures),
        footer=_footer(results),
    )


def _read(name: str) -> str:
    """Read a file that lies beside this module."""
    return (resources.files("polyseme_experiments.demo") / name).read_text(encoding="utf-8")


def _introduction(results: DemoResults) -> str:
    """Say what was hidden and what is shown."""
    example = ""
    if results.completions and len(results.completions[0]) > 2:
        label, first = results.completions[0][1].given
        second = results.completions[0][2].given[1]
        example = (
            f": <em>{escape(label)}</em> beside <em>{escape(first)}</em> is not "
            f"<em>{escape(label)}</em> beside <em>{escape(second)}</em>"
        )
    return (
        '<p class="lead">Emoji come with keywords, so anyone can judge a tag on them. polyseme '
        f"learned from the tag lists of {results.n_train:,} emoji what tags mean in each other's "
        f"company{example}. It was shown the pictures of only {results.n_taught:,} of them: every "
        f"emoji with one of {len(results.unseen)} <b>unseen</b> tags was held back. "
        f"{len(results.oov)} further tags, called <b>oov</b> (out of vocabulary), were struck "
        "from the tag lists; it met them only on pictures, beside other tags. "
        f"Below it tags {results.n_test:,} emoji of which it knows nothing but the picture.</p>"
    )


def _facts(results: DemoResults) -> str:
    """Give the numbers of what was shown and hidden."""
    facts = (
        ("seen", f"{results.n_taught:,}", "emoji shown as pictures with their tags"),
        ("unseen", str(len(results.unseen)), "unseen tags: known from tag lists, on no picture"),
        ("oov", str(len(results.oov)), "oov tags: struck from the tag lists, met on pictures only"),
        ("", f"{results.n_test:,}", "test emoji that it never met"),
    )
    tiles = "".join(
        f'<li class="{kind}"><strong>{number}</strong><span>{text}</span></li>'
        for kind, number, text in facts
    )
    return f'<ul class="facts">{tiles}</ul>'


def _mosaic(results: DemoResults, pictures: Pictures, n_pictures: int = 16) -> str:
    """Give the first test pictures as an ornament, which screen readers pass over."""
    shown = "".join(
        f'<img src="{pictures.uri(card.emoji, card.drawing)}" width="56" height="56" alt="">'
        for card in results.cards[:n_pictures]
    )
    return f'<div class="mosaic" aria-hidden="true">{shown}</div>'


def _scores(results: DemoResults) -> str:
    """Give both tables and what to know when reading them."""
    example = [method.example for method in results.methods]
    concept = [method.concept for method in results.methods]
    first, second = (method.name for method in results.methods[:2])
    names = [method.name for method in results.methods]
    tables = _table(
        "E-MAP",
        "per picture: how pure the top of its list of tags is",
        "emoji",
        names,
        example,
        (f"{first} less {second}", results.differences),
    ) + _table(
        "C-MAP", "per tag: how well it sorts the test pictures", "tags", names, concept, None
    )
    wins = _wins(results.methods)
    return (
        f"<p>{wins} Both measures run from 0 to 100, and larger is better. A column ranks the tags "
        f"of its kind among themselves; “all” ranks all {results.n_labels} together, which is "
        "harder.</p>"
        f'<div class="tables">{tables}</div>'
        f'<p class="note wide">One split with seed {results.seed}, '
        f"{results.n_test:,} test emoji in two drawings each: small differences may be chance. "
        "± is the standard error over test emoji, whose two drawings count as one. ▸ marks the "
        f"best of a column. The {len(results.oov)} oov tags are "
        f"{escape(', '.join(results.oov))}; some pictures had them, but no tag list. "
        "Tuned COSTA has a classifier for each seen tag and predicts unseen tags from those; "
        "popularity gives every picture the commonest tags. Several meanings of a word, completed "
        "tag lists and reasons, further down, come with the concept space, which neither has.</p>"
    )


def _table(
    title: str,
    meaning: str,
    unit: str,
    names: list[str],
    rows: list[dict[str, Score]],
    difference: tuple[str, dict[str, Score]] | None,
) -> str:
    """Give one table of scores, the best of each column marked."""
    head = "".join(
        f'<th scope="col">{column}<small>n = {rows[0][column].n}</small></th>' for column in COLUMNS
    )
    best = {column: max(_percent(row[column].value) for row in rows) for column in COLUMNS}
    body = ""
    for name, row in zip(names, rows, strict=True):
        cells = ""
        for column in COLUMNS:
            text = _percent(row[column].value)
            is_best = text == best[column]
            spoken = '<span class="vh"> (best)</span>' if is_best else ""
            cells += (
                f"<td{' class=best' if is_best else ''}>{text:.1f}{spoken}"
                f"{_error(row[column])}</td>"
            )
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    if difference is not None:
        cells = "".join(
            f"<td>{_percent(score.value):+.1f}{_error(score)}</td>"
            for score in (difference[1][column] for column in COLUMNS)
        )
        body += f'<tr class="difference"><th scope="row">{escape(difference[0])}</th>{cells}</tr>'
    return (
        f"<table><caption>{title}<small>{meaning} (n: {unit})</small></caption>"
        f'<thead><tr><th scope="col">tags</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _percent(value: float) -> float:
    """Give a share as a percentage with one decimal, as it is printed."""
    return round(100 * value, 1)


def _error(score: Score) -> str:
    """Give the standard error in small print."""
    return "" if score.error is None else f"<small>± {100 * score.error:.1f}</small>"


def _wins(methods: tuple[MethodScores, ...]) -> str:
    """Say in one sentence who is ahead, whoever it is."""
    leaders: dict[str, int] = {}
    n_columns = 0
    for table in ("example", "concept"):
        for column in COLUMNS:
            scores = {method.name: getattr(method, table)[column].value for method in methods}
            leader = max(scores, key=lambda name: scores[name])
            leaders[leader] = leaders.get(leader, 0) + 1
            n_columns += 1
    if len(leaders) == 1:
        return f"Best in all {n_columns} columns: {escape(next(iter(leaders)))}."
    told = " and ".join(
        f"{escape(name)} in {count}"
        for name, count in sorted(leaders.items(), key=lambda pair: -pair[1])
    )
    return f"Best of the {n_columns} columns: {told}."


def _cards(results: DemoResults, pictures: Pictures) -> str:
    """Give the cards: some in view, the others behind a button."""
    shown, others = results.cards[:N_SHOWN], results.cards[N_SHOWN:]
    n_all = len(results.cards)
    n_tags, n_unseen = len(results.cards[0].tags), len(results.cards[0].unseen)
    more = (
        f'<details id="all"><summary>Show all {n_all:,} test emoji</summary>'
        f"{cards(others, results, pictures)}</details>"
    )
    return (
        f"<p>A random sample, nothing picked by hand: {len(shown)} test emoji, those that carry an "
        f"unseen or oov tag first, in one of their two drawings. Each has the {n_tags} tags that "
        f"polyseme ranks first among all, then the first {n_unseen} among the unseen ones alone, "
        f"and in grey the true tags that are not among the {n_tags}.</p>"
        '<ul class="legend">'
        '<li><span class="chip seen right"><b>✓</b>right</span>'
        '<span class="chip seen wrong"><b>✗</b>wrong</span>seen: pictures had it</li>'
        '<li><span class="chip unseen right"><b>✓</b>right</span>'
        '<span class="chip unseen wrong"><b>✗</b>wrong</span>unseen: no picture had it</li>'
        '<li><span class="chip oov right"><b>✓</b>right</span>'
        '<span class="chip oov wrong"><b>✗</b>wrong</span>oov: in no tag list</li>'
        '<li><span class="chip missed">missed</span></li></ul>'
        '<div class="tools"><label hidden>Filter by tag or name'
        '<input id="filter" type="search" autocomplete="off" placeholder="moon"></label>'
        '<output id="found" for="filter"></output></div>'
        f"{cards(shown, results, pictures)}{more}"
    )


def _senses(results: DemoResults, pictures: Pictures) -> str:
    """Give the pictures of the concept space and a selector between them."""
    if not results.maps:
        return "<p>No label fell apart into senses.</p>"
    fewest, most = results.sense_range
    tabs = figures = ""
    for number, one in enumerate(results.maps):
        checked = " checked" if number == 0 else ""
        tabs += (
            f'<input type="radio" name="sense" id="sense{number}"{checked}>'
            f'<label for="sense{number}">{escape(one.label)}</label>'
        )
        figures += (
            f'<figure id="map{number}">{sense_plot(one, results, pictures, "noto")}'
            f"<figcaption>{_groups(one)}The concepts of <em>{escape(one.label)}</em>, one for each "
            "training emoji with it, on their first two principal axes. Silhouette of the senses "
            f"{one.silhouette:.2f}, agreement with Unicode's categories {one.agreement:.2f} (1 is "
            "the most of either).</figcaption></figure>"
        )
    return (
        "<p>Tag lists and pictures are points of one space. A tag is not one point there but one "
        "for each tag list that holds it: a <em>concept</em>. Where a word has several meanings "
        "its concepts fall into groups. Shaded are groups found by k-means, named after the tags "
        "that tell them apart; pictures are moved just enough not to hide each other; faint dots "
        "are concepts of other tags.</p>"
        f'<div class="tabs">{tabs}{figures}</div>'
        '<p class="note wide">Which words are shown is decided by a rule: of all tags on '
        f"{fewest} to {most} training emoji, those with the largest product of silhouette and "
        "agreement (adjusted mutual information) with Unicode's categories, which polyseme never "
        "saw; a tag whose emoji are mostly those of a tag already shown is passed over.</p>"
    )


def _groups(one: SenseMap) -> str:
    """List the senses of a label with their sizes, for screens too small for the plot's words."""
    items = "".join(
        f'<li class="s{sense}">{escape(", ".join(words) or "other")} '
        f"<small>{int((one.senses == sense).sum())} emoji</small></li>"
        for sense, words in enumerate(one.words)
    )
    return f'<ul class="groups">{items}</ul>'


def _completions(results: DemoResults) -> str:
    """Give tag completions: each label alone, then in different company."""
    rows = "".join(
        f'<div class="row">{"".join(_completion(one) for one in row)}</div>'
        for row in results.completions
    )
    return (
        "<p>The same space completes tag lists, without any picture. Here are the same words as "
        "above, alone and beside the tag that tells each meaning, with the five tags that "
        f'polyseme suggests next.</p><div class="rows">{rows}</div>'
    )


def _completion(one: Completion) -> str:
    """Give one completion."""
    given = " <i>+</i> ".join(escape(tag) for tag in one.given)
    tags = "".join(f'<li class="chip plain">{escape(tag)}</li>' for tag in one.tags)
    return f'<div><h3>{given} <i>→</i></h3><ul class="chips">{tags}</ul></div>'


def _reasons(results: DemoResults, pictures: Pictures) -> str:
    """Give the evidence behind a few predictions."""
    told = "".join(reason(one, results, pictures) for one in results.reasons)
    return (
        "<p>Every score is a sum of parts, the logarithm of the odds: how common the tag is, what "
        "the picture says directly, what each tag says that the picture probably has or lacks, and "
        "what known tag lists nearby say. Bars to the right speak for the tag, bars to the left "
        "against it. Below them are the training emoji that lie nearest, ✓ if they hold the tag; a "
        "distance is 0 for the same direction and 1 for an unrelated one. The predictions were "
        "drawn at random among the right unseen, the right oov and the wrong ones.</p>"
        f'<div class="reasons">{told}</div>'
    )


def _footer(results: DemoResults) -> str:
    """Give settings, seconds and the attribution that the drawings' licences ask for."""
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in results.settings
    )
    total = sum(results.seconds.values())
    steps = ", ".join(f"{escape(step)} {taken:.1f}" for step, taken in results.seconds.items())
    drawings = "; ".join(
        f'<a href="{where}">{name}</a>, {owner}, licensed under <a href="{terms}">{licence}</a>'
        for name, owner, where, licence, terms in SOURCES
    )
    return (
        f"<dl><dt>command</dt><dd><code>polyseme demo --seed {results.seed}</code></dd>{listed}"
        f'<dt>seconds</dt><dd id="seconds">{total:.1f} ({steps})</dd></dl>'
        f"<p>Drawings: {drawings}. They were cut from sheets and recompressed; none of the owners "
        'endorses this page. Tags: <a href="https://github.com/muan/emojilib">emojilib</a> (MIT, '
        'Mu-An Chiou) and <a href="https://emojibase.dev">emojibase</a> (MIT, Miles Johnson) '
        "with annotations of the Unicode CLDR (Unicode License v3), selected and merged. This "
        "page loads nothing from the network.</p>"
    )
