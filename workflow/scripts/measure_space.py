"""Adapter of rule `measure_space`."""

from zerodr.analysis.spaces import measure_space
from zerodr.artifacts.adapter import run_rule

run_rule(snakemake, measure_space)
