"""The committed results: made of their records, and the README's figures of them."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.figures.base import FORMER, Results
from polyseme_experiments.reproduce import reproduce
from polyseme_experiments.sampling import RunConfig

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SETTINGS = {"HSUN": "hsun", "Corel5K": "corel5k", "MSD subset": "msd-subset"}
HEADLINE = SETTINGS | {"Emoji": "emoji"}
COLUMNS = ("E-MAP ZSL", "E-MAP ZSL only", "C-MAP ZSL", "C-MAP ZSL only")


@pytest.fixture(scope="module")
def made_again(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    shutil.copy(RESULTS / ".polyseme", folder)  # the mark of a folder of results
    shutil.copytree(RESULTS / "records", folder / "records")
    sections = reproduce(["all"], RunConfig(), out=folder, from_records=True)
    return folder, sections


def test_tables_are_those_of_the_records(made_again):
    folder, sections = made_again
    assert [section.name for section in sections] == list(EXPERIMENTS)
    recorded_tables = sorted((RESULTS / "tables").iterdir())
    tables = sorted((folder / "tables").iterdir())
    names = [path.name for path in recorded_tables]
    assert [path.name for path in tables] == names
    for table, recorded_table in zip(tables, recorded_tables, strict=True):
        assert table.read_text() == recorded_table.read_text()
    readme = (folder / "README.md").read_text()
    recorded_readme = (RESULTS / "README.md").read_text()
    assert readme == recorded_readme


def test_tables_of_the_published_training_are_those_of_its_records(tmp_path):
    recorded_folder = RESULTS / "paper"
    shutil.copy(recorded_folder / ".polyseme", tmp_path)
    shutil.copytree(recorded_folder / "records", tmp_path / "records")
    config = RunConfig(preset="paper")
    reproduce(["fig7", "fig9"], config, out=tmp_path, from_records=True)
    for name in ("README.md", "tables/fig7.csv", "tables/fig9.csv"):
        text = (tmp_path / name).read_text()
        expected = (recorded_folder / name).read_text()
        assert text == expected


def test_every_run_was_audited_on_the_published_data():
    for path in (RESULTS / "records").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            assert record["audit"]["passed"]
            assert not record["sample"]
            assert all(record["as_published"].values()), record["data"]


def rows_of_table(name):
    with (RESULTS / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def recorded(setting, method="tuned-costa"):
    path = RESULTS / "records" / f"{setting}.jsonl"
    records = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["method"] == method:
            records.append(record)
    return records


def former(records, column="zsl", measure="E-MAP"):
    """Return the former default's values for some records of tuned COSTA, as if they were ours."""
    renamed = [record | {"method": "default"} for record in records]
    setting = records[0]["setting"]
    results = Results(renamed)
    return results.values(setting, f"{FORMER}default", column, measure)


@pytest.mark.parametrize(("name", "n_trials"), [("default", 10), ("shares", 3)])
def test_the_former_default_has_values_for_every_trial(name, n_trials):
    for setting in get_experiment(name).settings:
        values = former(recorded(setting), "zsl-only", "C-MAP")
        assert len(values) == n_trials
        for value in values:
            assert 0 < value < 100


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 11},
        {"data": {"hsun": "other"}},
    ],
)
def test_the_former_default_has_no_values_for_other_configurations(changes):
    record = recorded("hsun")[0]
    config = record["config"] | changes
    changed_record = record | {"config": config}
    assert former([changed_record]) == [None]


@pytest.mark.parametrize("changes", [{"trial": 1000}, {"setting": "hsun-12"}])
def test_the_former_default_has_no_values_for_other_trials_and_settings(changes):
    record = recorded("hsun")[0]
    assert former([record | changes]) == [None]


def test_the_former_default_has_no_values_for_unknown_measures():
    record = recorded("hsun")[0]
    assert former([record], "zsl", "nothing") == [None]


def test_the_comparison_has_ten_label_splits_of_three_corpora():
    for setting in SETTINGS.values():
        rows = rows_of_table(f"compare-{setting}")
        assert {row["n"] for row in rows} == {"10"}


def test_the_figures_of_the_readme_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (HSUN|Corel5K|MSD subset|Emoji) \| ([^|]*) \| (.*) \|$", readme, re.M)
    assert {corpus for corpus, _, _ in rows} == set(HEADLINE)
    for corpus, method, cells in rows:
        by_default = method in ("polyseme's default", "tuned COSTA")
        experiment = "default" if by_default else "compare"
        text_by_column = {}
        for row in rows_of_table(f"{experiment}-{HEADLINE[corpus]}"):
            if row["method"] == method:
                mean = float(row["mean"])
                error = float(row["standard_error"])
                text_by_column[row["column"]] = f"{mean:.1f} ± {error:.1f}"
        texts = [cell.strip() for cell in cells.split("|")]
        expected = [text_by_column[column] for column in COLUMNS]
        assert texts == expected
