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
        Of the items.
    classes : array of str, shape (n_classes,)
    column : int or None
        The column of the label that is asked about; None for any.
    carried : csr matrix, shape (n, n_classes), or None
        The tags that items have.
    verdicts : iterable of (item, label, answer)
        What is not asked again.
    column_of : callable
        Returns the column of a label, None where it is not known.
    k, strategy, generator : as for `choose`
    """
    n = len(names)
    class_columns = np.arange(len(classes))
    if scorer.class_columns is not None:
        class_columns = scorer.class_columns
    asked_classes = np.arange(len(classes))
    columns = None
    if column is not None:
        asked_classes = np.flatnonzero(class_columns == column)
        # Labels that imply it have a part in its score.
        sources = [source for source, target in scorer.implications if target == column]
        columns = list(dict.fromkeys([column, *sources]))
    n_asked = len(asked_classes)

    is_eligible = np.ones(n, dtype=bool)
    if strategy == "errors":
        assert carried is not None
        # Items without any tag were never tagged.
        is_eligible = np.asarray(carried.getnnz(axis=1) > 0)
    if carried is not None:
        carried = carried[:, asked_classes]

    place_by_column = {
        asked_column: place for place, asked_column in enumerate(class_columns[asked_classes])
    }
    answers = answer_table(
        verdicts,
        {name: row for row, name in enumerate(names)},
        lambda label: place_by_column.get(column_of(label)),
        (n, n_asked),
    )

    def blocks() -> Iterator[Block]:
        for rows, logits in scorer.score(features, None, columns=columns):
            shape = (len(logits), n_asked)
            is_answered = np.zeros(shape, dtype=bool)
            if answers is not None:
                answer_block = answers[rows].toarray()
                is_answered = answer_block != 0
            has_tag = np.zeros(shape, dtype=bool)
            if carried is not None:
                has_tag = carried[rows].toarray()
            may_ask = is_eligible[rows]
            asked_logits = logits[:, :n_asked]
            asked_logits = np.where(may_ask[:, None], asked_logits, -np.inf)
            yield Block(rows.start, asked_logits, is_answered, has_tag)

    questions = []
    for row, place, probability, reason in choose(blocks, k, strategy, generator):
        label = str(classes[asked_classes[place]])
        questions.append(Question(names[row], row, label, probability, reason))
    return questions
