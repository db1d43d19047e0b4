"""A fitted tagger as JSON values and arrays, and back.

In: a `ZeroShotTagger`. Out: its state, for saving without pickle; and a tagger of a state, whose
every value and array is checked against what is declared of it.

The names of values and arrays are the format of `model.safetensors`: models that people have saved
hold them, so they stay. An array of a part is called `part.name` (`space.…`, `store.…`,
`features.…`, `keys.…`); "store" is the known documents, "keys" is `document_keys_`, "named" the
labels that no document holds, "likeness" is how like seen labels unseen ones are by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from polyseme.documents.corpus import normalize_label
from polyseme.documents.vocabulary import Vocabulary
from polyseme.feedback.corrections import Corrections
from polyseme.feedback.standing_verdicts import Feedback
from polyseme.feedback.verdict_log import VerdictLog
from polyseme.fitting.holdout_validation import Validation
from polyseme.fitting.warm_start import DocumentKeys
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.scoring.name_evidence import NameEvidence
from polyseme.scoring.scorer import NamedLabels
from polyseme.space.concept_space import ConceptSpace
from polyseme.storage.array_checks import (
    Anything,
    Array,
    Choice,
    Fields,
    Flag,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Text,
    Whole,
    check_arrays,
    check_parts,
    name_part_in_errors,
    require,
)
from polyseme.storage.model_file import State, join_states, part_arrays
from polyseme.tagger import ZeroShotTagger


def tagger_state(tagger: ZeroShotTagger) -> State:
    """Return a fitted tagger as JSON values and arrays, which may share memory with it."""
    states = {"space": tagger.space_.get_state(), "store": tagger.store_.get_state()}
    if tagger.names_ is not None:
        states["names"] = tagger.names_.get_state()
    if tagger.features_ is not None:
        states["features"] = tagger.features_.get_state()
    config, arrays = join_states(states)
    feature_names = getattr(tagger, "feature_names_in_", ())
    config |= {
        "method": "space",
        "media": None if tagger.features_ is None else tagger.features_.kind,
        "n_vocabulary": tagger.n_vocabulary_,
        "n_fitted": tagger.n_fitted_,
        "n_features_in": tagger.n_features_in_,
        "feature_names": list(feature_names) or None,
        "normalize_labels": tagger.normalize_labels_,
        "validation": None if tagger.validation_ is None else tagger.validation_.get_state(),
        "vocabulary": tagger.vocabulary_.get_state(),
        "seen": sorted(tagger.seen_),
        "dropped": list(tagger.dropped_),
        "indicator": None if tagger.indicator_ is None else list(tagger.indicator_),
        "named": None if tagger.named_ is None else list(tagger.named_.labels),
        "name_share": tagger.name_share_,
        "pooled": tagger.pooled_,
        "measured_on": list(tagger.measured_on_),
    }
    arrays["likeness"] = tagger._likeness
    for name, keys in tagger.document_keys_._asdict().items():
        arrays[f"keys.{name}"] = keys
    if tagger.named_ is not None:
        arrays["named"] = tagger.named_.likeness
    return config, arrays


def tagger_from_state(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> ZeroShotTagger:
    """Rebuild a fitted tagger from `tagger_state`, without verdicts.

    Raises a `ModelFileError` for anything that `tagger_state` cannot have made.
    """
    _CONFIG_FIELDS.check(config)
    array_names = ("likeness", "named", *_KEY_ARRAYS)
    check_parts(arrays, config, ("space", "store", "names", "features"), array_names)
    tagger = ZeroShotTagger(normalize_labels=config["normalize_labels"])
    with name_part_in_errors("space"):
        space_arrays = part_arrays(arrays, "space")
        space = ConceptSpace.from_state(config["space"], space_arrays)
    with name_part_in_errors("store"):
        store_arrays = part_arrays(arrays, "store")
        store = KnownDocuments.from_state(config["store"], store_arrays)
    extractor = None
    if config["media"] is not None or "features" in config:
        from polyseme.media.extractors import extractor_of

        extractor = extractor_of(config, arrays)
    _check_parts_fit(config, arrays, space, store)
    names = None
    if "names" in config:
        with name_part_in_errors("names"):
            name_arrays = part_arrays(arrays, "names")
            n_features = config["n_features_in"]
            names = NameEvidence.from_state(config["names"], name_arrays, n_features)
    validation = None
    if config["validation"] is not None:
        with name_part_in_errors("validation"):
            validation = Validation.from_state(config["validation"])
    vocabulary = Vocabulary.from_state(config["vocabulary"])
    indicator = None
    if config["indicator"] is not None:
        indicator = tuple(config["indicator"])
    named = None
    if config["named"] is not None:
        named = NamedLabels(tuple(config["named"]), arrays["named"])

    # The fitted parts are the parameters as well, so that another fit makes such a tagger.
    tagger.space = space
    tagger.features = extractor
    tagger.vocabulary = vocabulary
    tagger.space_ = space
    tagger.features_ = extractor
    tagger.vocabulary_ = vocabulary
    tagger.validation_ = validation
    tagger.indicator_ = indicator
    tagger.n_vocabulary_ = config["n_vocabulary"]
    tagger.n_fitted_ = config["n_fitted"]
    tagger.seen_ = frozenset(config["seen"])
    tagger.dropped_ = tuple(config["dropped"])
    tagger.n_features_in_ = config["n_features_in"]
    tagger._set_feature_names(config["feature_names"])
    tagger.name_share_ = config["name_share"]
    tagger._likeness = arrays["likeness"]
    tagger.normalize_labels_ = config["normalize_labels"]
    tagger.pooled_ = config["pooled"]
    n_items, n_labels = config["measured_on"]
    tagger.measured_on_ = (n_items, n_labels)
    keys = part_arrays(arrays, "keys")
    tagger.document_keys_ = DocumentKeys(**keys)
    feedback = Feedback(VerdictLog(), space.digest_)
    tagger._corrections = Corrections(feedback)
    return tagger._update(store_=store, named_=named, names_=names)


# The JSON values of a tagger; what is `Anything` here is checked by the part that it belongs to.
_CONFIG_FIELDS = Fields(
    {
        "space": MappingOf(Anything()),
        "store": MappingOf(Anything()),
        "names": MappingOf(Anything()),
        "features": MappingOf(Anything()),
        "method": Choice(("space",)),
        "media": Maybe(Text()),
        "n_vocabulary": Whole(0),
        "n_fitted": Whole(0),
        "n_features_in": Whole(0),
        "feature_names": Maybe(ListOf(Text())),
        "normalize_labels": Flag(),
        "validation": Maybe(MappingOf(Anything())),
        "vocabulary": MappingOf(Anything()),
        "seen": ListOf(Text()),
        "dropped": ListOf(Text()),
        "indicator": Maybe(ListOf(Text(), distinct=True)),
        "named": Maybe(ListOf(Text(), distinct=True)),
        "name_share": Number(0, 1),
        "pooled": Flag(),
        "measured_on": ListOf(Whole(1), 2),
    },
    optional=("names", "features"),
)
# The fields of `DocumentKeys`, one key for each document that has a fold.
_KEY_ARRAYS = ("keys.names", "keys.items", "keys.tags")
# The type and shape of each array; `_check_parts_fit` has the sizes that the shapes name.
_ARRAY_TYPES = {
    **{name: Array("uint64", ("n_in_folds",), 0, 2.0**64) for name in _KEY_ARRAYS},
    "likeness": Array("float64", ("n_rows", "n_columns")),
    "named": Array("float64", ("n_named", "n_seen")),
}


def _check_parts_fit(
    config: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    space: ConceptSpace,
    store: KnownDocuments,
) -> None:
    """Refuse parts that are sound by themselves but not made for each other.

    Otherwise a crafted file could make a later method read beyond an array, or fail inside.
    """
    n_learned = len(space.order_)
    n_features = space.members_.shape.n_features
    named_labels = config["named"] or []
    labels = {*store.labels, *named_labels}
    feature_names = config["feature_names"]
    extractor = config.get("features")
    label_keys: list[str] = list(store.labels)
    if config["normalize_labels"]:
        label_keys = [normalize_label(label) for label in store.labels]
    fits = {
        "store.n_learned": store.n_learned == n_learned,
        "store.labels": len(set(label_keys)) == len(label_keys),
        "store.points": store.points.shape[1] == space.axes_.shape[1],
        "n_vocabulary": config["n_vocabulary"] <= len(store.labels),
        "n_fitted": config["n_fitted"] <= len(store.ids),
        "n_features_in": config["n_features_in"] == n_features
        or (extractor is not None and config["n_features_in"] > n_features > 0),
        "feature_names": feature_names is None or len(feature_names) == n_features,
        "media": extractor is None or extractor["n_features_out"] == config["n_features_in"],
        "seen": labels.issuperset(config["seen"]),
    }
    for name, is_sound in fits.items():
        require(is_sound, name, "what its other parts ask for")

    tagger_arrays = {name: arrays[name] for name in _ARRAY_TYPES if name in arrays}
    has_named = "named" in tagger_arrays
    array_types = dict(_ARRAY_TYPES)
    if not has_named:
        del array_types["named"]
    check_arrays(
        tagger_arrays,
        array_types,
        n_seen=space.n_seen_,
        n_named=len(named_labels),
        n_in_folds=len(space.folds_),
    )
    # Where names have no share, nothing is kept of them.
    likeness_shape = tagger_arrays["likeness"].shape
    n_unseen = n_learned - space.n_seen_
    is_unused = likeness_shape == (0, 0) and not config["name_share"]
    is_complete = likeness_shape == (n_unseen, space.n_seen_)
    require(is_unused or is_complete, "likeness", "that of all unseen labels to seen ones")
    require((config["named"] is not None) == has_named, "named", "there for labels by name")
