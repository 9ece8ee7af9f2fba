"""Adapter of rule `merge_candidates`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.merge import merge_candidates

run_rule(snakemake, merge_candidates)
