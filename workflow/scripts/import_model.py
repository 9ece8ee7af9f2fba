"""Adapter of rule `import_model`."""

from zerodr.encoders.importing import import_model

from zerodr.artifacts.adapter import run_rule

run_rule(snakemake, import_model)
