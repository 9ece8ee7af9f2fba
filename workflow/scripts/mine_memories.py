"""Adapter of rule `mine_memories`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.mine_memories import mine_memories

run_rule(snakemake, mine_memories)
