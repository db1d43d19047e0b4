"""Concept spaces for experiments: the default's, and published ones that trials share on disk.

In: a split and the run configuration. Out: the default's space to learn; a published tagger
without features, learned once for all trials that can share it, and the seconds that took.
"""

from __future__ import annotations

import shutil
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from polyseme.base.validation import PolysemeWarning
from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.published.tagger import PublishedTagger
from polyseme.published.training import TrainingPlan
from polyseme.space.concept_space import ConceptSpace
from polyseme.storage.model_file import remove_model
from polyseme.tagger import load
from polyseme_experiments.records import config_hash, locked
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.splits import ZeroShotSplit


def make_space(config: RunConfig, **parameters: Any) -> ConceptSpace:
    """Make the default's space to learn, without its seed."""
    defaults = {"n_steps": 40} if config.quick else {}
    return ConceptSpace(**defaults | parameters)


def make_embedding(n_components: int, config: RunConfig) -> ConceptEmbedding:
    """Make the embedding to learn, without its seed."""
    parameters: dict[str, Any] = {"n_components": n_components}
    if config.quick:
        parameters |= {
            "hidden_sizes": (24,),
            "context_descriptor": ContextDescriptor(n_topics=8, n_iter=30),
            "training": TrainingPlan(max_epochs=3, min_epochs=0, min_steps=8, batch_size=128),
        }
    return ConceptEmbedding.from_preset(config.preset, **parameters)


def make_mapper(config: RunConfig) -> InstanceMapper:
    """Make the mapping to learn, without its seed: nu-SVR, as in the paper."""
    return InstanceMapper.from_preset(config.preset)


def space_config(n_components: int, config: RunConfig) -> dict[str, Any]:
    """Return every parameter that decides a concept space, also those left at their defaults."""
    embedding = make_embedding(n_components, config)
    estimators = {
        "label_descriptor": embedding.label_descriptor or LabelDescriptor(),
        "context_descriptor": embedding.context_descriptor or ContextDescriptor(),
        "training": embedding.training or TrainingPlan(),
    }
    # Where a space is trained does not decide its content.
    left_out = {*estimators, "device"}
    parameters = embedding.get_params(deep=False)
    described: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in left_out:
            described[name] = repr(value)

    # Parameters that came after the records count only where they are set.
    later = {"max_steps": None, "max_documents": 200_000, "max_visits": 20_000_000}
    for name, estimator in estimators.items():
        entries = {}
        for parameter, value in estimator.get_params().items():
            is_default = parameter in later and later[parameter] == value
            if not is_default:
                entries[parameter] = repr(value)
        described[name] = entries
    return described


def cached_space(
    split: ZeroShotSplit, n_components: int, seed: int, config: RunConfig
) -> tuple[PublishedTagger, float]:
    """Return a concept space and the seconds that its learning took, now or in an earlier run.

    It is a tagger without features: the concept space and the known documents. Another process that
    learns the same space is waited for.
    """
    if config.cache is None:
        return _learn(split, make_embedding(n_components, config).set_params(random_state=seed))
    contents = {
        "parameters": space_config(n_components, config),
        "seed": seed,
        "documents": [list(document) for document in split.training_label_sets()],
        "ids": split.training_label_sets().ids,
        "held out": [list(document) for document in split.validation_label_sets()],
        "known": split.known().ids,
    }
    folder = Path(config.cache) / f"space-{n_components}-{config_hash(contents)}"
    clock = folder.with_suffix(".seconds")
    checkpoint = folder.with_suffix(".training")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if clock.exists():
            with suppress(ValueError):  # a damaged one, or another version's, is learned again
                stored = load(folder)
                if isinstance(stored, PublishedTagger):
                    return stored, float(clock.read_text())
            shutil.rmtree(folder, ignore_errors=True)
        embedding = make_embedding(n_components, config)
        embedding.set_params(random_state=seed, checkpoint=checkpoint)
        space, seconds = _learn(split, embedding)
        space.save(folder)
        remove_model(checkpoint)
        clock.write_text(f"{seconds:.2f}")
    return space, seconds


def _learn(split: ZeroShotSplit, embedding: ConceptEmbedding) -> tuple[PublishedTagger, float]:
    """Learn a concept space and return it with the seconds it took."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        documents = split.training_label_sets()
        embedding.fit(documents, validation=split.validation_label_sets())
        space = PublishedTagger(embedding=embedding, fit_embedding=False)
        space.fit(None, split.known())
    seconds = time.perf_counter() - start
    return space, seconds


def clear_cache(folder: Path) -> None:
    """Remove every cached concept space, so that all are learned again."""
    for clock in folder.glob("space-*.seconds"):
        clock.unlink()
        remove_model(clock.with_suffix(""))
