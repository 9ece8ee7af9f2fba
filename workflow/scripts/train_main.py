"""Adapter of rule `train_main`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.finetune import finetune

run_rule(snakemake, finetune)
