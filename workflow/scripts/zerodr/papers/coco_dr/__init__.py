"""COCO-DR: implicit distributionally robust optimisation over clusters of source queries (iDRO), and its controls.

In order of the method: `settings`, `items`, `plan`; `cluster_queries`; `losses`, `group_weights` (how weights follow
from losses and gradients); `group_layers`, `group_sums`, `group_engines` (how gradients of groups are compared);
`objective`, `training` (what a fine-tuning stage gets); `measure_clusters` (losses by cluster); `measure_space` (spaces
of COCO pretraining); `report_clusters`, `report_spaces`, `report`.
"""
