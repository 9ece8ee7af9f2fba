"""Adapter of rule `export_model`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.encoders.publishing.export import export_model

run_rule(snakemake, export_model)
