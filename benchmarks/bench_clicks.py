"""What yes or no costs: closed-form corrections beside a whole new fit, and a million verdicts.

python benchmarks/bench_clicks.py --out benchmarks
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _reporting import Ratio, Report, Table, command_line, peak_mb, seconds_of
from _synthetic import make_themes, synthetic_features, synthetic_matrix

from polyseme.corpus import LabelCorpus
from polyseme.space import ConceptSpace
from polyseme.tagger import ZeroShotTagger, load
from polyseme.verdicts import Verdict, VerdictLog


class Amount(NamedTuple):
    """Documents and labels of the model, items of the pool, and verdicts of the long log."""

    documents: int
    labels: int
    pool: int
    verdicts: int
    asked: int
    steps: int | None


AMOUNTS = {
    "full": Amount(2000, 300, 10_000, 1_000_000, 100, None),
    "quick": Amount(300, 30, 200, 2000, 50, 8),
}
N_FEATURES = 512
EACH = 30
# A new fit takes at least so many times the seconds of one answer.
TARGET = 100.0
TEXT = """\
A tagger of {documents:,} documents, {labels:,} labels and {columns} features; answers are drawn. \
One answer, {each} answers for one label, and {each} for each of ten labels are learned in closed \
form, on disk when the call returns, beside a whole new fit with the same answers. Then \
{verdicts:,} verdicts on {pool:,} items and {asked} labels: appended to the log with the items' \
vectors, taken up by a tagger that is loaded, one more answer, and one undone."""


def measure(size: str) -> Report:
    """Time answers in closed form, a new fit, and a long log."""
    amount = AMOUNTS[size]
    themes = make_themes(amount.labels, 0, n_features=N_FEATURES)
    matrix = synthetic_matrix(amount.documents, themes, 0)
    features = synthetic_features(matrix, themes, 0)
    labels = [f"label {n}" for n in range(themes.n_labels)]
    corpus = LabelCorpus.from_indicator(matrix, labels=labels)
    rows = np.random.default_rng(0).integers(amount.documents, size=amount.pool)
    pool = features[rows] + np.random.default_rng(1).normal(size=(amount.pool, N_FEATURES))
    tagger = ZeroShotTagger(ConceptSpace(n_steps=amount.steps), n_validations=0, random_state=0)
    tagger.fit(features, corpus)
    report = Report(
        "clicks",
        "Yes and no in closed form",
        TEXT.format(columns=N_FEATURES, each=EACH, **amount._asdict()),
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "model"
        tagger.save(folder)
        table, ratio = _answers(folder, amount, labels, features, corpus, pool)
        report.tables += [table, _many(folder, amount, labels, pool)]
        report.ratios.append(ratio)
    return report


def _answers(
    folder: Path,
    amount: Amount,
    labels: list[str],
    features: Any,
    corpus: LabelCorpus,
    pool: Any,
) -> tuple[Table, Ratio]:
    """Time some answers in closed form beside a new fit."""
    rng = np.random.default_rng(2)

    def said(n_labels: int, each: int) -> list[tuple[str, str, bool]]:
        return [
            (str(row), label, bool(rng.random() < 0.5))
            for label in rng.permutation(labels)[:n_labels].tolist()
            for row in rng.integers(len(pool), size=each)
        ]

    tagger: Any = load(folder)
    undone: list[tuple[int, ...]] = []

    def learning(n_labels: int, each: int) -> Callable[[], object]:
        return lambda: undone.append(tagger.learn(said(n_labels, each), pool))

    ways: dict[str, Callable[[], object]] = {
        "polyseme, one answer": learning(1, 1),
        f"polyseme, {EACH} answers for a label": learning(1, EACH),
        f"polyseme, {EACH} answers for each of ten labels": learning(10, EACH),
        "polyseme, undo": lambda: tagger.undo(undone.pop()),
    }
    seconds = seconds_of(ways, repeats=5)
    start = time.perf_counter()
    tagger.space, tagger.random_state = ConceptSpace(n_steps=amount.steps), 0
    tagger.n_validations = 0
    tagger.fit(features, corpus)
    seconds["a new fit"] = time.perf_counter() - start
    one = seconds["polyseme, one answer"]
    rows: list[list[Any]] = [[name, value, value / one] for name, value in seconds.items()]
    note = f"X is a table of {len(pool):,} rows, which is checked by every call."
    table = Table("Some answers", "what is done", ["way", "seconds", "of one answer"], rows, note)
    ratio = seconds["a new fit"] / one
    return table, Ratio("a new fit, of the seconds of one answer", round(ratio, 1), TARGET)


def _many(folder: Path, amount: Amount, labels: list[str], pool: Any) -> Table:
    """Time a long log: appending, taking up, one more answer, one undone."""
    rng = np.random.default_rng(3)
    tagger: Any = load(folder)
    log = VerdictLog(folder.parent / "long.sqlite")
    rows: list[list[Any]] = []

    def timed(what: str, one: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        found = one()
        rows.append([what, time.perf_counter() - start, peak_mb()])
        return found

    vectors = {}
    for start in range(0, len(pool), 4096):
        part = pool[start : start + 4096]
        codes = np.hstack([tagger.space_.sketch(part), tagger.space_.item_codes(part)])
        vectors |= {str(start + place): code for place, code in enumerate(codes)}
    n = amount.verdicts
    items, chosen, yes = (
        rng.integers(len(pool), size=n).tolist(),
        rng.integers(min(amount.asked, len(labels)), size=n).tolist(),
        (rng.random(n) < 0.3).tolist(),
    )
    verdicts = [
        Verdict(str(item), labels[label], answer)
        for item, label, answer in zip(items, chosen, yes, strict=True)
    ]

    def append() -> None:
        names = list(vectors)
        for start in range(0, len(names), 4096):
            some = {name: vectors[name] for name in names[start : start + 4096]}
            log.append([], some, tagger.space_.digest_)
        for start in range(0, n, 100_000):
            log.append(verdicts[start : start + 100_000])

    timed(f"append {n:,} verdicts and vectors of {len(pool):,} items", append)
    timed("take them up", lambda: tagger.take_up(log))
    numbers = timed("one answer more", lambda: tagger.learn([("0", labels[0], True)]))
    timed("undo it", lambda: tagger.undo(numbers))
    columns = ["what", "seconds", "memory so far, MB"]
    return Table(f"{n:,} verdicts", "what is done", columns, rows, bars=["seconds"])


if __name__ == "__main__":
    command_line(measure)
