"""Concept spaces for experiments: the default's, and published ones that trials share.

In: a split and the conditions of a call. Out: the default's space to learn; a published tagger
without features that holds the concept space and the known documents, learned once and kept for
every trial that can share it, and the seconds its learning took.
"""

from __future__ import annotations

import shutil
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from polyseme._estimator import Estimator
from polyseme._validation import PolysemeWarning
from polyseme.persistence import remove_model
from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.published.tagger import PublishedTagger
from polyseme.published.training import TrainingPlan
from polyseme.space import ConceptSpace
from polyseme.splits import ZeroShotSplit
from polyseme.tagger import load
from polyseme_experiments.draws import Conditions
from polyseme_experiments.records import config_hash


def make_space(conditions: Conditions, **parameters: Any) -> ConceptSpace:
    """Make the default's space to learn, without its seed."""
    return ConceptSpace(**({"n_steps": 40} if conditions.quick else {}) | parameters)


def make_embedding(n_components: int, conditions: Conditions) -> ConceptEmbedding:
    """Make the embedding to learn, without its seed."""
    parameters: dict[str, Any] = {"n_components": n_components}
    if conditions.quick:
        parameters |= {
            "hidden_sizes": (24,),
            "context_descriptor": ContextDescriptor(n_topics=8, n_iter=30),
            "training": TrainingPlan(max_epochs=3, min_epochs=0, min_steps=8, batch_size=128),
        }
    return ConceptEmbedding.from_preset(conditions.preset, **parameters)


def make_mapper(conditions: Conditions) -> InstanceMapper:
    """Make the mapping to learn, without its seed: nu-SVR, as in the paper."""
    return InstanceMapper.from_preset(conditions.preset)


def space_config(n_components: int, conditions: Conditions) -> dict[str, Any]:
    """Give every parameter that decides a concept space, also those left at their defaults."""
    embedding = make_embedding(n_components, conditions)
    parts = {
        "label_descriptor": embedding.label_descriptor or LabelDescriptor(),
        "context_descriptor": embedding.context_descriptor or ContextDescriptor(),
        "training": embedding.training or TrainingPlan(),
    }
    own = embedding.get_params(deep=False)
    # Where a space is trained does not decide what it is.
    passed_over = {*parts, "device"}
    config = {name: repr(value) for name, value in own.items() if name not in passed_over}
    return config | {name: _told(part) for name, part in parts.items()}


def _told(part: Estimator) -> dict[str, str]:
    """Give a part's parameters; those that came later count only where they were set.

    At its default, `max_visits` changes spaces of more than 40,000 documents: what was kept of such
    ones before it came is not told apart.
    """
    later: dict[str, object] = {"max_steps": None}
    later |= {"max_documents": 200_000, "max_visits": 20_000_000}
    return {
        key: repr(value)
        for key, value in part.get_params().items()
        if key not in later or value != later[key]
    }


class SpaceStore:
    """The folder where concept spaces are kept.

    Parameters
    ----------
    conditions : Conditions
        Its `cache` names the folder; None keeps nothing.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    def folder(self, split: ZeroShotSplit, n_components: int, seed: int) -> Path | None:
        """Give the folder of a concept space: its name is a digest of all that decides it."""
        if self.conditions.cache is None:
            return None
        digest = config_hash(
            {
                "parameters": space_config(n_components, self.conditions),
                "seed": seed,
                "documents": [list(document) for document in split.teaching()],
                "ids": split.teaching().ids,
                "held out": [list(document) for document in split.held_out()],
                "known": split.known().ids,
            }
        )
        return Path(self.conditions.cache) / f"space-{n_components}-{digest}"

    def get(
        self, split: ZeroShotSplit, n_components: int, seed: int
    ) -> tuple[PublishedTagger, float]:
        """Give a concept space, loaded if an earlier run has left it and learned otherwise.

        Parameters
        ----------
        split : ZeroShotSplit
        n_components : int
        seed : int

        Returns
        -------
        space : PublishedTagger
            Without features.
        seconds : float
            What its learning took, now or then.
        """
        folder = self.folder(split, n_components, seed)
        clock = None if folder is None else folder.with_suffix(".seconds")
        if folder is not None and clock is not None and clock.exists():
            with suppress(ValueError):  # a damaged one, or another version's, is learned again
                kept = load(folder)
                if isinstance(kept, PublishedTagger):
                    return kept, float(clock.read_text())
            shutil.rmtree(folder, ignore_errors=True)
        start = time.perf_counter()
        embedding = make_embedding(n_components, self.conditions).set_params(random_state=seed)
        if folder is not None:
            embedding.set_params(checkpoint=folder.with_suffix(".training"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            embedding.fit(split.teaching(), validation=split.held_out())
            space = PublishedTagger(embedding=embedding, fit_embedding=False)
            space.fit(None, split.known())
        seconds = time.perf_counter() - start
        if folder is not None and clock is not None:
            space.save(folder)
            remove_model(folder.with_suffix(".training"))
            clock.write_text(f"{seconds:.2f}")
        return space, seconds

    def clear(self) -> None:
        """Forget every concept space that is kept, so that all are learned again."""
        if self.conditions.cache is None:
            return
        for clock in Path(self.conditions.cache).glob("space-*.seconds"):
            clock.unlink()
            remove_model(clock.with_suffix(""))
