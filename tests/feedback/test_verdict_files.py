"""Verdicts in files: tables that are read, refused or skipped, and JSON lines."""

from __future__ import annotations

import gzip
import json

import pytest

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.feedback.verdict_files import read_verdicts, write_verdicts
from polyseme.feedback.verdict_log import Verdict

FULL = Verdict("a.jpg", "canoe", True, 0.25, 3, "1f0c", "Ännä", "2026-01-31T12:00:00+00:00")

ROWS = [
    {"item": "a", "label": "canoe, red", "answer": "yes", "score": 0.5, "rank": 2, "who": "Ännä"},
    {"item": "b", "label": "sea", "answer": "no"},
]
READ = [
    Verdict("a", "canoe, red", True, 0.5, 2, None, "Ännä"),
    Verdict("b", "sea", False),
]


def test_json_lines_are_read_gzipped_or_not(tmp_path):
    lines = [json.dumps(row) for row in ROWS]
    content = "\n".join(lines).encode()
    plain = tmp_path / "v.jsonl"
    plain.write_bytes(content)
    compressed = tmp_path / "v.jsonl.gz"
    compressed.write_bytes(gzip.compress(content))
    assert read_verdicts(plain) == READ
    assert read_verdicts(compressed) == READ


@pytest.mark.parametrize("cell", ['"answer": null', '"answer": ""'])
def test_questions_without_an_answer_are_passed_over(tmp_path, cell):
    question = f'{{"item": "b", "label": "sea", "reason": "likely", {cell}}}\n'
    (tmp_path / "v.jsonl").write_text(question + '{"item": "a", "label": "sea", "answer": "no"}\n')
    with pytest.warns(PolysemeWarning, match="no answer are passed over: 1") as caught:
        assert read_verdicts(tmp_path / "v.jsonl") == [Verdict("a", "sea", False)]
    assert len(caught) == 1, "why it was asked is no unknown column"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "feather"])
def test_tables_are_read_as_pandas_writes_them(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    path = tmp_path / f"v.{suffix}"
    if suffix in ("csv", "tsv"):
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    else:
        pytest.importorskip("pyarrow")
        getattr(frame, f"to_{suffix}")(path)
    assert read_verdicts(path) == READ


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *[(text, True) for text in ("true", '"yes"', '"Y"', "1", '"1"', '" TRUE "', "1.0")],
        *[(text, False) for text in ("false", '"no"', '"n"', "0", '"0"', '"False"', "0.0")],
    ],
)
def test_an_answer_may_be_said_in_many_ways(tmp_path, text, answer):
    (tmp_path / "v.jsonl").write_text(f'{{"id": 7, "label": "sea", "answer": {text}}}')
    assert read_verdicts(tmp_path / "v.jsonl") == [Verdict("7", "sea", answer)]


GOOD = '{"item": "a", "label": "sea", "answer": true}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"item": "a", "label": "sea", "answer": "perhaps"}', "true or false, yes or no, .*'perh"),
        ('{"item": "a", "label": "sea"}', "as `answer`; got None"),
        ('{"label": "sea", "answer": 1}', "as `item`; got None"),
        ('{"item": true, "label": "sea", "answer": 1}', "as `item`; got True"),
        ('{"item": "a", "answer": 1}', "as `label`; got None"),
        ('{"item": "a", "label": ["sea"], "answer": 1}', "as `label`; got \\['sea'\\]"),
        ('{"item": "a", "label": "sea", "answer": 1, "score": NaN}', "as `score`; got nan"),
        ('{"item": "a", "label": "sea", "answer": 1, "score": "high"}', "as `score`; got 'high'"),
        ('{"item": "a", "label": "sea", "answer": 1, "rank": 1.5}', "as `rank`; got 1.5"),
        ('{"item": "a", "label": "sea", "answer": 1, "time": 5}', "as `time`; got 5"),
        ('["sea"]', "as `answer`; got None"),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_bad_line_is_told_with_its_number(tmp_path, line, message):
    (tmp_path / "v.jsonl").write_text(GOOD + "\n" + line + "\n" + GOOD)
    with pytest.raises(InputError, match=f"Line 3 of v.jsonl .*{message}"):
        read_verdicts(tmp_path / "v.jsonl")


def test_a_bad_row_of_a_table_is_told_with_its_number(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = [*ROWS, {"item": "c", "label": None, "answer": "no"}]
    pandas.DataFrame(rows).to_parquet(tmp_path / "v.parquet")
    with pytest.raises(InputError, match=r"Row 0 of v.parquet|Row 2 of v.parquet .* as `label`"):
        read_verdicts(tmp_path / "v.parquet")


def test_columns_that_are_not_read_are_told_of(tmp_path):
    (tmp_path / "v.csv").write_text("item,label,answer,Score,number\na,sea,1,0.5,3\n")
    with pytest.warns(PolysemeWarning, match=r"of v.csv that are not read: Score; verdicts have"):
        assert read_verdicts(tmp_path / "v.csv") == [Verdict("a", "sea", True)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v.jsonl", "There is no file at"),
        (".", "There is no file at"),
        ("v.txt", "Unknown file su"),
    ],
)
def test_a_file_that_cannot_be_verdicts_is_refused(tmp_path, name, message):
    (tmp_path / "v.txt").write_text(GOOD)
    with pytest.raises(InputError, match=message):
        read_verdicts(tmp_path / name)


def test_what_is_written_is_read_again_without_numbers(tmp_path):
    verdicts = [*READ, FULL._replace(number=3)]
    write_verdicts(verdicts, tmp_path / "v.jsonl")
    assert read_verdicts(tmp_path / "v.jsonl") == [*READ, FULL]
    number = json.loads((tmp_path / "v.jsonl").read_text().splitlines()[2])["number"]
    assert number == 3


def test_verdicts_that_cannot_be_written_leave_the_old_file(tmp_path):
    path = tmp_path / "v.jsonl"
    write_verdicts([FULL], path)
    with pytest.raises(InputError, match="Verdict 1 must have a probability"):
        write_verdicts([FULL, FULL._replace(score=7.0)], path)
    assert read_verdicts(path) == [FULL]
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(InputError, match=r"are written as .jsonl; got 'v.csv'"):
        write_verdicts([FULL], tmp_path / "v.csv")
    with pytest.raises(InputError, match=r"There is no folder '.*absent'"):
        write_verdicts([FULL], tmp_path / "absent" / "v.jsonl")
