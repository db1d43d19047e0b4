"""Shards of feature tables: found in order, read in blocks, refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyseme._validation import InputError
from polyseme.io import read_features
from polyseme.io.shards import find_shards, is_sharded, read_blocks, write_shards

FORMATS = ["npy", "parquet"]


@pytest.fixture(autouse=True)
def parquet_library() -> None:
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")


def table(n: int = 50, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, columns)).astype(np.float32)


def joined(folder: Path, n_rows: int) -> np.ndarray:
    found = find_shards(folder)
    return np.vstack([block for shard in found for _, block in read_blocks(shard, n_rows)])


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("n_rows", [1, 7, 16, 1000])
def test_blocks_of_shards_are_the_table(tmp_path, file_format, n_rows):
    X = table()
    assert len(write_shards(X, tmp_path / "cut", 16, file_format)) == 4
    np.testing.assert_array_equal(joined(tmp_path / "cut", n_rows), X)
    found = find_shards(tmp_path / "cut")
    places = [(shard.first, shard.n_rows) for shard in found]
    assert places == [(0, 16), (16, 16), (32, 16), (48, 2)]
    sizes = [len(block) for _, block in read_blocks(found.shards[0], n_rows)]
    assert all(size == n_rows for size in sizes[:-1]) and sum(sizes) == 16


def test_blocks_do_not_depend_on_row_groups(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    X = table(40)
    arrow = pa.table({f"x{i}": X[:, i] for i in range(3)} | {"id": [str(i) for i in range(40)]})
    pq.write_table(arrow, tmp_path / "groups.parquet", row_group_size=7)
    (shard,) = find_shards(tmp_path / "groups.parquet")
    blocks = [block for _, block in read_blocks(shard, 16)]
    assert [len(block) for block in blocks] == [16, 16, 8]
    np.testing.assert_array_equal(np.vstack(blocks), X)
    np.testing.assert_array_equal(np.vstack(blocks), read_features(tmp_path / "groups.parquet"))


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "uint32", "bool"])
def test_numbers_become_the_floats_that_whole_files_give(tmp_path, kind):
    np.save(tmp_path / "a.npy", (table() > 0).astype(kind))
    (shard,) = find_shards(tmp_path / "a.npy")
    block = np.vstack([block for _, block in read_blocks(shard, 8)])
    whole = read_features(tmp_path / "a.npy")
    assert block.dtype == whole.dtype
    np.testing.assert_array_equal(block, whole)


def test_a_shard_may_be_empty_and_other_files_are_named(tmp_path):
    np.save(tmp_path / "a.npy", table(3))
    np.save(tmp_path / "b.npy", table(0))
    np.save(tmp_path / "c.npy", table(2))
    for name in ("_SUCCESS", ".part.npy.crc", ".hidden.npy", "notes.txt"):
        (tmp_path / name).write_text("x")
    found = find_shards(tmp_path)
    assert [shard.n_rows for shard in found] == [3, 0, 2]
    assert found.others == ("notes.txt",)
    assert joined(tmp_path, 2).shape == (5, 3)


def test_files_in_other_forms_are_no_shards(tmp_path):
    (tmp_path / "x.csv").write_text("a\n1\n")
    assert not is_sharded(tmp_path)
    assert not is_sharded(tmp_path / "x.csv")
    assert not is_sharded(tmp_path / "nothing.npy")


def pickled(folder: Path) -> None:
    np.save(folder / "a.npy", np.array([{}], dtype=object), allow_pickle=True)


def of_text(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"name": ["a"]}), folder / "a.parquet")


def cut_short(folder: Path) -> None:
    np.save(folder / "a.npy", table())
    (folder / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:-8])


def mixed(folder: Path) -> None:
    write_shards(table(4), folder, 4, "npy")
    write_shards(table(4), folder, 2, "parquet")
    (folder / "part-00000.parquet").unlink()


def unequal(folder: Path) -> None:
    np.save(folder / "a.npy", table(3, 3))
    np.save(folder / "b.npy", table(3, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (pickled, "a.npy is not readable as a numpy file without pickled objects"),
        (of_text, "Column 'name' of a.parquet must hold numbers; got string"),
        (cut_short, "a.npy is not readable"),
        (mixed, r"mixes .npy and .parquet shards; keep one kind"),
        (unequal, "'b.npy' has 4 columns but 'a.npy' has 3; all shards need the same"),
        (lambda folder: np.save(folder / "a.npy", table(0)), r"shape \(0, 3\)"),
        (lambda folder: np.save(folder / "a.npy", table()[0]), "two dimensions"),
        (lambda folder: np.save(folder / "a.npy", np.array([["x"]])), "must be numbers"),
        (lambda folder: (folder / "a.parquet").write_bytes(b"PAR1 no"), "not readable as Parquet"),
        (lambda folder: (folder / "a.npy").write_bytes(b"nothing"), "a.npy is not readable"),
        (lambda folder: (folder / "a.txt").write_text(""), "There is no shard in"),
    ],
)
def test_what_is_no_table_is_refused_with_a_sentence(tmp_path, make, message):
    make(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        find_shards(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gap_is_refused_with_the_row_of_its_shard(tmp_path, file_format, value):
    X = table()
    X[37, 1] = value
    write_shards(X, tmp_path, 16, file_format)
    shards = find_shards(tmp_path).shards
    assert len(list(read_blocks(shards[0], 4))) == 4
    with pytest.raises(
        InputError, match=rf"'part-00002.{file_format}' contains NaN .* row\(s\) 5;"
    ):
        list(read_blocks(shards[2], 4))


def test_values_whose_sum_overflows_are_no_gap(tmp_path):
    np.save(tmp_path / "a.npy", np.full((4, 2), 1e308))
    assert joined(tmp_path, 2).shape == (4, 2)


def test_a_shard_that_shrinks_while_it_is_read_is_refused(tmp_path):
    write_shards(table(20), tmp_path, 20, "parquet")
    (shard,) = find_shards(tmp_path)
    write_shards(table(10), tmp_path, 20, "parquet")
    with pytest.raises(InputError, match="was changed while it was read"):
        list(read_blocks(shard, 4))
