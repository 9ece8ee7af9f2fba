"""Adapter of rule `compare_runs`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.evaluation.compare import compare_runs

run_rule(snakemake, compare_runs)
