"""Adapter of rule `search_candidates`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.search import search_shard

run_rule(snakemake, search_shard)
