"""Saved taggers: what is written of each part, and how it comes back.

In: a fitted tagger. Out: a folder of JSON and arrays, and the same tagger from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._persistence import ModelFileError, plain, read_model, within, write_model
from polyseme._shifted import ShiftedRows
from polyseme.features import extractor_from_state
from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.known import KnownConcepts
from polyseme.published.mapping import InstanceMapper
from polyseme.published.nn.plan import TrainingPlan
from polyseme.published.tagger import PublishedTagger
from polyseme.tagger import ZeroShotTagger

Config = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Tagger: TypeAlias = ZeroShotTagger | PublishedTagger
KIND = "tagger"
SPACE = "space"
PUBLISHED = "published"
_SPARSE_PARTS = ("data", "indices", "indptr")
_PARTS = ("label_descriptor", "context_descriptor", "training")
_NOT_KEPT = ("checkpoint", "device", "verbose", "random_state")


def load(path: str | Path) -> Tagger:
    """Load a tagger that its `save` wrote.

    Parameters
    ----------
    path : str or Path
        The folder. A damaged, altered or newer-format model is refused with a sentence that says
        what is wrong; nothing in it is executed.

    Returns
    -------
    ZeroShotTagger or PublishedTagger
        Ranks exactly as the saved one did.
    """
    config, arrays = read_model(path, KIND)
    loaders: dict[str, Callable[[Config, Arrays], Tagger]] = {
        SPACE: ZeroShotTagger.from_state,
        PUBLISHED: _load_published,
    }
    method = config.get("method")
    if method is None:
        raise ModelFileError(
            f"The model at '{path}' was written by an earlier version of polyseme, whose method is "
            "gone; fit it anew."
        )
    if method not in loaders:
        raise ModelFileError(
            f"The model at '{path}' has the method {method!r}, which this version of polyseme does "
            "not know; upgrade polyseme."
        )
    return loaders[method](config, arrays)


# ---------------------------------------------------------------------- the published method


def save_published(tagger: PublishedTagger, path: str | Path) -> None:
    """Write a fitted tagger to a folder; see `PublishedTagger.save`."""
    known = tagger.known_
    states = {"embedding": _embedding_state(tagger.embedding_)}
    if tagger.mapper_ is not None:
        states["mapper"] = tagger.mapper_.get_state()
    if tagger.features_ is not None:
        states["features"] = tagger.features_.get_state()
    config: Config = {
        "method": PUBLISHED,
        "parameters": _plain(
            {name: getattr(tagger, name) for name in ("score", "bandwidth", "memory_mb")}
        ),
        "parts": {name: state[0] for name, state in states.items()},
        "media": None if tagger.features_ is None else tagger.features_.kind,
        "oov": list(known.labels[known.n_vocabulary :]),
        "seen": sorted(tagger.seen_),
        "ids": list(known.ids),
        "dropped": list(tagger.dropped_),
        "n_features_in": tagger.n_features_in_,
    }
    arrays: Arrays = {
        f"{name}.{key}": value for name, state in states.items() for key, value in state[1].items()
    }
    arrays |= {
        "known.indices": known.matrix.indices.astype(np.int64),
        "known.indptr": known.matrix.indptr.astype(np.int64),
        "known.sets": known.sets,
        "known.points": known.points,
        "known.label_ids": known.label_ids,
        "known.set_ids": known.set_ids,
    }
    write_model(path, KIND, config, arrays)


def _load_published(config: Config, arrays: Arrays) -> PublishedTagger:
    """Rebuild what `save_published` wrote."""
    parts = config["parts"]
    embedding = _embedding_from(parts["embedding"], within(arrays, "embedding"))
    mapper, features = None, None
    if "mapper" in parts:
        mapper = InstanceMapper.from_state(parts["mapper"], within(arrays, "mapper"))
    if config["media"] is not None:
        state = within(arrays, "features")
        features = extractor_from_state(config["media"], parts["features"], state)
    known = within(arrays, "known")
    labels = embedding.classes_ + tuple(config["oov"])
    matrix = sp.csr_matrix(
        (np.ones(len(known["indices"]), dtype=bool), known["indices"], known["indptr"]),
        shape=(len(config["ids"]), len(labels)),
    )
    tagger = PublishedTagger(
        embedding=embedding, mapper=mapper, features=features, **config["parameters"]
    )
    return tagger.restore(
        embedding,
        mapper,
        features,
        KnownConcepts(
            labels,
            len(embedding.classes_),
            tuple(config["ids"]),
            matrix,
            known["sets"],
            known["points"],
            known["label_ids"],
            known["set_ids"],
        ),
        seen=frozenset(config["seen"]),
        dropped=tuple(config["dropped"]),
        n_features=config["n_features_in"],
    )


def _plain(parameters: Config) -> Config:
    """Give parameters as JSON values."""
    return {name: plain(value) for name, value in parameters.items()}


def _seed(random_state: object) -> int | None:
    """Give a seed that can be written down, so that an audit can learn the same again."""
    return int(random_state) if isinstance(random_state, (int, np.integer)) else None


def _embedding_state(embedding: ConceptEmbedding) -> tuple[Config, Arrays]:
    """Give a fitted embedding as JSON values and arrays."""
    parameters = embedding.get_params(deep=False)
    config: Config = {
        "parameters": _plain(
            {name: parameters[name] for name in parameters if name not in (*_PARTS, *_NOT_KEPT)}
        ),
        "label_descriptor": _plain(embedding.label_descriptor_.get_params()),
        "context_descriptor": _plain(
            embedding.context_descriptor_.get_params()
            | {"random_state": _seed(embedding.context_descriptor_.random_state)}
        ),
        "training": _plain((embedding.training or TrainingPlan()).get_params()),
        "labels": list(embedding.classes_),
        "normalize_labels": embedding.normalize_labels_,
        "spellings": embedding.spellings_,
        "distance_scale": float(embedding.distance_scale_),
        "history": embedding.history_,
        "best_score": embedding.best_score_ if math.isfinite(embedding.best_score_) else None,
    }
    config["parameters"]["hidden_sizes"] = [int(size) for size in embedding.hidden_sizes]
    arrays: Arrays = {
        f"network.{name}": np.ascontiguousarray(value.detach().numpy())
        for name, value in embedding.network_.state_dict().items()
    }
    rows = embedding.label_descriptor_.descriptors_
    if isinstance(rows, ShiftedRows):
        del arrays["network.descriptors"]
        arrays |= {f"descriptors.{part}": getattr(rows.rows, part) for part in _SPARSE_PARTS}
        arrays |= {"descriptors.shift": rows.shift, "descriptors.used": rows.used}
    arrays["idf"] = embedding.label_descriptor_.idf_
    arrays["topics"] = embedding.context_descriptor_.topics_
    return config, arrays


def _embedding_from(config: Config, arrays: Arrays) -> ConceptEmbedding:
    """Rebuild a fitted embedding."""
    import torch

    from polyseme.published.nn.networks import ConceptNetwork

    parameters = config["parameters"] | {
        "hidden_sizes": tuple(config["parameters"]["hidden_sizes"]),
        "training": TrainingPlan(**config["training"]),
    }
    labels = LabelDescriptor(**config["label_descriptor"])
    contexts = ContextDescriptor(**config["context_descriptor"])
    embedding = ConceptEmbedding(label_descriptor=labels, context_descriptor=contexts, **parameters)
    weights = within(arrays, "network")
    dense = weights.pop("descriptors", None)
    descriptors = _shifted_rows(within(arrays, "descriptors")) if dense is None else dense
    network = ConceptNetwork(
        descriptors,
        len(arrays["topics"]),
        embedding.hidden_sizes,
        embedding.n_components,
        torch.Generator(),
    )
    state = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
    network.load_state_dict(state | {"descriptors": network.descriptors})
    return embedding.restore(
        network,
        LabelDescriptor(**config["label_descriptor"]).restore(descriptors, arrays["idf"]),
        ContextDescriptor(**config["context_descriptor"]).restore(arrays["topics"]),
        labels=tuple(config["labels"]),
        normalize=config["normalize_labels"],
        spellings=config["spellings"],
        distance_scale=config["distance_scale"],
        history=config["history"],
        best_score=math.nan if config["best_score"] is None else config["best_score"],
    )


def _shifted_rows(arrays: Arrays) -> ShiftedRows:
    """Rebuild sparse label descriptors."""
    data, indices, indptr = (arrays[part] for part in _SPARSE_PARTS)
    n_labels = len(arrays["used"])
    rows = sp.csr_matrix((data, indices, indptr), shape=(n_labels, len(arrays["shift"])))
    return ShiftedRows(rows, arrays["shift"], arrays["used"])
