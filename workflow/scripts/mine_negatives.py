"""Adapter of rule `mine_negatives`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.mining.mine import mine_negatives

run_rule(snakemake, mine_negatives)
