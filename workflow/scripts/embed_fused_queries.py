"""Adapter of rule `embed_fused_queries`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.embed_fused import embed_fused_queries

run_rule(snakemake, embed_fused_queries)
