"""Adapter of rule `pretrain`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.pretrain import pretrain

run_rule(snakemake, pretrain)
