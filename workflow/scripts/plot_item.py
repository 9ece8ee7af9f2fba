"""Adapter of rule `plot_item`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.reporting.item_figures import plot_item

run_rule(snakemake, plot_item)
