"""Why a label has its score: parts that add up to the logit that was given.

In: what a concept space knows of one item, and a label's readout. Out: how much of the logit comes
from the label's frequency, from the features, from each tag and from known tag sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.scoring.known_documents import Neighbour
from polyseme.scoring.scorer import Features, LabelScorer
from polyseme.space.calibration import sigmoid
from polyseme.space.concept_space import ConceptSpace, EncodedFeatures
from polyseme.space.members import Members, affine, rectified, squashed
from polyseme.space.votes import vote_logits

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

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
        lines = []
        for name, number in self.parts():
            lines.append(f"{number:+.2f} {name}")
        label = f"{self.label} ({self.kind}) has the probability {self.probability:.2f}"
        if self.implied_by is not None:
            label += f", by way of {self.implied_by}"
        return "\n".join([*lines, f"{self.logit:+.2f} in all: {label}"])


def explain_label(
    scorer: LabelScorer,
    features: Features | None,
    tags: sp.csr_matrix | None,
    column: int,
    k: int,
) -> Evidence:
    """Compute the parts of a label's logit for one item.

    Parameters
    ----------
    scorer : LabelScorer
    features : array or csr matrix, shape (1, n_features), or None
    tags : csr matrix, shape (1, n_labels), or None
        Those that are given.
    column, k : int
        The label's column; how many tags and known tag sets to name.
    """
    space = scorer.space
    readout = scorer.of_tags if features is None else scorer.of_items
    weights = readout.weights[:, column]
    learned_tags = None if tags is None else sp.csr_matrix(tags[:, : scorer.store.n_learned])
    average_tags = np.zeros(len(space.order_), dtype=np.float32)
    if features is None:
        assert learned_tags is not None
        encoded = _encode_tags_alone(space, learned_tags)
        context_share = 1.0
        feature_part = 0.0
    else:
        encoded = space.encode_items(features, learned_tags)
        context_share = space.context
        average_tags[: space.n_seen_] = space.mean_tags_
        feature_part = _feature_part(space, encoded, weights)
    item_tags = encoded.probable[0]

    def code_of(probable_tags: Floats) -> Floats:
        member_codes = space.encode_context(probable_tags[None])
        if features is not None:
            member_codes = space.compose(encoded.direct, member_codes)
        return np.hstack([member_codes, encoded.coordinates])

    # The logit, and what each part of the code contributes to it.
    logit_value = float(scorer.logits(encoded.codes, features)[0, column])
    member_weights = weights[: space.members_.n_dimensions]
    gradients = integrated_gradients(space.members_, member_weights, average_tags, item_tags)
    tag_parts = context_share * gradients
    vote_part = 0.0
    if features is not None and scorer.is_voted_for(column):
        vote_part = _vote_part(scorer, encoded.codes, column)
    verdict_part = 0.0
    if features is not None and column in scorer.corrections.columns:
        correction = scorer.corrections.select([column])
        verdict_part = float(correction.additions(space.project(features))[0, 0])

    # The tags that contribute most, each with the logit without it.
    strongest = np.argsort(-np.abs(tag_parts), kind="stable")[:k]
    tag_evidence = []
    for place in strongest[tag_parts[strongest] != 0].tolist():
        other_tags = item_tags.copy()
        other_tags[place] = average_tags[place]
        logit_without = float(scorer.logits(code_of(other_tags), features)[0, column])
        evidence = TagEvidence(
            tag=scorer.labels[space.order_[place]],
            probability=float(item_tags[place]),
            part=float(tag_parts[place]),
            without=logit_without - logit_value,
        )
        tag_evidence.append(evidence)

    tag_sum = float(tag_parts.sum())
    named_sum = sum(evidence.part for evidence in tag_evidence)
    return Evidence(
        label=scorer.labels[column],
        kind=str(scorer.kinds[column]),
        probability=float(sigmoid(np.array(logit_value))) if scorer.in_use[column] else 0.0,
        logit=logit_value,
        # What is left where features and tags are average and documents vote alike.
        frequency=logit_value - feature_part - tag_sum - vote_part - verdict_part,
        features=feature_part,
        tags=tuple(tag_evidence),
        other_tags=tag_sum - named_sum,
        known=vote_part,
        neighbours=scorer.store.nearest(space.points(encoded.codes)[0], column, k),
        verdicts=verdict_part,
    )


def _encode_tags_alone(space: ConceptSpace, tags: sp.csr_matrix) -> EncodedFeatures:
    """Encode one tag set (1, n_labels) as an item of which no features are known."""
    n_dimensions = space.members_.n_dimensions
    n_coordinates = space.linear_.n_coordinates
    ordered_tags = tags[:, space.order_].toarray()
    return EncodedFeatures(
        codes=space.encode_documents(tags),
        direct=np.zeros((1, n_dimensions), dtype=np.float32),
        probable=np.asarray(ordered_tags, dtype=np.float32),
        coordinates=np.zeros((1, n_coordinates), dtype=np.float32),
    )


def _feature_part(space: ConceptSpace, encoded: EncodedFeatures, weights: Matrix) -> float:
    """Compute what an item's features say directly, beyond what they say on average."""
    n_dimensions = space.members_.n_dimensions
    feature_codes = np.hstack([encoded.direct, encoded.coordinates])
    feature_code = feature_codes[0].astype(np.float64)
    difference = feature_code - space.mean_code_
    difference[:n_dimensions] *= 1 - space.context
    return float(difference @ weights)


def _vote_part(scorer: LabelScorer, codes: Floats, column: int) -> float:
    """Compute what known documents near an item's code say, beyond what all of them do."""
    store = scorer.store
    n_documents = max(len(store.ids), 1)
    frequency = store.counts[column] / n_documents
    share = scorer.vote_shares(codes)[0, column]
    votes = np.array([share, frequency])
    near, everywhere = vote_logits(votes, scorer.space.priming)
    return float(near - everywhere)


def integrated_gradients(
    members: Members, weights: Matrix, start: NDArray[np.float32], end: NDArray[np.float32]
) -> Matrix:
    """Compute what each tag changes in a label's logit, by integrated gradients.

    Tags (n_labels,) move from average to this item's, and the label is read from codes with weights
    (n_dimensions,). Parts (n_labels,) sum to the change of the logit: midpoints leave a small
    remainder, which is shared out in proportion to the parts' sizes.
    """
    places = np.arange(_PLACES, dtype=np.float32)
    midpoints = (places + 0.5) / _PLACES
    difference = end - start
    member_weights = weights.reshape(len(members), 1, -1).astype(np.float32)
    (first, bias), (second, offset) = members.document_layers

    # Forwards through the two layers at every midpoint.
    path = start + midpoints[:, None] * difference
    units = rectified(affine(path, first, bias))
    codes = squashed(affine(units, second, offset))

    # Backwards: tanh' = 1 - tanh².
    code_gradients = member_weights * (1 - codes * codes)
    is_active = units > 0
    unit_gradients = (code_gradients @ second.mT) * is_active
    member_gradients = unit_gradients @ first.mT
    gradients = member_gradients.sum(axis=0)
    tag_gradients = gradients.mean(axis=0)
    contributions = (tag_gradients * difference).astype(np.float64)

    end_codes = members.encode_documents(np.stack([start, end]))
    code_change = end_codes[:, 1:] - end_codes[:, :1]
    weighted_change = member_weights * code_change
    logit_change = float(weighted_change.sum(dtype=np.float64))
    remainder = logit_change - contributions.sum()
    sizes = np.abs(contributions)
    total_size = sizes.sum()
    if not total_size > 0:
        return np.asarray(contributions)
    return np.asarray(contributions + remainder * sizes / total_size)
