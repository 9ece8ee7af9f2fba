"""Adapter of rule `embed_memory`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.embed_fused import embed_memory

run_rule(snakemake, embed_memory)
