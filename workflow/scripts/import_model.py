"""Adapter of rule `import_model`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.encoders.start.importing import import_model

run_rule(snakemake, import_model)
