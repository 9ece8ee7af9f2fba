"""Adapter of rule `measure_statistics`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.collections.statistics import measure_statistics

run_rule(snakemake, measure_statistics)
