"""Shards of feature tables: found in order, read in blocks, refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from polyseme.base.validation import InputError
from polyseme.io import read_features
from polyseme.io.shards import find_shards, is_sharded, read_blocks, write_shards

arrow = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
parquet = pytest.importorskip("pyarrow.parquet")


def table(n: int = 50, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, columns)).astype(np.float32)


def joined(folder: Path, n_rows: int) -> np.ndarray:
    shards, _ = find_shards(folder)
    return np.vstack([block for shard in shards for _, block in read_blocks(shard, n_rows)])


@pytest.mark.parametrize("file_format", ["npy", "parquet"])
@pytest.mark.parametrize("n_rows", [7, 16, 1000])
def test_blocks_of_shards_are_the_table(tmp_path, file_format, n_rows):
    X = table()
    folder = tmp_path / "cut"
    paths = write_shards(X, folder, 16, file_format)
    assert len(paths) == 4
    assert_array_equal(joined(folder, n_rows), X)
    shards, _ = find_shards(folder)
    places = [(shard.first, shard.n_rows) for shard in shards]
    assert places == [(0, 16), (16, 16), (32, 16), (48, 2)]
    *sizes, last_size = [len(block) for _, block in read_blocks(shards[0], n_rows)]
    assert set(sizes) <= {n_rows}
    assert sum(sizes) + last_size == 16


def test_blocks_do_not_depend_on_row_groups(tmp_path):
    X = table(40)
    path = tmp_path / "groups.parquet"
    first, second, third = X.T
    ids = [str(row) for row in range(40)]
    columns = {"x0": first, "x1": second, "x2": third, "id": ids}
    parquet.write_table(arrow.table(columns), path, row_group_size=7)
    (shard,), _ = find_shards(path)
    blocks = [block for _, block in read_blocks(shard, 16)]
    assert [len(block) for block in blocks] == [16, 16, 8]
    joined_blocks = np.vstack(blocks)
    assert_array_equal(joined_blocks, X)
    assert_array_equal(joined_blocks, read_features(path))


def test_a_shard_may_be_empty_and_other_files_are_named(tmp_path):
    for name, n_rows in (("a", 3), ("b", 0), ("c", 2)):
        np.save(tmp_path / f"{name}.npy", table(n_rows))
    for name in ("_SUCCESS", ".part.npy.crc", ".hidden.npy", "notes.txt"):
        (tmp_path / name).write_text("x")
    shards, ignored_names = find_shards(tmp_path)
    assert [shard.n_rows for shard in shards] == [3, 0, 2]
    assert ignored_names == ["notes.txt"]
    features = joined(tmp_path, 2)
    assert features.shape == (5, 3)


def test_text_and_missing_files_are_not_sharded(tmp_path):
    np.save(tmp_path / "a.npy", table(3))
    path = tmp_path / "notes.txt"
    path.write_text("x")
    assert is_sharded(tmp_path)
    assert not is_sharded(path)
    assert not is_sharded(tmp_path / "nothing.npy")


TEXTS = arrow.table({"name": ["a"]})


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda to: parquet.write_table(TEXTS, to / "a.parquet"), "Column 'name' of a.parquet"),
        (
            lambda to: parquet.write_table(arrow.table({"x0": [1.0]}), to / "b.parquet"),
            r"mixes .npy, .parquet or .arrow shards",
        ),
        (lambda to: np.save(to / "b.npy", table(3, 4)), "'b.npy' has 4 columns but 'a.npy' has 0"),
        (lambda to: np.save(to / "a.npy", table(0)), r"shape \(0, 3\)"),
        (lambda to: np.save(to / "a.npy", table()[0]), "two dimensions"),
        (lambda to: (to / "a.npy").write_bytes(b"nothing"), "a.npy is not readable"),
        (lambda to: (to / "a.npy").unlink(), "There is no shard in"),
    ],
)
def test_what_is_no_table_is_refused_with_a_sentence(tmp_path, write, message):
    if not message.startswith("Column"):
        np.save(tmp_path / "a.npy", table(0, 0))
    write(tmp_path)
    with pytest.raises(InputError, match=message):
        find_shards(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gap_is_refused_with_the_row_of_its_shard(tmp_path, value):
    X = table().astype(np.float64)
    X[:16] = 1e308  # finite values, whose sum is not
    X[37, 1] = value
    write_shards(X, tmp_path, 16)
    shards, _ = find_shards(tmp_path)
    blocks = list(read_blocks(shards[0], 4))
    assert len(blocks) == 4
    with pytest.raises(InputError, match=r"'part-00002.npy' contains NaN .* row\(s\) 5;"):
        list(read_blocks(shards[2], 4))


def test_a_shard_that_shrinks_while_it_is_read_is_refused(tmp_path):
    write_shards(table(20), tmp_path, 20, "parquet")
    ((shard,), _) = find_shards(tmp_path)
    write_shards(table(10), tmp_path, 20, "parquet")
    with pytest.raises(InputError, match="was changed while it was read"):
        list(read_blocks(shard, 4))


def test_shards_replace_shards_of_ours(tmp_path):
    X = np.arange(60.0).reshape(20, 3)
    folder = tmp_path / "cut"
    write_shards(X, folder, 5)
    (folder / "notes.txt").write_text("mine")
    write_shards(X[::-1], folder, 10)
    shards, ignored_names = find_shards(folder)
    sizes = [shard.n_rows for shard in shards]
    assert sizes == [10, 10]
    assert ignored_names == ["notes.txt"]


def test_shards_replace_no_file_of_somebody_else(tmp_path):
    X = np.arange(60.0).reshape(20, 3)
    path = tmp_path / "part-00000.npy"
    np.save(path, X)
    content = path.read_bytes()
    with pytest.raises(InputError, match=r"holds 'part-00000.npy' and no mark"):
        write_shards(X + 1, tmp_path, 10)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "stated",
    [
        '{"splits": ["."]}',
        '{"splits": [".."]}',
        '{"splits": [""]}',
        '{"splits": ["' + "x" * 5000 + '"]}',
        '{"splits": ["a\\u0000"]}',
        '{"splits": 5}',
        "[" * 100_000,
        "[]",
    ],
)
def test_a_dataset_reads_only_files_of_its_folder(tmp_path, stated):
    np.save(tmp_path / "secret.npy", np.ones((2, 2)))
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "dataset_dict.json").write_text(stated)
    with pytest.raises(InputError, match=r"lacks .*; copy it whole|does not name the parts"):
        read_features(dataset)
