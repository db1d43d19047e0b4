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
    shutil.copytree(RESULTS / "records", folder / "records")
    sections = reproduce(["all"], RunConfig(), out=folder, from_records=True)
    return folder, sections


def test_tables_are_those_of_the_records(made_again):
    folder, sections = made_again
    assert [section.name for section in sections] == list(EXPERIMENTS)
    names = sorted(path.name for path in (RESULTS / "tables").iterdir())
    assert names == sorted(path.name for path in (folder / "tables").iterdir())
    for name in names:
        assert (folder / "tables" / name).read_text() == (RESULTS / "tables" / name).read_text()
    assert (folder / "README.md").read_text() == (RESULTS / "README.md").read_text()


def test_tables_of_the_published_training_are_those_of_its_records(tmp_path):
    shutil.copytree(RESULTS / "paper" / "records", tmp_path / "records")
    reproduce(["fig7", "fig9"], RunConfig(preset="paper"), out=tmp_path, from_records=True)
    for name in ("README.md", "tables/fig7.csv", "tables/fig9.csv"):
        assert (tmp_path / name).read_text() == (RESULTS / "paper" / name).read_text()


def test_every_run_was_audited_on_the_published_data():
    for path in (RESULTS / "records").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            assert record["audit"]["passed"]
            assert not record["sample"]
            assert all(record["as_published"].values()), record["data"]


def recorded(setting, method="tuned-costa"):
    lines = (RESULTS / "records" / f"{setting}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [one for one in records if one["method"] == method]


def former(records, column="zsl", measure="E-MAP"):
    """Return the former default's values for some records of tuned COSTA, as if they were ours."""
    results = Results([one | {"method": "default"} for one in records])
    return results.values(records[0]["setting"], f"{FORMER}default", column, measure)


def test_the_former_default_stands_beside_ours_for_its_own_splits_alone():
    for name, n_trials in (("default", 10), ("shares", 3)):
        for setting in get_experiment(name).settings:
            values = former(recorded(setting), "zsl-only", "C-MAP")
            assert len(values) == n_trials
            assert all(0 < value < 100 for value in values)
    first = recorded("hsun")[0]
    for other in (
        first | {"config": first["config"] | {"seed": 11}},
        first | {"config": first["config"] | {"data": {"hsun": "other"}}},
        first | {"trial": 1000},
        first | {"setting": "hsun-12"},
    ):
        assert former([other]) == [None]
    assert former([first], "zsl", "nothing") == [None]


def test_the_comparison_has_ten_label_splits_of_three_corpora():
    for setting in SETTINGS.values():
        with (RESULTS / "tables" / f"compare-{setting}.csv").open() as file:
            assert {row["n"] for row in csv.DictReader(file)} == {"10"}


def test_the_figures_of_the_readme_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (HSUN|Corel5K|MSD subset|Emoji) \| ([^|]*) \| (.*) \|$", readme, re.M)
    assert {row[0] for row in rows} == set(HEADLINE)
    for corpus, method, cells in rows:
        by_default = method in ("polyseme's default", "tuned COSTA")
        made_by = "default" if by_default else "compare"
        with (RESULTS / "tables" / f"{made_by}-{HEADLINE[corpus]}.csv").open() as file:
            of_method = {
                row["column"]: f"{float(row['mean']):.1f} ± {float(row['standard_error']):.1f}"
                for row in csv.DictReader(file)
                if row["method"] == method
            }
        assert [cell.strip() for cell in cells.split("|")] == [of_method[c] for c in COLUMNS]
