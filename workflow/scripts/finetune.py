"""Adapter of rule `finetune`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.finetune import finetune

run_rule(snakemake, finetune)
