"""Kernel regressions with many outputs: arrays in, coefficients out (part of step 4)."""
