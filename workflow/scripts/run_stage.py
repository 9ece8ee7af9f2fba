"""Adapter of all rules: the rule's name says which library function runs (zerodr.plan.rules)."""

from zerodr.artifacts.adapter import run_rule

run_rule(snakemake)
