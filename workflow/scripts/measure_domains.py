"""Adapter of rule `measure_domains`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.modir.measure_domains import measure_domains

run_rule(snakemake, measure_domains)
