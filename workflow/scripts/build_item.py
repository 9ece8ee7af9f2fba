"""Adapter of rule `build_item`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.reporting.items import build_item

run_rule(snakemake, build_item)
