"""Adapter of rule `measure_shares`."""

from zerodr.analysis.shares import measure_shares
from zerodr.artifacts.adapter import run_rule

run_rule(snakemake, measure_shares)
