"""Adapter of rule `evaluate_run`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.evaluation.evaluate import evaluate_run

run_rule(snakemake, evaluate_run)
