"""From codes to scores: label scorer, known documents, evidence, senses."""
