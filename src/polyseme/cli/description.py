"""The command `info`: facts about a saved model, or about a table of documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polyseme
from polyseme.cli.app import LEARNING, TableOptions, command
from polyseme.cli.models import count_kinds
from polyseme.cli.output import Form, emit, for_people

if TYPE_CHECKING:
    from polyseme.feedback.verdict_log import VerdictLog
    from polyseme.published.tagger import PublishedTagger
    from polyseme.tagger import ZeroShotTagger

_MOST_NAMED = 10  # labels that are named as the most frequent


@command(LEARNING)
def info(
    path: Path,
    *,
    tables: TableOptions,
    form: Form = Form.auto,
) -> None:
    """Show what is in a model or in a table of documents."""
    from polyseme.cli.inputs import is_table

    if path.is_dir() and not is_table(path):
        facts = _describe_model(path)
    else:
        facts = _describe_documents(path, tables)
    if not for_people(form):
        emit([facts], form)
        return
    rows = [{"what": name, "value": value} for name, value in facts.items()]
    emit(rows, form)


def _describe_documents(path: Path, tables: TableOptions) -> dict[str, Any]:
    """Return the facts about a table of documents."""
    import numpy as np

    corpus = polyseme.LabelCorpus.read(path, **asdict(tables))
    labels_per_document = corpus.lengths
    label_counts = corpus.counts
    columns = np.argsort(-label_counts, kind="stable")
    most_frequent = []
    for column in columns[:_MOST_NAMED]:
        most_frequent.append(f"{corpus.labels[column]} ({label_counts[column]})")
    return {
        "documents": len(corpus),
        "empty documents": int((labels_per_document == 0).sum()),
        "labels": len(corpus.labels),
        "labels a document": float(labels_per_document.mean()),
        "spellings joined": len(corpus.spellings),
        "most frequent": most_frequent,
        "splits": sorted(set(corpus.splits or ())),
    }


def _describe_model(path: Path) -> dict[str, Any]:
    """Return the facts about a saved tagger, by what they are called."""
    tagger = polyseme.load(path)
    facts: dict[str, Any] = {"labels": len(tagger.classes_)}
    facts |= count_kinds(tagger)
    if isinstance(tagger, polyseme.ZeroShotTagger):
        facts |= _describe_default_model(tagger, path)
    else:
        facts |= _describe_published_model(tagger)
    n_features = tagger.n_features_in_
    extractor_name = str(tagger.features_)
    if not n_features:
        extractor_name = "none (tags only)"
    elif tagger.features_ is None:
        extractor_name = "none (numbers)"
    facts["features"] = n_features
    facts["feature extractor"] = extractor_name
    facts["documents left out"] = len(tagger.dropped_)
    return facts


def _describe_default_model(tagger: ZeroShotTagger, path: Path) -> dict[str, Any]:
    """Return the facts that only the default tagger has."""
    space = tagger.space_
    store = tagger.store_
    last_losses = space.history_[-1] if space.history_ else {}
    facts: dict[str, Any] = {
        "method": "one concept space",
        "fitted or changed": _time_of_save(path),
        "data": space.data_digest_[:16],
        "known documents": len(store.ids),
        "different tag sets": len(store.points),
        "labels by name": 0 if tagger.named_ is None else len(tagger.named_.labels),
        "members": len(space.members_),
        "dimensions": space.n_dimensions,
        "training steps": space.plan_.n_steps,
        "final loss of documents": last_losses.get("documents"),
        "final loss of items": last_losses.get("items") if tagger.n_features_in_ else None,
    }
    validation = tagger.validation_
    if validation is not None:
        for kind in ("seen", "unseen"):
            measures = getattr(validation, kind)
            facts[f"held-out E-MAP, {kind}"] = measures.example_map
            facts[f"held-out C-MAP, {kind}"] = measures.concept_map
            facts[f"held-out precision at 0.5, {kind}"] = measures.precision
            facts[f"held-out recall at 0.5, {kind}"] = measures.recall
        facts["highest precision of unseen"] = validation.highest_precision
        facts["foretold gain by untagged items"] = validation.pool_gain
        facts["foretold gain by 10 answers a label"] = validation.click_gain
        if validation.name_gains is not None:
            seen_gain, unseen_gain = validation.name_gains
            facts["foretold gain by names, seen"] = seen_gain
            facts["foretold gain by names, unseen"] = unseen_gain
    facts["learned from untagged items"] = tagger.pooled_
    facts |= _describe_log(tagger.verdicts_)
    facts["blocked"] = list(tagger.vocabulary_.blocked)
    return facts


def _describe_published_model(tagger: PublishedTagger) -> dict[str, Any]:
    """Return the facts that only a tagger of the published method has."""
    embedding = tagger.embedding_
    store = tagger.store_
    return {
        "method": "as published",
        "known documents": len(store.ids),
        "known concepts": len(store.points),
        "dimensions": embedding.n_components,
        "topics": embedding.context_descriptor_.n_topics_,
        "E-MAP of tag sets read back": embedding.best_score_,
        "epochs": len(embedding.history_),
        "mapper": "none (tags only)" if tagger.mapper_ is None else tagger.mapper_.kind,
        "relatedness": tagger.relatedness,
    }


def _describe_log(log: VerdictLog) -> dict[str, Any]:
    """Count the answers in the log of a model."""
    from polyseme.feedback.verdict_log import Undo

    standing_verdicts = log.standing()
    counts = Counter(verdict.label for verdict in standing_verdicts)
    most_common = [f"{label} ({count})" for label, count in counts.most_common(_MOST_NAMED)]
    n_undone = sum(isinstance(event, Undo) for event in log.events())
    return {
        "answers": len(standing_verdicts),
        "answers undone": n_undone,
        "answers are about": most_common,
    }


def _time_of_save(path: Path) -> str:
    """Return when a model was saved, in local time as 2025-01-31T12:00:00+01:00."""
    from polyseme.storage.model_file import MODEL_FILE

    seconds = (path / MODEL_FILE).stat().st_mtime
    saved_at = datetime.fromtimestamp(seconds).astimezone()
    return saved_at.isoformat(timespec="seconds")
