"""Adapter of rule `export_memory`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.moma import export_memory

run_rule(snakemake, export_memory)
