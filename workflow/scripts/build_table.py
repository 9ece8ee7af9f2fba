"""Adapter of rule `build_table`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.reporting.table import build_table

run_rule(snakemake, build_table)
