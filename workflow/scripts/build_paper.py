"""Adapter of rule `build_paper`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.reporting.items import build_paper

run_rule(snakemake, build_paper)
