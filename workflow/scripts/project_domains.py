"""Adapter of rule `project_domains`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.modir.project_domains import project_domains

run_rule(snakemake, project_domains)
