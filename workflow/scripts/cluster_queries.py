"""Adapter of rule `cluster_queries`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.coco_dr.cluster_queries import cluster_queries

run_rule(snakemake, cluster_queries)
