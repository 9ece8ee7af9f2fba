"""BERM: embeddings that balance the units of a passage and from which its essential unit can be told.

In the order of the method: `settings`; `unit_spans`, `segment_units`, `unit_pairs` (units); `answers`,
`reader_network`, `reader_data`, `train_reader`, `read_units`, `unit_scores`, `label_units` (which one is essential);
`losses`, `training` (what a fine-tuning stage gets), `balance` (beside pretraining); `unit_measures`,
`measure_units`; `report`.
"""
