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
from polyseme._validation import InputError
from polyseme_experiments.rendering.cells import Cell, Table
from polyseme_experiments.rendering.comparisons import BELOW
from polyseme_experiments.rendering.facts import DataFact, Facts, facts_of
from polyseme_experiments.rendering.plots import (
    Difference,
    Point,
    bars,
    curves,
    differences,
    points_of,
    senses,
    usage,
    usage_correlation,
)
from polyseme_experiments.rendering.report import (
    Figure,
    Section,
    report_page,
    write_markdown,
    write_report,
    write_tables,
)

HOSTILE = '<script>alert("1")</script>&\'$\\frac{1}{2}$\x00 🎵'
SHOWN = '<script>alert("1")</script>&\'$\\frac{1}{2}$\ufffd 🎵'
SVG = "{http://www.w3.org/2000/svg}"


def some_points(name: str = "polyseme") -> list[Point]:
    return [
        Point(method, column, 50.0 + 3 * place, error, 48.0 if place == 0 else None, 0.4)
        for method, error in ((name, 1.0), ("COSTA", None))
        for place, column in enumerate(("Training", "ZSL"))
    ]


def some_dimensions(name: str = "Training") -> list[Point]:
    return [Point(s, d, d / 4, 1.0, d / 5) for s in (name, "ZSL") for d in (10, 50, 200)]


def some_senses(name: str, label: str = "chair") -> str:
    generator = np.random.default_rng(0)
    return senses(
        name,
        generator.normal(size=(9, 2)),
        [0] * 5 + [1] * 4,
        [(label, "desk"), ()],
        label=label,
        others=generator.normal(size=(5000, 2)),
    )


# Each plot, with a name for its ids and any text for its labels.
PLOTS: dict[str, Callable[[str, str], str]] = {
    "bars": lambda name, text: bars(name, some_points(text), measure=text, title=text),
    "curves": lambda name, text: curves(name, some_dimensions(text), measure=text, title=text),
    "differences": lambda name, text: differences(
        name,
        [Difference(text, text, 2.0, 1.0, 3.0), Difference("HSUN", "ZSL", -1.0)],
        measure=text,
        versus=text,
    ),
    "usage": lambda name, text: usage(
        name, {text: 5.0, "b": 3.0}, {"b": 1.0}, names=(text, "MSD"), title=text
    ),
    "senses": some_senses,
}
each_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)


def all_text(svg: str) -> str:
    return "\n".join(ET.fromstring(svg).itertext())


# ---------------------------------------------------------------------- plots


@each_plot
def test_a_plot_is_well_formed_and_described(plot: Callable[[str, str], str]) -> None:
    root = ET.fromstring(plot("p", "moon"))
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert "moon" in (root.get("aria-label") or "")
    assert {child.tag for child in root.iter()}.isdisjoint({f"{SVG}style", f"{SVG}script"})


@each_plot
def test_ids_of_a_plot_are_unique_begin_with_its_name_and_are_all_used(
    plot: Callable[[str, str], str],
) -> None:
    svg = plot("some-plot", "moon")
    ids = re.findall(r'\sid="([^"]+)"', svg)
    used = re.findall(r'(?:href="|url\()#([^")]+)', svg)
    assert len(ids) == len(set(ids))
    assert set(ids) == set(used)
    assert all(one.startswith("some-plot-") for one in ids)


@each_plot
def test_hostile_text_is_shown_as_it_is(plot: Callable[[str, str], str]) -> None:
    svg = plot("p", HOSTILE)
    assert "<script" not in svg
    assert SHOWN in all_text(svg)


@each_plot
def test_a_plot_is_the_same_every_time_whatever_the_users_settings(
    plot: Callable[[str, str], str],
) -> None:
    import matplotlib

    first = plot("p", "moon")
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": True}):
        assert plot("p", "moon") == first
        assert matplotlib.rcParams["font.size"] == 30
    assert not re.search(r"20\d\d-\d\d-\d\d|Matplotlib", first)


@each_plot
def test_every_colour_follows_the_page(plot: Callable[[str, str], str]) -> None:
    svg = plot("p", "moon")
    assert "var(--ink, #1f2328)" in svg or "var(--soft, #5f6670)" in svg
    assert not re.findall(r"(?<!, )#[0-9a-f]{6}\b", re.sub(r'(href="|url\()#[^")]*', "", svg))


def test_drawing_needs_no_global_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert bars("p", some_points(), measure="E-MAP").startswith("<svg")


def test_published_values_are_drawn_and_told() -> None:
    with_published = bars("p", some_points(), measure="E-MAP")
    without = bars("p", [Point("a", "b", 1.0)], measure="E-MAP")
    assert "published" in all_text(with_published)
    assert "published" not in all_text(without)
    assert "polyseme, Training: 50.00 ± 1.00 (48.00 ± 0.40)" in all_text(with_published)


def test_differences_are_coloured_by_sign_and_written_with_their_interval() -> None:
    lines = [
        Difference("HSUN", "better", 2.0, 1.0, 3.0),
        Difference("HSUN", "worse", -2.0, -3.0, -1.0),
        Difference("HSUN", "unclear", 0.5, -1.0, 2.0),
        Difference("HSUN", "left out", None),
    ]
    for line, colour in zip(lines[:3], ("--m0", "--m1", "--soft"), strict=True):
        svg = differences("p", [line], measure="E-MAP", versus="COSTA")
        (mark,) = (
            group
            for group in ET.fromstring(svg).iter(f"{SVG}g")
            if (group.findtext(f"{SVG}title") or "").startswith(f"HSUN, {line.label}")
        )
        assert colour in ET.tostring(mark, encoding="unicode")
    text = all_text(differences("p", lines, measure="E-MAP", versus="COSTA"))
    assert "\u22122.00 [\u22123.00, \u22121.00]" in text
    assert "left out" not in text


def test_usage_correlation_counts_absent_labels_as_never_used() -> None:
    first, second = {"a": 3.0, "b": 2.0, "c": 1.0}, {"a": 6.0, "b": 1.0, "x": 9.0}
    expected = np.corrcoef([3, 2, 1], [6, 1, 0])[0, 1]
    assert usage_correlation(first, second) == pytest.approx(expected)
    assert f"r = {expected:.2f} over 3 labels" in all_text(
        usage("p", first, second, names=("A", "B"))
    )
    assert usage_correlation(first, {}) is None
    assert "no correlation" in usage("p", first, {}, names=("A", "B"))


def test_senses_draw_every_concept_but_thin_the_others_out() -> None:
    root = ET.fromstring(some_senses("p"))
    counts = sorted(len(list(group.findall(f"{SVG}use"))) for group in root.iter(f"{SVG}g"))
    assert counts[-3] == 4
    assert counts[-2] == 5
    assert 600 <= counts[-1] <= 1200


def test_points_are_taken_from_a_table() -> None:
    table = Table(
        "t",
        "",
        ("method", "corpus", "ZSL"),
        (
            ("polyseme[^1]", "hsun", Cell(1.0, 0.1, 3, 2.0, 0.2)),
            ("COSTA", "corel5k", Cell(3.0, None, 1)),
        ),
        notes=("a note",),
    )
    assert points_of(table, "method", where={"corpus": "hsun"}) == [
        Point("polyseme", "ZSL", 1.0, 0.1, 2.0, 0.2)
    ]
    assert len(points_of(table, "method", ["ZSL"])) == 2
    with pytest.raises(InputError, match="no column 'label'"):
        points_of(table, "label")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bars("Bad Name", some_points(), measure="m"), "a small letter first"),
        (lambda: bars("p", [], measure="m"), "no values to show"),
        (lambda: bars("p", [Point("a", "b", None)], measure="m"), "no values to show"),
        (lambda: bars("p", [Point("a", "b", 1.0)] * 2, measure="m"), "two values for one place"),
        (lambda: differences("p", [], measure="m", versus="v"), "no values to show"),
        (lambda: usage("p", {}, {}, names=("a", "b")), "no values to show"),
        (lambda: senses("p", [[0, 0]], [1], [("a",)], label="x"), "one company per sense"),
    ],
)
def test_plots_of_nothing_are_refused(make: Callable[[], str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# ---------------------------------------------------------------------- facts


def a_record(**changes: Any) -> dict[str, Any]:
    return {
        "setting": "hsun",
        "method": "polyseme",
        "trial": 0,
        "version": "0.1.0",
        "data": {"hsun": "aa"},
        "stand_in": {"hsun": None},
        "sample": False,
        "seconds": 90.0,
        "parts": {"embedding": 60.0},
        "finished": "2026-11-15T12:00:00Z",
        "libraries": {"numpy": "2.4.6"},
        **changes,
    }


def test_facts_are_gathered_whatever_the_order() -> None:
    records = [
        a_record(),
        a_record(method="COSTA", seconds=120.0, finished="2026-11-16T12:00:00Z"),
        a_record(setting="msd", data={"msd": "bb"}, stand_in={"msd": "MagTag5K"}, sample=True),
    ]
    facts = facts_of(records, titles={"msd": "MSD"}, as_published={"hsun": False})
    assert facts == facts_of(records[::-1], titles={"msd": "MSD"}, as_published={"hsun": False})
    assert facts.data == (
        DataFact("hsun", "aa", as_published=False),
        DataFact("msd", "bb", "MSD", "MagTag5K", True),
    )
    # 30 + 60 of their own, 60 shared by the two, and 90 of the third
    assert facts.numbers[-1] == ("4.0 min", "of computing")
    assert facts.numbers[1:3] == (("2", "methods"), ("3", "runs"))
    told = " ".join(facts.warnings())
    for words in ("MSD stands in for MagTag5K", "tiny sample", "hsun: other files"):
        assert words in told
    assert ("runs finished", "2026-11-15T12:00:00Z to 2026-11-16T12:00:00Z") in facts.versions


def test_mixed_versions_and_data_are_told() -> None:
    facts = facts_of([a_record(), a_record(version="0.2.0", data={"hsun": "bb"})])
    assert facts.alerts == (
        "Runs of several versions of polyseme are mixed: 0.1.0, 0.2.0.",
        "Runs on several states of the dataset hsun are mixed.",
    )
    assert facts_of([]).alerts == ()


# ---------------------------------------------------------------------- the page


def a_report(text: str = "moon") -> tuple[list[Section], Facts]:
    table = Table(
        "fig9-table",
        f"title {text}",
        ("method", f"column {text}", "ZSL[^1]"),
        (
            ("polyseme", text, Cell(57.874, 0.16, 3, 56.06, 0.16, best=True)),
            (text, text, Cell(20.0, None, 1, mark=BELOW)),
        ),
        notes=(f"table note {text}",),
        command=f"polyseme reproduce {text}",
    )
    sizes = Table("sizes", "Sizes", ("set", "n"), (("train", 3057), ("train", None)))
    sections = [
        Section(
            "fig9",
            f"Fig. 9 {text}",
            f"First {text}.\n\nSecond with `code`.",
            (table, sizes),
            (Figure(bars("fig9-bars", some_points(), measure="E-MAP"), f"caption {text}"),),
            (f"section note {text}",),
        ),
        Section("fig1", "Fig. 1", figures=(Figure(some_senses("fig1-chair"), name="chair"),)),
        Section("empty", "Nothing yet"),
    ]
    facts = Facts(
        f"Summary {text}.",
        (("12", f"runs {text}"),),
        (f"polyseme reproduce all {text}",),
        (DataFact("msd", "ab" * 32, f"MSD {text}", f"MagTag5K {text}"),),
        (("polyseme", f"0.1.0 {text}"),),
        (f"alert {text}",),
    )
    return sections, facts


def page_of(text: str = "moon") -> str:
    sections, facts = a_report(text)
    return report_page(sections, title=f"Report {text}", facts=facts)


def test_the_page_loads_nothing_from_outside() -> None:
    page = page_of()
    parsed = Parsed(page)
    assert parsed.open == []
    for name in ("src", "srcset", "poster", "data", "action", "background"):
        assert parsed.values(name) == []
    for target in [*parsed.values("href"), *parsed.values("xlink:href")]:
        assert target.startswith(("#", "data:"))
    tags = {tag for tag, _ in parsed.elements}
    assert not {"script", "iframe", "object", "embed", "audio", "video", "base"} & tags
    assert "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    assert "default-src 'none'" in page


def test_every_section_table_plot_and_note_is_on_the_page_and_linked() -> None:
    parsed = Parsed(page_of())
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    for target in parsed.values("href"):
        if target.startswith("#"):
            assert target[1:] in ids
    for name in ("summary", "fig9", "fig1", "empty"):
        assert f"#{name}" in parsed.values("href")
    assert {"table-fig9-table", "table-sizes", "fig9-note-1", "table-fig9-table-note-1"} <= {*ids}
    assert [tag for tag, _ in parsed.elements].count("svg") == 2
    text = " ".join("".join(parsed.text).split())
    for words in (
        *("Summary moon.", "12runs moon", "alert moon", "polyseme reproduce all moon"),
        *("MSD moon stands in for MagTag5K moon", "ab" * 32, "polyseme0.1.0 moon"),
        *("First moon.", "title moon", "57.87 ± 0.16(56.06 ± 0.16)", "[n = 1]", "3,057"),
        *("▼ (significantly below)", "table note moon", "section note moon", "caption moon"),
        *("polyseme reproduce moon", "Mean ± standard error over 3 trials"),
    ):
        assert words in text, words


def test_everything_on_the_page_is_escaped() -> None:
    page = page_of(HOSTILE)
    parsed = Parsed(page)
    assert "script" not in {tag for tag, _ in parsed.elements}
    assert "\x00" not in page
    text = "".join(parsed.text)
    for before in ("Report", "Summary", "alert", "runs", "First", "title", "column", "table note"):
        assert f"{before} {SHOWN}" in text, before


def test_the_page_is_the_same_every_time() -> None:
    assert page_of() == page_of()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ([Section("a", ""), Section("a", "")], "'a' is used twice"),
        ([Section("summary", "")], "'summary' is used twice"),
        ([Section("A b", "")], "a small letter first; got 'A b'"),
        ([Section("a", "", tables=(Table("../x", "", ("y",), ()),))], "got '../x'"),
        (
            [Section("a", "", tables=(Table("x", "", ("y",), ()), Table("x", "", ("y",), ())))],
            "table name 'x' is used twice",
        ),
        (
            [Section(name, "", figures=(Figure('<svg><g id="p-0"/></svg>'),)) for name in "ab"],
            "id 'p-0' is used twice",
        ),
    ],
)
def test_names_that_clash_are_refused(sections: list[Section], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        report_page(sections, title="", facts=Facts())


# ---------------------------------------------------------------------- files


def test_files_are_written_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections, facts = a_report()
    target = tmp_path / "new" / "report.html"
    write_report(target, sections, title="Report", facts=facts)
    before = target.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]

    def fail(self: Path, other: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(target, [], title="Other", facts=Facts())
    assert target.read_bytes() == before
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; add a file name"):
        write_report(tmp_path, [], title="", facts=Facts())


def test_markdown_holds_the_same_and_its_plots_lie_beside_it(tmp_path: Path) -> None:
    sections, facts = a_report()
    write_markdown(tmp_path / "report.md", sections, title="Report", facts=facts)
    text = (tmp_path / "report.md").read_text("utf-8")
    for words in (
        *("# Report\n", "> - alert moon", "    polyseme reproduce all moon\n", "ab" * 32),
        *("> - MSD moon stands in for", "## Fig. 9 moon", "Second with `code`.", "## Nothing yet"),
        *("**57.87 ± 0.16** (56.06 ± 0.16)", "1. table note moon", "- section note moon"),
        *("![caption moon](figures/fig9-1.svg)", "![Fig. 1](figures/chair.svg)"),
    ):
        assert words in text, words
    for target in re.findall(r"\]\(([^)]+)\)", text):
        ET.fromstring((tmp_path / target).read_bytes())


def test_hostile_text_does_not_break_markdown(tmp_path: Path) -> None:
    sections, facts = a_report(HOSTILE)
    write_markdown(tmp_path / "report.md", sections, title=HOSTILE, facts=facts)
    text = (tmp_path / "report.md").read_text("utf-8")
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # commands are code
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"(?<!\\)<script", text)


def test_tables_are_written_as_csv(tmp_path: Path) -> None:
    sections, _ = a_report()
    paths = write_tables(tmp_path / "tables", sections[0].tables)
    assert [path.name for path in paths] == ["fig9-table.csv", "sizes.csv"]
    written = "table,set,n_,caution\nsizes,train,3057,\nsizes,train,,\n"
    assert paths[1].read_text("utf-8") == written
    with pytest.raises(InputError, match="table name 'sizes' is used twice"):
        write_tables(tmp_path, [sections[0].tables[1]] * 2)
