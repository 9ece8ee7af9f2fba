"""Adapter of rule `fetch_archive`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.collections.fetch import fetch_archive

run_rule(snakemake, fetch_archive)
