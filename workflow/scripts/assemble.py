"""Adapter of rule `assemble`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.ddr.assemble import assemble

run_rule(snakemake, assemble)
