"""Plots stand alone and follow the page; the page shows everything, escaped, and loads nothing."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from html_pages import Parsed
from polyseme_experiments.report.page import Facts, Figure, Section, facts_of, write_report
from polyseme_experiments.report.plots import (
    FEWEST,
    bars,
    curves,
    differences,
    reliability,
    senses,
    usage,
    usage_correlation,
)
from polyseme_experiments.report.statistics import BELOW, PairedTest
from polyseme_experiments.report.tables import Cell, Table

HOSTILE = '<script>alert("1")</script>&\'$\\frac{1}{2}$ 🎵'
SVG = "{http://www.w3.org/2000/svg}"


def some_senses(name: str, label: str = "chair") -> str:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(9, 2))
    background = generator.normal(size=(5000, 2))
    return senses(
        name,
        points,
        [0] * 5 + [1] * 4,
        [(label, "desk"), ()],
        label=label,
        background=background,
    )


CELLS = {"Training": Cell(50.0, 1.0, 3, 48.0, 0.4), "ZSL": Cell(53.0, None, 1)}
BINS = {"counts": [50, 900, FEWEST - 1], "predicted": [0.4, 0.1, 0.9], "observed": [0.3, 0.2, 1.0]}
# Each plot, with a name for its ids and any text for its labels.
PLOTS: dict[str, Callable[[str, str], str]] = {
    "bars": lambda name, text: bars(name, {text: CELLS, "COSTA": CELLS}, measure=text),
    "curves": lambda name, text: curves(
        name, {text: {d: Cell(d / 4, 1.0, 3, d / 5) for d in (10, 50, 200)}}, measure=text
    ),
    "differences": lambda name, text: differences(
        name,
        {
            text: {text: PairedTest(3, 2.0, 0.5, 0.01, 1.0, 3.0)},
            "HSUN": {"ZSL": PairedTest(1, -1.0)},
        },
        measure=text,
        versus=text,
    ),
    "usage": lambda name, text: usage(name, {text: 5.0, "b": 3.0}, {"b": 1.0}, names=(text, "MSD")),
    "senses": some_senses,
    "reliability": lambda name, text: reliability(name, {text: BINS, "new": BINS}),
}
each_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)


def all_text(svg: str) -> str:
    return "\n".join(ET.fromstring(svg).itertext())


@each_plot
def test_a_plot_is_described_and_holds_no_style_or_script(
    plot: Callable[[str, str], str],
) -> None:
    root = ET.fromstring(plot("some-plot", "moon"))
    assert root.tag == f"{SVG}svg"
    assert "moon" in (root.get("aria-label") or "")
    tags = {child.tag for child in root.iter()}
    assert tags.isdisjoint({f"{SVG}style", f"{SVG}script"})


@each_plot
def test_ids_of_a_plot_are_its_own(plot: Callable[[str, str], str]) -> None:
    svg = plot("some-plot", "moon")
    ids = re.findall(r'\sid="([^"]+)"', svg)
    assert len(ids) == len(set(ids))
    assert all(identifier.startswith("some-plot-") for identifier in ids)
    references = re.findall(r'(?:href="|url\()#([^")]+)', svg)
    assert set(ids) == set(references)


@each_plot
def test_colours_of_a_plot_follow_the_page(plot: Callable[[str, str], str]) -> None:
    svg = plot("some-plot", "moon")
    assert "var(--ink, #1f2328)" in svg or "var(--soft, #5f6670)" in svg
    without_references = re.sub(r'(href="|url\()#[^")]*', "", svg)
    fixed_colours = re.findall(r"(?<!, )#[0-9a-f]{6}\b", without_references)
    assert not fixed_colours


@each_plot
def test_hostile_text_is_shown_and_settings_change_nothing(plot: Callable[[str, str], str]) -> None:
    import matplotlib

    first = plot("p", HOSTILE)
    assert "<script" not in first
    assert HOSTILE in all_text(first)
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": True}):
        assert plot("p", HOSTILE) == first
    assert not re.search(r"20\d\d-\d\d-\d\d|Matplotlib", first)


def test_bars_and_differences_describe_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # no global state
    text = all_text(PLOTS["bars"]("p", "polyseme"))
    assert "polyseme, Training: 50.00 ± 1.00 (48.00 ± 0.40)" in text
    assert "published" in text
    for interval, colour in (((1.0, 3.0), "--m0"), ((-3.0, -1.0), "--m1"), ((-1, 2.0), "--soft")):
        test = PairedTest(3, sum(interval) / 2, 0.5, 0.01, *interval)
        tests = {"HSUN": {"ours": test, "left out": PairedTest(0)}}
        svg = differences("p", tests, measure="E-MAP", versus="COSTA")
        (mark,) = (
            group
            for group in ET.fromstring(svg).iter(f"{SVG}g")
            if (group.findtext(f"{SVG}title") or "").startswith("HSUN, ours")
        )
        assert colour in ET.tostring(mark, encoding="unicode")
        assert "left out" not in svg
    assert "+0.50 [\u22121.00, +2.00]" in all_text(svg)


def test_bins_of_few_labels_are_left_out() -> None:
    text = all_text(reliability("one", {"seen labels": BINS}))
    assert "seen labels: 50 labels given 40.0 %, 30.0 % true" in text
    assert "given 90.0 %" not in text


def test_most_concepts_of_the_background_are_left_out() -> None:
    root = ET.fromstring(some_senses("p"))
    counts = []
    for group in root.iter(f"{SVG}g"):
        marks = group.findall(f"{SVG}use")
        counts.append(len(marks))
    *_, second_sense, first_sense, background = sorted(counts)
    assert second_sense == 4
    assert first_sense == 5
    assert 600 <= background <= 1200


def test_usage_correlation_counts_absent_labels_as_never_used() -> None:
    first = {"a": 3.0, "b": 2.0, "c": 1.0}
    second = {"a": 6.0, "b": 1.0, "x": 9.0}
    expected = np.corrcoef([3, 2, 1], [6, 1, 0])[0, 1]
    assert usage_correlation(first, second) == pytest.approx(expected)
    assert usage_correlation(first, {}) is None
    assert "no correlation" in usage("p", first, {}, names=("A", "B"))


def a_record(**changes: Any) -> dict[str, Any]:
    return {
        **{"setting": "hsun", "method": "polyseme", "trial": 0, "version": "0.1.0"},
        **{"data": {"hsun": "aa"}, "stand_in": {"hsun": None}, "sample": False},
        **{"as_published": {"hsun": False}, "seconds": 90.0, "parts": {"embedding": 60.0}},
        **{"finished": "2026-11-15T12:00:00Z", "libraries": {"numpy": "2.4.6"}},
        **changes,
    }


def test_facts_are_gathered_whatever_the_order() -> None:
    records = [
        a_record(),
        a_record(method="COSTA", seconds=120.0, finished="2026-11-16T12:00:00Z"),
        a_record(setting="msd", data={"msd": "bb"}, stand_in={"msd": "MagTag5K"}, sample=True),
    ]
    options: dict[str, Any] = {"summary": "", "command": "", "titles": {"msd": "MSD"}}
    facts = facts_of(records, **options)
    assert facts == facts_of(records[::-1], **options)
    assert facts.data == (
        ("hsun", "itself, other files", "aa"),
        ("MSD", "tiny sample, stand-in for MagTag5K", "bb"),
    )
    # 30 + 60 of their own, 60 shared by the two, and 90 of the third
    assert facts.numbers[-1] == ("4.0 min", "of computing")
    assert facts.numbers[1:3] == (("2", "methods"), ("3", "runs"))
    text = " ".join(facts.warnings)
    for words in ("MSD stands in for MagTag5K", "tiny sample", "hsun: other files"):
        assert words in text
    assert ("runs finished", "2026-11-15T12:00:00Z to 2026-11-16T12:00:00Z") in facts.versions
    mixed = facts_of([a_record(), a_record(version="0.2.0", data={"hsun": "bb"})], **options)
    assert mixed.warnings[1:] == (
        "Runs of several versions of polyseme are mixed: 0.1.0, 0.2.0.",
        "Runs on several states of the dataset hsun are mixed.",
    )


def written(folder: Path, text: str = "moon") -> tuple[str, str]:
    """Write a report whose every text holds some words; give page and Markdown."""
    table = Table(
        "fig9-table",
        f"title {text}",
        ("method", f"column {text}", "ZSL"),
        (
            ("polyseme", text, Cell(57.874, 0.16, 3, 56.06, 0.16, best=True)),
            (text, text, Cell(20.0, None, 1, mark=BELOW)),
        ),
        notes=(f"table note {text}",),
        command="polyseme reproduce fig9",
    )
    figure = Figure(PLOTS["bars"]("fig9-bars", text), f"caption {text}")
    words = f"First {text}. Second with `code`."
    sections = [
        Section("fig9", f"Fig. 9 {text}", words, (table,), (figure,)),
        Section("fig1", "Fig. 1", figures=(Figure(some_senses("fig1-chair")),)),
    ]
    facts = Facts(
        f"Summary {text}.",
        "polyseme reproduce all",
        (("12", f"runs {text}"),),
        ((f"MSD {text}", f"stand-in for MagTag5K {text}", "ab" * 32),),
        (("polyseme", f"0.1.0 {text}"),),
        (f"alert {text}",),
    )
    write_report(folder, sections, title=f"Report {text}", facts=facts)
    return (folder / "report.html").read_text("utf-8"), (folder / "README.md").read_text("utf-8")


def test_the_page_shows_everything_and_loads_nothing_from_outside(tmp_path: Path) -> None:
    page, _ = written(tmp_path)
    parsed = Parsed(page)
    assert parsed.open == []
    for name in ("src", "srcset", "poster", "data", "action", "background"):
        assert parsed.values(name) == []
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    for target in parsed.values("href"):
        assert target == "data:," or target.removeprefix("#") in ids
    assert "script" not in {tag for tag, _ in parsed.elements}
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert {"summary", "fig9", "fig1", "table-fig9-table"} <= {*ids}
    text = " ".join("".join(parsed.text).split())
    for words in (
        *("Summary moon.", "12runs moon", "alert moon", "polyseme reproduce all"),
        *("MSD moonstand-in for MagTag5K moon", "ab" * 32, "polyseme0.1.0 moon"),
        *("First moon.", "title moon", "57.87 ± 0.16(56.06 ± 0.16)", "[n = 1]"),
        *("▼ (significantly below)", "table note moon", "caption moon"),
        *("polyseme reproduce fig9", "Mean ± standard error over 3 trials"),
    ):
        assert words in text, words


def test_tables_and_plots_lie_beside_the_markdown(tmp_path: Path) -> None:
    page, text = written(tmp_path)
    assert "> - alert moon" in text
    assert "Second with `code`." in text
    for target in re.findall(r"\]\(([^)]+)\)", text):
        ET.fromstring((tmp_path / target).read_bytes())
    assert (tmp_path / "tables" / "fig9-table.csv").read_text("utf-8").startswith("table,method")
    assert written(tmp_path) == (page, text)


def test_a_report_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, *_ = written(tmp_path)
    files = sorted(tmp_path.rglob("*"))

    def fail(number: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        written(tmp_path, "sun")
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == files
    assert (tmp_path / "report.html").read_text("utf-8") == page


def test_hostile_text_is_escaped_everywhere(tmp_path: Path) -> None:
    page, markdown = written(tmp_path, HOSTILE)
    parsed = Parsed(page)
    assert "script" not in {tag for tag, _ in parsed.elements}
    text = "".join(parsed.text)
    for before in ("Report", "Summary", "alert", "runs", "First", "title", "column", "table note"):
        assert f"{before} {HOSTILE}" in text, before
    assert not re.search(r"(?<!\\)<script", markdown)
