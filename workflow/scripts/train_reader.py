"""Adapter of rule `train_reader`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.berm.train_reader import train_reader

run_rule(snakemake, train_reader)
