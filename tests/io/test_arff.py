"""MULAN files: labels and features of ARFF tables, dense and sparse, with their label files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from polyseme._validation import InputError
from polyseme.io import read_documents, read_features

pytest.importorskip("arff", reason="the extra `arff` is not installed")

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
    content = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
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
    assert documents.labels == ["sky blue", "b\\c"] and documents.indicator.dtype == np.int64
    np.testing.assert_array_equal(documents.indicator.toarray(), [[1, 0], [0, 1], [1, 1]])
    features = read_features(path)
    assert isinstance(features, np.ndarray)
    np.testing.assert_array_equal(features, [[0.5, 3, 1], [np.nan, np.nan, 0], [0, 0, np.nan]])


def test_sparse_arff_stays_sparse(tmp_path):
    path = mulan(tmp_path, SPARSE, SPARSE_LABELS)
    documents = read_documents(path)
    assert documents.labels == ["a", "b, c"]
    np.testing.assert_array_equal(documents.indicator.toarray(), [[1, 1], [0, 0], [0, 1], [0, 0]])
    features = read_features(path)
    assert isinstance(features, sp.csr_matrix) and features.nnz == 3
    np.testing.assert_array_equal(features.toarray(), [[2.5, 0], [0, 0], [0, np.nan], [0, 1]])


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
    np.testing.assert_array_equal(read_documents(path).indicator.toarray(), [[1], [0]])
    with pytest.raises(InputError, match=r"Attribute 'name' of x\.arff must be numeric or \{0,1\}"):
        read_features(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@data", "", r"x\.arff is not readable as ARFF up to line \d+ \(Invalid layout"),
        ("{}", "0,2", r"up to line 8 \(Invalid layout"),
        ("{}", "{1}", r"up to line 8 .*Error parsing"),
        ("{}", "{4 1}", r"up to line 8 .*Bad @DATA instance format"),
        ("{}", "{3 x}", r"up to line 8 .*Invalid numerical value"),
        ("{}", "{1 2}", r"up to line 8 .*Data value 2 not found in nominal declaration"),
        ("{}", "{3 2}", r"x\.arff must have 0 or 1 for every label; got 2"),
        ("{}", "{3 ?}", r"x\.arff must have 0 or 1 for every label; got \?"),
        ("a {0,1}", "a {1,0}", r"'a' of x\.arff is declared \{1,0\}, so that leaving it out"),
        ("a {0,1}", "a {n,y}", r"Label 'a' of x\.arff must be numeric or \{0,1\}; got \['n', 'y'"),
        ("a {0,1}", "a", r"up to line 3 \(Bad @ATTRIBUTE format"),
        ("attribute a", "attribute z", r"x\.arff has no attribute 'a', which its label file names"),
        ("attribute x1", "attribute a", r"up to line 3 \(Bad @ATTRIBUTE name a"),
    ],
)
def test_arff_errors(tmp_path, old, new, message):
    path = mulan(tmp_path, SPARSE.replace(old, new, 1), SPARSE_LABELS)
    with pytest.raises(InputError, match=message):
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


def test_real_sparse_rows_equal_a_plain_loop(data):
    path = data / "mulan" / "Corel5k-test-sparse.arff"
    if not path.is_file():
        pytest.skip("the MULAN files are not here")
    lines = path.read_text().partition("@data\n")[2].splitlines()
    expected = np.zeros((len(lines), 873))
    for row, line in enumerate(lines):
        for pair in line.strip("{}").split(","):
            index, value = pair.split()
            expected[row, int(index)] = float(value)
    np.testing.assert_array_equal(read_features(path).toarray(), expected[:, :499])
    np.testing.assert_array_equal(read_documents(path).indicator.toarray(), expected[:, 499:])
