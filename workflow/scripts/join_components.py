"""Adapter of rule `join_components`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.moma import join_components

run_rule(snakemake, join_components)
