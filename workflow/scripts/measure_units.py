"""Adapter of rule `measure_units`."""

from zerodr.analysis.unit_measures import measure_units
from zerodr.artifacts.adapter import run_rule

run_rule(snakemake, measure_units)
