"""Adapter of rule `train_reader`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.reader import train_reader

run_rule(snakemake, train_reader)
