"""How a fit grows: the time and the memory that it will take, told before it begins.

In: the sizes of a job. Out: what it costs, and a sentence where that is much, or more than there
is. Constants were measured on a grid of sizes by `experiments/scripts/growth_of_fits.py`, which has
what is foretold beside what it really takes: within a factor of two, on one thread of a server.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

from polyseme._memory import in_bytes, machine_bytes
from polyseme._threads import n_cores
from polyseme._validation import InputError, PolysemeWarning
from polyseme.linear_path import MOST_FEATURES
from polyseme.training import MOST_THREADS, VALIDATION_STEPS, SpacePlan

# Seconds of a step: what any takes, and for each multiplication of its products.
_STEP = 1.6e-3
_PRODUCT = 1.42e-11
# Of labels that a step does not read, the share that still costs as much: weights are updated.
_UNREAD = 0.45
# Seconds of calibration for an item and a label, and of votes for an item and a document.
_CELL = 1.2e-6
_VOTE = 2.8e-8
# Items that are calibrated on, at most and at least, and axes; see `ConceptSpace`.
_CALIBRATED = 4096
_REFERENCE = 512
_AXES = 128
# Of the small spaces that a fit is validated by: documents at most, and members.
_VALIDATION_DOCUMENTS = 20_000
_VALIDATION_MEMBERS = 2
# Memory of the libraries, and of a document beside its labels.
_LIBRARIES = 4.3e8
_DOCUMENT = 900.0
# A fit that takes longer says so, and one that takes more than this share of the memory.
LONG_SECONDS = 120.0
MUCH_MEMORY = 0.7


class Cost(NamedTuple):
    """What a job takes: seconds of one processor, and memory in bytes."""

    seconds: float
    bytes: float


def cost_of_fit(
    plan: SpacePlan,
    n_documents: int,
    n_labels: int,
    n_items: int = 0,
    n_features: int = 0,
    n_validations: int = 0,
) -> Cost:
    """Foretell what it takes to fit a tagger on one processor.

    Parameters
    ----------
    plan : SpacePlan
        As it was fitted to the size of the data.
    n_documents, n_labels, n_items, n_features : int
        All documents, those of items among them; no items where there are no features.
    n_validations : int
        How often small spaces are fitted before that.
    """
    n_members = plan.n_folds * plan.members_per_fold
    seconds = n_members * plan.n_steps * _step_seconds(plan, n_labels, n_features)
    seconds += _calibration_seconds(n_documents, n_labels, n_items)
    seconds += _linear_path_seconds(n_items, n_features)
    if n_items and n_validations:
        documents = min(n_documents, _VALIDATION_DOCUMENTS)
        small = plan.sized(documents).shortened(VALIDATION_STEPS)
        steps = _VALIDATION_MEMBERS * small.n_steps
        draw_seconds = steps * _step_seconds(small, n_labels, n_features)
        draw_seconds += 1.5 * _calibration_seconds(documents, n_labels, n_items)
        draw_seconds += 2 * _linear_path_seconds(min(n_items, documents), n_features)
        seconds += n_validations * draw_seconds
    dimensions = n_members * plan.code
    rounds = 4.0 * n_items * (n_features + 2 * n_labels)
    memory = _LIBRARIES + plan.weight_bytes(n_labels, n_features)
    memory += 48.0 * _calibrated(n_labels, n_items) * n_labels + 32.0 * dimensions * n_labels
    memory += 1.5 * min(rounds, plan.memory_mb * 2**20) + 12.0 * n_items * n_features
    memory += 48.0 * min(n_features, MOST_FEATURES) ** 2
    memory += (_DOCUMENT + 4 * _AXES) * n_documents
    return Cost(seconds, memory)


def _step_seconds(plan: SpacePlan, n_labels: int, n_features: int) -> float:
    """Foretell the seconds of one step of one member."""
    read = min(n_labels, plan.label_block)
    labels = read + _UNREAD * (n_labels - read)
    inner = plan.hidden * plan.code
    by_tags = labels * (plan.hidden + plan.code) + inner
    by_features = n_features * plan.hidden + labels * plan.code + inner
    rows = plan.document_batch + plan.probable_batch if n_features else plan.document_batch
    products = rows * by_tags + (plan.item_batch * by_features if n_features else 0)
    return _STEP + 6 * _PRODUCT * products


def _calibrated(n_labels: int, n_items: int) -> int:
    """Count the items that a space is calibrated on."""
    most = max(_REFERENCE, min(_CALIBRATED, _CALIBRATED * 2048 // max(n_labels, 1)))
    return min(n_items, most)


def _calibration_seconds(n_documents: int, n_labels: int, n_items: int) -> float:
    """Foretell the seconds of what follows the training."""
    items = _calibrated(n_labels, n_items)
    return items * (_CELL * n_labels + _VOTE * n_documents)


def _linear_path_seconds(n_items: int, n_features: int) -> float:
    """Foretell the seconds of a ridge regression: normal equations, solved some ten times."""
    if n_features > MOST_FEATURES:
        return 0.0
    return _PRODUCT * (2.0 * n_items + 8.0 * n_features) * n_features**2


def warn_about_cost(cost: Cost, plan: SpacePlan, n_labels: int, stacklevel: int = 3) -> None:
    """Warn before a fit that takes long or much memory, with the figure and the way round.

    Parameters
    ----------
    cost : Cost
    plan : SpacePlan
    n_labels : int
    stacklevel : int
        Whose line the warning names.
    """
    n_members = plan.n_folds * plan.members_per_fold
    threads = max(1, min(n_cores(), MOST_THREADS, n_members))
    seconds = cost.seconds / threads
    there = machine_bytes()
    if cost.bytes > 2 * there:
        raise InputError(
            f"This fit would need about {in_bytes(cost.bytes)} of memory, and this machine has "
            f"{in_bytes(there)}; leave out rare labels or some features, lower `hidden` of the "
            "plan, or set `members_per_fold` of the space to 1."
        )
    told = []
    if seconds > LONG_SECONDS:
        told.append(f"about {in_time(seconds)} on {threads} core{'s' if threads > 1 else ''}")
    if cost.bytes > MUCH_MEMORY * there:
        told.append(f"about {in_bytes(cost.bytes)} of the {in_bytes(there)} of memory")
    if told:
        warnings.warn(
            f"This fit will take {' and '.join(told)}: {n_members} members, {plan.n_steps} steps "
            f"each, over {n_labels:,} labels. A GPU (--device cuda), fewer rare labels, "
            "`members_per_fold=1` of the space or `n_validations=0` (--validations 0) make it "
            "less; with a checkpoint it goes on where it was interrupted.",
            PolysemeWarning,
            stacklevel=stacklevel,
        )


def in_time(seconds: float) -> str:
    """Return a number of seconds for people."""
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {name}"
    return f"{seconds:.0f} seconds"
