"""Questions about items: which label of which item is worth a yes or no.

In: a scorer, items, the tags that they have and the verdicts that were given. Out: questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.feedback.active_learning import Block, Question, choose
from polyseme.feedback.standing_verdicts import answer_table
from polyseme.scoring.scorer import Items, LabelScorer


def select_questions(
    scorer: LabelScorer,
    features: Items,
    names: Sequence[str],
    classes: NDArray[np.object_],
    column: int | None,
    carried: sp.csr_matrix | None,
    verdicts: Iterable[tuple[str, str, bool]],
    column_of: Callable[[str], int | None],
    k: int,
    strategy: str,
    generator: np.random.Generator,
) -> list[Question]:
    """Select what to ask next; see `ZeroShotTagger.ask`.

    Parameters
    ----------
    scorer : LabelScorer
    features : array, csr matrix or EncodedItems, shape (n, n_features)
    names : sequence of str, length n
        What verdicts and questions call the items.
    classes : array of str, shape (n_classes,)
        Labels in the public order, `classes_`.
    column : int or None
        The column of the label that is asked about, in the scorer's order; None for any.
    carried : csr matrix of bool, shape (n, n_classes), or None
        The tags that items have, in the public order.
    verdicts : iterable of (item, label, answer)
        What is not asked again.
    column_of : callable
        Returns the column of a label in the scorer's order, None where it is not known.
    k, strategy, generator : as for `choose`

    Returns
    -------
    list of Question
        k at the most, in the order of `choose`.
    """
    n_items = len(names)
    n_classes = len(classes)
    class_columns = np.arange(n_classes)
    if scorer.class_columns is not None:
        class_columns = scorer.class_columns
    asked_classes = np.arange(n_classes)
    scored_columns = None
    if column is not None:
        asked_classes = np.flatnonzero(class_columns == column)
        # Labels that imply it have a part in its score, so they are scored behind it.
        scored_columns = [column]
        for source, target in scorer.implications:
            if target == column and source not in scored_columns:
                scored_columns.append(source)
    n_asked = len(asked_classes)

    may_ask = np.ones(n_items, dtype=bool)
    if strategy == "errors":
        assert carried is not None
        # Items without any tag were never tagged.
        n_tags = carried.getnnz(axis=1)
        may_ask = np.asarray(n_tags > 0)
    asked_tags = None
    if carried is not None:
        asked_tags = carried[:, asked_classes]

    asked_columns = class_columns[asked_classes]
    place_by_column = {asked_column: place for place, asked_column in enumerate(asked_columns)}
    row_by_name = {name: row for row, name in enumerate(names)}
    answers = answer_table(
        verdicts,
        row_by_name,
        lambda label: place_by_column.get(column_of(label)),
        shape=(n_items, n_asked),
    )

    def blocks() -> Iterator[Block]:
        """Yield the items block by block, with the asked classes as columns."""
        for rows, logits in scorer.score(features, None, columns=scored_columns):
            shape = (len(logits), n_asked)
            is_answered = np.zeros(shape, dtype=bool)
            if answers is not None:
                answer_block = answers[rows].toarray()
                is_answered = answer_block != 0
            has_tag = np.zeros(shape, dtype=bool)
            if asked_tags is not None:
                has_tag = asked_tags[rows].toarray()
            may_ask_row = may_ask[rows]
            asked_logits = logits[:, :n_asked]
            asked_logits = np.where(may_ask_row[:, None], asked_logits, -np.inf)
            yield Block(rows.start, asked_logits, is_answered, has_tag)

    questions = []
    for row, place, probability, reason in choose(blocks, k, strategy, generator):
        asked_class = asked_classes[place]
        label = str(classes[asked_class])
        question = Question(names[row], row, label, probability, reason)
        questions.append(question)
    return questions
