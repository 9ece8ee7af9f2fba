"""Adapter of rule `read_units`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.berm.read_units import read_units

run_rule(snakemake, read_units)
