"""The neural parts of the concept embedding: arrays and integer ids only, no label strings."""
