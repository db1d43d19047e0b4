"""Why a label has its score: parts that add up to the logit that was given.

In: what a concept space knows of one item, and a label's readout. Out: how much of the logit comes
from the label's frequency, from the features, from each tag and from known tag sets.

Terms: an item's code is, member by member, a mix of what its features say (*direct*) and what its
*probable tags* say (the context, whose share is `space.context`); beside members' codes stand the
*coordinates* of the linear path. A *readout* gives the logit: code @ weights + intercept. Known
documents *vote* for the labels they hold, the nearer to the code the more.
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

# Midpoints on the way from average tags to this item's at which slopes are taken. What 64 leave of
# the change in the logit is small, and is shared out; see `integrated_gradients`.
_N_MIDPOINTS = 64


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
    name : float
        What the likeness of the item and the label's name says (`label_names` of `fit`).
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
    name: float = 0.0
    implied_by: str | None = None

    def parts(self) -> tuple[tuple[str, float], ...]:
        """Return what adds up to the logit: pairs of a name for people and a part of the logit."""
        parts_of_logit = [
            ("how common the tag is", self.frequency),
            ("features", self.features),
        ]
        for tag in self.tags:
            parts_of_logit.append((tag.tag, tag.part))
        parts_of_logit.append(("other tags", self.other_tags))
        parts_of_logit.append(("known tag sets nearby", self.known))
        if self.name:
            parts_of_logit.append(("the name", self.name))
        if self.verdicts:
            parts_of_logit.append(("answers about it", self.verdicts))
        return tuple(parts_of_logit)

    def __repr__(self) -> str:
        """Return what it is evidence of, in a line; `str` tells the parts."""
        n_tags = len(self.tags)
        n_neighbours = len(self.neighbours)
        size = f"{n_tags} tags, {n_neighbours} known tag sets"
        return f"Evidence({self.label} ({self.kind}), logit {self.logit:+.2f}: {size})"

    def __str__(self) -> str:
        """Return a line for each part of the logit, and one for the sum."""
        lines = []
        for name, part_of_logit in self.parts():
            lines.append(f"{part_of_logit:+.2f} {name}")
        summary = f"{self.label} ({self.kind}) has the probability {self.probability:.2f}"
        if self.implied_by is not None:
            summary += f", by way of {self.implied_by}"
        lines.append(f"{self.logit:+.2f} in all: {summary}")
        return "\n".join(lines)


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
        Those that are given. One of the two is not None.
    column : int
        The label's column in the order of `scorer.labels`.
    k : int
        How many tags, and how many known tag sets, to name at the most.

    Returns
    -------
    Evidence
        Whose parts add up to the logit that the scorer gives, `frequency` being what is left.
    """
    space = scorer.space
    readout = scorer.tag_readout if features is None else scorer.item_readout
    weights = readout.weights[:, column]
    learned_tags = None
    if tags is not None:
        n_learned = scorer.store.n_learned
        learned_tags = sp.csr_matrix(tags[:, :n_learned])
    # In members' order, `space.order_`, in which labels of training items come first.
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
        """Return the code (1, n_dimensions) of this item with other probable tags (n_labels,)."""
        tag_rows = probable_tags[None]
        member_codes = space.encode_context(tag_rows)
        if features is not None:
            member_codes = space.compose(encoded.direct, member_codes)
        columns = [member_codes, encoded.coordinates]
        return np.hstack(columns)

    # The logit, and what each part of the code contributes to it.
    item_logits = scorer.logits(encoded.codes, features)
    logit_value = float(item_logits[0, column])
    members = space.members_
    member_weights = weights[: members.n_dimensions]
    gradients = integrated_gradients(members, member_weights, average_tags, item_tags)
    tag_parts = context_share * gradients
    vote_part = 0.0
    if features is not None and scorer.is_voted_for(column):
        vote_part = _vote_part(scorer, encoded.codes, column)
    name_part = 0.0
    if features is not None and scorer.names is not None:
        name_additions = scorer.names.additions(features)
        name_part = float(name_additions[0, column])
    verdict_part = 0.0
    if features is not None and column in scorer.corrections.columns:
        correction = scorer.corrections.select([column])
        projections = space.project(features)
        additions = correction.additions(projections)
        verdict_part = float(additions[0, 0])

    # The tags that contribute most, each with the logit without it.
    strongest_first = np.argsort(-np.abs(tag_parts), kind="stable")
    strongest = strongest_first[:k]
    strongest = strongest[tag_parts[strongest] != 0]
    tag_evidence = []
    for place in strongest.tolist():
        other_tags = item_tags.copy()
        other_tags[place] = average_tags[place]
        code_without = code_of(other_tags)
        logits_without = scorer.logits(code_without, features)
        logit_without = float(logits_without[0, column])
        evidence = TagEvidence(
            tag=scorer.labels[space.order_[place]],
            probability=float(item_tags[place]),
            part=float(tag_parts[place]),
            without=logit_without - logit_value,
        )
        tag_evidence.append(evidence)

    tag_sum = float(tag_parts.sum())
    named_parts = [evidence.part for evidence in tag_evidence]
    named_sum = sum(named_parts)
    probability = 0.0  # of labels that may not be suggested
    if scorer.in_use[column]:
        probability = float(sigmoid(np.array(logit_value)))
    point = space.points(encoded.codes)[0]
    return Evidence(
        label=scorer.labels[column],
        kind=str(scorer.kinds[column]),
        probability=probability,
        logit=logit_value,
        # What is left where features and tags are average and documents vote alike.
        frequency=logit_value - feature_part - tag_sum - vote_part - name_part - verdict_part,
        features=feature_part,
        tags=tuple(tag_evidence),
        other_tags=tag_sum - named_sum,
        known=vote_part,
        neighbours=scorer.store.nearest(point, column, k),
        verdicts=verdict_part,
        name=name_part,
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
    """Compute what an item's features say directly, beyond what they say on average.

    `encoded` is of one item; `weights` (n_dimensions,) read the label from its code.
    """
    columns = [encoded.direct, encoded.coordinates]
    feature_codes = np.hstack(columns)
    feature_code = feature_codes[0].astype(np.float64)
    difference = feature_code - space.mean_code_
    # Members' codes give a share to the context; the linear path beside them does not.
    n_member_dimensions = space.members_.n_dimensions
    difference[:n_member_dimensions] *= 1 - space.context
    return float(difference @ weights)


def _vote_part(scorer: LabelScorer, codes: Floats, column: int) -> float:
    """Compute what known documents near an item's code say, beyond what all of them do.

    `codes` (1, n_dimensions) are of the item, `column` is of a label that is voted for.
    """
    store = scorer.store
    n_documents = len(store.ids)
    # If all documents voted alike, a label's share would be how often they hold it.
    count = store.counts[column]
    frequency = count / max(n_documents, 1)
    shares = scorer.vote_shares(codes)
    near_share = shares[0, column]
    both_shares = np.array([near_share, frequency])
    both_logits = vote_logits(both_shares, scorer.space.priming)
    near_logit, average_logit = both_logits
    return float(near_logit - average_logit)


def integrated_gradients(
    members: Members, weights: Matrix, start: NDArray[np.float32], end: NDArray[np.float32]
) -> Matrix:
    """Compute what each tag changes in a label's logit, by integrated gradients.

    The attribution method of Sundararajan, Taly and Yan (2017). A tag's part is its slope on the
    straight way from start to end, averaged over midpoints, times how far the tag moves. Midpoints
    leave a small remainder of the logit's change, which is shared out in proportion to the parts'
    sizes.

    Parameters
    ----------
    members : Members
    weights : float array, shape (n_member_dimensions,)
        Read the label from the codes of all members side by side.
    start, end : float32 arrays, shape (n_labels,)
        Probable tags in members' order: on average, and this item's.

    Returns
    -------
    float64 array, shape (n_labels,)
        Parts that sum to the change of the logit between start and end.
    """
    places = np.arange(_N_MIDPOINTS, dtype=np.float32)
    midpoints = (places + 0.5) / _N_MIDPOINTS
    difference = end - start
    # By member, (n_members, 1, code); arrays below are (n_members, n_midpoints, …).
    member_weights = weights.reshape(len(members), 1, -1).astype(np.float32)
    first_layer, second_layer = members.document_layers
    first_weights, first_bias = first_layer
    second_weights, second_bias = second_layer

    # Forwards through the two layers of every member at every midpoint.
    steps = midpoints[:, None] * difference
    path = start + steps
    unit_inputs = affine(path, first_weights, first_bias)
    units = rectified(unit_inputs)
    code_inputs = affine(units, second_weights, second_bias)
    codes = squashed(code_inputs)

    # Backwards: tanh' = 1 - tanh².
    tanh_slopes = 1 - codes * codes
    code_gradients = member_weights * tanh_slopes
    is_active = units > 0
    unit_gradients = (code_gradients @ second_weights.mT) * is_active
    member_gradients = unit_gradients @ first_weights.mT
    gradients = member_gradients.sum(axis=0)  # of the logit, at every midpoint
    tag_gradients = gradients.mean(axis=0)
    contributions = tag_gradients * difference
    contributions = contributions.astype(np.float64)

    # The remainder, and how it is shared out.
    both_tags = np.stack([start, end])
    both_codes = members.encode_documents(both_tags)  # (n_members, 2, code)
    start_codes = both_codes[:, :1]
    end_codes = both_codes[:, 1:]
    code_changes = end_codes - start_codes
    weighted_changes = member_weights * code_changes
    logit_change = float(weighted_changes.sum(dtype=np.float64))
    remainder = logit_change - contributions.sum()
    sizes = np.abs(contributions)
    total_size = sizes.sum()
    if not total_size > 0:
        return np.asarray(contributions)
    shared_remainder = remainder * sizes / total_size
    return np.asarray(contributions + shared_remainder)
