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
        size = f"{len(self.tags)} tags, {len(self.neighbours)} known tag sets"
        return f"Evidence({self.label} ({self.kind}), logit {self.logit:+.2f}: {size})"

    def __str__(self) -> str:
        lines = [f"{number:+.2f} {name}" for name, number in self.parts()]
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
    """Compute the parts of a label's logit for one item.

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
    space = reading.space
    store = reading.store
    readout = reading.of_tags if features is None else reading.of_items
    weights = readout.weights[:, column]
    learned = None if tags is None else sp.csr_matrix(tags[:, : store.n_learned])
    average = np.zeros(len(space.order_), dtype=np.float32)
    n_member_dimensions = space.members_.n_dimensions
    n_coordinates = space.n_dimensions - n_member_dimensions
    if features is None:
        assert learned is not None
        direct = np.zeros((1, n_member_dimensions))
        coordinates = np.zeros((1, n_coordinates), dtype=np.float32)
        probable = np.asarray(learned[:, space.order_].toarray(), dtype=np.float32)[0]
        context_share = 1.0
        feature_part = 0.0
    else:
        view = space.views(features, learned)
        direct = view.direct.astype(np.float64)
        coordinates = view.coordinates
        probable = view.probable[0]
        context_share = space.context
        average[: space.n_seen_] = space.mean_tags_
        feature_code = np.hstack([(1 - context_share) * direct, coordinates])[0]
        mean_feature_code = space.mean_code_.copy()
        mean_feature_code[:n_member_dimensions] *= 1 - context_share
        feature_part = float((feature_code - mean_feature_code) @ weights)

    def code_of(probable_tags: NDArray[np.float32]) -> NDArray[np.float32]:
        context = space.encode_tags(probable_tags[None])
        member_code = (1 - context_share) * direct + context_share * context
        return np.asarray(np.hstack([member_code, coordinates]), dtype=np.float32)

    # As it was coded when it was scored, to the last bit.
    code = reading.codes(features, tags)
    logits = reading.logits(code, features, corrections)[0]
    member_weights = weights[:n_member_dimensions]
    contributions = context_share * tag_parts(space.members_, member_weights, average, probable)
    tags_sum = float(contributions.sum())
    priming_part = 0.0
    if features is not None and reading.is_voted_for(column):
        prior = store.counts[column] / max(len(store.ids), 1)
        prior_logit = space.priming * float(logit(np.array(prior)))
        share_of_votes = store.votes(space.points(code))[0, column]
        vote_logit = space.priming * float(logit(np.array(share_of_votes)))
        priming_part = vote_logit - prior_logit
    verdict_part = 0.0
    if features is not None and column in corrections.columns:
        correction = corrections.select([column])
        verdict_part = float(correction.additions(space.sketch(features))[0, 0])

    strongest = np.argsort(-np.abs(contributions), kind="stable")[:k]
    tag_evidence = []
    for place in strongest[contributions[strongest] != 0].tolist():
        probable_without = probable.copy()
        probable_without[place] = average[place]
        logits_without = reading.logits(code_of(probable_without), features, corrections)[0]
        evidence = TagEvidence(
            tag=reading.labels[space.order_[place]],
            probability=float(probable[place]),
            part=float(contributions[place]),
            without=float(logits_without[column] - logits[column]),
        )
        tag_evidence.append(evidence)

    value = float(logits[column])
    return Evidence(
        label=reading.labels[column],
        kind=kind,
        probability=float(sigmoid(np.array(value))) if in_use else 0.0,
        logit=value,
        # What is left where features and tags are average and documents vote alike.
        frequency=value - feature_part - tags_sum - priming_part - verdict_part,
        features=feature_part,
        tags=tuple(tag_evidence),
        other_tags=tags_sum - sum(evidence.part for evidence in tag_evidence),
        known=priming_part,
        neighbours=store.nearest(space.points(code)[0], column, k),
        verdicts=verdict_part,
    )


def tag_parts(
    members: Members, weights: Matrix, start: NDArray[np.float32], end: NDArray[np.float32]
) -> Matrix:
    """Compute what each tag changes in a label's logit, by integrated gradients.

    Tags (n_labels,) move from average to this item's, and the label is read from codes with weights
    (n_dimensions,). Parts (n_labels,) sum to the change of the logit: midpoints leave a small
    remainder, which is shared out in proportion to the parts' sizes.
    """
    midpoints = (np.arange(_PLACES, dtype=np.float32) + 0.5) / _PLACES
    difference = end - start
    member_weights = weights.reshape(len(members), 1, -1).astype(np.float32)
    (first, bias), (second, offset) = members.document_layers

    # Forwards through the two layers at every midpoint, then backwards.
    units = rectified(affine(start + midpoints[:, None] * difference, first, bias))
    codes = squashed(affine(units, second, offset))
    code_gradients = member_weights * (1 - codes * codes)
    unit_gradients = (code_gradients @ second.mT) * (units > 0)
    tag_gradients = (unit_gradients @ first.mT).sum(axis=0).mean(axis=0)
    contributions = (tag_gradients * difference).astype(np.float64)

    end_codes = members.encode_documents(np.stack([start, end]))
    code_change = end_codes[:, 1:] - end_codes[:, :1]
    logit_change = float((member_weights * code_change).sum(dtype=np.float64))
    remainder = logit_change - contributions.sum()
    sizes = np.abs(contributions)
    if not sizes.sum() > 0:
        return np.asarray(contributions)
    return np.asarray(contributions + remainder * sizes / sizes.sum())
