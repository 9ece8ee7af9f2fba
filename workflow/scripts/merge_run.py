"""Adapter of rule `merge_run`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.merge import merge_run

run_rule(snakemake, merge_run)
