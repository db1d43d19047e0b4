from __future__ import annotations

import gzip
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polyseme import LabelCorpus
from polyseme._validation import InputError, PolysemeWarning
from polyseme.datasets import FORMS, available, choose, load_dataset
from polyseme.datasets import specs as forms_package
from polyseme.datasets.base import DOCUMENT_FILES

ORIGINALS = {"magtag5k", "labelme", "msd"}
EMBEDDED = {name for name, form in FORMS.items() if form.embedded is not None}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))

# Documents, labels and empty documents, as the README beside the real files says.
COUNTS = {
    "hsun": (8684, 111, 13),
    "corel5k": (4999, 260, 7),
    "msd-subset": (3611, 1324, 0),
    "magnatagatune-part": (5861, 50, 0),
    "mtg-jamendo": (55525, 183, 0),
    "genius": (193230, 982, 0),
    "hetrec-lastfm": (12523, 9743, 0),
    "espgame": (21846, 269, 0),
    "iaprtc12": (19457, 291, 0),
}


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
        (folder / "feature_names.txt").write_text("\n".join(names) + "\n")
    return root


def documents_of(n=4, **fields):
    """Make documents in the form of the files, alternating between train and test."""
    return [
        {"id": f"d{row}", "labels": ["sea", f"label {row}"], "split": ("train", "test")[row % 2]}
        | {name: f"{name} {row // 2}" for name in fields}
        for row in range(n)
    ]


def write_hsun(root, **changes):
    """Write a folder `hsun` that loads, but for what is changed."""
    given = {"X": np.full((4, 2), 0.25, dtype=np.float32), "names": ("sea", "sky")} | changes
    return write_folder(root, "hsun", given.pop("documents", documents_of()), **given)


def load_quietly(name, root):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        return load_dataset(name, root)


# ------------------------------------------------------------------ the five things


def test_every_file_of_the_folder_is_registered_under_its_name():
    files = {path.stem for path in Path(forms_package.__file__).parent.glob("[!_]*.py")}
    assert files == {name.replace("-", "_") for name in set(FORMS) - EMBEDDED}
    assert all(form.name == name for name, form in FORMS.items())


@each_form
def test_every_form_has_an_index(form):
    assert form.title and form.domain in ("images", "music")
    assert form.files()[0] == "documents.jsonl.gz"
    assert ("features.npy" in form.files()) == form.has_features
    if form.name in ORIGINALS:
        assert (form.n_documents, form.n_labels) == (None, None)
    else:
        assert form.n_documents > form.n_labels > 1
    assert not (form.detectors or form.square_root) or form.has_features


@each_form
def test_every_form_has_checksums_of_its_files(form):
    if form.name in ORIGINALS:
        assert form.checksums == {} and form.stands_for is None
    elif form.name in EMBEDDED:
        assert form.checksums == {}, "their loaders check the package's own files"
    else:
        assert set(form.files()) <= set(form.checksums)
        assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in form.checksums.values())
        assert ("features.npy" in form.checksums) == form.has_features


@each_form
def test_every_form_has_a_citation_and_a_licence(form):
    known = re.search(r": .+\. .*\b(19|20)\d\d\.$", form.citation)
    assert known or form.citation.startswith("none known to us")
    assert form.licence


@each_form
def test_every_form_has_a_sample(form):
    sample = load_dataset(form.name, sample=True)
    assert sample.is_sample and sample.form is form and len(sample.corpus) > 100


@each_form
def test_every_form_has_its_row_in_the_table_of_the_docs(form):
    page = Path(__file__).parents[1] / "docs" / "files.md"
    counts = ["not known" if n is None else f"{n:,}" for n in (form.n_documents, form.n_labels)]
    features = "yes" if form.has_features else "no"
    cells = (
        f"`{form.name}`",
        form.title,
        *counts,
        features,
        form.stands_for or "itself",
        form.licence,
    )
    assert f"| {' | '.join(cells)} |" in page.read_text("utf-8").splitlines()


# ------------------------------------------------------------------ folders that load


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_folder_is_loaded_with_everything_in_it(tmp_path, kind):
    X = np.array([[0.25, 1], [0, 0], [1, 0.5], [0.0625, 1]], dtype=kind)
    root = write_hsun(tmp_path, X=X)
    hsun = load_quietly("hsun", root)
    assert hsun.corpus.ids == ("d0", "d1", "d2", "d3")
    assert hsun.corpus.splits == ("train", "test", "train", "test")
    assert hsun.corpus.groups is None and hsun.feature_names == ("sea", "sky")
    assert hsun.X.dtype == np.float32
    assert np.allclose(hsun.X, np.sqrt(X.astype(np.float32)))
    assert set(hsun.files) == {"documents.jsonl.gz", "features.npy", "feature_names.txt"}
    assert not hsun.is_sample


def test_groups_are_kept_and_features_stay_as_they_are_without_a_square_root(tmp_path):
    X = np.array([[-4.0], [4.0], [0.0], [1.0]])
    root = write_folder(tmp_path, "msd-subset", documents_of(group=True), X=X)
    songs = load_quietly("msd-subset", root)
    assert songs.corpus.groups == ("group 0", "group 0", "group 1", "group 1")
    assert np.array_equal(songs.X, X) and songs.feature_names is None


def test_the_root_may_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYSEME_DATA", str(write_hsun(tmp_path / "from the environment")))
    assert len(load_quietly("hsun", None).corpus) == 4
    other = write_hsun(tmp_path / "named", documents=documents_of(2), X=np.zeros((2, 2)))
    assert len(load_quietly("hsun", other).corpus) == 2


def test_a_folder_of_ones_own_needs_no_form(tmp_path):
    documents = [{"labels": ["a", "b"]}, {"labels": []}]
    mine = load_dataset("mine", write_folder(tmp_path, "mine", documents, zipped=False))
    assert mine.corpus.labels == ("a", "b") and mine.X is None and mine.form.name == "mine"
    assert mine.form.stands_for is None and not mine.as_published()
    write_folder(tmp_path, "mine", documents, X=np.eye(2), names=("x", "y"), zipped=False)
    featured = load_dataset("mine", tmp_path)
    assert featured.feature_names == ("x", "y") and featured.X.shape == (2, 2)
    assert featured.checksum != mine.checksum
    with pytest.raises(InputError, match=r"Unknown dataset 'mine'; known: clips, corel5k, "):
        mine.form.sample()


def test_the_zipped_documents_come_before_the_unzipped_ones(tmp_path):
    write_folder(tmp_path, "mine", [{"labels": ["unzipped"]}], zipped=False)
    write_folder(tmp_path, "mine", [{"labels": ["zipped"]}])
    assert load_dataset("mine", tmp_path).corpus.labels == ("zipped",)


def test_other_files_than_the_published_ones_are_used_with_one_warning(tmp_path):
    root = write_hsun(tmp_path)
    with pytest.warns(PolysemeWarning, match=r"'hsun': .* your figures may differ") as met:
        hsun = load_dataset("hsun", root)
    assert len(met) == 1 and met[0].filename == __file__
    assert "documents.jsonl.gz, feature_names.txt, features.npy differ" in str(met[0].message)
    assert not hsun.as_published()
    published = replace(hsun, form=replace(hsun.form, checksums=hsun.files))
    assert published.as_published()


def test_the_warning_names_only_the_files_that_differ(tmp_path, monkeypatch):
    first = load_quietly("hsun", write_hsun(tmp_path))
    monkeypatch.setitem(FORMS, "hsun", replace(first.form, checksums=first.files))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_dataset("hsun", tmp_path).as_published()
    write_hsun(tmp_path, names=("sea", "tree"))
    with pytest.warns(PolysemeWarning, match=r"'hsun': feature_names.txt differ"):
        second = load_dataset("hsun", tmp_path)
    assert second.checksum != first.checksum


def test_an_original_that_a_user_brings_needs_no_warning(tmp_path):
    root = write_folder(tmp_path, "labelme", documents_of(), X=np.eye(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not load_dataset("labelme", root).as_published()


# ------------------------------------------------------------------ choosing what is there


def test_the_first_candidate_whose_folders_are_all_there_is_chosen(tmp_path):
    pairs = (("magtag5k", "msd"), ("hetrec-lastfm", "msd-subset"))
    for name in ("magtag5k", "hetrec-lastfm", "msd-subset"):
        (tmp_path / name).mkdir()
    assert choose(pairs, tmp_path) == pairs[1]
    assert available(["msd", "msd-subset"], tmp_path) == "msd-subset"
    (tmp_path / "msd").mkdir()
    assert choose(pairs, tmp_path) == pairs[0]
    assert available(["msd", "msd-subset"], tmp_path) == "msd"


def test_choosing_among_what_is_not_there_says_what_is(tmp_path):
    root = write_hsun(tmp_path)
    with pytest.raises(
        InputError, match=r"None of msd, genius .*found there: hsun.*known.*corel5k"
    ):
        available(["msd", "genius"], root)
    with pytest.raises(InputError, match=r"None of hsun with labelme, iaprtc12 has"):
        choose([("hsun", "labelme"), ("iaprtc12", "iaprtc12")], root)
    with pytest.raises(InputError, match=r"'hsun with labelme' is not part of polyseme"):
        choose([("hsun", "labelme")])
    with pytest.raises(InputError, match="`names` of `available` must be a list of names"):
        available("hsun", root)
    for empty in ([], [()]):
        with pytest.raises(InputError, match="must name at least one dataset"):
            choose(empty, root)


# ------------------------------------------------------------------ sentences for what is wrong


def test_without_a_data_root_the_ways_out_are_named():
    with pytest.raises(
        InputError, match=r"'hsun' is not part of polyseme; set POLYSEME_DATA .*`data`.*sample"
    ):
        load_dataset("hsun")


def test_a_data_root_that_is_no_folder_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"`data` must name the folder .* 'no such' does not"):
        load_dataset("hsun", "no such")
    with pytest.raises(InputError, match=r"`data` must name the folder .*file' is a file"):
        load_dataset("hsun", tmp_path / "file")
    monkeypatch.setenv("POLYSEME_DATA", "no such")
    with pytest.raises(InputError, match=r"^POLYSEME_DATA must name the folder"):
        load_dataset("hsun")


def test_unknown_names_get_the_known_ones_and_the_closest(tmp_path):
    known = r"Unknown dataset 'corel5'; known: clips, corel5k, .*did you mean 'corel5k'\?"
    with pytest.raises(InputError, match=known):
        load_dataset("corel5")
    with pytest.raises(InputError, match=known):
        load_dataset("corel5", sample=True)
    write_folder(tmp_path, "my pictures", documents_of())
    with pytest.raises(InputError, match=r"known: .*did you mean 'my pictures'\?"):
        load_dataset("my picture", tmp_path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/hsun", 3])
def test_a_name_is_one_folder(name, tmp_path):
    with pytest.raises(InputError, match="must be the name of one folder"):
        load_dataset(name, tmp_path)


def test_a_missing_folder_is_told_with_those_that_are_there(tmp_path):
    with pytest.raises(InputError, match=r"'hsun' has no folder in .*it holds no folder with doc"):
        load_dataset("hsun", tmp_path)
    root = write_folder(tmp_path, "mine", documents_of())
    write_folder(tmp_path, "corel5k", documents_of(), zipped=False)
    with pytest.raises(InputError, match=r"found there: corel5k, mine\)"):
        load_dataset("hsun", root)
    with pytest.raises(InputError, match="name the folder above it"):
        load_dataset("hsun", root / "mine")


def test_a_missing_documents_file_is_told_with_the_files_that_are_there(tmp_path):
    (tmp_path / "hsun").mkdir()
    with pytest.raises(InputError, match=r"'hsun': no documents.jsonl.gz or .*folder is empty"):
        load_dataset("hsun", tmp_path)
    (tmp_path / "hsun" / "notes.txt").touch()
    with pytest.raises(InputError, match=r"found there: notes.txt\)"):
        load_dataset("hsun", tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": None}, r"no features.npy in .*found there: documents.jsonl.gz, feature_names.txt"),
        ({"names": None}, r"no feature_names.txt in .*label of each column"),
        ({"X": np.zeros((3, 2))}, r"features.npy has 3 rows but documents.jsonl.gz has 4 docum"),
        ({"names": ("sea",)}, r"feature_names.txt has 1 names but features.npy has 2 columns"),
        ({"names": ("sea", "sea")}, "names the column 'sea' twice"),
        ({"X": np.array([[0, np.nan]] * 2 + [[np.inf] * 2] + [[0, 0]])}, "4 values that are not"),
        ({"X": np.full((4, 2), 1e300)}, "8 values that are not finite, in row.s. 0, 1, 2, 3;"),
        ({"X": np.full((4, 2), 2.0)}, "must hold probabilities but 8 of its values lie outside"),
        ({"X": np.full((4, 2), -0.5)}, "must hold probabilities but 8 of its values lie outside"),
        ({"X": np.zeros(4)}, "must have two dimensions"),
        ({"X": np.full((4, 2), "a")}, "must be numbers"),
        ({"documents": documents_of()[:1] * 4}, "id 'd0' is given twice"),
        ({"documents": [{"labels": ["a"]}] * 4}, "needs a `split` .* the field is missing"),
        (
            {"documents": [one | {"split": "train"} for one in documents_of()]},
            "needs a `split` .* got only train",
        ),
        ({"documents": [{"labels": "sea"}] * 4}, "Line 1 of documents.jsonl.gz must have 'labels'"),
    ],
)
def test_files_that_do_not_fit_get_one_sentence(tmp_path, changes, sentence):
    with pytest.raises(InputError, match=rf"^Dataset 'hsun': .*{sentence}"):
        load_dataset("hsun", write_hsun(tmp_path, **changes))


def test_missing_groups_are_told_where_a_split_needs_them(tmp_path):
    root = write_folder(tmp_path, "genius", documents_of())
    with pytest.raises(InputError, match=r"'genius': every document needs a `group`"):
        load_dataset("genius", root)


def test_damaged_files_get_one_sentence(tmp_path):
    folder = write_hsun(tmp_path) / "hsun"
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    documents, features, names = "documents.jsonl.gz", "features.npy", "feature_names.txt"
    broken = gzip.compress(b'{"labels": ["a"]}\n{"labels": [\n')
    for file, content, sentence in (
        (documents, whole[documents][:-12], "documents.jsonl.gz is not a complete gzip file"),
        (documents, b"not gzip", "documents.jsonl.gz is not a complete gzip file"),
        (documents, broken, r"Line 2 of documents.jsonl.gz is not valid JSON"),
        (documents, gzip.compress(b""), "documents.jsonl.gz holds no documents"),
        (documents, gzip.compress(b'{"labels": ["\xff"]}'), "Line 1 of .* is not valid UTF-8"),
        (features, whole[features][:-4], "features.npy is not readable as a numpy file"),
        (features, b"", "features.npy is not readable as a numpy file"),
        (names, b"sea\n\xff\n", "feature_names.txt is not valid UTF-8"),
    ):
        (folder / file).write_bytes(content)
        with pytest.raises(InputError, match=rf"^Dataset 'hsun': {sentence}"):
            load_dataset("hsun", tmp_path)
        (folder / file).write_bytes(whole[file])
    assert len(load_quietly("hsun", tmp_path).corpus) == 4


def test_features_that_hide_code_or_an_archive_are_refused(tmp_path):
    folder = write_hsun(tmp_path) / "hsun"
    np.save(folder / "features.npy", np.array([[{}, {}]] * 4), allow_pickle=True)
    with pytest.raises(InputError, match=r"'hsun': features.npy is not readable .*without pickled"):
        load_dataset("hsun", tmp_path)
    with (folder / "features.npy").open("wb") as stream:
        np.savez(stream, X=np.zeros((4, 2)))
    with pytest.raises(InputError, match=r"'hsun': features.npy is an archive"):
        load_dataset("hsun", tmp_path)


# ------------------------------------------------------------------ the real files


@pytest.mark.parametrize("name", COUNTS)
def test_the_real_files_are_those_that_the_form_describes(name, data):
    if not (data / name).is_dir():
        pytest.skip(f"the dataset {name} is not here")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = load_dataset(name, data)
    corpus, form = dataset.corpus, dataset.form
    n_documents, n_labels, n_empty = COUNTS[name]
    assert dataset.as_published()
    assert len(corpus) == form.n_documents == n_documents
    assert len(corpus.labels) == form.n_labels == n_labels
    assert (np.diff(corpus.matrix.indptr) == 0).sum() == n_empty
    if form.has_features:
        assert len(dataset.X) == n_documents and dataset.X.dtype == np.float32
    if form.detectors:
        assert set(dataset.feature_names) == set(corpus.labels)


def test_six_labels_of_hetrec_are_spelled_in_two_ways(data):
    if not (data / "hetrec-lastfm").is_dir():
        pytest.skip("the dataset hetrec-lastfm is not here")
    path = data / "hetrec-lastfm" / "documents.jsonl.gz"
    assert len(LabelCorpus.read(path, normalize=False).labels) == 9749


def test_every_dataset_with_files_has_its_counts_here():
    assert set(COUNTS) == set(FORMS) - ORIGINALS - EMBEDDED


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_an_embedded_dataset_has_the_counts_of_its_form(name):
    dataset = load_dataset(name)
    assert not dataset.is_sample
    assert len(dataset.corpus) == dataset.form.n_documents
    assert len(dataset.corpus.labels) == dataset.form.n_labels
    assert (dataset.X is not None) == dataset.form.has_features
    assert (dataset.corpus.groups is not None) == dataset.form.has_groups
