"""Adapter of rule `cluster_queries`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.mining.clusters import cluster_queries

run_rule(snakemake, cluster_queries)
