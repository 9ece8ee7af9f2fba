"""Adapter of rule `measure_shares`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.measure_shares import measure_shares

run_rule(snakemake, measure_shares)
