"""Adapter of rule `measure_domains`."""

from zerodr.analysis.measure import measure_domains
from zerodr.artifacts.adapter import run_rule

run_rule(snakemake, measure_domains)
