"""What Hugging Face datasets write is a table: saved folders, splits, Parquet, class labels."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme.cli.reading import TableReader, read_items
from polyseme.io import read_table

# A module of it: a folder of these tests has the same name.
pytest.importorskip("datasets.arrow_dataset", reason="Hugging Face datasets are not installed")
import datasets

datasets.disable_progress_bars()


@pytest.fixture(scope="module")
def dataset():
    vectors = np.eye(4, dtype=np.float32)
    tags = [["p", "q"], ["q"], ["r", "p"], ["p"]]
    return datasets.Dataset.from_dict({"id": [*"abcd"], "tags": tags, "embedding": [*vectors]})


@pytest.mark.parametrize(
    ("write", "rows"),
    [
        (lambda dataset, to: dataset.save_to_disk(to), "abcd"),
        (lambda dataset, to: dataset.save_to_disk(to, num_shards=2), "abcd"),
        (lambda dataset, to: dataset.select([2, 0]).save_to_disk(to), "ca"),
        (lambda dataset, to: dataset.to_parquet(to), "abcd"),
    ],
)
def test_a_saved_dataset_is_a_table(tmp_path, dataset, write, rows):
    path = tmp_path / "one.parquet"  # a folder may have any name
    write(dataset, path)
    table = read_table(path)
    places = ["abcd".index(row) for row in rows]
    assert table.ids == [*rows] and table.label_sets == [dataset["tags"][p] for p in places]
    np.testing.assert_array_equal(table.features, np.eye(4)[places])


def test_the_splits_of_a_saved_dataset_can_be_chosen(tmp_path, dataset):
    parts = {"train": dataset.select(range(3)), "test": dataset.select([3])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "all")
    table = read_table(tmp_path / "all")
    assert table.splits == ["train"] * 3 + ["test"] and table.ids == [*"abcd"]
    items = read_items(tmp_path / "all", None, "test", TableReader())
    assert items.documents.ids == ("d",) and items.X.to_numpy().tolist() == [[0, 0, 0, 1]]


@pytest.mark.parametrize("name", ["folder", "table.parquet"])
def test_numbers_of_class_labels_become_their_names(tmp_path, name):
    labels = datasets.Sequence(datasets.ClassLabel(names=["sea", "sun"]))
    features = datasets.Features(
        {"labels": labels, "vector": datasets.Sequence(datasets.Value("float32"))}
    )
    made = {"labels": [[1, 0], [], [1]], "vector": [[1.0], [2.0], [3.0]]}
    dataset = datasets.Dataset.from_dict(made, features=features)
    (dataset.to_parquet if "." in name else dataset.save_to_disk)(tmp_path / name)
    table = read_table(tmp_path / name)
    assert table.label_sets == [["sun", "sea"], [], ["sun"]] and table.shape == (3, 1)
