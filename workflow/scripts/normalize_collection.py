"""Adapter of rule `normalize_collection`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.collections.normalize import normalize_collection

run_rule(snakemake, normalize_collection)
