"""Adapter of rule `join_components`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.episode import join_components

run_rule(snakemake, join_components)
