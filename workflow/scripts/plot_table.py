"""Adapter of rule `plot_table`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.reporting.figure import plot_table

run_rule(snakemake, plot_table)
