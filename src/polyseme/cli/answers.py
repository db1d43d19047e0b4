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

# A word of `--undo` such as 12-15 has no more letters, and stands for no more numbers, than these:
# a slip of the keys should not take all memory.
_MOST_LETTERS = 24
_MOST_NUMBERS = 10_000_000


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
    from polyseme.cli.inputs import TableReader, item_heads, read_untagged, tags_of_items
    from polyseme.media import Extracted

    tagger = load_default_tagger(model, "ask")
    reader = TableReader(tables, features_column, tagger.normalize_labels_)
    X = read_untagged(features, tagger.features_, reader)
    tags = None
    if documents is not None:
        corpus = reader.corpus(documents)
        heads = item_heads(X)
        tags = tags_of_items(corpus, heads, documents, features, reader)
    elif isinstance(X, Extracted) and any(X.tags):
        tags = list(X.tags)  # keywords of the files
    if strategy == "errors" and tags is None:
        refuse("To look for missing and wrong tags, give the items' tags with --documents.")
    with working("looking for questions", verbose=True):
        questions = tagger.ask(X, label, top, strategy, tags, seed)
    records = []
    for question in questions:
        record: dict[str, Any] = {"item": question.item, "label": question.label}
        if not for_people(form):
            record["answer"] = None  # people write true or false here, for `learn`
        record["score"] = round(question.probability, 6)
        record["reason"] = question.reason
        records.append(record)
    emit(records, form)
    if not questions and strategy == "errors":
        say("no tag looks wrong: the model and the items' tags agree")
    elif not questions:
        say("there is nothing left to ask: every item has an answer")


@command(ANSWERING)
def learn(
    model: Path,
    answers: list[str] | None = None,
    yes: list[str] | None = None,
    no: list[str] | None = None,
    features: Path | None = None,
    reviewer: str | None = None,
    undo: bool = False,
    undo_last: int | None = None,
    features_column: str | None = None,
) -> None:
    """Learn from yes and no to tags of items, at once. Nothing is trained; all can be undone."""
    from polyseme.base.validation import first_few
    from polyseme.cli.inputs import TableReader, items_to_learn

    words = answers or []
    if undo or undo_last is not None:
        has_other_options = bool(yes or no or features or reviewer)
        has_numbers = bool(words)
        has_count = undo_last is not None
        if has_other_options or has_numbers == has_count:
            refuse(
                "`--undo` takes numbers of answers, and `--undo-last` how many; no other option "
                "goes with them."
            )
        _undo(model, words, undo_last)
        return
    if not words:
        refuse("Give a file of answers, or items with --yes or --no and a tag.")
    tagger = load_default_tagger(model, "learn")
    if not tagger.n_features_in_:
        refuse(
            "This model was fitted without features, so it cannot learn from answers about items."
        )
    verdicts = _read_verdicts(words, yes or [], no or [])
    reader = TableReader(TableOptions(), features_column)
    items = [verdict.item for verdict in verdicts]
    names, X = items_to_learn(items, tagger, features, reader)
    named_verdicts = []
    for verdict, name in zip(verdicts, names, strict=True):
        author = verdict.who or reviewer
        named_verdicts.append(verdict._replace(item=name, who=author))

    former_labels = frozenset(tagger.classes_)
    numbers = tagger.learn(named_verdicts, X)
    new_labels = [label for label in tagger.classes_ if label not in former_labels]
    new_tags_note = ""
    if new_labels:
        new_tags_note = f"; new tags: {first_few(new_labels)}"
    say(f"learned from {summarize_verdicts(named_verdicts)}{new_tags_note}")
    undo_words = _undo_words(numbers)
    say(f"to take back: polyseme learn {model} --undo {undo_words}")
    typer.echo(undo_words)


def _read_verdicts(words: Sequence[str], yes: Sequence[str], no: Sequence[str]) -> list[Verdict]:
    """Return the verdicts of a command line.

    Parameters
    ----------
    words : sequence of str
        Items, where there are labels of `yes` or `no`; otherwise files of answers.
    yes, no : sequence of str
        Labels that every item has, and that no item has.
    """
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


def _undo(model: Path, words: Sequence[str], n_last: int | None) -> None:
    """Take answers back: those with the numbers in `words`, or the last `n_last` that stand."""
    tagger = load_default_tagger(model, "learn")
    log = tagger.verdicts_
    standing_by_number: dict[int, Verdict] = {}
    for verdict in log.standing():
        if verdict.number is not None:
            standing_by_number[verdict.number] = verdict
    if not standing_by_number:
        refuse(f"'{model}' has no answers that could be taken back.")
    if n_last is None:
        numbers = _read_numbers(words)
    else:
        numbers = sorted(standing_by_number)[-n_last:]
    log.undo(numbers)
    undone_verdicts = []
    for number in numbers:
        if number in standing_by_number:
            undone_verdicts.append(standing_by_number[number])
    n_left = len(log.standing())
    say(f"taken back {summarize_verdicts(undone_verdicts)}; {counted(n_left, 'answer')} left")
    typer.echo(_undo_words(numbers))


def _undo_words(numbers: Sequence[int]) -> str:
    """Write numbers of verdicts as `--undo` reads them, a run of them as 12-15."""
    first = numbers[0]
    last = numbers[-1]
    run = list(range(first, last + 1))
    is_run = list(numbers) == run
    if is_run and len(numbers) > 1:
        return f"{first}-{last}"
    return " ".join(map(str, numbers))


def _read_numbers(words: Sequence[str]) -> list[int]:
    """Read numbers of verdicts, or runs of them such as 12-15; anything else is refused."""
    numbers: list[int] = []
    for word in words:
        first_digits, _, last_digits = word.partition("-")
        if not last_digits:
            last_digits = first_digits
        are_numbers = first_digits.isdecimal() and last_digits.isdecimal()
        if len(word) > _MOST_LETTERS or not are_numbers:
            refuse(
                "`--undo` takes numbers such as 12 or 12-15, as `learn` printed them; got "
                f"'{word}'."
            )
        first = int(first_digits)
        last = min(int(last_digits), first + _MOST_NUMBERS)
        numbers += range(first, last + 1)
    return numbers
