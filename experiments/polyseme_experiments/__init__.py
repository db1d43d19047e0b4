"""The paper's tables and figures: a name in, records and a report out."""

from __future__ import annotations

from polyseme_experiments.names import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
