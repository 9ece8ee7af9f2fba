"""Adapter of rule `init_reader`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.berm.train_reader import init_reader

run_rule(snakemake, init_reader)
