"""BERM: embeddings that balance the units of a passage and from which its essential unit can be told.

In the order of the method: `settings`, `checks`, `items`, `plan`; `unit_spans`, `segment_units`, `unit_pairs` (units);
`answers`, `reader_network`, `reader_data`, `train_reader`, `read_units`, `unit_scores`, `label_units` (which one is
essential); `unit_table`, `losses`, `objective`, `training` (what a fine-tuning stage gets), `pretraining` (R1 beside
pretraining); `unit_measures`, `measure_units`, `report`.
"""
