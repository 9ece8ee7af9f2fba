"""Adapter of rule `merge_memories`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.search_memory import merge_memories

run_rule(snakemake, merge_memories)
