"""Adapter of rule `rank_bm25`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.lexical.candidates import rank_bm25

run_rule(snakemake, rank_bm25)
