"""COCO-DR: implicit distributionally robust optimisation over clusters of source queries (iDRO), and its controls.

In order of the method: `settings`, `items`, `plan`; `cluster_queries`; `losses`, `cluster_weights` (how weights follow
from losses and gradients); `cluster_layers`, `cluster_sums`, `cluster_engines` (how gradients of clusters are
compared); `training` (what a fine-tuning stage gets); `measures` (losses by cluster, spaces of COCO pretraining);
`report_clusters`, `report`.
"""
