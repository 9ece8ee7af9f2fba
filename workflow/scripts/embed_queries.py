"""Adapter of rule `embed_queries`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.embed import embed_queries

run_rule(snakemake, embed_queries)
