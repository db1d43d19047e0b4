"""Forecast the seconds and the memory of a fit before it begins.

In: the sizes of the data. Out: the cost, and a warning or an error where it is high. The constants
were measured on a grid of sizes by `experiments/scripts/growth_of_fits.py`, which prints forecasts
beside measurements: they agree within a factor of two, on one thread of a server.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

from polyseme.base.memory import in_bytes, machine_bytes
from polyseme.base.threads import n_cores
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.space.linear_path import MOST_FEATURES, MOST_KERNEL_ITEMS
from polyseme.space.training import MOST_THREADS, VALIDATION_STEPS, SpacePlan

# Seconds of any step, and for each multiplication of its products.
_STEP = 1.6e-3
_PRODUCT = 1.42e-11
# A label that a step does not read costs this share of one that it reads: weights are updated.
_UNREAD = 0.45
# Seconds of calibration for an item and a label, and of votes for an item and a document.
_CELL = 1.2e-6
_VOTE = 2.8e-8
# Items that are calibrated on, at most and at least, and axes; see `ConceptSpace`.
_CALIBRATED = 4096
_REFERENCE = 512
_AXES = 128
# The small spaces of a validation: documents at most, and members.
_VALIDATION_DOCUMENTS = 20_000
_VALIDATION_MEMBERS = 2
# Memory of the libraries, and of a document beside its labels.
_LIBRARIES = 4.3e8
_DOCUMENT = 900.0
# A fit that takes longer, or more than this share of the memory, warns.
LONG_SECONDS = 120.0
MUCH_MEMORY = 0.7


class Cost(NamedTuple):
    """Seconds of one processor, and memory in bytes."""

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
    """Forecast what it takes to fit a tagger on one processor.

    Parameters
    ----------
    plan : SpacePlan
        Fitted to the size of the data.
    n_documents, n_labels, n_items, n_features : int
        All documents, those of items among them; no items where there are no features.
    n_validations : int
        How often small spaces are fitted before that.
    """
    n_members = plan.n_folds * plan.members_per_fold
    n_steps = n_members * plan.n_steps
    seconds = n_steps * _step_seconds(plan, n_labels, n_features)
    seconds += _calibration_seconds(n_documents, n_labels, n_items)
    seconds += _linear_path_seconds(n_items, n_features)
    if n_items and n_validations:
        seconds += n_validations * _validation_seconds(
            plan, n_documents, n_labels, n_items, n_features
        )

    dimensions = n_members * plan.code
    calibrated_items = _calibrated(n_labels, n_items)
    round_bytes = 4.0 * n_items * (n_features + 2 * n_labels)
    memory = _LIBRARIES
    memory += plan.weight_bytes(n_labels, n_features)
    memory += 48.0 * calibrated_items * n_labels
    memory += 32.0 * dimensions * n_labels
    memory += 1.5 * min(round_bytes, plan.memory_mb * 2**20)
    memory += 12.0 * n_items * n_features
    memory += 48.0 * min(n_features, MOST_FEATURES) ** 2
    memory += (_DOCUMENT + 4 * _AXES) * n_documents
    return Cost(seconds, memory)


def _validation_seconds(
    plan: SpacePlan, n_documents: int, n_labels: int, n_items: int, n_features: int
) -> float:
    """Forecast the seconds of one validation, by a small space."""
    n_documents = min(n_documents, _VALIDATION_DOCUMENTS)
    small_plan = plan.sized(n_documents).shortened(VALIDATION_STEPS)
    n_steps = _VALIDATION_MEMBERS * small_plan.n_steps
    seconds = n_steps * _step_seconds(small_plan, n_labels, n_features)
    seconds += 1.5 * _calibration_seconds(n_documents, n_labels, n_items)
    n_linear_items = min(n_items, n_documents)
    seconds += 2 * _linear_path_seconds(n_linear_items, n_features)
    return seconds


def _step_seconds(plan: SpacePlan, n_labels: int, n_features: int) -> float:
    """Forecast the seconds of one step of one member."""
    n_read = min(n_labels, plan.label_block)
    labels = n_read + _UNREAD * (n_labels - n_read)
    inner = plan.hidden * plan.code
    tag_products = labels * (plan.hidden + plan.code) + inner
    products = plan.document_batch * tag_products
    if n_features:
        feature_products = n_features * plan.hidden + labels * plan.code + inner
        products += plan.probable_batch * tag_products
        products += plan.item_batch * feature_products
    return _STEP + 6 * _PRODUCT * products


def _calibrated(n_labels: int, n_items: int) -> int:
    """Count the items that a space is calibrated on."""
    most_by_labels = _CALIBRATED * 2048 // max(n_labels, 1)
    most = min(_CALIBRATED, most_by_labels)
    return min(n_items, max(_REFERENCE, most))


def _calibration_seconds(n_documents: int, n_labels: int, n_items: int) -> float:
    """Forecast the seconds of calibration and votes after the training."""
    calibrated_items = _calibrated(n_labels, n_items)
    cell_seconds = _CELL * n_labels
    vote_seconds = _VOTE * n_documents
    return calibrated_items * (cell_seconds + vote_seconds)


def _linear_path_seconds(n_items: int, n_features: int) -> float:
    """Forecast the seconds of a ridge regression: normal equations, solved some ten times.

    Where items are few, their kernel is solved some seven times as well.
    """
    if n_features > MOST_FEATURES:
        return 0.0
    rows = 2.0 * n_items + 8.0 * n_features
    operations = rows * n_features**2
    if n_items <= MOST_KERNEL_ITEMS:
        operations += (4.0 * n_features + 1.4 * n_items) * n_items**2
    return _PRODUCT * operations


def warn_about_cost(cost: Cost, plan: SpacePlan, n_labels: int, stacklevel: int = 3) -> None:
    """Warn before a fit that takes long or much memory, with the figure and how to lower it.

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
    memory = machine_bytes()
    if cost.bytes > 2 * memory:
        raise InputError(
            f"This fit would need about {in_bytes(cost.bytes)} of memory, and this machine has "
            f"{in_bytes(memory)}; leave out rare labels or some features, lower `hidden` of the "
            "plan, or set `members_per_fold` of the space to 1."
        )
    amounts = []
    if seconds > LONG_SECONDS:
        cores = "1 core" if threads == 1 else f"{threads} cores"
        amounts.append(f"about {in_time(seconds)} on {cores}")
    if cost.bytes > MUCH_MEMORY * memory:
        amounts.append(f"about {in_bytes(cost.bytes)} of the {in_bytes(memory)} of memory")
    if amounts:
        warnings.warn(
            f"This fit will take {' and '.join(amounts)}: {n_members} members, {plan.n_steps} "
            f"steps each, over {n_labels:,} labels. To make it less, use a GPU (--device cuda), "
            "fewer rare labels, `members_per_fold=1` of the space or `n_validations=0` "
            "(--validations 0); with a checkpoint it goes on where it was interrupted.",
            PolysemeWarning,
            stacklevel=stacklevel,
        )


def in_time(seconds: float) -> str:
    """Return a number of seconds for people."""
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {name}"
    return f"{seconds:.0f} seconds"
