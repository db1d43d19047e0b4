"""The published method, one file a step of the paper.

Sandouk & Chen, "Multi-Label Zero-Shot Learning via Concept Embedding": `descriptors` (what a label
is, and its context) -> `embedding` (both become one concept) -> `mapping` (instances into concept
space) -> `priming` (known concepts near an instance rank the labels) -> `tagger`.
"""
