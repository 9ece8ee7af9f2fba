"""UDALM: masked words of the target's documents are learned in the same steps as the source's queries.

Karouzos, Paraskevopoulos and Potamianos 2021. In the order of the method: `settings`, `checks`, `plan`; `training` (the
network with its layer for masked words, the passes of a step, what a stage gets).
"""
