"""What yes or no costs: beside a whole new fit, when a model is loaded, and a million verdicts.

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

from polyseme.documents.corpus import LabelCorpus
from polyseme.feedback.verdict_log import Verdict, VerdictLog
from polyseme.space.concept_space import ConceptSpace
from polyseme.tagger import ZeroShotTagger, load


class Amount(NamedTuple):
    """Documents and labels of the model, items of the pool, and verdicts of the long log.

    `asked` labels are answered for; in the model that is loaded, each by `each` items.
    """

    documents: int
    labels: int
    pool: int
    verdicts: int
    asked: int
    each: int
    steps: int | None


AMOUNTS = {
    "full": Amount(2000, 300, 10_000, 1_000_000, 100, 1000, None),
    "quick": Amount(300, 30, 200, 2000, 20, 30, 8),
}
N_FEATURES = 512
EACH = 30
# A new fit takes at least so many times the seconds of one answer.
TARGET = 100.0
# What was kept makes loading at least so many times as fast.
LOADING_TARGET = 8.0
TEXT = """\
A tagger of {documents:,} documents, {labels:,} labels and {columns} features; answers are drawn. \
One answer, {some} answers for one label, and {some} for each of ten labels are learned in closed \
form, on disk when the call returns, beside a whole new fit with the same answers. Then the model \
is loaded with {each:,} answers for each of {asked} labels. Last, {verdicts:,} verdicts on \
{pool:,} items and {asked} labels: appended to the log with the items' vectors, taken up by a \
tagger that is loaded, one more answer, and one undone."""


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
        TEXT.format(columns=N_FEATURES, some=EACH, **amount._asdict()),
    )
    with tempfile.TemporaryDirectory() as made:
        folder, answered = Path(made) / "model", Path(made) / "answered"
        tagger.save(folder)
        tagger.save(answered)
        table, ratio = _answers(folder, amount, labels, features, corpus, pool)
        loading, loading_ratio = _loading(answered, amount, labels, pool)
        report.tables += [table, loading, _many(folder, amount, labels, pool)]
        report.ratios += [ratio, loading_ratio]
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


def _vectors(tagger: Any, pool: Any) -> dict[str, Any]:
    """Return what a log keeps of each item."""
    vectors = {}
    for start in range(0, len(pool), 4096):
        part = pool[start : start + 4096]
        codes = np.hstack([tagger.space_.project(part), tagger.space_.item_codes(part)])
        vectors |= {str(start + place): code for place, code in enumerate(codes)}
    return vectors


def _loading(folder: Path, amount: Amount, labels: list[str], pool: Any) -> tuple[Table, Ratio]:
    """Time the loading of a model with many answers, and what another process has to do then."""
    rng, tagger = np.random.default_rng(4), load(folder)
    asked, each = labels[: amount.asked], min(amount.each, len(pool))
    said = [
        Verdict(str(item), label, bool(rng.random() < 0.3))
        for label in asked
        for item in rng.permutation(len(pool))[:each]
    ]
    VerdictLog(folder).append(said, _vectors(tagger, pool), tagger.space_.digest_)
    seconds = {}
    for what in ("polyseme, nothing was kept", "polyseme, corrections were kept"):
        start = time.perf_counter()
        one: Any = load(folder)
        seconds[what] = time.perf_counter() - start
    other: Any = load(folder)
    items = map(str, range(len(pool)))
    ways: dict[str, Callable[[], object]] = {
        "polyseme, one answer more": lambda: one.learn([(next(items), labels[0], True)]),
        "polyseme, another process catches up with it": other.refresh,
        "polyseme, it looks again and nothing is new": other.refresh,
    }
    seconds |= seconds_of(ways, repeats=5)
    title = f"A model with {len(said):,} answers on {len(asked)} labels is loaded"
    first, then = list(seconds.values())[:2]
    rows: list[list[Any]] = [[name, value] for name, value in seconds.items()]
    note = "Both ways give the same scores. At full size, before corrections were kept and solved "
    note += "with few curvatures, every load took 30 s of processor time (AMD EPYC, one thread)."
    ratio = Ratio(
        "loading with what was kept, times as fast", round(first / then, 1), LOADING_TARGET
    )
    return Table(title, "what is done", ["way", "seconds"], rows, note), ratio


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

    vectors, n = _vectors(tagger, pool), amount.verdicts
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
        log.append([], vectors, tagger.space_.digest_)
        for start in range(0, n, 100_000):
            log.append(verdicts[start : start + 100_000])

    timed(f"append {n:,} verdicts and vectors of {len(pool):,} items", append)
    timed("take them up", lambda: tagger.use_log(log))
    numbers = timed("one answer more", lambda: tagger.learn([("0", labels[0], True)]))
    timed("undo it", lambda: tagger.undo(numbers))
    columns = ["what", "seconds", "memory so far, MB"]
    return Table(f"{n:,} verdicts", "what is done", columns, rows, bars=["seconds"])


if __name__ == "__main__":
    command_line(measure)
