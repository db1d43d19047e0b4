"""Datasets by name: every spec is complete, folders load, and each mistake gets a sentence."""

from __future__ import annotations

import gzip
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme_experiments.datasets import choose, known_specs, load_dataset
from polyseme_experiments.datasets.loading import DOCUMENT_FILES

ORIGINALS = {"magtag5k", "labelme", "msd"}
EMBEDDED = {name for name, spec in known_specs().items() if spec.embedded is not None}
EMPTY_DOCUMENTS = {"hsun": 13, "corel5k": 7, "emoji": 132}
EMPTY_DOCUMENTS |= {"delicious": 14, "stackex-cooking": 134}
PAGE = Path(__file__).parents[3] / "docs" / "own-data.md"
each_spec = pytest.mark.parametrize("spec", known_specs().values(), ids=list(known_specs()))


@pytest.fixture(autouse=True)
def no_root_of_this_machine(monkeypatch):
    """Tests name their data root; the one of the environment must not answer for them."""
    monkeypatch.delenv("POLYSEME_DATA", raising=False)


def write_folder(root, name, documents, *, X=None, names=None, zipped=True):
    """Write a dataset's folder and give the data root."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(json.dumps(document) for document in documents)
    if zipped:
        (folder / DOCUMENT_FILES[0]).write_bytes(gzip.compress(text.encode()))
    else:
        (folder / DOCUMENT_FILES[1]).write_text(text)
    if X is not None:
        np.save(folder / "features.npy", X)
    if names is not None:
        lines = "\n".join(names) + "\n"
        (folder / "feature_names.txt").write_text(lines, "utf-8", "surrogateescape")
    return root


def documents_of(n=4, **fields):
    """Make documents as in the files, alternating between train and test."""
    documents = []
    for row in range(n):
        document = {"id": f"d{row}", "labels": ["sea", f"label {row}"]}
        document["split"] = ("train", "test")[row % 2]
        for name in fields:
            document[name] = f"{name} {row // 2}"
        documents.append(document)
    return documents


def write_hsun(root, **changes):
    """Write a folder `hsun` that loads, but for what is changed."""
    content = {
        "documents": documents_of(),
        "X": np.full((4, 2), 0.25, dtype=np.float32),
        "names": ("sea", "sky"),
    }
    content |= changes
    documents = content.pop("documents")
    return write_folder(root, "hsun", documents, **content)


def load_quietly(name, root):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        return load_dataset(name, root)


# ------------------------------------------------------------------ specs


@each_spec
def test_every_spec_is_complete(spec):
    assert known_specs()[spec.name] is spec
    assert spec.title
    assert spec.licence
    assert spec.domain in ("images", "music", "text")
    has_year = re.search(r": .+\. .*\b(19|20)\d\d\.$", spec.citation)
    assert has_year or spec.citation.startswith("none known to us")
    if spec.detectors or spec.square_root:
        assert spec.has_features


@each_spec
def test_every_spec_is_in_the_table_of_the_docs(spec):
    counts = ["not known" if n is None else f"{n:,}" for n in (spec.n_documents, spec.n_labels)]
    features = "yes" if spec.has_features else "no"
    cells = [f"`{spec.name}`", spec.title, *counts, features]
    cells += [spec.stands_for or "itself", spec.licence]
    row = " | ".join(cells)
    lines = PAGE.read_text("utf-8").splitlines()
    assert f"| {row} |" in lines


@each_spec
def test_specs_count_what_is_stored_here(spec):
    if spec.name in ORIGINALS:
        assert spec.n_documents is None
        assert spec.n_labels is None
        assert spec.stands_for is None
    else:
        assert spec.n_documents > spec.n_labels > 1


@each_spec
def test_specs_hold_the_checksums_of_their_files(spec):
    if spec.name in ORIGINALS | EMBEDDED:
        assert spec.checksums == {}, "the loaders of embedded ones check the package's own files"
        return
    for checksum in spec.checksums.values():
        assert re.fullmatch(r"[0-9a-f]{64}", checksum)
    assert "documents.jsonl.gz" in spec.checksums
    assert ("features.npy" in spec.checksums) == spec.has_features
    if spec.detectors:
        assert "feature_names.txt" in spec.checksums


@pytest.mark.parametrize("name", [name for name in known_specs() if name not in ORIGINALS])
def test_the_real_files_are_those_that_the_spec_describes(name, data):
    embedded = name in EMBEDDED
    if not embedded and not (data / name).is_dir():
        pytest.skip(f"the dataset {name} is not here")
    spec = known_specs()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = load_dataset(name, None if embedded else data)
    assert dataset.as_published()
    assert not dataset.is_sample

    corpus = dataset.corpus
    assert len(corpus) == spec.n_documents
    assert len(corpus.labels) == spec.n_labels
    sizes = np.diff(corpus.matrix.indptr)
    n_empty = np.count_nonzero(sizes == 0)
    assert n_empty == EMPTY_DOCUMENTS.get(name, 0)
    if spec.has_groups:
        assert corpus.groups is not None
    if spec.has_features:
        assert dataset.X.dtype == np.float32
        assert len(dataset.X) == len(corpus)
    else:
        assert dataset.X is None
    if spec.detectors:
        assert set(dataset.feature_names) == set(corpus.labels)


# ------------------------------------------------------------------ folders that load


def test_a_folder_is_loaded_with_everything_in_it(tmp_path, monkeypatch):
    X = np.array([[0.25, 1], [0, 0], [1, 0.5], [0.0625, 1]], dtype=np.float16)
    root = write_hsun(tmp_path, X=X)
    monkeypatch.setenv("POLYSEME_DATA", str(root))
    hsun = load_quietly("hsun", None)
    assert hsun.name == "hsun"
    assert hsun.corpus.ids == ("d0", "d1", "d2", "d3")
    assert hsun.corpus.splits == ("train", "test", "train", "test")
    assert hsun.corpus.groups is None
    assert hsun.feature_names == ("sea", "sky")
    assert hsun.X.dtype == np.float32
    square_roots = np.sqrt(X.astype(np.float32))
    assert np.allclose(hsun.X, square_roots)
    assert set(hsun.files) == {"documents.jsonl.gz", "features.npy", "feature_names.txt"}


def test_a_folder_with_groups_and_unnamed_features_is_loaded(tmp_path):
    X = np.array([[-4.0], [4.0], [0.0], [1.0]])
    root = write_folder(tmp_path, "msd-subset", documents_of(group=True), X=X)
    songs = load_quietly("msd-subset", root)
    assert songs.corpus.groups == ("group 0", "group 0", "group 1", "group 1")
    assert np.array_equal(songs.X, X)
    assert songs.feature_names is None


def test_a_folder_of_ones_own_needs_no_spec(tmp_path):
    documents = [{"labels": ["a", "b"]}, {"labels": []}]
    root = write_folder(tmp_path, "mine", documents, zipped=False)
    plain = load_dataset("mine", root)
    assert plain.corpus.labels == ("a", "b")
    assert plain.X is None
    assert plain.spec.name == "mine"
    assert plain.spec.stands_for is None
    assert not plain.as_published()

    zipped_documents = [{"labels": ["zipped"]}] * 2
    features = {"X": np.eye(2), "names": ("x", "y")}
    write_folder(tmp_path, "mine", zipped_documents, **features)
    featured = load_dataset("mine", tmp_path)
    assert featured.feature_names == ("x", "y")
    assert featured.X.shape == (2, 2)
    assert featured.corpus.labels == ("zipped",)
    assert featured.checksum != plain.checksum


def test_files_that_differ_from_the_published_ones_are_used_with_one_warning(tmp_path):
    root = write_hsun(tmp_path)
    with pytest.warns(PolysemeWarning, match=r"'hsun': .* your figures may differ") as caught:
        dataset = load_dataset("hsun", root)
    (warning,) = caught
    assert warning.filename == __file__
    files = "documents.jsonl.gz, feature_names.txt, features.npy"
    assert f"{files} differ" in str(warning.message)
    assert not dataset.as_published()


def test_the_warning_names_only_the_files_that_differ(tmp_path, monkeypatch):
    root = write_hsun(tmp_path)
    published = load_quietly("hsun", root)
    spec = replace(published.spec, checksums=published.files)
    monkeypatch.setitem(known_specs(), "hsun", spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = load_dataset("hsun", root)
    assert dataset.as_published()

    write_hsun(tmp_path, names=("sea", "tree"))
    with pytest.warns(PolysemeWarning, match=r"'hsun': feature_names.txt differ"):
        changed = load_dataset("hsun", tmp_path)
    assert changed.checksum != published.checksum


def test_files_of_a_dataset_without_checksums_are_used_without_warning(tmp_path):
    root = write_folder(tmp_path, "labelme", documents_of(), X=np.eye(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = load_dataset("labelme", root)
    assert not dataset.as_published()


# ------------------------------------------------------------------ choosing what is there


def test_the_first_candidate_whose_folders_are_all_there_is_chosen(tmp_path):
    pairs = (("magtag5k", "msd"), ("hetrec-lastfm", "msd-subset"))
    for name in ("magtag5k", "hetrec-lastfm", "msd-subset"):
        (tmp_path / name).mkdir()
    assert choose(pairs, tmp_path) == pairs[1]
    (tmp_path / "msd").mkdir()
    assert choose(pairs, tmp_path) == pairs[0]
    assert choose([("emoji",), ("hsun",)]) == ("emoji",)


@pytest.mark.parametrize(
    ("candidates", "sentence"),
    [
        ([("msd",), ("genius",)], r"None of msd, genius .*found there: hsun.*known.*corel5"),
        ([("hsun", "labelme"), ("iaprtc12",) * 2], "None of hsun with labelme, iaprtc12 has"),
        ([()], "must name at least one dataset"),
    ],
)
def test_choosing_among_missing_datasets_lists_those_that_are_there(tmp_path, candidates, sentence):
    with pytest.raises(InputError, match=sentence):
        choose(candidates, write_hsun(tmp_path))
    with pytest.raises(InputError, match=r"'hsun with labelme' is not part of polyseme"):
        choose([("hsun", "labelme")])


# ------------------------------------------------------------------ sentences for what is wrong


@pytest.mark.parametrize(
    ("name", "root", "sentence"),
    [
        ("hsun", None, r"'hsun' is not part of polyseme; set POLYSEME_DATA "),
        ("hsun", "file", r"`data` must name the folder .*file' is a file"),
        ("hsun", "no such", r"`data` must name .*no such' does not exist"),
        ("hsun", "empty", r"'hsun' has no folder in .*it holds no folder with doc"),
        ("hsun", "", r"'hsun' has no folder in .*found there: half, my pictures\)"),
        ("hsun", "my pictures", "name the folder above it"),
        ("empty", "", r"'empty': no documents.jsonl.gz or .*folder is empty"),
        ("half", "", r"'half': .*is not a complete gzip file"),
        ("my picture", "", r"known: .*did you mean 'my pictures'\?"),
        ("corel5", None, r"'corel5'; known: clips, .*you mean 'corel5k'\?"),
        *((name, "", "must be the name of one folder") for name in ("", "..", "a/b", "/hsun", 3)),
    ],
)
def test_what_is_not_there_gets_one_sentence(tmp_path, name, root, sentence):
    write_folder(tmp_path, "my pictures", documents_of())
    write_folder(tmp_path, "half", documents_of())
    (tmp_path / "half" / DOCUMENT_FILES[0]).write_bytes(b"half")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=sentence):
        load_dataset(name, None if root is None else tmp_path / root)


def test_errors_name_the_root_of_the_environment_and_unknown_samples(monkeypatch):
    monkeypatch.setenv("POLYSEME_DATA", "no such")
    with pytest.raises(InputError, match=r"^POLYSEME_DATA must name .* 'no such' does not exist"):
        load_dataset("hsun")
    with pytest.raises(InputError, match=r"'corel5'; known: clips, .*you mean 'corel5k'\?"):
        load_dataset("corel5", sample=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": None}, r"no features.npy in .*found there: documents.jsonl.gz, feature_names.txt"),
        ({"names": None}, r"no feature_names.txt in "),
        ({"names": ("sea", "\udcff")}, "Line 2 of feature_names.txt is not valid UTF-8"),
        ({"X": np.zeros((3, 2))}, r"features.npy has 3 rows for 4 documents"),
        ({"names": ("sea",)}, r"must name the 2 columns .* 1 different names in 1 lines"),
        ({"names": ("sea", "sea")}, r"must name the 2 columns .* 1 different names in 2 lines"),
        ({"X": np.array([[0, np.nan], [0, 0], [np.inf] * 2, [0, 0]])}, r"infinity in row.s. 0, 2;"),
        ({"X": np.full((4, 2), 1e300)}, r"infinity in row.s. 0, 1, 2, 3;"),
        ({"X": np.full((4, 2), 2.0)}, "must hold probabilities but 8 of its values lie outside"),
        ({"X": np.zeros(4)}, "must have two dimensions"),
        ({"X": np.array([[{}, {}]] * 4)}, "features.npy is not readable .*without pickled"),
        (
            {"documents": documents_of()[:1] * 4},
            r"Ids stand more than once in documents\.jsonl\.gz \(d0\)",
        ),
        ({"documents": [{"labels": ["a"]}] * 4}, "needs a `split` .* the field is missing"),
        (
            {"documents": [document | {"split": "train"} for document in documents_of()]},
            "needs a `split` .* got only train",
        ),
        ({"documents": [{"labels": 7}] * 4}, "Line 1 of documents.jsonl.gz must have 'labels'"),
    ],
)
def test_files_that_do_not_fit_get_one_sentence(tmp_path, changes, sentence):
    root = write_hsun(tmp_path, **changes)
    with pytest.raises(InputError, match=rf"^Dataset 'hsun': .*{sentence}"):
        load_dataset("hsun", root)


def test_missing_groups_get_one_sentence(tmp_path):
    root = write_folder(tmp_path, "genius", documents_of())
    with pytest.raises(InputError, match=r"'genius': every document needs a `group`"):
        load_dataset("genius", root)
