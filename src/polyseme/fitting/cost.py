"""Forecast the seconds and the memory of a fit before it begins.

In: the sizes of the data. Out: the cost, and a warning or an error where it is high. The constants
were measured on a grid of sizes by `experiments/scripts/growth_of_fits.py`, which prints forecasts
beside measurements, on one thread of a server and with MKL's products: they agreed within a factor
of two. Where oneDNN computes the products, fits take down to half as long.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

from polyseme.base.machine import in_bytes, machine_bytes, n_cores
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.space.linear_path import MOST_FEATURES, MOST_KERNEL_ITEMS
from polyseme.space.training import MOST_THREADS, VALIDATION_STEPS, SpacePlan

# All of these were measured as the module says, unless they say where they come from.
#
# Seconds of any training step, and of each floating-point operation of matrix products.
_STEP_SECONDS = 1.6e-3
_OPERATION_SECONDS = 1.42e-11
# Operations of a step for each number that a product multiplies: forwards and twice backwards (for
# weights and for inputs), a multiplication and an addition each.
_STEP_OPERATIONS = 6
# A label that a step does not read costs this share of one that it reads: weights are updated.
_UNREAD_SHARE = 0.45
# Seconds of calibration for an item and a label, and of votes for an item and a document.
_CALIBRATION_CELL_SECONDS = 1.2e-6
_VOTE_SECONDS = 2.8e-8
# Items that are calibrated on, at most (fewer above 2048 labels) and at least, and principal axes
# of known documents; the same numbers as in `space.space_fit`.
_MOST_CALIBRATED = 4096
_CALIBRATED_LABELS = 2048
_LEAST_CALIBRATED = 512
_N_AXES = 128
# The small spaces of a validation: documents at most, and members; from `fit_stages.measure`.
_VALIDATION_DOCUMENTS = 20_000
_VALIDATION_MEMBERS = 2
# Bytes of the libraries, of a document beside its labels, and of each number of the tables that
# are largest at some time of a fit, copies included.
_LIBRARY_BYTES = 4.3e8
_DOCUMENT_BYTES = 900.0
_AXIS_BYTES = 4.0  # of float32
_CALIBRATION_CELL_BYTES = 48.0  # items calibrated on x labels
_READOUT_CELL_BYTES = 32.0  # dimensions of the code x labels
_ROUND_CELL_BYTES = 4.0  # items x features and labels, for a round of training
_ROUND_COPIES = 1.5
_FEATURE_CELL_BYTES = 12.0  # items x features
_GRAM_CELL_BYTES = 48.0  # features x features, of the linear path
# A fit that takes longer, or more than this share of the memory, warns.
LONG_SECONDS = 120.0
MUCH_MEMORY = 0.7


# Units of time, the largest first.
_UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))


class Cost(NamedTuple):
    """Seconds of one processor, and the most memory in bytes."""

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
    n_documents, n_labels : int
        All documents that are learned from, and all labels of these.
    n_items, n_features : int
        Items with features, those of a pool included; 0 where there are no features.
    n_validations : int
        How often small spaces are fitted before that.

    Returns
    -------
    Cost
        Seconds of one processor; members that train side by side share them.
    """
    n_members = plan.n_folds * plan.members_per_fold
    n_steps = n_members * plan.n_steps
    seconds_per_step = _step_seconds(plan, n_labels, n_features)
    seconds = n_steps * seconds_per_step
    seconds += _calibration_seconds(n_documents, n_labels, n_items)
    seconds += _linear_path_seconds(n_items, n_features)
    if n_items and n_validations:
        seconds_per_validation = _validation_seconds(
            plan,
            n_documents,
            n_labels,
            n_items,
            n_features,
        )
        seconds += n_validations * seconds_per_validation

    n_dimensions = n_members * plan.code
    n_calibrated = _n_calibrated(n_labels, n_items)
    n_round_columns = n_features + 2 * n_labels
    round_bytes = _ROUND_CELL_BYTES * n_items * n_round_columns
    most_round_bytes = plan.memory_mb * 2**20
    n_linear_features = min(n_features, MOST_FEATURES)
    document_bytes = _DOCUMENT_BYTES + _AXIS_BYTES * _N_AXES
    memory = _LIBRARY_BYTES
    memory += plan.weight_bytes(n_labels, n_features)
    memory += _CALIBRATION_CELL_BYTES * n_calibrated * n_labels
    memory += _READOUT_CELL_BYTES * n_dimensions * n_labels
    round_bytes = min(round_bytes, most_round_bytes)
    memory += _ROUND_COPIES * round_bytes
    memory += _FEATURE_CELL_BYTES * n_items * n_features
    memory += _GRAM_CELL_BYTES * n_linear_features**2
    memory += document_bytes * n_documents
    return Cost(seconds, memory)


def _validation_seconds(
    plan: SpacePlan, n_documents: int, n_labels: int, n_items: int, n_features: int
) -> float:
    """Forecast the seconds of one validation, which fits a small space and simple rankers.

    The sizes are those of `cost_of_fit`.
    """
    n_documents = min(n_documents, _VALIDATION_DOCUMENTS)
    sized_plan = plan.sized(n_documents)
    small_plan = sized_plan.shortened(VALIDATION_STEPS)
    n_steps = _VALIDATION_MEMBERS * small_plan.n_steps
    seconds_per_step = _step_seconds(small_plan, n_labels, n_features)
    calibration_seconds = _calibration_seconds(n_documents, n_labels, n_items)
    n_linear_items = min(n_items, n_documents)
    linear_seconds = _linear_path_seconds(n_linear_items, n_features)
    # What is held out is scored as well; and a ridge regression is fitted to compare with.
    seconds = n_steps * seconds_per_step
    seconds += 1.5 * calibration_seconds
    seconds += 2 * linear_seconds
    return seconds


def _step_seconds(plan: SpacePlan, n_labels: int, n_features: int) -> float:
    """Forecast the seconds of one training step of one member.

    Its products multiply a row by the weights of two layers and a readout: labels (or features) to
    hidden units, these to the code, the code to labels.
    """
    n_read = min(n_labels, plan.label_block)
    n_unread = n_labels - n_read
    n_paid_labels = n_read + _UNREAD_SHARE * n_unread
    layer_sizes = plan.hidden + plan.code
    inner_weights = plan.hidden * plan.code
    tag_weights = n_paid_labels * layer_sizes + inner_weights
    products = plan.document_batch * tag_weights
    if n_features:
        input_weights = n_features * plan.hidden
        readout_weights = n_paid_labels * plan.code
        feature_weights = input_weights + readout_weights + inner_weights
        products += plan.probable_batch * tag_weights
        products += plan.item_batch * feature_weights
    operations = _STEP_OPERATIONS * products
    return _STEP_SECONDS + _OPERATION_SECONDS * operations


def _n_calibrated(n_labels: int, n_items: int) -> int:
    """Return how many items a space is calibrated on: fewer where there are many labels."""
    most_cells = _MOST_CALIBRATED * _CALIBRATED_LABELS
    n_columns = max(n_labels, 1)
    most_by_labels = most_cells // n_columns
    most = min(_MOST_CALIBRATED, most_by_labels)
    most = max(_LEAST_CALIBRATED, most)
    return min(n_items, most)


def _calibration_seconds(n_documents: int, n_labels: int, n_items: int) -> float:
    """Forecast the seconds of calibration and votes after the training."""
    n_calibrated = _n_calibrated(n_labels, n_items)
    cell_seconds = _CALIBRATION_CELL_SECONDS * n_labels
    vote_seconds = _VOTE_SECONDS * n_documents
    seconds_per_item = cell_seconds + vote_seconds
    return n_calibrated * seconds_per_item


def _linear_path_seconds(n_items: int, n_features: int) -> float:
    """Forecast the seconds of a ridge regression: normal equations, solved some ten times.

    With n items and d features, the Gram matrix of features takes 2 n d² operations and the
    solutions 8 d³. Where items are few, their kernel, of 4 d n² operations, is solved some seven
    times as well, in 1.4 n³.
    """
    if n_features > MOST_FEATURES:
        return 0.0  # there is no linear path then
    gram_operations = 2.0 * n_items * n_features**2
    solution_operations = 8.0 * n_features**3
    operations = gram_operations + solution_operations
    if n_items <= MOST_KERNEL_ITEMS:
        operations += 4.0 * n_features * n_items**2
        operations += 1.4 * n_items**3
    return _OPERATION_SECONDS * operations


def warn_about_cost(cost: Cost, plan: SpacePlan, n_labels: int, stacklevel: int = 3) -> None:
    """Warn before a fit that takes long or much memory, with the figure and how to lower it.

    Parameters
    ----------
    cost : Cost
        As `cost_of_fit` forecasts it.
    plan : SpacePlan
        The plan that it was forecast for.
    n_labels : int
    stacklevel : int
        Whose line the warning names; see `warnings.warn`.

    Raises
    ------
    InputError
        Where the fit would need more than twice the memory of the machine.
    """
    n_members = plan.n_folds * plan.members_per_fold
    n_threads = min(n_cores(), MOST_THREADS, n_members)
    n_threads = max(1, n_threads)
    seconds = cost.seconds / n_threads
    memory = machine_bytes()
    if cost.bytes > 2 * memory:
        raise InputError(
            f"This fit would need about {in_bytes(cost.bytes)} of memory, and this machine has "
            f"{in_bytes(memory)}; leave out rare labels or some features, lower `hidden` of the "
            "plan, or set `members_per_fold` of the space to 1."
        )
    amounts = []
    if seconds > LONG_SECONDS:
        cores = "1 core" if n_threads == 1 else f"{n_threads} cores"
        duration = in_time(seconds)
        amounts.append(f"about {duration} on {cores}")
    if cost.bytes > MUCH_MEMORY * memory:
        needed = in_bytes(cost.bytes)
        available = in_bytes(memory)
        amounts.append(f"about {needed} of the {available} of memory")
    if amounts:
        both_amounts = " and ".join(amounts)
        warnings.warn(
            f"This fit will take {both_amounts}: {n_members} members, {plan.n_steps} "
            f"steps each, over {n_labels:,} labels. To make it less, use a GPU (--device cuda), "
            "fewer rare labels, `members_per_fold=1` of the space or `n_validations=0` "
            "(--validations 0); with a checkpoint it goes on where it was interrupted.",
            PolysemeWarning,
            stacklevel=stacklevel,
        )


def in_time(seconds: float) -> str:
    """Return a number of seconds for people, in the largest unit of which there are two."""
    for unit_seconds, unit in _UNITS:
        if seconds >= 2 * unit_seconds:
            count = seconds / unit_seconds
            return f"{count:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
