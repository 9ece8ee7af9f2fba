"""Adapter of rule `search_bm25`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.lexical.search import search_bm25

run_rule(snakemake, search_bm25)
