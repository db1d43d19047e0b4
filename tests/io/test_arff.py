"""MULAN files: labels and features of ARFF tables, dense and sparse, with their label files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from polyseme.base.validation import InputError
from polyseme.io import read_documents, read_features

pytest.importorskip("lxml", reason="the extra `arff` is not installed")

DENSE = r"""% a comment
@RELATION 'some thing: -C 2'

@Attribute 'sky blue' {0, 1}
@attribute x1 NUMERIC
	@attribute	x3	integer
@attribute flag {'0','1'}
@attribute b\c {1,0}
@DATA
% another
1, 0.5, 3, 1, 0
0,?,?,'0',1

'1',0,0,?,1
"""
LABELS = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="b\\c"><label name="sky blue"/></label>
</labels>"""
SPARSE = """@relation s
@attribute x1 numeric
@attribute a {0,1}
@attribute x2 {0,1}
@attribute 'b, c' numeric
@data
{0 2.5,1 1, 3 1}
{}
{ 3	1, 2 ? }
{2 1,0 0,1 0}
"""
SPARSE_LABELS = '<labels><label name="a"/><label name="b, c"/></labels>'


def put(path: Path, text: str | bytes) -> Path:
    content = text.encode("utf-8") if isinstance(text, str) else text
    if path.suffix == ".gz":
        content = gzip.compress(content)
    path.write_bytes(content)
    return path


def mulan(folder: Path, arff: str, xml: str, name: str = "x.arff", label_file: str = "x.xml"):
    put(folder / label_file, xml)
    return put(folder / name, arff)


@pytest.mark.parametrize(
    ("name", "label_file"),
    [
        ("x.arff", "x.xml"),
        ("x.ARFF", "x.xml.gz"),
        ("x-train-sparse.arff", "x.xml"),
        ("x.orig.arff.gz", "x.xml.gz"),
    ],
)
def test_dense_arff(tmp_path, name, label_file):
    path = mulan(tmp_path, DENSE, LABELS, name, label_file)
    documents = read_documents(path)
    assert documents.labels == ["sky blue", "b\\c"]
    indicator = documents.indicator
    assert indicator.dtype == np.int64
    assert_array_equal(indicator.toarray(), [[1, 0], [0, 1], [1, 1]])
    features = read_features(path)
    assert isinstance(features, np.ndarray)
    assert_array_equal(features, [[0.5, 3, 1], [np.nan, np.nan, 0], [0, 0, np.nan]])


def test_sparse_arff_stays_sparse(tmp_path):
    path = mulan(tmp_path, SPARSE, SPARSE_LABELS)
    documents = read_documents(path)
    assert documents.labels == ["a", "b, c"]
    assert_array_equal(documents.indicator.toarray(), [[1, 1], [0, 0], [0, 1], [0, 0]])
    features = read_features(path)
    assert isinstance(features, sp.csr_matrix)
    assert features.nnz == 3
    assert_array_equal(features.toarray(), [[2.5, 0], [0, 0], [0, np.nan], [0, 1]])


def test_wide_sparse_arff_is_not_made_dense(tmp_path):
    n_columns = 20_000
    lines = ["@relation w"]
    for column in range(n_columns):
        lines.append(f"@attribute f{column} numeric")
    lines += ["@attribute l {0,1}", "@data"]
    for column in range(0, n_columns, 4):
        lines.append(f"{{{column} 1,{n_columns} 1}}")
    path = mulan(tmp_path, "\n".join(lines) + "\n", '<labels><label name="l"/></labels>')
    features = read_features(path)
    # Dense, these 5000 rows would take 800 MB.
    assert features.shape == (n_columns // 4, n_columns)
    assert features.nnz == n_columns // 4


def test_a_missing_label_file_lists_what_was_tried(tmp_path):
    path = put(tmp_path / "x-train.arff", DENSE)
    message = r"Label file of x-train\.arff not found at .*: x-train\.xml, .*, x\.xml, x\.xml\.gz"
    with pytest.raises(InputError, match=message):
        read_features(path)


def test_features_that_are_no_numbers_do_not_hinder_the_labels(tmp_path):
    arff = (
        "@relation r\n@attribute name string\n@attribute colour {red,'dark, green'}\n"
        "@attribute l {0,1}\n@data\n'a, \\'b\\' % c','dark, green',1\nd,red,0\n"
    )
    path = mulan(tmp_path, arff, '<labels><label name="l"/></labels>')
    assert_array_equal(read_documents(path).indicator.toarray(), [[1], [0]])
    with pytest.raises(InputError, match=r"Attribute 'name' of x\.arff must be numeric or \{0,1\}"):
        read_features(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@data", "", r"Line 7 of x\.arff must be an @attribute .*or @data; got '\{0 2\.5"),
        (SPARSE.partition("@data")[1] + SPARSE.partition("@data")[2], "", "has no @data line"),
        ("{}", "0,2", r"Line 8 of x\.arff is no ARFF row: it has 2 values for 4 attributes"),
        ("{}", "{1}", r"Line 8 .*'1' is not the number of another attribute, below 4, and a value"),
        ("{}", "{4 1}", r"Line 8 .*'4 1' is not the number of another attribute"),
        ("{}", "{0 1, 0 2}", r"Line 8 .*'0 2' is not the number of another attribute"),
        ("{}", "{3 x}", r"Line 8 .*could not convert string to float: 'x'"),
        ("{}", "{3 1", r"Line 8 .*a brace is not closed"),
        ("{}", "{3 'a}", r"Line 8 .*a quote is not closed"),
        ("{}", "{1 2}", r"x\.arff must have 0 or 1 for 'a'; got 2"),
        ("{}", "{3 ?}", r"x\.arff must have 0 or 1 for 'b, c'; got \?"),
        ("a {0,1}", "a {1,0}", r"Line 7 .*'a' is \{1,0\}, so leaving it out means 1"),
        ("a {0,1}", "a {n,y}", r"Label 'a' of x\.arff must be numeric or \{0,1\}; got '\{n,y\}'"),
        ("a {0,1}", "a", r"Line 3 of x\.arff must be an @attribute with a name"),
        ("a {0,1}", "'a {0,1}", r"Line 3 of x\.arff must be an @attribute with a name"),
        ("attribute a", "attribute z", r"x\.arff has no attribute 'a', which its label file names"),
        ("attribute x1", "attribute a", r"Line 3 of x\.arff must be .* a name of its own"),
    ],
)
def test_arff_errors(tmp_path, old, new, message):
    path = mulan(tmp_path, SPARSE.replace(old, new, 1), SPARSE_LABELS)
    with pytest.raises(InputError, match=message):
        read_documents(path)


def test_a_binary_feature_with_another_value_is_refused(tmp_path):
    text = SPARSE.replace("{}", "{2 7}")
    path = mulan(tmp_path, text, SPARSE_LABELS)
    with pytest.raises(InputError, match=r"x\.arff must have 0 or 1 for 'x2'; got 7"):
        read_features(path)


# A parser that goes back would need longer than the world has lasted; this one ends at once.
HOSTILE = ("{" + "'a'," * 99_999, "{" + "' " * 99_999, "'" + "\\'" * 99_999, " ' ' " * 99_999)


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: line[:5])
@pytest.mark.parametrize("replaced", ["{0,1}", "{}"])
def test_hostile_lines_are_refused_at_once(tmp_path, line, replaced):
    text = SPARSE.replace(replaced, line, 1)
    path = mulan(tmp_path, text, SPARSE_LABELS)
    with pytest.raises(InputError, match=r"x\.arff"):
        read_documents(path)


BOMB = '<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><labels><label name="&b;"/></labels>'


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (BOMB, r"x\.xml has a DOCTYPE"),
        (BOMB.encode("utf-16"), r"Line 1 of x\.xml is not valid UTF-8"),
        ("<labels><label", r"x\.xml is not well-formed XML"),
        ("<labels><label/></labels>", r"x\.xml must list labels as <label name="),
        ('<l><label name="a"/><label name="a"/></l>', r"x\.xml must name each label once; got 'a'"),
    ],
)
def test_label_file_errors(tmp_path, xml, message):
    with pytest.raises(InputError, match=message):
        read_documents(mulan(tmp_path, SPARSE, xml))


def test_an_overlong_label_file_is_refused(tmp_path):
    blank_line = 2**20 * " " + "\n"
    labels = SPARSE_LABELS + 17 * blank_line
    path = mulan(tmp_path, SPARSE, labels, label_file="x.xml.gz")
    with pytest.raises(InputError, match=r"x\.xml\.gz is longer than any label file should be"):
        read_documents(path)


@pytest.fixture(scope="module")
def real(data) -> Path:
    if not (data / "mulan").is_dir():
        pytest.skip("the MULAN files are not here")
    return data / "mulan"


@pytest.mark.parametrize(
    ("name", "n", "n_labels", "n_features", "n_ones", "sparse"),
    [
        ("Corel5k-sparse.arff", 5000, 374, 499, 17610, True),
        ("Corel5k-train-sparse.arff", 4500, 374, 499, 15847, True),
        ("CAL500.arff.gz", 502, 174, 68, 13074, False),
        ("emotions.orig.arff.gz", 593, 6, 72, 1108, False),
    ],
)
def test_real_files_have_their_published_counts(
    real, name, n, n_labels, n_features, n_ones, sparse
):
    documents = read_documents(real / name)
    features = read_features(real / name)
    assert len(documents.labels) == n_labels
    assert documents.indicator.shape == (n, n_labels)
    assert documents.indicator.nnz == n_ones
    assert features.shape == (n, n_features)
    assert sp.issparse(features) == sparse
    values = features.data if sparse else features
    assert np.isfinite(values).all()


def test_real_sparse_rows_equal_a_plain_loop(real):
    path = real / "Corel5k-test-sparse.arff"
    _, _, data = path.read_text().partition("@data\n")
    lines = data.splitlines()
    expected = np.zeros((len(lines), 873))
    for row, line in enumerate(lines):
        for pair in line.strip("{}").split(","):
            column, value = pair.split()
            expected[row, int(column)] = float(value)
    features = read_features(path)
    documents = read_documents(path)
    assert_array_equal(features.toarray(), expected[:, :499])
    assert_array_equal(documents.indicator.toarray(), expected[:, 499:])
