"""What reviewing costs: asking about many items again and again, and the map of many tag sets.

python benchmarks/bench_review.py --out benchmarks
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from _reporting import Ratio, Report, Table, command_line, peak_mb
from _synthetic import make_themes, synthetic_features, synthetic_matrix

from polyseme.documents.corpus import LabelCorpus
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.space.concept_space import ConceptSpace
from polyseme.studio.landscape import Landscape, anchors, concept_positions
from polyseme.tagger import ZeroShotTagger


class Amount(NamedTuple):
    """Documents and labels of the model, items that are reviewed, and tag sets of the map."""

    documents: int
    labels: int
    items: tuple[int, ...]
    sets: tuple[int, ...]
    steps: int


AMOUNTS = {
    "full": Amount(5000, 500, (10_000, 50_000), (50_000, 500_000), 20),
    "quick": Amount(300, 30, (200, 400), (500, 1000), 8),
}
N_FEATURES, N_AXES, N_ISLANDS = 1280, 128, 200
# What an answer costs is so much less where items were coded before.
TARGET = 50.0
TEXT = """\
A tagger of {documents:,} documents, {labels:,} labels and {columns} features is asked what to \
look at next about one label, again and again, with an answer in between: about the items as a \
table, and about the same items as `ZeroShotTagger.encode` keeps them, which gives the same \
questions to the last bit. Then tag sets are laid out on a map: {islands} islands in {axes} \
dimensions, five labels each."""


def measure(size: str) -> Report:
    """Time questions about items, and the map."""
    amount = AMOUNTS[size]
    sizes = amount._asdict()
    text = TEXT.format(columns=N_FEATURES, islands=N_ISLANDS, axes=N_AXES, **sizes)
    report = Report("review", "Reviewing", text)
    table, ratio = _asking(amount)
    map_table = _map(amount)
    report.tables += [table, map_table]
    report.ratios.append(ratio)
    return report


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Call once; give the seconds and what it gave."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _asking(amount: Amount) -> tuple[Table, Ratio]:
    """Time questions about items as a table, and as they are kept."""
    themes = make_themes(amount.labels, 0, n_features=N_FEATURES)
    matrix = synthetic_matrix(amount.documents, themes, 0)
    features = synthetic_features(matrix, themes, 0)
    labels = [f"label {number}" for number in range(themes.n_labels)]
    corpus = LabelCorpus.from_indicator(matrix, labels=labels)
    space = ConceptSpace(n_steps=amount.steps)
    tagger: Any = ZeroShotTagger(space, n_validations=0, random_state=0)
    tagger.fit(features, corpus)
    rng = np.random.default_rng(1)
    label = labels[3]
    rows = []
    for n in amount.items:
        chosen = features[rng.integers(amount.documents, size=n)]
        noise = rng.normal(size=chosen.shape)
        X = (chosen + noise).astype(np.float32)
        plain, before = _timed(partial(tagger.ask, X, label))
        encoding, items = _timed(partial(tagger.encode, X, most_bytes=2**31 - 1))
        first, after = _timed(partial(tagger.ask, items, label))
        assert before == after, "the same questions"
        answer = (before[0].item, label, True)
        numbers = tagger.learn([answer], items)
        after_answer, _ = _timed(partial(tagger.ask, items, label))
        any_label, _ = _timed(partial(tagger.ask, items))
        tagger.undo(numbers)
        rows.append([n, plain, encoding, first, after_answer, any_label, peak_mb()])
    columns = ["items", "as a table, seconds", "coded once, seconds", "first question, seconds"]
    columns += ["after an answer, seconds", "about any label, seconds", "memory, MB"]
    note = "The first question reads all labels of all items; those after it read one."
    table = Table("What to look at next", "items", columns, rows, note)
    title = f"a question after an answer, {amount.items[-1]:,} items, times as fast"
    speedup = plain / after_answer
    return table, Ratio(title, round(speedup, 1), TARGET)


def _map(amount: Amount) -> Table:
    """Time the map of many tag sets."""
    rng = np.random.default_rng(2)
    rows = []
    centres = rng.normal(size=(N_ISLANDS, N_AXES)).astype(np.float32)
    for n in amount.sets:
        points = centres[rng.integers(N_ISLANDS, size=n)]
        points += 0.7 * rng.standard_normal(points.shape, dtype=np.float32)
        points /= np.linalg.norm(points, axis=1)[:, None]
        themes = make_themes(amount.labels, 0)
        matrix = synthetic_matrix(n, themes, 0)
        labels = tuple(f"label {number}" for number in range(themes.n_labels))
        ids = tuple(map(str, range(n)))
        store = KnownDocuments(labels, len(labels), ids, matrix, np.arange(n), points)
        quick, _ = _timed(partial(Landscape.quick, points, ""))
        learning, landscape = _timed(partial(Landscape.learn, points, ""))
        placing, _ = _timed(partial(landscape.place, points))
        dotting, dots = _timed(partial(concept_positions, store, landscape))
        naming, _ = _timed(partial(anchors, dots, labels))
        n_dots = len(dots.labels)
        rows.append([n, n_dots, quick, learning, placing, dotting, naming])
    columns = ["tag sets", "dots", "by axes, seconds", "by neighbours, seconds"]
    columns += ["all placed, seconds", "all dots, seconds", "captions, seconds"]
    note = "Landmarks are 1,500 at the most, so that only placing grows with tag sets."
    return Table("The map", "tag sets", columns, rows, note)


if __name__ == "__main__":
    command_line(measure)
