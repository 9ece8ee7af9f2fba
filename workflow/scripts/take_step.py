"""Adapter of rule `take_step`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.encoders.publishing.export import take_step

run_rule(snakemake, take_step)
