"""MoDIR: train a bi-encoder on the source so that a classifier can't separate source from target vectors.

In the order of the method: `settings`, `items`, `plan`; `target_texts` (the data); `domain_classifier` (and its
momentum queue), `losses`, `objective` (the adversary); `training` (what a stage gets); `domain_measures`,
`measure_domains` (how domains lie in the space of vectors); `report`.
"""
