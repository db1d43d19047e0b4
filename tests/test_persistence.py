"""Model directories: exact round trips, and refusals in one sentence."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from polyseme import persistence
from polyseme.persistence import FORMAT_VERSION, ModelFileError, read_model, write_model
from saved_models import NEW, OLD, contents, same, write

DTYPES = [np.dtype(code).name for code in "?bhiqBHIQefd"]
NAMES = ["manifest", "config", "arrays"]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


def file_of(path: Path, role: str) -> Path:
    (found,) = path.glob(f"{role}*")
    return found


def reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as a forger would, with a checksum that fits again."""
    manifest = path / "manifest.json"
    content = json.loads(manifest.read_bytes())
    del content["manifest_sha256"]
    change(content)
    manifest.write_bytes(persistence._encode_manifest(content))


def forge(path: Path, role: str, data: bytes) -> None:
    """Replace one payload by other bytes and make the manifest agree."""
    old = file_of(path, role)
    old.write_bytes(data)
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    reseal(path, lambda content: content["files"].update({old.name: entry}))


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Leave out what only a power failure could show; the order of steps has its own test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write(path, OLD)
    return path


# ---- what goes in comes out -------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), order=st.sampled_from("<>"))
def test_arrays_of_every_dtype_and_shape_come_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dtype: str, order: Any
) -> None:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    array = data.draw(hnp.arrays(np.dtype(dtype).newbyteorder(order), shapes))
    path = tmp_path_factory.mktemp("arrays") / "model"
    write_model(path, "tagger", {}, {"part.array": array, "part.turned": array.T})
    _, got = read_model(path)
    native = array.astype(dtype)
    assert same(({}, got), ({}, {"part.array": native, "part.turned": native.T}))
    assert got["part.array"].flags.writeable


@settings(deadline=None, max_examples=40)
@given(config=st.dictionaries(st.text(), json_values, max_size=5))
def test_nested_values_come_back_equal_and_of_equal_type(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("config") / "model"
    write_model(path, "tagger", config, {})
    got, arrays = read_model(path, "tagger")
    assert repr(sorted(got.items())) == repr(sorted(_sorted_deep(config).items()))
    assert arrays == {}


def _sorted_deep(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted_deep(value[key]) for key in sorted(value)}
    return [_sorted_deep(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("view", [np.s_[::2], np.s_[:, ::-1], np.s_[1:, 1:], np.s_[:, :0]])
def test_non_contiguous_views_come_back_in_reading_order(tmp_path: Path, view: Any) -> None:
    base = np.asfortranarray(np.arange(20).reshape(4, 5))
    write_model(tmp_path / "m", "tagger", {}, {"view": base[view]})
    np.testing.assert_array_equal(read_model(tmp_path / "m")[1]["view"], base[view])


def test_long_label_lists_round_trip(tmp_path: Path) -> None:
    model = {"labels": [f"label {i}" for i in range(100_000)]}, {"ids": np.arange(100_000)}
    write_model(tmp_path / "m", "embedding", *model)
    assert same(read_model(tmp_path / "m", "embedding"), model)


def test_same_state_gives_the_same_bytes_in_any_order_of_insertion(tmp_path: Path) -> None:
    config: dict[str, Any] = {"b": 1, "a": {"d": 2, "c": 3}}
    arrays: dict[str, np.ndarray] = {"z": np.ones(3), "y": np.ones(2, np.int8)}
    write_model(tmp_path / "1", "tagger", config, arrays)
    write_model(tmp_path / "2", "tagger", {"a": {"c": 3, "d": 2}, "b": 1}, arrays)
    write_model(tmp_path / "3", "tagger", config, dict(reversed(arrays.items())))
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")


def test_overwriting_leaves_no_trace_of_the_old_model_and_spares_foreign_files(model: Path) -> None:
    (model / "notes.txt").write_text("mine")
    (model / "arrays-0123456789ab.safetensors").write_bytes(b"abandoned")
    (model / f"manifest.json.{'0' * 16}.tmp").write_bytes(b"abandoned")
    assert same(read_model(model), OLD)
    write(model, NEW)
    fresh = model.parent / "fresh" / "nested"
    write(fresh, NEW)
    assert contents(model) == {**contents(fresh), "notes.txt": b"mine"}


# ---- what cannot be stored --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"a": [0.5, float("nan")]}, r"`config\.a\[1\]` of a model must be finite; got nan"),
        ({"a": {"b": float("-inf")}}, r"`config\.a\.b` of a model must be finite; got -inf"),
        ({"a": {3: "x"}}, r"Keys in `config\.a` of a model must be strings; got 3"),
        ({"a": {None: "x"}}, r"Keys in `config\.a` of a model must be strings; got None"),
        ({"a": np.int64(3)}, r"`config\.a` of a model must be None, .* got int64"),
        ({"a": {"x"}}, r"`config\.a` of a model must be None, .* got set"),
        ({"a": "\ud800"}, r"cannot be written as JSON: .*surrogates not allowed"),
    ],
)
def test_values_that_json_would_change_are_refused_by_name(
    model: Path, config: Any, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        write_model(model, "tagger", config, {})
    assert same(read_model(model), OLD)


def test_a_config_that_holds_itself_is_refused(tmp_path: Path) -> None:
    config: dict[str, Any] = {}
    config["self"] = config
    with pytest.raises(ModelFileError, match=r"cannot be written as JSON: .*recursion"):
        write_model(tmp_path / "m", "tagger", config, {})


@pytest.mark.parametrize(
    "array",
    [np.array(["a"]), np.array([None]), np.ones(2, complex), np.ones(2, "M8[s]")],
    ids=lambda array: str(array.dtype),
)
def test_arrays_of_other_dtypes_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(ModelFileError, match=r"Array 'x.y' of a model must hold .* got dtype"):
        write_model(tmp_path / "m", "tagger", {}, {"x.y": array})
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("name", ["", "__metadata__", "\ud800", "a\nb", 3])
def test_unusable_array_names_are_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ModelFileError, match="cannot be the name of an array"):
        write_model(tmp_path / "m", "tagger", {}, {name: np.ones(1)})


@pytest.mark.parametrize("kind", ["", "Tagger", "a/b"])
def test_a_kind_is_a_lower_case_word(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ModelFileError, match="`kind` of a model must be a lower-case word"):
        write_model(tmp_path / "m", kind, {}, {})


# ---- where it cannot be written ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
@pytest.mark.parametrize("text", ["precious", '{"format": "other"}', "[]"])
def test_foreign_directories_are_refused_and_untouched(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "arrays-0123456789ab.safetensors").write_text("precious")
    before = contents(tmp_path)
    with pytest.raises(ModelFileError, match=rf"Refusing to write a model .*{name}"):
        write(tmp_path, NEW)
    assert contents(tmp_path) == before


def test_a_file_is_not_overwritten_by_a_model(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("precious")
    with pytest.raises(ModelFileError, match=r"Cannot write a model to .*this is a file"):
        write(tmp_path / "m", NEW)
    with pytest.raises(ModelFileError, match=r"Could not write the model to .*Not a directory"):
        write(tmp_path / "m" / "below", NEW)
    assert (tmp_path / "m").read_text() == "precious"


def test_a_first_write_that_was_killed_can_be_repeated(model: Path) -> None:
    (model / "manifest.json").rename(model / f"manifest.json.{'a' * 16}.tmp")
    write(model, NEW)
    assert same(read_model(model), NEW)
    assert len(contents(model)) == 3


# ---- what is refused on reading ---------------------------------------------------------------


@pytest.mark.parametrize("role", NAMES)
def test_every_single_changed_byte_is_noticed(model: Path, role: str) -> None:
    target = file_of(model, role)
    data = target.read_bytes()
    for place in range(len(data)):
        target.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ModelFileError, match=r"checksum|JSON|format|missing|plain name"):
            read_model(model)
    target.write_bytes(data)
    assert same(read_model(model), OLD)


@pytest.mark.parametrize("role", ["config", "arrays"])
def test_a_changed_payload_is_named_with_its_path(model: Path, role: str) -> None:
    target = file_of(model, role)
    target.write_bytes(target.read_bytes()[:-1] + b"?")
    message = rf"File '{target.name}' of the model at '{model}' does not match its checksum"
    with pytest.raises(ModelFileError, match=message):
        read_model(model)


@pytest.mark.parametrize("role", NAMES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated_files_are_refused(model: Path, role: str, share: float) -> None:
    target = file_of(model, role)
    data = target.read_bytes()
    target.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ModelFileError, match=rf"File '{target.name}' of the model .* is .*truncat"):
        read_model(model)


@pytest.mark.parametrize("role", ["config", "arrays"])
def test_files_that_grew_are_refused(model: Path, role: str) -> None:
    with file_of(model, role).open("ab") as stream:
        stream.write(b"\n")
    with pytest.raises(ModelFileError, match="is too long"):
        read_model(model)


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ("manifest", "is not a polyseme model: it has no manifest.json"),
        ("config", r"File 'config-\w+.json' .* is missing"),
        ("arrays", r"File 'arrays-\w+.safetensors' .* is missing"),
    ],
)
def test_missing_files_are_refused(model: Path, role: str, message: str) -> None:
    file_of(model, role).unlink()
    with pytest.raises(ModelFileError, match=message):
        read_model(model)


@pytest.mark.parametrize("role", NAMES)
def test_symbolic_links_and_folders_are_refused(model: Path, role: str) -> None:
    target = file_of(model, role)
    moved = model.parent / "elsewhere"
    target.rename(moved)
    target.symlink_to(moved)
    with pytest.raises(ModelFileError, match=rf"File '{target.name}' .* is a symbolic link"):
        read_model(model)
    target.unlink()
    target.mkdir()
    with pytest.raises(ModelFileError, match=rf"File '{target.name}' .* is not a regular file"):
        read_model(model)


def test_absent_paths_and_plain_files_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no polyseme model at .*: no such folder"):
        read_model(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFileError, match=r"no polyseme model at .*: this is a file"):
        read_model(tmp_path / "file")


def test_a_newer_format_asks_for_an_upgrade_even_when_all_else_changed(model: Path) -> None:
    newer = {"format": "polyseme", "format_version": 7, "parts": []}
    (model / "manifest.json").write_text(json.dumps(newer))
    message = rf"has the format 7, and this version of polyseme reads {FORMAT_VERSION}; upgrade"
    with pytest.raises(ModelFileError, match=message):
        read_model(model)


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None])
def test_impossible_format_versions_are_refused(model: Path, version: object) -> None:
    reseal(model, lambda content: content.update(format_version=version))
    with pytest.raises(ModelFileError, match=f"invalid format version {version!r}"):
        read_model(model)


def test_another_format_and_an_oversized_manifest_are_refused(model: Path) -> None:
    reseal(model, lambda content: content.update(format="other"))
    with pytest.raises(ModelFileError, match=r"not a polyseme model: the format .* is 'other'"):
        read_model(model)
    (model / "manifest.json").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(ModelFileError, match=r"too large \(1048577 bytes\) to be a manifest"):
        read_model(model)


def test_a_model_of_another_kind_is_refused(model: Path) -> None:
    with pytest.raises(ModelFileError, match="is a 'tagger', but a 'checkpoint' is wanted"):
        read_model(model, "checkpoint")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a\\b", "config.json", ""])
def test_names_outside_the_model_are_refused_before_anything_is_read(
    model: Path, name: str
) -> None:
    def rename(content: dict[str, Any]) -> None:
        content["files"][name] = content["files"].pop(file_of(model, "config").name)

    (model.parent / "secret").write_bytes(file_of(model, "config").read_bytes())
    reseal(model, rename)
    with pytest.raises(ModelFileError, match="not the plain name of a file inside the model"):
        read_model(model)


@pytest.mark.parametrize("files", [None, [], {}, {"config-0123456789ab.json": {}}])
def test_a_manifest_names_exactly_one_file_of_each_role(model: Path, files: object) -> None:
    reseal(model, lambda content: content.update(files=files))
    with pytest.raises(ModelFileError, match="must name one arrays file and one config file"):
        read_model(model)


@pytest.mark.parametrize("entry", [None, {}, {"bytes": "9"}, {"bytes": True}])
def test_a_manifest_entry_holds_size_and_checksum(model: Path, entry: object) -> None:
    name = file_of(model, "config").name
    reseal(model, lambda content: content["files"].update({name: entry}))
    with pytest.raises(ModelFileError, match=f"no valid size and checksum for '{name}'"):
        read_model(model)


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b'{"a": NaN}', b"\xff{}", b"{" * 9, b'{"a":' * 100_000]
)
def test_malformed_json_behind_a_fitting_checksum_is_refused(model: Path, data: bytes) -> None:
    forge(model, "config", data)
    with pytest.raises(ModelFileError, match=r"File 'config-\w+\.json' .* not a valid JSON object"):
        read_model(model)


def _tensors(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04N.",
        b"\xff" * 64,
        _tensors({"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        _tensors({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, bytes(8)),
        _tensors({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)),
    ],
)
def test_malformed_safetensors_behind_a_fitting_checksum_are_refused(
    model: Path, data: bytes
) -> None:
    forge(model, "arrays", data)
    with pytest.raises(ModelFileError, match=r"File 'arrays-\w+.* not valid safetensors data"):
        read_model(model)


@pytest.mark.parametrize("value", [b"NaN", b'"\\ud800"'])
def test_a_manifest_that_cannot_be_rewritten_is_refused(model: Path, value: bytes) -> None:
    manifest = model / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"tagger"', value))
    with pytest.raises(ModelFileError, match=r"File 'manifest.json' .* (checksum|JSON)"):
        read_model(model)
