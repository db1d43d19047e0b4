"""The commands about single answers: what to look at next, and yes or no to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import typer

from polyseme.cli.app import ANSWERING, TableOptions, command, refuse
from polyseme.cli.commands import default_tagger
from polyseme.cli.output import Form, counted, emit, for_people, say, told

_DIGITS, _MOST = 24, 10_000_000  # of a word of `--undo`: letters, and numbers that it stands for


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
    """Suggest what to look at next: which tag of which item is worth a yes or no."""
    from polyseme._progress import working
    from polyseme.cli.reading import Reading, read_untagged, tags_of_items
    from polyseme.features import Extracted

    tagger = default_tagger(model, "ask")
    reading = Reading(tables, features_column, tagger.normalize_labels_)
    X, tags = read_untagged(features, tagger.features_, reading), None
    files = isinstance(X, Extracted)
    if documents is not None:
        name = "file" if files else "id"
        items = [{name: one} for one in X.ids] if X.ids is not None else [{}] * X.shape[0]
        tags = tags_of_items(reading.corpus(documents), items, documents, features, reading)
    elif files and any(X.tags):
        tags = list(X.tags)  # keywords of the files
    if strategy == "errors" and tags is None:
        refuse("To look for missing and wrong tags, give the items' tags with --documents.")
    with working("looking for questions", shown=True):
        questions = tagger.ask(X, label, top, strategy, tags, seed)
    records = [
        {"item": one.item, "label": one.label, "answer": None}
        | {"score": round(one.probability, 6), "reason": one.reason}
        for one in questions
    ]
    if for_people(form):
        for record in records:
            del record["answer"]
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
    """Take yes or no to tags of items, at once: nothing is trained, and all can be undone."""
    from polyseme._validation import first_few
    from polyseme.cli.reading import Reading, items_to_learn, read_answers
    from polyseme.verdicts import Verdict

    words = given or []
    if undo or undo_last is not None:
        if yes or no or features or who or bool(words) == (undo_last is not None):
            refuse("`--undo` takes numbers, `--undo-last` how many, and neither anything else.")
        _undo(model, words, undo_last)
        return
    if not words:
        refuse("Give a file of answers, or items with --yes or --no and a tag.")
    tagger = default_tagger(model, "learn")
    if not tagger.n_features_in_:
        refuse("This model was fitted without features, so it knows no items to learn from.")
    if yes or no:
        labels = [(label, True) for label in yes or []] + [(label, False) for label in no or []]
        said = [Verdict(item, label, answer) for item in words for label, answer in labels]
    else:
        said = [verdict for file in words for verdict in read_answers(Path(file))]
    reading = Reading(TableOptions(), features_column)
    names, X = items_to_learn([one.item for one in said], tagger, features, reading)
    pairs = zip(said, names, strict=True)
    said = [one._replace(item=name, who=one.who or who) for one, name in pairs]
    before = frozenset(tagger.classes_)
    numbers = tagger.learn(said, X)
    new = [label for label in tagger.classes_ if label not in before]
    news = f"; new tags: {first_few(new)}" if new else ""
    say(f"learned from {told(said)}{news}")
    say(f"to take back: polyseme learn {model} --undo {_range(numbers)}")
    typer.echo(_range(numbers))


def _undo(model: Path, words: Sequence[str], last: int | None) -> None:
    """Take answers back, by their numbers or the last ones that stand."""
    log = default_tagger(model, "learn").verdicts_
    standing = {one.number: one for one in log.standing() if one.number is not None}
    if not standing:
        refuse(f"'{model}' has no answers that could be taken back.")
    numbers = _numbers(words) if last is None else sorted(standing)[-last:]
    log.undo(numbers)
    known = [standing[number] for number in numbers if number in standing]
    say(f"taken back {told(known)}; {counted(len(log.standing()), 'answer')} left")
    typer.echo(_range(numbers))


def _range(numbers: Sequence[int]) -> str:
    """Write numbers, in a row of their own as first and last, as `--undo` reads them."""
    if list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
    return " ".join(map(str, numbers))


def _numbers(words: Sequence[str]) -> list[int]:
    """Read numbers, or the first and the last of some."""
    numbers: list[int] = []
    for word in words:
        first, _, last = word.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()) or len(word) > _DIGITS:
            refuse(
                f"`--undo` takes numbers such as 12 or 12-15, as `learn` gave them; got '{word}'."
            )
        numbers += range(int(first), min(int(last or first), int(first) + _MOST) + 1)
    return numbers
