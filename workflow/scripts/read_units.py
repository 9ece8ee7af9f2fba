"""Adapter of rule `read_units`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.unit_reading import read_units

run_rule(snakemake, read_units)
