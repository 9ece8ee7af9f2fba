"""Adapter of rule `measure_units`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.berm.measure_units import measure_units

run_rule(snakemake, measure_units)
