"""Adapter of rule `fuse_runs`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.fuse import fuse_runs

run_rule(snakemake, fuse_runs)
