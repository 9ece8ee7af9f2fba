"""Adapter of rule `embed_memory_queries`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.embed_fused import embed_memory_queries

run_rule(snakemake, embed_memory_queries)
