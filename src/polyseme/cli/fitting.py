"""The command `fit`: read the data and options, fit a tagger, and save it.

With `--preset paper` it fits the tagger of the published method, otherwise the default tagger;
each has options of its own. With `--update` the fit starts from a *previous* model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

import polyseme
from polyseme.base.text import counted, in_words
from polyseme.cli.app import LEARNING, EngineName, Preset, TableOptions, command, refuse, resumable
from polyseme.cli.models import count_kinds, load_default_tagger
from polyseme.cli.output import say, summarize_verdicts

if TYPE_CHECKING:
    from polyseme.batch import RayTraining
    from polyseme.cli.inputs import TableReader
    from polyseme.documents.corpus import LabelCorpus
    from polyseme.documents.word_vectors import WordVectors
    from polyseme.feedback.verdict_log import VerdictLog
    from polyseme.media import MediaFeatures
    from polyseme.published.tagger import PublishedTagger
    from polyseme.tagger import Tagger, ZeroShotTagger

_MOST_DIGITS = 18  # of a number of topics, so that it is one of 64 bits


@command(LEARNING)
def fit(
    model: Path,
    documents: Path | None = None,
    features: Path | None = None,
    label_sets: Path | None = None,
    preset: Preset = Preset.default,
    mapper: Literal["nu-svr", "kernel-ridge"] | None = None,
    relatedness: Literal["nearest", "density"] | None = None,
    components: int | None = None,
    topics: str | None = None,
    words: int | None = None,
    epochs: int | None = None,
    device: str | None = None,
    seed: int = 0,
    split: str | None = None,
    features_column: str | None = None,
    *,
    tables: TableOptions,
    label_sets_only: bool = False,
    normalize: bool = True,
    label_names: Path | None = None,
    vocabulary: Path | None = None,
    validations: int = 2,
    unlabelled: Path | None = None,
    verdicts: Path | None = None,
    update: Path | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Learn a tagger. Interrupted? The same command goes on where it stopped."""
    from polyseme.cli.inputs import TableReader, verdicts_for
    from polyseme.storage.checkpoints import remove_checkpoint
    from polyseme.storage.model_file import check_destination

    # Check that the options go together.
    if engine == "local" and not (address is None and workers is None):
        raise typer.BadParameter("--address and --workers of `fit` need --engine ray.")
    check_destination(model)
    published_options: dict[str, Any] = {
        "mapper": mapper,
        "relatedness": relatedness,
        "epochs": epochs,
        "components": components,
        "topics": topics,
    }
    default_options: dict[str, Any] = {
        "label-names": label_names,
        "vocabulary": vocabulary,
        "unlabelled": unlabelled,
        "verdicts": verdicts,
        "update": update,
    }
    _check_method_options(preset, engine, published_options, default_options)

    # Read the data.
    previous = None
    if update is not None:
        previous = load_default_tagger(update, "fit --update")
        normalize = previous.normalize_labels_
    reader = TableReader(tables, features_column, normalize)
    sources = _Sources(features, documents, split, label_sets, label_sets_only, unlabelled, words)
    data = _read_data(sources, previous, reader)

    # Fit. The state of an interrupted run lies beside the model, never inside an older one.
    folder = model.resolve()
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    shared_parameters: dict[str, Any] = {
        "features": data.extractor,
        "device": device,
        "random_state": seed,
    }
    tagger: Tagger
    with resumable(), verdicts_for(model, verdicts, update) as log:
        if preset != Preset.default:
            tagger = _published_tagger(published_options, checkpoint, normalize, shared_parameters)
            tagger.fit(data.X, data.documents, data.label_sets, label_sets_only=label_sets_only)
        else:
            trainer = None
            if engine == "ray":
                trainer = _ray_trainer(checkpoint, workers, address, device)
            vocabulary_or_file: Any = vocabulary
            if vocabulary is None and previous is not None:
                vocabulary_or_file = previous.vocabulary_
            tagger = polyseme.ZeroShotTagger(
                vocabulary=vocabulary_or_file,
                n_validations=validations,
                checkpoint=checkpoint,
                normalize_labels=normalize,
                verbose=True,
                **shared_parameters,
            )
            word_vectors = _read_label_names(label_names, data)
            tagger.fit(
                data.X,
                data.documents,
                data.label_sets,
                word_vectors,
                trainer,
                unlabelled=data.pool,
                verdicts=_answers_to_learn(log, data, (model, update, verdicts)),
                label_sets_only=label_sets_only,
                warm_start_from=previous,
            )
            if trainer is not None:
                trainer.forget()  # its own checkpoint
        tagger.save(model)
    remove_checkpoint(checkpoint)
    say(_summary(tagger))
    typer.echo(str(model))


class _Sources(NamedTuple):
    """The options of `fit` that say which files a tagger is fitted to."""

    features: Path | None
    documents: Path | None
    split: str | None
    label_sets: Path | None
    label_sets_only: bool
    unlabelled: Path | None
    n_words: int | None  # of a codebook for sound


class _Data(NamedTuple):
    """What a tagger is fitted to."""

    X: Any  # a `Table` of features, `Extracted` files, or None where there are only tags
    documents: LabelCorpus  # of the items, in their order
    label_sets: LabelCorpus | None
    extractor: MediaFeatures | None  # not fitted yet; None where features are numbers
    pool: Any  # items without tags, as X; None where there are none


def _read_data(sources: _Sources, previous: ZeroShotTagger | None, reader: TableReader) -> _Data:
    """Read items, label sets and items without tags; check that a previous model can take them."""
    from polyseme.cli.inputs import extractor_of, read_items, read_label_sets, read_pool

    items = read_items(sources.features, sources.documents, sources.split, reader)
    label_sets = read_label_sets(sources.label_sets, items, reader, only=sources.label_sets_only)
    extractor = extractor_of(items.X, sources.n_words)
    if previous is not None:
        extractor = _extractor_to_update(previous, items.X, extractor, sources.n_words)
        say(_describe_update(previous, len(items.documents)))
    pool = None
    if sources.unlabelled is not None:
        if items.X is None:
            refuse(
                "`--unlabelled` needs items with tags as well; give their features with --features."
            )
        pool = read_pool(sources.unlabelled, items.X, extractor, reader)
    return _Data(items.X, items.documents, label_sets, extractor, pool)


def _ray_trainer(
    checkpoint: Path, workers: int | None, address: str | None, device: str | None
) -> RayTraining:
    """Return the trainer on a cluster, whose state lies where all machines see the model."""
    from polyseme.batch import RayTraining

    storage = checkpoint.with_suffix(".ray")
    return RayTraining(workers or 2, address, storage, device or "cpu")


def _answers_to_learn(
    log: VerdictLog, data: _Data, sources: tuple[Path | None, ...]
) -> VerdictLog | None:
    """Return the log of answers that the fit learns from; None where there are none.

    `sources` are the models and logs that the answers come from.
    """
    if not log.count:
        return None
    _check_answered_rows(data.pool, data.X, sources)
    say(f"the fit also learns from {summarize_verdicts(log.standing())}")
    return log


def _check_method_options(
    preset: Preset,
    engine: EngineName,
    published_options: dict[str, Any],
    default_options: dict[str, Any],
) -> None:
    """Raise where an option is given that belongs to the other method.

    `published_options` and `default_options` are values by the options' names without dashes; None
    where they are not given.
    """
    if preset == Preset.default:
        for name, value in published_options.items():
            if value is not None:
                refuse(f"`--{name}` belongs to the published method; add --preset paper.")
        return
    if engine == "ray":
        refuse(
            "`--engine ray` trains the default tagger only; leave it out, or leave out --preset."
        )
    for name, value in default_options.items():
        if value is not None:
            refuse(f"`--{name}` belongs to the default tagger; leave out --preset paper.")


def _read_label_names(path: Path | None, data: _Data) -> WordVectors | None:
    """Read the vectors of all labels in use, if a file of vectors is given."""
    if path is None:
        return None
    labels = list(data.documents.labels)
    if data.label_sets is not None:
        labels += data.label_sets.labels
    return polyseme.WordVectors.read(path, labels=labels)


def _check_answered_rows(pool: Any, X: Any, sources: tuple[Path | None, ...]) -> None:
    """Raise where rows without ids are other items than those that models have answers for.

    Answers name such rows by their numbers in the pool, or in the items where there is no pool.
    """
    from polyseme.cli.inputs import check_rows
    from polyseme.storage.model_file import MODEL_FILE

    numbered_items = X if pool is None else pool
    if numbered_items is None:
        return
    for source in sources:
        if source is None or not (source / MODEL_FILE).exists():
            continue
        answered_tagger = load_default_tagger(source, "learn")
        check_rows(answered_tagger, numbered_items)


def _extractor_to_update(
    previous: ZeroShotTagger, X: Any, extractor: MediaFeatures | None, n_words: int | None
) -> MediaFeatures | None:
    """Return the unfitted extractor of an update; refuse items that the previous model cannot take.

    Parameters
    ----------
    previous : ZeroShotTagger
    X : as `_Data.X`
    extractor : MediaFeatures or None
        With the parameters that the items were extracted with, and the codebook that is asked for.
    n_words : int or None
        The size of the codebook, where one is asked for: then it is learned anew. Otherwise the
        extractor has the parameters of the previous model's.
    """
    from polyseme.base.estimator import copy_of
    from polyseme.base.validation import in_order
    from polyseme.media import Extracted

    if (X is None) != (previous.n_features_in_ == 0):
        model_features = "no features" if X is not None else "features"
        item_features = "have some" if X is not None else "have none"
        refuse(
            f"The model of --update has {model_features}, and these items {item_features}; leave "
            "out --update."
        )
    if (extractor is None) != (previous.features_ is None):
        fitted_on = "numbers"
        if previous.features_ is not None:
            fitted_on = f"{previous.features_.kind} files"
        refuse(
            f"The model of --update was fitted on {fitted_on}, and these items are something else."
        )
    if isinstance(X, Extracted) and previous.features_ is not None:
        previous.features_.raw(X)  # raises where they were extracted in another way
        return copy_of(previous.features_) if n_words is None else extractor
    if X is not None:
        fitted_names = getattr(previous, "feature_names_in_", None)
        in_order(X, fitted_names, owner="fit --update")
        if X.shape[1] != previous.n_features_in_:
            refuse(
                f"These items have {X.shape[1]} features, and the model of --update was fitted "
                f"with {previous.n_features_in_}; leave out --update, or correct the features."
            )
    return extractor


def _describe_update(previous: ZeroShotTagger, n_items: int) -> str:
    """Return a sentence on what a fit carries over from the previous model."""
    vocabulary = previous.vocabulary_
    n_answers = len(previous.verdicts_.standing())
    carried_over = [
        counted(len(vocabulary.blocked), "blocked label"),
        counted(len(vocabulary.aliases), "other name"),
        counted(len(vocabulary.implies), "implication"),
        counted(n_answers, "answer"),
    ]
    sentence = (
        f"the fit starts from the older model and learns from all {n_items:,} items given; it "
        f"carries over {', '.join(carried_over)}"
    )
    n_added = len(previous.store_.ids) - previous.n_fitted_
    if n_added:
        added = counted(n_added, "tag set")
        sentence += f", but not {added} of `add`: give them again with --label-sets"
    return sentence


def _published_tagger(
    method_options: dict[str, Any],
    checkpoint: Path,
    normalize: bool,
    shared_parameters: dict[str, Any],
) -> PublishedTagger:
    """Make the unfitted tagger of the published method.

    Parameters
    ----------
    method_options : dict of str to object
        The options `mapper`, `relatedness`, `epochs`, `components` and `topics`; the preset's
        values stand for those that are None.
    checkpoint : Path
    normalize : bool
    shared_parameters : dict of str to object
        Parameters that both taggers have.
    """
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.mapping import InstanceMapper

    topics = method_options["topics"]
    if topics not in (None, "hdp"):
        if not topics.isdecimal() or len(topics) > _MOST_DIGITS:
            refuse(f"`--topics` must be a whole number or 'hdp'; got '{in_words(topics, 60)}'.")
        topics = int(topics)
    embedding = ConceptEmbedding.from_preset(
        "paper", checkpoint=checkpoint, verbose=True, normalize_labels=normalize
    )
    tagger = polyseme.PublishedTagger.from_preset(
        "paper", embedding=embedding, verbose=True, **shared_parameters
    )
    mapper = None
    if method_options["mapper"] == "kernel-ridge":
        mapper = InstanceMapper(kind="kernel-ridge")
    # The preset has a nu-svr of its own, with constants that belong to it.
    parameters = {
        "embedding__n_components": method_options["components"],
        "embedding__context_descriptor__n_topics": topics,
        "embedding__training__max_epochs": method_options["epochs"],
        "relatedness": method_options["relatedness"],
        "mapper": mapper,
    }
    given_parameters = {name: value for name, value in parameters.items() if value is not None}
    tagger.set_params(**given_parameters)
    return tagger


def _summary(tagger: Tagger) -> str:
    """Return what is printed about a tagger that was just fitted: a sentence and a table."""
    counts = [f"{count} {kind}" for kind, count in count_kinds(tagger).items()]
    store = tagger.store_
    n_labels = len(tagger.classes_)
    summary = f"{n_labels} labels ({', '.join(counts)}) from {len(store.ids)} documents"
    if isinstance(tagger, polyseme.PublishedTagger):
        return summary
    space = tagger.space_
    summary += (
        f" ({len(store.points)} different tag sets); {len(space.members_)} "
        f"members of {space.plan_.code} dimensions, {space.plan_.n_steps} steps each"
    )
    if tagger.name_share_:
        summary += f"; names of labels have a share of {tagger.name_share_:g} in unseen ones"
    validation = tagger.validation_
    if tagger.pooled_ and (validation is None or validation.pool_gain is None):
        summary += "; it learned from items without tags, and their gain was not measured"
    if validation is None:
        return summary
    return f"{summary}\nmeasured on held-out items, by smaller spaces:\n{validation}"
