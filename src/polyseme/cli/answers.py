"""The commands about answers: `ask` selects questions, `learn` takes yes and no."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from polyseme.base.text import counted
from polyseme.cli.app import ANSWERING, TableOptions, command, refuse
from polyseme.cli.models import load_default_tagger
from polyseme.cli.output import Form, emit, for_people, say, summarize_verdicts

if TYPE_CHECKING:
    from polyseme.feedback.verdict_log import Verdict

# Limits of a word of `--undo`: hexadecimal digits of an id, and the largest number of a verdict.
_DIGITS = 24
_MOST = 10_000_000


@command(ANSWERING)
def ask(
    model: Path,
    features: Path,
    label: str | None = None,
    top: int = 30,
    strategy: Literal["active", "likeliest", "random", "errors"] = "active",
    documents: Path | None = None,
    seed: int = 0,
    features_column: str | None = None,
    *,
    tables: TableOptions,
    form: Form = Form.auto,
) -> None:
    """Suggest questions: which tag of which item is worth a yes or no."""
    from polyseme.base.progress import working
    from polyseme.cli.inputs import TableReader, read_untagged, tags_of_items
    from polyseme.media import Extracted

    tagger = load_default_tagger(model, "ask")
    reader = TableReader(tables, features_column, tagger.normalize_labels_)
    X = read_untagged(features, tagger.features_, reader)
    tags = None
    are_files = isinstance(X, Extracted)
    if documents is not None:
        items: list[dict[str, str]] = [{}] * X.shape[0]
        if X.ids is not None:
            id_field = "file" if are_files else "id"
            items = [{id_field: item_id} for item_id in X.ids]
        tags = tags_of_items(reader.corpus(documents), items, documents, features, reader)
    elif are_files and any(X.tags):
        tags = list(X.tags)  # keywords of the files
    if strategy == "errors" and tags is None:
        refuse("To look for missing and wrong tags, give the items' tags with --documents.")
    with working("looking for questions", verbose=True):
        questions = tagger.ask(X, label, top, strategy, tags, seed)
    records = []
    for question in questions:
        record: dict[str, Any] = {"item": question.item, "label": question.label}
        if not for_people(form):
            record["answer"] = None  # to be filled in
        record["score"] = round(question.probability, 6)
        record["reason"] = question.reason
        records.append(record)
    emit(records, form)
    if not questions and strategy == "errors":
        say("no tag looks wrong: the model and the items' tags agree")
    elif not questions:
        say("nothing is left to ask about: every item has been answered for")


@command(ANSWERING)
def learn(
    model: Path,
    given: list[str] | None = None,
    yes: list[str] | None = None,
    no: list[str] | None = None,
    features: Path | None = None,
    who: str | None = None,
    undo: bool = False,
    undo_last: int | None = None,
    features_column: str | None = None,
) -> None:
    """Learn yes or no to tags of items at once: nothing is trained, and all can be undone."""
    from polyseme.base.validation import first_few
    from polyseme.cli.inputs import TableReader, items_to_learn

    words = given or []
    if undo or undo_last is not None:
        has_other_options = bool(yes or no or features or who)
        if has_other_options or bool(words) == (undo_last is not None):
            refuse("`--undo` takes numbers, `--undo-last` how many, and neither anything else.")
        _undo(model, words, undo_last)
        return
    if not words:
        refuse("Give a file of answers, or items with --yes or --no and a tag.")
    tagger = load_default_tagger(model, "learn")
    if not tagger.n_features_in_:
        refuse("This model was fitted without features, so it knows no items to learn from.")
    verdicts = _read_verdicts(words, yes or [], no or [])
    reader = TableReader(TableOptions(), features_column)
    items = [verdict.item for verdict in verdicts]
    names, X = items_to_learn(items, tagger, features, reader)
    named_verdicts = []
    for verdict, name in zip(verdicts, names, strict=True):
        reviewer = verdict.who or who
        named_verdicts.append(verdict._replace(item=name, who=reviewer))

    labels_before = frozenset(tagger.classes_)
    numbers = tagger.learn(named_verdicts, X)
    new_labels = [label for label in tagger.classes_ if label not in labels_before]
    news = f"; new tags: {first_few(new_labels)}" if new_labels else ""
    say(f"learned from {summarize_verdicts(named_verdicts)}{news}")
    number_range = _range(numbers)
    say(f"to take back: polyseme learn {model} --undo {number_range}")
    typer.echo(number_range)


def _read_verdicts(words: Sequence[str], yes: Sequence[str], no: Sequence[str]) -> list[Verdict]:
    """Return verdicts on items, for labels of yes and no, or those of files of answers."""
    from polyseme.cli.inputs import read_answers
    from polyseme.feedback.verdict_log import Verdict

    verdicts: list[Verdict] = []
    if yes or no:
        for item in words:
            verdicts.extend(Verdict(item, label, True) for label in yes)
            verdicts.extend(Verdict(item, label, False) for label in no)
        return verdicts
    for file in words:
        verdicts.extend(read_answers(Path(file)))
    return verdicts


def _undo(model: Path, words: Sequence[str], last: int | None) -> None:
    """Take answers back, by their numbers or the last ones that stand."""
    tagger = load_default_tagger(model, "learn")
    log = tagger.verdicts_
    standing: dict[int, Verdict] = {}
    for verdict in log.standing():
        if verdict.number is not None:
            standing[verdict.number] = verdict
    if not standing:
        refuse(f"'{model}' has no answers that could be taken back.")
    if last is None:
        numbers = _numbers(words)
    else:
        numbers = sorted(standing)[-last:]
    log.undo(numbers)
    undone = [standing[number] for number in numbers if number in standing]
    n_left = len(log.standing())
    say(f"taken back {summarize_verdicts(undone)}; {counted(n_left, 'answer')} left")
    typer.echo(_range(numbers))


def _range(numbers: Sequence[int]) -> str:
    """Write numbers as `--undo` reads them: a run of them as first and last."""
    first = numbers[0]
    last = numbers[-1]
    is_run = list(numbers) == list(range(first, last + 1))
    if is_run and len(numbers) > 1:
        return f"{first}-{last}"
    return " ".join(map(str, numbers))


def _numbers(words: Sequence[str]) -> list[int]:
    """Read numbers, or runs of them such as 12-15."""
    numbers: list[int] = []
    for word in words:
        first_digits, _, last_digits = word.partition("-")
        if not last_digits:
            last_digits = first_digits
        are_numbers = first_digits.isdecimal() and last_digits.isdecimal()
        if len(word) > _DIGITS or not are_numbers:
            refuse(
                f"`--undo` takes numbers such as 12 or 12-15, as `learn` gave them; got '{word}'."
            )
        first = int(first_digits)
        last = min(int(last_digits), first + _MOST)
        numbers += range(first, last + 1)
    return numbers
