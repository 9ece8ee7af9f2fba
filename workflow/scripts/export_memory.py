"""Adapter of rule `export_memory`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.retriever import export_memory

run_rule(snakemake, export_memory)
