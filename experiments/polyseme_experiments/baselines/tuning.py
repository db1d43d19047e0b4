"""The settings that baselines try, and how they choose among them.

In: candidates, and how good each is where labels or instances are held out. Out: the best one.

Every choice is made within `fit`, on training instances and label sets alone: neither test
instances nor their labels take part. Beside each grid stands what its candidates are compared by.
The first of equals wins, so the order of a grid matters. Published results rest on these grids.

Terms: *pseudo-unseen* labels are seen labels that are hidden for the comparison, as if no instance
carried them; they take turns, a group at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from polyseme.base.folds import hidden_groups
from polyseme_experiments.baselines.base import Mask

Candidate = TypeVar("Candidate")

# Groups of labels that take turns as pseudo-unseen ones, unless a parameter says otherwise.
N_HIDDEN_GROUPS = 4

# Best seen labels that `ConSE` combines: compared by `words.zero_shot_quality`, the mean of E-MAP
# and C-MAP on the instances with a pseudo-unseen label, which is ranked among all seen ones.
CONSE_N_TOP = (1, 3, 5, 10, 20)
# Weights of a direction's squared length in `Fast0Tag`: compared as those of `ConSE`, on at most
# 1,000 instances.
FAST0TAG_PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Ridge penalties of `TunedCosta` from seen labels to others, as multiples of the number of label
# sets: compared by the mean average precision of pseudo-unseen labels, predicted from out-of-fold
# predictions of the other seen labels.
TUNED_COSTA_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
# The same penalties for `Costa` as published: compared by the squared error on held-out label sets.
COSTA_PENALTIES = (1e-3, 1e-4, 1e-2, 1e-1, 1.0)
# Bounds C of the support vector machines of `Costa`, together with three widths of their kernel
# (`published.kernels.kernel_widths`): compared by the mean average precision of seen labels on
# held-out instances.
SVM_BOUNDS = (1.0, 0.1, 10.0)
# Instances that vote in `NearestInstances`: compared by E-MAP over seen labels on held-out
# instances.
NEIGHBOUR_COUNTS = (5, 10, 20, 40, 80)
# Dimensions of the space of `LatentSemantic`: compared by E-MAP over seen labels plus E-MAP over
# pseudo-unseen ones, on held-out instances.
COMPONENT_COUNTS = (8, 16, 32, 64, 128)
# `JointFactors` has its own, `joint.SETTINGS`. `Transduction` tries nothing in `fit`: its defaults
# were chosen once, on labels made pseudo-unseen among training items of four corpora.


def best_candidate(
    candidates: Sequence[Candidate],
    qualities: Callable[[Mask], Sequence[float]],
    n_labels: int,
    n_groups: int,
    generator: np.random.Generator,
) -> Candidate:
    """Choose the candidate that is best on labels that take turns as pseudo-unseen ones.

    Parameters
    ----------
    candidates : sequence
    qualities : callable
        Takes which of the seen labels are hidden, (n_labels,), and returns the quality of every
        candidate then, in their order; larger is better.
    n_labels : int
        Seen labels.
    n_groups : int
        Groups that they are divided into.
    generator : numpy Generator
        Draws the groups.
    """
    total_qualities = np.zeros(len(candidates))
    for hidden in hidden_groups(n_labels, n_groups, generator):
        total_qualities += qualities(hidden)
    best = int(np.argmax(total_qualities))
    return candidates[best]
