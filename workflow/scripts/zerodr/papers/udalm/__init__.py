"""UDALM: masked words of the target's documents are learned in the same steps as the source's queries.

Karouzos, Paraskevopoulos and Potamianos 2021. In the order of the method: `settings`, `checks`, `plan`; `word_encoder`
(the network with its layer for masked words), `joint_batches` (passes of a step), `training` (what a stage gets).
"""
