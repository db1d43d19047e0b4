"""Named sets of parameters: what trains best, and what the paper published."""

from __future__ import annotations

from typing import Any

from polyseme._validation import unknown_name
from polyseme.published.nn.plan import TrainingPlan

PRESETS = ("default", "paper")


def embedding_parameters(name: str) -> dict[str, Any]:
    """Give the parameters of `ConceptEmbedding` under a preset.

    Parameters
    ----------
    name : {"default", "paper"}
        "default" leaves the constructor's defaults: what trains best. "paper" is the published
        structure and constants: greedy layer-wise pre-training, prediction learning, then the
        combined loss, by plain stochastic gradient descent on losses summed over the batch, with a
        rate that decays by 0.95 every 200 epochs. The layers are those published for HSUN, the
        rate is the one published for MagTag5K: with HSUN's own (5e-6) an epoch moves the weights
        twenty times less, and several thousand are needed. What the paper leaves open (batch size,
        epochs, stopping, λ) is our choice.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    if name == "default":
        return {}
    return {
        "n_components": 200,
        "hidden_sizes": (200, 200),
        "positive_weighting": "balanced",
        "context_sensitivity": 1.0,
        "distance_scale": None,
        "negative_weight": 0.5,
        "distance_weight": 1.0,
        "training": TrainingPlan(
            optimizer="sgd",
            learning_rate=1e-4,
            schedule="step",
            decay=0.95,
            decay_every=200,
            reduction="sum",
            batch_size=256,
            min_steps=1,
            max_epochs=300,
            min_epochs=50,
            patience=50,
            pretrain_epochs=10,
            prediction_epochs=20,
        ),
    }
