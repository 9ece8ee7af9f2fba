"""Adapter of rule `train_main`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.episode import train_main

run_rule(snakemake, train_main)
