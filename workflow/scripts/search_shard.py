"""Adapter of rule `search_shard`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.search import search_shard

run_rule(snakemake, search_shard)
