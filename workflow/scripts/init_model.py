"""Adapter of rule `init_model`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.encoders.start.initial import init_model

run_rule(snakemake, init_model)
