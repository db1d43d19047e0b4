"""The commands that measure: `evaluate` against true tags, `validate` for unseen tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

import polyseme
from polyseme.cli.app import LEARNING, TableOptions, command, refuse
from polyseme.cli.output import Form, emit, for_people, say

if TYPE_CHECKING:
    from polyseme.fitting.holdout_validation import Validation
    from polyseme.media import MediaFeatures
    from polyseme.scoring.name_evidence import NameEvidence

_EXAMPLES = 6  # hidden tags whose likeliest items the page shows


@command(LEARNING)
def evaluate(
    model: Path,
    features: Path,
    documents: Path | None = None,
    split: str | None = None,
    features_column: str | None = None,
    *,
    tables: TableOptions,
    form: Form = Form.auto,
) -> None:
    """Measure rankings against true tags, over all tags and by kind."""
    from polyseme.cli.inputs import TableReader, read_items
    from polyseme.metrics import evaluate_kinds, true_labels

    tagger = polyseme.load(model)
    # True labels are normalized, or not, as those of the model were.
    reader = TableReader(tables, features_column, tagger.normalize_labels_)
    items = read_items(features, documents, split, reader)
    truth = true_labels(tagger, items.X, items.documents)
    if not truth.any():
        refuse(f"No item in '{documents or features}' carries a label that the model knows.")

    has_probabilities = isinstance(tagger, polyseme.ZeroShotTagger)
    if has_probabilities:
        scores = tagger.predict_proba(items.X)
    else:
        scores = tagger.decision_function(items.X)
    measures_by_kind = evaluate_kinds(truth, scores, tagger.kinds_, probabilities=has_probabilities)
    records: list[dict[str, Any]] = []
    if for_people(form):
        # There are many measures and few kinds, so that a table has a row for each measure.
        for name in measures_by_kind["all"]:
            record: dict[str, Any] = {"measure": name}
            for kind, measures in measures_by_kind.items():
                record[kind] = measures[name]
            records.append(record)
    else:
        for kind, measures in measures_by_kind.items():
            records.append({"labels": kind} | measures)
    emit(records, form)


@command(LEARNING)
def validate(
    documents: Path | None = None,
    features: Path | None = None,
    label_sets: Path | None = None,
    draws: int = 3,
    page: Path | None = None,
    device: str | None = None,
    seed: int = 0,
    words: int | None = None,
    split: str | None = None,
    features_column: str | None = None,
    unlabelled: Path | None = None,
    *,
    tables: TableOptions,
    label_sets_only: bool = False,
    normalize: bool = True,
    form: Form = Form.auto,
) -> None:
    """Hide some of your tags, and measure how well hidden tags are ranked in your collection."""
    from polyseme.base.progress import working
    from polyseme.base.validation import check_device
    from polyseme.cli.inputs import (
        TableReader,
        extractor_of,
        read_items,
        read_label_sets,
        read_pool,
    )
    from polyseme.cli.validation_page import validation_page
    from polyseme.fitting.holdout_validation import validate as validate_collection
    from polyseme.storage.atomic_files import check_file, replacing

    check_device(device, owner="validate")
    if page is not None:
        page_file = check_file(page)
    reader = TableReader(tables, features_column, normalize)
    items = read_items(features, documents, split, reader)
    if items.X is None:
        refuse("`validate` measures items; give their features with --features.")
    teaching_sets = read_label_sets(label_sets, items, reader, only=label_sets_only)
    extractor = extractor_of(items.X, words)
    pool = None
    if unlabelled is not None:
        pool = read_pool(unlabelled, items.X, extractor, reader)
    label_sets_in_use = teaching_sets or items.documents
    labels = dict.fromkeys([*label_sets_in_use.labels, *items.documents.labels])
    inputs = _feature_matrices(items.X, pool, extractor, seed, list(labels))

    tagger = polyseme.ZeroShotTagger(device=device, n_validations=0, random_state=seed)
    with working(f"fitting to what is left, {draws} times", verbose=True):
        validations = validate_collection(
            tagger,
            inputs.features,
            items.documents,
            label_sets_in_use,
            draws,
            seed,
            n_examples=_EXAMPLES,
            pool=inputs.pool,
            label_sets_only=label_sets_only,
            names=inputs.names,
            name_features=inputs.all_features,
        )
    if not validations:
        condition = " that the label sets hold" if label_sets_only else ""
        refuse(
            "There are too few items or tags to hold any out: it takes 40 items and 8 "
            f"tags{condition}."
        )
    # With a pool the last validation is of the tagger that learned from it.
    validation = validations[0]
    if inputs.pool is not None:
        pool_gain = validations[-1].gain_over(validation)
        validation = replace(validation, pool_gain=pool_gain)

    _report_validation(validation, form)
    if page is not None:
        title = f"Tags of {documents or features}"
        html = validation_page(validation, title)
        with replacing(page_file) as stream:
            stream.write(html.encode())
        typer.echo(str(page))


def _report_validation(validation: Validation, form: Form) -> None:
    """Print the measures of seen and unseen labels, and the sentences of the validation."""
    records = []
    for kind in ("seen", "unseen"):
        measures = getattr(validation, kind)
        records.append({"labels": kind} | asdict(measures))
    emit(records, form)
    # The first two lines of its text are the measures, which the records have.
    lines = str(validation).splitlines()
    say("\n".join(lines[2:]))


class _Inputs(NamedTuple):
    """What a validation takes, with the same columns for items and the pool."""

    features: Any  # (n, n_features), the columns that describe items
    pool: Any  # (n_pool, n_features), or None
    all_features: Any  # (n, n_all_features), with columns that are for names alone
    names: NameEvidence | None  # how names compare with these; None where the extractor reads none


def _feature_matrices(
    X: Any, pool: Any, extractor: MediaFeatures | None, seed: int, labels: Sequence[str]
) -> _Inputs:
    """Return the features of tagged items and of the pool, and how names of labels compare.

    Parameters
    ----------
    X, pool : Table or Extracted
        The pool may be None, and then comes back as None.
    extractor : MediaFeatures or None
        Fitted to the tagged items, as a copy; None for tables of numbers.
    seed : int
        Of the extractor.
    labels : sequence of str
    """
    from polyseme.base.extractors import fitted_copy, n_item_columns, name_columns
    from polyseme.base.validation import check_features, column_names, in_order
    from polyseme.documents.label_names import extractor_names
    from polyseme.scoring.name_evidence import NameEvidence
    from polyseme.space.features import first_columns

    names = None
    all_features: Any
    if extractor is None:
        all_features = X.to_numpy()
        n_columns = all_features.shape[1]
        if pool is not None:
            pool = in_order(pool, column_names(X), owner="validate")
    else:
        fitted_extractor, all_features = fitted_copy(extractor, X, seed)
        n_columns = n_item_columns(fitted_extractor) or all_features.shape[1]
        vectors = extractor_names(fitted_extractor, labels)
        if vectors is not None:
            columns = name_columns(fitted_extractor)
            names = NameEvidence.fit(all_features, vectors.labels, vectors.vectors, columns)
        if pool is not None:
            pool_features: Any = fitted_extractor.transform(pool)
            pool = first_columns(pool_features, n_columns)
    if pool is not None:
        pool = check_features(pool, owner="validate", n_features=n_columns)
    features: Any = first_columns(all_features, n_columns)
    return _Inputs(features, pool, all_features, names)
