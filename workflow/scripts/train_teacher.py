"""Adapter of rule `train_teacher`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.teaching.teacher import train_teacher

run_rule(snakemake, train_teacher)
