"""Adapter of rule `label_units`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.berm.label_units import label_units

run_rule(snakemake, label_units)
