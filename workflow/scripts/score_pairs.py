"""Adapter of rule `score_pairs`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.teaching.teacher import score_pairs

run_rule(snakemake, score_pairs)
