"""The published method, one file a step of the paper.

Sandouk & Chen, "Multi-Label Zero-Shot Learning via Concept Embedding", 2016. Every equation has its
home:

========  ==============================================  ========================================
equation  what it is                                      where
========  ==============================================  ========================================
          features of labels and of contexts              `descriptors`
          the sub-network of the Siamese architecture     `network`, on the pairs of `pairs`
(1)       prediction loss, with the weight κ              `losses.prediction_loss`
(2)       distance E of two concepts                      `losses.distance_loss`
(3)       distance loss, with the similarity S            `losses.distance_loss` (the similarity:
                                                          `context_similarity`; its three cases:
                                                          `distance_targets`)
(4)       loss of a pair                                  `training.ConceptTrainer.compute_gradient`
(5)       target of an instance: mean of its concepts     `embedding.ConceptEmbedding.targets`
(6), (7)  ν-support-vector regression and its dual        `regression.SharedKernelSolver.solve`, by
                                                          the steps of `admm`
(8)       points of new instances                         `kernels.rbf_predict`, by `mapping`
(9)       scores by the nearest known concept             `priming.PrimingRanker.scores`
(10)      features of sound                               `polyseme.media.audio`
(11)      E-MAP                                           `polyseme.metrics.example_map`
(12)      C-MAP                                           `polyseme.metrics.concept_map`
========  ==============================================  ========================================

`tagger` puts the steps together; `index` finds nearest concepts quickly.
"""
