"""Adapter of rule `init_teacher`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.training.teaching.teacher import init_teacher

run_rule(snakemake, init_teacher)
