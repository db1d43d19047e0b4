"""Proof that what a split hides did not reach training."""

from __future__ import annotations

from polyseme_experiments.audit.audit import Given, audit
from polyseme_experiments.audit.receipt import Check, Receipt

__all__ = ["Check", "Given", "Receipt", "audit"]
