"""Adapter of rule `measure_attention`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.measure_attention import measure_attention

run_rule(snakemake, measure_attention)
