"""What Hugging Face datasets write is a table: saved folders, splits, Parquet, class labels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from polyseme.cli.inputs import TableReader, read_items
from polyseme.io import read_table

# A module of it: a folder of these tests has the same name.
pytest.importorskip("datasets.arrow_dataset", reason="Hugging Face datasets are not installed")
import datasets

datasets.disable_progress_bars()


@pytest.fixture(scope="module")
def dataset():
    vectors = np.eye(4, dtype=np.float32)
    columns = {
        "id": list("abcd"),
        "tags": [["p", "q"], ["q"], ["r", "p"], ["p"]],
        "embedding": list(vectors),
    }
    return datasets.Dataset.from_dict(columns)


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
    assert table.ids == list(rows)
    places = ["abcd".index(row) for row in rows]
    expected = [dataset["tags"][place] for place in places]
    assert table.label_sets == expected
    assert_array_equal(table.features, np.eye(4)[places])


def test_the_splits_of_a_saved_dataset_can_be_chosen(tmp_path, dataset):
    folder = tmp_path / "all"
    splits = {"train": dataset.select(range(3)), "test": dataset.select([3])}
    datasets.DatasetDict(splits).save_to_disk(folder)
    table = read_table(folder)
    expected = ["train"] * 3 + ["test"]
    assert table.splits == expected
    assert table.ids == list("abcd")
    items = read_items(folder, None, "test", TableReader())
    assert items.documents.ids == ("d",)
    assert items.X.to_numpy().tolist() == [[0, 0, 0, 1]]


@pytest.mark.parametrize("name", ["folder", "table.parquet"])
def test_numbers_of_class_labels_become_their_names(tmp_path, name):
    class_labels = datasets.ClassLabel(names=["sea", "sun"])
    features = datasets.Features(
        {
            "labels": datasets.Sequence(class_labels),
            "vector": datasets.Sequence(datasets.Value("float32")),
        }
    )
    columns = {"labels": [[1, 0], [], [1]], "vector": [[1.0], [2.0], [3.0]]}
    dataset = datasets.Dataset.from_dict(columns, features=features)
    path = tmp_path / name
    if path.suffix:
        dataset.to_parquet(path)
    else:
        dataset.save_to_disk(path)
    table = read_table(path)
    assert table.label_sets == [["sun", "sea"], [], ["sun"]]
    assert table.shape == (3, 1)
