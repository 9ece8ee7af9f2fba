"""Adapter of rule `project_domains`."""

from zerodr.analysis.projection import project_domains
from zerodr.artifacts.adapter import run_rule

run_rule(snakemake, project_domains)
