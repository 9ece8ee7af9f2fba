"""Adapter of rule `assemble`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.encoders.assembly import assemble

run_rule(snakemake, assemble)
