"""Adapter of rule `search_memory`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.search_memory import search_memory

run_rule(snakemake, search_memory)
