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
    row_draws = np.random.default_rng(0)
    noise_draws = np.random.default_rng(1)
    rows = row_draws.integers(amount.documents, size=amount.pool)
    noise = noise_draws.normal(size=(amount.pool, N_FEATURES))
    pool = features[rows] + noise
    space = ConceptSpace(n_steps=amount.steps)
    tagger = ZeroShotTagger(space, n_validations=0, random_state=0)
    tagger.fit(features, corpus)
    text = TEXT.format(columns=N_FEATURES, some=EACH, **amount._asdict())
    report = Report("clicks", "Yes and no in closed form", text)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        answered = Path(work) / "answered"
        tagger.save(folder)
        tagger.save(answered)
        table, ratio = _answers(folder, amount, labels, features, corpus, pool)
        loading, loading_ratio = _loading(answered, amount, labels, pool)
        many = _many(folder, amount, labels, pool)
    report.tables += [table, loading, many]
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

    def draw_answers(n_labels: int, each: int) -> list[tuple[str, str, bool]]:
        answers = []
        for label in rng.permutation(labels)[:n_labels].tolist():
            for row in rng.integers(len(pool), size=each):
                answer = bool(rng.random() < 0.5)
                answers.append((str(row), label, answer))
        return answers

    tagger: Any = load(folder)
    undone: list[tuple[int, ...]] = []

    def learning(n_labels: int, each: int) -> Callable[[], object]:
        def learn() -> None:
            answers = draw_answers(n_labels, each)
            numbers = tagger.learn(answers, pool)
            undone.append(numbers)

        return learn

    ways: dict[str, Callable[[], object]] = {
        "polyseme, one answer": learning(1, 1),
        f"polyseme, {EACH} answers for a label": learning(1, EACH),
        f"polyseme, {EACH} answers for each of ten labels": learning(10, EACH),
        "polyseme, undo": lambda: tagger.undo(undone.pop()),
    }
    seconds = seconds_of(ways, repeats=5)
    tagger.space = ConceptSpace(n_steps=amount.steps)
    tagger.random_state = 0
    tagger.n_validations = 0
    start = time.perf_counter()
    tagger.fit(features, corpus)
    seconds["a new fit"] = time.perf_counter() - start
    answer_seconds = seconds["polyseme, one answer"]
    rows: list[list[Any]] = []
    for name, value in seconds.items():
        rows.append([name, value, value / answer_seconds])
    columns = ["way", "seconds", "of one answer"]
    note = f"X is a table of {len(pool):,} rows, which is checked by every call."
    table = Table("Some answers", "what is done", columns, rows, note)
    ratio = seconds["a new fit"] / answer_seconds
    return table, Ratio("a new fit, of the seconds of one answer", round(ratio, 1), TARGET)


def _vectors(tagger: Any, pool: Any) -> dict[str, Any]:
    """Return what a log keeps of each item."""
    space = tagger.space_
    n_items = len(pool)
    vectors = {}
    for start in range(0, n_items, 4096):
        stop = start + 4096
        items = pool[start:stop]
        projections = space.project(items)
        codes = space.item_codes(items)
        rows = np.hstack([projections, codes])
        for row, vector in enumerate(rows, start):
            name = str(row)
            vectors[name] = vector
    return vectors


def _loading(folder: Path, amount: Amount, labels: list[str], pool: Any) -> tuple[Table, Ratio]:
    """Time the loading of a model with many answers, and what another process has to do then."""
    rng = np.random.default_rng(4)
    tagger = load(folder)
    chosen_labels = labels[: amount.asked]
    each = min(amount.each, len(pool))
    verdicts = []
    for label in chosen_labels:
        for item in rng.permutation(len(pool))[:each]:
            answer = bool(rng.random() < 0.3)
            verdicts.append(Verdict(str(item), label, answer))
    vectors = _vectors(tagger, pool)
    log = VerdictLog(folder)
    log.append(verdicts, vectors, tagger.space_.digest_)
    seconds = {}
    for way in ("polyseme, nothing was kept", "polyseme, corrections were kept"):
        start = time.perf_counter()
        tagger_here: Any = load(folder)
        seconds[way] = time.perf_counter() - start
    ratio = Ratio(
        "loading with what was kept, times as fast",
        round(seconds["polyseme, nothing was kept"] / seconds[way], 1),
        LOADING_TARGET,
    )
    other_tagger: Any = load(folder)
    items = map(str, range(len(pool)))

    def learn_next() -> object:
        return tagger_here.learn([(next(items), labels[0], True)])

    ways: dict[str, Callable[[], object]] = {
        "polyseme, one answer more": learn_next,
        "polyseme, another process catches up with it": other_tagger.refresh,
        "polyseme, it looks again and nothing is new": other_tagger.refresh,
    }
    seconds |= seconds_of(ways, repeats=5)
    title = f"A model with {len(verdicts):,} answers on {len(chosen_labels)} labels is loaded"
    rows: list[list[Any]] = [[name, value] for name, value in seconds.items()]
    note = "Both ways give the same scores. At full size, before corrections were kept and solved "
    note += "with few curvatures, every load took 30 s of processor time (AMD EPYC, one thread)."
    table = Table(title, "what is done", ["way", "seconds"], rows, note)
    return table, ratio


def _many(folder: Path, amount: Amount, labels: list[str], pool: Any) -> Table:
    """Time a long log: appending, taking up, one more answer, one undone."""
    rng = np.random.default_rng(3)
    tagger: Any = load(folder)
    log = VerdictLog(folder.parent / "long.sqlite")
    rows: list[list[Any]] = []

    def timed(title: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        rows.append([title, seconds, peak_mb()])
        return result

    vectors = _vectors(tagger, pool)
    n = amount.verdicts
    n_labels = min(amount.asked, len(labels))
    items = rng.integers(len(pool), size=n).tolist()
    columns_of_labels = rng.integers(n_labels, size=n).tolist()
    answers = (rng.random(n) < 0.3).tolist()
    verdicts = []
    for item, column, answer in zip(items, columns_of_labels, answers, strict=True):
        verdict = Verdict(str(item), labels[column], answer)
        verdicts.append(verdict)

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
