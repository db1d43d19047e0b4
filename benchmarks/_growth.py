"""One point of the growth curves, in a process of its own: seconds and memory stage by stage.

Made-up documents go the public way: `ConceptEmbedding.fit`, `InstanceMapper.fit`, the known
concepts and their index, `PrimingRanker.rank` of new instances. Prints one JSON object.

    python benchmarks/_growth.py '{"documents": 10000, "labels": 1000, "dimension": 100}'
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _reporting import peak_mb

SEED = 0
# Instances that the mapping predicts from, whatever their number.
LANDMARKS = 1000
# More than this is refused, so that a mistake does not take the machine with it.
_MOST_BYTES = 16 * 2**30
# What `ConceptEmbedding.fit` does beside training, in the order it happens.
INSIDE_FIT = ("label descriptors", "topics", "contexts", "judging")


@dataclass(frozen=True)
class Point:
    """Where to measure.

    Attributes
    ----------
    documents, labels, dimension : int
    instances : int, optional
        How many of the documents have features, from which the mapping is learned; all.
    sweeps : int
        Of the topics' sampler.
    topic_documents : int, optional
        Documents that topics are learned from at the most.
    documents_a_step : int
        One training step for so many documents.
    epochs : int
        Parts that the steps are cut into; the weights are judged after the last one.
    validation : float
        Share of documents to judge by, at most 1,000.
    queries : int
        New instances to rank.
    """

    documents: int
    labels: int
    dimension: int
    instances: int | None = None
    sweeps: int = 50
    topic_documents: int | None = None
    documents_a_step: int = 400
    epochs: int = 1
    validation: float = 0.0
    queries: int = 1000


@dataclass
class Stages:
    """Seconds and highest memory of named stages, and whatever else is worth telling.

    Attributes
    ----------
    seconds, memory_mb, facts : dict of str to float
    """

    seconds: dict[str, float] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure one stage; those of one name add up, and one may stand in another."""
        before = high_water_mb(reset=True)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            most = high_water_mb()
            self.memory_mb[name] = max(self.memory_mb.get(name, 0.0), most)
            self.facts["peak_mb"] = max(self.facts.get("peak_mb", 0.0), before, most)
            print(f"{name}: {self.seconds[name]:.1f} s, {most:.0f} MB", file=sys.stderr)

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Measure every call of a function or method as a stage."""
        plain: Callable[..., Any] = getattr(owner, method)

        def measured(*arguments: Any, **named: Any) -> Any:
            with self.stage(name):
                return plain(*arguments, **named)

        setattr(owner, method, measured)


def high_water_mb(*, reset: bool = False) -> float:
    """Return the most memory this process has held since the last reset, if known."""
    status = Path("/proc/self/status")
    if not status.exists():
        return peak_mb()
    line = next(one for one in status.read_text("utf-8").splitlines() if one.startswith("VmHWM"))
    if reset:
        # Where this is forbidden the stages show the most so far; the whole is right anyhow.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", "utf-8")
    return int(line.split()[1]) / 1024


def measure_apart(point: Point) -> Stages:
    """Measure a point in a process of its own."""
    command = [sys.executable, __file__, json.dumps(asdict(point))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{point} failed: {done.stderr.strip()[-2000:]}")
    return Stages(**json.loads(done.stdout.splitlines()[-1]))


def measure_here(point: Point) -> Stages:
    """Measure a point in this process."""
    from _synthetic import as_label_corpus, make_themes, synthetic_features, synthetic_matrix

    _warm_up()
    stages = Stages()
    with stages.stage("data"):
        themes = make_themes(point.labels, SEED)
        everything = synthetic_matrix(point.documents + point.queries, themes, SEED)
        corpus = as_label_corpus(everything[: point.documents])
        new = everything[point.documents :]
        n = point.documents if point.instances is None else min(point.documents, point.instances)
        features = synthetic_features(everything[:n], themes, SEED)
        asked = synthetic_features(new, themes, SEED + 1)
        del everything
    embedding = _fitted_embedding(point, corpus, stages)
    mapper = _fitted_mapper(embedding, corpus, features, stages)
    del features
    _rank(embedding, mapper, corpus, new, asked, stages)
    stages.facts |= {"instances": n, "entries": int(corpus.matrix.nnz)}
    return stages


def _warm_up() -> None:
    """Load the libraries, which is not ours to count."""
    from _synthetic import as_label_corpus, make_themes, synthetic_matrix

    from polyseme.published.descriptors import ContextDescriptor
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.mapping import InstanceMapper
    from polyseme.published.training import TrainingPlan

    corpus = as_label_corpus(synthetic_matrix(50, make_themes(20, SEED), SEED))
    plan = TrainingPlan(max_epochs=1, min_steps=1, batch_size=16)
    topics = ContextDescriptor(n_topics=2, n_iter=1)
    embedding = ConceptEmbedding(4, (4,), context_descriptor=topics, training=plan)
    targets = embedding.fit(corpus).targets(corpus)
    InstanceMapper(kind="kernel-ridge", random_state=SEED).fit(targets, targets).predict(targets)


def _fitted_embedding(point: Point, corpus: Any, stages: Stages) -> Any:
    """Learn the concept space, its parts apart."""
    from polyseme.published import embedding as published
    from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor
    from polyseme.published.training import TrainingPlan

    stages.watch(LabelDescriptor, "fit", "label descriptors")
    stages.watch(ContextDescriptor, "fit", "topics")
    inside = {"watching": True}
    plain_transform = ContextDescriptor.transform

    def transform(self: Any, matrix: Any) -> Any:
        if not inside["watching"]:
            return plain_transform(self, matrix)
        with stages.stage("contexts"):
            return plain_transform(self, matrix)

    ContextDescriptor.transform = transform  # type: ignore[method-assign]  # watched during fit
    plain_score = published.error_free_score

    def score(*arguments: Any) -> Callable[[Any], float]:
        with stages.stage("judging"):
            judge = plain_score(*arguments)

        def judged(network: Any) -> float:
            with stages.stage("judging"):
                return judge(network)

        return judged

    published.error_free_score = score
    n_steps = max(1, point.documents // (point.documents_a_step * point.epochs))
    plan = TrainingPlan(
        min_steps=1,
        max_steps=n_steps,
        max_epochs=point.epochs,
        min_epochs=point.epochs,
        validation_fraction=point.validation,
    )
    topics = ContextDescriptor(
        n_iter=point.sweeps, max_documents=point.topic_documents, max_visits=None
    )
    embedding = published.ConceptEmbedding(
        n_components=point.dimension,
        context_descriptor=topics,
        training=plan,
        random_state=SEED,
    )
    with stages.stage("fit"):
        embedding.fit(corpus)
    inside["watching"] = False
    seconds = stages.seconds
    seconds["training"] = seconds.pop("fit") - sum(seconds.get(one, 0.0) for one in INSIDE_FIT)
    stages.memory_mb["training"] = stages.memory_mb.pop("fit")
    stages.facts |= {"steps": n_steps * point.epochs, "held-out E-MAP": embedding.best_score_}
    return embedding


def _fitted_mapper(embedding: Any, corpus: Any, features: Any, stages: Stages) -> Any:
    """Learn the way from features into the space."""
    from polyseme.published.mapping import InstanceMapper

    with stages.stage("targets"):
        some = corpus if len(corpus) == len(features) else corpus.select(np.arange(len(features)))
        targets = embedding.targets(some)
    with stages.stage("mapping"):
        mapper = InstanceMapper(
            kind="kernel-ridge",
            gamma="median",
            penalty=0.1,
            n_landmarks=LANDMARKS,
            random_state=SEED,
        )
        return mapper.fit(features, targets)


def _rank(embedding: Any, mapper: Any, corpus: Any, new: Any, asked: Any, stages: Stages) -> None:
    """Know all documents and rank new instances."""
    from _synthetic import as_label_corpus

    from polyseme.documents.tags import label_preference, rank_labels
    from polyseme.metrics import example_map
    from polyseme.published.priming import PrimingRanker, PrimingStore

    with stages.stage("known concepts"):
        known, _ = PrimingStore.of(embedding, corpus, corpus)
    with stages.stage("index"):
        index = known.index(64.0)
    ranker = PrimingRanker(index, embedding.distance_scale_)
    with stages.stage("points of new instances"):
        points = mapper.predict(asked)
    with stages.stage("ranking"):
        scores = ranker.scores(points)
        rank_labels(scores, label_preference(index.n_occurrences), 10)
    newcomers = as_label_corpus(new)
    truth = newcomers.align(known.labels)[0][:, : len(known.labels)].toarray()
    targets = embedding.targets(newcomers)
    counts = np.broadcast_to(index.n_occurrences.astype(np.float64), truth.shape)
    stages.facts |= {
        "concepts": index.n_concepts,
        "E-MAP, error-free": example_map(truth, ranker.scores(targets)),
        "E-MAP, from features": example_map(truth, scores),
        "E-MAP, popularity": example_map(truth, counts),
    }


def main() -> None:
    """Measure the point that the command line names and print what was found."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    warnings.simplefilter("ignore")
    point = Point(**json.loads(sys.argv[1]))
    start = time.perf_counter()
    stages = measure_here(point)
    stages.facts["seconds"] = time.perf_counter() - start
    print(json.dumps(asdict(stages)))


if __name__ == "__main__":
    main()
