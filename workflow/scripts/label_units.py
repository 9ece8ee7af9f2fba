"""Adapter of rule `label_units`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.mining.unit_labels import label_units

run_rule(snakemake, label_units)
