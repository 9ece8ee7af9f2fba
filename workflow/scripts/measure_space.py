"""Adapter of rule `measure_space`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.papers.coco_dr.measure_space import measure_space

run_rule(snakemake, measure_space)
