"""Files on disk: atomic writes, locks, saved models, checkpoints."""
