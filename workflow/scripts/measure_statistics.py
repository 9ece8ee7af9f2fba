"""Adapter of rule `measure_statistics`."""

from snakemake.script import snakemake
from zerodr.artifacts.adapter import run_rule
from zerodr.collections.statistics import measure_statistics

run_rule(snakemake, measure_statistics)
