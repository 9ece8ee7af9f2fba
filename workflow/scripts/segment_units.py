"""Adapter of rule `segment_units`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.berm.segment_units import segment_units

run_rule(snakemake, segment_units)
