"""Adapter of rule `cut_spans`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.mining.spans import cut_spans

run_rule(snakemake, cut_spans)
