"""Adapter of rule `train_augmenter`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.moma.episode import train_augmenter

run_rule(snakemake, train_augmenter)
