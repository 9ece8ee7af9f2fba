"""Adapter of rule `build_row`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.reporting.table import build_table

run_rule(snakemake, build_table)
