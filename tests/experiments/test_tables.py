from __future__ import annotations

import csv
import io
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from polyseme._validation import InputError
from polyseme_experiments.rendering.cells import Cell, Table, cell_text, legend, value_text
from polyseme_experiments.rendering.comparisons import (
    ABOVE,
    BELOW,
    compare_all,
    holm,
    mean_and_error,
    paired_test,
)
from polyseme_experiments.rendering.tables import to_csv, to_markdown, to_records

HOSTILE = '=<b>|*x*|`y`</b> "&amp;" \\_[z](u)'
FULL = Cell(57.874, 0.162, 3, 56.06, 0.16)


def a_table(method: str = "tuned COSTA") -> Table:
    return Table(
        name="fig9",
        title="Fig. 9: HSUN",
        header=("method", "d", "Training", "ZSL[^2]"),
        rows=(
            ("polyseme", 200, FULL, Cell(56.0, 0.1, 3, best=True)),
            (method + "[^1]", 10, Cell(20.123456, 0.5, 2, 23.18, mark=BELOW), None),
            ("popularity", 10, Cell(None, None, 0), Cell(7.0, None, 1, mark=ABOVE)),
        ),
        notes=("tuned by us", "columns of seen and unseen labels"),
        command="polyseme reproduce fig9 --trials 3",
    )


# ---------------------------------------------------------------------- statistics


def test_mean_and_error_by_hand() -> None:
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert mean == pytest.approx(3.0)
    assert error == pytest.approx(math.sqrt((4 + 1 + 9) / 2) / math.sqrt(3))


@pytest.mark.parametrize(
    ("values", "n"), [([4.0], 1), ([4.0, math.nan], 1), ([None, 4.0, None], 1), ([4.0, 4.0], 2)]
)
def test_mean_and_error_leave_out_what_was_not_measured(values: list[float | None], n: int) -> None:
    mean, error = mean_and_error(values)
    assert mean == 4.0
    assert error == (None if n == 1 else 0.0)


def test_no_value_has_no_mean() -> None:
    mean, error = mean_and_error([None])
    assert math.isnan(mean)
    assert error is None
    assert Cell.of([None, math.nan]) == Cell(None, None, 0)


def test_a_paired_test_by_hand() -> None:
    found = paired_test([3.0, 5.0, 7.0], [1.0, 4.0, 4.0])  # differences 2, 1, 3
    assert found["n"] == 3
    assert found["difference"] == pytest.approx(2.0)
    assert found["standard_error"] == pytest.approx(1 / math.sqrt(3))
    assert found["t"] == pytest.approx(2 * math.sqrt(3))
    # With two degrees of freedom the distribution has a closed form.
    t = 2 * math.sqrt(3)
    assert found["p"] == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert found["high"] == pytest.approx(2.0 + 4.302652729911275 / math.sqrt(3))
    assert found["low"] == pytest.approx(2.0 - 4.302652729911275 / math.sqrt(3))


@pytest.mark.parametrize("seed", range(5))
def test_a_paired_test_agrees_with_scipy(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ours = generator.normal(50, 3, size=4 + seed)
    theirs = ours - generator.normal(1, 2, size=4 + seed)
    found = paired_test(ours.tolist(), theirs.tolist())
    expected = stats.ttest_rel(ours, theirs)
    interval = expected.confidence_interval(0.95)
    assert found["t"] == pytest.approx(expected.statistic)
    assert found["p"] == pytest.approx(expected.pvalue)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high))


def test_paired_tests_of_too_few_pairs_are_defined() -> None:
    rest = dict.fromkeys(("standard_error", "t", "p", "low", "high"))
    assert paired_test([], []) == {"n": 0, "difference": None, **rest}
    assert paired_test([2.0], [1.5]) == {"n": 1, "difference": 0.5, **rest}
    assert paired_test([2.0, None, 3.0], [1.5, 1.0, math.nan])["n"] == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("gap", "t", "p"), [(0.0, 0.0, 1.0), (0.1, None, 0.0), (-2.0, None, 0.0)])
def test_paired_tests_without_spread_are_defined(gap: float, t: float | None, p: float) -> None:
    theirs = [0.1, 0.7, 31.3]
    found = paired_test([value + gap for value in theirs], theirs)
    assert (found["t"], found["p"]) == (t, p)
    assert found["low"] == found["high"] == pytest.approx(gap)


def test_a_paired_test_of_different_trials_is_refused() -> None:
    with pytest.raises(InputError, match="`ours` has 2 trials but `theirs` has 1"):
        paired_test([1.0, 2.0], [1.0])


def test_holm_by_hand() -> None:
    # sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 -> the last is lifted to the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_agrees_with_its_definition(p_values: list[float]) -> None:
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    expected = [0.0] * len(p_values)
    running = 0.0
    for rank, at in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[at]))
        expected[at] = running
    assert holm(p_values) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [[0.5, 1.2], [-0.1], [math.nan]])
def test_holm_refuses_what_is_no_probability(wrong: list[float]) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        holm(wrong)


def test_comparisons_are_corrected_together_and_marked() -> None:
    ours = [50.0, 51.0, 52.5, 50.5]
    found = compare_all(
        {
            "worse": (ours, [40.0, 41.5, 42.0, 40.2]),
            "better": (ours, [60.0, 61.2, 62.0, 60.1]),
            "alike": (ours, [50.2, 50.8, 52.6, 50.3]),
            "once": ([50.0], [1.0]),
        }
    )
    assert {key: one["mark"] for key, one in found.items()} == {
        "worse": BELOW,
        "better": ABOVE,
        "alike": "",
        "once": "",
    }
    assert found["once"]["p_holm"] is None
    raw = [found[key]["p"] for key in ("worse", "better", "alike")]
    adjusted = [found[key]["p_holm"] for key in ("worse", "better", "alike")]
    assert adjusted == pytest.approx(holm([p for p in raw if p is not None]))


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (FULL, "57.87 ± 0.16 (56.06 ± 0.16)"),
        (Cell(57.874, None, 1, 56.06), "57.87 (56.06)"),
        (Cell(57.874, 0.16, 3, mark=BELOW), "57.87 ± 0.16 ▼"),
        (Cell(57.874, 0.16, 2), "57.87 ± 0.16 [n = 2]"),
        (Cell(None, None, 0, 56.06), "\u2013 (56.06)"),
        (Cell(math.nan, None, 0), "\u2013"),
        (None, "\u2013"),
        (math.nan, "\u2013"),
        (4367, "4,367"),
        (0.456, "0.46"),
        ("text", "text"),
    ],
)
def test_values_are_written_in_one_way(value: str | int | float | Cell | None, text: str) -> None:
    common = None if isinstance(value, Cell) and value.n == 1 else 3
    assert value_text(value, common) == text


def test_the_legend_says_only_what_applies() -> None:
    assert legend(Table("a", "", ("x",), ((1,),))) == ""
    assert legend(Table("a", "", ("x",), ((Cell(1.0, None, 1),),))) == "From 1 trial."
    told = legend(a_table())
    for words in ("over 3 trials where no other n", "published", "below polyseme", "Bold"):
        assert words in told


def test_the_common_number_of_trials_is_that_of_most_cells() -> None:
    assert a_table().common_n() == 3
    assert Table("a", "", ("x",), ((1,),)).common_n() is None


def test_tables_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(InputError, match="Row 2 of table 'a' has 1 values but the header has 2"):
        Table("a", "", ("x", "y"), ((1, 2), (1,)))
    with pytest.raises(InputError, match="has a name twice"):
        Table("a", "", ("x", "x"), ())


# ---------------------------------------------------------------------- Markdown


def parse_markdown(text: str) -> list[list[str]]:
    """Read a GitHub table back: cells at unescaped bars, then unescaped."""
    rows = []
    for line in text.splitlines():
        if line.startswith("| ") and not re.fullmatch(r"[| :-]+", line):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            rows.append([re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cells])
    return rows


def test_markdown_holds_every_value_note_and_the_command() -> None:
    text = to_markdown(a_table())
    header, *rows = parse_markdown(text)
    assert header == ["method", "d", "Training", "ZSL<sup>2</sup>"]
    assert rows[0] == ["polyseme", "200", "57.87 ± 0.16 (56.06 ± 0.16)", "**56.00 ± 0.10**"]
    assert rows[1][0] == "tuned COSTA<sup>1</sup>"
    assert rows[1][2] == "20.12 ± 0.50 ▼ [n = 2] (23.18)"
    assert rows[2][3] == "7.00 ▲ [n = 1]"
    assert "\n1. tuned by us\n2. columns of" in text
    assert text.endswith("Made by `polyseme reproduce fig9 --trials 3`\n")
    assert "| --- | ---: | ---: | ---: |" in text


def test_hostile_names_do_not_break_markdown() -> None:
    text = to_markdown(a_table(HOSTILE))
    rows = parse_markdown(text)
    assert {len(row) for row in rows} == {4}
    assert rows[2][0] == HOSTILE.replace("&", "&amp;") + "<sup>1</sup>"
    assert not re.search(r"(?<!\\)<b", text)


def test_a_best_cell_is_bold_without_the_published_value() -> None:
    table = Table("a", "", ("x",), ((Cell(1.0, 0.5, 3, 2.0, best=True),),))
    assert "| **1.00 ± 0.50** (2.00) |" in to_markdown(table)


def test_commands_with_backticks_stay_code() -> None:
    text = to_markdown(Table("a", "", ("x",), ((1,),), command="echo ``x``"))
    assert text.endswith("Made by ``` echo ``x`` ```\n")


def test_a_reference_to_a_note_that_is_not_there_is_text() -> None:
    table = Table("a", "", ("x[^2]",), ((1,),), notes=("one",))
    assert table.split_note("x[^2]") == ("x[^2]", None)
    assert table.split_note("x[^1]") == ("x", 1)


# ---------------------------------------------------------------------- records and CSV


def test_csv_has_one_line_per_measured_cell_and_reads_back_exactly() -> None:
    frame = pd.read_csv(io.StringIO(to_csv(a_table())))
    assert list(frame.columns) == [
        *("table", "method", "d", "column", "mean"),
        *("standard_error", "n", "published", "published_error", "mark", "caution"),
    ]
    assert len(frame) == 5
    assert set(frame["table"]) == {"fig9"}
    wide = frame.pivot(index="method", columns="column", values="mean")
    assert wide.loc["tuned COSTA", "Training"] == 20.123456
    assert wide.loc["polyseme", "ZSL"] == 56.0
    assert math.isnan(wide.loc["popularity", "Training"])
    one = frame[(frame["method"] == "polyseme") & (frame["column"] == "Training")].iloc[0]
    assert (one["standard_error"], one["n"], one["published"], one["published_error"]) == (
        0.162,
        3,
        56.06,
        0.16,
    )


def test_a_caution_stands_in_every_line() -> None:
    table = Table("fig8", "", ("m", "x"), (("one", Cell(1.0, None, 1)),), caution="sample")
    assert [one["caution"] for one in to_records(table)] == ["sample"]
    assert to_csv(table).splitlines()[1].endswith(",sample")


def test_hostile_names_come_back_from_csv() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(a_table(HOSTILE + "\n2")))))
    assert [line["method"] for line in lines][2] == HOSTILE + "\n2"


def test_a_table_without_measured_cells_is_written_row_by_row() -> None:
    table = Table("table1", "", ("set", "n"), (("train", 3057), ("test", None)))
    assert to_csv(table) == "table,set,n_,caution\ntable1,train,3057,\ntable1,test,,\n"
    assert to_csv(Table("empty", "", ("set",), ())) == "table,set,caution\n"


def test_plain_numbers_in_a_measured_column_are_means() -> None:
    table = Table("a", "", ("m", "x"), (("one", Cell(1.0, None, 1)), ("two", 2.5)))
    assert [(one["m"], one["mean"], one["n"]) for one in to_records(table)] == [
        ("one", 1.0, 1),
        ("two", 2.5, None),
    ]


def test_wide_records_have_cells_as_printed_and_the_same_keys() -> None:
    records = to_records(a_table(), "wide")
    assert {tuple(record) for record in records} == {("method", "d", "Training", "ZSL")}
    assert records[0]["Training"] == cell_text(FULL)
    assert records[1] == {
        "method": "tuned COSTA",
        "d": 10,
        "Training": "20.12 ± 0.50 ▼ [n = 2] (23.18)",
        "ZSL": None,
    }


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(InputError, match="`form` of `to_records` must be one of"):
        to_records(a_table(), "tall")  # type: ignore[arg-type]  # what is tested
