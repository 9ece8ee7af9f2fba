"""BERM: embeddings that balance the units of a passage and from which its essential unit can be told.

In the order of the method: `settings`, `checks`, `items`, `plan`; `unit_spans`, `segment_units`, `unit_table` (units);
`answers`, `reader`, `train_reader`, `unit_scores`, `label_units` (which one is essential); `losses`, `training` (what a
fine-tuning stage gets), `pretraining` (R1 next to pretraining); `measure_units`, `report`.
"""
