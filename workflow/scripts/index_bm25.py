"""Adapter of rule `index_bm25`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.lexical.index import index_bm25

run_rule(snakemake, index_bm25)
