"""Statistics over trials, and tables as text, Markdown, CSV and records."""

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

from polyseme.base.validation import InputError
from polyseme_experiments.report.page import render
from polyseme_experiments.report.statistics import (
    ABOVE,
    BELOW,
    PairedTest,
    compare_all,
    holm,
    mean_and_error,
    paired_test,
)
from polyseme_experiments.report.tables import (
    Cell,
    Table,
    legend,
    long_records,
    to_csv,
    value_text,
    wide_records,
)

HOSTILE = '=<b>|*x*|`y`</b> "&amp;" \\_[z](u)'


def a_table(method: str = "tuned COSTA") -> Table:
    return Table(
        name="fig9",
        title="Fig. 9: HSUN",
        header=("method", "d", "Training", "ZSL"),
        rows=(
            ("polyseme", 200, Cell(57.874, 0.162, 3, 56.06, 0.16), Cell(56.0, 0.1, 3, best=True)),
            (method, 10, Cell(20.123456, 0.5, 2, 23.18, mark=BELOW), None),
            ("popularity", 10, Cell(None, None, 0), Cell(7.0, None, 1, mark=ABOVE)),
        ),
        notes=("tuned by us", "columns of seen and unseen labels"),
        command="polyseme reproduce fig9 --trials 3",
        reference="polyseme",
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_paired_test_agrees_with_scipy(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n = 4 + seed
    ours = generator.normal(50, 3, size=n)
    theirs = ours - generator.normal(1, 2, size=n)
    test = paired_test([*ours, None], [*theirs, 1.0])
    expected = stats.ttest_rel(ours, theirs)
    interval = expected.confidence_interval(0.95)
    assert test.p == pytest.approx(expected.pvalue)
    assert test.low == pytest.approx(interval.low)
    assert test.high == pytest.approx(interval.high)


@pytest.mark.filterwarnings("error")
def test_missing_values_are_left_out_of_means() -> None:
    mean, error = mean_and_error([1.0, None, 2.0, math.nan, 6.0])
    assert mean == pytest.approx(3.0)
    expected_error = stats.sem([1.0, 2.0, 6.0])
    assert error == pytest.approx(expected_error)
    assert mean_and_error([4.0, None]) == (4.0, None)
    assert Cell.of([None, math.nan]) == Cell(None, None, 0)


@pytest.mark.filterwarnings("error")
def test_tests_of_few_pairs_have_no_p_value() -> None:
    assert paired_test([], []) == PairedTest(0)
    assert paired_test([2.0], [1.5]) == PairedTest(1, 0.5)
    with_missing = paired_test([2.0, None, 3.0], [1.5, 1.0, math.nan])
    assert with_missing.n == 1
    with pytest.raises(InputError, match="`ours` has 2 trials but `theirs` has 1"):
        paired_test([1.0, 2.0], [1.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("gap", "p"), [(0.0, 1.0), (0.1, 0.0), (-2.0, 0.0)])
def test_tests_of_equal_differences_are_certain(gap: float, p: float) -> None:
    theirs = [0.1, 0.7, 31.3]
    ours = [value + gap for value in theirs]
    test = paired_test(ours, theirs)
    assert test.p == p
    assert test.low == test.high
    assert test.low == pytest.approx(gap)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_agrees_with_its_definition(p_values: list[float]) -> None:
    n = len(p_values)
    order = np.argsort(p_values, kind="stable")
    expected = [0.0] * n
    largest = 0.0
    for rank, number in enumerate(order):
        corrected = (n - rank) * p_values[number]
        largest = max(largest, min(1.0, corrected))
        expected[number] = largest
    assert holm(p_values) == pytest.approx(expected)


def test_comparisons_are_corrected_together_and_marked() -> None:
    ours = [50.0, 51.0, 52.5, 50.5]
    tests = compare_all(
        {
            "worse": (ours, [40.0, 41.5, 42.0, 40.2]),
            "better": (ours, [60.0, 61.2, 62.0, 60.1]),
            "alike": (ours, [50.2, 50.8, 52.6, 50.3]),
            "once": ([50.0], [1.0]),
        }
    )
    marks = [test.mark for test in tests.values()]
    assert marks == [BELOW, ABOVE, "", ""]
    once = tests.pop("once")
    assert once.p_holm is None
    uncorrected = [test.p or 0.0 for test in tests.values()]
    corrected = [test.p_holm for test in tests.values()]
    assert corrected == holm(uncorrected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Cell(57.874, 0.16, 2, 56.06, mark=BELOW), "57.87 ± 0.16 ▼ [n = 2] (56.06)"),
        (Cell(None, None, 0, 56.06), "\u2013 (56.06)"),
        (Cell(3074.2, 0.3, 3, digits=0), "3,074"),
        (math.nan, "\u2013"),
    ],
)
def test_values_are_written_in_one_way(value: str | int | float | Cell | None, text: str) -> None:
    assert value_text(value, 3) == text


def test_the_legend_says_only_what_applies() -> None:
    assert legend(Table("a", "", ("x",), ((1,),))) == ""
    assert legend(Table("a", "", ("x",), ((Cell(1.0, None, 1),),))) == "From 1 trial."
    text = legend(a_table())
    for words in ("over 3 trials where no other n", "published", "below polyseme", "Bold"):
        assert words in text
    with pytest.raises(InputError, match="must have one value per column"):
        Table("a", "", ("x", "y"), ((1, 2), (1,)))


def test_hostile_text_stays_in_its_cell_of_markdown() -> None:
    text = render("table.md", table=a_table(HOSTILE))
    assert not re.search(r"(?<!\\)<b", text)
    (line,) = [line for line in text.splitlines() if "20.12" in line]
    cells = []
    for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
        cells.append(re.sub(r"\\(.)", r"\1", cell.strip()))
    assert cells == [
        HOSTILE.replace("&", "&amp;"),
        "10",
        "20.12 ± 0.50 ▼ [n = 2] (23.18)",
        "\u2013",
    ]


def test_hostile_text_stays_in_its_cell_of_csv() -> None:
    method = HOSTILE + "\n2"
    text = to_csv(a_table(method))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[2]["method"] == method


def test_csv_has_one_line_per_measured_cell_and_reads_back_exactly() -> None:
    text = to_csv(a_table())
    frame = pd.read_csv(io.StringIO(text))
    assert len(frame) == 5
    wide = frame.pivot(index="method", columns="column", values="mean")
    assert wide.loc["tuned COSTA", "Training"] == 20.123456
    assert math.isnan(wide.loc["popularity", "Training"])


def test_csv_of_plain_values_keeps_their_columns() -> None:
    table = Table("table1", "", ("set", "n"), (("train", 3057), ("test", None)))
    assert to_csv(table) == "table,set,n_,caution\ntable1,train,3057,\ntable1,test,,\n"


def test_records_of_a_table_are_long_or_wide() -> None:
    rows = (("one", Cell(1.0, None, 1)), ("two", 2.5))
    table = Table("a", "", ("m", "x"), rows, caution="sample")
    values = []
    for record in long_records(table):
        values.append((record["m"], record["mean"], record["n"], record["caution"]))
    assert values == [("one", 1.0, 1, "sample"), ("two", 2.5, None, "sample")]

    wide = wide_records(a_table())
    assert wide[1] == {
        "method": "tuned COSTA",
        "d": 10,
        "Training": "20.12 ± 0.50 ▼ [n = 2] (23.18)",
        "ZSL": None,
    }
