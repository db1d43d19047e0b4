"""Why a label has its score: parts that add up to the logit that was given.

In: what a concept space knows of one item, and a label's readout. Out: how much of the logit comes
from the label's frequency, from the features, from each tag and from known tag sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.calibration import logit, sigmoid
from polyseme.corrections import CorrectionTable
from polyseme.members import Members, affine, rectified, squashed
from polyseme.reading import Features, Reading
from polyseme.store import Neighbour

Matrix = NDArray[np.float64]

# Places on the way from average to this item's tags at which slopes are taken.
_PLACES = 64


@dataclass(frozen=True)
class TagEvidence:
    """What one tag contributes.

    Attributes
    ----------
    tag : str
    probability : float
        How likely the item has it; 1 where it was given.
    part : float
        Its part of the logit.
    without : float
        What the logit would change by if nothing were known about this tag: if it were as likely
        as it is on average, or, where only tags were given, had not been given.
    """

    tag: str
    probability: float
    part: float
    without: float


@dataclass(frozen=True)
class Evidence:
    """Parts of a label's logit, which add up to it.

    A tag's part is its integrated gradient: the slope of the logit along the straight way from
    what tags items have on average to this item's probable tags, times how far the tag moves.

    Attributes
    ----------
    label, kind : str
    probability, logit : float
        As the tagger gives them.
    frequency : float
        The logit where nothing is known: average features and tags, known tag sets all alike.
    features : float
        What the features say directly.
    tags : tuple of TagEvidence
        What the tags say that move it most.
    other_tags : float
        What all other tags say.
    known : float
        What known tag sets say by lying near (priming): 0 for tags alone, and for labels that are
        newer than the space.
    neighbours : tuple of Neighbour
        The nearest known tag sets, from near to far.
    verdicts : float
        What answers about this label add (`ZeroShotTagger.learn`).
    implied_by : str or None
        The label whose score this is, where the vocabulary says that it implies this one, or is
        another name of it.
    """

    label: str
    kind: str
    probability: float
    logit: float
    frequency: float
    features: float
    tags: tuple[TagEvidence, ...]
    other_tags: float
    known: float
    neighbours: tuple[Neighbour, ...]
    verdicts: float = 0.0
    implied_by: str | None = None

    def parts(self) -> tuple[tuple[str, float], ...]:
        """Return what adds up to the logit, as names and numbers."""
        return (
            ("how common the tag is", self.frequency),
            ("features", self.features),
            *((tag.tag, tag.part) for tag in self.tags),
            ("other tags", self.other_tags),
            ("known tag sets nearby", self.known),
            *((("answers about it", self.verdicts),) if self.verdicts else ()),
        )

    def __repr__(self) -> str:
        """Return what it is evidence of, in a line; `str` tells the parts."""
        rests = f"{len(self.tags)} tags, {len(self.neighbours)} known tag sets"
        return f"Evidence({self.label} ({self.kind}), logit {self.logit:+.2f}: {rests})"

    def __str__(self) -> str:
        lines = [f"{part:+.2f} {name}" for name, part in self.parts()]
        label = f"{self.label} ({self.kind}) has the probability {self.probability:.2f}"
        if self.implied_by is not None:
            label += f", by way of {self.implied_by}"
        return "\n".join([*lines, f"{self.logit:+.2f} in all: {label}"])


def evidence_of(
    reading: Reading,
    corrections: CorrectionTable,
    features: Features | None,
    tags: sp.csr_matrix | None,
    column: int,
    k: int,
    *,
    kind: str,
    in_use: bool,
) -> Evidence:
    """Take a label's logit of one item apart.

    Parameters
    ----------
    reading : Reading
    corrections : CorrectionTable
        What answers add.
    features : array or csr matrix, shape (1, n_features), or None
    tags : csr matrix, shape (1, n_labels), or None
        Those that are given.
    column, k : int
        The label's column; how many tags and known tag sets to name.
    kind : str
        The label's.
    in_use : bool
        Whether it may be suggested; else its probability is 0.
    """
    space, store = reading.space, reading.store
    readout = reading.of_tags if features is None else reading.of_items
    weights = readout.weights[:, column]
    learned = None if tags is None else sp.csr_matrix(tags[:, : store.n_learned])
    average = np.zeros(len(space.order_), dtype=np.float32)
    n_members_dimensions = space.members_.n_dimensions
    direct, share, features_part = np.zeros((1, n_members_dimensions)), 1.0, 0.0
    coordinates = np.zeros((1, space.n_dimensions - n_members_dimensions), dtype=np.float32)
    if features is None:
        assert learned is not None
        probable = np.asarray(learned[:, space.order_].toarray(), dtype=np.float32)[0]
    else:
        view = space.views(features, learned)
        direct, probable, share = view.direct.astype(np.float64), view.probable[0], space.context
        coordinates = view.coordinates
        average[: space.n_seen_] = space.mean_tags_
        says = np.hstack([(1 - share) * direct, coordinates])[0]
        usually_says = space.mean_code_.copy()
        usually_says[:n_members_dimensions] *= 1 - share
        features_part = float((says - usually_says) @ weights)

    def code_of(probable_tags: NDArray[np.float32]) -> NDArray[np.float32]:
        context = space.encode_tags(probable_tags[None])
        composed = (1 - share) * direct + share * context
        return np.asarray(np.hstack([composed, coordinates]), dtype=np.float32)

    # As it was coded when it was scored, to the last bit.
    code = reading.codes(features, tags)
    logits = reading.logits(code, features, corrections)[0]
    of_members = weights[:n_members_dimensions]
    parts = share * tag_parts(space.members_, of_members, average, probable)
    known = 0.0
    if features is not None and space.priming and column < store.n_learned:
        prior = store.counts[column] / max(len(store.ids), 1)
        usual = space.priming * float(logit(np.array(prior)))
        votes = store.votes(space.points(code))[0, column]
        known = space.priming * float(logit(np.array(votes))) - usual
    answers = 0.0
    if features is not None and column in corrections.columns:
        own = corrections.select([column])
        answers = float(own.additions(space.sketch(features))[0, 0])
    first = np.argsort(-np.abs(parts), kind="stable")[:k]
    named = []
    for place in first[parts[first] != 0].tolist():
        changed = probable.copy()
        changed[place] = average[place]
        less = reading.logits(code_of(changed), features, corrections)[0, column] - logits[column]
        tag = reading.labels[space.order_[place]]
        numbers = (float(probable[place]), float(parts[place]), float(less))
        named.append(TagEvidence(tag, *numbers))
    value = float(logits[column])
    return Evidence(
        reading.labels[column],
        kind,
        float(sigmoid(np.array(value))) if in_use else 0.0,
        value,
        # The rest: what is left where features and tags are average and documents vote alike.
        value - features_part - float(parts.sum()) - known - answers,
        features_part,
        tuple(named),
        float(parts.sum()) - sum(one.part for one in named),
        known,
        store.nearest(space.points(code)[0], column, k),
        answers,
    )


def tag_parts(
    members: Members, weights: Matrix, start: NDArray[np.float32], end: NDArray[np.float32]
) -> Matrix:
    """Share out among tags what they change in a label's logit, by integrated gradients.

    Tags (n_labels,) move from average to this item's, and the label is read from codes with weights
    (n_dimensions,). Parts (n_labels,) sum to the change of the logit: midpoints leave a small rest,
    which is shared out in proportion to the parts' sizes.
    """
    places = (np.arange(_PLACES, dtype=np.float32) + 0.5) / _PLACES
    moved = end - start
    read = weights.reshape(len(members), 1, -1).astype(np.float32)
    (first, bias), (second, offset) = members.document_layers
    units = rectified(affine(start + places[:, None] * moved, first, bias))
    codes = squashed(affine(units, second, offset))
    back = ((read * (1 - codes * codes)) @ second.mT) * (units > 0)
    slopes = (back @ first.mT).sum(axis=0).mean(axis=0)
    parts = (slopes * moved).astype(np.float64)
    ends = members.encode_documents(np.stack([start, end]))
    change = float((read * (ends[:, 1:] - ends[:, :1])).sum(dtype=np.float64))
    rest, sizes = change - parts.sum(), np.abs(parts)
    return np.asarray(parts + rest * sizes / sizes.sum()) if sizes.sum() > 0 else parts
