"""Adapter of rule `publish_lineage`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.lineage.publish import publish_lineage

run_rule(snakemake, publish_lineage)
