"""MoDIR: train a bi-encoder on the source so that a classifier can't separate source from target vectors.

In the order of the method: `settings`, `items`, `plan`; `target_texts` and `domain_batches` (the data);
`domain_classifier`, `losses`, `momentum_queue`, `objective` (the adversary); `training` (what a stage gets);
`domain_measures`, `measure_domains`, `project_domains` (how domains lie in the space of vectors); `report`, `figures`.
"""
