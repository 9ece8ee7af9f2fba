"""Adapter of rule `embed_queries`."""

from zerodr.retrieval.embed import embed_queries

from zerodr.artifacts.adapter import run_rule

run_rule(snakemake, embed_queries)
